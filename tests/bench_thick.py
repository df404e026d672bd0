"""Real thick-slice scans, for which no truth exists: through-plane sharpness before and after, and a picture.

python -m tests.bench_thick SCANS PICTURE [--slab 24]

SCANS is a folder of axial scans. Of each, the coronal slab behind the middle is rebuilt by configs/inference.yaml: it
shows the brain without the face, and what the whole scan would show there.
"""

import argparse
import tempfile
from pathlib import Path

import matplotlib
import nibabel as nib
import numpy as np
import torch
from monai.bundle import ConfigWorkflow
from PIL import Image

from scripts.evaluation import interpolate_slices
from scripts.grid import voxel_spacing
from scripts.metrics import directional_power_ratio

LEFT_RIGHT, FRONT_BACK, SLICE = range(3)  # axes of an axial scan in RAS+ order


def read(path):
    """Volume and voxel edges (mm)."""
    image = nib.load(path)
    return torch.from_numpy(image.get_fdata(dtype=np.float32)), voxel_spacing(image.affine)


def main():
    """Prints a table and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scans", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--slab", type=int, default=24)
    options = parser.parse_args()
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    with tempfile.TemporaryDirectory() as folder:
        slabs = Path(folder) / "slabs"
        slabs.mkdir()
        for path in sorted(options.scans.glob("*.nii*")):
            scan = nib.as_closest_canonical(nib.load(path))
            start = int(0.42 * scan.shape[FRONT_BACK]) - options.slab // 2
            nib.save(scan.slicer[:, start : start + options.slab], slabs / path.name)
        workflow = ConfigWorkflow("configs/inference.yaml", workflow_type="infer", input=str(slabs), output_dir=folder)
        workflow.initialize()
        workflow.run()

        rows = []
        print("| scan | slices (mm) | cubic spline (dB) | DRIFT (dB) |\n|---|---|---|---|")
        for path in sorted(slabs.iterdir()):
            name = path.name.removesuffix(".gz").removesuffix(".nii")
            (thick, edges), (result, spacing) = read(path), read(Path(folder) / f"{name}_sr.nii.gz")
            stack = (edges[SLICE], result.shape[SLICE], spacing[SLICE])
            nearest, cubic = (interpolate_slices(thick, SLICE, *stack, method) for method in ("nearest", "cubic"))
            band = (1 / (2 * edges[SLICE]), 1 / (2 * max(spacing)))  # thick slices cannot hold it, the grid can
            ratios = [directional_power_ratio(v, SLICE, LEFT_RIGHT, spacing, band) for v in (cubic, result)]
            print(f"| {name} | {edges[SLICE]:.2g} | {ratios[0]:.1f} | {ratios[1]:.1f} |", flush=True)
            rows.append((name, spacing, (nearest, cubic, result)))

    figure, panels = plt.subplots(len(rows), 3, figsize=(12, 3.4 * len(rows)), facecolor="black", squeeze=False)
    for line, (name, spacing, volumes) in zip(panels, rows):
        low, high = np.percentile(volumes[0], (0.5, 99.7))
        for panel, volume, title in zip(line, volumes, (f"{name}: measured", "cubic spline", "DRIFT")):
            plane = volume[:, options.slab // 2].T
            aspect = spacing[SLICE] / spacing[LEFT_RIGHT]
            panel.imshow(plane, cmap="gray", vmin=low, vmax=high, origin="lower", aspect=aspect)
            panel.set_title(title, color="white", fontsize=9)
            panel.axis("off")
    figure.tight_layout()
    figure.savefig(options.picture, dpi=100, facecolor="black")
    Image.open(options.picture).convert("L").save(options.picture, optimize=True)  # nothing has a colour: half the size


if __name__ == "__main__":
    main()
