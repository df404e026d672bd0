/** Reads and rebuilds a scan apart from the page, so that the page goes on answering. */
import { expose, wrap } from "comlink";
import constants from "../model/constants.js";
import { refuse } from "../errors.js";
import { writeNifti } from "../inputs/nifti.js";
import { findScans, only, taken } from "../inputs/readers.js";
import { describe, facts } from "../outputs/record.js";
import { place } from "../rebuild/guide.js";
import { rebuild } from "../rebuild/inferer.js";
import { apart } from "../rebuild/networks.js";
import { settle } from "../stack/acquisition.js";
import { fineAffine } from "../stack/grid.js";
import { intensityRange } from "../stack/intensity.js";
import { cubic } from "../stack/interpolation.js";
import { own, thread } from "./threads.js";

/** @type {import("../inputs/readers.js").Found[]} */
let found;
/** @type {Scan} */
let scan;
/** @type {Acquisition} */
let acquisition;

/** @param {File[]} files */
async function scansOf(files) {
  const named = files.map(async (file) => ({ name: file.name, bytes: new Uint8Array(await file.arrayBuffer()) }));
  return findScans(await Promise.all(named), () => own("dcm2niix.jpeg.wasm"));
}

/** The scan rebuilt by networks, the last of which judges a graphics card.
 * @type {(networks: Networks[], gpu: boolean, guide: File[], progress: (share: number) => void) => Promise<object>} */
async function rebuilt(networks, gpu, guide, progress) {
  if (gpu) {
    const difference = await apart([networks[0], /** @type {Networks} */ (networks.pop())]);
    refuse(difference > 1e-3, "this graphics card computes something else than the processor. Rebuild without it.");
  }
  const half = (/** @type {number} */ first) => (guide.length ? (/** @type {number} */ share) => progress((first + share) / 2) : progress);
  const placed = guide.length ? await place(await taken(only(await scansOf(guide))), scan, acquisition, networks, half(0)) : undefined;
  const result = await rebuild(scan, acquisition, networks, half(1), placed);
  const device = `browser, onnxruntime-web on ${gpu ? "WebGPU" : `${networks.length} threads of the processor`}`;
  const spline = cubic(scan.volume, acquisition);
  return {
    record: describe(scan, acquisition, result, device, placed),
    rebuilt: await writeNifti(result.volume, result.affine, scan.header),
    cubic: await writeNifti(spline, fineAffine(scan.affine, acquisition), scan.header),
  };
}

/** What the page may ask for. */
const tasks = {
  /** Names of the scans among files. @param {File[]} files */
  async read(files) {
    found = await scansOf(files);
    return found.map(({ scan }) => scan.name);
  },

  /** One of them, which is then settled and rebuilt. @param {number} k */
  async take(k) {
    scan = await taken(found[k]);
    const { low, high } = intensityRange(scan.volume);
    const facts = { name: scan.name, shape: scan.volume.shape, guided: constants.card.guide_share > 0 };
    return { ...facts, low, high, measured: await writeNifti(scan.volume, scan.affine, scan.header) };
  },

  /** @param {Options} options */
  settle(options) {
    acquisition = settle(scan, options);
    return { facts: facts(acquisition, scan.affine), warnings: acquisition.warnings };
  },

  /** @type {(gpu: boolean, threads: number, guide: File[], progress: (share: number) => void) => Promise<object>} */
  async rebuild(gpu, threads, guide, progress) {
    const workers = (gpu ? ["webgpu", "wasm"] : Array(threads).fill("wasm")).map((device) => thread("networks.js", device));
    const networks = workers.map((one) => /** @type {any} */ (wrap(one)));
    const failed = new Promise((_, reject) => {
      for (const one of workers) one.onerror = () => reject(new Error("the networks were not loaded"));
    });
    try {
      return /** @type {object} */ (await Promise.race([failed, rebuilt(networks, gpu, guide, progress)]));
    } finally {
      workers.forEach((one) => one.terminate());
    }
  },
};
expose(tasks);
