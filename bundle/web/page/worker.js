/** Reads and rebuilds a scan apart from the page, so that the page goes on answering. */
import { expose, wrap } from "comlink";
import constants from "../model/constants.js";
import { refuse } from "../errors.js";
import { sha256 } from "../files.js";
import { seen } from "../inputs/examination.js";
import { checkLone, findScans, guideOf, taken, thickOf } from "../inputs/readers.js";
import { writeDicom } from "../outputs/dicom.js";
import { writeNifti } from "../outputs/nifti.js";
import { describe, facts, keyOf } from "../outputs/record.js";
import { isSharp, place } from "../rebuild/guide.js";
import { rebuild } from "../rebuild/inferer.js";
import { apart } from "../rebuild/networks.js";
import { checked } from "../rebuild/reduced_resolution.js";
import { atTarget, settle } from "../stack/acquisition.js";
import { fineAffine } from "../stack/grid.js";
import { intensityRange } from "../stack/intensity.js";
import { cubic } from "../stack/interpolation.js";
import { own as ofPage, thread } from "./threads.js";

/** @typedef {import("../inputs/readers.js").Found} Found */

const SOON = 1000; // ms: what takes no longer than a few times that needs no preview

/** @type {Found[]} */
let found;
/** @type {Found} the one that is rebuilt */
let own;
/** @type {Scan} */
let scan;
/** @type {Acquisition} */
let acquisition;

/** @typedef {{file: File, path: string}[]} Given files, and where they lie in what was dropped or chosen */

/** @param {Given} files */
async function scansOf(files) {
  const named = files.map(async ({ file, path }) => ({ name: file.name, path, bytes: new Uint8Array(await file.arrayBuffer()) }));
  return findScans(await Promise.all(named), () => ofPage("dcm2niix.jpeg.wasm"));
}

/** What is done by networks in threads of their own, which end with it. Those of the processor judge the graphics card first.
 * @template T
 * @param {boolean} gpu
 * @param {number} threads
 * @param {(networks: Networks[]) => Promise<T>} act
 * @returns {Promise<T>} */
async function byNetworks(gpu, threads, act) {
  const workers = (gpu ? ["webgpu", "wasm"] : Array(threads).fill("wasm")).map((device) => thread("networks.js", device));
  const networks = workers.map((one) => /** @type {any} */ (wrap(one)));
  /** @type {Promise<never>} */
  const failed = new Promise((_, reject) => {
    for (const one of workers) one.onerror = () => reject(new Error("the networks were not loaded"));
  });
  const work = async () => {
    const difference = gpu ? await apart([networks[0], networks.pop()]) : 0;
    refuse(difference > 1e-3, "this graphics card computes something else than the processor. Rebuild without it.");
    return act(networks);
  };
  try {
    return await Promise.race([failed, work()]);
  } finally {
    workers.forEach((one) => one.terminate());
  }
}

/** The scan rebuilt by networks. Its guide is one of the same files, by its number, or given.
 * @type {(networks: Networks[], gpu: boolean, sharp: boolean, guide: Given | number | undefined, progress: (share: number) => void, preview: (volumes: object) => void) => Promise<object>} */
async function rebuilt(networks, gpu, sharp, guide, progress, preview) {
  const begun = performance.now();
  const beside = guide === undefined ? undefined : typeof guide === "number" ? found[guide] : guideOf(own, await scansOf(guide));
  const before = !beside ? 0 : isSharp(/** @type {Scan} */ (beside.scan)) ? 0.1 : 0.5; // of the work; a guide of thick slices is rebuilt itself
  if (beside) progress(0);
  const placed = beside && (await place(await taken(beside), scan, acquisition, networks, (share) => progress(share * before)));
  /** @type {Promise<Uint8Array> | undefined} */
  let spline;
  const splined = () => (spline ??= writeNifti(cubic(scan.volume, acquisition), fineAffine(scan.affine, acquisition), scan.header));
  const show = async (/** @type {Volume} */ volume) => {
    preview({ rebuilt: await writeNifti(volume, fineAffine(scan.affine, acquisition), scan.header), cubic: await splined() });
  };
  const result = await rebuild(scan, acquisition, networks, (share, early) => {
    progress(before + share * (1 - before));
    if (early && performance.now() - begun > SOON) show(early());
  }, placed, sharp);
  const device = `browser, onnxruntime-web on ${gpu ? "WebGPU" : `${networks.length} threads of the processor`}`;
  const record = describe(scan, acquisition, result, device, await sha256([...own.files, ...(beside?.files ?? [])]), placed);
  return {
    record,
    dicom: own.part ? await writeDicom(result, own.files, keyOf(record), own.part, record.Warnings, beside) : undefined,
    rebuilt: await writeNifti(result.volume, result.affine, scan.header),
    cubic: await splined(),
  };
}

/** The tasks that the page may ask for. */
const tasks = {
  /** Names of the scans among files. @param {Given} files */
  async read(files) {
    found = await scansOf(files);
    checkLone(found);
    return thickOf(found).map(({ scan }) => scan.name);
  },

  /** Takes one of these scans, which is then settled and rebuilt. @param {number} k */
  async take(k) {
    const chosen = thickOf(found)[k];
    [scan, own] = [await taken(chosen), chosen]; // both, or where it is broken neither
    const { low, high } = intensityRange(scan.volume);
    const facts = { name: scan.name, shape: scan.volume.shape, guided: constants.card.guide_share > 0, canDraw: constants.card.sharp_velocity !== null };
    return { ...facts, low, high, measured: await writeNifti(scan.volume, scan.affine, scan.header) };
  },

  /** The other scans beside it: the number, name, and part of each, guides first. */
  beside() {
    return seen(own, found).map(({ other, role }) => ({ number: found.indexOf(other), name: other.scan.name, ...role }));
  },

  /** @param {Options} options */
  settle(options) {
    acquisition = settle(scan, options);
    return { facts: facts(acquisition, scan.affine), warnings: acquisition.warnings, isIdle: atTarget(acquisition) };
  },

  /** @type {(gpu: boolean, threads: number, sharp: boolean, guide: Given | number | undefined, progress: (share: number) => void, preview: (volumes: object) => void) => Promise<object>} */
  rebuild: (gpu, threads, sharp, guide, progress, preview) =>
    byNetworks(gpu, threads, (networks) => rebuilt(networks, gpu, sharp, guide, progress, preview)),

  /** The test on the scan's own slices. @type {(gpu: boolean, threads: number, sharp: boolean, progress: (share: number) => void) => Promise<{said: string, isWorth: boolean}>} */
  check: (gpu, threads, sharp, progress) => byNetworks(gpu, threads, (networks) => checked(scan, acquisition, networks, progress, sharp)),
};
expose(tasks);
