/** Builds dist/, a static folder: node build.mjs, after python export.py. */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { cp, mkdir, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { build } from "esbuild";

const DIST = new URL("dist/", import.meta.url).pathname;
const POLICY = [
  ...["default-src 'none'", "script-src 'self' 'wasm-unsafe-eval' blob:", "worker-src 'self' blob:", "connect-src 'self'"],
  ...["style-src 'self'", "img-src 'self' blob: data:", "base-uri 'none'", "form-action 'none'"],
].join("; ");
const ORT = "node_modules/onnxruntime-web/dist";
const PARTS = [
  ...["ort.wasm.bundle.min.mjs", "ort.webgpu.bundle.min.mjs"],
  ...["ort-wasm-simd-threaded.wasm", "ort-wasm-simd-threaded.asyncify.wasm"],
].map((name) => [`${ORT}/${name}`, name]);

process.chdir(new URL(".", import.meta.url).pathname);
await rm(DIST, { recursive: true, force: true });
await mkdir(DIST);
/** onnxruntime starts threads from its own file, so it stays a file. @type {import("esbuild").Plugin} */
const apart = {
  name: "apart",
  setup: ({ onResolve }) => {
    onResolve({ filter: /^onnxruntime-web\// }, ({ path }) => ({ path: `./ort.${path.split("/")[1]}.bundle.min.mjs`, external: true }));
    onResolve({ filter: /^module$/ }, () => ({ path: "module", external: true })); // dcm2niix in Node
  },
};
/** @type {import("esbuild").BuildOptions} */
const shared = { absWorkingDir: process.cwd(), bundle: true, format: "esm", target: "es2022", minify: true, legalComments: "linked", outdir: DIST, plugins: [apart] };
await build({ ...shared, entryPoints: ["page/page.js", "page/worker.js", "page/networks.js"] });
for (const [from, to] of [...PARTS, ["node_modules/@niivue/dcm2niix/dist/dcm2niix.jpeg.wasm", "dcm2niix.jpeg.wasm"], ["page/style.css", "style.css"]]) {
  await cp(from, join(DIST, to));
}
await cp("model", join(DIST, "model"), { recursive: true, filter: (path) => !path.endsWith(".js") });
const html = (await readFile("page/index.html", "utf8")).replace("POLICY", POLICY);
await writeFile(join(DIST, "index.html"), existsSync("model/sample.nii.gz") ? html : html.replace(/.*id="sample".*\n/, ""));
const names = (await readdir(DIST, { recursive: true, withFileTypes: true })).filter((one) => one.isFile());
const files = names.map((one) => join(one.parentPath, one.name).slice(DIST.length)).sort();
const hash = createHash("sha256");
for (const name of files) hash.update(await readFile(join(DIST, name)));
const later = files.filter((name) => /webgpu|asyncify|sample/.test(name)); // loaded if they are asked for
const facts = { files: files.filter((name) => !later.includes(name)), later, version: hash.digest("hex") };
const size = async (/** @type {string[]} */ some) => (await Promise.all(some.map((name) => stat(join(DIST, name))))).reduce((sum, one) => sum + one.size, 0);
console.log(`dist: a visit loads ${Math.round((await size(facts.files)) / 1e6)} MB; ${Math.round((await size(later)) / 1e6)} MB more are there`);
const banner = { js: `globalThis.BUILD = ${JSON.stringify(facts)};` };
await build({ ...shared, entryPoints: ["page/service_worker.js"], format: "iife", banner });
