/** In flat tissue, a part of each step from slice to slice becomes a ramp, see scripts/rebuild/deblocking.py. */
import constants from "../model/constants.js";
import { fineRows, nearestIndex } from "../stack/grid.js";
import { cubic, nearest } from "../stack/interpolation.js";
import { edgeStrength } from "../stack/tissue.js";
import { steps } from "../stack/trace.js";
import { clamp, indexAlong, map, strides } from "../stack/volume.js";

const { FLATTEST, ROLL_OFF, HALVINGS } = constants.deblocking;

/** Spreads as much of each step as planes differ more across borders of slices than within them.
 * @type {(result: Volume, slices: Slices) => Volume} */
export function deblock(result, slices) {
  const { a, tissueRange } = slices;
  const head = nearest(slices.head, a);
  const strength = edgeStrength(cubic(map(slices.volume, (x) => x - tissueRange.low), a), head);
  const tissue = map(strength, (x, k) => +(x <= 1 && head.data[k] > 0.5));
  const ramps = rampsOf(result, map(strength, (x) => 1 / (1 + (x / FLATTEST) ** ROLL_OFF)), a);
  const [own, ramp] = [result, ramps].map((volume) => steps(volume, a, tissue));
  const steeper = (/** @type {number} */ share) => mean(own.across, ramp.across, share) > mean(own.within, ramp.within, share);
  let [low, high] = [0, 1];
  if (!steeper(0)) return result;
  for (let k = 0; k < HALVINGS; k++) {
    const share = (low + high) / 2;
    if (steeper(share)) low = share;
    else high = share;
  }
  return map(result, (x, k) => x + ((low + high) / 2) * ramps.data[k]);
}

/** Ramps against all steps: half of a step at its border, 0 at the slice's other one. @type {(volume: Volume, flat: Volume, a: Acquisition) => Volume} */
function rampsOf({ data, shape }, flat, a) {
  const [slice, rows, step, plane] = [nearestIndex(a), fineRows(a), strides(shape)[a.sliceAxis], indexAlong(shape, a.sliceAxis)];
  const first = slice.map((one) => slice.indexOf(one));
  const last = slice.map((one) => slice.lastIndexOf(one));
  const jump = (/** @type {number} */ at) => Math.fround((data[at + step] - data[at]) * Math.min(flat.data[at], flat.data[at + step]));
  return map({ data, shape }, (_, place) => {
    const k = plane(place);
    const behind = clamp(rows[k] - slice[k] + 0.5, 0, 1);
    const at = place - k * step;
    const before = first[k] === 0 ? 0 : jump(at + (first[k] - 1) * step);
    const after = last[k] === a.fineCount - 1 ? 0 : jump(at + last[k] * step);
    return (behind * after - (1 - behind) * before) / 2;
  });
}

/** Mean size of steps with a share of the ramps. @type {(own: Float32Array, ramp: Float32Array, share: number) => number} */
function mean(own, ramp, share) {
  let sum = 0;
  for (let k = 0; k < own.length; k++) sum += Math.abs(own[k] + share * ramp[k]);
  return sum / own.length;
}
