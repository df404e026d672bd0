/** What an image shows, by its voxels, header, sidecar or name: the tables of scripts/inputs/kinds.py, and tests for its reasons. */
import constants from "../model/constants.js";
import { g } from "../errors.js";
import { withoutSignal } from "../stack/intensity.js";
import { fromBorder } from "../stack/tissue.js";
import { crop, indexAlong, strides } from "../stack/volume.js";
import { ofProtocol, split, weighting, whole } from "./weighting.js";

/** @typedef {(key: string) => string[]} Said values of an attribute, by its keyword or tag; none where it is missing */

/** @typedef {{ answer: "a scan" | "none" | "doubtful", why: string }} Verdict what an image shows, and the evidence that it may be no scan of a head */

/** @type {any} */
const { ALSO, B_VALUES, CONTENTS, CONTRASTS, DESCRIBED, DIFFUSION_SERIES, ELSEWHERE, HEAD, MEASURES, OFFSET, SAYS } = constants.kinds;
const { DOUBTED, GE_COMPONENT, GE_CREATOR, INTENT, LABELS, LOCALIZER, OF_SCANS, SPM, STATISTIC, UNITS, WEIGHTED } = constants.kinds;
const { ABRUPT, ASIDE, BACKGROUND, EQUAL, EVEN, FAR, FEW_SLICES, FEW_VALUES, FOOT, GREYS, MIDDLE, NARROW, NEXT } = constants.kinds;
const { SECONDS, SHOWS, SMOOTH, SPARSE, TOP } = constants.kinds;
const CONTRAST = new RegExp(Object.values(constants.weighting.WEIGHTINGS).join("|"));

/** @type {Verdict} */
const SCAN = { answer: "a scan", why: "" };
/** @type {(why: string) => Verdict} */
export const none = (why) => ({ answer: "none", why });
/** @type {(why: string) => Verdict} */
const doubtful = (why) => ({ answer: "doubtful", why });

/** A doubtful scan, with its warning. @type {(scan: ReadScan, doubt: string) => ReadScan} */
export const marked = (scan, doubt) => ({ ...scan, doubt, warnings: [...scan.warnings, constants.kinds.MARK.replace("{}", doubt)] });

/** What a volume shows, by its voxels. @type {(volume: Volume) => Verdict} */
export function ofVoxels(volume) {
  const finite = volume.data.some((x) => !Number.isFinite(x)) ? volume.data.filter(Number.isFinite) : volume.data;
  if (finite.length === 0) return SCAN;
  const least = finite.length < volume.data.length ? finite.reduce((a, x) => Math.min(a, x), Infinity) : 0;
  const whole = finite === volume.data ? volume : { ...volume, data: volume.data.map((x) => (Number.isFinite(x) ? x : least)) };
  const block = middle(whole, (count) => [Math.floor(Math.max(0, count - MIDDLE) / 2), Math.min(count, MIDDLE)]);
  const sorted = block.data.slice().sort();
  const starts = Array.from(sorted.keys()).filter((k) => k === 0 || sorted[k] !== sorted[k - 1]);
  const values = Float32Array.from(starts, (k) => sorted[k]);
  if (values.length < FEW_VALUES) {
    const count = new Set(whole.data).size;
    if (count < FEW_VALUES) return none(SHOWS.few.replace("{}", String(count)));
  }
  const counts = starts.map((start, k) => (starts[k + 1] ?? sorted.length) - start);
  const common = counts.reduce((best, count, k) => (count > counts[best] ? k : best), 0);
  const share = () => whole.data.reduce((count, x) => count + +(x === values[common]), 0) / whole.data.length;
  if (counts[common] > SPARSE * sorted.length) return share() > SPARSE ? none(SHOWS.sparse) : SCAN;
  const others = sorted.filter((x) => x !== values[common]);
  const { equal, following, beside, step } = neighbours(block, values, common);
  if (equal > EQUAL && following < NEXT) return none(SHOWS.labels);
  const mean = others.reduce((sum, x) => sum + x, 0) / others.length;
  if (step < SMOOTH * Math.sqrt(others.reduce((sum, x) => sum + (x - mean) ** 2, 0) / others.length)) return none(SHOWS.field);
  const [low, high] = [0.01, 0.99].map((part) => at(others, part));
  const [short, long] = [high - values[common], values[common] - low].sort((a, b) => a - b);
  if (beside < ABRUPT && short > EVEN * long && share() > BACKGROUND) return doubtful(SHOWS.statistic);
  if (values.length < GREYS) return SCAN;
  const inner = middle(block, (count) => [Math.floor(count / 3), count - 2 * Math.floor(count / 3)]).data.sort();
  const [first, tissue, third] = [0.25, 0.5, 0.75].map((part) => at(inner, part));
  const of = (/** @type {(x: number) => boolean} */ test) => others.reduce((count, x) => count + +test(x), 0) / others.length;
  const reach = FAR * (high - low);
  const isCT = third - first < NARROW * (high - low) && Math.min(of((x) => x < tissue - reach), of((x) => x > tissue + reach)) > ASIDE;
  if (isCT) return doubtful(SHOWS.ct);
  const unit = (/** @type {number} */ x) => (x - others[0]) / (others[others.length - 1] - others[0]);
  const isBothEnds = common === 0 && of((x) => unit(x) < 0.2) > FOOT && of((x) => unit(x) > 0.95) > TOP;
  return isBothEnds ? doubtful(SHOWS.probabilities) : SCAN;
}

