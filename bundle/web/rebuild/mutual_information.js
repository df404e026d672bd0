/** Mattes mutual information of two volumes under a motion, as ITK computes it (IEEE Trans. Med. Imaging 22:120-128, 2003). */
import constants from "../model/constants.js";
import { random } from "../stack/random.js";
import { clamp, extremes } from "../stack/volume.js";

const { BINS } = constants.registration;
const PADDING = 2; // bins at either end, for the splines
/** @typedef {{places: Float64Array, bins: Uint8Array}} Samples of a volume: mm from the centre that motions turn about, three in a row */

/** Bins of a histogram between a volume's extremes: an intensity's place among them. @type {(least: number, largest: number) => (x: number) => number} */
const binned = (least, largest) => (x) => PADDING + ((x - least) / (largest - least || 1)) * (BINS - 2 * PADDING);
/** @type {(place: number) => number} */
const binOf = (place) => clamp(Math.floor(place), PADDING, BINS - PADDING - 1);

/** A volume between voxels, whose indices are within it, into `out`: value, and its slope along each axis.
 * @type {(volume: Volume, x: number, y: number, z: number, out: Float64Array) => void} */
function linear({ data, shape }, x, y, z, out) {
  const [X, Y, Z] = shape;
  const [i, j, k] = [Math.min(x | 0, X - 2), Math.min(y | 0, Y - 2), Math.min(z | 0, Z - 2)];
  const [u, v, w, at] = [x - i, y - j, z - k, (i * Y + j) * Z + k];
  const [a, b, c, d] = [data[at], data[at + 1], data[at + Z], data[at + Z + 1]];
  const next = at + Y * Z;
  const [e, f, g, h] = [data[next], data[next + 1], data[next + Z], data[next + Z + 1]];
  const [ab, cd, ef, gh] = [a + w * (b - a), c + w * (d - c), e + w * (f - e), g + w * (h - g)];
  const [near, far] = [ab + v * (cd - ab), ef + v * (gh - ef)];
  out[0] = near + u * (far - near);
  out[1] = far - near;
  out[2] = (1 - u) * (cd - ab) + u * (gh - ef);
  out[3] = (1 - u) * ((1 - v) * (b - a) + v * (d - c)) + u * ((1 - v) * (f - e) + v * (h - g));
}

/**
 * Samples at random places, between voxels, where a volume shows the head; at voxels alone two like grids would catch each other.
 * @type {(fixed: Placed, middle: number[], isInside: (place: number[]) => boolean, count: number) => Samples}
 */
export function samplesOf({ volume, affine }, middle, isInside, count) {
  const [next, values, places, out] = [random(1), /** @type {number[]} */ ([]), /** @type {number[]} */ ([]), new Float64Array(4)];
  for (let n = 0; n < count; n++) {
    const index = volume.shape.map((size) => next() * (size - 1));
    const place = affine.map(([a, b, c, d]) => a * index[0] + b * index[1] + c * index[2] + d);
    if (!isInside(place)) continue;
    linear(volume, index[0], index[1], index[2], out);
    values.push(out[0]);
    places.push(place[0] - middle[0], place[1] - middle[1], place[2] - middle[2]);
  }
  const range = extremes({ data: Float32Array.from(values), shape: [values.length, 1, 1] });
  const among = binned(range.least, range.largest);
  return { places: Float64Array.from(places), bins: Uint8Array.from(values, (x) => binOf(among(x))) };
}

/**
 * How the information of samples and a volume grows with a motion.
 * @param {Samples} samples
 * @param {Volume} moving
 * @param {{least: number, largest: number}} range of its intensities.
 * @param {Affine} index from a sample's place to indices of the moving volume.
 * @returns {number[][]} rows of three and one: by the matrix and the shift of `index`; 0 where no sample meets the volume.
 */
export function slopeOf({ places, bins }, moving, { least, largest }, index) {
  const [among, perUnit] = [binned(least, largest), (BINS - 2 * PADDING) / (largest - least || 1)];
  const [[p, q, r], [X, Y, Z]] = [index, moving.shape.map((n) => n - 1)];
  const [joint, own, seen] = [new Float64Array(BINS * BINS), new Float32Array(4 * bins.length), new Uint8Array(bins.length)];
  const [out, weight] = [new Float64Array(4), new Float64Array(4)];
  let count = 0;
  for (let n = 0; n < bins.length; n++) {
    const [a, b, c] = [places[3 * n], places[3 * n + 1], places[3 * n + 2]];
    const x = p[0] * a + p[1] * b + p[2] * c + p[3];
    const y = q[0] * a + q[1] * b + q[2] * c + q[3];
    const z = r[0] * a + r[1] * b + r[2] * c + r[3];
    if (!(x >= 0 && y >= 0 && z >= 0 && x <= X && y <= Y && z <= Z)) continue;
    linear(moving, x, y, z, out);
    seen[n] = 1;
    count++;
    own.set(out, 4 * n);
    const place = among(out[0]);
    const [bin, t] = [binOf(place), place - binOf(place)];
    spline(t, weight);
    for (let k = 0; k < 4; k++) joint[bins[n] * BINS + bin - 1 + k] += weight[k];
  }
  const worth = logarithms(joint, count);
  const slope = [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]];
  for (let n = 0; n < bins.length; n++) {
    if (!seen[n]) continue;
    const place = among(own[4 * n]);
    const bin = binOf(place);
    splineSlope(place - bin, weight);
    let gain = 0;
    for (let k = 0; k < 4; k++) gain += weight[k] * worth[bins[n] * BINS + bin - 1 + k];
    gain *= perUnit / count;
    for (let axis = 0; axis < 3; axis++) {
      const [by, row] = [gain * own[4 * n + 1 + axis], slope[axis]];
      row[0] += by * places[3 * n];
      row[1] += by * places[3 * n + 1];
      row[2] += by * places[3 * n + 2];
      row[3] += by;
    }
  }
  return slope;
}

/** The information that each pair of intensities of a joint histogram adds. @type {(joint: Float64Array, count: number) => Float64Array} */
function logarithms(joint, count) {
  const marginal = new Float64Array(BINS);
  joint.forEach((x, k) => (marginal[k % BINS] += x));
  return joint.map((x, k) => (x > 1e-12 * count ? Math.log(x / marginal[k % BINS]) : 0));
}

/** Cubic B-splines of the four bins about a place, `t` behind the second one. @type {(t: number, out: Float64Array) => void} */
function spline(t, out) {
  const u = 1 - t;
  out[0] = u ** 3 / 6;
  out[1] = 2 / 3 - (t * t * (2 - t)) / 2;
  out[2] = 2 / 3 - (u * u * (2 - u)) / 2;
  out[3] = t ** 3 / 6;
}

/** Their slopes. @type {(t: number, out: Float64Array) => void} */
function splineSlope(t, out) {
  const u = 1 - t;
  out[0] = -(u * u) / 2;
  out[1] = (3 * t * t) / 2 - 2 * t;
  out[2] = 2 * u - (3 * u * u) / 2;
  out[3] = (t * t) / 2;
}
