/** A measured stack of slices through the networks, see scripts/rebuild/inferer.py. */
import { refuse } from "../errors.js";
import { atTarget } from "../stack/acquisition.js";
import { canonical, fineAffine, fineRows, nearestIndex } from "../stack/grid.js";
import { isMasked, toScan } from "../stack/intensity.js";
import { evened } from "../stack/interleaving.js";
import { nearest } from "../stack/interpolation.js";
import { filled } from "../stack/missing.js";
import { noiseShare, turned, unitOf, withoutRest } from "../stack/slices.js";
import { withDetail } from "../stack/spectra.js";
import { AXES, clamp, copy, crop, extremes, indexAlong, map, otherAxes, paste, reorder, zeros } from "../stack/volume.js";
import constants from "../model/constants.js";
import { reconcile } from "./consistency.js";
import { deblock } from "./deblocking.js";
import { weighFamilies } from "./families.js";
import { sharpnessOf, stepsFor } from "./schedule.js";
import { byWindows, inTurns, signalBox } from "./windows.js";

const COST = { alone: 1.4, guided: 1.9 }; // of stage 1, over that of an Euler step: by it what is left is estimated
/** @typedef {{steps: number, velocity: number, detail: number}} Course Euler steps, and the factors on their velocity and on the detail of their start */
/** @typedef {Placed & {steps: number, stepsSource: string, sharp: boolean}} Result its Euler steps, and whether they were to lead beyond the mean */
/** @typedef {(share: number, early?: () => Volume) => void} Progress once it gets what is known early, by stage 1 along one axis; it must be asked at once */
const LARGEST = 64e6; // voxels of a result: seven such volumes are in memory at once

/**
 * Rebuilds one stack.
 * @param {Scan} scan
 * @param {Acquisition} a how it was acquired.
 * @param {Networks[]} networks which compute side by side.
 * @param {Progress} [progress] gets the share of the planes that are done.
 * @param {Guide} [guide] in its place.
 * @param {boolean} [sharp] whether detail is drawn.
 * @returns {Promise<Result>}
 */
export async function rebuild(scan, a, networks, progress = () => {}, guide, sharp = false) {
  const [{ affine }, [steps, stepsSource]] = [scan, stepsFor(a)];
  if (atTarget(a)) return { volume: scan.volume, affine, steps: 0, stepsSource: "none: the slices are at the target", sharp };
  const [volume] = evened(scan.volume, a.sliceAxis);
  const million = Math.round((volume.data.length / a.sliceCount) * a.fineCount) / 1e6;
  refuse(
    million > LARGEST / 1e6,
    `${scan.name}: the result has ${Math.round(million)} million voxels, at most ${LARGEST / 1e6} million are supported ` +
      "here. Rebuild it with the command, drift-mri.",
  );
  const { least, largest } = extremes(volume);
  const constant = least === largest;
  return {
    volume: constant ? nearest(volume, a) : await rebuildStack({ ...scan, volume }, a, networks, progress, { steps, ...sharpnessOf(sharp) }, guide),
    affine: fineAffine(affine, a),
    steps: constant ? 0 : steps,
    stepsSource: constant ? "none: the scan is constant" : stepsSource,
    sharp,
  };
}

/** Slices that are not constant -> the fine volume, in the scan's units. @type {(scan: Scan, a: Acquisition, networks: Networks[], progress: Progress, course: Course, guide?: Guide) => Promise<Volume>} */
async function rebuildStack({ volume: measured, affine }, a, networks, progress, course, guide) {
  const { axes, flipped } = canonical(affine);
  const order = AXES.map((axis) => axes.indexOf(axis));
  const into = (/** @type {Volume} */ volume) => reorder(volume, axes, flipped);
  const back = (/** @type {Volume} */ volume) => reorder(volume, order, flipped.map((row) => axes[row]));
  const beside = guide && { ...guide, fine: into(guide.fine), slices: into(guide.slices), share: into(guide.share) };
  const whole = turned(filled(measured, a.sliceAxis, a.missing), affine, a);
  const { tissueRange } = whole;
  const early = (/** @type {Volume} */ volume) => map(back(toScan(volume, tissueRange)), (x) => Math.max(x, tissueRange.low));
  const result = back(await rebuildSlices(whole, networks, (share, volume) => progress(share, volume && (() => early(volume()))), course, beside));
  if (!a.missing.size) return result;
  const [slice, plane, asWas] = [nearestIndex(a), indexAlong(result.shape, a.sliceAxis), nearest(measured, a)];
  return map(result, (x, k) => (a.missing.has(slice[plane(k)]) ? asWas.data[k] : x));
}

/** The method by the planes of one family, for slices in RAS+ order. @type {(network: Networks, sharp: boolean) => (slices: Slices) => Promise<Volume>} */
export const oneFamily = (network, sharp) => (slices) => rebuildSlices(slices, [network], () => {}, { steps: stepsFor(slices.a)[0], ...sharpnessOf(sharp) }, undefined, 1);

/** Slices in RAS+ order, of which none is missing -> the fine volume, in their units.
 * @type {(slices: Slices, networks: Networks[], progress: Progress, course: Course, guide?: Guide, families?: number) => Promise<Volume>} */
