"""Packages of a stack: the slices that were acquired in one pass over the head, before the next pass began."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .grid import Turn

MOST = 4  # packages; more passes are slices of several places at once, or of no order
FEWEST = 4  # slices of a package


def by_times(times: Sequence[float]) -> str:
    """The package of each slice, a digit each, `0` for the first that was acquired; empty where times do not say it.

    A pass over the head goes one way. Where the next slice in time lies the other way, a new pass begins.

    >>> by_times([0.0, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0])
    '01010101'
    """
    order = np.argsort(times, kind="stable")  # slices of one time lie in the order of their places
    steps = np.diff(order)
    if not len(steps) or not np.isfinite(times).all():
        return ""
    found = np.empty(len(order), dtype=int)
    found[order] = np.concatenate([[0], np.cumsum(np.sign(steps) != np.sign(np.median(steps)))])
    sizes = np.bincount(found)
    if not 2 <= len(sizes) <= MOST or sizes.min() < FEWEST or sizes.max() > sizes.min() + 1:
        return ""
    return "".join(map(str, found))


def even_and_odd(count: int, axis: int, affine: ArrayLike) -> str:
    """The packages of slices whose times nobody knows: every second one, as most scanners acquire them.

    The first slice in RAS+ order is even, however the stack is stored.

    Args:
        count: of slices.
        axis: array axis of the slices.
        affine: `(4, 4)`, voxel -> mm.
    """
    turn = Turn.of(affine)
    found = "".join(str(n % 2) for n in range(count))
    return found[::-1] if turn.axes.index(axis) in turn.flipped else found
