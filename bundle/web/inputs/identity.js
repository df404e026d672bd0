/** Whose head a scan shows and by which contrast, and so its part beside another: the tables of scripts/inputs/{identity,weighting,roles}.py. */
import constants from "../model/constants.js";
import { g } from "../errors.js";
import { largestAxis, voxelSpacing } from "../stack/grid.js";
import { AXES } from "../stack/volume.js";
import { sidecar } from "./kinds.js";

/** @typedef {import("./kinds.js").Said} Said */
/** @typedef {import("./readers.js").Found} Found */
/** @typedef {{what: "guides" | "joins" | "is left alone", why: string, rank: number[]}} Role a scan's part beside another; of the least rank is the best guide */

/** @type {any} */
const { AGENT, BEST, ELSEWHERE, ENTITY, ISOTROPIC, NO_AGENT, PARALLEL, PROTOCOL, SAME_REPETITION, SAME_TIME, SEQUENCES, THINNER, WEIGHTINGS } =
  { ...constants.identity, ...constants.weighting, ...constants.roles };

/** By what a DICOM series says. @type {(said: Said) => Identity} */
export function ofSeries(said) {
  const one = (/** @type {string} */ key) => said(key)[0] ?? "";
  const whose = ["PatientName", "PatientID"].map((key) => one(key).toUpperCase().split(/[\s^=]+/).join(" ").trim());
  const names = ["SeriesDescription", "ProtocolName", "SequenceName"].map(one).join(" ");
  const times = ["EchoTime", "InversionTime", "RepetitionTime"].map((key) => (one(key) === "" ? NaN : Number(one(key))));
  const person = whose.find((name) => !["", "NONE"].includes(name)) ?? "";
  return { person: [person], session: one("StudyInstanceUID"), times, ...contrastOf(one("SeriesDescription"), names, one("ContrastBolusAgent"), times, said("ScanningSequence")) };
}

/** By a file's name without its ending, and its sidecar. @type {(stem: string, fields: Record<string, any>) => Identity} */
export function ofFile(stem, fields) {
  const times = ["EchoTime", "InversionTime", "RepetitionTime"].map((key) => (typeof fields[key] === "number" ? 1000 * fields[key] : NaN));
  const [name, said] = [stem.toLowerCase(), ["SeriesDescription", "ProtocolName"].map((key) => fields[key] ?? "").join(" ")];
  const kept = name.replace(new RegExp(ENTITY, "g"), (entity) => {
    const [key, label] = entity.split("-");
    return key === "ce" ? `ce ${label}` : key === "acq" ? label : "";
  });
  const known = split(`${said} ${fields.SeriesNumber ?? ""}`.toLowerCase());
  const isPerson = (/** @type {string} */ word) => !known.includes(word) && !new RegExp(`^(${PROTOCOL})$`).test(word) && !namesContrast(word);
  const person = split(name.replace(new RegExp(ENTITY, "g"), "")).filter(isPerson);
  return { person, session: "", times, ...contrastOf(said, kept, String(fields.ContrastBolusIngredient ?? ""), times, sidecar(fields)("ScanningSequence")) };
}

/** @type {(name: string) => string[]} */
const split = (name) => name.split(/[^\w*+]+|_+/).filter(Boolean);
/** @type {(word: string) => boolean} */
const namesContrast = (word) => [WEIGHTINGS, SEQUENCES].some((table) => Object.values(table).some((words) => new RegExp(words).test(word)));

/** Weighting, by the description, else by other names, else by the times in ms; and whether an agent was given.
 * @type {(description: string, named: string, agent: string, times: number[], sequence: string[]) => {weighting: string, agent: boolean | undefined}} */
function contrastOf(description, named, agent, times, sequence) {
  const separated = (/** @type {string} */ name) => name.toLowerCase().replace(/[\s_.-]+/g, " ");
  const said = [description, named].map((one) => separated(separated(one).replace(new RegExp(ELSEWHERE, "g"), "")));
  const found = [WEIGHTINGS, SEQUENCES].flatMap((table) =>
    said.flatMap((one) => Object.keys(table).filter((name) => new RegExp(table[name]).test(one))),
  );
  const [both, isNamed] = [said.join(" "), !["", "none", "no"].includes(agent.trim().toLowerCase())];
  const given = isNamed ? true : new RegExp(NO_AGENT).test(both) ? false : new RegExp(AGENT).test(both) ? true : undefined;
  return { weighting: found[0] ?? byTimes(times, sequence.join().includes("GR")), agent: given };
}

