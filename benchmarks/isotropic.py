"""The cost of cubes for voxels, where pixels are finer than the target: a table of docs/benchmarks.md.

python -m benchmarks.isotropic DATALIST [--slab 24] [--ckpt_path models/model.pt]

Slices of 5 mm of each held-out volume are rebuilt to a target of one and a half times its pixels, as 0.43 mm is to
0.7 mm: with the pixels kept, and with --isotropic. Both are put back on the truth's grid by a cubic spline.
"""

import tempfile
from pathlib import Path

import nibabel as nib
import numpy as np
from scipy.ndimage import affine_transform
from torch import from_numpy

from benchmarks import deployed, parser_of_volumes, preprocessing, shipped_network
from scripts.evaluate import metrics
from scripts.evaluate.tables import markdown
from scripts.rebuild.device import default_device
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack import tissue
from scripts.stack.grid import voxel_spacing
from scripts.stack.slices import Slices
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import central_slab, slices_of
from scripts.train.truth import read_volume

THICKNESS = 5.0  # mm
COARSER = 1.5  # the target over the pixels


def on_grid_of(result, truth):
    """A result where the truth's voxels are."""
    index = np.linalg.inv(result.affine.numpy()) @ truth.affine.numpy()
    values = result.as_tensor()[0].numpy()
    return from_numpy(affine_transform(values, index[:3, :3], index[:3, 3], truth.shape[1:], order=3, mode="nearest"))


def main():
    """Prints the table."""
    parser = parser_of_volumes(__doc__)
    parser.add_argument("--slab", type=int, default=24)
    options = parser.parse_args()
    network, inferer = shipped_network(options.ckpt_path), deployed(options.ckpt_path)
    columns = {"volume": [], "pixels kept (dB)": [], "--isotropic (dB)": [], "difference": []}
    for item in sharp_volumes(options.datalist, "validation"):
        axis = item["sharp_axes"][0]
        truth = central_slab(read_volume(item["label"]), axis, options.slab)
        spacing = voxel_spacing(truth.affine)
        thick = slices_of(truth, axis, THICKNESS)
        quality = []
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "scan.nii.gz")
            nib.save(nib.Nifti1Image(thick.as_tensor()[0].numpy(), thick.affine.numpy()), path)
            for isotropic in (False, True):
                target = {"target_thickness": COARSER * min(spacing), "slice_axis": axis, "isotropic": isotropic}
                measured = preprocessing(**target)({"image": path})["image"]
                result = on_grid_of(
                    Rebuilder(network, inferer, default_device())(Slices.of(measured)).volume[None], truth
                )
                sharp = truth.as_tensor()[0].float()
                quality.append(metrics.psnr(result, sharp, tissue.head_mask(sharp)))
        line = (f"{item['subject']} {item['contrast']}", *(f"{q:.2f}" for q in quality), f"{np.diff(quality)[0]:+.2f}")
        for column, text in zip(columns.values(), line):
            column.append(text)
    print(markdown(columns))


if __name__ == "__main__":
    main()
