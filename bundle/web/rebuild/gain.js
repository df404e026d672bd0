/** How the intensities of one scan relate to those of another, see scripts/rebuild/gain.py. */
import constants from "../model/constants.js";
import { voxelSpacing } from "../stack/grid.js";
import { depth, smooth } from "../stack/tissue.js";
import { AXES, indexAlong, map } from "../stack/volume.js";

const { SMOOTH, COARSE, FEWEST } = constants.gain;

/** The share of a volume's variance that a rising curve of another's intensities explains, 0 to 1; 0 where they share too little.
 * @type {(first: Placed, head: Volume, other: Volume, seen: Volume, sliceSpacing: number) => number} */
export function relation({ volume, affine }, head, other, seen, sliceSpacing) {
  const edges = voxelSpacing(affine);
  const widths = edges.map((edge) => (SMOOTH * Math.max(sliceSpacing, COARSE)) / edge);
  const both = map(head, (x, k) => +(x && seen.data[k]));
  const [weight, deep] = [smooth(both, widths, "mirror"), depth(both, edges, 1.01 * sliceSpacing, true)];
  const coarse = (/** @type {Volume} */ one) =>
    map(smooth(map(one, (x, k) => x * both.data[k]), widths, "mirror"), (x, k) => x / Math.max(weight.data[k], 1e-3));
  const [a, b, index] = [coarse(volume).data, coarse(other).data, AXES.map((axis) => indexAlong(head.shape, axis))];
  const isTaken = (/** @type {number} */ k) => deep.data[k] > sliceSpacing && widths.every((width, axis) => index[axis](k) % Math.max(1, Math.floor(width)) === 0);
  const places = [...a.keys()].filter(isTaken).sort((one, two) => b[one] - b[two]);
  const values = places.map((k) => a[k]);
  const variance = varianceOf(values);
  if (places.length < FEWEST || !variance) return 0;
  const curve = rising(values);
  return 1 - varianceOf(values.map((x, k) => x - curve[k])) / variance;
}

/** @type {(values: number[]) => number} */
function varianceOf(values) {
  const mean = values.reduce((sum, x) => sum + x, 0) / values.length;
  return values.reduce((sum, x) => sum + (x - mean) ** 2, 0) / values.length;
}

/** The best of all curves that nowhere fall: neighbours that fall are pooled. @type {(values: number[]) => number[]} */
function rising(values) {
  /** @type {[number, number][]} means, and of how many */
  const pools = [];
  for (const x of values) {
    let [mean, count] = [x, 1];
    for (let last = pools.at(-1); last && last[0] >= mean; last = pools.at(-1)) {
      [mean, count] = [(mean * count + last[0] * last[1]) / (count + last[1]), count + last[1]];
      pools.pop();
    }
    pools.push([mean, count]);
  }
  return pools.flatMap(([mean, count]) => Array(count).fill(mean));
}
