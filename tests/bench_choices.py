"""Measures two choices of inference that the paper leaves open: planes and intensity scaling (docs/benchmarks.md).

python -m tests.bench_choices DATASET_DIR [--thickness 5] [--volumes 3] [--steps 0]
"""

import argparse

from monai.data import MetaTensor

from scripts import evaluation, metrics
from scripts.datasets import sharp_volumes
from scripts.evaluation import Acquisition, load_volume
from scripts.inference import DriftInferer
from scripts.slice_profile import acquire, regrid_nearest
from tests.bench_common import shipped_network


def rebuild(thick, a, network, inferer, per_plane):
    """The deployed steps; with `per_plane`, each plane's own minimum and maximum become -1 and 1 instead."""
    if not per_plane:
        return evaluation.rebuild(thick, a, network, inferer, "cpu")
    fine = regrid_nearest(thick, a.slice_axis, a.slice_spacing, a.fine_count, a.fine_spacing)
    others = sorted((x for x in range(3) if x != a.slice_axis), key=lambda x: -fine.shape[x])
    low = fine.amin(dim=(a.slice_axis, others[0]), keepdim=True)
    span = (fine.amax(dim=(a.slice_axis, others[0]), keepdim=True) - low).clamp(min=1e-6)
    facts = dict(slice_axis=a.slice_axis, slice_spacing=a.slice_spacing)
    facts |= dict(slice_thickness=a.slice_thickness, target_thickness=a.fine_spacing)
    unit = MetaTensor(((fine - low) / span * 2 - 1)[None, None], meta=facts)
    return (inferer(unit, network).as_tensor()[0, 0] + 1) / 2 * span + low


def main():
    """Prints PSNR in the head (dB) of each choice, volume by volume."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset_dir")
    parser.add_argument("--ckpt_path", default="models/model.pt")
    parser.add_argument("--thickness", type=float, default=5.0)
    parser.add_argument("--volumes", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0)
    options = parser.parse_args()
    network = shipped_network(options.ckpt_path)
    print("| volume | planes along the longer axis | both, averaged | scaled plane by plane |\n|---|---|---|---|")
    for item in sharp_volumes(options.dataset_dir, "validation")[-options.volumes :]:
        truth, spacing = load_volume(item["label"])
        axis = item["sharp_axes"][-1]
        a = Acquisition(axis, options.thickness, options.thickness, truth.shape[axis], float(spacing[axis]))
        thick = acquire(truth, axis, a.fine_spacing, a.slice_thickness, a.slice_spacing)
        mask = metrics.head_mask(truth)
        values = []
        for both, per_plane in ((False, False), (True, False), (False, True)):
            inferer = DriftInferer(both_planes=both, steps=options.steps)
            values.append(metrics.psnr(rebuild(thick, a, network, inferer, per_plane), truth, mask))
        print(f"| {item['subject']} | " + " | ".join(f"{v:.2f}" for v in values) + " |", flush=True)


if __name__ == "__main__":
    main()
