/** Volumes: transposed, cropped, and changed along one axis. */

export const AXES = [0, 1, 2];

/** A volume of zeros. @type {(shape: number[]) => Volume} */
export const zeros = (shape) => ({ data: new Float32Array(shape[0] * shape[1] * shape[2]), shape: [...shape] });

/** @type {(volume: Volume) => Volume} */
export const copy = ({ data, shape }) => ({ data: data.slice(), shape });

/** Distances in memory between neighbours along each axis. @type {(shape: number[]) => number[]} */
export const strides = (shape) => [shape[1] * shape[2], shape[2], 1];

/** The index of a voxel along an axis, by its place in memory. @type {(shape: number[], axis: number) => (place: number) => number} */
export function indexAlong(shape, axis) {
  const [step, n] = [strides(shape)[axis], shape[axis]];
  return (place) => Math.floor(place / step) % n;
}

/** The two axes beside an axis. @type {(axis: number) => number[]} */
export const otherAxes = (axis) => AXES.filter((other) => other !== axis);

/** @type {(x: number, least: number, most: number) => number} */
export const clamp = (x, least, most) => Math.min(Math.max(x, least), most);

/** A function of each voxel and its place. @type {(volume: Volume, f: (value: number, place: number) => number) => Volume} */
export function map(volume, f) {
  const result = zeros(volume.shape);
  for (let k = 0; k < result.data.length; k++) result.data[k] = f(volume.data[k], k);
  return result;
}

/** Applies a matrix, given by its rows, along an axis. Most rows are 0 but for a few neighbours.
 * @type {(matrix: ArrayLike<number>[], volume: Volume, axis: number) => Volume} */
export function along(matrix, { data, shape }, axis) {
  const [result, n, step] = [zeros(shape.with(axis, matrix.length)), shape[axis], strides(shape)[axis]];
  const rows = matrix.map((row) => {
    const weights = Float64Array.from(row);
    const first = Math.max(weights.findIndex(Boolean), 0);
    return { first, weights: weights.subarray(first, weights.findLastIndex(Boolean) + 1) };
  });
  const sums = new Float64Array(step); // of a row, whose voxels lie side by side
  for (let from = 0, to = 0; from < data.length; from += n * step) {
    for (const { first, weights } of rows) {
      let place = from + first * step;
      if (step === 1) {
        let sum = 0;
        for (let k = 0; k < weights.length; k++) sum += weights[k] * data[place++];
        result.data[to++] = sum;
        continue;
      }
      sums.fill(0);
      for (let k = 0; k < weights.length; k++) {
        const weight = weights[k];
        for (let i = 0; i < step; i++) sums[i] += weight * data[place++];
      }
      result.data.set(sums, to);
      to += step;
    }
  }
  return result;
}

/** Transposed to `axes`, then flipped along `flipped`. @type {(v: Volume, axes: number[], flipped?: number[]) => Volume} */
export function reorder(volume, axes, flipped = []) {
  const result = zeros(axes.map((axis) => volume.shape[axis]));
  const from = axes.map((axis) => strides(volume.shape)[axis]);
  const first = flipped.reduce((sum, k) => sum + from[k] * (result.shape[k] - 1), 0);
  const [[X, Y, Z], [a, b, c]] = [result.shape, from.map((step, k) => (flipped.includes(k) ? -step : step))];
  for (let x = 0, n = 0; x < X; x++) {
    for (let y = 0; y < Y; y++) {
      for (let z = 0, place = first + x * a + y * b; z < Z; z++, place += c) result.data[n++] = volume.data[place];
    }
  }
  return result;
}

/** Where the lines of a box along the last axis begin in a volume. @type {(shape: number[], box: Box) => number[]} */
function boxLines(shape, [[x0, x1], [y0, y1], [z0]]) {
  const starts = [];
  for (let x = x0; x < x1; x++) for (let y = y0; y < y1; y++) starts.push((x * shape[1] + y) * shape[2] + z0);
  return starts;
}

/** The part of a volume in a box. @type {(volume: Volume, box: Box) => Volume} */
export function crop(volume, box) {
  const part = zeros(box.map(([first, end]) => end - first));
  const n = part.shape[2];
  boxLines(volume.shape, box).forEach((at, k) => part.data.set(volume.data.subarray(at, at + n), k * n));
  return part;
}

/** Puts a part in the place of a box of a volume, which is returned. @type {(volume: Volume, part: Volume, box: Box) => Volume} */
export function paste(volume, part, box) {
  const n = part.shape[2];
  boxLines(volume.shape, box).forEach((at, k) => volume.data.set(part.data.subarray(k * n, (k + 1) * n), at));
  return volume;
}

/** The smallest box with all voxels that are not 0. @type {(mask: Volume) => Box} */
export function boxOf({ data, shape }) {
  return AXES.map((axis) => {
    const [index, box] = [indexAlong(shape, axis), [shape[axis], 0]];
    data.forEach((inside, k) => inside && ([box[0], box[1]] = [Math.min(box[0], index(k)), Math.max(box[1], index(k) + 1)]));
    return box;
  });
}

/** Least and largest voxel. @type {(volume: Volume) => {least: number, largest: number}} */
export function extremes({ data }) {
  let [least, largest] = [data[0], data[0]];
  for (const x of data) [least, largest] = [Math.min(least, x), Math.max(largest, x)];
  return { least, largest };
}