async function rebuildSlices(slices, networks, progress, course, guide, families) {
  const [{ volume, a, tissueRange }, tissue] = [slices, withoutRest(slices)];
  const sharp = await fine(unitOf(tissue, slices), networks, progress, course, guide, families);
  refuse(!sharp.data.every(Number.isFinite), "the weights give NaN or infinite voxels: they are broken.");
  const result = deblock(await reconcile(toScan(sharp, tissueRange), tissue, networks), tissue);
  const rest = map(volume, (x, k) => x - tissue.volume.data[k]);
  const [masked, asWas, beyond] = [isMasked(volume, tissueRange.low), nearest(volume, a), nearest(rest, a)];
  return map(result, (x, k) => (masked && asWas.data[k] === 0 ? 0 : Math.max(x, tissueRange.low) + beyond.data[k]));
}

/** The method: slices in [-1, 1] -> the volume on the fine grid, by the planes along either in-plane axis, or along the longer one.
 * @type {(slices: Slices, networks: Networks[], progress: Progress, course: Course, guide?: Guide, count?: number) => Promise<Volume>} */
async function fine(slices, networks, progress, { steps, velocity, detail }, guide, count = 2) {
  const { volume: thick, a, edges } = slices;
  const volume = nearest(thick, a);
  const box = signalBox(volume);
  if (box) {
    const size = (/** @type {number} */ axis) => box[axis][1] - box[axis][0];
    const others = otherAxes(a.sliceAxis).sort((one, other) => size(other) - size(one)).slice(0, count); // the longer one first
    const whole = box.with(a.sliceAxis, [0, a.sliceCount]);
    const beside = guide ? [crop(guide.fine, box), crop(guide.slices, whole), crop(guide.share, box)] : [];
    const seen = guide && beside[2].data.some(Boolean); // else it saw another part
    const given = [crop(thick, whole), ...(seen ? beside : [])];
    const rows = fineRows(a).slice(...box[a.sliceAxis]);
    const cost = seen ? COST.guided : COST.alone;
    const total = others.reduce((sum, other) => sum + size(3 - a.sliceAxis - other), 0);
    let [done, all] = [0, (steps / count + cost) * total]; // near enough where steps are odd
    const tell = (/** @type {number} */ some, isFirst = false) => progress((done += some * (isFirst ? cost : 1)) / all);
    const lengths = (/** @type {number} */ axis) => [a.sliceThickness, a.targetSpacing, a.sliceSpacing, edges[axis], noiseShare(slices)];
    const modulations = await networks[0].modulations(lengths(others[0]), steps); // no pixel counts
    const families = [];
    for (const other of others) {
      const order = [3 - a.sliceAxis - other, a.sliceAxis, other];
      const back = (/** @type {Volume} */ planes) => reorder(planes, AXES.map((axis) => order.indexOf(axis)));
      const planes = await stage1(given.map((one) => reorder(one, order)), rows, lengths(other), networks, tell);
      if (!families.length) progress(done / all, () => paste(copy(volume), back(planes), box));
      families.push(back(planes));
    }
    const pixels = others.map((axis) => edges[axis]);
    const head = count < 2 ? families[0] : await weighFamilies(families[0], families[1], others, pixels, a.sliceSpacing, networks);
    const start = detail > 1 && steps ? withDetail(head, a.sliceAxis, a.targetSpacing, a.sliceThickness, detail) : head;
    paste(volume, await flow(start, modulations, velocity / steps, others, a.sliceAxis, networks, tell), box);
  }
  return volume;
}

/** Euler steps of the weighed volume, each on the planes along one of `others`, in turn.
 * @type {(head: Volume, modulations: Float32Array[], step: number, others: number[], sliceAxis: number, networks: Networks[], tell: (planes: number) => void) => Promise<Volume>} */
async function flow(head, modulations, step, others, sliceAxis, networks, tell) {
  for (const [n, modulation] of modulations.entries()) {
    const other = others[n % others.length];
    const order = [3 - sliceAxis - other, sliceAxis, other];
    const planes = reorder(head, order);
    await byWindows(planes, modulation, step, networks, tell);
    head = reorder(planes, AXES.map((axis) => order.indexOf(axis)));
  }
  return head;
}

/** Planes of slices, and if there is one of the guide, its slices and its share, on the fine grid.
 * @type {(given: Volume[], rows: number[], lengths: number[], networks: Networks[], count: (planes: number, isFirst: boolean) => void) => Promise<Volume>} */
async function stage1(given, rows, lengths, networks, count) {
  const [P, , W] = given[0].shape;
  const planes = zeros([P, rows.length, W]);
  await inTurns(given, rows.length * W, networks, async (one, parts, first) => {
    const image = neighbouring(given[0], first, parts[0].shape);
    planes.data.set(await one.stage1([image, ...parts.slice(1)], lengths, rows), first * rows.length * W);
    count(parts[0].shape[0], true);
  });
  return planes;
}

/** Planes of a volume from the first on, each among its neighbours; its first and last plane stand for those beyond.
 * @type {(volume: Volume, first: number, shape: number[]) => Volume} */
function neighbouring({ data, shape: [P, S, W] }, first, shape) {
  const { planes } = constants.inferer;
  const around = new Float32Array(shape[0] * planes * S * W);
  for (let k = 0; k < shape[0] * planes; k++) {
    const place = clamp(first + Math.floor(k / planes) + (k % planes) - (planes >> 1), 0, P - 1) * S * W;
    around.set(data.subarray(place, place + S * W), k * S * W);
  }
  return { data: around, shape };
}
