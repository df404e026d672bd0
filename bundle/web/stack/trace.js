/** The trace that measured slices leave in a rebuilt volume, see scripts/stack/trace.py. */
import constants from "../model/constants.js";
import { fineRows } from "./grid.js";
import { AXES, indexAlong, otherAxes, strides } from "./volume.js";

const { ROUNDED } = constants.trace;

/** How far the middle of neighbouring planes lies from a border of two slices, in planes. @type {(a: Acquisition) => number[]} */
export function borderDistance(a) {
  const rows = fineRows(a);
  return rows.slice(1).map((row, k) => {
    const middle = (row + rows[k]) / 2 + 0.5; // in slices, from the beginning of the first
    const border = Math.min(Math.max(Math.round(middle), 1), a.sliceCount - 1);
    return a.sliceCount < 2 ? Infinity : (Math.abs(middle - border) * a.sliceSpacing) / a.targetSpacing;
  });
}

/** Differences of neighbouring planes in flat tissue: across borders of slices, and within slices.
 * @type {(volume: Volume, a: Acquisition, flat: Volume) => {across: Float32Array, within: Float32Array}} */
export function steps({ data, shape }, a, flat) {
  const [distance, step, plane] = [borderDistance(a), strides(shape)[a.sliceAxis], indexAlong(shape, a.sliceAxis)];
  const nearest = Math.min(1, Math.max(0, ...distance)) - ROUNDED;
  const [found, count] = [[new Float32Array(data.length), new Float32Array(data.length)], [0, 0]]; // across, within
  for (let place = 0; place < data.length; place++) {
    const k = plane(place);
    if (k + 1 === a.fineCount || !flat.data[place] || !flat.data[place + step]) continue;
    const within = +(distance[k] >= nearest);
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
