/** Where the head lay in one volume and in another, see scripts/rebuild/registration.py: the search that SimpleITK does there.
 *  A motion is an affine: it takes a point of the head from the fixed volume's world, in mm, to where it lies in the moving one's. */
import { inverse, Matrix } from "ml-matrix";
import constants from "../model/constants.js";
import { fineAffine, fineCount, voxelSpacing } from "../stack/grid.js";
import { band } from "../stack/profile.js";
import { smooth } from "../stack/tissue.js";
import { AXES, along, clamp, extremes, zeros } from "../stack/volume.js";
import { samplesOf, slopeOf } from "./mutual_information.js";

const { EDGE, FIRST_STEPS, STEPS, RELAXATION, LEAST_STEP } = constants.registration;
/** @typedef {[number, number[]][]} Levels how many times coarser than its cubes -> smoothing in mm, share of the voxels */
const [FROM_AFAR, NEARBY] = /** @type {Levels[]} */ (/** @type {unknown} */ ([constants.registration.FROM_AFAR, constants.registration.NEARBY]));
const LEAST_SLOPE = 1e-4; // as ITK has it
const PAD = 12; // voxels, beyond which a spline feels neither a voxel nor a border

/** Millimetres along each axis of an affine that all stacks measured; 0 where all are sharp. @type {(affine: Affine, stacks: [Affine, Acquisition][]) => number[]} */
export function resolution(affine, stacks) {
  const apart = [0, 0, 0];
  for (const [other, { sliceAxis, sliceSpacing }] of stacks) {
    const edges = voxelSpacing(affine);
    const near = edges.map((edge, k) => Math.abs(AXES.reduce((sum, row) => sum + affine[row][k] * other[row][sliceAxis], 0)) / edge);
    const axis = near.indexOf(Math.max(...near));
    apart[axis] = Math.max(apart[axis], sliceSpacing);
  }
  return apart;
}

/** @type {(rows: Affine) => Matrix} */
const square = (rows) => new Matrix([...rows, [0, 0, 0, 1]]);

/** The product of two affines, the other one first. @type {(one: Affine, other: Affine) => Affine} */
export const after = (one, other) => square(one).mmul(square(other)).to2DArray().slice(0, 3);

/** @type {(affine: Affine) => Affine} */
export const inverted = (affine) => inverse(square(affine)).to2DArray().slice(0, 3);

/** @type {Affine} */
export const STILL = AXES.map((row) => AXES.map((column) => +(row === column)).concat(0));

/** The motion between two volumes of one head: from the scanner's coordinates, then made precise on finer cubes.
 * @type {(fixed: Placed, moving: Placed, head: Volume) => Affine} */
export function register(fixed, moving, head) {
  const [there, [X, Y, Z]] = [inverted(fixed.affine), head.shape];
  const isHead = (/** @type {number[]} */ [x, y, z]) => {
    const [i, j, k] = there.map(([a, b, c, d]) => Math.round(a * x + b * y + c * z + d));
    return i >= 0 && j >= 0 && k >= 0 && i < X && j < Y && k < Z && head.data[(i * Y + j) * Z + k] > 0;
  };
  const [middle, edge] = [centre(fixed), Math.max(EDGE, 0.75 * Math.min(...voxelSpacing(fixed.affine)))];
  let pose = [0, 0, 0, 0, 0, 0];
  for (const { levels, cube, step } of [{ levels: FROM_AFAR, cube: 2 * edge, step: FIRST_STEPS[0] }, { levels: NEARBY, cube: edge, step: FIRST_STEPS[1] }]) {
    const [still, moved] = [fixed, moving].map((one) => onCubes(one, cube));
    for (const [coarser, [sd, share]] of levels) {
      const [own, its] = [still, moved].map((one) => ({ ...one, volume: smooth(one.volume, [sd / cube, sd / cube, sd / cube], "repeat") }));
      const count = Math.round((share * own.volume.data.length) / coarser ** 3);
      const samples = samplesOf(own, middle, isHead, count);
      const [back, range] = [inverted(its.affine), extremes(its.volume)];
      const slope = (/** @type {Affine} */ motion) => {
        const by = slopeOf(samples, its.volume, range, after(back, motion));
        return AXES.map((row) => [0, 1, 2, 3].map((k) => AXES.reduce((sum, axis) => sum + back[axis][row] * by[axis][k], 0)));
      };
      if (samples.bins.length) pose = climbed(pose, step, own, middle, slope);
    }
  }
  return after(motionOf(pose, middle), [1, 1, 1].map((one, k) => STILL[k].with(3, -middle[k]).with(k, one)));
}

