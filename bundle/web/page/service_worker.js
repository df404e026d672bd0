/** Keeps the page for use without a network, and sends nothing. */

/** @type {{files: string[], later: string[], version: string}} written by build.mjs */
const { files, later, version } = /** @type {any} */ (globalThis).BUILD;
const own = /** @type {any} */ (globalThis);

own.addEventListener("install", (/** @type {any} */ event) => {
  const fresh = files.map((name) => new Request(name, { cache: "reload" }));
  event.waitUntil(caches.open(version).then((cache) => cache.addAll(fresh)));
});

own.addEventListener("activate", (/** @type {any} */ event) => {
  const old = async () => Promise.all((await caches.keys()).filter((name) => name !== version).map((name) => caches.delete(name)));
  event.waitUntil(old().then(() => own.clients.claim()));
});

/** A file of the page, from the cache; nothing else leaves the browser. @type {(request: Request) => Promise<Response | undefined>} */
async function answer(request) {
  const path = request.url.slice(own.registration.scope.length).split(/[?#]/)[0] || "index.html";
  if (request.method !== "GET" || ![...files, ...later].includes(path)) return Response.error();
  const cache = await caches.open(version);
  return (await cache.match(path)) ?? (await cache.add(path), cache.match(path));
}

own.addEventListener("fetch", (/** @type {any} */ event) => event.respondWith(answer(event.request)));
