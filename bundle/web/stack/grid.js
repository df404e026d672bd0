/** The geometry of a stack of slices, see scripts/stack/grid.py and docs/geometry.md; lengths in mm. */
import { mat3 } from "gl-matrix";
import constants from "../model/constants.js";
import { f, g, refuse } from "../errors.js";
import { AXES, clamp } from "./volume.js";

/** Lengths of the voxel edges. @type {(affine: Affine) => number[]} */
export const voxelSpacing = (affine) => AXES.map((c) => Math.hypot(affine[0][c], affine[1][c], affine[2][c]));

/** The affine of voxels of 1 mm. @type {(affine: Affine) => Affine} */
function directions(affine) {
  const edges = voxelSpacing(affine);
  return AXES.map((row) => AXES.map((c) => affine[row][c] / edges[c]));
}

/** Largest deviation of two voxel axes from a right angle, in degrees. @type {(affine: Affine) => number} */
export function shearAngle(affine) {
  const unit = directions(affine);
  const cosines = [[0, 1], [0, 2], [1, 2]].map(([a, b]) => Math.abs(AXES.reduce((s, r) => s + unit[r][a] * unit[r][b], 0)));
  return (Math.asin(Math.min(Math.max(...cosines), 1)) * 180) / Math.PI;
}

/** @type {(affine: Affine) => number} */
export const determinant = (affine) => mat3.determinant(/** @type {any} */ (affine.slice(0, 3).flatMap((row) => row.slice(0, 3))));

/** Whether an affine brings voxels onto a plane, or nowhere. @type {(affine: Affine) => boolean} */
export const isFlat = (affine) => !(Math.abs(determinant(affine)) >= 1e-9);

/** Refuses an affine that is no orthogonal grid of a head. @type {(affine: Affine, name: string) => void} */
export function checkOrthogonal(affine, name) {
  const [{ MAX_SHEAR, MAX_SPACING }, edges, shear] = [constants.grid, voxelSpacing(affine), shearAngle(affine)];
  refuse(!affine.flat().every(Number.isFinite), `${name} has NaN or infinity in its affine: expected numbers. Mend its header.`);
  refuse(
    !edges.every((edge) => edge > 0 && edge <= MAX_SPACING),
    `${name} has voxel edges of ${edges.map((edge) => g(edge, 4)).join(", ")} mm: expected positive lengths of at most ` +
      `${f(MAX_SPACING, 1)} mm. Mend its header.`,
  );
  refuse(
    shear > MAX_SHEAR,
    `${name}: affine is sheared, ${f(shear, 2)} degrees off orthogonal, at most ${MAX_SHEAR} is supported. ` +
      "Resample to an orthogonal grid first.",
  );
}

/**
 * The array axes that become X, Y and Z of the nearest RAS+ order, and those of X, Y and Z that are then flipped.
 * @type {(affine: Affine) => {axes: number[], flipped: number[]}}
 */
export function canonical(affine) {
  const [unit, axes] = [directions(affine), [-1, -1, -1]];
  const strength = AXES.map((c) => Math.max(...AXES.map((row) => Math.abs(unit[row][c]))));
  for (const c of [...AXES].sort((a, b) => strength[b] - strength[a])) {
    const free = AXES.filter((row) => axes[row] < 0);
    axes[free.reduce((a, b) => (Math.abs(unit[b][c]) > Math.abs(unit[a][c]) ? b : a))] = c;
  }
  return { axes, flipped: AXES.filter((row) => unit[row][axes[row]] < 0) };
}

/** The name of slices along an array axis. @type {(affine: Affine, axis: number) => string} */
export const planeName = (affine, axis) => constants.grid.PLANES[canonical(affine).axes.indexOf(axis)];

/** The axis of the largest spacing, the last of equals. @type {(spacing: number[]) => number} */
export function largestAxis(spacing) {
  const edges = spacing.map((edge) => Math.round(edge * 1e4)); // headers round
  return edges.lastIndexOf(Math.max(...edges));
}

/** Number of fine slices that cover the thick stack; halves go to the even one, as Python rounds.
 * @type {(count: number, spacing: number, target: number) => number} */
export function fineCount(count, spacing, target) {
  const exact = (count * spacing) / target;
  return Math.max(1, exact % 2 === 0.5 ? Math.floor(exact) : Math.round(exact));
}

/** Number of thick slices that cover the fine grid. @type {(count: number, edge: number, spacing: number) => number} */
export const thickCount = (count, edge, spacing) => Math.max(1, Math.ceil((count * edge) / spacing - 1e-6));

/** Where the slices of one grid lie, in index units of another grid with the same centre.
 * @type {(count: number, spacing: number, otherCount: number, otherSpacing: number) => number[]} */
export function centredPositions(count, spacing, otherCount, otherSpacing) {
  return Array.from({ length: count }, (_, k) => (k - (count - 1) / 2) * (spacing / otherSpacing) + (otherCount - 1) / 2);
}

/** Where the fine slices lie among the thick ones. @type {(a: Acquisition) => number[]} */
export const fineRows = (a) => centredPositions(a.fineCount, a.targetSpacing, a.sliceCount, a.sliceSpacing);

/** Where the thick slices lie among the fine ones. @type {(a: Acquisition) => number[]} */
export const sliceRows = (a) => centredPositions(a.sliceCount, a.sliceSpacing, a.fineCount, a.targetSpacing);

/** For each fine slice, the thick slice that contains its centre (Eq. S3); on a border the one nearer the middle.
 * @type {(a: Acquisition) => number[]} */
export function nearestIndex(a) {
  const middle = (a.sliceCount - 1) / 2;
  return fineRows(a).map((row) => {
    const inner = middle + Math.sign(row - middle) * Math.max(Math.abs(row - middle) - 1e-6, 0);
    return clamp(Math.floor(inner + 0.5), 0, a.sliceCount - 1);
  });
}

/** Affine of the fine grid: same axes and same centre. @type {(affine: Affine, a: Acquisition) => Affine} */
export function fineAffine(affine, a) {
  const [axis, share, [first]] = [a.sliceAxis, a.targetSpacing / a.sliceSpacing, fineRows(a)];
  return affine.map((row) => row.with(axis, row[axis] * share).with(3, row[3] + row[axis] * first));
}
