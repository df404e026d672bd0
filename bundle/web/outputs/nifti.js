/** Results as NIfTI files, as nibabel writes them. */
import { quat } from "gl-matrix";
import * as nifti from "nifti-reader-js";
import { through } from "../files.js";
import { determinant, voxelSpacing } from "../stack/grid.js";
import { reorder } from "../stack/volume.js";

/** A compressed NIfTI-1 file of a volume. @type {(volume: Volume, affine: Affine, kept: Scan["header"]) => Promise<Uint8Array>} */
export async function writeNifti(volume, affine, { sform_code, qform_code, dim_info, xyzt_units }) {
  const [made, edges] = [new nifti.NIFTI1(), voxelSpacing(affine)];
  const columns = edges.map((edge, k) => affine.map((row) => row[k] / edge));
  const mirrored = determinant(affine) < 0 ? -1 : 1;
  const rotation = /** @type {any} */ ([...columns[0], ...columns[1], ...columns[2].map((x) => x * mirrored)]);
  const turn = quat.fromMat3(quat.create(), rotation);
  const [quatern_b, quatern_c, quatern_d] = [...turn].map((x) => x * (turn[3] < 0 ? -1 : 1));
  const [[qoffset_x, qoffset_y, qoffset_z], code] = [affine.map((row) => row[3]), Math.max(sform_code, qform_code)];
  Object.assign(made, {
    ...{ littleEndian: true, dims: [3, ...volume.shape, 1, 1, 1, 1], datatypeCode: 16, numBitsPerVoxel: 32 },
    ...{ pixDims: [mirrored, ...edges, 1, 1, 1, 1], vox_offset: 352, scl_slope: 1, scl_inter: 0, magic: "n+1\0" },
    ...{ xyzt_units: 2 | ((xyzt_units & 7) === 2 ? xyzt_units & 56 : 8), affine: [...affine, [0, 0, 0, 1]], dim_info },
    ...{ sform_code: sform_code || code, qform_code: qform_code || code, description: "", aux_file: "", intent_name: "" },
    ...{ quatern_b, quatern_c, quatern_d, qoffset_x, qoffset_y, qoffset_z },
  });
  const voxels = reorder(volume, [2, 1, 0]).data;
  const file = new Uint8Array(352 + voxels.byteLength);
  file.set(new Uint8Array(made.toArrayBuffer().slice(0, 352)));
  file.set(new Uint8Array(voxels.buffer), 352);
  return through(file, new CompressionStream("gzip"));
}
