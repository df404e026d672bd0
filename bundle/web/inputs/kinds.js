/** What an image shows, by its voxels, header, sidecar or name: the tables of scripts/inputs/kinds.py, and tests for its reasons. */
import constants from "../model/constants.js";
import { filled } from "../errors.js";
import { crop, indexAlong, strides } from "../stack/volume.js";

/** @typedef {(key: string) => string[]} Said values of an attribute, by its keyword or tag; none where it is missing */

/** @type {any} */
const { ALSO, BY_NAME, B_VALUES, CONTENTS, CONTRASTS, DESCRIBED, DIFFUSION_SERIES, ELSEWHERE, HEAD, MEASURES, OFFSET, SAYS } = constants.kinds;
const { GE_COMPONENT, GE_CREATOR, NOT_MAGNITUDE, SUFFIXES, UNITS, WEIGHTED } = constants.kinds;
const { CERTAIN, EQUAL, FEW, FEW_VALUES, LABEL_MAP, LARGEST, PROBABILITIES, SHOWN, SPARSE, SPM, SURE } = constants.kinds;

/** Why a volume is no scan, by its voxels; undefined for a scan, as its middle slice mostly says. @type {(volume: Volume, name: string) => string | undefined} */
export function ofVoxels(volume, name) {
  const { data, shape: [X, Y, Z] } = volume;
  const middle = crop(volume, [[0, X], [0, Y], [Z >> 1, (Z >> 1) + 1]]);
  if (middle.data.every(Number.isInteger)) {
    const isFew = new Set(middle.data).size <= FEW_VALUES;
    const count = isFew ? new Set(data).size : Infinity;
    if (count <= FEW_VALUES) return filled(FEW, { count });
    const isLabels = (isFew || equalNeighbours(middle) > EQUAL) && data.every(Number.isInteger) && equalNeighbours(volume) > EQUAL;
    return isLabels ? LABEL_MAP : undefined;
  }
  if (![middle, volume].every((one) => one.data.every((x) => x >= 0 && x <= LARGEST))) return undefined;
  const shown = data.filter((x) => x > SHOWN);
  const certain = shown.filter((x) => x > SURE).length / (shown.length || 1);
  return certain > CERTAIN || shown.length < SPARSE * data.length || new RegExp(`^${SPM}`, "i").test(name) ? PROBABILITIES : undefined;
}

/** The share of neighbours with one value, where not both are 0. @type {(volume: Volume) => number} */
function equalNeighbours({ data, shape }) {
  let [equal, pairs] = [0, 0];
  for (const [axis, step] of strides(shape).entries()) {
    const index = indexAlong(shape, axis);
    for (let k = 0; k < data.length; k++) {
      if (index(k) + 1 === shape[axis] || !(data[k] || data[k + step])) continue;
      equal += +(data[k] === data[k + step]);
      pairs++;
    }
  }
  return equal / Math.max(pairs, 1);
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
  return Object.keys(BY_NAME).find((why) => named(said, BY_NAME[why]));
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

/** Why a file shows no anatomy, by its name without the ending; undefined where that does not say so. @type {(stem: string) => string | undefined} */
export function ofName(stem) {
  const entities = stem.split("_");
  const suffix = entities.pop() ?? "";
  if (new RegExp(`^(${SUFFIXES})$`, "i").test(suffix) || entities.some((one) => NOT_MAGNITUDE.includes(one))) return "a mask, a map or a phase image";
  return WEIGHTED.includes(suffix) ? undefined : Object.keys(BY_NAME).find((why) => new RegExp(BY_NAME[why]).test(stem.toLowerCase()));
}
