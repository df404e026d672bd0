/** Whether a result agrees with the measured slices, and how it is reconciled with them, see scripts/rebuild/consistency.py. */
import { Matrix, pseudoInverse, SingularValueDecomposition } from "ml-matrix";
import constants from "../model/constants.js";
import { intensityRange, percentile } from "../stack/intensity.js";
import { correlate, sliceMatrix } from "../stack/profile.js";
import { headMask } from "../stack/tissue.js";
import { along, indexAlong, map, otherAxes } from "../stack/volume.js";

const { SMOOTHNESS, RESULT_ERROR } = constants.consistency;

/** What the scanner would measure of the result, minus what it did measure: `A x - y`.
 * @type {(result: Volume, measured: Volume, a: Acquisition, matrix?: ArrayLike<number>[]) => Volume} */
export function difference(result, measured, a, matrix = sliceMatrix(a)) {
  return map(along(matrix, result, a.sliceAxis), (x, k) => x - measured.data[k]);
}

/** RMS of the difference in the head over the RMS of the measured intensities there, from the scan's floor up.
 * @type {(gap: Volume, measured: Volume) => number} */
export function relativeRmse(gap, measured) {
  const range = intensityRange(measured);
  let [error, signal] = [0, 0];
  headMask(measured, range).data.forEach((inside, k) => {
    if (inside) [error, signal] = [error + gap.data[k] ** 2, signal + (measured.data[k] - range.low) ** 2];
  });
  return Math.sqrt(error / signal);
}

/** Standard deviation of the noise in measured slices, by a mask that is blind to ramps (Immerkaer 1996).
 * @type {(measured: Volume, axis: number, head: Volume) => number} */
export function noiseSd(measured, axis, head) {
  const response = otherAxes(axis).reduce((v, other) => correlate(v, other, [1, -2, 1], "repeat"), measured);
  const inHead = response.data.filter((_, k) => head.data[k]).map(Math.abs).sort();
  return percentile(inHead, 50) / (0.6745 * 6);
}

/** `x - C A^T (A C A^T + lambda I)^-1 surplus`: the smallest smooth change that moves a result onto the measurement.
 * @type {(result: Volume, surplus: Volume, a: Acquisition, rows: Float32Array[], lambda: number) => Volume} */
function project(result, surplus, a, rows, lambda) {
  const [matrix, n] = [new Matrix(rows), a.fineCount];
  const scale = a.targetSpacing / (SMOOTHNESS * a.sliceSpacing);
  const near = Array.from({ length: n }, (_, k) => Math.exp(-((k * scale) ** 2) / 2));
  const correlation = new Matrix(Array.from({ length: n }, (_, i) => near.map((_, j) => near[Math.abs(i - j)])));
  const spread = correlation.mmul(matrix.transpose());
  spread.mul(matrix.mmul(matrix.transpose()).trace() / matrix.mmul(spread).trace());
  const normal = matrix.mmul(spread).add(Matrix.eye(rows.length).mul(lambda));
  const least = 1e-9 * new SingularValueDecomposition(normal).norm2; // overlapping slices can be linearly dependent
  const gain = spread.mmul(pseudoInverse(normal, least));
  const change = along(gain.to2DArray(), surplus, a.sliceAxis);
  return map(result, (x, k) => x - change.data[k]);
}

/** The projection for real scans: it fits the gain of every slice, and it leaves noise in the measurement.
 * @type {(result: Volume, measured: Volume, a: Acquisition) => Volume} */
export function reconcile(result, measured, a) {
  const [matrix, range] = [sliceMatrix(a), intensityRange(measured)];
  const { low, high } = range;
  const surplus = difference(result, measured, a, matrix);
  const [energy, fit] = [new Float64Array(a.sliceCount), new Float64Array(a.sliceCount)];
  const [slice, signal] = [indexAlong(measured.shape, a.sliceAxis), map(measured, (x) => x - low)];
  signal.data.forEach((x, k) => {
    energy[slice(k)] += x * x;
    fit[slice(k)] += surplus.data[k] * x;
  });
  const rest = map(surplus, (x, k) => x - (energy[slice(k)] && signal.data[k] * (fit[slice(k)] / energy[slice(k)])));
  const noise = noiseSd(measured, a.sliceAxis, headMask(measured, range));
  return project(result, rest, a, matrix, (noise / (RESULT_ERROR * (high - low))) ** 2);
}
