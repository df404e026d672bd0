"""Rebuilt scans whose truth is known, such as the built-in sample, beside it: PSNR, SSIM and a picture."""

from collections.abc import Sequence
from pathlib import Path

import torch

from ..errors import logger
from ..files import stem, whole_file
from ..inputs.scan import Scan
from ..pages import planes
from ..stack.acquisition import Acquisition
from ..stack.grid import slice_axis, voxel_spacing
from ..stack.interpolation import interpolate
from ..train.truth import read_volume
from . import metrics


def compare_with_truth(scans: Sequence[Scan], output_dir: str) -> None:
    """Logs PSNR and SSIM of DRIFT and of cubic interpolation for scans whose truth is known.

    Draws a picture of each beside the results, `NAME_comparison.png`.
    """
    for scan in scans:
        if scan.truth is None or scan.path is None:
            continue
        name = stem(scan.path.name)
        volumes = [read_volume(path) for path in (scan.path, scan.truth, f"{scan.result}.nii.gz")]
        thick, truth, drift = (volume.as_tensor()[0] for volume in volumes)
        if drift.shape != truth.shape:
            logger.info(f"{name}: the result is on another grid than the truth and is not compared with it.")
            continue
        axis = slice_axis(voxel_spacing(volumes[0].affine))
        spacing, target = (float(voxel_spacing(volume.affine)[axis]) for volume in volumes[:2])
        acquisition = Acquisition.of_truth(axis, truth.shape[axis], edge=target, thickness=spacing)
        repeated, cubic = (interpolate(thick, acquisition, method) for method in ("nearest", "cubic"))
        for label, volume in (("cubic", cubic), ("DRIFT", drift)):
            psnr, ssim = metrics.psnr(volume, truth), metrics.ssim(volume, truth)
            logger.info(f"{name}: {label:5s}  PSNR {psnr:.2f} dB  SSIM {ssim:.4f}")
        path = Path(output_dir) / f"{name}_comparison.png"
        draw_comparison({"input": repeated, "cubic": cubic, "DRIFT": drift, "truth": truth}, axis, path)
        logger.info(f"wrote {path}")


def draw_comparison(
    volumes: dict[str, torch.Tensor], axis: int, path: str | Path, window: tuple[float, float] | None = None
) -> None:
    """Draws the two planes beside the midline that contain the slice axis: a column for each volume, at one window.

    The volumes `(X, Y, Z)`, by their names, lie on one grid in RAS+ order. Without a window the last one sets it.
    """
    from matplotlib.figure import Figure  # here: it takes a second

    low, high = planes.window(list(volumes.values())[-1]) if window is None else window
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
