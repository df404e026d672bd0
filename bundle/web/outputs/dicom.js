/** A result as a derived MR series, as the command writes it: the tables of scripts/outputs/dicom. */
import dcmjs from "dcmjs";
import { zipSync } from "fflate";
import constants from "../model/constants.js";
import { f, filled } from "../errors.js";
import { percentile } from "../stack/intensity.js";
import { extremes, reorder } from "../stack/volume.js";
import { voxelSpacing } from "../stack/grid.js";
import { detailOf, isDrawn, ranBy } from "./record.js";

/** @typedef {import("../inputs/readers.js").Found} Found */
/** @typedef {Record<string, {vr: string, Value: any[]}>} Attributes by tag, as in DICOM's JSON */

const { DicomDict, DicomMessage, DicomMetaDictionary } = /** @type {any} */ (dcmjs).data;
const { BY_GUIDE, DERIVATION, FIXED, GUIDED, LABEL, LONGEST, MAY_BE_EMPTY, MOST, NAME, REQUIRED, SHARPER, SHORTER, UIDS, WARNED } = constants.write;
const { GUIDE, SOURCE } = /** @type {Record<"GUIDE" | "SOURCE", keyof typeof constants.codes>} */ (constants.inherit);
const { INHERITED, ONCE_IS_ENOUGH } = /** @type {{INHERITED: string[], ONCE_IS_ENOUGH: Record<string, string>}} */ (constants.inherit);
const PIXELS = "7FE00010";
const ROOT = "1.2.826.0.1.3680043.8.498."; // of pydicom, under which anybody may make UIDs
const LITTLE_ENDIAN = "1.2.840.10008.1.2.1"; // explicit VR

/** @type {(keyword: string) => string} */
const tagOf = (keyword) => DicomMetaDictionary.unpunctuateTag(DicomMetaDictionary.nameMap[keyword].tag);
/** @type {(set: Attributes, keyword: string) => any[]} */
const valuesOf = (set, keyword) => set[tagOf(keyword)]?.Value ?? [];
/** Places come from a header in single precision. @type {(x: number) => number} */
const single = (x) => Number(x.toPrecision(7));
/** @type {(set: Attributes, keyword: string, ...values: any[]) => void} */
const put = (set, keyword, ...values) => void (set[tagOf(keyword)] = { vr: DicomMetaDictionary.nameMap[keyword].vr, Value: values });
/** @type {(pairs: Record<string, any>) => Attributes} */
function setOf(pairs) {
  /** @type {Attributes} */
  const made = {};
  for (const [keyword, value] of Object.entries(pairs)) put(made, keyword, ...[value].flat());
  return made;
}

/** A code sequence of one item. @type {(keyword: keyof typeof constants.codes) => Attributes[]} */
function code(keyword) {
  const [CodeValue, CodingSchemeDesignator, CodeMeaning] = constants.codes[keyword];
  return [setOf({ CodeValue, CodingSchemeDesignator, CodeMeaning })];
}

/** Attributes without private ones, also within sequences. @type {(set: Attributes) => Attributes} */
function publicOf(set) {
  const kept = Object.entries(set).filter(([tag]) => parseInt(tag.slice(0, 4), 16) % 2 === 0);
  return Object.fromEntries(kept.map(([tag, one]) => [tag, one.vr === "SQ" ? { ...one, Value: one.Value.map(publicOf) } : one]));
}

/** The headers of an image's frames as classic images have them. @type {(bytes: Uint8Array) => Attributes[]} */
function framesOf(bytes) {
  const read = DicomMessage.readFile(bytes.slice().buffer, { untilTag: PIXELS, includeUntilTagValue: false }).dict;
  const { [PIXELS]: _, ...whole } = /** @type {Attributes} */ (JSON.parse(JSON.stringify(read)));
  const macros = (/** @type {Attributes} */ group) => Object.values(group).filter(({ vr, Value }) => vr === "SQ" && Value.length === 1).map(({ Value }) => Value[0]);
  const [shared, frames] = ["Shared", "PerFrame"].map((name) => valuesOf(whole, `${name}FunctionalGroupsSequence`));
  return (frames.length ? frames : [{}]).map((frame) => {
    const own = Object.assign({ ...whole }, ...shared.flatMap(macros), ...macros(frame));
    for (const [enhanced, classic] of Object.entries(constants.headers.ENHANCED_NAMES)) {
      if (valuesOf(own, enhanced).length) put(own, classic, ...valuesOf(own, enhanced));
    }
    const pulse = /** @type {Record<string, string | string[]>} */ (constants.headers.PULSES)[valuesOf(own, "EchoPulseSequence")[0]];
    if (pulse) put(own, "ScanningSequence", ...[pulse].flat());
    return own;
  });
}

