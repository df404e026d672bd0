/** DICOM series, which dcm2niix converts. What is no stack of MR slices of a head is left out, see scripts/inputs/dicom. */
import dicomParser from "dicom-parser";
import dcm2niix from "../node_modules/@niivue/dcm2niix/dist/dcm2niix.jpeg.js";
import constants from "../model/constants.js";
import { InputError, filled, orSkip, reason, refuse } from "../errors.js";
import { voxelSpacing } from "../stack/grid.js";
import { withoutSignal } from "../stack/intensity.js";
import { ofVoxels } from "../stack/contents.js";
import { map } from "../stack/volume.js";
import { namesOf, ofSeries } from "./identity.js";
import { judged, localizer, ofHeader, reasonWith, sidecar } from "./kinds.js";
import { alikeAcross, stacksOf } from "./labels.js";
import { readNifti } from "./nifti.js";

/** @typedef {import("./kinds.js").Said} Said */
/** @typedef {import("./readers.js").Found} Found */

const SERIES = "x0020000e";
const LABELLED = [SERIES, "x00080008", "x00180080"]; // labels by which dcm2niix splits a stack
const UNDEFINED = 0xffffffff; // length of compressed pixels
const ATTRIBUTES = /** @type {Record<string, string[]>} */ (constants.attributes);
const ENHANCED = Object.entries(constants.headers.ENHANCED_NAMES);
/** @type {Record<string, string | string[]>} */
const PULSES = constants.headers.PULSES;

/** What dcm2niix says of a volume, and the images of its series, as far as they are of one word. @type {(facts: any, headers: dicomParser.DataSet[]) => Said} */
function saidOf(facts, headers) {
  const frames = headers.flatMap(setsOf);
  const alike = (/** @type {string} */ key) => {
    const all = frames.map((sets) => sets.map((one) => valuesOf(one, key)).find((values) => values.length) ?? []);
    const isB = key.startsWith("x") || key === "DiffusionBValue"; // images without a b-value in a diffusion series are of it
    const [first, ...others] = isB ? all.filter((values) => values.length).sort(([a], [b]) => Number(b) - Number(a)).slice(0, 1) : all;
    return first && others.every((values) => values.join() === first.join()) ? first : [];
  };
  const of = sidecar(facts);
  return (key) => {
    const enhanced = ENHANCED.filter(([, classic]) => classic === key).flatMap(([own]) => alike(own));
    const pulses = key === "ScanningSequence" ? [PULSES[alike("EchoPulseSequence")[0]] ?? []].flat() : [];
    const found = [...enhanced, ...pulses, ...of(key)];
    return found.length ? found : alike(key);
  };
}

/** For each frame of an image, its own attributes, those that all share, and the image's.
 * @type {(image: dicomParser.DataSet) => dicomParser.DataSet[][]} */
function setsOf(image) {
  const items = (/** @type {dicomParser.Element | undefined} */ sequence) => (sequence?.items ?? []).flatMap(({ dataSet }) => dataSet ?? []);
  const macros = (/** @type {dicomParser.DataSet} */ group) => Object.values(group.elements).flatMap(items);
  const [shared, frames] = ["x52009229", "x52009230"].map((tag) => items(image.elements[tag]));
  return frames.length ? frames.map((one) => [...macros(one), ...shared.flatMap(macros), image]) : [[image]];
}

/** Values of an attribute as text; none where it is missing. @type {(set: dicomParser.DataSet, key: string) => string[]} */
function valuesOf(set, key) {
  const [tag, usual] = ATTRIBUTES[key] ?? [key];
  const kind = set.elements[tag]?.vr ?? usual;
  const number = { FD: set.double, FL: set.float, SS: set.int16, US: set.uint16, UL: set.uint32, SL: set.int32 }[kind];
  const codes = (set.elements[tag]?.items ?? []).map(({ dataSet: one }) => `${one?.string("x00080102")} ${one?.string("x00080100")}|${one?.string("x00080104") ?? ""}`);
  if (codes.length || !set.elements[tag]?.length) return codes;
  return number ? [String(number.call(set, tag))] : (set.string(tag) ?? "").split("\\").map((value) => value.trim());
}

