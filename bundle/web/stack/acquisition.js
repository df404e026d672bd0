/** How a stack of slices was acquired, settled once, see scripts/stack/acquisition.py. Messages are those of the command. */
import constants from "../model/constants.js";
import { InputError, f, g, refuse } from "../errors.js";
import { doubts as brightness } from "./brightness.js";
import { fineCount, largestAxis, voxelSpacing } from "./grid.js";
import { disorder, evened } from "./interleaving.js";
import { manyOdd, missingSlices, oddSlices, saidOf } from "./missing.js";
import { interpolated, sharpness, spacingIsLost } from "./spectra.js";
import { AXES, extremes, otherAxes } from "./volume.js";

const { SHORTEST, LONGEST, ROUNDING } = constants.acquisition;
const { PLAUSIBLE, CUBES, CUBE, FLAT, TALL, GUESSED, GUESS, NAMES } = constants.settle;
const { target_range, pixel_range, max_thickness, spacing_ratio } = constants.card;
const { MIN_SLICES, SAME_PLACE, SPACING_TOLERANCE } = constants.grid;
const { MOST_NOISE } = constants.preprocessing;

/** A length in mm that the user or a file gave. @type {(name: string, value: unknown, remedy: string) => number} */
export function length(name, value, remedy) {
  const number = ["number", "string"].includes(typeof value) && value !== "" ? Number(value) : NaN;
  if (number >= SHORTEST && number <= LONGEST) return number;
  const given = typeof value === "string" ? `'${value}'` : value;
  throw new InputError(`${name} is ${given}: expected ${g(SHORTEST)} to ${g(LONGEST)} mm. ${remedy}`);
}

/** The facts of a file, of which the lengths are numbers. Those that are as good as empty are left out: 0, no text, and a text with its unit.
 * @type {(scan: Scan, given: Options, warnings: string[]) => Scan["stated"]} */
function lengths({ name, stated }, given, warnings) {
  const found = { ...stated };
  for (const fact of /** @type {const} */ (["slice_thickness", "slice_spacing"])) {
    const [value, source] = /** @type {[unknown, string] | undefined} */ (stated[fact]) ?? [];
    if (value === undefined) continue;
    try {
      found[fact] = [length(`${name}: ${NAMES[fact]} of ${source}`, value, "Mend it, or remove it."), source ?? ""];
    } catch (error) {
      const isEmpty = value === 0 || (typeof value === "string" && /^(\s*|.*mm\s*)$/.test(value));
      if (fact === "slice_thickness" && !isEmpty && given.slice_thickness === undefined) throw error; // the user knows better
      warnings.push(`${NAMES[fact]} of ${source} is ${typeof value === "string" ? `'${value}'` : value}, which is no length. It is not used.`);
      delete found[fact];
    }
  }
  return found;
}

/** A warning where a file says another spacing of slices than its affine. @type {(spacing: number, stated: Scan["stated"]) => string[]} */
function denied(spacing, { slice_spacing: [said, source] = [spacing, ""] }) {
  if (Math.abs(said - spacing) <= Math.max(SPACING_TOLERANCE * spacing, SAME_PLACE)) return [];
  return [
    `SpacingBetweenSlices of ${source} is ${g(said, 4)} mm, but slices lie ${g(spacing, 4)} mm apart by their places, which is ` +
      `used. By the header the head is ${f(said / spacing, 2)} times as high. Check which is right, and that no slice is missing.`,
  ];
}

/** Whether slices need no rebuilding. @type {(spacing: number, thickness: number | undefined, pixel: number) => boolean} */
export const isThin = (spacing, thickness, pixel) =>
  Math.max(spacing, thickness ?? 0) <= ROUNDING * Math.max(...target_range, pixel);

/** Whether there is nothing to rebuild. @type {(a: Acquisition) => boolean} */
export const atTarget = (a) => Math.max(a.sliceSpacing, a.sliceThickness) <= a.targetSpacing;

