/** The content that the voxels of a volume show, see scripts/stack/contents.py. */
import constants from "../model/constants.js";
import { filled } from "../errors.js";
import { fromBorder } from "./tissue.js";
import { crop, indexAlong, strides } from "./volume.js";

/** @typedef {{ answer: "a scan" | "none" | "doubtful", why: string }} Verdict what an image shows, and the evidence that it may be no scan of a head */

/** @type {any} */
const { ABRUPT, BACKGROUND, BAND, CROWD, EMPTY, ENDS, EQUAL, EVEN, FEW_VALUES, FOOT, GREYS, HOLES, MIDDLE, NEXT, SHOWS, SMOOTH, TAIL, SPARSE } = constants.contents;

/** @type {Verdict} */
export const SCAN = { answer: "a scan", why: "" };
/** @type {(why: string) => Verdict} */
export const none = (why) => ({ answer: "none", why });
/** @type {(why: string) => Verdict} */
export const doubtful = (why) => ({ answer: "doubtful", why });

/** The content of a volume, by its voxels. @type {(volume: Volume) => Verdict} */
export function ofVoxels(volume) {
  const finite = volume.data.some((x) => !Number.isFinite(x)) ? volume.data.filter(Number.isFinite) : volume.data;
  if (finite.length === 0) return SCAN;
  if (finite !== volume.data && hasHoles(volume)) return none(SHOWS.holes);
  const least = finite.length < volume.data.length ? finite.reduce((a, x) => Math.min(a, x), Infinity) : 0;
  const whole = finite === volume.data ? volume : { ...volume, data: volume.data.map((x) => (Number.isFinite(x) ? x : least)) };
  const block = middle(whole, (count) => [Math.floor(Math.max(0, count - MIDDLE) / 2), Math.min(count, MIDDLE)]);
  const sorted = block.data.slice().sort();
  const starts = Array.from(sorted.keys()).filter((k) => k === 0 || sorted[k] !== sorted[k - 1]);
  const values = Float32Array.from(starts, (k) => sorted[k]);
  if (values.length < FEW_VALUES) {
    const count = new Set(whole.data).size;
    if (count < FEW_VALUES) return none(filled(SHOWS.few, [count]));
  }
  const counts = starts.map((start, k) => (starts[k + 1] ?? sorted.length) - start);
  const common = counts.reduce((best, count, k) => (count > counts[best] ? k : best), 0);
  const share = () => whole.data.reduce((count, x) => count + +(x === values[common]), 0) / whole.data.length;
  if (counts[common] > SPARSE * sorted.length) return share() > SPARSE ? none(SHOWS.sparse) : SCAN;
  const others = sorted.filter((x) => x !== values[common]);
  const [first, last] = [TAIL, 1 - TAIL].map((part) => at(others, part)); // a single voxel may have any value
  const cut = (/** @type {number} */ x) => Math.min(Math.max(x, first), last);
  const { equal, following, beside, step } = neighbours(block, values, common, cut);
  if (equal > EQUAL && following < NEXT) return none(SHOWS.labels);
  const mean = others.reduce((sum, x) => sum + cut(x), 0) / others.length;
  if (step < SMOOTH * Math.sqrt(others.reduce((sum, x) => sum + (cut(x) - mean) ** 2, 0) / others.length)) return none(SHOWS.field);
  const [low, high] = [0.01, 0.99].map((part) => at(others, part));
  const [short, long] = [high - values[common], values[common] - low].sort((a, b) => a - b);
  if (beside < ABRUPT && short > EVEN * long && share() > BACKGROUND) return doubtful(SHOWS.statistic);
  if (values.length < GREYS) return SCAN;
  const count = (/** @type {(x: number) => boolean} */ test) => others.reduce((sum, x) => sum + +test(x), 0);
  const [from, to] = [low + ENDS * (high - low), high - ENDS * (high - low)].map((x) => count((one) => one < x));
  let [crowd, end] = [0, from];
  for (let k = from; k < to; k++) {
    while (end < to && others[end] <= others[k] + BAND * (high - low)) end++;
    crowd = Math.max(crowd, end - k);
  }
  if (crowd > CROWD * Math.max(to - from, others.length / 4)) return doubtful(SHOWS.ct);
  const [lowest, below] = [first + (last - first) / 20, counts.slice(0, common).reduce((sum, x) => sum + x, 0) / sorted.length];
  const isFading = below <= TAIL && count((x) => x < lowest) > FOOT * others.length && share() > EMPTY;
  return isFading ? doubtful(SHOWS.probabilities) : SCAN;
}

/** Whether much of what NaN surrounds is NaN itself. @type {(volume: Volume) => boolean} */
function hasHoles({ data, shape }) {
  const nan = data.reduce((count, x) => count + +Number.isNaN(x), 0);
  const outside = fromBorder((place) => Number.isNaN(data[place]), shape, [0, 1, 2]).reduce((count, mark) => count + mark, 0);
  return nan - outside > HOLES * (data.length - outside);
}

/** A part of a volume, by the start and the count along each axis. @type {(volume: Volume, part: (count: number) => number[]) => Volume} */
const middle = (volume, part) => crop(volume, /** @type {any} */ (volume.shape.map(part).map(([start, count]) => [start, start + count])));

/** The number at a share of sorted ones. @type {(sorted: ArrayLike<number>, part: number) => number} */
const at = (sorted, part) => sorted[Math.floor(part * (sorted.length - 1))];

/** Along the axis where second most neighbours are equal: their share, and that of next values among the others; that of next values beside the commonest; the largest mean step.
 * @type {(volume: Volume, values: Float32Array, common: number, cut: (x: number) => number) => { equal: number, following: number, beside: number, step: number }} */
function neighbours({ data, shape }, values, common, cut) {
  const ranks = Int32Array.from(data, (x) => place(values, x));
  let [step, edges, near] = [0, 0, 0];
  const found = [[0, 1], [0, 1]];
  for (const [axis, stride] of strides(shape).entries()) {
    if (shape[axis] < 2) continue;
    const index = indexAlong(shape, axis);
    let [pairs, same, unequal, next, within, steps] = [0, 0, 0, 0, 0, 0];
    for (let k = 0; k < data.length; k++) {
      const [one, other] = [ranks[k], ranks[k + stride]];
      if (index(k) + 1 === shape[axis] || (one === common && other === common)) continue;
      const apart = Math.abs(one - other);
      pairs++;
      same += +(apart === 0);
      if (one === common || other === common) {
        edges++;
        near += +(apart === 1);
        continue;
      }
      within++;
      steps += Math.abs(cut(data[k]) - cut(data[k + stride]));
      unequal += +(apart > 0);
      next += +(apart === 1);
    }
    found.push([same / (pairs || 1), next / (unequal || 1)]);
    step = Math.max(step, steps / (within || 1));
  }
  const [equal, following] = found.sort(([a, b], [c, d]) => c - a || d - b)[1];
  return { equal, following, beside: near / (edges || 1), step };
}

/** The place of a number among sorted ones. @type {(sorted: Float32Array, x: number) => number} */
function place(sorted, x) {
  let [low, high] = [0, sorted.length - 1];
  while (low < high) {
    const k = (low + high) >> 1;
    if (sorted[k] < x) low = k + 1;
    else high = k;
  }
  return low;
}
