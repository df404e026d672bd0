/** BIDS as a source: the dataset that a file belongs to, and the facts of its sidecars, see scripts/inputs/bids.py. */
import constants from "../model/constants.js";
import { InputError, reason } from "../errors.js";
import { folderOf, stem } from "../files.js";

const { DESCRIPTION, ELSEWHERE } = constants.bids;
const { NOT_MAGNITUDE, WEIGHTED } = constants.kinds;

/** @type {(folder: string, above: string) => boolean} */
const isWithin = (folder, above) => !above || `${folder}/`.startsWith(`${above}/`);

/** Roots of datasets, the inner ones first. @type {(files: NamedBytes[]) => string[]} */
export const rootsOf = (files) => files.filter(({ name }) => name === DESCRIPTION).map(folderOf).sort((a, b) => b.length - a.length);

/** The dataset that a file belongs to; undefined outside of one. @type {(file: NamedBytes, roots: string[]) => string | undefined} */
export const rootOf = (file, roots) => roots.find((root) => isWithin(folderOf(file), root));

/** Why a file is no scan to rebuild, by its place and name: in a dataset, of which all files are, or elsewhere a result; undefined where it may be one.
 * @type {(files: NamedBytes[], roots: string[]) => (file: NamedBytes) => string | undefined} */
export function namedNone(files, roots) {
  const root = roots.find((one) => files.every((file) => isWithin(folderOf(file), one)));
  return (file) => {
    const [suffix, ...entities] = stem(file.name).split("_").toReversed();
    if (root === undefined) return /_sr(_error)?$/.test(stem(file.name)) ? "its name ends in _sr, as those of results do" : undefined;
    if (!/^\/?sub-(.*\/)?anat$/.test(folderOf(file).slice(root.length)) || !file.name.startsWith("sub-")) return ELSEWHERE;
    if (entities.some((one) => NOT_MAGNITUDE.includes(one))) return "phase, real or imaginary images, not magnitude";
    return WEIGHTED.includes(suffix) ? undefined : `${suffix} is none of the suffixes that are taken: ${WEIGHTED.toSorted().join(", ")}`;
  };
}

/** JSON sidecars of a file, the nearest first; in a dataset those of upper folders, too, that have its suffix and no entity that it lacks.
 * @type {(file: NamedBytes, files: NamedBytes[], root: string | undefined) => NamedBytes[]} */
export function sidecarsOf(file, files, root) {
  const [folder, parts] = [folderOf(file), stem(file.name).split("_")];
  const isOwn = (/** @type {NamedBytes} */ one) => one.name === `${stem(file.name)}.json` && folderOf(one) === folder;
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
