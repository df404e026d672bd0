/** Whose head a scan shows and by which contrast, and so its part beside another: the tables of scripts/inputs/{identity,weighting,roles}.py. */
import constants from "../model/constants.js";
import { g } from "../errors.js";
import { largestAxis, voxelSpacing } from "../stack/grid.js";
import { AXES } from "../stack/volume.js";
import { sidecar } from "./kinds.js";
import { agent, byTimes, ofProtocol, split, weighting, whole } from "./weighting.js";

/** @typedef {import("./kinds.js").Said} Said */
/** @typedef {import("./readers.js").Found} Found */
/** @typedef {{what: "guides" | "joins" | "is left alone", why: string, rank: number[]}} Role a scan's part beside another; of the least rank is the best guide */

/** @typedef {Record<"differing" | "people" | "channels" | "contrasts", Set<string>>} Beside what the names of a folder's volumes say together */

/** @type {any} */
const { BEST, ISOTROPIC, PARALLEL, SAME_REPETITION, SAME_TIME, THINNER, TIMES } = { ...constants.identity, ...constants.roles };
/** @type {any} */
const { BIDS_NAME, ENTITY, NUMBERED } = constants.weighting;

/** A patient's name and ID; empty where they are none. @type {(said: Said) => string[]} */
export const namesOf = (said) =>
  ["PatientName", "PatientID"].map((key) => (said(key)[0] ?? "").toUpperCase().split(/[\s^=]+/).join(" ").trim()).map((name) => (name === "NONE" ? "" : name));

/** By what a DICOM series says. @type {(said: Said) => Identity} */
export function ofSeries(said) {
  const one = (/** @type {string} */ key) => said(key)[0] ?? "";
  const [first, ...names] = ["SeriesDescription", "ProtocolName", "SequenceName"].map(one);
  const times = TIMES.map((/** @type {string} */ key) => (one(key) === "" ? NaN : Number(one(key))));
  const person = [namesOf(said).find(Boolean) ?? ""];
  const kind = weighting(first, names.join(" ")) || byTimes(times, said("ScanningSequence").join().includes("GR"));
  return { person, perhaps: person, session: one("StudyInstanceUID"), times, weighting: kind, agent: agent(one("ContrastBolusAgent"), first, ...names) };
}

/** By a file's folder, its name without its ending, its sidecar, the names beside it, and the root of its dataset.
 * @type {(folder: string, name: string, fields: Record<string, any>, beside: Beside, root: string | undefined) => Identity} */
export function ofFile(folder, name, fields, beside, root) {
  const times = TIMES.map((/** @type {string} */ key) => (fields[key] > 0 && fields[key] < 1e6 && typeof fields[key] === "number" ? 1000 * fields[key] : NaN));
  const names = whole(BIDS_NAME, name.toLowerCase()) ? [name] : [...described(fields), name];
  const { further, ...whose } = whoseOf(folder, name, fields, beside, root);
  const kind = weighting(...names) || further || byTimes(times, sidecar(fields)("ScanningSequence").join().includes("GR"));
  return { ...whose, times, weighting: kind, agent: agent(String(fields.ContrastBolusIngredient || ""), ...names) };
}

/** Person, session, and the weighting that folder or number say where the name says none. @type {(...given: Parameters<typeof ofFile>) => {person: string[], perhaps: string[], session: string, further: string}} */
function whoseOf(folder, name, fields, { differing, people, channels, contrasts }, root) {
  const is = (/** @type {string[]} */ person, perhaps = person, further = "") => ({ person, perhaps, session, further });
  const [above, ...within] = root === undefined ? [""] : ["", ...folder.slice(root.length).split("/")];
  const [subject, visit] = ["sub-", "ses-"].map((key) => within.find((part) => part.startsWith(key)) ?? above);
  const known = String(fields.PatientID || fields.PatientName || "");
  const session = subject ? visit : String(fields.StudyInstanceUID || "") || (/(?<![a-z\d])ses-[a-z0-9]+/.exec(name.toLowerCase())?.[0] ?? "");
  if (subject) return is([root ?? "", subject]);
  const [last, words, { rest, numbers }] = [folder.split("/").at(-1) ?? "", personOf(name, fields), apart(name)];
  const said = personOf(last, {}).length ? "" : weighting(last);
  const further = [...contrasts].every((one) => one === said) ? said : ""; // a folder T1 that holds a T2, too, is a time point
  if (known && fields.StudyInstanceUID) return is([known], [known], further);
  if (further) return is([folder.split("/").slice(0, -1).join("/"), known, ...words], undefined, further); // a folder for each contrast
  const tells = (/** @type {string} */ word) => (whole(NUMBERED, word) ? differing.has(whole(NUMBERED, word)?.[1] ?? "") : true);
  const [own, open] = [words, personOf(rest, fields)].map((one) => [folder, known, ...one.filter(tells)]);
  if (channels.has(rest) && !weighting(name)) return is(open, open, `channel ${Number(numbers.at(-1))}`);
  return is(own, people.has(personOf(rest, {}).join(" ")) ? own : open);
}

/** The words of a name that say whose head it is. @type {(name: string, fields: Record<string, any>) => string[]} */
function personOf(name, fields) {
  const bare = (/** @type {string} */ word) => word.replace(/^0+/, "");
  const protocol = split([...described(fields), fields.SeriesNumber ?? "None"].join(" ")).map(bare);
  const [low, subject] = [name.toLowerCase(), /^sub-[a-z0-9]+/.exec(name.toLowerCase())?.[0] ?? ""];
  const rest = whole(BIDS_NAME, low) ? "" : low.slice(subject.length).replace(new RegExp(ENTITY, "g"), "");
  const words = split(rest).filter((word) => !protocol.includes(bare(word)) && !ofProtocol(word));
  return subject ? [subject, ...words] : words;
}