/** Settles the facts of an acquisition, and says where each came from. @type {(scan: Scan, options: Options) => Acquisition} */
export function settle(scan, options) {
  const given = { ...options };
  const [{ name }, shape, spacing] = [scan, scan.volume.shape, voxelSpacing(scan.affine)];
  for (const [option, example] of /** @type {const} */ ([["slice_thickness", 5], ["target_thickness", 1]])) {
    if (given[option] !== undefined) given[option] = length(option, given[option], `Set it as in --${option} ${example}.`);
  }
  const [asked, warnings] = [given.slice_axis ?? 0, /** @type {string[]} */ ([])];
  const stated = lengths(scan, given, warnings);
  refuse(![0, 1, 2].includes(asked), `slice_axis is ${asked}: expected 0, 1 or 2, an axis of the voxel array.`);
  refuse(
    given.noise !== undefined && !(typeof given.noise === "number" && given.noise >= 0 && given.noise <= MOST_NOISE),
    `noise is ${typeof given.noise === "string" ? `'${given.noise}'` : given.noise}: expected auto, or 0 to ${g(MOST_NOISE)} % of the range of tissue. Set --noise.`,
  );
  const [axis, axisSource] = settleAxis(spacing, stated, given, warnings);
  refuse(
    shape[axis] < MIN_SLICES,
    `${name} has ${shape[axis]} slices along axis ${axis}: expected ${MIN_SLICES} or more. ` +
      "Set --slice_axis if the slices lie along another axis.",
  );
  const [sliceSpacing, pixels, largest] = [spacing[axis], otherAxes(axis).map((k) => spacing[k]), Math.max(...spacing)];
  const view = spacing.map((edge, k) => edge * shape[k]);
  if (view[axis] > TALL && Math.min(...view) < FLAT) {
    warnings.push(
      `the field of view is ${view.map((edge) => f(edge, 0)).join(" x ")} mm, which is none of a head: axis ` +
        `${view.indexOf(Math.min(...view))} of the array may be that of the slices. Give the array in the order of its affine.`,
    );
  }
  const [[low, high], finest] = [target_range, Math.min(...pixels)];
  const brought = low <= finest && finest <= high ? "" : `, ${g(finest, 3)} mm, brought into the trained ${g(low)} to ${g(high)} mm`;
  let [target, targetSource] = [given.target_thickness ?? Math.min(Math.max(finest, low), high), "given"];
  if (given.target_thickness === undefined) targetSource = `the finer in-plane spacing${brought}`;
  let [thickness, source] = settleThickness(axis, spacing, stated, given.slice_thickness, warnings);
  const thin = Math.max(thickness, sliceSpacing) <= ROUNDING * target;
  const implausible = given.slice_thickness === undefined && sliceSpacing < PLAUSIBLE * largest;
  refuse(
    given.slice_axis !== undefined && (thin || implausible) && largest > ROUNDING * target,
    `${name}: slice_axis is ${axis}, along which voxels are ${g(sliceSpacing, 3)} mm, no thick slices' spacing: ` +
      `expected their axis, such as ${largestAxis(spacing)}. Leave out --slice_axis.`,
  );
  refuse(
    axisSource === GUESSED && thickness > ROUNDING * sliceSpacing && !thin && Math.max(...pixels) > CUBES * sliceSpacing,
    `${name}: slices of ${g(thickness, 3)} mm overlap and voxels of ${spacing.map((edge) => g(edge, 3)).join(" x ")} mm are ` +
      "nearly cubes: no spacing tells along which axis the slices lie. Set --slice_axis to 0, 1 or 2.",
  );
  if (Math.abs(thickness - target) <= (ROUNDING - 1) * target) thickness = target;
  if (thin) {
    targetSource = "the slice spacing: nothing is to be rebuilt";
    if (thickness !== sliceSpacing) source = targetSource;
    thickness = target = sliceSpacing;
  } else warnings.push(...denied(sliceSpacing, stated), ...beyondTraining(thickness, source, sliceSpacing, pixels, target));
  refuse(
    thickness < target,
    `${name}: slice thickness ${g(thickness)} mm (${source}) is smaller than the target, ${g(target)} mm. ` +
      "Set --slice_thickness to the true thickness or --target_thickness to a smaller one.",
  );
  const { least, largest: most } = extremes(scan.volume);
  const isJudged = !thin && least < most;
  const why = isJudged ? disorder(scan.volume, axis) : "";
  refuse(!!why, `${name}: ${why}, or convert the series again.`);
  const [volume, uneven] = isJudged ? evened(scan.volume, axis) : [scan.volume, ""];
  const odd = thin ? new Map() : oddSlices(volume, axis);
  const missing = missingSlices(odd, shape[axis]);
  const facts = { sliceAxis: axis, sliceCount: shape[axis], sliceSpacing, sliceThickness: thickness, targetSpacing: target, missing, noise: given.noise === undefined ? undefined : given.noise / 100 };
  const sources = { slice_axis: axisSource, slice_spacing: "the affine", slice_thickness: source, target_spacing: targetSource };
  const bright = thin ? [] : brightness(volume);
  const all = [...scan.warnings, ...doubts(scan.volume, spacing, thin ? AXES : [axis]), ...bright, ...manyOdd(odd, missing, shape[axis]), ...saidOf(missing, shape[axis]), ...warnings, ...(uneven ? [uneven] : [])];
  return { ...facts, fineCount: fineCount(shape[axis], sliceSpacing, target), sources, warnings: all };
}

