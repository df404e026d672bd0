"""Where slices lie along their normal: places, the gaps between them, and the spacing of an even stack, in mm."""

from collections.abc import Sequence

import numpy as np

from ...stack import grid
from ...stack.grid import SAME_PLACE, SPACING_TOLERANCE
from ..headers import Frame

EVEN = 0.1  # mm off the even grid that are always allowed: positions of one decimal


def along(frames: Sequence[Frame]) -> np.ndarray:
    """`(n,)`: where slices lie along their normal; headers may round the normal of each."""
    return np.array([frame.position for frame in frames]) @ np.median([frame.normal for frame in frames], axis=0)


def places(frames: Sequence[Frame]) -> list[list[Frame]]:
    """Frames in order along the normal; those at the same place together."""
    found: list[list[Frame]] = []
    distances, begin = along(frames), -np.inf
    for index in np.argsort(distances, kind="stable"):
        if distances[index] - begin < SAME_PLACE:
            found[-1].append(frames[index])
        else:
            found.append([frames[index]])
            begin = distances[index]
    return found


def gaps(frames: Sequence[Frame]) -> np.ndarray:
    """`(n - 1,)`: distances between neighbouring places."""
    return np.diff(along([place[0] for place in places(frames)]))


def tolerance(pitch: float) -> float:
    """How far a slice of a stack may lie off the even grid of a spacing, in mm."""
    return max(SPACING_TOLERANCE * pitch, EVEN)


def multiples(gaps: np.ndarray, pitch: float) -> tuple[np.ndarray, np.ndarray]:
    """How many times a spacing each gap is, and whether it is so many times, but for rounding of headers."""
    count = np.round(gaps / pitch)
    return count, abs(gaps - count * pitch) <= count * tolerance(pitch)


def pitch(gaps: np.ndarray) -> float:
    """Spacing of an even stack that may lack slices, from the gaps between those that are there.

    It is the median, unless all gaps are multiples of the smallest one: then most of the stack's slices are missing.
    """
    usual, least = float(np.median(gaps)), float(gaps.min())
    return least if usual > 1.5 * least > 15 * EVEN and multiples(gaps, least)[1].all() else usual


def spacing(frames: Sequence[Frame]) -> float:
    """Distance between neighbouring places; 0 for fewer than `grid.MIN_SLICES`."""
    found = gaps(frames)
    return pitch(found) if len(found) + 1 >= grid.MIN_SLICES else 0.0
