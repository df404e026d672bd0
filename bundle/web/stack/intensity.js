/** Which intensities of a scan are tissue, see scripts/stack/intensity.py. */
import constants from "../model/constants.js";
import { refuse } from "../errors.js";
import { AXES, indexAlong, map, strides } from "./volume.js";

const { UPPER_PERCENTILE, LOWER_PERCENTILE, NEGATIVE, DIMMEST, BRIGHTEST, NEAR, CROWD, DEAD, PADDED, FAR, NOTHING, MINORITY, RELATED, VARIED, TAIL, HOT, BROAD, LOUDEST, SKIRT, FADED, HEM } =
  constants.intensity;

/** How many of the ordered values are less than `x`, or, with `equals`, not greater.
 * @type {(ordered: ArrayLike<number>, x: number, equals?: boolean) => number} */
export function below(ordered, x, equals = false) {
  let [first, end] = [0, ordered.length];
  while (first < end) {
    const middle = (first + end) >> 1;
    if (ordered[middle] < x || (equals && ordered[middle] === x)) first = middle + 1;
    else end = middle;
  }
  return first;
}

/** The number below which `percent` of ordered values lie. @type {(o: ArrayLike<number>, percent: number) => number} */
export function percentile(ordered, percent) {
  const place = ((ordered.length - 1) * percent) / 100;
  const k = Math.floor(place);
  return ordered[k] + (place - k) * ((ordered[k + 1] ?? ordered[k]) - ordered[k]);
}

/** The tissue of a volume. @type {(volume: Volume, range: IntensityRange) => Volume} */
export function tissueOf(volume, { low, ceiling }) {
  const [typical, masked] = [low + (ceiling - low) / BRIGHTEST, isMasked(volume, low)];
  return map(volume, (x) => (masked && x === 0 ? low : x <= ceiling ? Math.max(x, low) : typical));
}

/** How far a volume lies above the floor, from 0 to `LOUDEST` of the extent: squares and correlations are of it.
 * @type {(volume: Volume, range: {low: number, high: number}) => Volume} */
export function signalOf(volume, { low, high }) {
  const masked = isMasked(volume, low);
  return map(volume, (x) => (masked && x === 0 ? 0 : Math.min(Math.max(x - low, 0), LOUDEST * (high - low))));
}

/** Whether a mask left zeros in a standardised scan, where 0 is the intensity of tissue. @type {(volume: Volume, low: number) => boolean} */
export const isMasked = ({ data }, low) =>
  low < 0 && data.reduce((count, x) => count + +(x === 0), 0) > CROWD * data.length;

/** Intensities in [-1, 1]. @type {(volume: Volume, range: IntensityRange) => Volume} */
export const toUnit = (volume, { low, high }) => map(volume, (x) => (x - low) * (2 / (high - low)) - 1);

/** Undoes `toUnit`. @type {(volume: Volume, range: IntensityRange) => Volume} */
export const toScan = (volume, { low, high }) => map(volume, (x) => (x + 1) * ((high - low) / 2) + low);

/** @type {WeakMap<Volume, IntensityRange>} sorting takes long */
const known = new WeakMap();

/** Refuses voxels that are no numbers. @type {(volume: Volume, name: string) => void} */
export function checkFinite({ data }, name) {
  const broken = data.reduce((count, x) => count + +!Number.isFinite(x), 0);
  refuse(broken > 0, `${name} has ${broken} NaN or infinite voxels: expected none. Mask or mend them first.`);
}

/** The range of a scan's tissue: from its floor to a percentile of the head. @type {(volume: Volume) => IntensityRange} */
export function intensityRange(volume) {
  const range = known.get(volume) ?? rangeOf(volume);
  known.set(volume, range);
  return range;
}

