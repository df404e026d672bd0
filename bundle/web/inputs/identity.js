/** Whose head a scan shows and by which contrast: the tables of scripts/inputs/{identity,names}.py. */
import constants from "../model/constants.js";
import { filled, g } from "../errors.js";
import { stem } from "../files.js";
import { remarkOn, sidecar } from "./kinds.js";
import { contrastOf, firstToken, placeOf, words } from "./names.js";

/** @typedef {import("./kinds.js").Said} Said */
/** @typedef {import("./readers.js").Found} Found */

/** @type {any} */
const { ACQUIRED, AGENTS, AMOUNTS, DENIED, NO, NO_VOLUME, REMARK, SAME_REPETITION, SAME_TIME, TIMES, UNEVEN } = constants.identity;
const { ENHANCED } = constants.headers;
const { WEIGHTED } = constants.kinds;
const { MOST } = constants.names;

/** A patient's name and ID; empty where they are none. @type {(said: Said) => string[]} */
export const namesOf = (said) =>
  ["PatientName", "PatientID"].map((key) => (said(key)[0] ?? "").toUpperCase().split(/[\s^=]+/).join(" ").trim()).map((name) => (name === "NONE" ? "" : name));

/** Patient and study. @type {(said: Said) => string[]} */
const headBy = (said) => [namesOf(said).find(Boolean) ?? "", said("StudyInstanceUID")[0] ?? ""];

/** What a header or a sidecar says of a contrast, and what is shown of it.
 * @type {(said: Said, stated: string[], names: string[]) => Omit<Identity, "head" | "session" | "words" | "folder">} */
function contrastBy(said, stated, names) {
  const times = TIMES.map((/** @type {string} */ key) => (said(key).length === 1 && said(key)[0] ? Number(said(key)[0]) : NaN));
  const label = stated.find((one) => one.startsWith("ce-"))?.slice(3) ?? "";
  return { times, stated, shows: shownBy(contrastOf(stated[0] ?? ""), names, times, said), agent: agentOf(said, label), fatSaturated: isFatSaturated(said) };
}

/** By what a DICOM series says. @type {(said: Said) => Identity} */
export function ofSeries(said) {
  const one = (/** @type {string} */ key) => said(key)[0] ?? "";
  const terms = [one("AcquisitionContrast"), ...(ENHANCED.includes(one("SOPClassUID")) ? said("ImageType").slice(2, 3) : [])];
  const stated = terms.flatMap((term) => ACQUIRED[term] ?? []).slice(0, 1);
  const names = [one("SeriesDescription"), `${one("ProtocolName")} ${one("SequenceName")}`];
  return { head: headBy(said), session: "", words: [], folder: "", ...contrastBy(said, stated, names) };
}

/** By a file's folder, its name without its ending, its sidecar, the names beside it, and the root of its dataset.
 * @type {(folder: string, name: string, fields: Record<string, any>, beside: string[], root: string | undefined) => Identity} */
export function ofFile(folder, name, fields, beside, root) {
  const [said, subject] = [sidecar(fields), subjectOf(folder, name, root)];
  const patient = headBy(said);
  const [suffix, ...entities] = name.split("_").toReversed();
  const kept = entities.filter((one) => !["sub", "ses", "acq", "run"].includes(one.split("-")[0])).sort();
  const stated = subject && WEIGHTED.includes(suffix) ? [suffix, ...kept] : [];
  const last = placeOf(folder) === folder ? [] : [folder.split("/").at(-1) ?? ""];
  const described = ["SeriesDescription", "ProtocolName"].map((key) => said(key)[0] ?? "");
  const facts = contrastBy(said, stated, [...described, name, ...last]);
  const twin = `${name.replace(/_Eq_\d+$/, "")}_Eq_1`;
  return {
    ...facts,
    head: subject ? [subject.where, subject.subject] : patient.every(Boolean) ? patient : [],
    session: subject?.session ?? "",
    shows: beside.includes(twin) ? { ...facts.shows, remark: filled(UNEVEN, [`${twin}.nii.gz`]) } : facts.shows,
    words: words(name).filter((word) => !contrastOf(word)),
    folder,
  };
}

/** The subject of a file, with its folder and its session, by folders of a dataset, or by a name as BIDS has it and folders.
 * @type {(folder: string, name: string, root: string | undefined) => {where: string, subject: string, session: string} | undefined} */
function subjectOf(folder, name, root) {
  const parts = folder.split("/");
  const inside = parts.slice(root === undefined ? -3 : root.split("/").filter(Boolean).length).filter(Boolean);
  const named = root === undefined ? /^(sub-[A-Za-z0-9]+)(?:_(ses-[A-Za-z0-9]+))?(?=_|$)/.exec(name) : null;
  const of = inside.findLast((part) => /^sub-[A-Za-z0-9]+$/.test(part));
  const visit = inside.findLast((part) => /^ses-[A-Za-z0-9]+$/.test(part)) ?? "";
  const above = parts.slice(0, parts.lastIndexOf(of ?? "")).join("/");
  if (named) return { where: of === named[1] ? above : placeOf(folder), subject: named[1], session: named[2] ?? visit };
  return of ? { where: above, subject: of, session: visit } : undefined;
}

