/** A scan's own slices as truth: acquired again along an axis within them, rebuilt, and compared, see scripts/rebuild/reduced_resolution.py. */
import constants from "../model/constants.js";
import { filled } from "../errors.js";
import { atTarget } from "../stack/acquisition.js";
import { canonical } from "../stack/grid.js";
import { tissueOf } from "../stack/intensity.js";
import { evened } from "../stack/interleaving.js";
import { cubic } from "../stack/interpolation.js";
import { turned } from "../stack/slices.js";
import { clamp, extremes, otherAxes } from "../stack/volume.js";
import { acquiredAgain, belowBorder, middleSlices } from "./acquired_again.js";
import { oneFamily } from "./inferer.js";

const { WORTH, NO_GAIN, SAID, GAINS, LOSES, FORETOLD, PART, LEAST, MOST, AXIAL, HIDDEN } = constants.reduced_resolution;
const { PLANES } = constants.acquired_again;

/** @typedef {(slices: Slices) => Promise<Volume>} Method rebuilds slices in RAS+ order, by the planes along the second axis */
/** @typedef {{offset: number, slope: number, thickness: number, axial: number, error: number} | null} Foretelling from the gain within slices to that through them, in dB */
/** @typedef {{slices: number[], directions: number, spline: number, rebuilt: number, gain: number, foretold?: number[]}} Check
 * which slices were tested, from 0 in the scan's order; PSNR in dB; the gain through them, and its error */
/** @typedef {{errors: number[], hidden: number, pixels: number}} Trial mean squared errors of the spline and of the method in the head */

/**
 * Tests a method on the slices of a scan.
 * @param {Scan | Placed} scan
 * @param {Acquisition} a
 * @param {Method[]} methods alike, which compute side by side.
 * @param {(share: number) => void} [progress]
 * @param {Foretelling} [foretelling]
 * @returns {Promise<Check | undefined>} none where nothing would be rebuilt, or the slices have too few pixels.
 */
export async function check({ volume: measured, affine }, a, methods, progress = () => {}, foretelling = null) {
  if (atTarget(a)) return undefined;
  const [volume] = evened(measured, a.sliceAxis);
  const { least, largest } = extremes(volume);
  if (least === largest) return undefined;
  const scan = turned(volume, affine, a);
  const { sliceAxis, sliceCount } = scan.a;
  const isFlipped = canonical(affine).flipped.includes(sliceAxis);
  const there = (/** @type {number} */ k) => (isFlipped ? sliceCount - 1 - k : k); // in the scan's order, and back
  const chosen = middleSlices(scan, [...a.missing.keys()].map(there), clamp(Math.floor(a.fineCount / PART), LEAST, MOST));
  const [tissue, inside] = [tissueOf(scan.volume, scan.tissueRange), belowBorder(scan)];
  const jobs = otherAxes(sliceAxis).flatMap((axis) => {
    const again = acquiredAgain(scan, tissue, inside, axis);
    return chosen.flatMap((index) => {
      const plane = again?.plane(index);
      return again && plane ? [{ axis, index, again, plane }] : [];
    });
  });
  if (!jobs.length) return undefined;
  /** @type {Trial[]} */
  const trials = [];
  const left = jobs.entries();
  const work = async (/** @type {Method} */ method) => {
    for (const [seed, { again, plane }] of left) {
      trials.push(await trial(again, plane, method, seed));
      progress(trials.length / jobs.length);
    }
  };
  await Promise.all(methods.map(work));
  const [spline, rebuilt] = levels(trials, scan.tissueRange.high - scan.tissueRange.low);
  const gain = rebuilt - spline;
  return {
    slices: [...new Set(jobs.map(({ index }) => there(index)))].sort((one, other) => one - other),
    directions: new Set(jobs.map(({ axis }) => axis)).size,
    ...{ spline, rebuilt, gain },
    ...(foretelling && { foretold: through(foretelling, gain, a.sliceThickness / a.targetSpacing, sliceAxis === AXIAL) }),
  };
}

/** The gain through slices that the gain within them foretells, and its standard error; their thickness in targets.
 * @type {(line: NonNullable<Foretelling>, gain: number, targets: number, isAxial: boolean) => number[]} */
const through = ({ offset, slope, thickness, axial, error }, gain, targets, isAxial) => [
  offset + slope * gain + thickness * Math.log(targets) + axial * Number(isAxial),
  error,
];

/** A slice rebuilt as it was measured. @type {(again: import("./acquired_again.js").Again, plane: import("./acquired_again.js").Plane, method: Method, seed: number) => Promise<Trial>} */
async function trial(again, { truth, head }, method, seed) {
  const slices = again.slices(truth, seed);
  const pixels = head.data.reduce((count, x) => count + x, 0);
  const errors = [cubic(slices.volume, slices.a), await method(slices)].map(({ data }) => {
    let sum = 0; // of the middle plane
    for (let k = 0; k < head.data.length; k++) if (head.data[k]) sum += (data[k * PLANES + (PLANES >> 1)] - truth.data[k]) ** 2;
    return sum / pixels;
  });
  return { errors, hidden: again.hidden, pixels };
}

/** PSNR of the cubic spline and of the method over all trials, in dB, without the noise of the measured slices. @type {(trials: Trial[], extent: number) => number[]} */
function levels(trials, extent) {
  const all = trials.reduce((sum, { pixels }) => sum + pixels, 0);
  const mean = (/** @type {(one: Trial) => number} */ of) => trials.reduce((sum, one) => sum + of(one) * one.pixels, 0) / all;
  const hidden = mean((one) => one.hidden);
  return [0, 1].map((k) => {
    const error = mean((one) => one.errors[k]);
    return 10 * Math.log10(extent ** 2 / Math.max(error - hidden, HIDDEN * error, Number.MIN_VALUE));
  });
}

/** The test of DRIFT on a scan's own slices, without a guide: a sentence for people, and whether a gain is worth it; sharp results have no
 * foretelling. @type {(scan: Scan, a: Acquisition, networks: Networks[], progress?: (share: number) => void, sharp?: boolean) => Promise<{said: string, isWorth: boolean}>} */
export async function checked(scan, a, networks, progress, sharp = false) {
  const found = await check(scan, a, networks.map((one) => oneFamily(one, sharp)), progress, sharp ? null : constants.card.foretelling);
  return found ? inWords(found) : { said: constants.record.UNTESTED, isWorth: false };
}

/** @type {(found: Check) => {said: string, isWorth: boolean}} */
export function inWords({ gain, foretold = [], ...levels }) {
  const gains = filled(gain >= 0 ? GAINS : LOSES, [Math.abs(gain)]);
  const text = filled(SAID, { by: "DRIFT", gains, ...levels }) + (foretold.length ? filled(FORETOLD, foretold) : "");
  const isWorth = (gain < 0 ? gain : (foretold[0] ?? gain)) >= WORTH; // a loss counts, whatever is foretold
  return { said: `${text[0].toUpperCase()}${text.slice(1)}${isWorth ? "" : `: ${NO_GAIN}`}.`, isWorth };
}
