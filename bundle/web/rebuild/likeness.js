/** Whether two volumes of any contrasts show one head in one place, see scripts/rebuild/registration.py. */
import constants from "../model/constants.js";
import { depth, headMask, smooth } from "../stack/tissue.js";
import { AXES, boxOf, crop, extremes, indexAlong, map, paste, strides, zeros } from "../stack/volume.js";
import { onCubes, resample } from "./registration.js";

const { CUBE, SHARED, WINDOW, ASIDE, FINE, DEEP, WHOLE } = constants.registration;

/** How much more of one's detail the other foretells in its place than aside of it, 0 to 1. @type {(fixed: Placed, moving: Placed, apart: number[]) => number} */
export function likeness(fixed, moving, apart) {
  const here = onCubes(fixed, CUBE);
  const { values, seen } = resample(onCubes(moving, CUBE), here.affine, here.volume.shape);
  const { least, largest } = extremes(values);
  if (least === largest) return 0;
  const [head, its] = [here.volume, values].map((volume) => headMask(map(volume, (x) => Math.max(x, 0))));
  const shared = map(head, (x, k) => +(x && its.data[k] && seen.data[k] > WHOLE));
  const count = (/** @type {Volume} */ { data }) => data.reduce((a, b) => a + b, 0);
  if (count(shared) < SHARED * count(head)) return 0;
  const box = boxOf(shared);
  const [both, widths] = [crop(shared, box), apart.map((edge) => Math.max(edge, FINE) / 3 / CUBE)];
  const weight = smooth(both, widths, "mirror");
  const [a, b] = [here.volume, values].map((volume) => {
    const masked = map(crop(volume, box), (x, k) => x * both.data[k]);
    return map(smooth(masked, widths, "mirror"), (x, k) => x / Math.max(weight.data[k], 1e-3));
  });
  const [wide, own] = [zeros(both.shape.map((n) => n + 2)), both.shape.map((n) => [1, n + 1])];
  paste(wide, both, own);
  const deep = map(crop(depth(wide, [CUBE, CUBE, CUBE], 2 * DEEP), own), (x) => +(x > DEEP)); // borders of heads are alike
  const others = strides(both.shape).flatMap((step) => [step, -step]).map((step) => {
    const moved = (/** @type {Volume} */ volume) => map(volume, (_, k) => volume.data[k - step * Math.round(ASIDE / CUBE)] ?? 0);
    return foretold(a, moved(b), map(moved(deep), (x, k) => x * deep.data[k]));
  });
  return Math.max(0, foretold(a, b, deep) - others.reduce((x, y) => x + y) / others.length);
}

/** The share of the variance in Gaussian windows that two volumes have in common, 0 to 1. @type {(a: Volume, b: Volume, inside: Volume) => number} */
function foretold(a, b, inside) {
  const indices = AXES.map((axis) => indexAlong(inside.shape, axis));
  const places = [...inside.data.keys()].filter((k) => inside.data[k] && indices.every((index) => index(k) % 2 === 0));
  const sums = (/** @type {(k: number) => number} */ f) => {
    const { data } = smooth(map(inside, (x, k) => x && f(k)), Array(3).fill(WINDOW / CUBE), "mirror", 3);
    return places.map((k) => data[k]);
  };
  const [weight, first, second, square, other, product] = [
    ...[sums(() => 1), sums((k) => a.data[k]), sums((k) => b.data[k])],
    ...[sums((k) => a.data[k] ** 2), sums((k) => b.data[k] ** 2), sums((k) => a.data[k] * b.data[k])],
  ];
  const less = (/** @type {number[]} */ sum, /** @type {number[]} */ x, /** @type {number[]} */ y) =>
    sum.map((all, k) => all / weight[k] - (x[k] * y[k]) / weight[k] ** 2);
  const [one, two, common] = [less(square, first, first), less(other, second, second), less(product, first, second)];
  const mean = (/** @type {number[]} */ values) => values.reduce((x, y) => x + y, 0) / values.length;
  const [m, n] = [mean(one), mean(two)];
  if (!(Math.min(m, n) > 0)) return 0;
  const share = common.map((x, k) => x ** 2 / (Math.max(one[k], 1e-4 * m) * Math.max(two[k], 1e-4 * n)));
  return (mean(share.map((x, k) => x * one[k])) / m + mean(share.map((x, k) => x * two[k])) / n) / 2;
}