/** A part of a volume, by the start and the count along each axis. @type {(volume: Volume, part: (count: number) => number[]) => Volume} */
const middle = (volume, part) => crop(volume, /** @type {any} */ (volume.shape.map(part).map(([start, count]) => [start, start + count])));

/** Of sorted numbers. @type {(sorted: ArrayLike<number>, part: number) => number} */
const at = (sorted, part) => sorted[Math.floor(part * (sorted.length - 1))];

/** Along the axis where second most neighbours are equal: their share, and that of next values among the others; that of next values beside the commonest; the largest mean step.
 * @type {(volume: Volume, values: Float32Array, common: number) => { equal: number, following: number, beside: number, step: number }} */
function neighbours({ data, shape }, values, common) {
  const ranks = Int32Array.from(data, (x) => place(values, x));
  let [step, edges, near] = [0, 0, 0];
  const found = [[0, 1], [0, 1]];
  for (const [axis, stride] of strides(shape).entries()) {
    if (shape[axis] < 2) continue;
    const index = indexAlong(shape, axis);
    let [pairs, same, unequal, next, within, steps] = [0, 0, 0, 0, 0, 0];
    for (let k = 0; k < data.length; k++) {
      const [one, other] = [ranks[k], ranks[k + stride]];
      if (index(k) + 1 === shape[axis] || (one === common && other === common)) continue;
      const apart = Math.abs(one - other);
      pairs++;
      same += +(apart === 0);
      if (one === common || other === common) {
        edges++;
        near += +(apart === 1);
        continue;
      }
      within++;
      steps += Math.abs(data[k] - data[k + stride]);
      unequal += +(apart > 0);
      next += +(apart === 1);
    }
    found.push([same / (pairs || 1), next / (unequal || 1)]);
    step = Math.max(step, steps / (within || 1));
  }
  const [equal, following] = found.sort(([a, b], [c, d]) => c - a || d - b)[1];
  return { equal, following, beside: near / (edges || 1), step };
}

/** The place of a number among sorted ones. @type {(sorted: Float32Array, x: number) => number} */
function place(sorted, x) {
  let [low, high] = [0, sorted.length - 1];
  while (low < high) {
    const k = (low + high) >> 1;
    if (sorted[k] < x) low = k + 1;
    else high = k;
  }
  return low;
}

