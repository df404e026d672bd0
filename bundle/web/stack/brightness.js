/** Brightness that makes a result less sure, see scripts/stack/brightness.py. */
import { inverse, Matrix } from "ml-matrix";
import constants from "../model/constants.js";
import { f } from "../errors.js";
import { intensityRange, tissueOf } from "./intensity.js";
import { headMask } from "./tissue.js";
import { AXES, extremes, indexAlong } from "./volume.js";

const { DARK, SLOPE, BLOCKS, LEAST, SPOTS, FAINT, SLOPES } = constants.brightness;
const { BRIGHTEST, DIMMEST, HOT } = constants.intensity;

/** Which brightness of a scan makes its result less sure, for people. @type {(volume: Volume) => string[]} */
export function doubts(volume) {
  const { least, largest } = extremes(volume);
  if (least === largest) return [];
  const [range, head] = [intensityRange(volume), headMask(volume)];
  const dim = range.low + (DIMMEST * (range.ceiling - range.low)) / BRIGHTEST;
  let [inside, hot, dark] = [0, 0, 0];
  volume.data.forEach((x, k) => {
    hot += +(x > range.ceiling);
    if (head.data[k]) [inside, dark] = [inside + 1, dark + +(x <= dim)];
  });
  const slope = slopeOf(tissueOf(volume, range), head, range);
  return [
    ...(hot > HOT * inside ? [SPOTS.replace("{:.1f}", f((100 * hot) / inside, 1))] : []),
    ...(dark > DARK * inside ? [FAINT.replace("{:.0f}", f((100 * dark) / inside, 0))] : []),
    ...(slope > SLOPE ? [SLOPES.replace("{:.1f}", f(slope, 1))] : []),
  ];
}

/** How many times as bright the head is at one end of the exponential that fits the means of its blocks best.
 * @type {(tissue: Volume, head: Volume, range: IntensityRange) => number} */
function slopeOf({ data, shape }, head, { low, high }) {
  const counts = shape.map((n) => Math.min(BLOCKS, n));
  const index = AXES.map((axis) => indexAlong(shape, axis));
  const blocks = Array.from({ length: counts[0] * counts[1] * counts[2] }, () => ({ size: 0, inside: 0, sum: 0 }));
  data.forEach((x, k) => {
    const [i, j, l] = AXES.map((axis) => Math.floor((index[axis](k) * counts[axis]) / shape[axis]));
    const block = blocks[(i * counts[1] + j) * counts[2] + l];
    block.size++;
    if (head.data[k]) [block.inside, block.sum] = [block.inside + 1, block.sum + x - low];
  });
  const kept = [...blocks.keys()].filter((k) => 2 * blocks[k].inside > blocks[k].size);
  if (kept.length < LEAST) return 1;
  const rows = kept.map((k) => [1, Math.floor(k / counts[2] / counts[1]), Math.floor(k / counts[2]) % counts[1], k % counts[2]]);
  const places = new Matrix(rows);
  const means = kept.map((k) => [Math.log(Math.max(blocks[k].sum / blocks[k].inside, (high - low) / 1000))]);
  const fitted = places.mmul(inverse(places, true).mmul(new Matrix(means))).to1DArray();
  return Math.exp(Math.max(...fitted) - Math.min(...fitted));
}
