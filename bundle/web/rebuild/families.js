/** The two families of planes become one volume, each by what varies along its planes, see scripts/rebuild/families.py. */
import { AXES, reorder } from "../stack/volume.js";

/** Two estimates of a volume, by planes along each of two axes, weighed by frequency.
 * @type {(one: Volume, other: Volume, axes: number[], edges: number[], sliceSpacing: number, networks: Networks) => Promise<Volume>} */
export async function weighFamilies(one, other, axes, edges, sliceSpacing, networks) {
  const order = [3 - axes[0] - axes[1], ...axes];
  const weighed = await networks.families(reorder(one, order), reorder(other, order), edges, sliceSpacing);
  return reorder(weighed, AXES.map((axis) => order.indexOf(axis)));
}
