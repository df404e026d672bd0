/** NIfTI files, read as nibabel reads them. */
import * as nifti from "nifti-reader-js";
import constants from "../model/constants.js";
import { InputError, filled, g, reason, refuse } from "../errors.js";
import { unpacked } from "../files.js";
import { isFlat, shearAngle, voxelSpacing } from "../stack/grid.js";
import { isWrapped } from "../stack/intensity.js";
import { reorder } from "../stack/volume.js";

const { NO_FORM, WRAPPED } = constants.readers;

/** @type {Record<number, string>} by NIfTI's code: what a DataView calls a voxel */
const KINDS = {
  ...{ 2: "Uint8", 4: "Int16", 8: "Int32", 16: "Float32", 64: "Float64", 256: "Int8" },
  ...{ 512: "Uint16", 768: "Uint32", 1024: "BigInt64", 1280: "BigUint64" },
};
/** @type {Record<number, string>} */
const COMPLEX = { 32: "complex64", 1792: "complex128" };
/** @type {Record<number, string>} */
const UNITS = { 1: "meter", 3: "micron" };

/** @type {(file: NamedBytes) => Promise<{header: nifti.NIFTI1 | nifti.NIFTI2, plain: Uint8Array}>} */
async function open({ name, bytes }) {
  refuse(!bytes.length, `${name} is empty. Copy or export it again.`);
  try {
    const plain = /\.gz$/i.test(name) ? await unpacked(bytes) : bytes;
    const first = plain.slice(0, [plain[0], plain[3]].includes(92) ? 348 : 540); // NIfTI-1 or 2, without extensions
    const header = nifti.readHeader(first.buffer);
    if (header.sform_code > 0 && header.sform_code < header.qform_code && header instanceof nifti.NIFTI1) {
      new DataView(first.buffer).setInt16(252, 0, header.littleEndian); // else the qform is taken, and nibabel takes the sform
      header.affine = nifti.readHeader(first.buffer).affine;
    }
    return { header, plain };
  } catch (error) {
    throw new InputError(`${name} cannot be read (${reason(error)}). Copy or export it again.`);
  }
}

/** A 3-D volume of real numbers with what its header says. @type {(file: NamedBytes) => Promise<ReadScan>} */
export async function readNifti(file) {
  const [{ name }, { header, plain }] = [file, await open(file)];
  const shape = header.dims.slice(1, 1 + header.dims[0]);
  const kind = KINDS[header.datatypeCode];
  refuse(!kind, `${name} holds ${COMPLEX[header.datatypeCode] ?? "unknown"} voxels: expected one real number each. Save one channel of it.`);
  refuse(
    shape.length < 3 || shape.some((n) => n < 1) || shape.slice(3).some((n) => n !== 1),
    `${name} has shape (${shape.join(", ")}): expected a 3-D volume. Save one volume of it.`,
  );
  const [[X, Y, Z], offset, count] = [shape, Number(header.vox_offset), shape.reduce((a, b) => a * b)];
  const size = /** @type {any} */ (globalThis)[`${kind}Array`].BYTES_PER_ELEMENT;
  const { scl_slope, scl_inter, xyzt_units, dim_info, littleEndian } = header;
  const scaled = scl_slope !== 0 && Number.isFinite(scl_slope);
  const broken = plain.length < offset + count * size || (scaled && !Number.isFinite(scl_inter));
  refuse(broken, `${name} cannot be read (it ends too early, or its intercept is no number). Copy or export it again.`);
  const unit = UNITS[xyzt_units & 7];
  refuse(unit !== undefined, `${name} states its lengths in ${unit}s: expected mm. Scale its affine and save it in mm.`);
  const [view, [slope, inter]] = [new DataView(plain.buffer, plain.byteOffset + offset), scaled ? [scl_slope, scl_inter] : [1, 0]];
  const stored = new Float32Array(count);
  const value = /** @type {any} */ (view)[`get${kind}`].bind(view);
  for (let k = 0; k < count; k++) stored[k] = Number(value(k * size, littleEndian)) * slope + inter;
  const axis = (dim_info >> 4) & 3;
  const warnings = onAGrid(header);
  if (kind === "Int16" && slope === 1 && inter === 0 && isWrapped(stored, [Z, Y, X])) {
    stored.forEach((x, k) => { if (x < 0) stored[k] = x + 2 ** 16; });
    warnings.push(WRAPPED);
  }
  return {
    ...{ name, volume: reorder({ data: stored, shape: [Z, Y, X] }, [2, 1, 0]), affine: placeOf(header, shape) },
    stated: axis ? { slice_axis: [axis - 1, "the NIfTI header (dim_info)"] } : {},
    header: keptFields(header),
    intent: header.intent_code,
    warnings,
  };
}

/** Gives a header its qform where its sform is none of the scanner's, and says so. @type {(h: nifti.NIFTI1 | nifti.NIFTI2) => string[]} */
function onAGrid(header) {
  const [sform, qform] = [header.affine, header.getQformMat()].map((affine) => /** @type {Affine} */ (affine.slice(0, 3)));
  if (header.sform_code <= 0 && header.qform_code <= 0) return [NO_FORM];
  if (header.sform_code <= 0 || isFlat(qform)) return [];
  const { MAX_SHEAR } = constants.grid;
  const { NO_SFORM, OTHER_SPACE, SCANNER, STANDARD, TWO_GRIDS } = constants.readers;
  const edges = [sform, qform].map(voxelSpacing);
  const isScaled = edges[0].some((edge, k) => Math.abs(edge - edges[1][k]) > 0.01 * edges[1][k]);
  const isScanners = SCANNER.includes(header.qform_code);
  const isOther = isScanners && (shearAngle(sform) > MAX_SHEAR || (isScaled && header.sform_code >= STANDARD));
  const isFree = header.qform_code > 0 || !sform.flat().some(Boolean);
  if (isFlat(sform) ? !isFree : !isOther) {
    const said = edges.map((each) => each.map((edge) => g(edge, 3)).join(" x "));
    return isScaled && isScanners && !isFlat(sform) ? [filled(TWO_GRIDS, said)] : [];
  }
  [header.sform_code, header.qform_code] = [0, header.qform_code || header.sform_code];
  return [isFlat(sform) ? NO_SFORM : OTHER_SPACE];
}

/** Where voxels lie: by the sform, else by the qform, else centred. @type {(h: nifti.NIFTI1 | nifti.NIFTI2, shape: number[]) => Affine} */
function placeOf(header, shape) {
  if (header.sform_code > 0) return header.affine.slice(0, 3);
  if (header.qform_code > 0) return header.getQformMat().slice(0, 3);
  const edges = header.pixDims.slice(1, 4).map((edge, k) => Math.abs(edge) * (k ? 1 : -1));
  return edges.map((edge, k) => [0, 0, 0, (-edge * (shape[k] - 1)) / 2].with(k, edge));
}

/** Fields that hold for the result too. A qform of another place does not. @type {(h: nifti.NIFTI1 | nifti.NIFTI2) => Scan["header"]} */
function keptFields(header) {
  const { sform_code, qform_code, dim_info, xyzt_units } = header;
  const [sform, qform] = [header.affine.slice(0, 3).flat(), header.getQformMat().slice(0, 3).flat()];
  const apart = sform_code > 0 && sform.some((x, k) => Math.abs(x - qform[k]) > 1e-3 + 1e-5 * Math.abs(x));
  return { sform_code, qform_code: apart ? sform_code : qform_code, dim_info, xyzt_units };
}
