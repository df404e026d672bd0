/** The trace that measured slices leave in a rebuilt volume, see scripts/stack/trace.py. */
import { nearestIndex } from "./grid.js";
import { AXES, indexAlong, otherAxes, strides } from "./volume.js";

/** Differences of neighbouring planes in flat tissue: across borders of slices, and within slices.
 * @type {(volume: Volume, a: Acquisition, flat: Volume) => {across: Float32Array, within: Float32Array}} */
export function steps({ data, shape }, a, flat) {
  const [slice, step, plane] = [nearestIndex(a), strides(shape)[a.sliceAxis], indexAlong(shape, a.sliceAxis)];
  const [found, count] = [[new Float32Array(data.length), new Float32Array(data.length)], [0, 0]]; // across, within
  for (let place = 0; place < data.length; place++) {
    const k = plane(place);
    if (k + 1 === a.fineCount || !flat.data[place] || !flat.data[place + step]) continue;
    const within = +(slice[k] === slice[k + 1]);
    found[within][count[within]++] = data[place + step] - data[place];
  }
  const [across, inside] = found.map((values, which) => values.slice(0, count[which]));
  return { across, within: inside };
}

/** Root mean squares in flat tissue: steps within the slices over steps across them, and the steps within.
 * @type {(volume: Volume, axis: number, flat: Volume) => [number, number]} */
export function streak({ data, shape }, axis, flat) {
  const [step, index] = [strides(shape), AXES.map((k) => indexAlong(shape, k))];
  const [squares, size] = [[0, 0, 0], (/** @type {number} */ k) => Math.sqrt(squares[k] / count)];
  let count = 0;
  for (let place = 0; place < data.length; place++) {
    if (!flat.data[place] || AXES.some((k) => index[k](place) === shape[k] - 1)) continue;
    for (const k of AXES) squares[k] += (data[place + step[k]] - data[place]) ** 2;
    count++;
  }
  const [first, second] = otherAxes(axis).map(size);
  return [(first + second) / 2 / size(axis), (first + second) / 2];
}