/** Why a NIfTI file is no scan, by the intent code of its header. @type {(code: number) => string | undefined} */
export function ofIntent(code) {
  const [isStatistic, isLabel] = [STATISTIC, LABELS].map((codes) => codes.includes(code));
  if (!isStatistic && !isLabel) return undefined;
  return INTENT.replace("{}", String(code)).replace("{}", isStatistic ? "a statistic" : "labels, vectors or estimates");
}

/** Why a stack is a localizer, by its protocol; the repetition time in ms. @type {(slices: number, repetition: number) => string | undefined} */
export const localizer = (slices, repetition) =>
  repetition > 0 && repetition <= SECONDS && slices <= FEW_SLICES
    ? LOCALIZER.replace("{}", String(slices)).replace(/\{.*?\}/, g(repetition, 3))
    : undefined;

/** The doubt that a name marks, of a file without its ending or of a series; empty where it marks none. @type {(name: string) => string} */
export function doubtOf(name) {
  if (WEIGHTED.includes(name.split("_").at(-1) ?? "")) return "";
  const tissue = new RegExp(`^(?:${SPM})`, "i").exec(name);
  if (tissue) return `its name begins with '${tissue[0]}', as those of tissue maps do`;
  const words = ["", ...split(name), ""];
  const named = Math.max(words.findLastIndex((word) => ofProtocol(word) && CONTRAST.test(word)), 0);
  const behind = [...words.keys()].slice(named + 1, -1).filter((k) => !/^\p{Nd}+$/u.test(words[k]));
  for (const k of named ? behind.filter((one) => !ofProtocol(words[one])).slice(-1) : behind) {
    const found = whole(`(${DOUBTED})(\\d*)`, words[k]);
    if (!found || whole(OF_SCANS, words[k - 1])) continue;
    const number = found.at(-1) || (/^\d+$/.test(words[k + 1]) ? words[k + 1] : "");
    if (!(weighting(name) && number.length > 1) && !(found[1] === "sub" && words[k + 1])) return `its name says '${found[1]}'`;
  }
  return "";
}

/** What voxels and a name show, where no standard settles it. Two doubts together are none. @type {(volume: Volume, name: string) => Verdict} */
export function byContents(volume, name) {
  const [byVoxels, byName] = [ofVoxels(volume), doubtOf(name)];
  if (byVoxels.answer === "none" || !byName) return byVoxels;
  const why = withoutNan(volume).data.some(Number.isNaN) ? "it has NaN voxels within" : byVoxels.why;
  return why ? none(`${byName}, and ${why}`) : doubtful(byName);
}

/** A volume whose background is no signal where it was NaN. More NaN than a few pockets within the head stay. @type {(volume: Volume) => Volume} */
export function withoutNan(volume) {
  const nan = volume.data.reduce((count, x) => count + +Number.isNaN(x), 0);
  if (nan === 0 || nan === volume.data.length) return volume;
  const outside = fromBorder((place) => Number.isNaN(volume.data[place]), volume.shape, [0, 1, 2]);
  const background = outside.reduce((count, mark) => count + mark, 0);
  return nan - background > constants.transforms.POCKETS * background ? volume : withoutSignal(volume);
}

/** A tag as dicom-parser writes it. @type {(tag: number[]) => string} */
const written = ([group, element]) => `x${(group * 65536 + element).toString(16).padStart(8, "0")}`;
/** @type {(said: Said, key: string) => string} */
const text = (said, key) => said(key).join("\\");

/** @type {(said: Said) => string[]} */
const words = (said) =>
  ["ImageType", "ComplexImageComponent", "VolumeBasedCalculationTechnique"].flatMap(said).map((word) => word.toUpperCase().replace(/[^\p{L}\p{N}]/gu, ""));

/** @type {(among: string) => (said: Said) => boolean} */
const says = (among) => (said) => words(said).some((word) => among.split(" ").includes(word));

/** Whether the names that people gave a series speak of a kind of image. @type {(said: Said, pattern: string) => boolean} */
const named = (said, pattern) => ["SeriesDescription", "ProtocolName"].some((key) => new RegExp(pattern).test(text(said, key).toLowerCase()));

