/** BIDS as a source: the dataset that a file belongs to, and the facts of its sidecars, see scripts/inputs/bids.py. */
import constants from "../model/constants.js";
import { InputError, reason } from "../errors.js";

/** The folder that a file lies in; empty where it is not known. @type {(file: NamedBytes) => string} */
export const folderOf = ({ path = "" }) => path.split("/").slice(0, -1).join("/");

/** @type {(folder: string, above: string) => boolean} */
const isWithin = (folder, above) => !above || `${folder}/`.startsWith(`${above}/`);

/** The root of the dataset that each of some files belongs to; undefined outside of one. @type {(files: NamedBytes[]) => (file: NamedBytes) => string | undefined} */
export function rootsOf(files) {
  const roots = files.filter(({ name }) => name === constants.bids.DESCRIPTION).map(folderOf).sort((a, b) => b.length - a.length);
  return (file) => roots.find((root) => isWithin(folderOf(file), root));
}

/** JSON sidecars of a file, by its name without its ending, the nearest first; in a dataset those of upper folders, too, that have its suffix and no entity that it lacks.
 * @type {(file: NamedBytes, stem: string, files: NamedBytes[], root: string | undefined) => NamedBytes[]} */
export function sidecarsOf(file, stem, files, root) {
  const [folder, parts] = [folderOf(file), stem.split("_")];
  const isOwn = (/** @type {NamedBytes} */ one) => one.name === `${stem}.json` && folderOf(one) === folder;
  const isInherited = (/** @type {NamedBytes} */ one) => {
    const theirs = one.name.slice(0, -".json".length).split("_");
    return theirs.at(-1) === parts.at(-1) && theirs.every((part) => parts.includes(part)) && isWithin(folder, folderOf(one)) && isWithin(folderOf(one), root ?? "");
  };
  const found = files.filter((one) => one.name.endsWith(".json") && (isOwn(one) || (root !== undefined && isInherited(one))));
  return found.sort((a, b) => +isOwn(b) - +isOwn(a) || folderOf(b).length - folderOf(a).length || (a.name < b.name ? -1 : 1));
}

/** A file's text: UTF-8, else Latin-1, which older converters write. @type {(bytes: Uint8Array) => string} */
function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes); // without a byte-order mark
  } catch {
    return new TextDecoder("latin1").decode(bytes);
  }
}

/** What a sidecar says. Lists of one number, as of one for each slice, become that number. @type {(file: NamedBytes) => Record<string, any>} */
export function fieldsOf({ name, bytes }) {
  const isOne = (/** @type {any} */ value) => Array.isArray(value) && typeof value[0] === "number" && value.every((one) => one === value[0]);
  try {
    const said = Object.entries(JSON.parse(textOf(bytes))).filter(([, value]) => value !== null);
    return Object.fromEntries(said.map(([key, value]) => [key, isOne(value) ? /** @type {any} */ (value)[0] : value]));
  } catch (error) {
    throw new InputError(`${name} cannot be read (${reason(error)}). Mend it, or remove it.`);
  }
}
