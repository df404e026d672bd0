/** The other scans of an examination beside one of thick slices, see scripts/inputs/examination.py. */
import constants from "../model/constants.js";
import { g } from "../errors.js";
import { largestAxis, voxelSpacing } from "../stack/grid.js";
import { sharpness, spacingIsLost } from "../stack/spectra.js";
import { AXES, map } from "../stack/volume.js";
import { headsOf, role } from "./identity.js";

/** @typedef {import("./readers.js").Found} Found */
/** @typedef {import("./identity.js").Role} Role */

const { THINNER } = constants.examination;

/** Other scans of a head and their parts beside one, by standards and names; guides first, in the order in which they are tried.
 * @type {(own: Found, others: Found[], head?: (one: Found) => string) => {other: Found, role: Role}[]} */
export function roles(own, others, head = headsOf([own, ...others.filter((one) => one.scan !== own.scan)])) {
  const beside = others.filter((other) => other.scan !== own.scan && head(other) === head(own));
  const found = beside.map((other) => ({ other, role: role(own, other) }));
  const order = (/** @type {Role} */ { what, rank }) => [Number(what !== "guides"), ...rank];
  return found.sort((a, b) => {
    const [one, two] = [order(a.role), order(b.role)];
    const apart = one.findIndex((x, k) => x !== two[k]);
    return apart < 0 ? 0 : one[apart] - (two[apart] ?? 0);
  });
}

/** The same by what they show, too: doubtful ones and those whose slices were interpolated guide none.
 * @type {(own: Found, others: Found[], head?: (one: Found) => string) => {other: Found, role: Role}[]} */
export function seen(own, others, head) {
  const shown = roles(own, others, head).map(({ other, role }) => {
    const why = role.what === "guides" && guidesNot(own, other);
    return { other, role: why ? /** @type {Role} */ ({ what: "is left alone", why, rank: [] }) : role };
  });
  return shown.sort((a, b) => Number(b.role.what === "guides") - Number(a.role.what === "guides"));
}

/** Why a scan guides no other, by what it shows and how sharp it is across the thick slices; undefined if it may. @type {(own: Found, other: Found) => string | undefined} */
function guidesNot({ scan: thick }, { scan }) {
  if (scan.doubt) return scan.doubt;
  const [spacing, edges] = [voxelSpacing(thick.affine), voxelSpacing(scan.affine)];
  const axis = largestAxis(spacing);
  const near = AXES.map((k) => Math.abs(AXES.reduce((sum, row) => sum + thick.affine[row][axis] * scan.affine[row][k], 0)) / edges[k]);
  const volume = scan.volume.data.some(Number.isNaN) ? map(scan.volume, (x) => x || 0) : scan.volume;
  if (spacingIsLost(volume, edges)) return `${constants.spectra.SPACING_LOST}. Mend its header`;
  const across = sharpness(volume, edges)[near.indexOf(Math.max(...near))];
  if (across <= THINNER * spacing[axis]) return undefined;
  return `its slices were interpolated: across the thick slices it shows no more than samples ${g(across, 2)} mm apart`;
}
