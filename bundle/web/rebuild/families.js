/** The two families of planes become one volume, each by what varies along its planes, see scripts/rebuild/families.py. */
import { AXES, reorder, zeros } from "../stack/volume.js";
import { inTurns } from "./windows.js";

/** Two estimates of a volume, by planes along each of two axes, weighed by frequency.
 * @type {(one: Volume, other: Volume, axes: number[], edges: number[], sliceSpacing: number, networks: Networks[]) => Promise<Volume>} */
export async function weighFamilies(one, other, axes, edges, sliceSpacing, networks) {
  const order = [3 - axes[0] - axes[1], ...axes];
  const both = [reorder(one, order), reorder(other, order)];
  const [, N, M] = both[0].shape;
  const weighed = zeros(both[0].shape);
  await inTurns(both, N * M, networks, async (own, [first, second], at) => {
    weighed.data.set(await own.families(first, second, edges, sliceSpacing), at * N * M);
  });
  return reorder(weighed, AXES.map((axis) => order.indexOf(axis)));
}
