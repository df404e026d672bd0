/** Where a volume shows tissue, see scripts/stack/tissue.py. */
import constants from "../model/constants.js";
import { intensityRange, withoutSignal } from "./intensity.js";
import { correlate } from "./profile.js";
import { AXES, extremes, indexAlong, map, otherAxes, strides } from "./volume.js";

const { TISSUE, FLAT_SCALE } = constants.tissue;

/** Voxels of the head, 1 inside and 0 outside; the volume is not constant. @type {(volume: Volume, range?: IntensityRange) => Volume} */
export function headMask(volume, { low, high } = intensityRange(volume)) {
  const bright = map(volume, (x) => +(x > Math.fround(low + TISSUE * (high - low))));
  const outside = AXES.map((normal) => fromBorder((place) => !bright.data[place], bright.shape, otherAxes(normal)));
  return largestPart(map(bright, (_, place) => +outside.some((marks) => !marks[place]))); // holes of slices are filled
}

/** Marks all open places that are connected along axes with seeds, which are open; returns how many.
 * @type {(seeds: number[], marks: Int32Array, mark: number, open: (place: number) => boolean, shape: number[], axes: number[]) => number} */
function flood(seeds, marks, mark, open, shape, axes) {
  const step = strides(shape);
  for (const place of seeds) marks[place] = mark;
  let size = 0;
  for (; seeds.length; size++) {
    const place = /** @type {number} */ (seeds.pop());
    for (const axis of axes) {
      const k = Math.floor(place / step[axis]) % shape[axis];
      for (const next of [k > 0 ? place - step[axis] : place, k < shape[axis] - 1 ? place + step[axis] : place]) {
        if (!marks[next] && open(next)) [marks[next], seeds[seeds.length]] = [mark, next];
      }
    }
  }
  return size;
}

/** The open voxels that are connected along axes with one on their borders, 1 there.
 * @type {(open: (place: number) => boolean, shape: number[], axes: number[]) => Int32Array} */
export function fromBorder(open, shape, axes) {
  const [marks, seeds] = [new Int32Array(shape[0] * shape[1] * shape[2]), /** @type {number[]} */ ([])];
  const index = axes.map((axis) => indexAlong(shape, axis));
  for (let place = 0; place < marks.length; place++) {
    if (open(place) && axes.some((axis, k) => (index[k](place) + 1) % shape[axis] < 2)) seeds.push(place); // first or last
  }
  flood(seeds, marks, 1, open, shape, axes);
  return marks;
}

/** The largest connected part, the first of equals. @type {(inside: Volume) => Volume} */
function largestPart(inside) {
  const [parts, sizes] = [new Int32Array(inside.data.length), [0]];
  const open = (/** @type {number} */ place) => inside.data[place] > 0;
  for (let seed = 0; seed < parts.length; seed++) {
    if (open(seed) && !parts[seed]) sizes.push(flood([seed], parts, sizes.length, open, inside.shape, AXES));
  }
  const best = sizes.indexOf(Math.max(...sizes));
  return map(inside, (_, place) => +(parts[place] === best));
}

/** A mask with so many layers more about it. @type {(mask: Volume, layers: number) => Volume} */
export function dilated(mask, layers) {
  const [step, index] = [strides(mask.shape), AXES.map((axis) => indexAlong(mask.shape, axis))];
  const beside = (/** @type {Volume} */ { data }, /** @type {number} */ k) =>
    AXES.some((axis) => (data[k - step[axis]] && index[axis](k) > 0) || (data[k + step[axis]] && index[axis](k) < mask.shape[axis] - 1));
  return Array(layers).fill(0).reduce((inner) => map(inner, (x, k) => +(x || beside(inner, k))), mask);
}

/** A Gaussian of standard deviation `sd`, as a kernel. @type {(sd: number, cut?: number) => number[]} */
function gaussian(sd, cut = 4) {
  const reach = Math.floor(cut * sd + 0.5); // as ndimage cuts Gaussians off
  const weights = Array.from({ length: 2 * reach + 1 }, (_, k) => Math.exp(-(((k - reach) / sd) ** 2) / 2));
  const sum = weights.reduce((a, b) => a + b);
  return weights.map((w) => w / sum);
}

/** Smoothed by Gaussians of so many voxels along each axis. @type {(volume: Volume, widths: number[], ends: "mirror" | "repeat", cut?: number) => Volume} */
export const smooth = (volume, widths, ends, cut) =>
  widths.reduce((v, width, axis) => (width ? correlate(v, axis, gaussian(width, cut), ends) : v), volume);

/** Distance from where a mask is 0, in mm, at most `most`; beyond the field of view it may be 0, too.
 * @type {(mask: Volume, edges: number[], most: number, ends?: boolean) => Volume} */
export function depth(mask, edges, most, ends = false) {
  const nearer = (/** @type {Volume} */ squares, /** @type {number} */ edge, /** @type {number} */ axis) => {
    const [n, step, index, reach] = [mask.shape[axis], strides(mask.shape)[axis], indexAlong(mask.shape, axis), Math.ceil(most / edge)];
    const { data } = squares;
    return map(squares, (x, place) => {
      const k = index(place);
      for (let i = 1; i <= reach && (i * edge) ** 2 < x; i++) {
        const square = (i * edge) ** 2;
        if (i <= k) x = Math.min(x, data[place - i * step] + square);
        if (k + i < n) x = Math.min(x, data[place + i * step] + square);
        if (ends && (i > k || k + i >= n)) x = Math.min(x, square);
      }
      return x;
    });
  };
  return map(edges.reduce(nearer, map(mask, (x) => x * most ** 2)), Math.sqrt);
}

/** Magnitude of the intensity's gradient, over its median in the head. @type {(volume: Volume, head: Volume) => Volume} */
export function edgeStrength(volume, head) {
  const { least, largest } = extremes(volume);
  const unit = map(volume, (x) => x / Math.max(largest, -least));
  const bell = gaussian(FLAT_SCALE);
  const slope = bell.map((w, k) => (w * (k - (bell.length >> 1))) / FLAT_SCALE ** 2);
  const parts = AXES.map((axis) => AXES.reduce((v, k) => correlate(v, k, k === axis ? slope : bell, "mirror"), unit).data);
  const gradient = map(unit, (_, k) => Math.hypot(parts[0][k], parts[1][k], parts[2][k]));
  const inHead = gradient.data.filter((_, k) => head.data[k] > 0.5).sort();
  const typical = Math.max(inHead[(inHead.length - 1) >> 1], 1.2e-38); // torch's median: the lower of two
  return map(gradient, (x) => x / typical);
}

/** The half of the head where intensity changes least, 1 there. @type {(reference: Volume) => Volume} */
export function flatTissue(reference) {
  const head = headMask(reference);
  const strength = edgeStrength(reference, head);
  return map(head, (inside, k) => +(inside && strength.data[k] <= 1));
}

/** A volume whose background is no signal where it was NaN. More NaN than a few pockets within the head stay. @type {(volume: Volume) => Volume} */
export function withoutNan(volume) {
  const nan = volume.data.reduce((count, x) => count + +Number.isNaN(x), 0);
  if (nan === 0 || nan === volume.data.length) return volume;
  const outside = fromBorder((place) => Number.isNaN(volume.data[place]), volume.shape, [0, 1, 2]);
  const background = outside.reduce((count, mark) => count + mark, 0);
  return nan - background > constants.intensity.POCKETS * background ? volume : withoutSignal(volume);
}