/** An image's header, which is read up to its pixels. @type {(image: NamedBytes) => dicomParser.DataSet} */
function headerOf({ name, bytes }) {
  let header;
  try {
    header = dicomParser.parseDicom(bytes, { untilTag: "x7fe00010" });
  } catch {
    throw new InputError(`${name} cannot be read (its header is cut or broken). Copy or export it again.`);
  }
  const syntax = header.string("x00020010") ?? "";
  refuse(!/^(1\.2\.840\.10008\.|$)/.test(syntax), `images are skipped: ${filled(constants.policies.MAKERS_SYNTAX, [syntax])}.`);
  const pixels = header.elements.x7fe00010;
  const isCut = pixels && pixels.length !== UNDEFINED && pixels.dataOffset + pixels.length > bytes.length;
  refuse(Boolean(isCut), `${name} cannot be read (its pixels end too early). Copy or export it again.`);
  return header;
}

/** The magnitude volumes among DICOM images, and the reasons why others are left out; dcm2niix may not be found beside its code.
 * @type {(images: NamedBytes[], skipped: Set<string>, wasm?: () => Promise<Uint8Array>) => Promise<Found[]>} */
export async function readDicom(images, skipped, wasm) {
  const scans = /** @type {Found[]} */ ([]);
  const all = images.flatMap((image) => {
    try {
      return { image, header: headerOf(image) };
    } catch (error) {
      skipped.add(reason(error)); // once of all images of a series
      return [];
    }
  });
  if (!all.length) return scans;
  const quiet = { print: () => {}, printErr: () => {}, noInitialRun: true };
  const { FS, callMain } = await dcm2niix({ ...quiet, ...(wasm && { wasmBinary: await wasm() }) });
  for (const folder of ["/in", "/out"]) FS.mkdir(folder);
  const joined = joinedOf(all.filter(({ header }) => ofHeader(saidOf({}, [header])) === undefined));
  all.forEach(({ image }, k) => FS.writeFile(`/in/${String(k).padStart(6, "0")}`, joined.get(image)?.bytes ?? image.bytes));
  callMain([..."-b y -ba n -p n -z n -i n -x i -w 2 -f %s_%d -o /out".split(" "), "/in"]);
  for (const json of FS.readdir("/out").filter((one) => one.endsWith(".json")).sort()) {
    const name = json.slice(0, -5); // what dcm2niix interpolates has none
    const facts = JSON.parse(FS.readFile(`/out/${name}.json`, { encoding: "utf8" }));
    const series = all.filter(({ image, header }) => (joined.get(image)?.series ?? header.string(SERIES)) === facts.SeriesInstanceUID);
    const echo = (/** @type {dicomParser.DataSet} */ header) => header.floatString("x00180081") ?? NaN;
    const alike = series.filter(({ header }) => Math.abs(echo(header) - 1000 * facts.EchoTime) < 0.01 * echo(header)); // of several under one UID
    const own = alike.length ? alike : series.length ? series : all;
    const read = async () => {
      const scan = await readNifti({ name, bytes: FS.readFile(`/out/${name}.nii`) });
      const headers = own.map(({ header }) => header);
      const [files, part] = [own.map(({ image }) => image), 1 + scans.filter((one) => one.files[0] === own[0].image).length];
      const stack = stackOf(scan, facts, headers, own.length === series.length);
      return { scan: judged(stack, ofVoxels(stack.volume)), files, identity: ofSeries(saidOf({}, headers)), part };
    };
    scans.push(...(await orSkip(read, skipped)));
  }
  return scans;
}

/** Images of one stack whose labels differ: their bytes under one series UID, image type and repetition time, by which
 * dcm2niix takes them for one. @type {(all: {image: NamedBytes, header: dicomParser.DataSet}[]) => Map<NamedBytes, {bytes: Uint8Array, series: string}>} */
function joinedOf(all) {
  const joined = new Map();
  for (const stack of stacksOf(all)) {
    const shortest = LABELLED.map((tag) => {
      const said = stack.map(({ header }) => header.string(tag) ?? "");
      return said.reduce((least, one) => (one.length < least.length ? one : least));
    });
    for (const { image, header } of stack) {
      const bytes = image.bytes.slice();
      LABELLED.forEach((tag, k) => {
        const { dataOffset, length } = header.elements[tag] ?? { dataOffset: 0, length: 0 };
        bytes.set(new TextEncoder().encode(shortest[k].padEnd(length, tag === SERIES ? "\0" : " ").slice(0, length)), dataOffset);
      });
      joined.set(image, { bytes, series: shortest[LABELLED.indexOf(SERIES)] });
    }
  }
  return joined;
}

