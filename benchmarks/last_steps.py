"""The effect of deblocking and reconciling, the two steps after the networks: a table of docs/benchmarks.md.

python -m benchmarks.last_steps DATALIST [--slab 64] [--thicknesses 3 5] [--noises 0 0.01 0.02] [--ckpt_path WEIGHTS]

Each volume is rebuilt once, as deployed but for both steps, which then follow alone and together.
"""

from itertools import product

import numpy as np

from benchmarks import deployed, parser_of_volumes, shipped_network
from benchmarks.consistency import thick_slices
from scripts.evaluate.metrics import psnr
from scripts.evaluate.tables import markdown
from scripts.rebuild.consistency import difference, reconcile, relative_rmse
from scripts.rebuild.deblocking import deblock
from scripts.rebuild.device import default_device
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.slices import Slices
from scripts.stack.tissue import flat_tissue, head_mask
from scripts.stack.trace import step_ratio
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import central_slab
from scripts.train.truth import read_volume

STEPS = ("neither", "deblocked", "reconciled", "both")
HEADINGS = ("scan", "T (mm)", "noise", "neither (dB)", *STEPS[1:], "step ratio", "disagreement (%)")


def measured(truth, axis, thickness, noise, rebuilder):
    """For each of `STEPS` PSNR in the head, step ratio, and disagreement with the slices."""
    sharp, edge = truth.as_tensor()[0], float(voxel_spacing(truth.affine)[axis])
    acquisition = Acquisition.of_truth(axis, sharp.shape[axis], edge=edge, thickness=thickness)
    slices = thick_slices(truth, acquisition, noise, 0.0)
    thick, head, flat = Slices(slices.as_tensor()[0], acquisition, slices.affine), head_mask(sharp), flat_tissue(sharp)
    plain = rebuilder(thick).volume.as_tensor()
    reconciled = reconcile(plain, thick)
    results = plain, deblock(plain, thick), reconciled, deblock(reconciled, thick)
    for one in results:
        apart = relative_rmse(difference(one, thick), thick)
        yield psnr(one, sharp, head), step_ratio(one, acquisition, flat), 100 * apart


def row(scan, thickness, noise, numbers):
    """A line of the table: PSNR without the steps and the change by each; the other numbers in the order of `STEPS`."""
    quality, steps, apart = np.asarray(numbers).T
    changes = [f"{one - quality[0]:+.2f}" for one in quality[1:]]
    others = [", ".join(f"{one:.2f}" for one in column) for column in (steps, apart)]
    return (scan, f"{thickness:g}", f"{noise:.0%}", f"{quality[0]:.2f}", *changes, *others)


def main():
    """Prints the table, and the means of each contrast."""
    parser = parser_of_volumes(__doc__)
    parser.add_argument("--slab", type=int, default=64)
    parser.add_argument("--thicknesses", type=float, nargs="+", default=[3.0, 5.0])
    parser.add_argument("--noises", type=float, nargs="+", default=[0.0, 0.01, 0.02])
    options = parser.parse_args()
    inferer = deployed(options.ckpt_path, consistency="measure", deblocked=False)
    rebuilder = Rebuilder(shipped_network(options.ckpt_path), inferer, default_device())
    found = {}
    for item in sharp_volumes(options.datalist, "validation"):
        axis = item["sharp_axes"][-1]
        truth = central_slab(read_volume(item["label"]), axis, options.slab)
        for case in product(options.thicknesses, options.noises):
            numbers = list(measured(truth, axis, *case, rebuilder))
            print(item["contrast"], *row(item["subject"], *case, numbers), flush=True)
            found.setdefault((item["contrast"], *case), []).append(numbers)
    rows = [row(f"{contrast} ({len(each)})", *case, np.mean(each, axis=0)) for (contrast, *case), each in found.items()]
    print(markdown({name: list(column) for name, column in zip(HEADINGS, zip(*rows))}))


if __name__ == "__main__":
    main()
