/** The acquisition of thick slices as a matrix, see scripts/stack/profile.py, which makes the profile itself. */
import constants from "../model/constants.js";
import { sliceRows } from "./grid.js";
import { below } from "./intensity.js";

const { position, cumulative } = constants.profile;

/** Linear between ordered samples. @type {(x: number, xs: number[], ys: number[]) => number} */
function interpolate(x, xs, ys) {
  if (x <= xs[0] || x >= xs[xs.length - 1]) return x <= xs[0] ? ys[0] : ys[ys.length - 1];
  const k = below(xs, x, true) - 1;
  return ys[k] + ((x - xs[k]) / (xs[k + 1] - xs[k])) * (ys[k + 1] - ys[k]);
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
    const reach = Math.ceil(position[position.length - 1] * stretch - 0.5);
    const edge = (/** @type {number} */ k) => interpolate((k - reach - 0.5) / stretch, position, cumulative);
    const weights = Array.from({ length: 2 * reach + 1 }, (_, k) => edge(k + 1) - edge(k));
    const total = weights.reduce((a, b) => a + b);
    return [0, ...weights.map((w) => w / total), 0];
  };
  let [narrow, wide] = [0.05, 2 * ratio]; // the voxels over which the profile is integrated widen it
  while (wide - narrow > 1e-9) {
    const middle = (narrow + wide) / 2;
    if (width(kernel(middle)) < ratio) narrow = middle;
    else wide = middle;
  }
  const weights = kernel(wide).slice(1, -1);
  return weights.map((w, k) => (w + weights[weights.length - 1 - k]) / 2);
}

/**
 * Convolution with the profile (Eq. S1), then centred linear resampling (Eq. S2), `(sliceCount, fineCount)`.
 * @type {(a: Acquisition) => Float32Array[]}
 */
export function sliceMatrix(a) {
  const [kernel, n] = [profileKernel(a.sliceThickness / a.targetSpacing), a.fineCount];
  const reach = kernel.length >> 1;
  const blur = (/** @type {number} */ row) => {
    const weights = new Float64Array(n);
    kernel.forEach((w, k) => (weights[mirror(row + k - reach, n)] += w));
    return weights;
  };
  return sliceRows(a).map((row) => {
    const place = Math.min(Math.max(row, 0), n - 1);
    const lower = Math.floor(place);
    const [one, other, share] = [blur(lower), blur(Math.min(lower + 1, n - 1)), place - lower];
    return Float32Array.from(one, (w, k) => (1 - share) * w + share * other[k]);
  });
}

/** The voxel that stands at a place beyond both ends, where voxels are mirrored. @type {(place: number, n: number) => number} */
export function mirror(place, n) {
  const k = ((place % (2 * n)) + 2 * n) % (2 * n);
  return k < n ? k : 2 * n - 1 - k;
}
