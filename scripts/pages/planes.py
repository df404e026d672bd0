"""Planes of a volume as radiologists hang them: the patient's right, or front, at the left, the head on top."""

from __future__ import annotations

import base64
import io

import numpy as np
from monai.data import MetaTensor
from PIL import Image

from ..stack.grid import canonical, voxel_spacing
from ..stack.intensity import intensity_range

OBLIQUE = 0.25  # cosine from which a second or third letter is named, about 15 degrees
SIDES = ("LR", "PA", "IS")  # where the patient's x, y and z come from and go to
# What each plane of a volume in RAS+ order shows: its name, and the axes normal to it, across it and upwards. Both of
# these grow to the left and to the top.
VIEWS = (("axial", 2, 0, 1), ("coronal", 1, 0, 2), ("sagittal", 0, 1, 2))


def ras(volume: MetaTensor) -> tuple[np.ndarray, np.ndarray]:
    """The volume `(X, Y, Z)` in the array order closest to RAS+, and its affine `(4, 4)`, voxel -> mm."""
    affine = np.asarray(volume.affine, dtype=float)
    axes, flipped = canonical(affine)
    array = np.ascontiguousarray(np.flip(np.asarray(volume.as_tensor()).transpose(axes), flipped))
    affine = affine[:, [*axes, 3]]
    for axis in flipped:
        affine[:3, 3] += affine[:3, axis] * (array.shape[axis] - 1)
        affine[:3, axis] *= -1
    return array, affine


def sides(affine: np.ndarray) -> list[tuple[str, str]]:
    """The patient's sides where each axis of a volume in RAS+ order begins and ends, such as `("L", "R")`.

    Of an oblique axis more letters than one, as PS3.3 (C.7.6.1.1.1) has it: `RA` is mostly right, and in front.
    """
    names = []
    for column in (affine[:3, :3] / voxel_spacing(affine)).T:
        order = [k for k in np.argsort(-np.abs(column)) if abs(column[k]) >= OBLIQUE]
        ends = ["".join(SIDES[k][int((column[k] > 0) == end)] for k in order) for end in (False, True)]
        names.append((ends[0], ends[1]))
    return names


def hang(array: np.ndarray, normal: int, index: int) -> np.ndarray:
    """A plane of a volume in RAS+ order as it hangs, first row on top.

    Args:
        array: `(X, Y, Z)`.
        normal: axis.
        index: along it; the first or last plane is taken beyond the ends.
    """
    return array.take(min(max(index, 0), array.shape[normal] - 1), axis=normal).T[::-1, ::-1]


def window(measured: MetaTensor) -> tuple[float, float]:
    """Intensities of a scan to be drawn black and white, without hot spots."""
    low, high, _ = intensity_range(measured.as_tensor())
    bottom, top = np.percentile(np.asarray(measured.as_tensor()), (0.5, 99)).clip(low, high).tolist()
    return bottom, top


def shades(plane: np.ndarray, low: float, high: float) -> np.ndarray:
    """Intensities from `low` to `high` as 0 to 1, clipped."""
    return np.clip((plane - low) / max(high - low, 1e-12), 0, 1)


def png(shades: np.ndarray) -> str:
    """A grey picture of shades from 0 to 1 as a data URL."""
    stream = io.BytesIO()
    Image.fromarray(np.rint(shades * 255).astype(np.uint8)).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
