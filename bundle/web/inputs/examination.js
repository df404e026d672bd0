/** The other scans of an examination beside one of thick slices, see scripts/inputs/examination.py. */
import constants from "../model/constants.js";
import { g } from "../errors.js";
import { largestAxis, voxelSpacing } from "../stack/grid.js";
import { sharpness, spacingIsLost } from "../stack/spectra.js";
import { AXES, map } from "../stack/volume.js";
import { role } from "./identity.js";

/** @typedef {import("./readers.js").Found} Found */
/** @typedef {import("./identity.js").Role} Role */

const { THINNER } = constants.roles;

/** Other scans and their parts beside one, by headers and names; guides first and the best of them at the head.
 * @type {(own: Found, others: Found[]) => {other: Found, role: Role}[]} */
export function roles(own, others) {
  const found = others.filter((other) => other.scan !== own.scan).map((other) => ({ other, role: role(own, other) }));
  const order = (/** @type {Role} */ { what, rank }) => (what === "guides" ? rank.reduce((sum, x) => 10 * sum + x) : 1e6);
  return found.sort((a, b) => order(a.role) - order(b.role));
}

/** The same by what they show, too: doubtful ones and those whose slices were interpolated guide none. @type {(own: Found, others: Found[]) => {other: Found, role: Role}[]} */
export function seen(own, others) {
  const shown = roles(own, others).map(({ other, role }) => {
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
