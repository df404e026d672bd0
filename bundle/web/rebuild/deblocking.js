/** In flat tissue, a part of each step from slice to slice becomes a ramp, see scripts/rebuild/deblocking.py. */
import { Matrix } from "ml-matrix";
import constants from "../model/constants.js";
import { fineRows } from "../stack/grid.js";
import { cubic, nearest } from "../stack/interpolation.js";
import { edgeStrength } from "../stack/tissue.js";
import { borderDistance, steps } from "../stack/trace.js";
import { along, clamp, indexAlong, map, strides } from "../stack/volume.js";
import { unseen } from "./consistency.js";

const { FLATTEST, ROLL_OFF, MOST, HALVINGS } = constants.deblocking;

/** Spreads as much of each step as planes differ more across borders of slices than within them.
 * @type {(result: Volume, slices: Slices) => Volume} */
export function deblock(result, slices) {
  const { a, tissueRange } = slices;
  const head = nearest(slices.head, a);
  const strength = edgeStrength(cubic(map(slices.volume, (x) => x - tissueRange.low), a), head);
  const tissue = map(strength, (x, k) => +(x <= 1 && head.data[k] > 0.5));
  const own = steps(result, a, tissue);
  if (!steep(own, own, 0)) return result;
  const ramps = rampsOf(result, map(strength, (x) => 1 / (1 + (x / FLATTEST) ** ROLL_OFF)), a);
  const ramp = steps(ramps, a, tissue);
  let [low, high] = [0, MOST];
  for (let k = 0; k < HALVINGS; k++) {
    const share = (low + high) / 2;
    if (steep(own, ramp, share)) low = share;
    else high = share;
  }
  return map(result, (x, k) => x + ((low + high) / 2) * ramps.data[k]);
}

/** @typedef {{across: Float32Array, within: Float32Array}} Steps */
/** Whether planes differ more across borders of slices, with a share of the ramps. @type {(own: Steps, ramp: Steps, share: number) => boolean} */
const steep = (own, ramp, share) => mean(own.across, ramp.across, share) > mean(own.within, ramp.within, share);

/** The change that makes ramps of all steps in flat tissue. @type {(volume: Volume, flat: Volume, a: Acquisition) => Volume} */
function rampsOf({ data, shape }, flat, a) {
  const [step, plane] = [strides(shape)[a.sliceAxis], indexAlong(shape, a.sliceAxis)];
  const changes = map({ data, shape }, (_, at) => // the last plane's is 0
    plane(at) + 1 === a.fineCount ? 0 : (data[at + step] - data[at]) * Math.min(flat.data[at], flat.data[at + step]));
  return map(along(rampsOfChanges(a), changes, a.sliceAxis), (x, k) => x * flat.data[k]);
}

/** The matrix that makes ramps of the changes from each plane to the next. @type {(a: Acquisition) => number[][]} */
function rampsOfChanges(a) {
  const place = fineRows(a).map((row) => row + 0.5); // in slices from the beginning of the first
  const reach = Math.min(1, a.sliceSpacing / a.targetSpacing / 2); // planes; no farther than a slice's middle
  const share = borderDistance(a).map((distance) => Math.max(1 - distance / reach, 0));
  const row = (/** @type {number} */ z) => [
    ...share.map((part, k) => {
      const middle = (place[k] + place[k + 1]) / 2;
      const border = clamp(Math.round(middle), 1, Math.max(a.sliceCount - 1, 1));
      return part * (clamp(z - border + 1, 0, 2) / 2 - +(z > middle));
    }),
    0,
  ];
  return unseen(a).mmul(new Matrix(place.map(row))).to2DArray();
}

/** Mean size of steps with a share of the ramps. @type {(own: Float32Array, ramp: Float32Array, share: number) => number} */
function mean(own, ramp, share) {
  let sum = 0;
  for (let k = 0; k < own.length; k++) sum += Math.abs(own[k] + share * ramp[k]);
  return sum / own.length;
}
