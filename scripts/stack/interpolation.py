"""Thick slices on the fine grid: by the nearest slice, which the networks start from, or by a spline, their rival."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.interpolate import make_interp_spline
from torch import Tensor

from . import grid
from .acquisition import Acquisition
from .profile import acquire

SPLINE_DEGREES = {"linear": 1, "cubic": 3}


def interpolate(thick: Tensor, acquisition: Acquisition, method: str) -> Tensor:
    """Interpolates between the centres of the slices, along the slice axis, to `fine_count` slices.

    Beyond the centres of the outermost slices nothing was measured: their values are repeated there.

    Args:
        thick: image with the measured slices; its last three dimensions are X, Y and Z.
        acquisition: of the slices.
        method: `"nearest"`, which shows the stair steps (Eq. S3); `"linear"`; or `"cubic"`, a not-a-knot spline. Fewer
            slices than a spline needs lower its degree.
    """
    a, dim = acquisition, acquisition.dim(thick)
    if method == "nearest":
        return thick.index_select(dim, torch.from_numpy(a.nearest_slices).to(thick.device))
    if method not in SPLINE_DEGREES:
        raise ValueError(f"method is {method!r}: expected 'nearest', 'linear' or 'cubic'.")
    centres = a.slice_rows
    degree = min(SPLINE_DEGREES[method], a.slice_count - 1)
    spline = make_interp_spline(centres, thick.cpu().double().numpy(), k=degree, axis=dim)
    return torch.from_numpy(spline(np.clip(np.arange(a.fine_count), centres[0], centres[-1]))).to(thick)


def resample(image: Tensor, axis: int, spacing: float, target: float) -> Tensor:
    """An image at another voxel edge along one axis, centred on the same point.

    To coarser voxels it is integrated as slices of that thickness are, so that nothing aliases; to finer ones it is
    interpolated by a cubic spline. The image's last three dimensions are X, Y and Z; lengths are in mm.
    """
    count = image.shape[image.ndim - 3 + axis]
    if spacing < target:
        return acquire(image, Acquisition.of_truth(axis, count, edge=spacing, thickness=target))
    stack = Acquisition.stack(axis, count, spacing=spacing, thickness=spacing, target=target)
    return interpolate(image, stack, "cubic")


def at_spacing(image: Tensor, axis: int, spacing: float, wanted: float) -> Tensor:
    """Samples of an image `wanted` mm apart along one axis, centred on the same point: those of its cubic spline.

    They are the slices that an image was interpolated from, if these lay there. The image's last three dimensions are
    X, Y and Z; its voxels are `spacing` mm long along the axis, and shorter than `wanted`.
    """
    dim = image.ndim - 3 + axis
    count = image.shape[dim]
    places = np.arange(max(1, round(count * spacing / wanted))) * wanted / spacing
    spline = make_interp_spline(np.arange(count), image.cpu().double().numpy(), k=min(3, count - 1), axis=dim)
    return torch.from_numpy(spline(places + (count - 1 - places[-1]) / 2)).to(image)


def respaced(
    volume: Any, axis: int, spacing: float, resampled: Callable[[Tensor, int, float, float], Tensor] = resample
) -> Any:
    """A `(1, X, Y, Z)` `MetaTensor` with another spacing along an axis, in mm, centred on the same point."""
    affine, count = volume.affine.numpy(), volume.shape[1 + axis]
    array = resampled(volume.as_tensor(), axis, float(grid.voxel_spacing(affine)[axis]), spacing)
    affine = grid.respaced_affine(affine, axis, count, array.shape[1 + axis], spacing)
    return type(volume)(array, affine=torch.from_numpy(affine), meta=grid.meta_without_affine(volume))


def with_square_pixels(volume: Any, slice_axis: int, edge: float) -> Any:
    """A `(1, X, Y, Z)` `MetaTensor` whose pixels have edges of `edge` mm."""
    result = volume
    for axis in (a for a in range(3) if a != slice_axis):
        result = respaced(result, axis, edge)
    if volume.min() >= 0:
        result.clamp_(min=volume.min().item())  # splines undershoot
    return result
