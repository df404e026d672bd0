"""Measures what projection onto the measured slices does to the result (docs/benchmarks.md).

python -m tests.bench_consistency DATALIST [SLAB] [--ckpt_path models/model.pt] [--volumes 7]

Per held-out volume and slice spacing: thick slices are simulated, rebuilt as deployed, and projected with the model of
the slices that stands in the table. The gap is a quarter of the slice thickness, so that the slices are 2.4 mm and 4 mm
thick at spacings of 3 mm and 5 mm; "taken for none" gives the spacing as thickness to the network and the projection.
"""

import argparse

import numpy as np
import torch
from monai.bundle import ConfigParser

from scripts import metrics
from scripts.consistency import REGULARISATION, difference, project, relative_rmse
from scripts.datasets import sharp_volumes
from scripts.evaluation import Acquisition, central_slab, load_volume, rebuild
from scripts.inference import DriftInferer
from scripts.networks import load_weights
from scripts.slice_profile import SLR, acquire

GAP = 0.25  # of the slice thickness
NOISE = 0.02  # of the truth's range
LAMBDAS = (0.0, 0.01, REGULARISATION, 1.0)

# how the slices were acquired and taken to be: gap, gap assumed, noise -> profiles of the projections
CASES = {
    "no gap": (0.0, 0.0, 0.0, (SLR, "rectangular", "gaussian")),
    "gap, known": (GAP, GAP, 0.0, (SLR,)),
    "gap, taken for none": (GAP, 0.0, 0.0, (SLR,)),
    "2 % noise": (0.0, 0.0, NOISE, (SLR, "rectangular", "gaussian")),
}


def thick_slices(truth, axis, spacing, fine_spacing, gap, noise, seed=0):
    """Simulated slices, `spacing` apart, with a gap as a share of their thickness and noise of the truth's range."""
    thick = acquire(truth, axis, fine_spacing, spacing / (1 + gap), spacing)
    noise = noise * metrics.data_range(truth) * torch.randn(thick.shape, generator=torch.Generator().manual_seed(seed))
    return thick + noise


def rows(truth, axis, fine_spacing, spacing, network, inferer):
    """Yields (case, profile, lambda), then PSNR, PSNR in the head and the consistency number; None: not projected."""
    mask = metrics.head_mask(truth)
    for case, (gap, assumed_gap, noise, profiles) in CASES.items():
        thick = thick_slices(truth, axis, spacing, fine_spacing, gap, noise)
        a = Acquisition(axis, spacing / (1 + assumed_gap), spacing, truth.shape[axis], fine_spacing)
        model = (axis, fine_spacing, a.slice_thickness, a.slice_spacing)
        result = rebuild(thick, a, network, inferer, "cpu")
        for profile, regularisation in [(None, None), *((p, r) for p in profiles for r in LAMBDAS)]:
            if profile is None:
                volume = result
            else:
                volume = project(result, thick, *model, profile, regularisation)
            number = relative_rmse(difference(volume, thick, *model, profile or SLR), thick)
            quality = metrics.psnr(volume, truth), metrics.psnr(volume, truth, mask)
            yield (case, profile, regularisation), (*quality, 100 * number)


def main():
    """Prints, volume by volume and on average, quality of the result, and of each projection the change of it."""
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
    inferer = DriftInferer()
    print(
        "| volume | spacing (mm) | slices | profile | lambda | PSNR (dB) | PSNR in head (dB) | relative RMSE (%) |\n"
        "|---|---|---|---|---|---|---|---|"
    )

    def line(volume, spacing, key, values):
        case, profile, regularisation = key
        name = "SLR" if profile == SLR else profile
        form = "{:.2f} | {:.2f} | {:.2f}" if profile is None else "{:+.2f} | {:+.2f} | {:.2f}"
        model = "not projected | " if profile is None else f"{name} | {regularisation:g}"
        print(f"| {volume} | {spacing:g} | {case} | {model} | {form.format(*values)} |", flush=True)

    collected = {}
    for item in sharp_volumes(options.datalist, "validation")[: options.volumes]:
        volume, edges = load_volume(item["label"])
        axis = item["sharp_axes"][-1]
        truth = volume if options.slab is None else central_slab(volume, axis, options.slab)
        for spacing in (3.0, 5.0):
            for key, values in rows(truth, axis, float(edges[axis]), spacing, network, inferer):
                if key[1] is None:
                    before = values
                else:
                    values = (values[0] - before[0], values[1] - before[1], values[2])
                line(item["subject"], spacing, key, values)
                collected.setdefault((spacing, key), []).append(values)
    for (spacing, key), values in collected.items():
        line(f"mean of {len(values)}", spacing, key, np.mean(values, axis=0))


if __name__ == "__main__":
    main()
