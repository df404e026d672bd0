"""A volume that may be learnt from: a complete scan that is sharp where it is said to be."""

import os
from collections.abc import Sequence

import torch
from monai.data import MetaTensor

from ..errors import InputError
from ..inputs import bids
from ..inputs.transforms import LoadScand
from ..stack.acquisition import is_thin
from ..stack.contents import verdict
from ..stack.grid import voxel_spacing
from ..stack.spectra import SPACING_LOST, interpolated, sharpness, spacing_is_lost

THIN = 1.5  # mm; slices no farther apart are sharp, as slices of 3-D scans are
SAMPLE = 1_000_000  # voxels that are looked at
LARGEST_LABEL = 2**15 - 1  # of int16, in which maps are kept


def check_truth(path: str, sharp_axes: Sequence[int]) -> str:
    """Refuses a volume from which nothing sharp can be learnt. Returns why its voxels are doubtful, else nothing."""
    volume = _loaded(path)
    answer, why = verdict(volume.as_tensor()[0].numpy())
    if answer == "none":
        raise InputError(f"{path} is no scan: {why}. Leave it out.")
    edges = voxel_spacing(volume.affine.numpy())
    spacings = edges[list(sharp_axes)]
    *finer, spacing = sorted(map(float, spacings))
    thickness = bids.sidecar_value(path, "SliceThickness")[0] if len(sharp_axes) == 3 else None
    known = float(thickness) if isinstance(thickness, int | float) else None
    if finer and not is_thin(spacing, known, finer[-1], THIN):
        slices = f"{spacing:.3g} mm apart" + (f" and {known:.3g} mm thick" if known else "")
        raise InputError(
            f"{path} has slices {slices}: expected {THIN:g} mm at most, since it is to be sharp along the array axes "
            f'{tuple(sharp_axes)}. Leave it out, or name its "sharp_axes" in a datalist.'
        )
    array = volume.as_tensor()[0]
    if spacing_is_lost(array, edges):
        raise InputError(f"{path}: {SPACING_LOST}. Mend its header, or leave it out.")
    if found := interpolated(sharpness(array, edges), edges, sharp_axes):
        axis, spacing = found
        raise InputError(
            f"{path} was interpolated along axis {axis}: it shows no more than {spacing:.2g} mm slices do, and its "
            f'voxels are of {edges[axis]:.3g} mm. Leave it out, or name its "sharp_axes" without it in a datalist.'
        )
    return why


def check_label_map(path: str) -> None:
    """Refuses a volume from which no contrast can be synthesised."""
    volume = _loaded(path)
    values = torch.unique(volume.as_tensor().flatten()[:: max(1, volume.numel() // SAMPLE)])
    if not torch.equal(values, values.round()):
        raise InputError(f"{path} holds other than whole numbers: expected a label map. Leave it out.")
    low, high = int(volume.min()), int(volume.max())
    if low < 0 or high > LARGEST_LABEL:
        raise InputError(f"{path} has labels from {low} to {high}: expected 0 to {LARGEST_LABEL}. Leave it out.")


def read_volume(path: str | os.PathLike) -> MetaTensor:
    """A sharp volume `(1, X, Y, Z)` with its affine."""
    return LoadScand("label")({"label": path})["label"]


def _loaded(path: str) -> MetaTensor:
    """A volume, `(1, X, Y, Z)`, that is not constant."""
    volume = read_volume(path)
    if volume.min() == volume.max():
        raise InputError(f"{path} is constant, {volume.min():g} everywhere: expected a volume. Leave it out.")
    return volume