/** Compares the names of a folder's volumes without their endings. @type {(names: string[]) => Beside} */
export function besideOf(names) {
  const [told, numbered] = [/** @type {Map<string, Set<string>>} */ (new Map()), /** @type {Map<string, Set<string>>} */ (new Map())];
  const [people, channels, contrasts] = [0, 0, 0].map(() => /** @type {Set<string>} */ (new Set()));
  const add = (/** @type {Map<string, Set<string>>} */ to, /** @type {string} */ key, /** @type {string} */ found) => to.set(key, (to.get(key) ?? new Set()).add(found));
  for (const name of names) {
    for (const one of split(name).map((word) => whole(NUMBERED, word))) if (one) add(numbered, one[1], one[0]);
    const [{ rest, numbers }, contrast] = [apart(name), weighting(name)];
    if (contrast) contrasts.add(contrast);
    else if (numbers.at(-1) === "0000" && /\d(?![\p{L}\p{N}_])/u.test(rest)) channels.add(rest);
    const person = personOf(rest, {}).join(" ");
    for (const [key, found] of contrast && numbers.length ? [[[person, ...numbers].join("/"), contrast], [rest, numbers.join("/")]] : []) {
      if ((add(told, key, found).get(key)?.size ?? 0) > 1) people.add(person);
    }
  }
  return { differing: new Set([...numbered].flatMap(([letters, words]) => (words.size > 1 ? [letters] : []))), people, channels, contrasts };
}

/** A name without the numbers that may be of a series, and these. @type {(name: string) => {rest: string, numbers: string[]}} */
function apart(name) {
  const subject = /^(?:sub-[a-z0-9]+)?/.exec(name.toLowerCase())?.[0] ?? "";
  const words = [...(subject ? [subject] : []), ...split(name.slice(subject.length))];
  let [numbers, rest, isAtEnd] = [/** @type {string[]} */ ([]), /** @type {string[]} */ ([]), true];
  for (let k = words.length - 1; k >= 0; k--) {
    const [word, before] = [words[k], k ? words[k - 1] : "0"];
    const isBehind = ofProtocol(before) ? isAtEnd : /\p{Nd}/u.test(before);
    if (isBehind && (isAtEnd || !k ? /^\p{Nd}+[a-z]?$/u : /^[1-9]\p{Nd}{0,2}$/u).test(word)) {
      numbers = [word, ...numbers];
    } else {
      rest = [word, ...rest];
      isAtEnd &&= whole(NUMBERED, word) !== null;
    }
  }
  return { rest: rest.join(" "), numbers };
}

/** @type {(fields: Record<string, any>) => string[]} */
const described = (fields) => ["SeriesDescription", "ProtocolName"].map((key) => String(fields[key] || ""));

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
  const isOne = (/** @type {"person" | "perhaps"} */ key) => one[key].join("/") === other[key].join("/");
  const [isNumbered, isOther] = [!isOne("person") && isOne("perhaps"), one.session !== other.session];
  if (!isOne("person") && !isNumbered && one.person[0] === other.person[0]) {
    const [words, others] = [other, one].map(({ person }) => person.slice(1).filter(Boolean).join(" ") || "nobody");
    return alone(`its name is of another person: ${words}, not ${others}`);
  }
  if ((!isOne("person") && !isNumbered) || (isOther && !other.session.startsWith("ses-"))) return alone("it is of another person, session or study");
  const [mine, edges] = [own, theirs].map(({ scan }) => voxelSpacing(scan.affine));
  const axes = [own, theirs].map(({ scan }, k) => scan.affine.map((row) => row.slice(0, 3).map((x, axis) => x / [mine, edges][k][axis])));
  const [thick, itsThick] = [largestAxis(mine), largestAxis(edges)];
  const near = AXES.map((axis) => Math.abs(AXES.reduce((sum, row) => sum + axes[0][row][thick] * axes[1][row][axis], 0)));
  const [why, isTurned, spacing] = [otherContrast(one, other), near[itsThick] < PARALLEL, mine[thick]];
  if (!why && !(one.weighting && other.weighting)) return alone("neither its name nor its header says that it is of another contrast");
  if (!why && isTurned && !isOther && !isNumbered) return { what: "joins", why: "it has the same contrast and another direction", rank: [] };
  if (!why) return alone(`it has the same contrast${isTurned ? "" : " and the same direction"}`);
  const [longest, shortest] = [Math.max(...edges), Math.min(...edges)];
  const rank = [BEST.includes(other.weighting) ? BEST.indexOf(other.weighting) : BEST.length, Number(other.agent ?? false)];
  const guides = (/** @type {number} */ kind, /** @type {string} */ sharp) => /** @type {Role} */ ({
    what: "guides",
    why: `${why}; ${sharp}${isOther ? `; it is of session ${other.session.slice(4)}` : isNumbered ? "; its number may be of a series" : ""}`,
    rank: [Number(isOther), Number(isNumbered), kind, ...rank],
  });
  if (longest <= ISOTROPIC * shortest && longest <= THINNER * spacing) return guides(0, `its voxels of ${g(longest, 2)} mm are isotropic`);
  if (isTurned && edges[near.indexOf(Math.max(...near))] <= THINNER * spacing) return guides(1, "its slices lie in another direction");
  if (!isTurned && edges[itsThick] <= THINNER * spacing) {
    return guides(2, `its slices are ${g(edges[itsThick], 2)} mm apart, not ${g(spacing, 2)} mm`);
  }
  return alone(`it is not sharp across the slices: ${g(edges[itsThick], 2)} mm apart`);
}
