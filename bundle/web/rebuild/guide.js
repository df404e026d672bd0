/** A guide, a scan of another contrast of the same head, in the place of the scan that it guides, see scripts/rebuild/guide.py. */
import constants from "../model/constants.js";
import { InputError, f, refuse } from "../errors.js";
import { atTarget, settle } from "../stack/acquisition.js";
import { fineAffine, voxelSpacing } from "../stack/grid.js";
import { intensityRange, signalOf, tissueOf, toUnit } from "../stack/intensity.js";
import { evened } from "../stack/interleaving.js";
import { cubic } from "../stack/interpolation.js";
import { sliceMatrix } from "../stack/profile.js";
import { depth, dilated, headMask, smooth } from "../stack/tissue.js";
import { AXES, along, map } from "../stack/volume.js";
import { coverageOf } from "./coverage.js";
import { relation } from "./gain.js";
import { rebuild } from "./inferer.js";
import { likeness } from "./likeness.js";
import { after, angleAndShift, centre, inverted, register, resample, resolution, STILL } from "./registration.js";

const { BORDER, COPY, PRECISE } = constants.guide;
const { ALIKE } = constants.registration;
const { MEND_GUIDE, OPTION, SENTENCE } = constants.preprocessing;

/** How a guide was acquired. Fields of the page describe the scan, so no message on a guide names one. @type {(guide: Scan) => Acquisition} */
function settled(guide) {
  try {
    return settle(guide, {});
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    const said = withoutOptions(error.message);
    throw new InputError(said === error.message ? said : `${said} ${MEND_GUIDE}`);
  }
}

/** A message without the sentences that name options of the command. @type {(message: string) => string} */
export const withoutOptions = (message) =>
  message.split(new RegExp(SENTENCE)).filter((part) => !new RegExp(OPTION).test(part)).join(" ").replace(/[;:]$/, ".");

/** Whether a guide guides as it is. @type {(guide: Scan) => boolean} */
export function isSharp(guide) {
  const own = settled(guide);
  return atTarget(own) || own.sliceSpacing <= constants.rebuilder.SHARP;
}

/** A guide beside the scan that it guides. One of thick slices is rebuilt first, which is the first half of the work, without drawn detail, which would guide, too.
 * @type {(guide: Scan, scan: Scan, a: Acquisition, networks: Networks[], progress?: (share: number) => void) => Promise<Guide>} */
export async function place(guide, scan, a, networks, progress) {
  refuse(
    !(constants.card.guide_share > 0),
    "these weights were trained without guides: a guide would change nothing. Leave out the guide, or set --ckpt_path to " +
      "weights that were trained with them.",
  );
  const own = settled(guide);
  const moving = isSharp(guide) ? guide : await rebuild(guide, own, networks, progress);
  const [measured] = evened(scan.volume, a.sliceAxis);
  const spline = cubic(signalOf(measured, intensityRange(measured)), a);
  const fixed = { volume: map(spline, (x) => Math.max(x, 0)), affine: fineAffine(scan.affine, a) }; // undershoot
  const apart = resolution(fixed.affine, isSharp(guide) ? [[scan.affine, a]] : [[scan.affine, a], [guide.affine, own]]);
  const head = headMask(fixed.volume);
  const other = { ...moving, volume: signalOf(moving.volume, intensityRange(moving.volume)) };
  const found = register(fixed, other, dilated(head, 2));
  const isMoved = Math.max(...angleAndShift(found, centre(fixed))) > PRECISE;
  const alike = likeness(fixed, backBy(found, other), apart);
  refuse(
    alike < ALIKE,
    `${guide.name} does not fit ${scan.name}: their likeness is ${f(alike, 2)}, and from ${ALIKE} on they show one head. ` +
      "The guide may be of another person or region, or damaged. Leave it out, or give another one.",
  );
  const motion = isMoved ? found : STILL;
  const { seen, ...placed } = beside(backBy(motion, moving), fixed, a);
  const explained = relation(fixed, head, placed.fine, seen, a.sliceSpacing);
  refuse(
    explained >= COPY,
    `${guide.name} has the contrast of ${scan.name}: a rising curve explains ${f(100 * explained, 0)}% of the scan by it. ` +
      "A copy of the scan brings nothing. Leave it out, or give a scan of another contrast.",
  );
  const [degrees, millimetres] = angleAndShift(motion, centre(fixed));
  const coverage = coverageOf(head, seen, fixed.affine);
  return { ...placed, name: guide.name, sources: guide.sources, likeness: alike, motion, degrees, millimetres, coverage };
}

/** A volume where the head lay in the other one. @type {(motion: Affine, from: Placed) => Placed} */
const backBy = (motion, { volume, affine }) => ({ volume, affine: after(inverted(motion), affine) });

/** A guide on the fine grid, its thick slices, how far it counts, 0 beyond its field of view, and where it was seen.
 * @type {(guide: Placed, fixed: Placed, a: Acquisition) => {fine: Volume, slices: Volume, share: Volume, seen: Volume}} */
function beside({ volume, affine }, fixed, a) {
  const [tissueRange, edges, grid] = [intensityRange(volume), voxelSpacing(affine), voxelSpacing(fixed.affine)];
  const shareOf = (/** @type {number} */ own, /** @type {number} */ its) => // an edge of the grid along an axis of the guide
    affine.reduce((sum, row, k) => sum + row[own] * fixed.affine[k][its], 0) / edges[own] ** 2;
  const widths = AXES.map((own) => AXES.reduce((sum, its) => sum + shareOf(own, its) ** 2, -1)) // of boxes
    .map((variance) => Math.sqrt(Math.max(variance, 0) / 12));
  const unit = smooth(toUnit(tissueOf(volume, tissueRange), tissueRange), widths, "repeat");
  const { values, seen } = resample({ volume: unit, affine }, fixed.affine, fixed.volume.shape, true);
  const fine = map(values, (x, k) => (seen.data[k] > 0.5 ? Math.max(x, -1) : -1));
  const share = map(depth(map(seen, (x) => +(x > 0.5)), grid, BORDER), (x) => x / BORDER);
  return { fine, slices: along(sliceMatrix(a), fine, a.sliceAxis), share, seen: map(seen, (x) => +(x > 0.5)) };
}