/** How far a motion turns, in degrees, and how far it moves a point, in mm. @type {(motion: Affine, point: number[]) => [number, number]} */
export function angleAndShift(motion, point) {
  const cosine = (motion[0][0] + motion[1][1] + motion[2][2] - 1) / 2;
  const sine = Math.hypot(motion[2][1] - motion[1][2], motion[0][2] - motion[2][0], motion[1][0] - motion[0][1]) / 2;
  const moved = motion.map(([a, b, c, d], k) => a * point[0] + b * point[1] + c * point[2] + d - point[k]);
  return [(Math.atan2(sine, cosine) * 180) / Math.PI, Math.hypot(...moved)];
}

/** The middle of a field of view, in mm. @type {(from: Placed) => number[]} */
export const centre = ({ volume: { shape }, affine }) =>
  affine.map((row) => row[3] + AXES.reduce((sum, k) => sum + (row[k] * (shape[k] - 1)) / 2, 0));

/** The rotation by Euler's angles as ITK counts them, z after x after y. @type {(angles: number[]) => number[][]} */
function rotation([a, b, c]) {
  const turn = (/** @type {number} */ angle, /** @type {number} */ one, /** @type {number} */ other) => {
    const made = Matrix.eye(3);
    made.set(one, one, Math.cos(angle)).set(other, other, Math.cos(angle));
    return made.set(one, other, -Math.sin(angle)).set(other, one, Math.sin(angle));
  };
  return turn(c, 0, 1).mmul(turn(a, 1, 2)).mmul(turn(b, 2, 0)).to2DArray();
}

/** From mm beside the centre to the other world. @type {(pose: number[], middle: number[]) => Affine} */
const motionOf = (pose, middle) => rotation(pose).map((row, k) => [...row, pose[3 + k] + middle[k]]);

/** A pose, three angles and a shift in mm, by steps of one length uphill. Each turn back shortens them.
 * @type {(pose: number[], step: number, own: Placed, middle: number[], slope: (motion: Affine) => number[][]) => number[]} */
function climbed(pose, step, { volume: { shape }, affine }, middle, slope) {
  const corners = [0, 1, 2, 3, 4, 5, 6, 7].map((n) => affine.map((row, i) => AXES.reduce((sum, k) => sum + row[k] * ((n >> k) & 1) * (shape[k] - 1), row[3]) - middle[i]));
  const turned = (/** @type {number[]} */ at) => // derivatives of the rotation by its angles
    AXES.map((k) => rotation(at.with(k, at[k] + 5e-4)).map((row, i) => row.map((x, j) => (x - rotation(at.with(k, at[k] - 5e-4))[i][j]) * 1e3)));
  const moved = (/** @type {number[][]} */ by, /** @type {number[]} */ p) => Math.hypot(...by.map((row) => row.reduce((sum, x, k) => sum + x * p[k], 0)));
  const scales = [...turned(pose).map((by) => Math.max(...corners.map((p) => moved(by, p))) ** 2), 1, 1, 1];
  let former = Array(6).fill(0);
  for (let n = 0; n < STEPS; n++) {
    const by = slope(motionOf(pose, middle));
    const turns = turned(pose).map((derivative) => derivative.reduce((sum, row, i) => row.reduce((all, x, j) => all + x * by[i][j], sum), 0));
    const uphill = [...turns, ...by.map((row) => row[3])].map((x, k) => x / scales[k]);
    const steepness = Math.hypot(...uphill);
    if (!(steepness >= LEAST_SLOPE)) break;
    if (uphill.reduce((sum, x, k) => sum + x * former[k], 0) < 0) step *= RELAXATION;
    if (step < LEAST_STEP) break;
    pose = pose.map((x, k) => x + (step * uphill[k]) / steepness);
    former = uphill;
  }
  return pose;
}