/** The weighting by echo, inversion and repetition time in ms, where they leave no doubt. @type {(times: number[], isGradient: boolean) => string} */
function byTimes([echo, inversion, repetition], isGradient) {
  if (inversion > 1500 && echo > 60) return "FLAIR";
  if (echo < 15 && inversion > 300 && inversion < 1500) return "T1w";
  if (isGradient || inversion > 0) return "";
  if (echo < 30 && repetition < 1000) return "T1w";
  return echo > 70 && repetition > 2000 ? "T2w" : "";
}

/** Why two scans are not of one contrast; undefined where headers and names leave it open. @type {(one: Identity, other: Identity) => string | undefined} */
function otherContrast(one, other) {
  if (one.weighting && other.weighting && one.weighting !== other.weighting) return `one is ${one.weighting}, the other ${other.weighting}`;
  if (Boolean(one.agent) !== Boolean(other.agent)) return "a contrast agent was given before one of them";
  for (const [k, [name, limit]] of /** @type {[string, number][]} */ ([["echo", SAME_TIME], ["inversion", SAME_TIME], ["repetition", SAME_REPETITION]]).entries()) {
    const [least, most] = [one.times[k], other.times[k]].sort((a, b) => a - b);
    if (most > limit * least) return `their ${name} times are ${g(least)} and ${g(most)} ms`;
  }
  const isInverted = [one, other].map(({ times }) => !Number.isNaN(times[1]));
  return isInverted[0] !== isInverted[1] && Number.isFinite(one.times[0] + other.times[0]) ? "one has an inversion time, the other none" : undefined;
}

/** A scan's part beside one of thick slices: another contrast that is sharp along the slices guides them. @type {(own: Found, theirs: Found) => Role} */
export function role(own, theirs) {
  const alone = (/** @type {string} */ why) => /** @type {Role} */ ({ what: "is left alone", why, rank: [] });
  const [one, other] = [own.identity, theirs.identity];
  const isSame = one.person.join(" ") === other.person.join(" ") && one.session === other.session;
  if (!isSame) return alone("it is of another person, session or study");
  const [mine, edges] = [own, theirs].map(({ scan }) => voxelSpacing(scan.affine));
  const axes = [own, theirs].map(({ scan }, k) => scan.affine.map((row) => row.slice(0, 3).map((x, axis) => x / [mine, edges][k][axis])));
  const [thick, itsThick] = [largestAxis(mine), largestAxis(edges)];
  const near = AXES.map((axis) => Math.abs(AXES.reduce((sum, row) => sum + axes[0][row][thick] * axes[1][row][axis], 0)));
  const [why, isTurned, spacing] = [otherContrast(one, other), near[itsThick] < PARALLEL, mine[thick]];
  if (!why && !(one.weighting && other.weighting)) return alone("neither its name nor its header says that it is of another contrast");
  if (!why && isTurned) return { what: "joins", why: "it has the same contrast and another direction", rank: [] };
  if (!why) return alone("it has the same contrast and the same direction");
  const [longest, shortest] = [Math.max(...edges), Math.min(...edges)];
  const rank = [BEST.includes(other.weighting) ? BEST.indexOf(other.weighting) : BEST.length, Number(other.agent ?? false)];
  const guides = (/** @type {number} */ kind, /** @type {string} */ sharp) => /** @type {Role} */ ({ what: "guides", why: `${why}; ${sharp}`, rank: [kind, ...rank] });
  if (longest <= ISOTROPIC * shortest && longest <= THINNER * spacing) return guides(0, `its voxels of ${g(longest, 2)} mm are isotropic`);
  if (isTurned && edges[near.indexOf(Math.max(...near))] <= THINNER * spacing) return guides(1, "its slices lie in another direction");
  if (!isTurned && edges[itsThick] <= THINNER * spacing) {
    return guides(2, `its slices are ${g(edges[itsThick], 2)} mm apart, not ${g(spacing, 2)} mm`);
  }
  return alone(`it is not sharp across the slices: ${g(edges[itsThick], 2)} mm apart`);
}
