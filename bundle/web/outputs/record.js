/** The record of a result, as the command writes it beside a result, see scripts/outputs/record.py and docs/record.schema.json. */
import constants from "../model/constants.js";
import { f, filled, g } from "../errors.js";
import { compared, difference, relativeRmse, rms } from "../rebuild/consistency.js";
import { warning } from "../rebuild/coverage.js";
import { atTarget } from "../stack/acquisition.js";
import { planeName } from "../stack/grid.js";
import { intensityRange } from "../stack/intensity.js";
import { cubic } from "../stack/interpolation.js";
import { evened } from "../stack/interleaving.js";
import { noiseIn } from "../stack/slices.js";
import { flatTissue } from "../stack/tissue.js";
import { streak } from "../stack/trace.js";
import { crop, extremes, map } from "../stack/volume.js";

/** @type {(x: number, digits: number) => number} */
const rounded = (x, digits) => Number(f(x, digits));

/** The facts of the acquisition: name -> value, and where it came from. @type {(a: Acquisition, affine: Affine) => Record<string, [string, string]>} */
export const facts = (a, affine) => ({
  "slice axis": [`${a.sliceAxis}, ${planeName(affine, a.sliceAxis)} slices`, a.sources.slice_axis],
  "slice spacing": [`${g(a.sliceSpacing, 4)} mm`, a.sources.slice_spacing],
  "slice thickness": [`${g(a.sliceThickness, 4)} mm`, a.sources.slice_thickness],
  gap: [`${g(rounded(a.sliceSpacing - a.sliceThickness, 4) + 0, 4)} mm`, "spacing less thickness; negative for overlap"],
  "target thickness": [`${g(a.targetSpacing, 4)} mm`, a.sources.target_spacing],
});

/** Who rebuilt, see scripts/method/origin.py. @type {(release?: string) => string} */
export const ranBy = (release = "") => `DRIFT${release && " "}${release}, ${constants.release.network}`;

/** A number of steps in words. @type {(count: number) => string} */
const eulerSteps = (count) => `${count} Euler step${count === 1 ? "" : "s"}`;

/** Whether detail is drawn: the flow was followed beyond the mean. @type {(result: {steps: number, sharp: boolean}) => boolean} */
export const isDrawn = ({ steps, sharp }) => sharp && steps > 0;

/** The origin of detail. @type {(result: {steps: number, sharp: boolean}) => string} */
export const detailOf = (result) => (isDrawn(result) ? constants.rebuilt.DRAWN : constants.rebuilt.ESTIMATED);

/**
 * The record of a result.
 * @param {Scan} given
 * @param {Acquisition} a
 * @param {import("../rebuild/inferer.js").Result} result
 * @param {string} device what computed.
 * @param {string | null} input hash of the files that were given.
 * @param {Guide} [guide]
 */
export function describe(given, a, result, device, input, guide) {
  const { volume, steps, stepsSource, sharp } = result;
  const scan = atTarget(a) ? given : { ...given, volume: evened(given.volume, a.sliceAxis)[0] };
  const { least, largest } = extremes(scan.volume);
  const [constant, target] = [least === largest, rounded(a.targetSpacing, 6)];
  const placed = guide && {
    ...{ Name: guide.name, Motion: [...guide.motion, [0, 0, 0, 1]].map((row) => row.map((x) => rounded(x, 6))) },
    ...{ Degrees: rounded(guide.degrees, 3), Millimetres: rounded(guide.millimetres, 3), Likeness: rounded(guide.likeness, 3) },
    ...{ Share: rounded(guide.coverage.share, 3), Borders: guide.coverage.borders },
  };
  const left = difference(volume, scan.volume, a);
  const where = constant ? undefined : compared(scan.volume, a.sliceAxis);
  const noise = atTarget(a) || !where ? undefined : noiseOf(scan, a, left, where);
  const pulse = `SLR pulse, time-bandwidth product ${g(constants.acquisition.SLR)}`;
  return {
    Description: description(a, constant, result, placed, noise),
    Sources: [...scan.sources, ...(guide?.sources ?? [])],
    SliceThickness: target,
    SpacingBetweenSlices: target,
    Facts: {
      ...{ ...facts(a, scan.affine), steps: [String(steps), stepsSource], "slice profile": [pulse, "the option profile"] },
      ...(noise && acquired(noise.Widths)),
      ...(placed && { guide: [placed.Name, filled(constants.record.GUIDE_PLACED, placed)] }),
    },
    ...(placed && { Guide: placed }),
    ...(isDrawn(result) && { Sharp: filled(constants.record.SHARP, { steps: eulerSteps(steps), detail: detailOf(result) }) }),
    ...(noise && { Noise: noise }),
    Streak: streakOf(scan, a, volume),
    Warnings: [...a.warnings, ...(guide ? warning(guide.coverage, guide.name) : [])],
    Agreement: where ? rounded(relativeRmse(left, scan.volume, where), 5) : null,
    InputSHA256: input,
    Network: { Description: ranBy(), Class: "scripts.method.networks.Drift", WeightsVersion: constants.card.version },
    WeightsSHA256: constants.release.weights,
    Release: constants.release.version.split(".").slice(0, 2).join("."),
    Settings: { ...constants.inferer, sharp, noise: a.noise === undefined ? "auto" : rounded(100 * a.noise, 6) },
    Version: constants.release.version,
    Device: device,
  };
}