/** A series as a stack of MR slices, which is all that there is under its UID or not. @type {(scan: ReadScan, facts: any, headers: dicomParser.DataSet[], isWhole: boolean) => ReadScan} */
function stackOf(scan, facts, headers, isWhole) {
  const [{ name, volume }, [header], said] = [scan, headers, saidOf(facts, headers)];
  const isInverted = header.string("x00280004")?.trim() === "MONOCHROME1";
  const unfit = facts.Modality === "MR" ? isInverted && reasonWith("MONOCHROME1") : filled(reasonWith("modality"), [facts.Modality ?? "missing"]);
  const why = unfit || (ofHeader(said) ?? localizer(volume.shape[2], said));
  refuse(why !== undefined, `${name} is skipped: ${why}.`);
  refuse(isOfTwo(headers), `${name}: slices of two persons, by PatientName and PatientID. Export the series of each person again.`);
  const placed = headers.flatMap(setsOf).flatMap((sets) => sets.find((one) => one.string("x00200032")) ?? []);
  const places = placed.map((one) => sliceOf(one, scan));
  const slices = new Set(places);
  refuse(
    slices.has(NaN) || (slices.size > 0 && slices.size !== volume.shape[2]),
    `${name}: slices lie unevenly, tilted or sheared, or some are missing or repeated. Nothing is filled in: export the ` +
      "whole series again.",
  );
  const note = places.length === headers.length ? alikeAcross(volume, places, headers, (header, key) => valuesOf(header, key).join("\\")) : "";
  const warnings = [...scan.warnings, ...(note ? [note] : []), ...(isWhole ? lostOf(headers, places.length) : [])];
  const lengths = { slice_thickness: facts.SliceThickness, slice_spacing: header.floatString("x00180088") };
  const known = Object.entries({ slice_axis: 2, ...lengths }).filter(([, value]) => value !== undefined);
  const stated = /** @type {Scan["stated"]} */ (Object.fromEntries(known.map(([fact, value]) => [fact, [value, "the DICOM header"]])));
  const [padding, limit] = ["x00280120", "x00280121"].map((tag) => (header.uint16("x00280103") ? header.int16(tag) : header.uint16(tag)));
  if (padding === undefined) return { ...scan, stated, warnings };
  const [slope, intercept] = [header.floatString("x00281053") ?? 1, header.floatString("x00281052") ?? 0];
  const [first, last] = [padding, limit ?? padding].map((stored) => stored * slope + intercept).sort((a, b) => a - b);
  const isPadding = (/** @type {number} */ x) => x > first - Math.abs(slope) / 2 && x < last + Math.abs(slope) / 2;
  refuse(volume.data.every(isPadding), `${name}: all voxels are padding (PixelPaddingValue). Export the series again.`);
  return { ...scan, stated, warnings, volume: withoutSignal(map(volume, (x) => (isPadding(x) ? NaN : x))) };
}

/** Whether images are of two persons: neither name nor ID is the same, as far as there are any. @type {(headers: dicomParser.DataSet[]) => boolean} */
function isOfTwo(headers) {
  const people = [...new Map(headers.map((one) => namesOf((key) => valuesOf(one, key))).map((names) => [names.join("\\"), names])).values()];
  const isOther = (/** @type {string[]} */ one, /** @type {string[]} */ other) => {
    const known = one.map((name, k) => [name, other[k]]).filter((pair) => pair.every(Boolean));
    return known.length > 0 && known.every(([a, b]) => a !== b);
  };
  return people.some((one, k) => people.slice(k + 1).some((other) => isOther(one, other)));
}

/** What is said of images that a header counts and that are not there; nothing where none is lost. @type {(headers: dicomParser.DataSet[], count: number) => string[]} */
function lostOf(headers, count) {
  const counts = [headers.map((one) => one.intString("x00201002")), headers.map((one) => one.elements.x20011018 && one.int32("x20011018"))];
  const said = counts.map((all) => (all.every((one) => one !== undefined) ? Math.min(.../** @type {number[]} */ (all)) : 0));
  const k = said.findIndex((one) => one > count);
  return k < 0 ? [] : [filled(constants.stacks.LOST, [said[k] - count, said[k], Object.keys(constants.stacks.COUNTS)[k]])];
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
