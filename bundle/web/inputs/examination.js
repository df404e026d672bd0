/** The other scans of an examination beside one of thick slices, see scripts/inputs/examination.py. */
import constants from "../model/constants.js";
import { g } from "../errors.js";
import { largestAxis, voxelSpacing } from "../stack/grid.js";
import { sharpness, spacingIsLost } from "../stack/spectra.js";
import { AXES, map } from "../stack/volume.js";
import { headsOf, isOneContrast, otherContrast } from "./identity.js";
import { alike } from "./names.js";

/** @typedef {import("./readers.js").Found} Found */
/** @typedef {{why: string, rank: number[]}} Role why a scan guides another, and its rank, of which the least is tried first; or why not, without a rank */

const { BEST, ISOTROPIC, OPEN, PARALLEL, THINNER } = constants.examination;

/** How near each axis of a scan's voxels is to the normal of another one's slices, as cosines. @type {(thick: ReadScan, scan: ReadScan) => number[]} */
function nearnessOf({ affine: own }, { affine }) {
  const [mine, edges] = [own, affine].map(voxelSpacing);
  const axis = largestAxis(mine);
  return AXES.map((k) => Math.abs(AXES.reduce((sum, row) => sum + own[row][axis] * affine[row][k], 0)) / mine[axis] / edges[k]);
}

/** A scan's part beside one of thick slices, both of one head: one that is sharp along the slices may guide them. @type {(own: Found, theirs: Found) => Role} */
function role(own, theirs) {
  const alone = (/** @type {string} */ why) => ({ why, rank: [] });
  const [one, other, near] = [own.identity, theirs.identity, nearnessOf(own.scan, theirs.scan)];
  const [isOther, edges, spacing] = [one.session !== other.session, voxelSpacing(theirs.scan.affine), Math.max(...voxelSpacing(own.scan.affine))];
  const [isTurned, thick] = [near[largestAxis(edges)] < PARALLEL, Math.max(...edges)];
  const said = /** @type {const} */ (["contrast", "named"]).map((key) => [one.shows[key], other.shows[key]]);
  const [a, b] = said.find(([x, y]) => x && y && x !== y) ?? [];
  const differ = a ? `one is ${a}, the other ${b}` : "";
  if (!differ && isOneContrast(one, other)) return alone(`it has the same contrast and ${isTurned ? "another" : "the same"} direction`);
  const best = BEST.includes(other.shows.contrast) ? BEST.indexOf(other.shows.contrast) : BEST.length;
  const guides = (/** @type {number} */ kind, /** @type {string} */ sharp) => ({
    why: `${differ || otherContrast(one, other) || OPEN}; ${sharp}${isOther ? `; it is of session ${other.session.replace(/^ses-/, "")}` : ""}`,
    rank: [Number(isOther), Number(one.folder !== other.folder), -alike(one.words, other.words), Number(!differ), kind, best, Number(other.agent)],
  });
  if (thick <= ISOTROPIC * Math.min(...edges) && thick <= THINNER * spacing) return guides(0, `its voxels of ${g(thick, 2)} mm are isotropic`);
  if (isTurned && edges[near.indexOf(Math.max(...near))] <= THINNER * spacing) return guides(1, "its slices lie in another direction");
  if (!isTurned && thick <= THINNER * spacing) return guides(2, `its slices are ${g(thick, 2)} mm apart, not ${g(spacing, 2)} mm`);
  return alone(`it is not sharp across the slices: ${g(thick, 2)} mm apart`);
}

/** Other scans of a head and their parts beside one, by standards and names; guides first, in the order in which they are tried.
 * @type {(own: Found, others: Found[], head?: (one: Found) => string) => {other: Found, role: Role}[]} */
export function roles(own, others, head = headsOf([own, ...others.filter((one) => one.scan !== own.scan)])) {
  const beside = others.filter((other) => other.scan !== own.scan && head(other) === head(own));
  const order = (/** @type {Role} */ { rank }) => [Number(!rank.length), ...rank];
  return beside.map((other) => ({ other, role: role(own, other) })).sort((a, b) => {
    const [one, two] = [order(a.role), order(b.role)];
    const apart = one.findIndex((x, k) => x !== two[k]);
    return apart < 0 ? 0 : one[apart] - (two[apart] ?? 0);
  });
}

/** The same by what they show, too: doubtful ones and those whose slices were interpolated guide none.
 * @type {(own: Found, others: Found[], head?: (one: Found) => string) => {other: Found, role: Role}[]} */
export function seen(own, others, head) {
  const shown = roles(own, others, head).map(({ other, role }) => {
    const why = role.rank.length && guidesNot(own, other);
    return { other, role: why ? { why, rank: [] } : role };
  });
  return shown.sort((a, b) => Number(!a.role.rank.length) - Number(!b.role.rank.length));
}

/** Why a scan guides no other, by what it shows and how sharp it is across the thick slices; undefined if it may. @type {(own: Found, other: Found) => string | undefined} */
function guidesNot({ scan: thick }, { scan }) {
  if (scan.doubt) return scan.doubt;
  const [near, edges] = [nearnessOf(thick, scan), voxelSpacing(scan.affine)];
  const volume = scan.volume.data.some(Number.isNaN) ? map(scan.volume, (x) => x || 0) : scan.volume;
  if (spacingIsLost(volume, edges)) return `${constants.spectra.SPACING_LOST}. Mend its header`;
  const across = sharpness(volume, edges)[near.indexOf(Math.max(...near))];
  if (across <= THINNER * Math.max(...voxelSpacing(thick.affine))) return undefined;
  return `its slices were interpolated: across the thick slices it shows no more than samples ${g(across, 2)} mm apart`;
}
