"""The voxels of scans as witnesses: how sharp they are, and which guides are copies.

python -m benchmarks.contents DATALIST

Two tables of docs/benchmarks_appendix.md. First the distance of the samples that a volume shows along an axis, as it is
and interpolated from slices of the simulation. Then how far a rising curve explains a scan of 5 mm slices by each guide
of its person, and by the cubic spline of its own slices.
"""

import numpy as np
import torch
from monai.data import MetaTensor

from benchmarks import parser_of
from scripts.evaluate.tables import markdown
from scripts.rebuild.guide import GuideScan
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from scripts.stack.spectra import sharpness
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import slices_of
from scripts.train.truth import read_volume

THICKNESSES = (3.0, 5.0)  # mm
NOISE = 0.02  # of the 99th percentile


def sharp_along(volume, axis):
    """Distances of samples along an axis, in mm: of the volume, and of its noisy slices by two interpolations."""
    edges = voxel_spacing(volume.affine)
    found = [sharpness(volume[0].as_tensor(), edges)[axis]]
    noise = torch.Generator().manual_seed(0)
    for thickness in THICKNESSES:
        slices = slices_of(volume, axis, thickness)
        level = NOISE * float(np.percentile(volume.as_tensor().numpy(), 99))
        measured = slices[0].as_tensor() + level * torch.randn(slices.shape[1:], generator=noise)
        a = Acquisition.of(slices)
        fine = [*edges[:axis], a.target_spacing, *edges[axis + 1 :]]
        found += [sharpness(interpolate(measured, a, method), fine)[axis] for method in ("linear", "cubic")]
    return found


def main():
    """Prints both tables."""
    parser = parser_of(__doc__)
    parser.add_argument("datalist")
    volumes = sharp_volumes(parser.parse_args().datalist, "validation")
    methods = [f"{thickness:g} mm, {method}" for thickness in THICKNESSES for method in ("linear", "cubic")]
    sharp = {name: list[str]() for name in ("scan", "axis", "as it is", *methods)}
    relations = {name: list[str]() for name in ("scan", "guide", "likeness", "relation")}
    for item in volumes:
        volume, axis, name = read_volume(item["label"]), item["sharp_axes"][-1], item["subject"]
        row = (f"{name} {item['contrast']}", str(axis), *(f"{mm:.2f}" for mm in sharp_along(volume, axis)))
        for column, cell in zip(sharp.values(), row):
            column.append(cell)
        measured = Slices.of(slices_of(volume, axis, THICKNESSES[-1]))
        spline = interpolate(measured.array, measured.acquisition, "cubic").clamp(min=0)
        copy = MetaTensor(spline[None], affine=measured.fine_affine)
        guides = {other["contrast"]: other["label"] for other in volumes if other["subject"] == name}
        guides.pop(item["contrast"], None)
        for guide, other in [*((key, read_volume(path)) for key, path in guides.items()), ("its own spline", copy)]:
            found = GuideScan(Slices.sharp(other)).beside(measured)
            row = (f"{name} {item['contrast']}", guide, f"{found.likeness:.2f}", f"{found.relation:.2f}")
            for column, cell in zip(relations.values(), row):
                column.append(cell)
    for table in (sharp, relations):
        print(markdown(table), end="\n\n")


if __name__ == "__main__":
    main()