/** A volume, smoothed, on cubes with the same axes and centre. @type {(from: Placed, cube: number) => Placed} */
export function onCubes({ volume, affine }, cube) {
  const edges = voxelSpacing(affine);
  const counts = edges.map((edge, k) => fineCount(volume.shape[k], edge, cube));
  const coarse = edges.reduce((rows, sliceSpacing, k) => {
    const one = { sliceAxis: k, sliceCount: volume.shape[k], sliceSpacing, fineCount: counts[k], targetSpacing: cube };
    return fineAffine(rows, /** @type {Acquisition} */ (one));
  }, affine);
  const blurred = smooth(volume, edges.map((edge) => (0.5 * cube) / edge), "repeat");
  return { volume: resample({ volume: blurred, affine }, coarse, counts).values, affine: coarse };
}

/** Coefficients of cubic B-splines through voxels, the outermost of which are repeated. @type {(volume: Volume) => Volume} */
function coefficients(volume) {
  const filter = Array.from({ length: 2 * PAD + 1 }, (_, k) => Math.sqrt(3) * (Math.sqrt(3) - 2) ** Math.abs(k - PAD));
  return AXES.reduce((v, axis) => along(band(filter, v.shape[axis], "repeat", PAD), v, axis), volume);
}

/** A volume on another grid, by linear interpolation or cubic splines, and how far it was seen there, 0 to 1.
 * @type {(from: Placed, affine: Affine, shape: number[], spline?: boolean) => {values: Volume, seen: Volume}} */
export function resample({ volume, affine: own }, affine, shape, spline = false) {
  const index = after(inverted(own), affine);
  const [source, pad, taps] = spline ? [coefficients(volume), PAD, 4] : [volume, 0, 2];
  const [values, seen, weights, first] = [zeros(shape), zeros(shape), new Float64Array(3 * taps), new Int32Array(3)];
  const [[X, Y, Z], [, H, W], counts, sizes] = [shape, source.shape, volume.shape, source.shape];
  for (let x = 0, n = 0; x < X; x++) {
    for (let y = 0; y < Y; y++) {
      for (let z = 0; z < Z; z++, n++) {
        let sees = 1;
        for (let axis = 0; axis < 3; axis++) {
          const row = index[axis];
          const at = row[0] * x + row[1] * y + row[2] * z + row[3];
          sees *= clamp(Math.min(at + 1, counts[axis] - at), 0, 1); // a ramp of a voxel at the border
          const place = clamp(at, -pad / 2, counts[axis] - 1 + pad / 2) + pad;
          const lower = Math.min(Math.floor(place), sizes[axis] - 2);
          first[axis] = spline ? lower - 1 : lower;
          between(place - lower, weights, axis * taps, spline);
        }
        let sum = 0;
        for (let i = 0; i < taps; i++) {
          for (let j = 0; j < taps; j++) {
            const at = ((first[0] + i) * H + first[1] + j) * W + first[2];
            let line = 0;
            for (let l = 0; l < taps; l++) line += weights[2 * taps + l] * source.data[at + l];
            sum += weights[i] * weights[taps + j] * line;
          }
        }
        values.data[n] = sum;
        seen.data[n] = sees;
      }
    }
  }
  return { values, seen };
}

/** Weights of neighbours, `t` behind the lower one, into `out`: linear ones, or of cubic B-splines.
 * @type {(t: number, out: Float64Array, from: number, isSpline: boolean) => void} */
function between(t, out, from, isSpline) {
  const u = 1 - t;
  if (!isSpline) {
    out[from] = u;
    out[from + 1] = t;
    return;
  }
  out[from] = u ** 3 / 6;
  out[from + 1] = 2 / 3 - (t * t * (2 - t)) / 2;
  out[from + 2] = 2 / 3 - (u * u * (2 - u)) / 2;
  out[from + 3] = t ** 3 / 6;
}
