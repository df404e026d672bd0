/** Power along an axis by frequency, and so how far apart the samples lie that a volume was made of, see scripts/stack/spectra.py. */
import constants from "../model/constants.js";
import { AXES, along, clamp, crop, extremes, indexAlong, map, reorder, strides } from "./volume.js";

const { BLOCK, COARSE, DULL, DULLER, FEWEST, FLAT, FLAT_WIDTH, LOST, LOWEST, REPEATED, TAPER } = constants.spectra;
/** @typedef {{frequencies: number[], power: number[]}} Curve cycles/mm, from 0 to Nyquist, and the density of power there */

/** @type {(values: number[]) => number} */
const sum = (values) => values.reduce((all, x) => all + x, 0);

/** A volume whose detail along an axis that is finer than its thick slices counts several times.
 * @type {(volume: Volume, axis: number, spacing: number, thickness: number, factor: number) => Volume} */
export function withDetail(volume, axis, spacing, thickness, factor) {
  const n = volume.shape[axis];
  const waves = Array.from({ length: n }, (_, f) => Array.from({ length: n }, (_, k) => Math.cos((Math.PI * f * (2 * k + 1)) / (2 * n))));
  const weights = waves.map((_, f) => {
    const step = clamp(((f / (2 * n) / spacing) * thickness - TAPER) / (1 - TAPER), 0, 1);
    return ((f ? 2 : 1) / n) * (1 + (factor - 1) * step ** 2 * (3 - 2 * step));
  });
  const rows = waves.map((_, i) => waves.map((_, k) => waves.reduce((all, wave, f) => all + weights[f] * wave[i] * wave[k], 0)));
  return along(rows, volume, axis);
}

/** The density along an axis, of lines without their mean, in Hann's window. @type {(volume: Volume, axis: number, edge: number) => Curve} */
function powerDensity(volume, axis, edge) {
  const n = volume.shape[axis];
  const [window, unit] = [Array.from({ length: n }, (_, k) => Math.sin((Math.PI * k) / (n - 1)) ** 2), 1 / (n * edge)];
  const frequencies = Array.from({ length: (n >> 1) + 1 }, (_, f) => f * unit); // to the bit as torch's: bands end on one
  const power = frequencies.map(() => 0);
  const [mirrored, half, middle] = [reorder(volume, AXES, [axis]), (n + 1) >> 1, (n - 1) / 2];
  const firstHalf = volume.shape.map((count, k) => [0, k === axis ? half : count]);
  for (const [wave, sign] of /** @type {const} */ ([[Math.cos, 1], [Math.sin, -1]])) { // even and odd about the middle
    const rows = frequencies.map((_, f) => {
      const row = window.map((w, k) => w * wave((2 * Math.PI * f * (k - middle)) / n));
      const mean = sum(row) / n;
      return row.slice(0, half).map((x, k) => (x - mean) * (k === middle ? 0.5 : 1));
    });
    const folded = map(volume, (x, k) => x + sign * mirrored.data[k]);
    const { data, shape } = along(rows, crop(folded, firstHalf), axis);
    const step = strides(shape)[axis];
    for (let at = 0; at < data.length; at++) power[Math.floor(at / step) % shape[axis]] += data[at] ** 2;
  }
  const scale = edge / ((volume.data.length / n) * sum(window.map((w) => w * w)));
  return { frequencies, power: power.map((x) => x * scale) };
}

/** A curve at a frequency, linear between its own; NaN beyond. @type {(curve: Curve, frequency: number) => number} */
function between({ frequencies, power }, frequency) {
  const last = frequencies.length - 1;
  if (frequency > frequencies[last]) return NaN;
  const place = frequency / frequencies[1];
  const k = clamp(Math.floor(place), 0, last - 1);
  return power[k] + (place - k) * (power[k + 1] - power[k]);
}

/** @type {WeakMap<Volume, Curve[]>} each takes a second */
const known = new WeakMap();

