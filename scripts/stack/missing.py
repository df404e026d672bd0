"""Odd slices, most of which were not measured: blank ones, garbage, copies, and ones of another gain."""

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor

from .intensity import BRIGHTEST, IntensityRange

DARK, BRIGHT = 1 / 3, 2.0  # of the neighbours' intensity; interleaved slices differ by less
HOLE = 1 / 9  # of the typical intensity; tissue is brighter
SHOWN = 3.0  # times as bright as a hole; brighter pixels show tissue for certain
HOLES = 0.5  # of the pixels where both neighbours show tissue
SPOT = 3.0  # times the median gain of a slice's pixels; a spot on it counts no more
ALIKE, UNLIKE = 0.5, 0.6  # correlation of the neighbours from which a slice is judged; a slice's own, as a share of it
ALIKE_ACROSS = 0.7  # the same for a run of slices: halves of a brain are alike, and its middle differs
COPIED = 0.99  # of the tissue has its neighbour's value to the bit; in real stacks up to 0.03, in 16 greys 0.8
FEW = 600  # pixels of tissue; the correlation of fewer says little
LONGEST = 3  # slices in a row that are missing
ODD = 0.25  # of the slices; where more are odd, the stack differs as a whole, but for blank ones and copies
TWICE = 0.5  # of the slices; where more repeat their neighbour, all are one
BLANK, COPY = "blank", "a copy of slice {}"
MANY = (
    "{} of {} slices are unlike their neighbours, slice {} first, which is {}. The stack may be of several contrasts "
    "or in another order. None of these is left out: check it."
)
LOST = "slice {} of {} is {}: it is taken for a missing slice, and its neighbours are rebuilt without it."
SEVERAL = (
    "{} of {} slices are taken for missing ones, slice {} first, which is {}. The others are rebuilt without them."
)
NUMBER = re.compile(r"[0-9.]+")  # in which faults of one kind differ
MUCH, MOST = 0.1, 0.75  # of the largest slice's tissue: where a slice is judged by two neighbours, and by one


def odd_slices(volume: Tensor, axis: int, tissue_range: IntensityRange) -> dict[int, str]:
    """Slices within the head that are nothing like their two neighbours, or copies of one.

    Slices are judged by both neighbours: the head may end from slice to slice. The worst slice is set apart
    first, so that its neighbours are not judged by it. The outermost slices are blank if they hold one dark value
    beside a slice of most tissue.

    Args:
        volume: `(X, Y, Z)`, finite.
        axis: of the slices.
        tissue_range: of the volume.

    Returns:
        Index of a slice -> its fault.
    """
    low, high, ceiling = tissue_range
    whole = tissue_range._replace(high=math.inf).signal(volume)
    slices, hole = whole.movedim(axis, 0).flatten(1).float(), HOLE * (ceiling - low) / BRIGHTEST
    areas = (slices > SHOWN * hole).sum(1)
    largest = int(areas.max())
    found = _copies(slices, hole, MUCH * largest)
    kept = [index for index in range(len(slices)) if index not in found]
    while faults := _faults(slices, kept, hole, high - low, MUCH * largest):
        _, run = max(faults, key=lambda one: one[0])
        found |= run
        kept = [index for index in kept if index not in run]
    for end, neighbour in ((kept[0], kept[1]), (kept[-1], kept[-2])):
        one = volume.select(axis, end)
        if areas[neighbour] > MOST * largest and one.min() == one.max() and slices[end].max() <= hole:
            found[end] = BLANK
    return dict(sorted(found.items()))


def missing_slices(odd: Mapping[int, str], count: int) -> dict[int, str]:
    """The `odd_slices` of a stack that count as not measured, by its number of slices.

    Blank ones and copies do. Others do not where more than a quarter of the slices are odd: then the stack differs as a
    whole, which `MANY` says.
    """
    few = len(odd) <= ODD * count
    return {index: what for index, what in odd.items() if few or what == BLANK or what.startswith(COPY.format(""))}


def said_of(missing: Mapping[int, str], count: int) -> list[str]:
    """A line on `missing_slices` of each kind, of so many slices, with the first of them."""
    kinds: dict[str, list[int]] = {}
    for index, what in missing.items():
        kinds.setdefault(NUMBER.sub("", what), []).append(index)
    said = []
    for places in kinds.values():
        number, what = places[0] + 1, missing[places[0]]
        if len(places) > 1:
            said.append(SEVERAL.format(len(places), count, number, what))
        else:
            said.append(LOST.format(number, count, what))
    return said


