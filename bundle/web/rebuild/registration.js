/** Whether two volumes of any contrasts show one head in one place, see scripts/rebuild/registration.py. Nothing is moved. */
import { inverse, Matrix } from "ml-matrix";
import constants from "../model/constants.js";
import { fineAffine, fineCount, voxelSpacing } from "../stack/grid.js";
import { band } from "../stack/profile.js";
import { depth, headMask, smooth } from "../stack/tissue.js";
import { AXES, along, boxOf, clamp, crop, extremes, indexAlong, map, paste, strides, zeros } from "../stack/volume.js";

const { CUBE, WINDOW, ASIDE, FINE, DEEP } = constants.registration;
const PAD = 12; // voxels, beyond which a spline feels neither a voxel nor a border

/** Millimetres along each axis of an affine that all stacks measured; 0 where all are sharp. @type {(affine: Affine, stacks: [Affine, Acquisition][]) => number[]} */
export function resolution(affine, stacks) {
  const apart = [0, 0, 0];
  for (const [other, { sliceAxis, sliceSpacing }] of stacks) {
    const edges = voxelSpacing(affine);
    const near = edges.map((edge, k) => Math.abs(AXES.reduce((sum, row) => sum + affine[row][k] * other[row][sliceAxis], 0)) / edge);
    const axis = near.indexOf(Math.max(...near));
    apart[axis] = Math.max(apart[axis], sliceSpacing);
  }
  return apart;
}

/** How much more of one's detail the other foretells in its place than aside of it, 0 to 1. @type {(fixed: Placed, moving: Placed, apart: number[]) => number} */
export function likeness(fixed, moving, apart) {
  const here = onCubes(fixed);
  const { values, seen } = resample(onCubes(moving), here.affine, here.volume.shape);
  const { least, largest } = extremes(values);
  if (least === largest) return 0;
  const [head, its] = [here.volume, values].map((volume) => headMask(map(volume, (x) => Math.max(x, 0))));
  const shared = map(head, (x, k) => +(x && its.data[k] && seen.data[k] > 0.99));
  const count = (/** @type {Volume} */ { data }) => data.reduce((a, b) => a + b, 0);
  if (count(shared) < 0.1 * count(head)) return 0;
  const box = boxOf(shared);
  const [both, widths] = [crop(shared, box), apart.map((edge) => Math.max(edge, FINE) / 3 / CUBE)];
  const weight = smooth(both, widths, "mirror");
  const [a, b] = [here.volume, values].map((volume) => {
    const masked = map(crop(volume, box), (x, k) => x * both.data[k]);
    return map(smooth(masked, widths, "mirror"), (x, k) => x / Math.max(weight.data[k], 1e-3));
  });
  const [wide, own] = [zeros(both.shape.map((n) => n + 2)), both.shape.map((n) => [1, n + 1])];
  paste(wide, both, own);
  const deep = map(crop(depth(wide, [CUBE, CUBE, CUBE], 2 * DEEP), own), (x) => +(x > DEEP)); // borders of heads are alike
  const others = strides(both.shape).flatMap((step) => [step, -step]).map((step) => {
    const moved = (/** @type {Volume} */ volume) => map(volume, (_, k) => volume.data[k - step * Math.round(ASIDE / CUBE)] ?? 0);
    return foretold(a, moved(b), map(moved(deep), (x, k) => x * deep.data[k]));
  });
  return Math.max(0, foretold(a, b, deep) - others.reduce((x, y) => x + y) / others.length);
}

/** The share of the variance in Gaussian windows that two volumes have in common, 0 to 1. @type {(a: Volume, b: Volume, inside: Volume) => number} */
function foretold(a, b, inside) {
  const indices = AXES.map((axis) => indexAlong(inside.shape, axis));
  const places = [...inside.data.keys()].filter((k) => inside.data[k] && indices.every((index) => index(k) % 2 === 0));
  const sums = (/** @type {(k: number) => number} */ f) => {
    const { data } = smooth(map(inside, (x, k) => x && f(k)), Array(3).fill(WINDOW / CUBE), "mirror", 3);
    return places.map((k) => data[k]);
  };
  const [weight, first, second, square, other, product] = [
    ...[sums(() => 1), sums((k) => a.data[k]), sums((k) => b.data[k])],
    ...[sums((k) => a.data[k] ** 2), sums((k) => b.data[k] ** 2), sums((k) => a.data[k] * b.data[k])],
  ];
  const less = (/** @type {number[]} */ sum, /** @type {number[]} */ x, /** @type {number[]} */ y) =>
    sum.map((all, k) => all / weight[k] - (x[k] * y[k]) / weight[k] ** 2);
  const [one, two, common] = [less(square, first, first), less(other, second, second), less(product, first, second)];
  const mean = (/** @type {number[]} */ values) => values.reduce((x, y) => x + y, 0) / values.length;
  const [m, n] = [mean(one), mean(two)];
  if (!(Math.min(m, n) > 0)) return 0;
  const share = common.map((x, k) => x ** 2 / (Math.max(one[k], 1e-4 * m) * Math.max(two[k], 1e-4 * n)));
  return (mean(share.map((x, k) => x * one[k])) / m + mean(share.map((x, k) => x * two[k])) / n) / 2;
}