/** @type {(said: Said) => string} */
function mapsOf(said) {
  const [kind, ...further] = words(said);
  const maps = further.filter((word) => MEASURES.includes(word) || word.endsWith("MAP"));
  return [...maps, ...further.filter((word) => kind === "DERIVED" && CONTRASTS.includes(word))].join(", ");
}

/** @type {(said: Said) => boolean} */
function isDiffusion(said) {
  const vendors = B_VALUES.filter((/** @type {any} */ [, [block, name]]) => text(said, written(block)) === name);
  const stated = ["DiffusionBValue", ...vendors.map((/** @type {any} */ [tag]) => written(tag))].map((key) => Number(said(key)[0]) % OFFSET);
  const sequence = /^\W*ep_b\d/.test(text(said, "SequenceName"));
  return stated.some((b) => b > 0) || text(said, "AcquisitionContrast") === "DIFFUSION" || sequence || says("DIFFUSION TRACE TRACEW")(said);
}

/** @type {(said: Said) => string | false} */
function elsewhere(said) {
  const part = text(said, "BodyPartExamined").toUpperCase();
  const isElsewhere = (part.match(/[A-Z]+/g) ?? []).some((word) => ELSEWHERE.includes(word) || word.endsWith("SPINE"));
  return isElsewhere && !named(said, HEAD) && !/HEAD|BRAIN/.test(part) && part;
}

/** @type {Record<string, (said: Said) => string | boolean>} a reason of Python's -> its test; what it finds stands for {} */
const TESTS = {
  ...Object.fromEntries(Object.entries(SAYS).map(([why, among]) => [why, says(String(among))])),
  "phase, real or imaginary images, not magnitude": (said) =>
    ["1", "2", "3"].includes(text(said, written(GE_COMPONENT))) && text(said, written(GE_CREATOR)) === "GEMS_PARM_01",
  "parametric maps, not anatomy: {}": mapsOf,
  "a map in units of {}, not anatomy": (said) => UNITS.includes(text(said, "Units").toLowerCase()) && text(said, "Units"),
  "perfusion images, not anatomy": (said) =>
    text(said, "ArterialSpinLabelingContrast") !== "" || words(said).includes("ASL") || text(said, "AcquisitionContrast") === "PERFUSION",
  [DIFFUSION_SERIES]: isDiffusion,
  "echo-planar images, as of functional or diffusion series": (said) =>
    (said("ScanningSequence").includes("EP") || text(said, "EchoPlanarPulseSequence") === "YES") && text(said, "MRAcquisitionType") !== "3D",
  "not a head: BodyPartExamined is {}": elsewhere,
};

/** Why an image shows something else than slices of a head, by its header; undefined if it does not say so. @type {(said: Said) => string | undefined} */
export function ofHeader(said) {
  for (const why of CONTENTS) {
    const found = TESTS[why](said);
    if (found) return why.replace("{}", String(found));
  }
  return undefined;
}

/** One of Python's reasons why an image is no slice of MR. @type {(word: string) => string} */
export const reasonWith = (word) => constants.policies.OBJECTS.find((why) => why.includes(word)) ?? word;

/** What a sidecar says, as a header says it. @type {(fields: Record<string, any>) => Said} */
export const sidecar = (fields) => (key) => {
  const found = DESCRIBED.includes(key) ? fields[key] || fields[ALSO[key] ?? key] : undefined;
  const apart = { ImageType: /\\/, ScanningSequence: /[\\_/]/ }[key];
  return found ? [typeof found === "string" && apart ? found.split(apart) : found].flat().map(String) : [];
};

/** Why a volume is no MR scan of a head, by the fields of its sidecar; undefined if they do not say so. @type {(fields: Record<string, any>) => string | undefined} */
export function ofSidecar(fields) {
  if (Object.entries(fields).some(([name, value]) => value && /^(NumberOf)?Diffusion/.test(name))) return DIFFUSION_SERIES;
  return fields.Modality && fields.Modality !== "MR" ? reasonWith("modality").replace("{}", fields.Modality) : ofHeader(sidecar(fields));
}