/** Why slices are not as thin as the header says, by what they show. @type {(volume: Volume, edges: number[], axes: number[]) => string[]} */
function doubts(volume, edges, axes) {
  const { least, largest } = extremes(volume);
  if (least === largest) return [];
  if (spacingIsLost(volume, edges)) return [`${constants.spectra.SPACING_LOST}. Mend its header.`];
  const [axis, spacing] = interpolated(sharpness(volume, edges), edges, axes) ?? [];
  if (spacing === undefined) return [];
  return [
    `its slices were interpolated along axis ${axis}: they show no more than ${g(spacing, 2)} mm slices do. Their ` +
      "--slice_spacing, with --slice_thickness where it is another, rebuilds them.",
  ];
}

/** The axis; one that a header names has the largest spacing, or a thickness speaks for it.
 * @type {(spacing: number[], stated: Scan["stated"], given: Options, warnings: string[]) => [number, string]} */
function settleAxis(spacing, stated, given, warnings) {
  if (given.slice_axis !== undefined) return [given.slice_axis, "given"];
  if (!stated.slice_axis) return [largestAxis(spacing), GUESSED];
  const [[axis, source], thickness] = [stated.slice_axis, given.slice_thickness ?? stated.slice_thickness?.[0] ?? NaN];
  const [largest, own, finest] = [Math.max(...spacing), spacing[axis], Math.min(...spacing)];
  const alike = Math.max(thickness, own) <= ROUNDING * Math.min(thickness, own) && own > ROUNDING * finest;
  if (own >= CUBE * largest || (own >= PLAUSIBLE * largest && (thickness > ROUNDING * largest || alike))) return [axis, source];
  warnings.push(
    `${source} names axis ${axis}, whose spacing of ${g(own, 3)} mm is no slice spacing: the axis of the largest ` +
      `spacing, ${g(largest, 3)} mm, is taken. Set --slice_axis if that is wrong.`,
  );
  return [largestAxis(spacing), GUESSED];
}

/** The thickness; another axis's is not taken.
 * @type {(axis: number, spacing: number[], stated: Scan["stated"], given: number | undefined, warnings: string[]) => [number, string]} */
function settleThickness(axis, spacing, stated, given, warnings) {
  const [thickness, source] = stated.slice_thickness ?? [undefined, ""];
  if (given !== undefined) {
    if (thickness !== undefined && Math.abs(thickness - given) > (ROUNDING - 1) * thickness) {
      warnings.push(`slice thickness ${g(given)} mm is given and used; ${source} says ${g(thickness)} mm.`);
    }
    return [given, "given"];
  }
  if (thickness === undefined) return [spacing[axis], GUESS];
  const pixels = otherAxes(axis).map((k) => spacing[k]);
  const ofPixels = pixels.some((pixel) => Math.max(pixel, thickness) <= ROUNDING * Math.min(pixel, thickness));
  if (stated.slice_axis?.[0] === axis || !ofPixels || thickness >= PLAUSIBLE * spacing[axis]) return [thickness, source];
  warnings.push(
    `${source} says that slices are ${g(thickness)} mm thick, as pixels are, but they lie ${g(spacing[axis], 3)} mm ` +
      "apart: it speaks of another axis, and is not used.",
  );
  return [spacing[axis], GUESS];
}

/** A warning for each fact that the weights have not seen; 1 % is rounding.
 * @type {(thickness: number, source: string, spacing: number, pixels: number[], target: number) => string[]} */
function beyondTraining(thickness, source, spacing, pixels, target) {
  const range = (/** @type {number[]} */ [low, high]) => `${g(low)} to ${g(high)}`;
  const beyond = (/** @type {number[]} */ lengths, /** @type {number[]} */ [low, high], rounding = ROUNDING) =>
    Math.min(...lengths) * rounding < low || Math.max(...lengths) > high * rounding;
  const [ratio, edges] = [spacing / thickness, pixels.map((pixel) => g(pixel, 3)).join(" x ")];
  return [
    beyond([target], target_range, 1) &&
      `target ${g(target)} mm is outside the ${range(target_range)} mm that the weights were trained for; expect blur or false detail.`,
    source === GUESS &&
      `nothing states the slice thickness: the slice spacing, ${g(spacing, 3)} mm, is taken for it. Set --slice_thickness ` +
        "where slices have gaps or overlap.",
    thickness > ROUNDING * max_thickness &&
      `slices of ${g(thickness, 3)} mm are thicker than the ${g(max_thickness)} mm that the weights were trained for; ` +
        "expect missing detail.",
    beyond(pixels, pixel_range) &&
      `pixels of ${edges} mm are outside the ${range(pixel_range)} mm that the weights were trained for; ` +
        "--isotropic resamples them to the target.",
    beyond([ratio], spacing_ratio) &&
      `slices of ${g(thickness, 3)} mm lie ${g(spacing, 3)} mm apart, ${f(ratio, 2)} times their thickness; the weights ` +
        `were trained for ${range(spacing_ratio)}.`,
  ].filter((warning) => warning !== false);
}
