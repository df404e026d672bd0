/** The part of a head that a guide saw, and where its field of view ends, see scripts/rebuild/coverage.py. */
import constants from "../model/constants.js";
import { f, filled } from "../errors.js";
import { canonical } from "../stack/grid.js";
import { AXES } from "../stack/volume.js";

const { BORDER_AT, BORDER_BEYOND, COVERED, ENOUGH, FEW, LITTLE } = constants.coverage;
const { SIDES } = constants.grid;

/** The part of a head that was seen, both on the grid of an affine. @type {(head: Volume, seen: Volume, affine: Affine) => Coverage} */
export function coverageOf(head, seen, affine) {
  const [, Y, Z] = head.shape;
  const [voxels, found] = [0, 1].map(() => head.shape.map((count) => new Float64Array(count)));
  const sums = [0, 0, 0];
  let [count, both] = [0, 0];
  for (let k = 0; k < head.data.length; k++) {
    if (!head.data[k]) continue;
    const [isSeen, place] = [+(seen.data[k] > 0.5), [Math.floor(k / (Y * Z)), Math.floor(k / Z) % Y, k % Z]];
    [count, both] = [count + 1, both + isSeen];
    for (const axis of AXES) {
      sums[axis] += place[axis];
      voxels[axis][place[axis]]++;
      found[axis][place[axis]] += isSeen;
    }
  }
  /** @type {Record<string, number[]>} */
  const borders = {};
  const { axes, flipped } = canonical(affine);
  for (const [world, axis] of both ? axes.entries() : []) {
    const shares = Array.from(found[axis], (seen, row) => seen / Math.max(voxels[axis][row], 1));
    const isKept = (/** @type {number} */ share) => share >= Math.max(...shares) / 2;
    const [first, last] = [shares.findIndex(isKept), shares.findLastIndex(isKept)];
    const sum = (/** @type {Float64Array} */ part) => part.reduce((a, b) => a + b, 0);
    const beyond = [[0, first], [last + 1, shares.length]].map((part) => [voxels, found].map((one) => sum(one[axis].subarray(...part))));
    for (const [end, row] of [first - 0.5, last + 0.5].entries()) {
      if (!(beyond[end][0] > FEW * count && beyond[end][1] < LITTLE * beyond[end][0])) continue;
      const index = AXES.map((one) => (one === axis ? row : sums[one] / count));
      const at = AXES.map((k) => AXES.reduce((sum, one) => sum + affine[k][one] * index[one], affine[k][3]));
      borders[SIDES[world][+(Boolean(end) !== flipped.includes(world))]] = at.map((x) => Number(f(x, 1)));
    }
  }
  return { share: count ? both / count : 0, borders };
}

/** The words for people; none where a guide, of that name, saw enough. @type {(coverage: Coverage, name: string) => string[]} */
export function warning({ share, borders }, name) {
  if (share >= ENOUGH) return [];
  const ends = Object.entries(borders).map(([end, at]) => {
    const world = SIDES.findIndex((sides) => sides.includes(end));
    const side = SIDES[world][+(at[world] >= 0)];
    return filled(side === end ? BORDER_AT : BORDER_BEYOND, { end, side, place: Math.abs(at[world]) });
  });
  return [filled(COVERED, { name, share, ends: ends.length ? `: ${ends.join(", ")}` : "" })];
}
