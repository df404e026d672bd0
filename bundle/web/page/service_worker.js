/** Keeps the page for use without a network, and gives its files the headers that threads need and that forbid to send. */

/** @type {{files: string[], later: string[], version: string, policy: string}} written by build.mjs */
const { files, later, version, policy } = /** @type {any} */ (globalThis).BUILD;
const own = /** @type {any} */ (globalThis);
const HEADERS = {
  "Content-Security-Policy": policy,
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
};

own.addEventListener("install", (/** @type {any} */ event) => {
  own.skipWaiting();
  const fresh = files.map((name) => new Request(name, { cache: "reload" }));
  event.waitUntil(caches.open(version).then((cache) => cache.addAll(fresh)));
});

own.addEventListener("activate", (/** @type {any} */ event) => {
  const old = async () => Promise.all((await caches.keys()).filter((name) => name !== version).map((name) => caches.delete(name)));
  event.waitUntil(old().then(() => own.clients.claim()));
});

/** A file of the page, from the cache; nothing else leaves the browser. @type {(request: Request) => Promise<Response>} */
async function answer(request) {
  const path = request.url.slice(own.registration.scope.length) || "index.html";
  if (request.method !== "GET" || ![...files, ...later].includes(path)) return Response.error();
  const cache = await caches.open(version);
  let found = await cache.match(path);
  if (!found) {
    found = await fetch(path);
    if (!found.ok) return Response.error();
    await cache.put(path, found.clone());
  }
  const headers = new Headers(found.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  return new Response(found.body, { status: found.status, headers });
}

own.addEventListener("fetch", (/** @type {any} */ event) => event.respondWith(answer(event.request)));