/** The head of each of some scans: by standards, else the folder and the first token of the name, where two share one. No head has more than `MOST` files.
 * @type {(found: Found[]) => (one: Found) => string} */
export function headsOf(found) {
  const loose = found.filter(({ identity }) => !identity.head.length);
  const counted = (/** @type {string[]} */ keys) => keys.reduce((all, key) => all.set(key, (all.get(key) ?? 0) + 1), /** @type {Map<string, number>} */ (new Map()));
  const tokenOf = (/** @type {Found} */ { files }) => firstToken(stem(files[0].name));
  const key = (/** @type {Found} */ { identity }, /** @type {string} */ token) => JSON.stringify([placeOf(identity.folder), token]);
  const tokens = counted(loose.map((one) => key(one, tokenOf(one))));
  const isNamed = (/** @type {Found} */ one) => tokenOf(one) && Number(tokens.get(key(one, tokenOf(one)))) > 1;
  const shared = new Set(loose.filter(isNamed).map(({ identity }) => placeOf(identity.folder)));
  const group = (/** @type {Found} */ one) => key(one, shared.has(placeOf(one.identity.folder)) ? tokenOf(one) : "");
  const sizes = counted(loose.map(group));
  return (own) => {
    if (own.identity.head.length) return JSON.stringify(own.identity.head);
    return Number(sizes.get(group(own))) > MOST ? `${group(own)} ${own.files[0].path ?? own.files[0].name}` : group(own);
  };
}

/** A standard says the contrast, else times that contradict the name, else the name, else times.
 * @type {(stated: string, names: string[], times: number[], said: Said) => Identity["shows"]} */
function shownBy(stated, names, times, said) {
  const [named, timed, remark] = [contrastOf(...names), byTimes(times, said("ScanningSequence").join().includes("GR")), remarkOn(...names)];
  const isDenied = !stated && timed && (DENIED[named] ?? "").split(" ").includes(timed);
  return { contrast: stated || (isDenied ? timed : named || timed), remark: isDenied ? filled(REMARK, [named, timed]) : remark, named };
}

/** Whether an agent was given: by its code or amount, else by its name or an entity's label, unless it says no.
 * @type {(said: Said, label: string) => boolean} */
function agentOf(said, label) {
  if (said("ContrastBolusAgentSequence").length || AMOUNTS.some((/** @type {string} */ key) => Number(said(key)[0] || 0) > 0)) return true;
  const name = AGENTS.map((/** @type {string} */ key) => said(key)[0]).find(Boolean) ?? label;
  const letters = name.toLowerCase().replaceAll("/", "").match(/\p{L}+/gu) ?? [];
  return letters.length > 0 && !NO.includes(letters[0]) && !new RegExp(`^(?:${NO_VOLUME})`).test(name.trim());
}

/** @type {(said: Said) => boolean} */
function isFatSaturated(said) {
  const options = said("ScanOptions").flatMap((one) => one.toUpperCase().split(/[\\_]/));
  return options.includes("FS") || said("SpectrallySelectedSuppression").join().toUpperCase().includes("FAT");
}

/** The weighting by echo, inversion and repetition time in ms, where they leave no doubt. @type {(times: number[], isGradient: boolean) => string} */
export function byTimes([echo, inversion, repetition], isGradient) {
  if (inversion > 1500 && echo > 60) return "FLAIR";
  if (echo < 15 && inversion > 300 && inversion < 1500) return "T1w";
  if (isGradient || inversion > 0) return "";
  if (echo < 30 && repetition < 1000) return "T1w";
  return echo > 70 && repetition > 2000 ? "T2w" : "";
}

/** Why two scans are not of one contrast by standards; undefined where these leave it open. @type {(one: Identity, other: Identity) => string | undefined} */
export function otherContrast(one, other) {
  if (one.stated.length && other.stated.length && one.stated.join() !== other.stated.join()) return `one is ${one.stated.join(" ")}, the other ${other.stated.join(" ")}`;
  if (one.agent !== other.agent) return "a contrast agent was given before one of them";
  if (one.fatSaturated !== other.fatSaturated) return "one is fat-saturated, the other is not";
  for (const [k, [name, limit]] of /** @type {[string, number][]} */ ([["echo", SAME_TIME], ["inversion", SAME_TIME], ["repetition", SAME_REPETITION]]).entries()) {
    const [least, most] = [one.times[k], other.times[k]].sort((a, b) => a - b);
    if (most > limit * least) return `their ${name} times are ${g(least)} and ${g(most)} ms`;
  }
  const isInverted = [one, other].map(({ times }) => !Number.isNaN(times[1]));
  return isInverted[0] !== isInverted[1] && Number.isFinite(one.times[0] + other.times[0]) ? "one has an inversion time, the other none" : undefined;
}

/** Whether standards call two scans one contrast. @type {(one: Identity, other: Identity) => boolean} */
export function isOneContrast(one, other) {
  const byTime = [one, other].every(({ times }) => Number.isFinite(times[0] + times[2]));
  const bySuffix = WEIGHTED.includes(one.stated[0]) && one.stated.join() === other.stated.join();
  return (byTime || bySuffix) && otherContrast(one, other) === undefined;
}
