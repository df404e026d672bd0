/** DICOM series, which dcm2niix converts. What is no stack of MR slices of a head is left out, see scripts/inputs/dicom. */
import dicomParser from "dicom-parser";
import dcm2niix from "../node_modules/@niivue/dcm2niix/dist/dcm2niix.jpeg.js";
import { InputError, refuse } from "../errors.js";
import { length } from "../stack/acquisition.js";
import { voxelSpacing } from "../stack/grid.js";
import { map } from "../stack/volume.js";
import { readNifti } from "./nifti.js";

/** @type {[RegExp, string][]} words of ImageType, and what such images are */
const UNFIT = [
  [/^LOCALIZER$/, "a localizer"],
  [/^SECONDARY$/, "secondary images: reformats, maps, screenshots or results of earlier runs"],
  [/^(PROJECTION.*|MIP|MAXIP|MINIP|MNIP|MAXIMUM|MINIMUM)$/, "projections, not slices"],
  [/^MOSAIC$/, "mosaics, which hold many slices in one image"],
  [/^(P|PHASE|PHASEMAP)$/, "phase images, not magnitude"],
  [/^(R|REAL|I|IMAGINARY)$/, "real or imaginary images, not magnitude"],
];
const INVERTED = "inverted images (MONOCHROME1), whose smallest intensity is the brightest: export them as MONOCHROME2";

/** Why a series is no stack of MR slices; undefined if it is. @type {(facts: any, photometric: string | undefined) => string | undefined} */
function unfit({ Modality, ImageType = [] }, photometric) {
  if (Modality !== "MR") return `not MR: the modality is ${Modality ?? "missing"}`;
  if (photometric === "MONOCHROME1") return INVERTED;
  return UNFIT.find(([word]) => ImageType.some((/** @type {string} */ one) => word.test(one.replace(/[\W_]/g, "").toUpperCase())))?.[1];
}

/**
 * The magnitude volumes among DICOM images.
 * @param {NamedBytes[]} images
 * @param {Uint8Array} [wasm] of dcm2niix, where it cannot be found beside its code.
 * @returns {Promise<ReadScan[]>}
 */
export async function readDicom(images, wasm) {
  const [scans, skipped] = [/** @type {ReadScan[]} */ ([]), /** @type {string[]} */ ([])];
  const quiet = { print: () => {}, printErr: () => {}, noInitialRun: true };
  const { FS, callMain } = await dcm2niix({ ...quiet, ...(wasm && { wasmBinary: wasm }) });
  for (const folder of ["/in", "/out"]) FS.mkdir(folder);
  images.forEach(({ bytes }, k) => FS.writeFile(`/in/${String(k).padStart(6, "0")}`, bytes));
  callMain([..."-b y -ba y -z n -i n -x i -w 2 -f %s_%d -o /out".split(" "), "/in"]);
  const headers = images.map(({ bytes }) => dicomParser.parseDicom(bytes, { untilTag: "x7fe00010" }));
  const [header] = headers;
  const signed = header.uint16("x00280103") === 1;
  const padding = signed ? header.int16("x00280120") : header.uint16("x00280120");
  const [slope, intercept] = [header.floatString("x00281053") ?? 1, header.floatString("x00281052") ?? 0];
  for (const file of FS.readdir("/out").filter((name) => name.endsWith(".nii")).sort()) {
    const name = file.replace(/\.nii$/, "");
    const facts = JSON.parse(FS.readFile(`/out/${name}.json`, { encoding: "utf8" }));
    const reason = unfit(facts, header.string("x00280004"));
    if (reason) skipped.push(`${name} is skipped: ${reason}.`);
    if (reason) continue;
    const scan = await readNifti({ name: file, bytes: FS.readFile(`/out/${file}`) });
    const own = headers.filter((one) => one.intString("x00200011") === facts.SeriesNumber && one.string("x00200032"));
    const slices = new Set(own.map((one) => sliceOf(one, scan)));
    refuse(
      file.includes("_Eq") || slices.has(NaN) || (own.length > 0 && slices.size !== scan.volume.shape[2]),
      `${name}: slices lie unevenly, tilted or sheared, or some are missing or repeated. Nothing is filled in: export the ` +
        "whole series again.",
    );
    const thickness = facts.SliceThickness && length(`${name}: SliceThickness`, facts.SliceThickness, "Mend it.");
    const stated = { slice_axis: [2, "the DICOM header"], ...(thickness && { slice_thickness: [thickness, "the DICOM header"] }) };
    const volume = padding === undefined ? scan.volume : withoutPadding(scan.volume, Math.fround(padding * slope + intercept));
    scans.push({ ...scan, volume, name, stated });
  }
  if (!scans.length) throw new InputError(`no thick-slice scan was found. ${skipped[0] ?? "Expected a whole DICOM series of MR."}`);
  return scans;
}

/** A volume whose padding has become no signal: 0, or the least of the rest where that is below 0. @type {(v: Volume, padding: number) => Volume} */
function withoutPadding(volume, padding) {
  const least = volume.data.reduce((a, x) => (x === padding ? a : Math.min(a, x)), 0);
  return map(volume, (x) => (x === padding ? least : x));
}

/** The slice of a volume that an image is; NaN if its first pixel is at no corner of a slice, to 1 % of their spacing.
 * @type {(image: dicomParser.DataSet, scan: ReadScan) => number} */
function sliceOf(image, { volume: { shape }, affine }) {
  const edges = voxelSpacing(affine);
  const ras = [0, 1, 2].map((k) => (image.floatString("x00200032", k) ?? NaN) * (k < 2 ? -1 : 1) - affine[k][3]);
  const at = edges.map((edge, axis) => ras.reduce((sum, x, row) => sum + x * affine[row][axis], 0) / edge ** 2);
  const corner = at.map((x, axis) => (axis === 2 ? Math.round(x) : x > shape[axis] / 2 ? shape[axis] - 1 : 0));
  const near = at.every((x, axis) => Math.abs(x - corner[axis]) * edges[axis] <= 0.01 * edges[2]);
  return near && corner[2] >= 0 && corner[2] < shape[2] ? corner[2] : NaN;
}