/** A volume, smoothed, on cubes with the same axes and centre. @type {(from: Placed) => Placed} */
function onCubes({ volume, affine }) {
  const edges = voxelSpacing(affine);
  const counts = edges.map((edge, k) => fineCount(volume.shape[k], edge, CUBE));
  const coarse = edges.reduce((rows, sliceSpacing, k) => {
    const one = { sliceAxis: k, sliceCount: volume.shape[k], sliceSpacing, fineCount: counts[k], targetSpacing: CUBE };
    return fineAffine(rows, /** @type {Acquisition} */ (one));
  }, affine);
  const blurred = smooth(volume, edges.map((edge) => (0.5 * CUBE) / edge), "repeat");
  return { volume: resample({ volume: blurred, affine }, coarse, counts).values, affine: coarse };
}

/** Coefficients of cubic B-splines through voxels, the outermost of which are repeated. @type {(volume: Volume) => Volume} */
function coefficients(volume) {
  const filter = Array.from({ length: 2 * PAD + 1 }, (_, k) => Math.sqrt(3) * (Math.sqrt(3) - 2) ** Math.abs(k - PAD));
  return AXES.reduce((v, axis) => along(band(filter, v.shape[axis], "repeat", PAD), v, axis), volume);
}

/** A volume on another grid, by linear interpolation or cubic splines, and how far it was seen there, 0 to 1.
 * @type {(from: Placed, affine: Affine, shape: number[], spline?: boolean) => {values: Volume, seen: Volume}} */
export function resample({ volume, affine: own }, affine, shape, spline = false) {
  const square = (/** @type {Affine} */ rows) => new Matrix([...rows, [0, 0, 0, 1]]);
  const index = inverse(square(own)).mmul(square(affine)).to2DArray();
  const [source, pad, taps] = spline ? [coefficients(volume), PAD, 4] : [volume, 0, 2];
  const [values, seen, weight, first] = [zeros(shape), zeros(shape), AXES.map(() => new Float64Array(taps)), [0, 0, 0]];
  const [[, Y, Z], [, H, W]] = [shape, source.shape];
  for (let k = 0; k < values.data.length; k++) {
    const [x, y, z] = [Math.floor(k / (Y * Z)), Math.floor(k / Z) % Y, k % Z];
    seen.data[k] = 1;
    for (const axis of AXES) {
      const [[a, b, c, d], n] = [index[axis], volume.shape[axis]];
      const at = a * x + b * y + c * z + d;
      seen.data[k] *= clamp(Math.min(at + 1, n - at), 0, 1); // a ramp of a voxel at the border
      const place = clamp(at, -pad / 2, n - 1 + pad / 2) + pad;
      const lower = Math.min(Math.floor(place), source.shape[axis] - 2);
      const [t, u] = [place - lower, 1 - (place - lower)];
      first[axis] = spline ? lower - 1 : lower;
      weight[axis].set(spline ? [u ** 3 / 6, 2 / 3 - (t * t * (2 - t)) / 2, 2 / 3 - (u * u * (2 - u)) / 2, t ** 3 / 6] : [u, t]);
    }
    let sum = 0;
    for (let i = 0; i < taps; i++) {
      for (let j = 0; j < taps; j++) {
        const [at, w] = [((first[0] + i) * H + first[1] + j) * W + first[2], weight[0][i] * weight[1][j]];
        for (let l = 0; l < taps; l++) sum += w * weight[2][l] * source.data[at + l];
      }
    }
    values.data[k] = sum;
  }
  return { values, seen };
}
