"""Pixels of a stack's images, compared: contrasts across labels, copies, and where a head is cut."""

from collections.abc import Sequence

import numpy as np

from ...stack.tissue import TISSUE
from ..headers import Frame, intensities, read_dataset
from .places import places

ALIKE = 1.25  # times the difference of next but one slices: neighbours of one contrast differ by no more
LARGE = 0.8  # of the largest area of tissue; slices at the end of a whole head have less
BLOCKS = 32  # along each edge of an image, whose means are compared


def ends_in_tissue(frames: Sequence[Frame]) -> bool:
    """Whether a stack of slices ends where tissue is nearly as large as it is at its largest, as if it were cut."""
    slices = [_blocks(first) for first, *_ in places(frames)]
    bright = TISSUE * max(float(np.percentile(one, 99)) for one in slices)
    areas = [int((one > bright).sum()) for one in slices]
    return max(areas[0], areas[-1]) > LARGE * max(areas)


def alike_across(frames: list[Frame], attribute: str) -> bool:
    """Whether slices on both sides of a change of an attribute differ no more than others do."""
    firsts = [first for first, *_ in places(frames)]
    try:
        slices = [_blocks(first) for first in firsts]
    except Exception:  # noqa: BLE001  # what is wrong with a file is said when the series is read
        return True
    labels = [first.distinctive[attribute] for first in firsts]

    def apart(i: int, j: int) -> float:
        return float(abs(slices[i] - slices[j]).sum() / max(abs(slices[i]).sum() + abs(slices[j]).sum(), 1e-9))

    across = [k for k in range(len(labels) - 1) if labels[k] != labels[k + 1]]
    beside = [(k - 1, k + 1) for k in range(1, len(labels) - 1) if {k - 2, k - 1, k, k + 1} & set(across)]
    own = [pair for pair in beside if labels[pair[0]] == labels[pair[1]]] or beside
    here = np.mean([apart(k, k + 1) for k in across])
    return bool(here <= ALIKE * np.mean([apart(*pair) for pair in own]))


def _blocks(frame: Frame) -> np.ndarray:
    plane = _plane(frame)
    rows, columns = (np.linspace(0, n, min(n, BLOCKS) + 1).astype(int)[:-1] for n in plane.shape)
    sums = np.add.reduceat(np.add.reduceat(plane, rows, 0), columns, 1)
    counts = np.add.reduceat(np.add.reduceat(np.ones_like(plane), rows, 0), columns, 1)
    return sums / counts


def _plane(frame: Frame) -> np.ndarray:
    dataset = read_dataset(frame.image[0])
    stored = dataset.pixel_array
    return intensities(stored[frame.image[1]] if stored.ndim > 2 else stored, frame.header)


def copies(frames: list[Frame]) -> bool:
    """Whether all images at one place have the same pixels: a series that was sent twice, under new UIDs."""
    try:
        return all(len({_plane(frame).tobytes() for frame in place}) == 1 for place in places(frames))
    except Exception:  # noqa: BLE001  # pydicom and the decoders raise many types for a broken file
        return False
