/** Slices that were not measured, whatever their voxels hold, see scripts/stack/missing.py. */
import constants from "../model/constants.js";
import { f, filled as written } from "../errors.js";
import { correlation, intensityRange, signalOf } from "./intensity.js";
import { along, map, otherAxes, reorder } from "./volume.js";

const { BLANK, COPIED, COPY, DARK, BRIGHT, HOLE, HOLES, ALIKE, ALIKE_ACROSS, UNLIKE, FEW, LONGEST, LOST, MANY, MUCH, MOST, NUMBER, ODD, SEVERAL, SHOWN, SPOT, TWICE } = constants.missing;
const { BRIGHTEST } = constants.intensity;

/** @typedef {{how: number, what: string}} Fault how odd a slice is, and in what way */

/** Each slice of a volume. @type {(volume: Volume, axis: number) => Float32Array[]} */
export function slicesOf(volume, axis) {
  const { data, shape: [count, H, W] } = reorder(volume, [axis, ...otherAxes(axis)]);
  return Array.from({ length: count }, (_, k) => data.subarray(k * H * W, (k + 1) * H * W));
}

/** @type {WeakMap<Volume, Map<number, string>[]>} by axis: each correction of the acquisition asks again */
const known = new WeakMap();

/** Slices within the head that are nothing like their neighbours: index -> what it is. @type {(volume: Volume, axis: number) => Map<number, string>} */
export function oddSlices(volume, axis) {
  const found = known.get(volume) ?? [];
  known.set(volume, found);
  return (found[axis] ??= find(volume, axis));
}

/** Those of a stack's odd slices that count as not measured. @type {(odd: Map<number, string>, count: number) => Map<number, string>} */
export const missingSlices = (odd, count) =>
  new Map([...odd].filter(([, what]) => odd.size <= ODD * count || what === BLANK || what.startsWith(written(COPY, [""]))));

/** What is said of odd slices that are left in; empty for none. @type {(odd: Map<number, string>, missing: Map<number, string>, count: number) => string[]} */
export function manyOdd(odd, missing, count) {
  const others = [...odd].filter(([index]) => !missing.has(index));
  return others.slice(0, 1).map(([index, what]) => written(MANY, [others.length, count, index + 1, what]));
}

/** A line on missing slices of each kind, with the first of them. @type {(missing: Map<number, string>, count: number) => string[]} */
export function saidOf(missing, count) {
  const kindOf = (/** @type {[number, string]} */ [, what]) => what.replaceAll(new RegExp(NUMBER, "g"), "");
  const all = [...missing];
  return [...new Set(all.map(kindOf))].map((kind) => {
    const every = all.filter((one) => kindOf(one) === kind);
    const [[first, what]] = every;
    return every.length > 1 ? written(SEVERAL, [every.length, count, first + 1, what]) : written(LOST, [first + 1, count, what]);
  });
}

/** @type {(volume: Volume, axis: number) => Map<number, string>} */
function find(volume, axis) {
  const tissueRange = intensityRange(volume);
  const whole = signalOf(volume, { ...tissueRange, high: Infinity });
  const [raw, slices] = [volume, whole].map((one) => slicesOf(one, axis));
  const [hole, extent] = [(HOLE * (tissueRange.ceiling - tissueRange.low)) / BRIGHTEST, tissueRange.high - tissueRange.low];
  const areas = slices.map((slice) => slice.reduce((count, x) => count + +(x > SHOWN * hole), 0));
  const largest = Math.max(...areas);
  const found = copies(slices, hole, MUCH * largest);
  let kept = [...slices.keys()].filter((index) => !found.has(index));
  for (let run; (run = oddestRun(slices, kept, hole, extent, MUCH * largest)); kept = kept.filter((index) => !found.has(index))) {
    run.forEach(({ what }, index) => found.set(index, what));
  }
  for (const [end, beside] of [kept.slice(0, 2), kept.slice(-2).reverse()]) {
    const blank = raw[end].every((x) => x === raw[end][0]) && slices[end][0] <= hole;
    if (areas[beside] > MOST * largest && blank) found.set(end, BLANK);
  }
  return new Map([...found].sort(([a], [b]) => a - b));
}

/** Slices that repeat their neighbour. The one of the two is left out that is less alike the slice beyond it.
 * @type {(slices: Float32Array[], hole: number, least: number) => Map<number, string>} */
