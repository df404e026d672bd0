/** Where a volume shows tissue, see scripts/stack/tissue.py. */
import constants from "../model/constants.js";
import { intensityRange } from "./intensity.js";
import { mirror } from "./profile.js";
import { extremes, map, mapLines, otherAxes, strides, zeros } from "./volume.js";

const { TISSUE, FLAT_SCALE } = constants.tissue;

/** Voxels of the head, 1 inside and 0 outside; the volume is not constant. @type {(volume: Volume, range?: IntensityRange) => Volume} */
export function headMask(volume, { low, high } = intensityRange(volume)) {
  let inside = map(volume, (x) => +(x > Math.fround(low + TISSUE * (high - low))));
  for (const normal of [0, 1, 2]) {
    const { data, shape } = inside;
    const outside = fromBorder((place) => !data[place], shape, otherAxes(normal));
    inside = map(inside, (_, place) => +!outside[place]); // holes of slices are filled
  }
  return largestPart(inside);
}

/** Marks all open places that are connected along axes with seeds, which are open; returns how many.
 * @type {(seeds: number[], marks: Int32Array, mark: number, open: (place: number) => boolean, shape: number[], axes: number[]) => number} */
function flood(seeds, marks, mark, open, shape, axes) {
  const [step, stack] = [strides(shape), seeds];
  for (const place of seeds) marks[place] = mark;
  let size = 0;
  for (; stack.length; size++) {
    const place = /** @type {number} */ (stack.pop());
    for (const axis of axes) {
      const k = Math.floor(place / step[axis]) % shape[axis];
      for (const next of [k > 0 ? place - step[axis] : place, k < shape[axis] - 1 ? place + step[axis] : place]) {
        if (!marks[next] && open(next)) [marks[next], stack[stack.length]] = [mark, next];
      }
    }
  }
  return size;
}

/** What is open and connected along axes with an open voxel on their borders, 1 there. @type {(open: (place: number) => boolean, shape: number[], axes: number[]) => Int32Array} */
export function fromBorder(open, shape, axes) {
  const [step, marks, seeds] = [strides(shape), new Int32Array(shape[0] * shape[1] * shape[2]), /** @type {number[]} */ ([])];
  for (let place = 0; place < marks.length; place++) {
    const onBorder = (/** @type {number} */ axis) => (Math.floor(place / step[axis]) + 1) % shape[axis] < 2; // first or last
    if (open(place) && axes.some(onBorder)) seeds.push(place);
  }
  flood(seeds, marks, 1, open, shape, axes);
  return marks;
}

/** The largest connected part, the first of equals. @type {(inside: Volume) => Volume} */
function largestPart(inside) {
  const { data, shape } = inside;
  const [parts, sizes] = [new Int32Array(data.length), [0]];
  for (let seed = 0; seed < data.length; seed++) {
    if (data[seed] && !parts[seed]) sizes.push(flood([seed], parts, sizes.length, (place) => data[place] > 0, shape, [0, 1, 2]));
  }
  const best = sizes.indexOf(Math.max(...sizes));
  return map(inside, (_, place) => +(parts[place] === best));
}

/** Correlation with a kernel of odd length along an axis; beyond the ends the volume is mirrored, or its last voxels repeated.
 * @type {(volume: Volume, axis: number, kernel: number[], ends: "mirror" | "repeat") => Volume} */
export function correlate(volume, axis, kernel, ends) {
  const [n, weights, reach] = [volume.shape[axis], Float64Array.from(kernel), kernel.length >> 1];
  const place = (/** @type {number} */ k) => (ends === "mirror" ? mirror(k, n) : Math.min(Math.max(k, 0), n - 1));
  const index = Int32Array.from({ length: n + 2 * reach }, (_, k) => place(k - reach));
  const padded = new Float64Array(index.length);
  return mapLines(volume, axis, n, (line, out) => {
    for (let k = 0; k < padded.length; k++) padded[k] = line[index[k]];
    for (let k = 0; k < n; k++) {
      let sum = 0;
      for (let i = 0; i < weights.length; i++) sum += weights[i] * padded[k + i];
      out[k] = sum;
    }
  });
}

/** A Gaussian of standard deviation `sd`, as a kernel. @type {(sd: number, reach: number) => number[]} */
function gaussian(sd, reach) {
  const weights = Array.from({ length: 2 * reach + 1 }, (_, k) => Math.exp(-(((k - reach) / sd) ** 2) / 2));
  const sum = weights.reduce((a, b) => a + b);
  return weights.map((w) => w / sum);
}

/** Smoothed by Gaussians of so many voxels along each axis. @type {(volume: Volume, widths: number[], ends: "mirror" | "repeat", cut?: number) => Volume} */
export function smooth(volume, widths, ends, cut = 4) {
  const reach = widths.map((width) => Math.floor(cut * width + 0.5)); // as ndimage cuts Gaussians off
  return reach.reduce((v, n, axis) => (n ? correlate(v, axis, gaussian(widths[axis], n), ends) : v), volume);
}

/** Distance from where a mask is 0, in mm, at most `most`. @type {(mask: Volume, edges: number[], most: number) => Volume} */
export function depth(mask, edges, most) {
  const nearer = (/** @type {Volume} */ squares, /** @type {number} */ edge, /** @type {number} */ axis) =>
    mapLines(squares, axis, squares.shape[axis], (line, out) => {
      const reach = Math.ceil(most / edge);
      for (let k = 0; k < line.length; k++) {
        out[k] = line[k];
        for (let i = Math.max(k - reach, 0); i <= Math.min(k + reach, line.length - 1); i++) {
          out[k] = Math.min(out[k], line[i] + ((i - k) * edge) ** 2);
        }
      }
    });
  return map(edges.reduce(nearer, map(mask, (x) => x * most ** 2)), Math.sqrt);
}

/** Magnitude of the intensity's gradient, over its median in the head. @type {(volume: Volume, head: Volume) => Volume} */
export function edgeStrength(volume, head) {
  const { least, largest } = extremes(volume);
  const unit = map(volume, (x) => x / Math.max(largest, -least));
  const reach = 4 * FLAT_SCALE; // as ndimage cuts Gaussians off
  const smooth = gaussian(FLAT_SCALE, reach);
  const slope = smooth.map((w, k) => (w * (k - reach)) / FLAT_SCALE ** 2);
  const squares = zeros(volume.shape);
  for (let axis = 0; axis < 3; axis++) {
    const part = [0, 1, 2].reduce((v, k) => correlate(v, k, k === axis ? slope : smooth, "mirror"), unit);
    part.data.forEach((x, k) => (squares.data[k] += x * x));
  }
  const gradient = map(squares, Math.sqrt);
  const inHead = gradient.data.filter((_, k) => head.data[k] > 0.5).sort();
  const typical = Math.max(inHead[(inHead.length - 1) >> 1], 1.2e-38); // torch's median: the lower of two
  return map(gradient, (x) => x / typical);
}
