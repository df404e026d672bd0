/** Thick slices on the fine grid, see scripts/stack/interpolation.py. */
import { inverse, Matrix } from "ml-matrix";
import { nearestIndex, sliceRows } from "./grid.js";
import { along, mapLines } from "./volume.js";

/** By the nearest slice (Eq. S3). @type {(thick: Volume, a: Acquisition) => Volume} */
export function nearest(thick, a) {
  const index = nearestIndex(a);
  return mapLines(thick, a.sliceAxis, a.fineCount, (line, out) => index.forEach((k, row) => (out[row] = line[k])));
}

/** By a not-a-knot cubic spline through the slices' centres, constant beyond them. @type {(thick: Volume, a: Acquisition) => Volume} */
export const cubic = (thick, a) => along(splineMatrix(a), thick, a.sliceAxis);

/** The spline as a matrix `(fineCount, sliceCount)`. Three slices have a parabola. @type {(a: Acquisition) => number[][]} */
function splineMatrix(a) {
  const [n, rows] = [a.sliceCount, sliceRows(a)];
  const [conditions, values] = [Matrix.zeros(n, n), Matrix.zeros(n, n)]; // of the second derivatives, in slices
  for (let i = 0; i < n; i++) {
    const inner = Math.min(Math.max(i, 1), n - 2);
    const row = i === inner ? [1, 4, 1] : n > 3 ? [1, -2, 1] : i ? [0, -1, 1] : [1, -1, 0];
    row.forEach((x, k) => conditions.set(i, inner - 1 + k, x));
    if (i === inner) [6, -12, 6].forEach((x, k) => values.set(i, inner - 1 + k, x));
  }
  const bend = inverse(conditions).mmul(values);
  return Array.from({ length: a.fineCount }, (_, k) => {
    const x = Math.min(Math.max((k - rows[0]) / (rows[1] - rows[0]), 0), n - 1);
    const i = Math.min(Math.floor(x), n - 2);
    const [u, w] = [x - i, 1 - (x - i)];
    return Array.from({ length: n }, (_, j) => {
      const straight = j === i ? w : j === i + 1 ? u : 0;
      return straight + ((w ** 3 - w) * bend.get(i, j) + (u ** 3 - u) * bend.get(i + 1, j)) / 6;
    });
  });
}