/** The directions of rows and columns of a slice, and its place along its normal, in LPS. @type {(header: Attributes) => {row: number[], column: number[], normal: number[], at: number}} */
function placeOf(header) {
  const [a, b, c, d, e, f] = valuesOf(header, "ImageOrientationPatient").map(Number);
  const normal = cross([a, b, c], [d, e, f]);
  return { row: [a, b, c], column: [d, e, f], normal, at: dot(normal, valuesOf(header, "ImagePositionPatient").map(Number)) };
}

/** @type {(a: number[], b: number[]) => number[]} */
const cross = ([a, b, c], [d, e, f]) => [b * f - c * e, c * d - a * f, a * e - b * d];
/** @type {(a: number[], b: number[]) => number} */
const dot = (a, b) => a.reduce((sum, x, k) => sum + x * b[k], 0);

/** The attributes that a series takes over from its slices: listed ones of one value.
 * @type {(headers: {header: Attributes, frame: number}[]) => Attributes} */
function inherited(headers) {
  /** @type {Attributes} */
  const common = {};
  for (const keyword of INHERITED) {
    const found = headers.map(({ header }) => header[tagOf(keyword)]).map((one) => (one?.Value?.length ? one : undefined));
    const once = found.find((one) => one && keyword in ONCE_IS_ENOUGH && one.Value.join() === ONCE_IS_ENOUGH[keyword]);
    const same = found.every((one) => JSON.stringify(one) === JSON.stringify(found[0]));
    const first = once ?? (same ? found[0] : undefined);
    if (first) common[tagOf(keyword)] = first;
  }
  const windows = ["WindowCenter", "WindowWidth"].map((keyword) => headers.map(({ header }) => Number(valuesOf(header, keyword)[0] ?? NaN)));
  if (windows.flat().every(Number.isFinite)) {
    ["WindowCenter", "WindowWidth"].forEach((keyword, k) => put(common, keyword, percentile(windows[k].sort((a, b) => a - b), 50)));
  }
  put(common, "SourceImageSequence", ...references(headers, SOURCE));
  return publicOf(common);
}

/** References to images, as sources of a purpose. @type {(headers: {header: Attributes, frame: number}[], purpose: keyof typeof constants.codes) => Attributes[]} */
function references(headers, purpose) {
  const [uids, classes] = ["SOPInstanceUID", "SOPClassUID"].map((keyword) => headers.map(({ header }) => valuesOf(header, keyword)[0]));
  const isEnhanced = headers.length > 0 && valuesOf(headers[0].header, "NumberOfFrames").length > 0;
  return [...new Set(uids)].map((instance) => {
    const frames = headers.filter((_, k) => uids[k] === instance).map(({ frame }) => frame).sort((a, b) => a - b);
    const item = setOf({ ReferencedSOPClassUID: classes[0], ReferencedSOPInstanceUID: instance, ...(isEnhanced && { ReferencedFrameNumber: frames }) });
    put(item, "PurposeOfReferenceCodeSequence", ...code(purpose));
    return item;
  });
}

/** Frames of images, one at each place, in the order of the slices. @type {(images: NamedBytes[]) => ({header: Attributes, frame: number} & ReturnType<typeof placeOf>)[]} */
function slicesOf(images) {
  const frames = images.flatMap(({ bytes }) => framesOf(bytes).map((header, k) => ({ header, frame: k + 1, ...placeOf(header) }))).sort((a, b) => a.at - b.at);
  return frames.filter(({ at }, k) => k === 0 || at - frames[k - 1].at >= constants.planes.SAME_PLACE);
}

/** Says in a header what guided, and names its images as sources of a purpose of their own. @type {(common: Attributes, guide: Found, slices: {header: Attributes, frame: number}[]) => void} */
function guidedBy(common, guide, slices) {
  const name = String(valuesOf(slices[0]?.header ?? {}, "SeriesDescription")[0] || guide.scan.name);
  const first = (/** @type {string} */ keyword) => String(valuesOf(common, keyword)[0]);
  const at = first("SeriesDescription").lastIndexOf(LABEL);
  const [own, label] = [first("SeriesDescription").slice(0, at), first("SeriesDescription").slice(at)];
  put(common, "SeriesDescription", `${own.slice(0, SHORTER).trim()} ${label}${filled(GUIDED, { name })}`.trim().slice(0, 64).trim());
  put(common, "DerivationDescription", filled(BY_GUIDE, { name }) + first("DerivationDescription"));
}

