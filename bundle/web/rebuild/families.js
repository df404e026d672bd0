/** The two families of planes become one volume, each by what varies along its planes, see scripts/rebuild/families.py. */
import constants from "../model/constants.js";
import { map, reorder } from "../stack/volume.js";

/** The cosine transform of `n` numbers as a matrix, rows first. @type {(n: number) => Float32Array} */
function cosines(n) {
  const wave = (/** @type {number} */ k, /** @type {number} */ i) => Math.cos((Math.PI * (i + 0.5) * k) / n);
  return Float32Array.from({ length: n * n }, (_, at) => {
    const k = Math.floor(at / n);
    return Math.sqrt((k ? 2 : 1) / n) * wave(k, at % n);
  });
}

/** Two estimates of a volume, by planes along each of two axes, weighed by frequency.
 * @type {(one: Volume, other: Volume, axes: number[], edges: number[], sliceSpacing: number, networks: Networks) => Promise<Volume>} */
export async function weighFamilies(one, other, axes, edges, sliceSpacing, networks) {
  const across = 3 - axes[0] - axes[1];
  const [n, m] = axes.map((axis) => one.shape[axis]);
  const square = (/** @type {number} */ k, /** @type {number} */ count, /** @type {number} */ edge) => (k / (2 * count * edge)) ** 2;
  const share = Float32Array.from({ length: n * m }, (_, at) => {
    const [f, g] = [square(Math.floor(at / m), n, edges[0]), square(at % m, m, edges[1])];
    return (constants.families.LARGEST * (f - g)) / (f + g + 1 / (2 * sliceSpacing) ** 2);
  });
  const apart = reorder(map(one, (x, k) => x - other.data[k]), [across, ...axes]);
  const weighed = await networks.families(apart, cosines(n), cosines(m), share);
  const back = reorder(weighed, [0, 1, 2].map((axis) => [across, ...axes].indexOf(axis)));
  return map(one, (x, k) => (x + other.data[k]) / 2 + back.data[k]);
}
