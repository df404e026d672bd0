/** Whose head a scan shows and by which contrast: the tables of scripts/inputs/{identity,names}.py. */
import constants from "../model/constants.js";
import { filled, g } from "../errors.js";
import { stem } from "../files.js";
import { remarkOn } from "./kinds.js";
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

/** What a header or the fields of a sidecar say of a contrast, and what is shown of it; times in ms, of a sidecar's in s.
 * @type {(said: Said, stated: string[], source: string, names: string[], scale: number) => Omit<Identity, "head" | "session" | "words" | "folder">} */
function contrastBy(said, stated, source, names, scale) {
  const times = TIMES.map((/** @type {string} */ key) => scale * (said(key).length === 1 && said(key)[0] ? Number(said(key)[0]) : NaN));
  const label = stated.find((one) => one.startsWith("ce-"))?.slice(3) ?? "";
  return { times, stated, shows: shownBy(contrastOf(stated[0] ?? ""), source, names, times, said), agent: agentOf(said, label), fatSaturated: isFatSaturated(said) };
}

/** By what a DICOM series says. @type {(said: Said) => Identity} */
export function ofSeries(said) {
  const one = (/** @type {string} */ key) => said(key)[0] ?? "";
  const terms = [one("AcquisitionContrast"), ...(ENHANCED.includes(one("SOPClassUID")) ? said("ImageType").slice(2, 3) : [])];
  const stated = terms.flatMap((term) => ACQUIRED[term] ?? []).slice(0, 1);
  const names = [one("SeriesDescription"), `${one("ProtocolName")} ${one("SequenceName")}`];
  const head = [namesOf(said).find(Boolean) ?? "", one("StudyInstanceUID")];
  return { head, session: "", words: [], folder: "", ...contrastBy(said, stated, "the header", names, 1) };
}

/** By a file's folder, its name without its ending, its sidecar, the names beside it, and the root of its dataset.
 * @type {(folder: string, name: string, fields: Record<string, any>, beside: string[], root: string | undefined) => Identity} */
export function ofFile(folder, name, fields, beside, root) {
  const said = (/** @type {string} */ key) => [fields[key] || []].flat().map(String);
  const [subject, one] = [subjectOf(folder, name, root), (/** @type {string} */ key) => said(key)[0] ?? ""];
  const patient = [namesOf(said).find(Boolean) ?? "", one("StudyInstanceUID")];
  const [suffix, ...entities] = name.split("_").toReversed();
  const kept = entities.filter((one) => !["sub", "ses", "acq", "run"].includes(one.split("-")[0])).sort();
  const stated = subject && WEIGHTED.includes(suffix) ? [suffix, ...kept] : [];
  const last = placeOf(folder) === folder ? [] : [folder.split("/").at(-1) ?? ""];
  const facts = contrastBy(said, stated, "its suffix", [one("SeriesDescription"), one("ProtocolName"), name, ...last], 1000);
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
  const token = (/** @type {Found} */ { files }) => firstToken(stem(files[0].name));
  const place = (/** @type {Found} */ { identity }) => placeOf(identity.folder);
  const tokens = counted(loose.filter(token).map((one) => JSON.stringify([place(one), token(one)])));
  const shared = new Set([...tokens].flatMap(([key, count]) => (count > 1 ? [JSON.parse(key)[0]] : [])));
  const group = (/** @type {Found} */ one) => [place(one), shared.has(place(one)) ? token(one) : ""];
  const sizes = counted(loose.map((one) => JSON.stringify(group(one))));
  return (own) => {
    if (own.identity.head.length) return JSON.stringify(own.identity.head);
    const head = group(own);
    return JSON.stringify((sizes.get(JSON.stringify(head)) ?? 0) > MOST ? [...head, own.files[0].path ?? own.files[0].name] : head);
  };
}

/** A standard says the contrast, else times that contradict the name, else the name, else times.
 * @type {(stated: string, source: string, names: string[], times: number[], said: Said) => Identity["shows"]} */
function shownBy(stated, source, names, times, said) {
  const [named, timed, remark] = [contrastOf(...names), byTimes(times, said("ScanningSequence").join().includes("GR")), remarkOn(...names)];
  if (stated) return { contrast: stated, source, remark, named };
  if (timed && (DENIED[named] ?? "").split(" ").includes(timed)) {
    return { contrast: timed, source: "its times", remark: filled(REMARK, [named, timed]), named };
  }
  return { contrast: named || timed, source: named ? "its name" : timed ? "its times" : "", remark, named };
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