/** Intensities as 16-bit integers, with the slope and the intercept that bring them back to within half a slope.
 * @type {(volume: Volume, step: number, intercept: number) => {stored: Int32Array, isSigned: boolean, slope: number, offset: number}} */
function storedOf(volume, step, intercept) {
  const { least, largest } = extremes(volume);
  const [low, high] = [least, largest].map((x) => Math.round((x - intercept) / step));
  const limits = [[0, 65535], [-32768, 32767]].find(([first, last]) => low >= first && high <= last);
  const [slope, offset] = limits ? [step, intercept] : [Math.max(step, (largest - least) / 65534), least]; // one to spare: decimal strings round
  const [first, last] = limits ?? [0, 65535];
  return { stored: Int32Array.from(volume.data, (x) => Math.min(Math.max(Math.round((x - offset) / slope), first), last)), isSigned: first < 0, slope, offset };
}

/** The same text has the same UID, where the browser computes hashes. @type {(text: string) => Promise<string>} */
async function uid(text) {
  const bytes = globalThis.crypto?.subtle
    ? new Uint8Array(await crypto.subtle.digest("SHA-512", new TextEncoder().encode(text)))
    : crypto.getRandomValues(new Uint8Array(64));
  const number = bytes.reduce((sum, byte) => sum * 256n + BigInt(byte), 0n);
  return ROOT + String(number % 10n ** BigInt(64 - ROOT.length));
}

/** The header that all images of the series share, without grid and pixels.
 * @type {(header: Attributes, spacing: number, key: string, number: number, result: import("../rebuild/inferer.js").Result) => Promise<Attributes>} */
async function derived(header, spacing, key, number, result) {
  const [common, now, version] = [{ ...header }, new Date(), constants.release.version];
  const pad = (/** @type {number} */ x) => String(x).padStart(2, "0");
  const day = `${now.getFullYear()}${pad(now.getMonth() + 1)}${pad(now.getDate())}`;
  const time = [now.getHours(), now.getMinutes(), now.getSeconds()].map(pad).join("");
  const first = (/** @type {string} */ keyword) => valuesOf(common, keyword)[0] ?? "";
  const description = filled(DERIVATION, { spacing, by: ranBy(version), kind: first("MRAcquisitionType") || "unknown", detail: detailOf(result) });
  const label = LABEL + (isDrawn(result) ? SHARPER : "");
  for (const event of ["InstanceCreation", "Content", "Series"]) Object.assign(common, setOf({ [`${event}Date`]: day, [`${event}Time`]: time }));
  Object.assign(common, setOf(FIXED));
  put(common, "SeriesNumber", 1000 * (Number(first("SeriesNumber") || 0) % 2_000_000) + (number % 1000)); // below 2**31, as IS asks
  put(common, "SeriesDescription", `${first("SeriesDescription").slice(0, LONGEST + LABEL.length - label.length)} ${label}`.trim());
  put(common, "DerivationDescription", description);
  put(common, "DerivationCodeSequence", ...code("SpatialResampling"));
  const tool = setOf({ Manufacturer: NAME, ContributionDateTime: day + time, ContributionDescription: description });
  put(tool, "PurposeOfReferenceCodeSequence", ...code("ProcessingEquipment"));
  put(common, "ContributingEquipmentSequence", ...valuesOf(common, "ContributingEquipmentSequence"), tool);
  const sources = valuesOf(common, "SourceImageSequence").map((item) => `${valuesOf(item, "ReferencedSOPInstanceUID")} ${valuesOf(item, "ReferencedFrameNumber")}`);
  const madeOf = [key, version, JSON.stringify([first("PatientID"), first("PatientName")]), ...sources]; // the patient may be corrected
  for (const what of UIDS) {
    if (what === "SeriesInstanceUID" || !valuesOf(common, what).length) put(common, what, await uid([what, ...madeOf].join("\n")));
  }
  for (const [keyword, value] of Object.entries(REQUIRED)) if (!valuesOf(common, keyword).length) put(common, keyword, value);
  for (const keyword of MAY_BE_EMPTY) common[tagOf(keyword)] ?? put(common, keyword);
  if (valuesOf(common, "ScanningSequence").includes("IR") && !valuesOf(common, "InversionTime").length) put(common, "InversionTime");
  return common;
}

/**
 * A zip file of the derived series.
 * @param {import("../rebuild/inferer.js").Result} result
 * @param {NamedBytes[]} images which it was made of.
 * @param {string} key of the result: the same images and key give the same UIDs.
 * @param {number} part number of the volume in its series, from 1.
 * @param {string[]} warnings of the record.
 * @param {Found} [guide] that guided.
 */
