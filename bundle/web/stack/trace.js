/** The trace that measured slices leave in a rebuilt volume, see scripts/stack/trace.py. */
import { nearestIndex } from "./grid.js";
import { lines, strides } from "./volume.js";

/** Mean difference of neighbouring planes across borders of slices, over the mean within slices; where both are flat.
 * @type {(volume: Volume, a: Acquisition, flat: Volume) => number} */
export function stepRatio({ data, shape }, a, flat) {
  const [index, step] = [nearestIndex(a), strides(shape)[a.sliceAxis]];
  const [sum, count] = [[0, 0], [0, 0]]; // across, within
  for (const start of lines(shape, a.sliceAxis)) {
    for (let k = 0, place = start; k + 1 < a.fineCount; k++, place += step) {
      if (!flat.data[place] || !flat.data[place + step]) continue;
      const within = +(index[k] === index[k + 1]);
      sum[within] += Math.abs(data[place + step] - data[place]);
      count[within]++;
    }
  }
  return sum[0] / count[0] / (sum[1] / count[1]);
}
