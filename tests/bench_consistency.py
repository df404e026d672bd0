"""Measures what reconciling the result with the measured slices does to it (docs/benchmarks.md).

python -m tests.bench_consistency DATALIST [SLAB] [--ckpt_path models/model.pt] [--volumes 7]

Per held-out volume and slice spacing: thick slices are simulated and rebuilt, as deployed but left as the network made
them, and then moved onto the slices, by `reconcile` and by the plain projection. Both take the slices for contiguous
SLR ones, but for the gap that is known. The gap is a quarter of the slice thickness, so that slices are 2.4 mm and
4 mm thick at spacings of 3 mm and 5 mm.
"""

import argparse

import numpy as np
import torch
from monai.bundle import ConfigParser

from scripts import metrics
from scripts.consistency import difference, project, reconcile, relative_rmse
from scripts.datasets import sharp_volumes
from scripts.evaluation import Acquisition, central_slab, load_volume, rebuild
from scripts.inference import DriftInferer, window_size
from scripts.slice_profile import SLR, acquire
from scripts.training import fast_bfloat16
from scripts.weights import load_weights

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


def thick_slices(truth, axis, spacing, fine_spacing, profile, gap, noise, gain, seed=0):
    """Simulated slices, `spacing` apart: a gap as a share of their thickness, noise as one of the truth's range."""
    thick = acquire(truth, axis, fine_spacing, spacing / (1 + gap), spacing, profile)
    noise = noise * metrics.data_range(truth) * torch.randn(thick.shape, generator=torch.Generator().manual_seed(seed))
    alternating = 1 + gain * (1 - 2 * (torch.arange(thick.shape[axis]) % 2))
    return (thick.movedim(axis, -1) * alternating).movedim(-1, axis) + noise


def rows(truth, axis, fine_spacing, spacing, network, inferer):
    """Yields the case, then PSNR in the head, its change by `reconcile` and by `project`, and the consistency number
    before and after `reconcile`."""
    mask = metrics.head_mask(truth)
    for case, (profile, gap, assumed_gap, noise, gain) in CASES.items():
        thick = thick_slices(truth, axis, spacing, fine_spacing, profile, gap, noise, gain)
        a = Acquisition(axis, spacing / (1 + assumed_gap), spacing, truth.shape[axis], fine_spacing)
        model = (axis, fine_spacing, a.slice_thickness, a.slice_spacing)
        result = rebuild(thick, a, network, inferer, "cpu", "measure")
        volumes = (result, reconcile(result, thick, *model), project(result, thick, *model, regularisation=0))
        quality = [metrics.psnr(volume, truth, mask) for volume in volumes]
        numbers = [100 * relative_rmse(difference(volume, thick, *model), thick) for volume in volumes[:2]]
        yield case, (quality[0], quality[1] - quality[0], quality[2] - quality[0], *numbers)


def main():
    """Prints, volume by volume and on average, quality of the result and what becomes of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datalist")
    parser.add_argument("slab", nargs="?", type=int, help="central slices of each volume; all without it")
    parser.add_argument("--ckpt_path", default="models/model.pt")
    parser.add_argument("--volumes", type=int)
    options = parser.parse_args()
    config = ConfigParser()
    config.read_config("configs/inference.yaml")
    network = load_weights(config.get_parsed_content("network_def"), options.ckpt_path).eval()
    network = network.to(memory_format=torch.channels_last)
    n_max = config.get_parsed_content("inferer#n_max")
    inferer = DriftInferer(window_size("fast"), both_planes=True, n_max=n_max, bfloat16=fast_bfloat16("cpu"))
    print(
        "| volume | spacing (mm) | slices | DRIFT in head (dB) | reconciled (dB) | λ = 0 (dB) | disagreement (%) | "
        "reconciled (%) |\n|---|---|---|---|---|---|---|---|"
    )

    def line(volume, spacing, case, values):
        numbers = "{:.2f} | {:+.2f} | {:+.2f} | {:.2f} | {:.2f}".format(*values)
        print(f"| {volume} | {spacing:g} | {case} | {numbers} |", flush=True)

    collected = {}
    for item in sharp_volumes(options.datalist, "validation")[: options.volumes]:
        volume, edges = load_volume(item["label"])
        axis = item["sharp_axes"][-1]
        truth = volume if options.slab is None else central_slab(volume, axis, options.slab)
        for spacing in (3.0, 5.0):
            for case, values in rows(truth, axis, float(edges[axis]), spacing, network, inferer):
                line(item["subject"], spacing, case, values)
                collected.setdefault((spacing, case), []).append(values)
    for (spacing, case), values in collected.items():
        line(f"mean of {len(values)}", spacing, case, np.mean(values, axis=0))
        line(f"smallest of {len(values)}", spacing, case, np.min(values, axis=0))


if __name__ == "__main__":
    main()