function copies(slices, hole, least) {
  const later = new Map(); // first of two -> how much more it is alike the slice beyond it than the second
  for (let first = 0; first + 1 < slices.length; first++) {
    const [one, other] = [slices[first], slices[first + 1]];
    let [tissue, equal] = [0, 0];
    for (let k = 0; k < one.length; k++) {
      if (one[k] > SHOWN * hole || other[k] > SHOWN * hole) [tissue, equal] = [tissue + 1, equal + +(one[k] === other[k])];
    }
    if (tissue <= least || equal <= COPIED * tissue) continue;
    const [before, after] = [slices[Math.max(first - 1, 0)], slices[Math.min(first + 2, slices.length - 1)]];
    later.set(first, correlation(one, before) - correlation(other, after));
  }
  const [all, isRule] = [[...later.values()].reduce((sum, by) => sum + by, 0), later.size > ODD * slices.length]; // of one program
  const found = new Map([...later].map(([first, own]) => {
    const by = +((isRule ? all : own) > 0);
    return [first + by, written(COPY, [first + 2 - by])];
  }));
  return found.size <= TWICE * slices.length ? found : new Map(); // where more repeat it, all slices are one
}

/** Slices in a row that are all odd between the two beside them: of the shortest such runs the one with the oddest slice.
 * @type {(slices: Float32Array[], kept: number[], hole: number, extent: number, least: number) => Map<number, Fault> | undefined} */
function oddestRun(slices, kept, hole, extent, least) {
  for (let length = 1; length <= LONGEST; length++) {
    let [oddest, worst] = [/** @type {Map<number, Fault> | undefined} */ (undefined), 0];
    for (let start = 1; start < kept.length - length; start++) {
      const [before, after] = [slices[kept[start - 1]], slices[kept[start + length]]];
      const run = new Map();
      for (const here of kept.slice(start, start + length)) {
        const odd = fault(before, slices[here], after, hole, extent, least, length === 1 ? ALIKE : ALIKE_ACROSS);
        if (odd) run.set(here, odd);
      }
      const how = Math.max(...[...run.values()].map((one) => one.how));
      if (run.size === length && how > worst) [oddest, worst] = [run, how];
    }
    if (oddest) return oddest;
  }
  return undefined;
}

/** A slice's fault; undefined for one like its neighbours, or where these show little tissue.
 * No bright spot makes a slice odd: a pixel weighs no more than one of the `extent` of tissue, and its gain is bounded.
 * @type {(before: Float32Array, here: Float32Array, after: Float32Array, hole: number, extent: number, least: number, alike: number) => Fault | undefined} */
function fault(before, here, after, hole, extent, least, alike) {
  const places = [...here.keys()].filter((k) => before[k] > SHOWN * hole && after[k] > SHOWN * hole);
  const [tissue, holes] = [places.length, places.filter((k) => here[k] <= hole).length];
  if (tissue <= least) return undefined;
  const [first, own, last] = [before, here, after].map((slice) => Float32Array.from(places, (k) => slice[k]));
  const gain = gainBetween(first, own, last, extent);
  if (holes / tissue > HOLES) return { how: 1 / Math.max(gain, 1e-6), what: BLANK };
  if (gain < DARK || gain > BRIGHT) return { how: Math.max(gain, 1 / gain), what: `${f(gain, 1)} times as bright as its neighbours` };
  const [earlier, middle, later] = [before, here, after].map((slice) => slice.map((x) => Math.min(x, extent)));
  const expected = tissue > FEW ? correlation(earlier, later) : 0;
  const unlike = expected > alike && correlation(middle, earlier.map((x, k) => (x + later[k]) / 2)) < UNLIKE * expected;
  return unlike ? { how: 1, what: "unlike its neighbours" } : undefined;
}

/** How many times as bright a slice is as the mean of its neighbours, by pixels of tissue: no spot counts more than others.
 * @type {(before: Float32Array, here: Float32Array, after: Float32Array, extent: number) => number} */
export function gainBetween(before, here, after, extent) {
  const mean = before.map((x, k) => (x + after[k]) / 2);
  const ratios = here.map((x, k) => x / mean[k]);
  const typical = ratios.toSorted()[(ratios.length - 1) >> 1]; // torch's median: the lower of two
  let [product, sum] = [0, 0];
  ratios.forEach((ratio, k) => {
    const weight = Math.min(mean[k], extent) ** 2;
    [product, sum] = [product + weight * Math.min(Math.max(ratio, typical / SPOT), SPOT * typical), sum + weight];
  });
  return product / sum;
}

/** The volume with its missing slices interpolated between the nearest measured ones. @type {(volume: Volume, axis: number, missing: Map<number, string>) => Volume} */
export function filled(volume, axis, missing) {
  if (!missing.size) return volume;
  const all = [...Array(volume.shape[axis]).keys()];
  const kept = all.filter((k) => !missing.has(k));
  const matrix = all.map((k) => {
    const [before, after] = [kept.findLast((one) => one <= k) ?? kept[0], kept.find((one) => one >= k) ?? kept[kept.length - 1]];
    const share = after > before ? (k - before) / (after - before) : 0;
    return all.map((one) => +(one === before) * (1 - share) + +(one === after) * share);
  });
  return along(matrix, volume, axis);
}
