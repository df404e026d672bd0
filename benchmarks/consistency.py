"""Measures the effect of reconciling a result with the measured slices (docs/benchmarks.md).

python -m benchmarks.consistency DATALIST [SLAB] [--ckpt_path models/model.pt] [--volumes 7]

Per held-out volume and slice spacing: thick slices are simulated and rebuilt, as deployed but left as the network made
them, and then moved onto the slices, by `reconcile` and by the plain projection. Both take the slices for contiguous
SLR ones, but for the gap that is known. The gap is a quarter of the slice thickness, so that slices are 2.4 mm and
4 mm thick at spacings of 3 mm and 5 mm.
"""

from dataclasses import replace

import numpy as np
import torch

from benchmarks import deployed, parser_of_volumes, shipped_network
from scripts.evaluate import metrics
from scripts.evaluate.tables import markdown
from scripts.rebuild.consistency import difference, project, reconcile, relative_rmse
from scripts.rebuild.device import default_device
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack import intensity, tissue
from scripts.stack.acquisition import SLR, Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.slices import Slices
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import central_slab, simulate
from scripts.train.truth import read_volume

HEADINGS = (
    *("volume", "spacing (mm)", "slices", "DRIFT in head (dB)", "reconciled (dB)", "λ = 0 (dB)"),
    *("disagreement (%)", "reconciled (%)"),
)
GAP = 0.25  # of the slice thickness

# how the slices were acquired: profile, gap, gap assumed, noise and alternating gain as shares
CASES = {
    "as assumed": (SLR, 0.0, 0.0, 0.0, 0.0),
    "rectangular": ("rectangular", 0.0, 0.0, 0.0, 0.0),
    "Gaussian": ("gaussian", 0.0, 0.0, 0.0, 0.0),
    "gap, known": (SLR, GAP, GAP, 0.0, 0.0),
    "gap, taken for none": (SLR, GAP, 0.0, 0.0, 0.0),
    "1 % noise": (SLR, 0.0, 0.0, 0.01, 0.0),
    "2 % noise": (SLR, 0.0, 0.0, 0.02, 0.0),
    "gains of ± 2 %": (SLR, 0.0, 0.0, 0.0, 0.02),
}


def thick_slices(truth, acquisition, noise, gain, seed=0):
    """Simulated slices, with noise as a share of the truth's range and gains that alternate."""
    thick = simulate(truth, acquisition)
    alternating = 1 + gain * (1 - 2 * (torch.arange(acquisition.slice_count) % 2))
    noise = (
        noise * intensity.data_range(truth) * torch.randn(thick.shape, generator=torch.Generator().manual_seed(seed))
    )
    dim = acquisition.dim(thick)
    thick.copy_((thick.as_tensor().movedim(dim, -1) * alternating).movedim(-1, dim) + noise)
    return thick


def rows(truth, axis, spacing, network, inferer):
    """Yields the case, then PSNR in the head, its change by `reconcile` and by `project`, and the consistency number
    before and after `reconcile`."""
    sharp = truth.as_tensor()[0]
    mask = tissue.head_mask(sharp)
    for case, (profile, gap, assumed_gap, noise, gain) in CASES.items():
        assumed = Acquisition.of_truth(
            axis,
            sharp.shape[axis],
            edge=float(voxel_spacing(truth.affine)[axis]),
            thickness=spacing / (1 + assumed_gap),
            spacing=spacing,
        )
        actual = replace(assumed, slice_thickness=spacing / (1 + gap), profile=profile)
        slices = thick_slices(truth, actual, noise, gain)
        thick = Slices(slices.as_tensor()[0], assumed, slices.affine)
        result = Rebuilder(network, inferer, default_device())(thick).volume.as_tensor()
        volumes = (result, reconcile(result, thick), project(result, thick, regularisation=0, smoothness=0))
        quality = [metrics.psnr(volume, sharp, mask) for volume in volumes]
        numbers = [100 * relative_rmse(difference(volume, thick), thick) for volume in volumes[:2]]
        yield case, (quality[0], quality[1] - quality[0], quality[2] - quality[0], *numbers)


def main():
    """Prints, volume by volume and on average, quality of the result before and after."""
    parser = parser_of_volumes(__doc__)
    parser.add_argument("slab", nargs="?", type=int, help="central slices of each volume; all without it")
    parser.add_argument("--volumes", type=int)
    options = parser.parse_args()
    network = shipped_network(options.ckpt_path)
    inferer = deployed(options.ckpt_path, consistency="measure", deblocked=False)
    lines, collected = [], {}

    def line(volume, spacing, case, values):
        forms = ("{:.2f}", "{:+.2f}", "{:+.2f}", "{:.2f}", "{:.2f}")
        lines.append((volume, f"{spacing:g}", case, *(form.format(value) for form, value in zip(forms, values))))

    for item in sharp_volumes(options.datalist, "validation")[: options.volumes]:
        axis = item["sharp_axes"][-1]
        truth = central_slab(read_volume(item["label"]), axis, options.slab)
        for spacing in (3.0, 5.0):
            for case, values in rows(truth, axis, spacing, network, inferer):
                line(item["subject"], spacing, case, values)
                collected.setdefault((spacing, case), []).append(values)
    for (spacing, case), values in collected.items():
        line(f"mean of {len(values)}", spacing, case, np.mean(values, axis=0))
        line(f"smallest of {len(values)}", spacing, case, np.min(values, axis=0))
    print(markdown(dict(zip(HEADINGS, zip(*lines)))))


if __name__ == "__main__":
    main()
