/** Slices that were not measured, whatever their voxels hold, see scripts/stack/missing.py. */
import constants from "../model/constants.js";
import { correlation, intensityRange, tissueOf } from "./intensity.js";
import { along, map, otherAxes, reorder } from "./volume.js";

const { DARK, BRIGHT, HOLE, HOLES, ALIKE, UNLIKE, FEW, LONGEST, MUCH, MOST } = constants.missing;
const { BRIGHTEST } = constants.intensity;

/** @typedef {{how: number, told: [number, string][]}} Run slices in a row that are odd, and how odd the oddest is */

/** Each slice of a volume. @type {(volume: Volume, axis: number) => Float32Array[]} */
function slicesOf(volume, axis) {
  const { data, shape } = reorder(volume, [axis, ...otherAxes(axis)]);
  return Array.from({ length: shape[0] }, (_, k) => data.subarray(k * shape[1] * shape[2], (k + 1) * shape[1] * shape[2]));
}

/** Slices within the head that are nothing like their neighbours: index -> what it is. @type {(volume: Volume, axis: number) => Map<number, string>} */
export function missingSlices(volume, axis) {
  const scale = intensityRange(volume);
  const [raw, slices] = [volume, map(tissueOf(volume, scale), (x) => x - scale.low)].map((one) => slicesOf(one, axis));
  const hole = (HOLE * (scale.ceiling - scale.low)) / BRIGHTEST;
  const areas = slices.map((slice) => slice.reduce((count, x) => count + +(x > 3 * hole), 0));
  const [largest, found] = [Math.max(...areas), /** @type {Map<number, string>} */ (new Map())];
  let kept = [...slices.keys()];
  for (let runs; (runs = oddRuns(slices, kept, hole, MUCH * largest)).length; ) {
    runs.reduce((a, b) => (b.how > a.how ? b : a)).told.forEach(([index, what]) => found.set(index, what));
    kept = kept.filter((index) => !found.has(index));
  }
  for (const [end, beside] of [kept.slice(0, 2), kept.slice(-2).reverse()]) {
    const blank = raw[end].every((x) => x === raw[end][0]) && slices[end][0] <= hole;
    if (areas[beside] > MOST * largest && blank) found.set(end, "blank");
  }
  return found.size <= slices.length / 4 ? new Map([...found].sort(([a], [b]) => a - b)) : new Map();
}

/** Runs of slices that are all odd between the two beside them, of the shortest length.
 * @type {(slices: Float32Array[], kept: number[], hole: number, least: number) => Run[]} */
function oddRuns(slices, kept, hole, least) {
  for (let length = 1; length <= LONGEST; length++) {
    const found = [];
    for (let start = 1; start < kept.length - length; start++) {
      const [before, after, run] = [slices[kept[start - 1]], slices[kept[start + length]], kept.slice(start, start + length)];
      const faults = run.map((here) => fault(before, slices[here], after, hole, least));
      if (!faults.every(Boolean)) continue;
      const how = Math.max(...faults.map((one) => one?.[0] ?? 0));
      found.push({ how, told: run.map((here, k) => /** @type {[number, string]} */ ([here, faults[k]?.[1] ?? ""])) });
    }
    if (found.length) return found;
  }
  return [];
}

/** How odd a slice is, and in what way; undefined for one like its neighbours, or where these show little tissue.
 * @type {(before: Float32Array, here: Float32Array, after: Float32Array, hole: number, least: number) => [number, string] | undefined} */
function fault(before, here, after, hole, least) {
  let [tissue, holes, product, square] = [0, 0, 0, 0];
  for (let k = 0; k < here.length; k++) {
    if (!(before[k] > 3 * hole && after[k] > 3 * hole)) continue;
    const mean = (before[k] + after[k]) / 2;
    [tissue, holes, product, square] = [tissue + 1, holes + +(here[k] <= hole), product + here[k] * mean, square + mean ** 2];
  }
  if (tissue <= least) return undefined;
  const gain = product / square;
  if (gain < DARK || holes / tissue > HOLES) return [1 / Math.max(gain, 1e-6), "blank"];
  if (gain > BRIGHT) return [gain, `${gain.toFixed(1)} times as bright as its neighbours`];
  const expected = tissue > FEW ? correlation(before, after) : 0;
  const unlike = expected > ALIKE && correlation(here, before.map((x, k) => (x + after[k]) / 2)) < UNLIKE * expected;
  return unlike ? [1, "unlike its neighbours"] : undefined;
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
