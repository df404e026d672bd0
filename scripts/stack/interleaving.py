"""Slices that stand in the order of their times or names, or differ in brightness, as those acquired by turns may.

In a right stack neighbours are the most alike. docs/limits.md has the figures of the real stacks that were tried.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from .intensity import IntensityRange
from .missing import gain_between

NEARER = 0.8  # of the unlikeness of neighbours as they stand: right stacks have 2.1 and more, others 0.56 and less
DIMMED = 0.88  # times the others' brightness: right stacks have 0.96 and more, cross-talk leaves 0.7 to 0.8
FEWEST = 8  # slices that tell
TISSUE = 0.1  # of the range of tissue; brighter pixels show it
MUCH = 0.3  # of the largest slice's tissue; slices of less say little of their neighbours
PIXELS = 64  # along each edge of a slice, about, that are compared
ORDERS: dict[str, Callable[[int], list[int]]] = {  # for people, who count from 1 -> slices as they stand, of so many
    "the odd ones, then the even ones": lambda count: sorted(range(count), key=lambda k: (k % 2, k)),
    "the even ones, then the odd ones": lambda count: sorted(range(count), key=lambda k: (1 - k % 2, k)),
    "every third one, by turns": lambda count: sorted(range(count), key=lambda k: (k % 3, k)),
    "that of their numbers as words, 1, 10, 11, 2": lambda count: sorted(range(count), key=lambda k: str(k + 1)),
}
DISORDER = "its slices stand in another order than that of their places: {}"
CROSS_TALK = (
    "every other slice, slice {} first, is {:.2f} times as bright as its neighbours, as where slices are excited too "
    "soon after each other: the brightness of these is evened out."
)


def disorder(volume: Tensor, axis: int, tissue_range: IntensityRange) -> str:
    """The order in which slices stand that is not the one of their places, for people; empty where they stand rightly.

    Two slices are unlike by 1 less their correlation. Where slices stand in the order of their times, neighbours lie
    two places apart, and the order of places makes them more alike.

    Args:
        volume: `(X, Y, Z)`, finite.
        axis: of the slices.
        tissue_range: of the volume.
    """
    slices = _sampled(volume, axis, tissue_range)
    count, areas = len(slices), (slices > TISSUE * tissue_range.extent).sum(1)
    shown = (areas > MUCH * areas.max()).numpy()
    if count < FEWEST:
        return ""
    unlike = 1 - torch.corrcoef(slices).nan_to_num().numpy()

    def apart(order: np.ndarray) -> float:
        """Mean unlikeness of neighbours in an order."""
        first, second = order[:-1], order[1:]
        both = shown[first] & shown[second]
        return float(unlike[first, second][both].mean()) if both.any() else np.inf

    places = {said: np.argsort(order(count)) for said, order in ORDERS.items()}
    best = min(places, key=lambda said: apart(places[said]))
    return DISORDER.format(best) if apart(places[best]) < NEARER * apart(np.arange(count)) else ""


def dimmed(volume: Tensor, axis: int, tissue_range: IntensityRange) -> tuple[int, float]:
    """Which of every two slices are the dimmer ones, 0 or 1, and how many times as bright as the others they are.

    Each slice has a gain over the mean of its neighbours. Gains of dimmer slices and of their neighbours are each
    other's inverse. The factor is the median of both, and 1 for fewer than `FEWEST` slices.

    Args:
        volume, axis, tissue_range: as in `disorder`.
    """
    slices = _sampled(volume, axis, tissue_range)
    shown = slices > TISSUE * tissue_range.extent
    both, most = shown[:-2] & shown[2:], int(shown.sum(1).max())
    inner = [n for n in range(1, len(slices) - 1) if both[n - 1].sum() > MUCH * most]
    if len(inner) < FEWEST - 2:
        return 0, 1.0
    three = (slices[n - 1 : n + 2, both[n - 1]] for n in inner)
    gains = [gain_between(before, here, after, tissue_range.extent) for before, here, after in three]
    even = float(np.median(np.log(np.maximum(gains, 1e-6)) * [1 - 2 * (n % 2) for n in inner]))
    return int(even > 0), float(np.exp(-abs(even)))


def evened(volume: Tensor, axis: int, tissue_range: IntensityRange) -> tuple[Tensor, str]:
    """The volume with the dimmer of every two slices as bright as the others, and the words on it; else itself, empty.

    Args:
        volume, axis, tissue_range: as in `disorder`.
    """
    which, factor = dimmed(volume, axis, tissue_range)
    if factor > DIMMED:
        return volume, ""
    slices, low = volume.movedim(axis, 0).clone(), tissue_range.low
    slices[which::2] = torch.where(slices[which::2] > low, low + (slices[which::2] - low) / factor, slices[which::2])
    return slices.movedim(0, axis), CROSS_TALK.format(which + 1, factor)


def _sampled(volume: Tensor, axis: int, tissue_range: IntensityRange) -> Tensor:
    """The signal of slices at some of their pixels, `(N, pixels)`."""
    slices = tissue_range.signal(volume).movedim(axis, 0)
    rows, columns = (max(1, count // PIXELS) for count in slices.shape[1:])
    return slices[:, ::rows, ::columns].flatten(1).float()
