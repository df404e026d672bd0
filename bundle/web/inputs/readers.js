/** What a user gives: a NIfTI file, with its sidecar or without; DICOM images; a zip file of any of these. */
import { unzipSync } from "fflate";
import constants from "../model/constants.js";
import { InputError, g, reason, refuse } from "../errors.js";
import { isThin, length } from "../stack/acquisition.js";
import { shearAngle, voxelSpacing } from "../stack/grid.js";
import { intensityRange } from "../stack/intensity.js";
import { fromBorder } from "../stack/tissue.js";
import { map } from "../stack/volume.js";
import { readDicom } from "./dicom.js";
import { readNifti } from "./nifti.js";

const NIFTI = /\.nii(\.gz)?$/i;
const { MAX_SPACING, MAX_SHEAR } = constants.grid;

/** The one thick scan among files. @type {(given: NamedBytes[], wasm?: Uint8Array) => Promise<Scan>} */
export async function readScan(given, wasm) {
  const files = given.flatMap((file) => (/\.zip$/i.test(file.name) ? unzip(file) : [file]));
  const volumes = files.filter(({ name }) => NIFTI.test(name));
  const images = files.filter(({ bytes }) => String.fromCharCode(...bytes.subarray(128, 132)) === "DICM");
  refuse(
    !volumes.length && !images.length,
    `${given[0]?.name ?? "the folder"} is no scan that can be read: expected a name ending in .nii or .nii.gz, or DICOM. ` +
      "Unpack or convert it first.",
  );
  const scans = volumes.length ? [] : await readDicom(images, wasm);
  for (const file of volumes) scans.push(withSidecar(await readNifti(file), files));
  const thick = scans.length > 1 ? scans.filter(isThick) : scans;
  const names = scans.map(({ name }) => name).join(", ");
  refuse(thick.length !== 1, `${thick.length} thick scans were found among ${names}: expected one. Give it alone.`);
  thick[0].volume = withoutNan(thick[0].volume);
  check(thick[0]);
  const used = volumes.length ? files.filter(({ name }) => name === thick[0].name) : images;
  return { ...thick[0], sources: used.map(({ name }) => name), sha256: await sha256(used) };
}

/** Hash of the files' content, in their order. @type {(files: NamedBytes[]) => Promise<string | null>} */
async function sha256(files) {
  if (!globalThis.crypto?.subtle) return null; // of pages that come by https alone
  const all = await new Blob(files.map(({ bytes }) => /** @type {any} */ (bytes))).arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", all));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @type {(file: NamedBytes) => NamedBytes[]} */
function unzip({ name, bytes }) {
  try {
    return Object.entries(unzipSync(bytes)).map(([path, inside]) => ({ name: path.split("/").at(-1) ?? "", bytes: inside }));
  } catch (error) {
    throw new InputError(`${name} cannot be unpacked (${reason(error)}). Pack it again.`);
  }
}

/** A scan with the slice thickness of the JSON file of its name. @type {(scan: ReadScan, files: NamedBytes[]) => ReadScan} */
function withSidecar(scan, files) {
  const sidecar = files.find(({ name }) => name === scan.name.replace(NIFTI, ".json"));
  let value;
  try {
    value = sidecar && JSON.parse(new TextDecoder().decode(sidecar.bytes)).SliceThickness;
  } catch (error) {
    throw new InputError(`${sidecar?.name}: SliceThickness cannot be read (${reason(error)}). Mend it, or remove it.`);
  }
  if (!sidecar || (value ?? undefined) === undefined) return scan;
  const thickness = length(`${sidecar.name}: SliceThickness`, value, "Mend it, or remove it.");
  return { ...scan, stated: { ...scan.stated, slice_thickness: [thickness, `the sidecar ${sidecar.name}`] } };
}

/** @type {(scan: ReadScan) => boolean} */
function isThick({ affine, volume, stated }) {
  const [, pixel, spacing] = voxelSpacing(affine).sort((a, b) => a - b);
  return Math.min(...volume.shape) > 2 && !isThin(spacing, stated.slice_thickness?.[0], pixel);
}

/** A volume whose background is no signal where it was NaN. More NaN than a few pockets within the head stay. @type {(volume: Volume) => Volume} */
function withoutNan(volume) {
  const rest = volume.data.filter((x) => !Number.isNaN(x));
  if (rest.length === volume.data.length || !rest.length) return volume;
  const outside = fromBorder((place) => Number.isNaN(volume.data[place]), volume.shape, [0, 1, 2]);
  const background = outside.reduce((count, mark) => count + mark, 0);
  if (volume.data.length - rest.length - background > constants.transforms.POCKETS * background) return volume;
  const { low } = intensityRange({ data: rest, shape: [1, 1, rest.length] });
  return map(volume, (x) => (Number.isNaN(x) ? low : x));
}

/** Refuses what is no volume of finite numbers on an orthogonal grid. @type {(scan: ReadScan) => void} */
function check({ name, volume, affine }) {
  const broken = volume.data.reduce((count, x) => count + +!Number.isFinite(x), 0);
  refuse(broken > 0, `${name} has ${broken} NaN or infinite voxels: expected none. Mask or mend them first.`);
  const numbers = affine.flat().every(Number.isFinite);
  refuse(!numbers, `${name} has NaN or infinity in its affine: expected numbers. Mend its header.`);
  const [edges, shear] = [voxelSpacing(affine), shearAngle(affine)];
  refuse(
    !edges.every((edge) => edge > 0 && edge <= MAX_SPACING),
    `${name} has voxel edges of ${edges.map((edge) => g(edge, 4)).join(", ")} mm: expected positive lengths of at most ` +
      `${MAX_SPACING.toFixed(1)} mm. Mend its header.`,
  );
  refuse(
    shear > MAX_SHEAR,
    `${name}: affine is sheared, ${shear.toFixed(2)} degrees off orthogonal, at most ${MAX_SHEAR} is supported. ` +
      "Resample to an orthogonal grid first.",
  );
}
