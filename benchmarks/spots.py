"""Contrast that small spots keep by `--check`, and real lesions of their size: a table of docs/trust.md.

python -m benchmarks.spots DATALIST [--noise 0.01] [--thickness 3 5] [--contrasts FLAIR]

Each held-out volume with a mask of lesions is acquired along its sharp axes in turn and rebuilt. Its lesions are sorted
by the diameter of a ball of as many voxels. The spots are those that the test on the slices draws, of all contrasts.
"""

import itertools
from collections import defaultdict

import numpy as np
import torch

from benchmarks import deployed, parser_of_volumes, shipped_network
from scripts.evaluate.metrics import lesion_contrast_kept
from scripts.evaluate.paired import read_lesion_sizes
from scripts.evaluate.tables import markdown
from scripts.rebuild.device import default_device
from scripts.rebuild.rebuilder import Rebuilder
from scripts.rebuild.reduced_resolution import check
from scripts.rebuild.spots import SIZES
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.interpolation import interpolate
from scripts.stack.noise import Noise
from scripts.stack.slices import Slices
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import scanned
from scripts.train.truth import read_volume

BORDERS = (0.0, *((one + other) / 2 for one, other in itertools.pairwise(SIZES)), np.inf)  # mm, between sizes


def by_size(volume, truth, sizes, edges):
    """Diameter of spots in mm -> contrast that a volume keeps of lesions of about that size; `(X, Y, Z)` all."""
    counts = [np.pi / 6 * border**3 / np.prod(edges) for border in BORDERS]
    return {
        size: lesion_contrast_kept(volume, truth, sizes, below, least)
        for size, least, below in zip(SIZES, counts, counts[1:])
    }


def main():
    """Prints the table: means over volumes and axes."""
    parser = parser_of_volumes(__doc__)
    parser.add_argument("--noise", type=float, default=0.01, help="share of the range of tissue")
    parser.add_argument("--thickness", type=float, nargs="+", default=[3.0, 5.0], help="mm")
    parser.add_argument("--contrasts", nargs="+", help="of volumes; all by default")
    options = parser.parse_args()
    network, inferer = shipped_network(options.ckpt_path), deployed(options.ckpt_path)
    rebuilder, method = Rebuilder(network, inferer, default_device()), inferer.one_family
    found = defaultdict(list)
    for item in sharp_volumes(options.datalist, "validation"):
        if "lesions" not in item or item["contrast"] not in (options.contrasts or [item["contrast"]]):
            continue
        volume = read_volume(item["label"])
        truth, sizes = volume.as_tensor()[0], read_lesion_sizes(item, volume).as_tensor()[0]
        edges = voxel_spacing(volume.affine)
        for thickness, axis in itertools.product(options.thickness, item["sharp_axes"]):
            acquisition = Acquisition.of_truth(
                axis, volume.shape[1 + axis], edge=float(edges[axis]), thickness=thickness
            )
            slices = Slices.of(scanned(volume, acquisition, Noise(options.noise), torch.Generator().manual_seed(axis)))
            result, spline = rebuilder(slices).volume.as_tensor(), interpolate(slices.array, acquisition, "cubic")
            lesions = [by_size(one, truth, sizes, edges) for one in (result, spline)]
            tested = check(slices, lambda one: method.rebuilt(one, network).volume.as_tensor())
            if tested is None:
                continue
            for size in SIZES:
                own = [(spot.kept, spot.spline) for spot in tested.spots if spot.size == size]
                spots = np.mean(own, axis=0) if own else [np.nan, np.nan]
                found[thickness, size].append([*(one[size] for one in lesions), *spots])
    means = {key: np.nanmean(rows, axis=0) for key, rows in found.items()}
    print(
        markdown(
            {
                "T (mm)": [f"{thickness:g}" for thickness, _ in means],
                "size (mm)": [f"{size:g}" for _, size in means],
                **{
                    name: [f"{row[place]:.2f}" for row in means.values()]
                    for place, name in enumerate(("lesions", "lesions, spline", "spots", "spots, spline"))
                },
            }
        )
    )


if __name__ == "__main__":
    main()
