"""Rebuilt scans whose truth is known, such as the built-in sample, beside it: PSNR, SSIM and a picture."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch

from ..files import stem, whole_file
from ..inputs.scan import Scan
from ..pages import planes
from ..stack.acquisition import Acquisition
from ..stack.grid import slice_axis, voxel_spacing
from ..stack.interpolation import interpolate
from . import metrics

logger = logging.getLogger("drift")


def _read(path: str | Path) -> tuple[torch.Tensor, np.ndarray]:
    image: Any = nib.load(path)  # nibabel declares a type without voxels
    return torch.from_numpy(image.get_fdata(dtype=np.float32)), image.affine


def compare_with_truth(scans: Sequence[Scan], output_dir: str) -> None:
    """Logs PSNR and SSIM of DRIFT and of cubic interpolation, and draws a picture, for scans whose truth is known.

    Args:
        output_dir: where the results are, and where `NAME_comparison.png` is written.
    """
    for scan in scans:
        if scan.truth is None or scan.path is None:
            continue
        name = stem(scan.path.name)
        thick, affine = _read(scan.path)
        truth, fine_affine = _read(scan.truth)
        drift, _ = _read(f"{scan.result}.nii.gz")
        if drift.shape != truth.shape:
            logger.info(f"{name}: the result is on another grid than the truth and is not compared with it.")
            continue
        axis = slice_axis(voxel_spacing(affine))
        spacing, target = (float(voxel_spacing(a)[axis]) for a in (affine, fine_affine))
        acquisition = Acquisition.of_truth(axis, truth.shape[axis], edge=target, thickness=spacing)
        repeated, cubic = (interpolate(thick, acquisition, method) for method in ("nearest", "cubic"))
        for label, volume in (("cubic", cubic), ("DRIFT", drift)):
            psnr, ssim = metrics.psnr(volume, truth), metrics.ssim(volume, truth)
            logger.info(f"{name}: {label:5s}  PSNR {psnr:.2f} dB  SSIM {ssim:.4f}")
        path = Path(output_dir) / f"{name}_comparison.png"
        draw_comparison({"input": repeated, "cubic": cubic, "DRIFT": drift, "truth": truth}, axis, path)
        logger.info(f"wrote {path}")


def draw_comparison(volumes: dict[str, torch.Tensor], axis: int, path: str | Path) -> None:
    """Draws the two planes beside the midline that contain the slice axis: a column for each volume, at one window.

    Args:
        volumes: name -> `(X, Y, Z)` volume; all on one grid in RAS+ order. The last one sets the window.
    """
    from matplotlib.figure import Figure  # here: it takes a second

    low, high = planes.window(list(volumes.values())[-1])
    normals = [normal for _, normal, *_ in planes.VIEWS if normal != axis]
    figure = Figure(figsize=(3.4 * len(volumes), 7), facecolor="black", layout="tight")
    panels = figure.subplots(2, len(volumes))
    for column, (name, volume) in enumerate(volumes.items()):
        for panel, normal in zip(panels[:, column], normals):
            plane = planes.cut(volume, normal, planes.beside_midline(volume.shape[normal]))
            panel.imshow(planes.shades(plane, low, high), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            panel.axis("off")
        panels[0, column].set_title(name, color="white", fontsize=14)
    with whole_file(path) as partial:
        figure.savefig(partial, dpi=110, facecolor="black")
