/** Volumes: transposed, cropped, and changed along one axis. */

/** A volume of zeros. @type {(shape: number[]) => Volume} */
export const zeros = (shape) => ({ data: new Float32Array(shape[0] * shape[1] * shape[2]), shape: [...shape] });

/** Distances in memory between neighbours along each axis. @type {(shape: number[]) => number[]} */
export const strides = (shape) => [shape[1] * shape[2], shape[2], 1];

/** The two axes beside an axis. @type {(axis: number) => number[]} */
export const otherAxes = (axis) => [0, 1, 2].filter((other) => other !== axis);

/** A function of each voxel and its place. @type {(volume: Volume, f: (value: number, place: number) => number) => Volume} */
export function map(volume, f) {
  const result = zeros(volume.shape);
  for (let k = 0; k < result.data.length; k++) result.data[k] = f(volume.data[k], k);
  return result;
}

/** Places of the first voxels of all lines along an axis. @type {(shape: number[], axis: number) => number[]} */
export function lines(shape, axis) {
  const [step, [a, b], starts] = [strides(shape), otherAxes(axis), /** @type {number[]} */ ([])];
  for (let i = 0; i < shape[a]; i++) for (let j = 0; j < shape[b]; j++) starts.push(i * step[a] + j * step[b]);
  return starts;
}

/**
 * Each line along an axis becomes another line of `count` voxels.
 * @type {(volume: Volume, axis: number, count: number, f: (line: Float64Array, out: Float64Array) => void) => Volume}
 */
export function mapLines(volume, axis, count, f) {
  const result = zeros(volume.shape.with(axis, count));
  const [from, to] = [strides(volume.shape)[axis], strides(result.shape)[axis]];
  const [line, out, starts] = [new Float64Array(volume.shape[axis]), new Float64Array(count), lines(volume.shape, axis)];
  lines(result.shape, axis).forEach((start, n) => {
    for (let k = 0, place = starts[n]; k < line.length; k++, place += from) line[k] = volume.data[place];
    f(line, out);
    for (let k = 0, place = start; k < count; k++, place += to) result.data[place] = out[k];
  });
  return result;
}

/** Applies a matrix, given by its rows, along an axis. @type {(matrix: ArrayLike<number>[], volume: Volume, axis: number) => Volume} */
export function along(matrix, volume, axis) {
  const rows = matrix.map((row) => Float64Array.from(row));
  return mapLines(volume, axis, rows.length, (line, out) => {
    for (let i = 0; i < rows.length; i++) {
      const row = rows[i];
      let sum = 0;
      for (let k = 0; k < row.length; k++) sum += row[k] * line[k];
      out[i] = sum;
    }
  });
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

/** Puts a part in the place of a box. @type {(volume: Volume, part: Volume, box: Box) => void} */
export function paste(volume, part, box) {
  const n = part.shape[2];
  boxLines(volume.shape, box).forEach((at, k) => volume.data.set(part.data.subarray(k * n, (k + 1) * n), at));
}

/** Least and largest voxel. @type {(volume: Volume) => {least: number, largest: number}} */
export function extremes({ data }) {
  let [least, largest] = [Infinity, -Infinity];
  for (const value of data) [least, largest] = [value < least ? value : least, value > largest ? value : largest];
  return { least, largest };
}
