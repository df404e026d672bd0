/** What an image shows, by its header or sidecar: the tables of scripts/inputs/kinds.py, and tests for its reasons. */
import constants from "../model/constants.js";
import { filled, refuse } from "../errors.js";
import { words } from "./names.js";

/** @typedef {(key: string) => string[]} Said values of an attribute, by its keyword or tag; none where it is missing */

/** @type {any} */
const { ALSO, B_VALUES, CONTENTS, CONTRASTS, DESCRIBED, DIFFUSION_SERIES, ELSEWHERE, HUMAN, MEASURES, OFFSET, REMARKS, SAYS, SLABS, TERMS } = constants.kinds;
const { FEW_SLICES, GE_COMPONENT, GE_CREATOR, INTENT, LABELS, LOCALIZER, SECONDS, STATISTIC, UNITS } = constants.kinds;
const { ELSEWHERE_CODES, ENHANCED } = constants.headers;
/** @type {string[]} */
const TIMES = constants.identity.TIMES;

/** A scan by the verdict on it: marked where it is doubtful, refused where it is none. @type {(scan: ReadScan, verdict: import("../stack/contents.js").Verdict) => ReadScan} */
export function judged(scan, { answer, why }) {
  refuse(answer === "none", `${scan.name} is skipped: ${why}.`);
  return answer === "a scan" ? scan : { ...scan, doubt: why, warnings: [...scan.warnings, filled(constants.kinds.MARK, [why])] };
}

/** Why a NIfTI file is no scan, by the intent code of its header. @type {(code: number) => string | undefined} */
export function ofIntent(code) {
  const what = STATISTIC.includes(code) ? "a statistic" : LABELS.includes(code) ? "labels, vectors or estimates" : "";
  return what ? filled(INTENT, [code, what]) : undefined;
}

/** Why a stack of so many slices is a localizer, by what its header or sidecar says. @type {(slices: number, said: Said) => string | undefined} */
export function localizer(slices, said) {
  const repetition = Number(said("RepetitionTime")[0] ?? 0);
  const isSlab = Object.entries(SLABS).some(([key, term]) => text(said, key) === term);
  return repetition > 0 && repetition <= SECONDS && slices <= FEW_SLICES && !isSlab ? filled(LOCALIZER, [slices, repetition]) : undefined;
}

/** The remark on names of which a word is a body part's or a map's; empty for none. @type {(...names: string[]) => string} */
export function remarkOn(...names) {
  const said = names.flatMap(words).map((word) => word.toUpperCase());
  const remarks = /** @type {[string, string[]][]} */ (Object.entries(REMARKS));
  return said.flatMap((word) => remarks.flatMap(([why, table]) => (table.includes(word) ? [filled(why, [word])] : [])))[0] ?? "";
}

/** A tag as dicom-parser writes it. @type {(tag: number[]) => string} */
const written = ([group, element]) => `x${(group * 65536 + element).toString(16).padStart(8, "0")}`;
/** @type {(said: Said, key: string) => string} */
const text = (said, key) => said(key).join("\\");

/** @type {(said: Said, keys: string[]) => string[]} */
const terms = (said, keys) => keys.flatMap(said).map((word) => word.toUpperCase().replace(/[^\p{L}\p{N}]/gu, ""));

/** @type {(among: string) => (said: Said) => boolean} */
const says = (among) => (said) => terms(said, TERMS).some((word) => among.split(" ").includes(word));

/** @type {(said: Said) => string} */
function mapsOf(said) {
  const [kind, ...further] = terms(said, ["ImageType"]);
  const isNamed = kind === "DERIVED" && !ENHANCED.includes(text(said, "SOPClassUID")); // there a word is the contrast
  const maps = further.filter((word) => MEASURES.includes(word) || word.endsWith("MAP"));
  return [...maps, ...further.filter((word) => isNamed && CONTRASTS.includes(word))].join(", ");
}

