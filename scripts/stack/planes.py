"""Planes of slices in space: places along their normal, gaps, the spacing of an even stack, and parts of one stack."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import numpy as np

from . import grid
from .grid import SAME_PLACE, SPACING_TOLERANCE

EVEN = 0.1  # mm off the even grid that are always allowed: positions of one decimal
SAME_PLANE = 0.5  # pixels by which planes may lie apart in the field of view, besides a turn of `grid.MAX_SHEAR`
NEARLY_PARALLEL = 5  # degrees between slices that may be of one stack, were they not turned


@dataclass(frozen=True, eq=False, kw_only=True)
class Plane:
    """The plane of a slice, in the patient's space as DICOM has it, LPS; lengths in mm.

    Attributes:
        shape: rows, columns.
        position: `(3,)`, of the first pixel's centre.
        plane: `(8,)`: directions of a row and of a column; lengths between rows, between columns.
        normal: `(3,)`, of the plane.
        thickness: of the slice.
        flipped: axes of the image, of rows and columns, along which its pixels are read backwards.
    """

    shape: tuple[int, int]
    position: np.ndarray
    plane: np.ndarray
    normal: np.ndarray
    thickness: float
    flipped: tuple[int, ...] = ()

    def stored_as(self, other: "Plane") -> Self:
        """The plane as read from the side from which another one is stored; geometry is of the new first pixel."""
        directions, theirs = self.plane[:6].reshape(2, 3), other.plane[:6].reshape(2, 3)
        back = (directions * theirs).sum(1) < 0
        if not back.any():
            return self
        lengths = self.plane[[7, 6]] * (np.array(self.shape[::-1]) - 1)  # of a row, of a column
        signs = np.where(back, -1.0, 1.0)[:, None]
        return replace(
            self,
            position=self.position + (back * lengths) @ directions,
            plane=np.concatenate([(directions * signs).ravel(), self.plane[6:]]),
            normal=self.normal * signs.prod(),
            flipped=tuple(1 - k for k in (0, 1) if back[k]),  # a row runs along the columns' numbers
        )


One = TypeVar("One", bound=Plane)


def along(planes: Sequence[Plane]) -> np.ndarray:
    """`(n,)`: where slices lie along their normal; headers may round the normal of each."""
    return np.array([one.position for one in planes]) @ np.median([one.normal for one in planes], axis=0)


def places(planes: Sequence[One]) -> list[list[One]]:
    """Planes in order along the normal; those at the same place together."""
    found: list[list[One]] = []
    distances, begin = along(planes), -np.inf
    for index in np.argsort(distances, kind="stable"):
        if distances[index] - begin < SAME_PLACE:
            found[-1].append(planes[index])
        else:
            found.append([planes[index]])
            begin = distances[index]
    return found


def gaps(planes: Sequence[Plane]) -> np.ndarray:
    """`(n - 1,)`: distances between neighbouring places."""
    return np.diff(along([place[0] for place in places(planes)]))


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


def spacing(planes: Sequence[Plane]) -> float:
    """Distance between neighbouring places; 0 for fewer than `grid.MIN_SLICES`."""
    found = gaps(planes)
    return pitch(found) if len(found) + 1 >= grid.MIN_SLICES else 0.0


def _turn(one: Plane, other: Plane) -> float:
    """Largest angle between the rows and between the columns of two planes, in degrees."""
    pairs = [(one.plane[k : k + 3], other.plane[k : k + 3]) for k in (0, 3)]
    return float(np.degrees([np.arctan2(np.linalg.norm(np.cross(a, b)), a @ b) for a, b in pairs]).max())


def one_grid(one: Plane, other: Plane) -> bool:
    """Whether two planes have one matrix and, but for rounding of their headers, one orientation and pixel spacing."""
    if one.shape != other.shape:
        return False
    apart = abs(one.plane[6:] / other.plane[6:] - 1) * one.shape  # pixels, at the far edges
    return _turn(one, other) <= grid.MAX_SHEAR and bool(apart.max() <= SAME_PLANE)


def torn(stack: Sequence[Plane], other: Sequence[Plane]) -> bool:
    """Whether two groups of slices are parts of one stack: nearly parallel, and between or beside each other."""
    if stack[0].shape != other[0].shape or _turn(stack[0], other[0]) > NEARLY_PARALLEL:
        return False
    both = [*stack, *other]
    if min(len(stack), len(other)) < grid.MIN_SLICES:
        return len(places(both)) == len(places(stack)) + len(places(other))
    return 1.5 * spacing(both) < max(spacing(stack), spacing(other))
