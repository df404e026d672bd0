/** The weighting of a scan and its contrast agent, by words of names: the tables of scripts/inputs/weighting.py. */
import constants from "../model/constants.js";

/** @type {any} */
const { AGENT, BIDS_NAME, ENTITY, NO_AGENT, NUMBERED, PREFIX, SEQUENCES, SHORT, WEIGHTINGS } = constants.weighting;
const DECIMAL = /^\p{Nd}+$/u;

/** @type {(pattern: string, word: string) => RegExpExecArray | null} */
export const whole = (pattern, word) => new RegExp(`^(?:${pattern})$`).exec(word);
/** @type {(name: string) => string[]} */
export const split = (name) => {
  const said = name.toLowerCase().replaceAll("w/o", "without").replace(/(?<![a-z])da[-_ ]fl(?![a-z])/g, "dark-fluid");
  return said.split(/[^\p{L}\p{N}_*+]+|_+/u).filter(Boolean);
};
/** @type {(word: string) => boolean} */
export const ofProtocol = (word) => word.length < 40 && whole(constants.weighting.PROTOCOL, word) !== null;

/** The words of a name that speak of its contrast; `?` stands for any other. @type {(name: string) => string} */
function told(name) {
  const low = name.toLowerCase();
  const bids = whole(BIDS_NAME, low);
  const said = bids ? [...(low.match(/(?<=_)ce-[a-z0-9+]+/g) ?? []), bids[3]].join(" ") : low;
  const named = said.replace(new RegExp(ENTITY, "g"), (_, key, label) => (key === "acq" ? label : ""));
  const words = split(split(named).join(" ").replace(new RegExp(PREFIX), ""));
  const end = words.findIndex((word, k) => k > 0 && ["to", "in"].includes(word));
  const own = words.slice(0, end < 0 ? words.length : end).filter((word) => !DECIMAL.test(word));
  const plain = own.map((word) => whole(NUMBERED, word)?.[1] ?? word).filter((word) => !SHORT.includes(word));
  return plain.map((word) => (ofProtocol(word) ? word : "?")).join(" ");
}

/** The weighting that names say, the first of them first; empty where none does. @type {(...names: string[]) => string} */
export function weighting(...names) {
  const said = names.map(told);
  const find = (/** @type {Record<string, string>} */ table) => said.flatMap((words) => Object.keys(table).filter((kind) => new RegExp(table[kind]).test(words)));
  return [WEIGHTINGS, SEQUENCES].flatMap(find)[0] ?? "";
}

/** Whether a contrast agent was given, by its name in a header, else by the words of names. @type {(named: string, ...names: string[]) => boolean | undefined} */
export function agent(named, ...names) {
  if (!["", "none", "no"].includes(named.trim().toLowerCase())) return true;
  const said = names.map(told).join(" ");
  return new RegExp(NO_AGENT).test(said) ? false : new RegExp(AGENT).test(said) ? true : undefined;
}

/** The weighting by echo, inversion and repetition time in ms, where they leave no doubt. @type {(times: number[], isGradient: boolean) => string} */
export function byTimes([echo, inversion, repetition], isGradient) {
  if (inversion > 1500 && echo > 60) return "FLAIR";
  if (echo < 15 && inversion > 300 && inversion < 1500) return "T1w";
  if (isGradient || inversion > 0) return "";
  if (echo < 30 && repetition < 1000) return "T1w";
  return echo > 70 && repetition > 2000 ? "T2w" : "";
}