/** @type {(said: Said) => boolean} */
function isDiffusion(said) {
  const vendors = B_VALUES.filter((/** @type {any} */ [, [block, name]]) => text(said, written(block)) === name);
  const stated = ["DiffusionBValue", ...vendors.map((/** @type {any} */ [tag]) => written(tag))].map((key) => Number(said(key)[0]) % OFFSET);
  const sequence = /^\W*ep_b\d/.test(text(said, "SequenceName"));
  return stated.some((b) => b > 0) || sequence || says("DIFFUSION TRACE TRACEW")(said);
}

/** @type {(said: Said) => string | false} */
function elsewhere(said) {
  const part = text(said, "BodyPartExamined").toUpperCase();
  const isElsewhere = (part.match(/[A-Z]+/g) ?? []).some((word) => ELSEWHERE.includes(word) || word.endsWith("SPINE"));
  return isElsewhere && !/HEAD|BRAIN/.test(part) && part;
}

/** The meaning of the first code of a region, where none of them is of a head. @type {(said: Said) => string | false} */
function regionOf(said) {
  const codes = said("AnatomicRegionSequence").map((one) => one.split("|"));
  return codes.length > 0 && codes.every(([code]) => ELSEWHERE_CODES.includes(code)) && (codes[0][1] || codes[0][0]);
}

/** @type {Record<string, (said: Said) => string | boolean>} a reason of Python's -> its test; what it finds stands for {} */
const TESTS = {
  ...Object.fromEntries(Object.entries(SAYS).map(([why, among]) => [why, says(String(among))])),
  "phase, real or imaginary images, not magnitude": (said) =>
    ["1", "2", "3"].includes(text(said, written(GE_COMPONENT))) && text(said, written(GE_CREATOR)) === "GEMS_PARM_01",
  "parametric maps, not anatomy: {}": mapsOf,
  "a map in units of {}, not anatomy": (said) => UNITS.includes(text(said, "Units").toLowerCase()) && text(said, "Units"),
  [DIFFUSION_SERIES]: isDiffusion,
  "echo-planar images, as of functional or diffusion series": (said) =>
    (said("ScanningSequence").includes("EP") || text(said, "EchoPlanarPulseSequence") === "YES") && text(said, "MRAcquisitionType") !== "3D",
  "not a head: BodyPartExamined is {}": elsewhere,
  "not a head: AnatomicRegionSequence says {}": regionOf,
  "an animal, by PatientSpeciesCodeSequence": (said) => said("PatientSpeciesCodeSequence").some((one) => !HUMAN.includes(one.split(/[ |]/)[1])),
  "of a phantom or a quality control, by QualityControlImage": (said) => text(said, "QualityControlImage") === "YES",
};

/** Why an image shows something else than slices of a head, by its header; undefined if it does not say so. @type {(said: Said) => string | undefined} */
export function ofHeader(said) {
  for (const why of CONTENTS) {
    const found = TESTS[why](said);
    if (found) return filled(why, [found]);
  }
  return undefined;
}

/** One of Python's reasons why an image is no slice of MR. @type {(word: string) => string} */
export const reasonWith = (word) => constants.policies.OBJECTS.find((why) => why.includes(word)) ?? word;

/** What a sidecar says, as a header says it: times in ms. @type {(fields: Record<string, any>) => Said} */
export const sidecar = (fields) => (key) => {
  const found = fields[key] || fields[ALSO[key] ?? key] || [];
  const apart = { ImageType: /\\/, ScanningSequence: /[\\_/]/ }[key];
  const values = [typeof found === "string" && apart ? found.split(apart) : found].flat();
  return values.map((one) => String(TIMES.includes(key) ? 1000 * one : one));
};

/** Why a volume is no MR scan of a head, by the fields of its sidecar; undefined if they do not say so. @type {(fields: Record<string, any>) => string | undefined} */
export function ofSidecar(fields) {
  if (Object.entries(fields).some(([name, value]) => value && /^(NumberOf)?Diffusion/.test(name))) return DIFFUSION_SERIES;
  if (fields.Modality && fields.Modality !== "MR") return filled(reasonWith("modality"), [fields.Modality]);
  return ofHeader((key) => (DESCRIBED.includes(key) ? sidecar(fields)(key) : []));
}