/** @type {(volume: Volume) => IntensityRange} */
function rangeOf(volume) {
  const ordered = Float64Array.from(volume.data).sort();
  const low = floor(volume, ordered);
  const [clipped, whole] = [true, false].map((isClipped) => () => typicalIntensity(volume, ordered, low, isClipped));
  const within = (/** @type {number} */ typical) => [DIMMEST, BRIGHTEST].map((times) => below(ordered, low + times * typical, true));
  const hotShare = (/** @type {number[]} */ [first, end]) => (ordered.length - end) / (end - first);
  let typical = clipped();
  if (typical && hotShare(within(typical)) >= BROAD) typical = whole();
  if (typical === 0) return { low, high: low + 1, ceiling: low + 1 }; // constant
  const [[first, end], share] = [within(typical), hotShare(within(typical))];
  const head = HOT < share && share < BROAD ? withoutSkirt(volume, low, typical) : ordered.subarray(first, end);
  return { low, high: percentile(head, UPPER_PERCENTILE), ceiling: low + BRIGHTEST * typical };
}

/** The head's intensities in their order, without what is near hot spots and fades from them.
 * @type {(volume: Volume, low: number, typical: number) => Float64Array} */
function withoutSkirt({ data, shape }, low, typical) {
  const [step, index] = [strides(shape), AXES.map((axis) => indexAlong(shape, axis))];
  const skirt = Uint8Array.from(data, (x) => +(x > low + BRIGHTEST * typical));
  let border = [...skirt.keys()].filter((k) => skirt[k]);
  for (let layer = 0; layer < SKIRT + HEM; layer++) {
    if (layer === SKIRT) border = [...skirt.keys()].filter((k) => skirt[k]);
    const beside = border.flatMap((k) =>
      AXES.flatMap((a) => [...(index[a](k) > 0 ? [k - step[a]] : []), ...(index[a](k) < shape[a] - 1 ? [k + step[a]] : [])]),
    );
    border = [...new Set(beside)].filter((k) => !skirt[k] && (layer >= SKIRT || data[k] > low + FADED * typical));
    for (const k of border) skirt[k] = 1;
  }
  const isHead = (/** @type {number} */ x) => x > low + DIMMEST * typical && x <= low + BRIGHTEST * typical;
  return Float64Array.from(data.filter((x, k) => !skirt[k] && isHead(x))).sort();
}

/** The volume with the floor of the rest where it is NaN. @type {(volume: Volume) => Volume} */
export function withoutSignal(volume) {
  const rest = volume.data.filter((x) => !Number.isNaN(x));
  const { low } = intensityRange({ data: rest, shape: [1, 1, rest.length] });
  return map(volume, (x) => (Number.isNaN(x) ? low : x));
}

/** Whether voxels of signed numbers of 16 bits were unsigned ones: most steps through 0 are longer than 2^15.
 * @type {(data: Float32Array, shape: number[]) => boolean} */
export function isWrapped(data, shape) {
  let [through, far] = [0, 0];
  const [first, second, third] = strides(shape).map((step, axis) => [0, step * (shape[axis] - 1)]);
  const corners = first.flatMap((a) => second.flatMap((b) => third.map((c) => data[a + b + c])));
  if (Math.min(...corners) < 0) return false; // air is not negative
  const others = data.filter((x) => x >= 0).sort();
  if (percentile(others, 10) > 2 ** 14) return false; // and dark
  strides(shape).forEach((step, axis) => {
    const index = indexAlong(shape, axis);
    for (let k = 0; k < data.length; k++) {
      if (index(k) + 1 === shape[axis] || data[k] < 0 === data[k + step] < 0) continue;
      through++;
      far += +(Math.abs(data[k] - data[k + step]) > 2 ** 15);
    }
  });
  return 2 * far > through;
}