export async function writeDicom(result, images, key, part, warnings, guide) {
  const { volume, affine } = result;
  const [slices, guiding] = [slicesOf(images), guide?.part ? slicesOf(guide.files) : []];
  const [{ row, column, normal }] = slices;
  const lps = affine.map((line, k) => (k < 2 ? line.map((x) => -x) : line));
  const own = [0, 1, 2].map((axis) => lps.map((line) => line[axis]));
  const along = (/** @type {number[]} */ direction, /** @type {number[]} */ free) =>
    free.reduce((a, b) => (Math.abs(dot(own[b], direction)) / Math.hypot(...own[b]) > Math.abs(dot(own[a], direction)) / Math.hypot(...own[a]) ? b : a));
  const x = along(row, [0, 1, 2]);
  const y = along(column, [0, 1, 2].filter((axis) => axis !== x));
  const axes = [x, y, 3 - x - y];
  const flipped = [row, column, normal].flatMap((direction, k) => (dot(own[axes[k]], direction) < 0 ? [k] : []));
  const turned = reorder(volume, axes, flipped);
  const steps = axes.map((axis, k) => own[axis].map((value) => (flipped.includes(k) ? -value : value)));
  const origin = lps.map((line, i) => flipped.reduce((sum, k) => sum - steps[k][i] * (turned.shape[k] - 1), line[3]));
  const [edges, [X, Y, Z]] = [axes.map((axis) => single(voxelSpacing(affine)[axis])), turned.shape];
  const [right, down] = [0, 1].map((k) => steps[k].map((value) => value / edges[k]));
  const number = (/** @type {string} */ keyword, /** @type {number} */ otherwise) => slices.map(({ header }) => Number(valuesOf(header, keyword)[0] ?? otherwise));
  const intercepts = new Set(number("RescaleIntercept", 0));
  const step = Math.min(...number("RescaleSlope", 1).map(Math.abs)) || 1;
  const { stored, isSigned, slope, offset } = storedOf(turned, step, intercepts.size === 1 ? [...intercepts][0] : 0);
  const header = inherited(slices);
  put(header, "SourceImageSequence", ...valuesOf(header, "SourceImageSequence"), ...references(guiding, GUIDE));
  const common = await derived(header, edges[2], key, part, result);
  if (guide) guidedBy(common, guide, guiding);
  if (warnings.length) put(common, "ImageComments", warnings.map((text) => filled(WARNED, { text: text.replace(/\.+$/, "") })).join(" ").slice(0, MOST));
  Object.assign(common, setOf({ ImageOrientationPatient: [...right, ...down].map(single), PixelSpacing: [edges[1], edges[0]], SliceThickness: edges[2], SpacingBetweenSlices: edges[2] }));
  if (slope !== 1 || offset !== 0) Object.assign(common, setOf({ RescaleSlope: slope, RescaleIntercept: offset, RescaleType: "US" }));
  Object.assign(common, setOf({ SamplesPerPixel: 1, Rows: Y, Columns: X, BitsAllocated: 16, BitsStored: 16, HighBit: 15, PixelRepresentation: Number(isSigned) }));
  /** @type {Record<string, Uint8Array>} */
  const files = {};
  for (let k = 0; k < Z; k++) {
    const [position, plane] = [origin.map((value, i) => value + k * steps[2][i]), new Uint16Array(X * Y)];
    for (let n = 0; n < plane.length; n++) plane[n] = stored[((n % X) * Y + Math.floor(n / X)) * Z + k];
    const instance = await uid(`${valuesOf(common, "SeriesInstanceUID")} ${k}`);
    const meta = setOf({ MediaStorageSOPClassUID: FIXED.SOPClassUID, MediaStorageSOPInstanceUID: instance, TransferSyntaxUID: LITTLE_ENDIAN });
    put(meta, "FileMetaInformationVersion", new Uint8Array([0, 1]).buffer);
    put(meta, "ImplementationClassUID", `${ROOT}1`);
    const image = { ...common, ...setOf({ ImagePositionPatient: position.map(single), SliceLocation: single(dot(position, cross(right, down))), InstanceNumber: k + 1, SOPInstanceUID: instance }) };
    image[PIXELS] = { vr: "OW", Value: [plane.buffer] };
    const file = new DicomDict(meta);
    file.dict = Object.fromEntries(Object.entries(image).sort(([a], [b]) => (a < b ? -1 : 1)));
    files[`${f(k + 1, 0).padStart(4, "0")}.dcm`] = new Uint8Array(file.write());
  }
  return zipSync(files, { level: 4 });
}
