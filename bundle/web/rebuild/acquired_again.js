/** Measured slices that are acquired again along one of their axes, see scripts/rebuild/acquired_again.py. */
import { Matrix } from "ml-matrix";
import constants from "../model/constants.js";
import { thickCount } from "../stack/grid.js";
import { cubicMatrix, wider } from "../stack/interpolation.js";
import { cosineFrequencies, cosines, powerOf, withNoise } from "../stack/noise.js";
import { sliceMatrix } from "../stack/profile.js";
import { depth, headMask } from "../stack/tissue.js";
import { along, crop, map, reorder, zeros } from "../stack/volume.js";

const { PLANES, WIDE, FULL, BORDER, NEAR, FEWEST_PIXELS, FEWEST_SLICES } = constants.acquired_again;
const { MANY } = constants.noise;
const FIRST = (WIDE - PLANES) / 2; // of the planes that are kept

/** @typedef {{truth: Volume, head: Volume}} Plane a slice, that axis first, and the head without its border, 1 there */
/** @typedef {{plane: (index: number) => Plane | undefined, slices: (truth: Volume, seed: number) => Slices, hidden: number}} Again
 * its slices, none where there is too little of the head; those made of one, beside each other in a volume, with noise; the part of
 * the mean squared difference to the measured slice that is its own noise */

/** Slices of a scan in RAS+ order along an axis; undefined where that gives too few. The new ones are as many pixels thick, and apart, as
 * the scan's are targets. @type {(scan: Slices, tissue: Volume, inside: Volume, axis: number) => Again | undefined} */
export function acquiredAgain({ a, edges, noise, tissueRange }, tissue, inside, axis) {
  const other = 3 - a.sliceAxis - axis;
  const [wide, across] = axis < other ? noise.widths : noise.widths.toReversed();
  const [own, head] = [tissue, inside].map((one) => reorder(one, [axis, other, a.sliceAxis]));
  const { integrate, pixel } = asAcquired(own.shape[0], edges[axis], wide, a);
  const fineCount = integrate.rows;
  const again = { ...a, sliceAxis: 0, sliceCount: thickCount(fineCount, a.targetSpacing, a.sliceSpacing), fineCount, missing: new Map(), noise: undefined };
  if (again.sliceCount < FEWEST_SLICES) return undefined;
  const { whole, thick, both } = noiseThrough(integrate, again, { ...noise, widths: [wide, across] });
  const left = { ...noise, widths: [across, Math.max(1, (wide * edges[axis]) / pixel)] };
  const drawn = { ...left, deviation: noise.deviation * Math.sqrt(Math.max(1 - thick, 0)) };
  const [rows, matrix] = [integrate.to2DArray(), sliceMatrix(again)];
  return {
    hidden: noise.deviation ** 2 * (whole - 2 * both),
    plane(index) {
      const box = [[0, own.shape[0]], [0, own.shape[1]], [index, index + 1]];
      const [truth, share] = [own, head].map((one) => along(rows, crop(one, box), 0));
      const shown = map(share, (x) => +(x > 0.5));
      return shown.data.reduce((count, x) => count + x, 0) < FEWEST_PIXELS ? undefined : { truth, head: shown };
    },
    slices(truth, seed) {
      const acquired = along(matrix, truth, 0);
      const alike = map(zeros([...acquired.shape.slice(0, 2), WIDE]), (_, k) => acquired.data[Math.floor(k / WIDE)] - tissueRange.low);
      const noisy = withNoise(alike, [1, 2], drawn, seed);
      const kept = crop(noisy, [...noisy.shape.slice(0, 2).map((n) => [0, n]), [FIRST, FIRST + PLANES]]);
      const volume = map(kept, (x) => x + tissueRange.low);
      return { volume, a: again, edges: [a.sliceSpacing, edges[other], a.targetSpacing], tissueRange, head: headMask(volume, tissueRange), noise: left };
    },
  };
}

/** What gives a line of `n` pixels others, and their edge in mm: those that were acquired, `width` times as long, in the place of those
 * that a scanner interpolated; the target's in the place of finer ones. Near enough ones stay.
 * @type {(n: number, edge: number, width: number, a: Acquisition) => {integrate: Matrix, pixel: number}} */
function asAcquired(n, edge, width, a) {
  let [integrate, pixel, target] = [Matrix.eye(n, n), edge, a.targetSpacing];
  if (width >= NEAR) [integrate, pixel] = [new Matrix(wider(n, width)), edge * width];
  if (target >= NEAR * pixel) {
    const [fineCount, sliceCount] = [integrate.rows, thickCount(integrate.rows, pixel, target)];
    const rows = sliceMatrix({ ...a, sliceCount, fineCount, sliceSpacing: target, sliceThickness: target, targetSpacing: pixel });
    [integrate, pixel] = [new Matrix(rows).mmul(integrate), target];
  }
  return { integrate, pixel };
}

/** The noise of a slice, of variance 1: its variances after `integrate` and acquired again, and the covariance of the integrated slice with
 * its cubic spline after it was acquired again. @type {(integrate: Matrix, again: Acquisition, noise: Noise) => Record<"whole" | "thick" | "both", number>} */
function noiseThrough(integrate, again, noise) {
  const power = powerOf(noise, cosineFrequencies(integrate.columns), cosineFrequencies(MANY));
  const weights = Array.from({ length: integrate.columns }, (_, k) => power.slice(k * MANY, (k + 1) * MANY).reduce((sum, x) => sum + x, 0) / MANY);
  const seen = integrate.mmul(new Matrix(cosines(integrate.columns)).transpose());
  const acquired = new Matrix(sliceMatrix(again)).mmul(seen);
  const splined = new Matrix(cubicMatrix(again)).mmul(acquired);
  const covariance = (/** @type {Matrix} */ one, /** @type {Matrix} */ two) => Matrix.mul(one, two).mulRowVector(weights).sum() / one.rows;
  return { whole: covariance(seen, seen), thick: covariance(acquired, acquired), both: covariance(splined, seen) };
}

/** The head of a scan without its border, 1 there. @type {(scan: Slices) => Volume} */
export const belowBorder = ({ head, edges }) => map(depth(head, edges, 1.01 * BORDER, true), (x) => +(x > BORDER));

/** So many slices, or fewer: of those that were measured and show most of a head, evenly spread ones. @type {(scan: Slices, missing: number[], count: number) => number[]} */
export function middleSlices({ head, a }, missing, count) {
  const slice = (/** @type {number} */ k) => crop(head, head.shape.map((n, axis) => (axis === a.sliceAxis ? [k, k + 1] : [0, n])));
  const areas = Array.from({ length: a.sliceCount }, (_, k) => slice(k).data.reduce((sum, x) => sum + x, 0));
  const measured = [...areas.keys()].filter((k) => !missing.includes(k));
  const most = Math.max(...measured.map((k) => areas[k]));
  const full = measured.filter((k) => areas[k] >= FULL * most);
  const places = Array.from({ length: count }, (_, k) => full[Math.floor(((k + 0.5) * full.length) / count)]);
  return [...new Set(places)];
}
