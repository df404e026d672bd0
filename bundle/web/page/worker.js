/** Reads and rebuilds a scan apart from the page, so that the page goes on answering. */
import { expose, wrap } from "comlink";
import constants from "../model/constants.js";
import { refuse } from "../errors.js";
import { writeNifti } from "../inputs/nifti.js";
import { readScan } from "../inputs/readers.js";
import { describe, facts } from "../outputs/record.js";
import { place } from "../rebuild/guide.js";
import { rebuild } from "../rebuild/inferer.js";
import { apart } from "../rebuild/networks.js";
import { settle } from "../stack/acquisition.js";
import { fineAffine } from "../stack/grid.js";
import { intensityRange } from "../stack/intensity.js";
import { cubic } from "../stack/interpolation.js";
import { own, thread } from "./threads.js";

/** @type {Scan} */
let scan;
/** @type {Acquisition} */
let acquisition;

/** @type {(files: File[]) => Promise<Scan>} */
async function scanOf(files) {
  const named = files.map(async (file) => ({ name: file.name, bytes: new Uint8Array(await file.arrayBuffer()) }));
  return readScan(await Promise.all(named), await own("dcm2niix.jpeg.wasm"));
}

/** What the page may ask for. */
const tasks = {
  /** @param {File[]} files */
  async read(files) {
    scan = await scanOf(files);
    const { low, high } = intensityRange(scan.volume);
    const told = { name: scan.name, shape: scan.volume.shape, guided: constants.card.guide_share > 0 };
    return { ...told, low, high, measured: await writeNifti(scan.volume, scan.affine, scan.header) };
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
    try {
      if (gpu) {
        const difference = await apart([networks[0], networks.pop()]);
        refuse(difference > 1e-3, "this graphics card computes something else than the processor. Rebuild without it.");
      }
      const placed = guide.length ? await place(await scanOf(guide), scan, acquisition, networks) : undefined;
      const result = await rebuild(scan, acquisition, networks, progress, placed);
      const device = `browser, onnxruntime-web on ${gpu ? "WebGPU" : `${threads} threads of the processor`}`;
      const spline = cubic(scan.volume, acquisition);
      return {
        record: describe(scan, acquisition, result, device, placed),
        rebuilt: await writeNifti(result.volume, result.affine, scan.header),
        cubic: await writeNifti(spline, fineAffine(scan.affine, acquisition), scan.header),
      };
    } finally {
      workers.forEach((one) => one.terminate());
    }
  },
};
expose(tasks);
