/** Whether a result agrees with the measured slices, and how it is reconciled with them, see scripts/rebuild/consistency.py. */
import { EigenvalueDecomposition, Matrix, pseudoInverse } from "ml-matrix";
import constants from "../model/constants.js";
import { intensityRange } from "../stack/intensity.js";
import { cosineFrequencies, magnitude, powerOf } from "../stack/noise.js";
import { sliceMatrix } from "../stack/profile.js";
import { headMask } from "../stack/tissue.js";
import { AXES, along, indexAlong, map, otherAxes, reorder, strides, zeros } from "../stack/volume.js";
import { inTurns } from "./windows.js";

const { DEPENDENT, SMOOTHNESS, ERROR, COARSE, STEEP, QUIET } = constants.consistency;

/** The slices that the scanner would measure of the result, less the measured ones: `A x - y`.
 * @type {(result: Volume, measured: Volume, a: Acquisition, matrix?: ArrayLike<number>[]) => Volume} */
export function difference(result, measured, a, matrix = sliceMatrix(a)) {
  return map(along(matrix, result, a.sliceAxis), (x, k) => x - measured.data[k]);
}

/** Where a result is compared with its slices: the head, without hot spots and a slice beside each. @type {(measured: Volume, axis: number) => Volume} */
export function compared(measured, axis) {
  const range = intensityRange(measured);
  const [{ data, shape }, slice, step] = [measured, indexAlong(measured.shape, axis), strides(measured.shape)[axis]];
  const isHot = (/** @type {number} */ k, /** @type {number} */ beside) =>
    slice(k) + beside >= 0 && slice(k) + beside < shape[axis] && data[k + beside * step] > range.ceiling;
  return map(headMask(measured, range), (inside, k) => (inside && ![-1, 0, 1].some((beside) => isHot(k, beside)) ? 1 : 0));
}

/** RMS of the difference over the RMS of the measured intensities where they are compared, from the scan's floor up.
 * @type {(left: Volume, measured: Volume, where: Volume) => number} */
export function relativeRmse(left, measured, where) {
  const { low } = intensityRange(measured);
  return rms(left, where) / rms(map(measured, (x) => x - low), where);
}

/** Root mean square where a mask is 1. @type {(volume: Volume, mask: Volume) => number} */
export function rms({ data }, mask) {
  let [squares, count] = [0, 0];
  mask.data.forEach((inside, k) => inside && ([squares, count] = [squares + data[k] ** 2, count + 1]));
  return Math.sqrt(squares / count);
}

/** `C A^T` and `A C A^T`, where `C` is the correlation of a result's errors. @type {(a: Acquisition, rows: Float32Array[]) => Record<"cross" | "normal", Matrix>} */
function covariancesOf(a, rows) {
  const [matrix, n] = [new Matrix(rows), a.fineCount];
  const scale = a.targetSpacing / (SMOOTHNESS * a.sliceSpacing);
  const near = Array.from({ length: n }, (_, k) => Math.exp(-((k * scale) ** 2) / 2));
  const correlation = new Matrix(Array.from({ length: n }, (_, i) => near.map((_, j) => near[Math.abs(i - j)])));
  const cross = correlation.mmul(matrix.transpose());
  cross.mul(matrix.mmul(matrix.transpose()).trace() / matrix.mmul(cross).trace());
  const normal = matrix.mmul(cross);
  return { cross, normal: Matrix.add(normal, normal.transpose()).mul(0.5) };
}

/** The matrix that takes from a result all that its slices see, by a smooth change: `I - C A^T (A C A^T)^-1 A`. @type {(a: Acquisition) => Matrix} */
export function unseen(a) {
  const rows = sliceMatrix(a);
  const { cross, normal } = covariancesOf(a, rows);
  const seen = pseudoInverse(normal, DEPENDENT).mmul(new Matrix(rows));
  return Matrix.sub(Matrix.eye(a.fineCount, a.fineCount), cross.mmul(seen));
}

/** The variance of the noise over that of the result's errors for each in-plane frequency, of slices that see the errors so well.
 * @type {(slices: Slices, seen: number) => number[]} */
function noiseOverError({ volume: { shape }, a, edges, tissueRange: { low, high }, noise }, seen) {
  const others = otherAxes(a.sliceAxis);
  const perPixel = others.map((axis) => cosineFrequencies(shape[axis]));
  const [first, second] = others.map((axis, k) => perPixel[k].map((f) => (f * a.targetSpacing) / edges[axis]));
  const [level, power] = [(noise.deviation / (high - low)) ** 2, powerOf(noise, perPixel[0], perPixel[1])];
  const error = (/** @type {number} */ f) => ERROR / (1 + (f / COARSE) ** STEEP);
  return first.flatMap((f, i) =>
    second.map((g, j) => ((level * power[i * second.length + j] + QUIET ** 2) / error(Math.hypot(f, g)) ** 2) * seen),
  );
}

/** `x - C A^T (A C A^T + lambda I)^-1 surplus`: the smallest smooth change that moves a result onto the measurement, where each
 * in-plane frequency has a lambda. @type {(result: Volume, surplus: Volume, slices: Slices, rows: Float32Array[], networks: Networks[]) => Promise<Volume>} */
async function project(result, surplus, slices, rows, networks) {
  const axis = slices.a.sliceAxis;
  const { cross, normal } = covariancesOf(slices.a, rows);
  const own = new EigenvalueDecomposition(normal, { assumeSymmetric: true });
  const [values, patterns, order] = [own.realEigenvalues.map((x) => Math.max(x, 0)), own.eigenvectorMatrix, [axis, ...otherAxes(axis)]];
  const seen = reorder(along(patterns.transpose().to2DArray(), surplus, axis), order);
  const [moved, [, N, M]] = [zeros(seen.shape), seen.shape];
  const lambda = noiseOverError(slices, normal.trace() / values.length);
  await inTurns([seen], N * M, networks, async (one, [some], first) => {
    moved.data.set(await one.weighed(some, values.slice(first, first + some.shape[0]), lambda), first * N * M);
  });
  const change = along(cross.mmul(patterns).to2DArray(), reorder(moved, AXES.map((k) => order.indexOf(k))), axis);
  return map(result, (x, k) => x - change.data[k]);
}

/** The projection for real scans: it fits the gain of every slice, and it leaves noise in the measurement.
 * @type {(result: Volume, slices: Slices, networks: Networks[]) => Promise<Volume>} */
export async function reconcile(result, slices, networks) {
  const { volume: measured, a, tissueRange: { low }, head, noise } = slices;
  const [matrix, slice] = [sliceMatrix(a), indexAlong(measured.shape, a.sliceAxis)];
  const again = map(along(matrix, result, a.sliceAxis), (x) => Math.max(x - low, 0));
  const surplus = map(again, (x, k) => (head.data[k] ? magnitude(x, noise.deviation) - (measured.data[k] - low) : 0));
  const [energy, fit] = [new Float64Array(a.sliceCount), new Float64Array(a.sliceCount)];
  const signal = map(measured, (x, k) => (head.data[k] ? x - low : 0));
  signal.data.forEach((x, k) => {
    energy[slice(k)] += x * x;
    fit[slice(k)] += surplus.data[k] * x;
  });
  const rest = map(surplus, (x, k) => x - (energy[slice(k)] && signal.data[k] * (fit[slice(k)] / energy[slice(k)])));
  return project(result, rest, slices, matrix, networks);
}
