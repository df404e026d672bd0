"""The rebuilt sample beside its truth: PSNR, SSIM and a picture."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch

from ..files import whole_file
from ..stack.acquisition import Acquisition
from ..stack.grid import slice_axis, voxel_spacing
from ..stack.interpolation import interpolate
from . import metrics

logger = logging.getLogger("drift")


def _read(path: str | Path) -> tuple[torch.Tensor, np.ndarray]:
    image: Any = nib.load(path)  # nibabel declares a type without voxels
    return torch.from_numpy(image.get_fdata(dtype=np.float32)), image.affine


def compare_with_truth(items: list[dict], output_dir: str) -> None:
    """For scans whose truth is known, prints PSNR and SSIM of DRIFT and of cubic interpolation and draws a picture.

    Args:
        items: of `scans.scans`; those without `truth` are left out.
        output_dir: where the results are, and where `NAME_comparison.png` is written.
    """
    for item in items:
        if "truth" not in item:
            continue
        name = Path(item["image"]).name.removesuffix(".gz").removesuffix(".nii")
        thick, affine = _read(item["image"])
        truth, fine_affine = _read(item["truth"])
        drift, _ = _read(item["result"] + ".nii.gz")
        if drift.shape != truth.shape:
            logger.info(f"{name}: the result is on another grid than the truth, with which it is not compared.")
            continue
        axis = slice_axis(voxel_spacing(affine))
        spacing, target = (float(voxel_spacing(a)[axis]) for a in (affine, fine_affine))
        acquisition = Acquisition.of_truth(axis, truth.shape[axis], target, spacing)
        repeated, cubic = (interpolate(thick, acquisition, method) for method in ("nearest", "cubic"))
        for label, volume in (("cubic", cubic), ("DRIFT", drift)):
            psnr, ssim = metrics.psnr(volume, truth), metrics.ssim(volume, truth)
            logger.info(f"{name}: {label:5s}  PSNR {psnr:.2f} dB  SSIM {ssim:.4f}")
        path = Path(output_dir) / f"{name}_comparison.png"
        draw_comparison({"input": repeated, "cubic": cubic, "DRIFT": drift, "truth": truth}, axis, path)
        logger.info(f"wrote {path}")


def draw_comparison(volumes: dict[str, torch.Tensor], axis: int, path: str | Path) -> None:
    """Draws the two planes near the middle that contain the slice axis, a column for each volume, at one windowing.

    Args:
        volumes: name -> `(X, Y, Z)` volume; all on one grid in RAS+ order, the last one sets the windowing.
        axis: slice axis, drawn upwards.
        path: PNG to write.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    reference = list(volumes.values())[-1].numpy()
    low, high = np.percentile(reference, (0.5, 99.8))
    normals = [a for a in range(3) if a != axis][::-1]
    figure, panels = plt.subplots(2, len(volumes), figsize=(3.4 * len(volumes), 7), facecolor="black")
    for column, (name, volume) in enumerate(volumes.items()):
        for panel, normal in zip(panels[:, column], normals):
            plane = volume.movedim((axis, normal), (0, 1))[:, 2 * volume.shape[normal] // 5]  # beside the midline
            panel.imshow(plane.numpy(), cmap="gray", vmin=low, vmax=high, origin="lower", interpolation="nearest")
            panel.axis("off")
        panels[0, column].set_title(name, color="white", fontsize=14)
    figure.tight_layout()
    with whole_file(path) as partial:
        figure.savefig(partial, dpi=110, facecolor="black")
    plt.close(figure)
