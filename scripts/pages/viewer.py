"""The volumes of a scan's page, to scroll through: cropped, in 8 bits, and packed for `page.js`."""

import base64
import gzip
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from monai.transforms.utils import generate_spatial_bounding_box

from ..stack.acquisition import Acquisition
from ..stack.grid import SIDES, voxel_spacing
from ..stack.interpolation import interpolate
from ..stack.slices import Slices
from .planes import ras, sides

MARGIN = 10.0  # mm of air around the head
LARGEST = 13_000_000  # bytes of packed volumes: with base64 and pictures, a page is smaller than 20 MB
ONE = 4096  # a weight of 1; weights are integers, so that all machines compute the same


def _box(slices: Slices) -> list[tuple[int, int]]:
    """First voxel of the head and its margin along each axis, and end; of the whole volume where there is no head."""
    if slices.constant:
        return [(0, count) for count in slices.shape]
    margin = np.round(MARGIN / slices.edges).astype(int).tolist()
    return list(zip(*generate_spatial_bounding_box(slices.head[None], margin=margin, allow_smaller=True)))


def _weights(acquisition: Acquisition) -> np.ndarray:
    """The share of each measured slice in each slice of the cubic interpolation, `(fine, measured)` integers."""
    each = torch.eye(acquisition.slice_count, dtype=torch.float64)[..., None]
    shares = interpolate(each, replace(acquisition, slice_axis=0), "cubic")[..., 0].numpy()
    return np.rint(shares * ONE).astype(int)


def _places(
    affine: np.ndarray, marks: Sequence[Sequence[float]], borders: Mapping[str, Sequence[float]]
) -> dict[str, list[list[float]]]:
    """The facts `marks` and `borders` of `pack`, on a grid in RAS+ order with this affine, `(4, 4)`."""
    inverse = np.linalg.inv(affine)

    def index(place: Sequence[float]) -> list[float]:
        return (inverse @ [*place, 1])[:3].round(2).tolist()

    normals = {end: axis for axis, ends in enumerate(SIDES) for end in ends}
    return {
        "marks": [index(mark) for mark in marks],
        "borders": [[normals[end], index(place)[normals[end]]] for end, place in borders.items()],
    }


def pack(
    slices: Slices,
    result: MetaTensor,
    largest: int = LARGEST,
    error: MetaTensor | None = None,
    marks: Sequence[Sequence[float]] = (),
    borders: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> tuple[dict[str, Any], str]:
    """The measured slices, their cubic interpolation and the result, for a script to draw side by side.

    The volumes are cut to the head with a margin of air and quantised to 8 bits. These arrays are packed,
    slices first:

    1. the measured slices;
    2. the cubic interpolation, less the quantised slices times `weights`;
    3. the result, less the cubic interpolation;
    4. the error map, if there is one.

    The differences are modulo 256 and compress well. If the packed volumes are still larger than `largest`, every
    second pixel along each side of a slice is left out, or two of three, and so on.

    Args:
        result: `(X, Y, Z)` on the fine grid with its affine.
        largest: bytes of the packed volumes.
        error: `(X, Y, Z)`, the result's error map.
        marks: places to be marked, RAS+, in mm.
        borders: of a guide's field of view, as `coverage.Coverage` has them.

    Returns:
        Facts for the script, in plain types, and the volumes, gzip in base64. Facts of the fine grid as it was cut, in
        RAS+ order: `shape`; `edges` in mm; the first three rows of the `affine`; `sides` where the axes begin and end;
        the slice `axis`. For each fine slice: the `nearest` measured one, and the `weights` of all. `low` and `high`:
        intensities of grey 0 and 255. `step`: every `step`-th pixel is there. `error`: whether an error map is.
        `marks`: their indices. `borders`: for each its axis, and its index along that axis.
    """
    turned = slices.canonical
    measured, a = turned.array.numpy(), turned.acquisition
    fine, affine = ras(result)
    axis, (low, high, _) = a.slice_axis, slices.tissue_range
    cubic = np.asarray(interpolate(turned.array, a, "cubic"))
    box = _box(turned)
    nearest = a.nearest_slices
    first, end = box[axis]
    (covered,) = np.nonzero((nearest >= first) & (nearest < end))
    weights = _weights(a)[covered, first:end]

    def greys(volume: np.ndarray, begin: int, end: int, step: int) -> np.ndarray:
        """The volume from slice `begin` until slice `end`, cut, in 8 bits, slices first."""
        cut = [slice(*side, step) for side in box]
        cut[axis] = slice(begin, end)
        share = (np.moveaxis(volume[tuple(cut)], axis, 0) - np.float64(low)) / (high - low)
        return np.rint(share * 255).clip(0, 255).astype(np.uint8)

    for step in itertools.count(1):
        seen = greys(measured, first, end, step)
        smooth, sharp = (greys(volume, covered[0], covered[-1] + 1, step) for volume in (cubic, fine))
        guess = np.tensordot(weights.astype(np.float32), seen.astype(np.float32), 1)  # exact: integers below 2^24
        guess = np.floor((guess + ONE // 2) / ONE).clip(0, 255).astype(np.uint8)
        parts = [seen, smooth - guess, sharp - smooth]
        if error is not None:
            parts.append(greys(ras(error)[0] + low, covered[0], covered[-1] + 1, step))
        content = b"".join(part.tobytes() for part in parts)
        packed = gzip.compress(content, 4, mtime=0)  # higher levels take long and gain little
        if len(packed) <= largest or min(seen.shape[1:]) == 1:
            break
    begin, steps = np.array([first for first, _ in box]), np.full(3, step)
    begin[axis], steps[axis] = covered[0], 1
    affine[:3, 3] += affine[:3, :3] @ begin
    affine[:3, :3] *= steps
    facts = {
        "shape": list(np.moveaxis(sharp, 0, axis).shape),
        "edges": voxel_spacing(affine).tolist(),
        "affine": affine[:3].tolist(),
        "sides": sides(affine),
        "axis": axis,
        "nearest": (nearest[covered] - first).tolist(),
        "weights": weights.tolist(),
        "low": low,
        "high": high,
        "step": step,
        "error": error is not None,
        **_places(affine, marks, borders),
    }
    return facts, base64.b64encode(packed).decode()