/** The intensity of no signal: 0, but for standardised and raised scans. Padding is none. @type {(v: Volume, ordered: Float64Array) => number} */
function floor(volume, ordered) {
  const rest = ordered.subarray(below(ordered, ordered[0], true));
  if (ordered[0] < 0 && rest.length && ordered.length - rest.length > PADDED * ordered.length) {
    const above = floor(volume, rest);
    const typical = typicalIntensity(volume, rest, above);
    const near = below(rest, above + NEAR * typical, true) - below(rest, above - NEAR * typical, true);
    const besideAir = cornersHold(volume, ordered[0]) && near > CROWD * rest.length;
    const least = besideAir ? (above < 0 ? NEAR : 0) : FAR; // standardised air has the masked one beside it
    if (typical > 0 && above - ordered[0] > least * typical) return above;
  }
  const filled = ordered.filter((x) => x !== 0); // a mask leaves zeros
  if (below(filled, 0) > NEGATIVE * filled.length) return percentile(filled, LOWER_PERCENTILE);
  const others = ordered[Math.trunc(DEAD * ordered.length)];
  if (others <= 0) return 0;
  const margin = NEAR * typicalIntensity(volume, ordered, others);
  const darkest = ordered[0] < others - margin ? others : ordered[0]; // dead voxels are no floor
  return darkest > 0 && below(ordered, darkest + margin, true) > CROWD * ordered.length ? darkest : 0;
}

/** Whether a corner of the field of view holds a value. @type {(volume: Volume, value: number) => boolean} */
const cornersHold = ({ data, shape: [X, Y, Z] }, value) =>
  [0, X - 1].some((x) => [0, Y - 1].some((y) => [0, Z - 1].some((z) => data[(x * Y + y) * Z + z] === value)));

/** The head's median intensity above `low`; 0 if nothing is brighter. @type {(v: Volume, o: Float64Array, low: number, withoutTail?: boolean) => number} */
function typicalIntensity(volume, ordered, low, withoutTail = false) {
  let sum = 0;
  const signal = ordered.map((x) => x - low);
  const strength = signal.map((x) => (sum += x > 0 ? x * x * x * x : 0)); // air is weak, however much there is
  for (let end = signal.length; end && strength[end - 1] > 0; ) {
    const half = signal[below(strength.subarray(0, end), strength[end - 1] / 2)];
    const [start, first] = [NOTHING, DIMMEST].map((share) => below(signal.subarray(0, end), share * half, true));
    const many = end - first > MINORITY * (end - start) && (first === start || signal[first] < signal[end - 1]);
    if (many || isNoise(volume, low, signal[start], signal[first - 1], withoutTail)) {
      return percentile(signal.subarray(first, end), 50);
    }
    end = first;
  }
  return 0;
}

/** Whether voxels between two intensities vary much, and say little of those two voxels away.
 * @type {(volume: Volume, low: number, dimmest: number, brightest: number, withoutTail: boolean) => boolean} */
function isNoise({ data, shape }, low, dimmest, brightest, withoutTail) {
  const inside = Uint8Array.from(data, (x) => +(x - low >= dimmest && x - low <= brightest));
  const ordered = Float64Array.from(data.filter((_, k) => inside[k])).sort();
  const { mean, sd } = moments(ordered.map((x) => x - low));
  const most = percentile(ordered, TAIL);
  const clipped = (/** @type {number} */ k) => Math.min(data[k], most);
  return sd >= VARIED * mean && AXES.every((axis) => {
    const [index, aside] = [indexAlong(shape, axis), 2 * strides(shape)[axis]];
    const here = [...data.keys()].filter((k) => inside[k] && inside[k + aside] && index(k) + 2 < shape[axis]);
    const related = [(/** @type {number} */ k) => data[k], ...(withoutTail ? [clipped] : [])].map((of) => correlation(here.map(of), here.map((k) => of(k + aside))));
    return here.length <= 2 || Math.max(...related) <= RELATED;
  });
}

/** @type {(values: ArrayLike<number>) => {mean: number, sd: number}} */
function moments(values) {
  let [sum, squares] = [0, 0];
  for (let k = 0; k < values.length; k++) sum += values[k];
  const mean = sum / values.length;
  for (let k = 0; k < values.length; k++) squares += (values[k] - mean) ** 2;
  return { mean, sd: Math.sqrt(squares / values.length) };
}

/** Pearson's; 0 where one is constant. @type {(one: ArrayLike<number>, other: ArrayLike<number>) => number} */
export function correlation(one, other) {
  const [a, b] = [moments(one), moments(other)];
  let sum = 0;
  for (let k = 0; k < one.length; k++) sum += (one[k] - a.mean) * (other[k] - b.mean);
  return a.sd && b.sd ? sum / one.length / (a.sd * b.sd) : 0;
}
