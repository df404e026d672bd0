/** What a user gives: a NIfTI file, with its sidecar or without; DICOM images; a zip file of any of these. */
import constants from "../model/constants.js";
import { few, orSkip, refuse } from "../errors.js";
import { NIFTI, folderOf, stem, unzip } from "../files.js";
import { isThin } from "../stack/acquisition.js";
import { SCAN, none, ofVoxels } from "../stack/contents.js";
import { checkOrthogonal, voxelSpacing } from "../stack/grid.js";
import { checkFinite } from "../stack/intensity.js";
import { withoutNan } from "../stack/tissue.js";
import { fieldsOf, namedNone, rootOf, rootsOf, sidecarsOf } from "./bids.js";
import { readDicom } from "./dicom.js";
import { seen } from "./examination.js";
import { ofFile } from "./identity.js";
import { judged, localizer, ofIntent, ofSidecar, sidecar } from "./kinds.js";
import { readNifti } from "./nifti.js";

/** @typedef {{scan: ReadScan, files: NamedBytes[], identity: Identity, part: number}} Found a scan with its files; its number in its DICOM series, from 1, and 0 of other files */

/** The scans among files. What is left out is said with each of them. @type {(given: NamedBytes[], wasm?: () => Promise<Uint8Array>) => Promise<Found[]>} */
export async function findScans(given, wasm) {
  const skipped = /** @type {Set<string>} */ (new Set());
  const opened = given.map((file) => orSkip(() => (/\.zip$/i.test(file.name) ? unzip(file) : [file]), given.length > 1 ? skipped : undefined));
  const files = (await Promise.all(opened)).flat(2).filter(({ name }) => !name.startsWith("._"));
  const volumes = files.filter(({ name }) => NIFTI.test(name));
  const images = files.filter(({ bytes }) => String.fromCharCode(...bytes.subarray(128, 132)) === "DICM");
  refuse(files.length > 0 && files.every(({ bytes }) => !bytes.length), `${files[0]?.name} is empty. Copy or export it again.`);
  refuse(
    !volumes.length && !images.length,
    [...skipped].join(" ") ||
      `${given[0]?.name ?? "the folder"} is no scan that can be read: expected a name ending in .nii or .nii.gz, or DICOM. Unpack or convert it first.`,
  );
  const [roots, isAlone] = [rootsOf(files), volumes.length === 1 && !images.length];
  const whyNot = namedNone(files, roots);
  const isElsewhere = (/** @type {NamedBytes} */ one) => whyNot(one) === constants.bids.ELSEWHERE;
  const elsewhere = [...volumes, ...images].filter(isElsewhere).map(({ name }) => name);
  if (elsewhere.length) skipped.add(`Left out, since ${constants.bids.ELSEWHERE}: ${few(elsewhere)}.`);
  const scans = await readDicom(images.filter((one) => !isElsewhere(one)), skipped, wasm);
  for (const file of volumes.filter((one) => !isElsewhere(one))) {
    const read = () => {
      const why = isAlone ? undefined : whyNot(file);
      refuse(why !== undefined, `${file.name} is skipped: ${why}.`);
      return volumeOf(file, files, rootOf(file, roots), isAlone);
    };
    scans.push(...(await orSkip(read, isAlone ? undefined : skipped)));
  }
  const why = [...skipped].join(" ") || "Expected a whole DICOM series of MR.";
  refuse(!scans.length, `no thick-slice scan was found. ${why}${volumes.length ? " Give a scan alone." : ""}`);
  scans.forEach(({ scan, identity: { shows } }) => scan.warnings.push(...(shows.remark ? [shows.remark] : []), ...skipped));
  return scans;
}

/** A NIfTI file with its sidecars, in the root of its dataset, where it is of one. It is taken whatever it shows where it is given alone: a single one is asked for by name.
 * @type {(file: NamedBytes, files: NamedBytes[], root: string | undefined, isAlone: boolean) => Promise<Found>} */
async function volumeOf(file, files, root, isAlone) {
  const beside = files.filter((one) => folderOf(one) === folderOf(file)).map(({ name }) => name);
  const [name, names, sidecars] = [stem(file.name), beside.filter((one) => NIFTI.test(one)).map(stem), sidecarsOf(file, files, root)];
  const [scan, said] = [await readNifti(file), sidecars.map(fieldsOf)];
  for (const [fact, key] of Object.entries(constants.settle.NAMES)) {
    const k = said.findIndex((one) => key in one);
    if (k >= 0) scan.stated = { ...scan.stated, [fact]: [said[k][key], `the sidecar ${sidecars[k].name}`] };
  }
  const fields = Object.assign({}, ...said.toReversed());
  const verdict = isAlone ? SCAN : shown(scan, fields, beside.includes(`${name}.bval`));
  return { scan: judged(scan, verdict), files: [file, ...sidecars], identity: ofFile(folderOf(file), name, fields, names, root), part: 0 };
}

/** Those that are rebuilt, doubtful ones last: thin ones where no other is found. @type {(found: Found[]) => Found[]} */
export function thickOf(found) {
  const thick = found.filter(({ scan }) => isThick(scan));
  return [...(thick.length ? thick : found)].sort((a, b) => Number(!!a.scan.doubt) - Number(!!b.scan.doubt));
}

/** Refuses a file that is given alone and shows no scan by its voxels, such as a mask. @type {(found: Found[]) => void} */
export function checkLone([first, ...others]) {
  if (others.length) return;
  const { answer, why } = ofVoxels(first.scan.volume);
  refuse(answer === "none", `${first.scan.name} is ${why}. Give a scan of thick slices.`);
}

/** What guides a scan, of files that were given for that: of several, the best. @type {(own: Found, found: Found[]) => Found} */
export function guideOf(own, found) {
  if (found.length === 1) return found[0];
  const [{ other, role }] = seen(own, found, () => ""); // guides that were given lie anywhere
  refuse(!role.rank.length, `none of ${found.length} scans guides ${own.scan.name}. ${other.scan.name}: ${role.why}. Give a guide alone.`);
  return other;
}

/** A scan that can be rebuilt. @type {(found: Found) => Promise<Scan>} */
export async function taken({ scan, files }) {
  const volume = withoutNan(scan.volume);
  checkFinite(volume, scan.name);
  checkOrthogonal(scan.affine, scan.name);
  return { ...scan, volume, sources: files.map(({ name, path }) => path ?? name) };
}

/** What a volume shows: standards settle, voxels decide what these leave open. @type {(scan: ReadScan, fields: Record<string, any>, hasB: boolean) => import("../stack/contents.js").Verdict} */
function shown({ volume, intent }, fields, hasB) {
  if (hasB) return none("a diffusion series, whose b-values lie beside it");
  const said = ofSidecar(fields) ?? localizer(Math.min(...volume.shape), sidecar(fields));
  const settled = said ? `its sidecar says: ${said}` : ofIntent(intent ?? 0);
  return settled ? none(settled) : ofVoxels(volume);
}

/** @type {(scan: ReadScan) => boolean} */
function isThick({ affine, volume, stated }) {
  const [, pixel, spacing] = voxelSpacing(affine).sort((a, b) => a - b);
  return Math.min(...volume.shape) > 2 && !isThin(spacing, Number(stated.slice_thickness?.[0]) || 0, pixel);
}