/** The density along each axis, of the middle of a volume. @type {(volume: Volume, edges: number[]) => Curve[]} */
function densities(volume, edges) {
  const middle = () => crop(volume, volume.shape.map((n) => [Math.max(0, n - BLOCK) >> 1, (Math.max(0, n - BLOCK) >> 1) + Math.min(n, BLOCK)]));
  const curves = known.get(volume) ?? ((block) => AXES.map((axis) => powerDensity(block, axis, edges[axis])))(middle());
  known.set(volume, curves);
  return curves;
}

/** The density along an axis, and the mean of the other axes' that reach as far, else NaN. @type {(curves: Curve[], axis: number) => Curve & {theirs: number[]}} */
function beside(curves, axis) {
  const theirs = curves[axis].frequencies.map((frequency) => {
    const others = curves.filter((_, k) => k !== axis).map((curve) => between(curve, frequency)).filter(Number.isFinite);
    return sum(others) / others.length;
  });
  return { ...curves[axis], theirs };
}

/** How far apart the samples along each axis lie that a volume was made of, in mm; its edges where it is sharp.
 * @type {(volume: Volume, edges: number[]) => number[]} */
export function sharpness(volume, edges) {
  if (Math.min(...volume.shape) < FEWEST) return edges;
  const curves = densities(volume, edges);
  const changes = changing(volume);
  const [least, second] = changes.toSorted((a, b) => a - b);
  const repeats = second / least > REPEATED ? second / least : 0;
  return edges.map((edge, axis) => {
    const { frequencies, power, theirs } = beside(curves, axis);
    const dull = frequencies.find((start) => {
      const band = [...frequencies.keys()].filter((k) => frequencies[k] >= start && frequencies[k] <= 1.5 * start && Number.isFinite(theirs[k]));
      const within = start >= LOWEST && 1.5 * start <= frequencies[frequencies.length - 1] && band.length > 2;
      return within && sum(band.map((k) => power[k])) < DULL * sum(band.map((k) => theirs[k]));
    });
    return Math.max(edge, dull ? 1 / (2 * dull) : 0, axis === changes.indexOf(least) ? repeats * edge : 0);
  });
}

/** Along each axis, the share of neighbours with two values, without plateaus at the least and largest, as of background. @type {(volume: Volume) => number[]} */
function changing(volume) {
  const { data, shape } = volume;
  const { least, largest } = extremes(volume);
  return strides(shape).map((step, axis) => {
    const index = indexAlong(shape, axis);
    let [equal, pairs] = [0, 0];
    for (let k = 0; k < data.length; k++) {
      const isSame = data[k] === data[k + step];
      if (index(k) + 1 === shape[axis] || (isSame && (data[k] === least || data[k] === largest))) continue;
      pairs++;
      equal += +isSame;
    }
    return Math.max(1 - equal / (pairs || 1), 1 / shape[axis]);
  });
}

/** The axis along which a volume was interpolated from thick slices, and their spacing; undefined if along none of `axes`.
 * @type {(sharp: number[], edges: number[], axes?: number[]) => [number, number] | undefined} */
export function interpolated(sharp, edges, axes = AXES) {
  const axis = axes.reduce((best, one) => (sharp[one] / edges[one] > sharp[best] / edges[best] ? one : best));
  return sharp[axis] > Math.max(DULLER * edges[axis], COARSE) ? [axis, sharp[axis]] : undefined;
}

/** Whether a flat volume of cubes of 1 mm is a stack of thick slices whose header lost their spacing. @type {(volume: Volume, edges: number[]) => boolean} */
export function spacingIsLost(volume, edges) {
  const [least, second, most] = volume.shape.toSorted((a, b) => a - b);
  if (edges.some((edge) => Math.abs(edge - 1) > 1e-5) || least > FLAT * most || second < FLAT_WIDTH) return false;
  const { frequencies, power, theirs } = beside(densities(volume, edges), volume.shape.indexOf(least));
  const upper = [...frequencies.keys()].filter((k) => frequencies[k] >= frequencies[frequencies.length - 1] / 2 && Number.isFinite(theirs[k]));
  return sum(upper.map((k) => power[k])) > LOST * sum(upper.map((k) => theirs[k]));
}
