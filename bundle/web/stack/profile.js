/** The acquisition of thick slices as a matrix, see scripts/stack/profile.py, which makes the profile itself. */
import constants from "../model/constants.js";
import { sliceRows } from "./grid.js";
import { along, clamp } from "./volume.js";

const { first, step, cumulative } = constants.profile;

/** The integral of the profile up to `x` slice widths from its centre, linear between its samples. @type {(x: number) => number} */
function integral(x) {
  const place = clamp((x - first) / step, 0, cumulative.length - 1);
  const k = Math.min(Math.floor(place), cumulative.length - 2);
  return cumulative[k] + (place - k) * (cumulative[k + 1] - cumulative[k]);
}

/** Full width at half maximum of weights, in voxels. @type {(weights: number[]) => number} */
function width(weights) {
  const half = Math.max(...weights) / 2;
  const [first, last] = [weights.findIndex((w) => w >= half), weights.findLastIndex((w) => w >= half)];
  const left = first - 1 + (half - weights[first - 1]) / (weights[first] - weights[first - 1]);
  return last + (weights[last] - half) / (weights[last] - weights[last + 1]) - left;
}

/** Slice profile as weights on the fine grid, as wide as `ratio` voxels (`h` in Eq. S1). @type {(ratio: number) => number[]} */
function profileKernel(ratio) {
  if (ratio <= 1 + 1e-6) return [1];
  const kernel = (/** @type {number} */ stretch) => {
    const reach = Math.ceil(-first * stretch - 0.5) + 1; // with a 0 at either end
    const edges = Array.from({ length: 2 * reach + 2 }, (_, k) => integral((k - reach - 0.5) / stretch));
    return edges.slice(1).map((edge, k) => (edge - edges[k]) / cumulative[cumulative.length - 1]);
  };
  let [narrow, wide] = [0.05, 2 * ratio]; // the voxels over which the profile is integrated widen it
  while (wide - narrow > 1e-9) {
    const middle = (narrow + wide) / 2;
    if (width(kernel(middle)) < ratio) narrow = middle;
    else wide = middle;
  }
  return kernel(wide);
}

/**
 * Convolution with the profile (Eq. S1), then centred linear resampling (Eq. S2), `(sliceCount, fineCount)`.
 * @type {(a: Acquisition) => Float32Array[]}
 */
export function sliceMatrix(a) {
  const blur = band(profileKernel(a.sliceThickness / a.targetSpacing), a.fineCount, "mirror");
  return sliceRows(a).map((row) => {
    const place = clamp(row, 0, a.fineCount - 1);
    const lower = Math.floor(place);
    const [one, other, share] = [blur[lower], blur[Math.min(lower + 1, a.fineCount - 1)], place - lower];
    return Float32Array.from(one, (w, k) => (1 - share) * w + share * other[k]);
  });
}

/** The voxel that stands at a place beyond both ends, where voxels are mirrored. @type {(place: number, n: number) => number} */
function mirror(place, n) {
  const k = ((place % (2 * n)) + 2 * n) % (2 * n);
  return k < n ? k : 2 * n - 1 - k;
}

/** Correlation with a kernel of odd length as a matrix; beyond the ends `n` voxels are mirrored, or the last ones repeated.
 * The result goes `beyond` so many voxels further at either end.
 * @type {(kernel: number[], n: number, ends: "mirror" | "repeat", beyond?: number) => Float64Array[]} */
export function band(kernel, n, ends, beyond = 0) {
  const inside = (/** @type {number} */ place) => (ends === "mirror" ? mirror(place, n) : clamp(place, 0, n - 1));
  return Array.from({ length: n + 2 * beyond }, (_, row) => {
    const weights = new Float64Array(n);
    kernel.forEach((w, k) => (weights[inside(row - beyond + k - (kernel.length >> 1))] += w));
    return weights;
  });
}

/** Correlation along an axis, see `band`. @type {(volume: Volume, axis: number, kernel: number[], ends: "mirror" | "repeat") => Volume} */
export const correlate = (volume, axis, kernel, ends) => along(band(kernel, volume.shape[axis], ends), volume, axis);
