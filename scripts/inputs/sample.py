"""The built-in sample: real anatomy that needs no download, and its rebuilt scan beside the truth."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch

from ..errors import InputError
from ..evaluate import metrics
from ..files import whole_file
from ..stack.acquisition import Acquisition
from ..stack.grid import fine_affine, slice_axis, voxel_spacing
from ..stack.interpolation import interpolate
from ..stack.profile import acquire

logger = logging.getLogger("drift")


def built_in_sample(output_dir: str | os.PathLike, slice_thickness: float = 5.0) -> dict:
    """Real anatomy that needs no download: the 1 mm ICBM152 T1 template in nilearn's wheel, as an axial thick scan.

    Fonov et al., NeuroImage 54:313-327 (2011).

    Args:
        output_dir: where `icbm152_truth.nii.gz` and `icbm152.nii.gz`, the thick scan, are written, and the sidecar that
            states its slice thickness.
        slice_thickness: of the axial slices, without gap, in mm.

    Returns:
        An item of `scans.scans`.

    Raises:
        InputError: if the folder cannot be written.
    """
    from nilearn.datasets import load_mni152_template  # here, because it takes seconds and only the sample needs it

    template = load_mni152_template(resolution=1)
    data = np.asarray(template.dataobj, dtype=np.float32)
    inside = np.argwhere(data > 0)
    low, high = np.maximum(inside.min(0) - 2, 0), np.minimum(inside.max(0) + 3, data.shape)
    high[2] -= (high[2] - low[2]) % int(slice_thickness)  # whole thick slices: truth and result share one grid
    truth = template.slicer[tuple(slice(a, b) for a, b in zip(low, high))]
    sharp = np.asarray(truth.dataobj, dtype=np.float32)
    acquisition = Acquisition.of_truth(2, sharp.shape[2], 1.0, slice_thickness)
    thick = acquire(torch.from_numpy(sharp), acquisition).numpy()
    affine = fine_affine(truth.affine, 2, sharp.shape[2], thick.shape[2], slice_thickness)
    paths = {"truth": Path(output_dir, "icbm152_truth.nii.gz"), "image": Path(output_dir, "icbm152.nii.gz")}
    path, sidecar, result = (str(Path(output_dir, name)) for name in ("icbm152.nii.gz", "icbm152.json", "icbm152_sr"))
    try:
        for key, image in {"truth": (sharp, truth.affine), "image": (thick, affine)}.items():
            with whole_file(paths[key]) as partial:
                nib.save(nib.Nifti1Image(*image), partial)
        with whole_file(sidecar) as partial:
            partial.write_text(json.dumps({"SliceThickness": slice_thickness}) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"output_dir {output_dir} cannot be written ({error}). Choose another one.") from error
    return {"image": path, "name": path, "sources": [path, sidecar], "result": result, "truth": str(paths["truth"])}


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
