"""Slices that do not lie where the file says, or that differ in brightness, as those acquired by turns may.

In a right stack neighbours are the most alike, and each half shows left and right on the same sides.
docs/benchmarks_appendix.md has the figures of the real stacks that were tried.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from .intensity import IntensityRange
from .missing import gain_between

NEARER = 0.7  # of the unlikeness of the neighbours that another order parts: right stacks have 1.3 and more
STRANGERS = 1.4  # times the unlikeness of neighbours that any two slices have: right stacks have 2.6 and more
RELATED = 0.6  # of the unlikeness of any two: each slice has one that is no more unlike to it; noise has none
MIRRORED = -0.4  # of the usual correlation of what is uneven in neighbours: right stacks have -0.03 and more
UNEVEN = 0.3  # the least usual correlation of it that tells; noise has none
DIMMED = 0.88  # times the others' brightness: right stacks have 0.95 and more, cross-talk leaves 0.7 to 0.8
FEWEST = 8  # slices that tell
NARROW = 0.125  # of the longer edge of a slice; a strip of less shows too little of a head
ALIKE = 1.25  # times the difference of next but one slices: neighbours of one contrast differ by no more
LEAST = 3  # slices of a part; neighbours that an order by turns parts
TISSUE = 0.1  # of the range of tissue; brighter pixels show it
MUCH = 0.3  # of the largest slice's tissue; slices of less say little of their neighbours
BLOCKS = 32  # along each edge of a slice, whose means are compared
ORDERS: dict[str, Callable[[int], list[int]]] = {  # for people, who count from 1 -> slices as they stand, of so many
    "the odd ones, then the even ones": lambda count: sorted(range(count), key=lambda k: (k % 2, k)),
    "the even ones, then the odd ones": lambda count: sorted(range(count), key=lambda k: (1 - k % 2, k)),
    "every third one, by turns": lambda count: sorted(range(count), key=lambda k: (k % 3, k)),
    "that of their numbers as words, 1, 10, 11, 2": lambda count: sorted(range(count), key=lambda k: str(k + 1)),
}
BACKWARDS = "those from slice {} on backwards", "those before slice {} backwards"
NO_ORDER = "none that their images show"
DISORDER = "its slices stand in another order than that of their places: {}. Put them in the order of their places"
MIRROR = "slices from {} on are mirrored, beside those before. Store all from one side"
CROSS_TALK = (
    "every other slice, slice {} first, is {:.2f} times as bright as its neighbours, as where slices are excited too "
    "soon after each other: the brightness of these is evened out."
)


class Clue(NamedTuple):
    """A way in which slices may not lie where the file says, for people, and its evidence: told below its limit."""

    said: str
    value: float
    limit: float


def disorder(volume: Tensor, axis: int, tissue_range: IntensityRange) -> str:
    """Why slices do not lie where the file says, for people; empty where they stand rightly.

    Args:
        volume: `(X, Y, Z)`, finite.
        axis: of the slices.
        tissue_range: of the volume.
    """
    return next((one.said for one in clues(volume, axis, tissue_range) if one.value < one.limit), "")


def clues(volume: Tensor, axis: int, tissue_range: IntensityRange) -> list[Clue]:
    """The nearest clue of each kind, the most telling first; none of few slices or of strips. Arguments: `disorder`.

    Two slices are unlike by 1 less their correlation. An order parts some neighbours as they stand, and makes others:
    where slices stand in it, the others are more alike. Where they stand in none, neighbours are as unlike as any two.
    """
    slices = _blocks(volume, axis, tissue_range)
    areas = (slices > TISSUE * tissue_range.extent).sum((1, 2))
    (shown,) = np.nonzero((areas > MUCH * areas.max()).numpy())
    edges = volume.movedim(axis, 0).shape[1:]
    if len(shown) < FEWEST or min(edges) < NARROW * max(edges):
        return []
    unlike = _unlike(slices)
    every_two = [unlike[pair] for pair in combinations(shown, 2)]
    beside, apart = (float(np.mean(one)) for one in ([unlike[pair] for pair in pairwise(shown)], every_two))
    nearest = float((unlike + 2 * np.eye(len(unlike)))[np.ix_(shown, shown)].min(0).mean())

    def nearest_of(orders: Iterable[tuple[str, list[int]]], least: int = 1) -> Clue:
        """The order that makes neighbours most alike, `least` or more: their unlikeness over that of those parted."""
        found = []
        for said, order in orders:
            made = _neighbours(one for one in np.argsort(order) if one in shown)
            parted = stand - made  # as many as are made
            new, old = (sum(unlike[pair] for pair in pairs) for pairs in (made - stand, parted))
            value = new / old if old > 0 and len(parted) >= least else np.inf
            found.append((round(float(new - old), 6), value, said))
        _, value, said = min(found, key=lambda one: one[0])  # the first of those that differ in slices of no tissue
        return Clue(DISORDER.format(said), value, NEARER)

    stand, count, related = _neighbours(shown), len(slices), beside > 0 and nearest < RELATED * apart
    strangers = Clue(DISORDER.format(NO_ORDER), apart / beside if related else np.inf, STRANGERS)
    turns = nearest_of(((said, order(count)) for said, order in ORDERS.items()), LEAST)
    return [turns, strangers, nearest_of(_backwards(count, shown)), *_mirrored(slices[shown], shown)]


def _backwards(count: int, shown: np.ndarray) -> Iterator[tuple[str, list[int]]]:
    """Orders in which the first or the last of the slices stand backwards."""
    every = list(range(count))
    for before, first in list(pairwise(map(int, shown)))[LEAST - 1 : 1 - LEAST]:  # in between lie slices of no tissue
        yield BACKWARDS[0].format(before + 2), every[: before + 1] + every[before + 1 :][::-1]
        yield BACKWARDS[1].format(first + 1), every[:first][::-1] + every[first:]


def _neighbours(order: Iterable[int]) -> set[tuple[int, int]]:
    return {(min(pair), max(pair)) for pair in pairwise(map(int, order))}


def _unlike(slices: Tensor) -> np.ndarray:
    """`(N, N)`: 1 less the correlation of each two slices, `(N, rows, columns)`; of constant ones 1."""
    return 1 - torch.corrcoef(slices.flatten(1)).nan_to_num().numpy()


def _mirrored(slices: Tensor, places: np.ndarray) -> list[Clue]:
    """Clues to slices from which on all are mirrored along rows, columns or both, by `(N, rows, columns)`.

    A slice is uneven by its difference from its mirror image, and its neighbour is uneven alike. Where one of the two
    is mirrored, their correlation has the other sign.
    """
    found = []
    for along in ((1,), (2,), (1, 2)):
        alike = 1 - np.diag(_unlike(slices - slices.flip(along)), 1)
        first, usual = int(alike.argmin()) + 1, float(np.median(alike))
        if usual > UNEVEN and LEAST <= first <= len(slices) - LEAST:
            found.append(Clue(MIRROR.format(places[first] + 1), float(alike[first - 1]) / usual, MIRRORED))
    return sorted(found, key=lambda clue: clue.value)


def dimmed(volume: Tensor, axis: int, tissue_range: IntensityRange) -> tuple[int, float]:
    """Which of every two slices are the dimmer ones, 0 or 1, and how many times as bright as the others they are.

    Each slice has a gain over the mean of its neighbours. Gains of dimmer slices and of their neighbours are each
    other's inverse. The factor is the median of both, and 1 for fewer than `FEWEST` slices.

    Args:
        volume, axis, tissue_range: as in `disorder`.
    """
    slices = _blocks(volume, axis, tissue_range).flatten(1)
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


def alike_across(slices: np.ndarray, labels: Sequence[str]) -> bool:
    """Whether slices on both sides of a change of labels differ no more than others do.

    Args:
        slices: `(N, rows, columns)`, their means in blocks.
        labels: of each slice, of which two differ.
    """

    def apart(i: int, j: int) -> float:
        return float(abs(slices[i] - slices[j]).sum() / max(abs(slices[i]).sum() + abs(slices[j]).sum(), 1e-9))

    across = [k for k in range(len(labels) - 1) if labels[k] != labels[k + 1]]
    beside = [(k - 1, k + 1) for k in range(1, len(labels) - 1) if {k - 2, k - 1, k, k + 1} & set(across)]
    own = [pair for pair in beside if labels[pair[0]] == labels[pair[1]]] or beside
    here = np.mean([apart(k, k + 1) for k in across])
    return bool(here <= ALIKE * np.mean([apart(*pair) for pair in own]))


def block_means(slices: Tensor) -> Tensor:
    """Means of slices, `(N, rows, columns)`, in at most `BLOCKS` blocks along each edge."""
    rows, columns = (min(BLOCKS, edge) for edge in slices.shape[1:])
    return adaptive_avg_pool2d(slices[None], (rows, columns))[0]


def _blocks(volume: Tensor, axis: int, tissue_range: IntensityRange) -> Tensor:
    return block_means(tissue_range.signal(volume).movedim(axis, 0).float())
