/** In flat tissue, steps from slice to slice become ramps, see scripts/rebuild/deblocking.py. */
import constants from "../model/constants.js";
import { cubic, nearest } from "../stack/interpolation.js";
import { correlate } from "../stack/profile.js";
import { edgeStrength } from "../stack/tissue.js";
import { stepRatio } from "../stack/trace.js";
import { clamp, map } from "../stack/volume.js";

const { FLATTEST, ROLL_OFF, LARGEST } = constants.deblocking;

/** Averages flat tissue along the slice axis over the width of a slice, where that lowers the step ratio.
 * @type {(result: Volume, slices: Slices) => Volume} */
export function deblock(result, slices) {
  const { a, scale } = slices;
  const head = nearest(slices.head, a);
  const strength = edgeStrength(cubic(map(slices.volume, (x) => x - scale.low), a), head);
  const width = Math.ceil(a.sliceSpacing / a.targetSpacing - 1e-6); // voxels; no slice has more
  const kernel = width % 2 ? Array(width).fill(1) : [0.5, ...Array(width - 1).fill(1), 0.5];
  const mean = correlate(result, a.sliceAxis, kernel.map((w) => w / width), "repeat");
  const bound = LARGEST * slices.noise.deviation;
  const share = (/** @type {number} */ k) => 1 / (1 + (strength.data[k] / FLATTEST) ** ROLL_OFF);
  const ramped = map(result, (x, k) => x + share(k) * clamp(mean.data[k] - x, -bound, bound));
  const flat = map(strength, (x, k) => +(x <= 1 && head.data[k] > 0.5));
  return stepRatio(ramped, a, flat) < stepRatio(result, a, flat) ? ramped : result;
}
