/** Names: the contrast that they say, for people and for the order of candidates. The tables of scripts/inputs/names.py. */
import constants from "../model/constants.js";

/** @type {any} */
const { AROUND, CHANGE, ENDS, SEQUENCES, WEIGHTINGS } = constants.names;
const BETWEEN = /[^\p{L}\p{N}_*]+|_+/u;

/** The words of a name, in small letters. @type {(name: string) => string[]} */
export function words(name) {
  const parts = name.normalize("NFC").split(BETWEEN).flatMap((one) => one.split(new RegExp(CHANGE)));
  return parts.filter(Boolean).map((one) => one.toLowerCase().replace(new RegExp(AROUND, "g"), ""));
}

/** The contrast that names say, the first of them first; empty where none does. @type {(...names: string[]) => string} */
export function contrastOf(...names) {
  const said = names.map(words);
  const find = (/** @type {Record<string, string[]>} */ table) =>
    said.flatMap((own) => Object.keys(table).filter((kind) => table[kind].some((one) => one.split(" ").every((word) => own.includes(word)))));
  return [WEIGHTINGS, SEQUENCES].flatMap(find)[0] ?? "";
}

/** @type {(name: string) => string} */
const begin = (name) => name.normalize("NFC").split(new RegExp(ENDS))[0];

/** The first token of a name; empty if it begins with a contrast. @type {(name: string) => string} */
export function firstToken(name) {
  const [token, ...others] = begin(name).split("-");
  const kind = others.findIndex((one) => contrastOf(one));
  const numbers = [token, ...(kind < 0 ? others : others.slice(0, kind))].join("-");
  return contrastOf(token) ? "" : numbers.replace(/(-\p{L}[^-]*)+$/u, "").toLowerCase();
}

/** A folder, or the one above where it is named after a contrast. @type {(folder: string) => string} */
export function placeOf(folder) {
  const parts = folder.split("/");
  while (parts.length && contrastOf(begin(parts[parts.length - 1]))) parts.pop();
  return parts.join("/");
}

/** How many words two names begin or end with alike. @type {(one: string[], other: string[]) => number} */
export const alike = (one, other) => Math.max(leading(one, other), leading(one.toReversed(), other.toReversed()));

/** @type {(one: string[], other: string[]) => number} */
function leading(one, other) {
  const apart = one.findIndex((word, k) => word !== other[k]);
  return apart < 0 ? one.length : apart;
}