def _copies(slices: Tensor, hole: float, least: float) -> dict[int, str]:
    """Slices that repeat their neighbour. The one of the two is left out that is less alike the slice beyond it.

    Where more than a quarter repeat it, one program made the copies: all are the second of the two, or all the first,
    so that the rest stays even. Where more than half repeat it, all slices are one, and none is a copy.
    """
    later = dict[int, float]()  # first of two -> how much more it is alike the slice beyond it than the second
    for first in range(len(slices) - 1):
        one, other = slices[first], slices[first + 1]
        tissue = (one > SHOWN * hole) | (other > SHOWN * hole)
        if tissue.sum() <= least or (one == other)[tissue].float().mean() <= COPIED:
            continue
        before, after = slices[max(first - 1, 0)], slices[min(first + 2, len(slices) - 1)]
        later[first] = _correlation(one, before) - _correlation(other, after)
    if len(later) > ODD * len(slices):
        later = dict.fromkeys(later, sum(later.values()))
    found = {first + (by > 0): COPY.format(first + (by <= 0) + 1) for first, by in later.items()}
    return found if len(found) <= TWICE * len(slices) else {}


def _faults(
    slices: Tensor, kept: list[int], hole: float, high: float, least: float
) -> list[tuple[float, dict[int, str]]]:
    """The shortest runs of slices unlike the slices before and after the run, each with how much."""
    for length in range(1, LONGEST + 1):
        found = []
        for start in range(1, len(kept) - length):
            before, run, after = kept[start - 1], kept[start : start + length], kept[start + length]
            alike = ALIKE if length == 1 else ALIKE_ACROSS
            faults = [_fault(slices[before], slices[here], slices[after], hole, high, least, alike) for here in run]
            if all(faults):
                reasons = {here: fault[1] for here, fault in zip(run, faults) if fault}
                found.append((max(fault[0] for fault in faults if fault), reasons))
        if found:
            return found
    return []


def _fault(
    before: Tensor, here: Tensor, after: Tensor, hole: float, high: float, least: float, alike: float
) -> tuple[float, str] | None:
    """How odd a slice is, and in what way; None for one like its neighbours, or whose neighbours show little tissue.

    No bright spot makes a slice odd: correlated is what is not brighter than `high`.
    """
    tissue = (before > SHOWN * hole) & (after > SHOWN * hole)
    if tissue.sum() <= least:
        return None
    gain = gain_between(before[tissue], here[tissue], after[tissue], high)
    if (here[tissue] <= hole).float().mean() > HOLES:
        return 1 / max(gain, 1e-6), BLANK
    if not DARK <= gain <= BRIGHT:
        return max(gain, 1 / max(gain, 1e-6)), f"{gain:.1f} times as bright as its neighbours"
    before, here, after = (one.clamp(max=high) for one in (before, here, after))
    if tissue.sum() > FEW and (expected := _correlation(before, after)) > alike:
        if _correlation(here, (before + after) / 2) < UNLIKE * expected:
            return 1.0, "unlike its neighbours"
    return None


def gain_between(before: Tensor, here: Tensor, after: Tensor, high: float) -> float:
    """How many times as bright a slice is as the mean of its neighbours, by pixels of tissue, `(n,)` each.

    It is the gain of least squares, but that a pixel weighs no more than one of the intensity `high`, and differs from
    the median gain by a factor of `SPOT` at most.
    """
    before, here, after = (one.double() for one in (before, here, after))  # squares of 1e30 are finite
    mean = ((before + after) / 2).clamp(min=torch.finfo(before.dtype).tiny)
    ratio, weight = here / mean, mean.clamp(max=high).square()
    typical = ratio.median()
    return float((ratio.clamp(typical / SPOT, SPOT * typical) * weight).sum() / weight.sum())


def _correlation(one: Tensor, other: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([one, other]))[0, 1].nan_to_num())


def filled(volume: Tensor, axis: int, missing: Mapping[int, str]) -> Tensor:
    """The volume with its `missing_slices` interpolated between the nearest ones that were measured."""
    if not missing:
        return volume
    slices = volume.movedim(axis, 0).clone()
    kept = [index for index in range(len(slices)) if index not in missing]
    for index in missing:
        before = max((one for one in kept if one < index), default=kept[0])
        after = min((one for one in kept if one > index), default=kept[-1])
        share = (index - before) / (after - before) if after > before else 0.0
        slices[index] = torch.lerp(slices[before], slices[after], share)
    return slices.movedim(0, axis)
