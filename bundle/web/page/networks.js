/** The networks in a thread of their own. Its name is the device: "wasm" or "webgpu". */
import { expose } from "comlink";
import { loadNetworks } from "../rebuild/networks.js";
import { own } from "./threads.js";

const { name } = /** @type {{name: string}} */ (/** @type {any} */ (globalThis));
const runtime = name === "webgpu" ? import("onnxruntime-web/webgpu") : import("onnxruntime-web/wasm");
expose(loadNetworks(runtime, (file) => own(`model/${file}`), name));
