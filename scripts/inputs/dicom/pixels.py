"""Pixels of a stack's images: their intensities, and comparisons of contrasts, copies, and where a head is cut."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import adaptive_avg_pool2d

from ...errors import InputError
from ...stack.tissue import TISSUE
from ..headers import Frame, intensities, numbers, read_dataset, reason
from .places import places

ALIKE = 1.25  # times the difference of next but one slices: neighbours of one contrast differ by no more
LARGE = 0.8  # of the largest area of tissue; slices at the end of a whole head have less
BLOCKS = 32  # along each edge of an image, whose means are compared


def planes(frames: Sequence[Frame]) -> dict[Frame, np.ndarray]:
    """Intensities of images, `(rows, columns)`, NaN where they are padding. Each file is read once."""
    found = {}
    for path, members in groupby(sorted(frames, key=lambda one: one.image), key=lambda one: one.image[0]):
        with named(path):
            dataset = read_dataset(path)
            stored = dataset.pixel_array.reshape(-1, dataset.Rows, dataset.Columns)
            found.update({frame: _plane(stored[frame.image[1]], frame) for frame in members})
    return found


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Raises an `InputError` that names a file for whatever pydicom and the decoders raise, which is of many types."""
    try:
        yield
    except Exception as error:
        raise InputError(f"{path} cannot be read ({reason(error)}). Export or download it again.") from error


def _plane(stored: np.ndarray, frame: Frame) -> np.ndarray:
    plane = intensities(stored, frame.header)
    if not np.isfinite(plane).all():
        raise ValueError("infinite intensities")
    first, limit = (numbers(frame.header, f"PixelPadding{name}", 1)[0] for name in ("Value", "RangeLimit"))
    padding = (np.fmin(first, limit) <= stored) & (stored <= np.fmax(first, limit))  # PS3.3, C.7.5.1.1.2
    plane[padding & np.isfinite(first)] = np.nan
    return np.flip(plane, frame.flipped)


def _blocks(frames: Sequence[Frame]) -> list[np.ndarray]:
    """Means of blocks of the first image at each place."""
    firsts, means = [first for first, *_ in places(frames)], []
    found = planes(firsts)
    for first in firsts:
        plane = torch.from_numpy(np.nan_to_num(found[first]))
        rows, columns = plane.shape
        means.append(adaptive_avg_pool2d(plane[None], (min(rows, BLOCKS), min(columns, BLOCKS)))[0].numpy())
    return means


def ends_in_tissue(frames: Sequence[Frame]) -> bool:
    """Whether a stack of slices ends where tissue is nearly as large as it is at its largest, as if it were cut."""
    slices = _blocks(frames)
    bright = TISSUE * max(float(np.percentile(one, 99)) for one in slices)
    areas = [int((one > bright).sum()) for one in slices]
    return max(areas[0], areas[-1]) > LARGE * max(areas)


def alike_across(frames: list[Frame], attribute: str) -> bool:
    """Whether slices on both sides of a change of an attribute differ no more than others do."""
    try:
        slices = _blocks(frames)
    except InputError:  # which is said when the series is read
        return True
    labels = [first.distinctive[attribute] for first, *_ in places(frames)]

    def apart(i: int, j: int) -> float:
        return float(abs(slices[i] - slices[j]).sum() / max(abs(slices[i]).sum() + abs(slices[j]).sum(), 1e-9))

    across = [k for k in range(len(labels) - 1) if labels[k] != labels[k + 1]]
    beside = [(k - 1, k + 1) for k in range(1, len(labels) - 1) if {k - 2, k - 1, k, k + 1} & set(across)]
    own = [pair for pair in beside if labels[pair[0]] == labels[pair[1]]] or beside
    here = np.mean([apart(k, k + 1) for k in across])
    return bool(here <= ALIKE * np.mean([apart(*pair) for pair in own]))


def copies(frames: list[Frame]) -> bool:
    """Whether all images at one place have the same pixels: a series that was sent twice, under new UIDs."""
    try:
        found = planes(frames)
    except InputError:
        return False
    return all(len({found[frame].tobytes() for frame in place}) == 1 for place in places(frames))