/** What was done, in a sentence. @type {(a: Acquisition, constant: boolean, result: {steps: number, sharp: boolean}, guide?: {Name: string}, noise?: {Share: number}) => string} */
function description(a, constant, result, guide, noise) {
  if (atTarget(a)) return "Not rebuilt: the slices are at the target of DRIFT already.";
  if (constant) return "Not rebuilt: the scan is constant.";
  const ran = [`Super-resolved along the slice axis by ${ranBy()}`];
  ran.push(result.steps ? `${isDrawn(result) ? "sharp, " : ""}in ${eulerSteps(result.steps)}` : "stage 1 alone");
  if (guide) ran.push(`guided by ${guide.Name}`);
  if (noise) ran.push(`at ${f(100 * noise.Share, 1)}% noise`);
  return `${ran.join(", ")}: detail is ${detailOf(result)}, not measured.`;
}

/** The noise of the slices, and how much of it is left. @type {(scan: Scan, a: Acquisition, left: Volume, where: Volume) => {Share: number, [name: string]: any}} */
function noiseOf({ volume, affine }, a, left, where) {
  const [range, { deviation, widths }] = [intensityRange(volume), noiseIn(volume, affine, a)];
  return {
    ...{ Deviation: Number(g(deviation, 4)), Share: Number(g(deviation / (range.high - range.low), 4)), Widths: widths.map((width) => Number(width.toFixed(2))) },
    Source: a.noise === undefined ? "the slices" : "the option noise",
    Left: deviation ? Number(g(rms(left, where) / deviation, 3)) : null,
  };
}

/** The fact that the image's pixels are finer than the acquired ones, where they are by far. @type {(widths: number[]) => Record<string, [string, string]>} */
function acquired(widths) {
  const { ACQUIRED: [said, why], COARSE } = constants.facts;
  return Math.max(...widths) >= COARSE ? { "acquired pixels": [filled(said, widths), why] } : {};
}

/** How far flat tissue of the middle third is drawn out along the slice axis. @type {(scan: Scan, a: Acquisition, result: Volume) => object} */
function streakOf({ volume }, a, result) {
  const across = (a.sliceAxis + 1) % 3;
  const first = Math.floor(result.shape[across] / 3);
  const box = (/** @type {Volume} */ { shape }) =>
    shape.map((n, axis) => (axis === across ? [first, first + Math.ceil(n / 3)] : [0, n]));
  const [slices, fine] = [volume, result].map((one) => crop(one, box(one)));
  const { least, largest } = extremes(slices);
  if (least === largest) return { Ratio: null, Steps: null };
  const flat = flatTissue(map(cubic(slices, a), (x) => Math.max(x, least))); // its undershoot is no floor
  const [[ratio, steps], { low, high }] = [streak(fine, a.sliceAxis, flat), intensityRange(volume)];
  const [Ratio, Steps] = [ratio, steps / (high - low)].map((x) => (isNaN(x) ? null : rounded(Math.min(x, constants.facts.LARGEST_RATIO), 4)));
  return { Ratio, Steps };
}

/** A text by which results of one input differ. @type {(record: ReturnType<typeof describe>) => string} */
export const keyOf = ({ InputSHA256, Device, ...made }) => JSON.stringify(made); // files differ by how they were sent
