"""Coverage of intervals of 90 % with guides that bring much, little, or nothing: a table of docs/benchmarks.md.

python -m benchmarks.guided_coverage DATALIST [--thickness 5] [--slab 24] [--noise 0.005] [--ckpt_path WEIGHTS]

Each volume with guides is rebuilt with the first, in its place: whole, cut, blurred and moved, and with a copy of its
own slices. Those without get a copy alone. Coverage is the share of the head's voxels whose truth is within the
interval, where the guide saw the head, and beyond. Beside it, the coverage of intervals that are as narrow everywhere
as the weights' card lets whole, sharp guides make them.
"""

import numpy as np
import torch
from monai.data import MetaTensor
from scipy import ndimage

from benchmarks import deployed, parser_of_volumes, shipped_network
from scripts.evaluate.tables import markdown
from scripts.method.weights import read_card
from scripts.rebuild.device import default_device
from scripts.rebuild.error_map import ErrorMaps, error_map
from scripts.rebuild.guide import PlacedGuide, on_grid
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack.grid import voxel_spacing
from scripts.stack.intensity import data_range
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from scripts.stack.tissue import head_mask
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import central_slab, normal_axis, slices_of
from scripts.train.truth import read_volume

HEADINGS = ("scan", "guide", "where it saw", "beyond", "if as narrow everywhere", "narrower by (median)")
THICK = 5.0  # mm; slices of the blurred guides


def blurred(guide, axis, thickness=THICK):
    """A guide as a spline through its slices along an axis shows it."""
    slices = Slices.of(slices_of(guide, axis, thickness))
    spline = interpolate(slices.array, slices.acquisition, "cubic").clamp(min=0)
    return MetaTensor(spline[None], affine=guide.affine)


def kinds(guide, axis):
    """Name -> a guide `(1, X, Y, Z)`."""
    array, affine = guide.as_tensor(), guide.affine
    other = next(one for one in range(3) if one not in (axis, normal_axis(axis)))
    half, across = (array.narrow(1 + one, 0, array.shape[1 + one] // 2) for one in (axis, other))
    smooth = torch.from_numpy(ndimage.gaussian_filter(array[0].numpy(), 2 / voxel_spacing(affine)))[None]
    return {
        "whole, sharp": guide,
        "half of it along the slice axis": MetaTensor(half, affine=affine),
        "half of it in plane": MetaTensor(across, affine=affine),
        f"spline of {THICK:g} mm slices, another axis": blurred(guide, other),
        f"spline of {THICK:g} mm slices, the scan's axis": blurred(guide, axis),
        "smooth (2 mm)": MetaTensor(smooth, affine=affine),
        "2 mm out of place": MetaTensor(
            torch.roll(array, round(2 / voxel_spacing(affine)[axis]), 1 + axis), affine=affine
        ),
    }


def rows(item, rebuilder, options):
    """A row for each guide of a volume."""
    axis = item["sharp_axes"][0]
    truth = central_slab(read_volume(item["label"]), axis, options.slab)
    sharp = truth.as_tensor()[0]
    thick, head = slices_of(truth, axis, options.thickness), head_mask(sharp)
    thick.add_(options.noise * data_range(sharp) * torch.randn(thick.shape, generator=torch.Generator().manual_seed(0)))
    slices = Slices.of(thick)

    def shares(guide):
        placed = None
        if guide is not None:
            shown = on_grid(Slices.sharp(guide), slices, np.eye(4))
            placed = PlacedGuide(shown, np.eye(4), 1.0, 0.0, 0.0, 0.0, "the guide")
        rebuilt = rebuilder(slices, placed)
        off = (rebuilt.volume.as_tensor() - sharp).abs()
        width = rebuilt.error_map.half_width(0.9).as_tensor()
        calibration = rebuilder.error_maps.calibration
        wide = error_map(rebuilt, rebuilder.network, default_device(), calibration).half_width(0.9).as_tensor()
        seen = head & (torch.ones_like(head) if placed is None else placed.volume[0].as_tensor().isfinite())
        beyond, narrowest = head & ~seen, calibration.narrowest(options.thickness)
        covered = [(off <= width)[seen], (off <= width)[beyond], (off <= narrowest * wide)[head]]
        means = [f"{one.float().mean():.3f}" if len(one) else "" for one in covered]
        return (*means, f"{(width / wide)[head].median():.2f}") if placed else (means[0], "", "", "")

    yield item["contrast"], "none", *shares(None)
    copies = {
        "its own slices, rebuilt": rebuilder(slices).volume[None],
        "its own slices, a spline": blurred(truth, axis, options.thickness),
    }
    guides = kinds(central_slab(read_volume(item["guides"][0]), axis, options.slab), axis) if "guides" in item else {}
    for name, guide in {**guides, **copies}.items():
        yield item["contrast"], name, *shares(guide)


def main():
    """Prints the table."""
    parser = parser_of_volumes(__doc__)
    parser.add_argument("--thickness", type=float, default=5.0)
    parser.add_argument("--slab", type=int, default=24)
    parser.add_argument("--noise", type=float, default=0.005, help="share of the range (default: %(default)s)")
    options = parser.parse_args()
    maps = ErrorMaps(True, calibration=read_card(options.ckpt_path).error_map)
    network, inferer = shipped_network(options.ckpt_path), deployed(options.ckpt_path, spread=True)
    rebuilder = Rebuilder(network, inferer, default_device(), error_maps=maps, guide_share=1.0)
    table = [row for item in sharp_volumes(options.datalist, "validation") for row in rows(item, rebuilder, options)]
    print(markdown({name: list(column) for name, column in zip(HEADINGS, zip(*table))}))


if __name__ == "__main__":
    main()
