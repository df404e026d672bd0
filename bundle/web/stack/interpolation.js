/** Thick slices on the fine grid, see scripts/stack/interpolation.py. */
import { inverse, Matrix } from "ml-matrix";
import { fineCount, fineRows, nearestIndex } from "./grid.js";
import { along, clamp } from "./volume.js";

/** By the nearest slice (Eq. S3). @type {(thick: Volume, a: Acquisition) => Volume} */
export const nearest = (thick, a) => along(nearestIndex(a).map((k) => Array(a.sliceCount).fill(0).with(k, 1)), thick, a.sliceAxis);

/** By a not-a-knot cubic spline through the slices' centres, constant beyond them. @type {(thick: Volume, a: Acquisition) => Volume} */
export const cubic = (thick, a) => along(cubicMatrix(a), thick, a.sliceAxis);

/** @type {(a: Acquisition) => number[][]} */
export const cubicMatrix = (a) => splineMatrix(a.sliceCount, fineRows(a).map((row) => clamp(row, 0, a.sliceCount - 1)));

/** Samples of `n` pixels' spline `width` pixels apart, as a matrix: those that a scanner interpolated from. @type {(n: number, width: number) => number[][]} */
export function wider(n, width) {
  const count = fineCount(n, 1, width);
  const first = (n - 1 - (count - 1) * width) / 2;
  return splineMatrix(n, Array.from({ length: count }, (_, k) => first + k * width));
}

/** The spline through `n` slices at places among them, as a matrix. Three slices have a parabola. @type {(n: number, places: number[]) => number[][]} */
function splineMatrix(n, places) {
  const [conditions, values] = [Matrix.zeros(n, n), Matrix.zeros(n, n)]; // of the second derivatives, in slices
  for (let i = 0; i < n; i++) {
    const inner = clamp(i, 1, n - 2);
    const row = i === inner ? [1, 4, 1] : n > 3 ? [1, -2, 1] : i ? [0, -1, 1] : [1, -1, 0];
    row.forEach((x, k) => conditions.set(i, inner - 1 + k, x));
    if (i === inner) [6, -12, 6].forEach((x, k) => values.set(i, inner - 1 + k, x));
  }
  const bend = inverse(conditions).mmul(values);
  return places.map((place) => {
    const i = clamp(Math.floor(place), 0, n - 2);
    const [u, w] = [place - i, 1 - (place - i)];
    const row = Array.from({ length: n }, (_, j) => ((w ** 3 - w) * bend.get(i, j) + (u ** 3 - u) * bend.get(i + 1, j)) / 6);
    return row.with(i, row[i] + w).with(i + 1, row[i + 1] + u);
  });
}
