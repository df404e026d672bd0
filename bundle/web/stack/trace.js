/** The trace that measured slices leave in a rebuilt volume, see scripts/stack/trace.py. */
import { nearestIndex } from "./grid.js";
import { indexAlong, strides } from "./volume.js";

/** Mean difference of neighbouring planes across borders of slices, over the mean within slices; where both are flat.
 * @type {(volume: Volume, a: Acquisition, flat: Volume) => number} */
export function stepRatio({ data, shape }, a, flat) {
  const [slice, step, plane] = [nearestIndex(a), strides(shape)[a.sliceAxis], indexAlong(shape, a.sliceAxis)];
  const [sum, count] = [[0, 0], [0, 0]]; // across, within
  for (let place = 0; place < data.length; place++) {
    const k = plane(place);
    if (k + 1 === a.fineCount || !flat.data[place] || !flat.data[place + step]) continue;
    const within = +(slice[k] === slice[k + 1]);
    sum[within] += Math.abs(data[place + step] - data[place]);
    count[within]++;
  }
  return sum[0] / count[0] / (sum[1] / count[1]);
}
