"""The verdict of voxels: a scan, none, or a doubtful one, whatever their units, background and grey values."""

from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import ndimage

# Each number lies between real scans, in other units, backgrounds and grey values, and maps
MIDDLE = 128  # voxels along each edge of the middle of a volume, which is looked at
FEW_VALUES = 6  # different ones; scans of 16 grey values have 9 and more
SPARSE = 0.99  # of the voxels have one value
EQUAL, NEXT = 0.7, 0.7  # of neighbours are equal, in scans of 16 values up to 0.80; of the others, next values
SMOOTH = 0.06  # mean step between neighbours, by the deviation: fields 0.05 and less, scans 0.069 and more
BACKGROUND, ABRUPT = 0.2, 0.3  # of the voxels have one value; most neighbours of it with the next, in scans 0.6
EVEN = 0.33  # reach of the others below it by their reach above: statistics 0.7, scans 0
ENDS, BAND, CROWD = 0.15, 0.05, 0.49  # of the range: either end, a band; of the voxels between both ends, in the band
TAIL = 0.001  # of the values at either end decide nothing: a single voxel may have any value
FOOT, EMPTY = 0.25, 0.6  # in the lowest 20th of the range: scans 0.21, probabilities 0.31; of the commonest value
GREYS = 128  # values; scans of fewer crowd at them
HOLES = 0.1  # of what NaN surrounds is NaN itself: statistics have none where they are not estimated
SHOWS = {
    "holes": "a statistic or a map: it has NaN within",
    "few": "a mask or a label map: it holds {} values",
    "sparse": "a map of few voxels: almost all have one value",
    "labels": "a label map: most of its neighbours are equal, and the others jump",
    "field": "a field: it shows no detail",
    "statistic": "its values lie on both sides of the background's, as those of a statistic",
    "ct": "its tissues differ little beside air and bone, as in CT",
    "probabilities": "its values fade into an empty background, as those of probabilities",
}

DOUBTFUL = ("statistic", "ct", "probabilities")  # scans come near them


class Verdict(NamedTuple):
    """Whether an image is a scan of a head, and the evidence that it may be none."""

    answer: Literal["a scan", "none", "doubtful"] = "a scan"
    why: str = ""


SCAN = Verdict()


class Statistics(NamedTuple):
    """The statistics of voxels that decide on a volume; NaN where nearly all have one value.

    Attributes:
        values: count of different ones, of all voxels where the middle has few.
        greys: the same, of the middle.
        sparse: share of the commonest value, in the middle and in all voxels.
        equal, following, beside: of `_neighbours`.
        step: mean step between neighbours, by the deviation; values of a `TAIL` count as its end.
        even: reach of the other values below the commonest by their reach above it, or the other way round.
        background: share of the commonest value in all voxels.
        crowd: share of the values between both ends of the range, or of a quarter of all, that lie in its fullest band.
        foot: share of the other values in the lowest 20th of their range without tails; 0 where values other than a
            tail lie below the commonest.
    """

    values: int
    greys: int
    sparse: float
    equal: float = np.nan
    following: float = np.nan
    beside: float = np.nan
    step: float = np.nan
    even: float = np.nan
    background: float = np.nan
    crowd: float = np.nan
    foot: float = np.nan


def verdict(voxels: Any) -> Verdict:
    """The verdict on a volume, by its voxels.

    The answer is the same for `a * x + b` with `a > 0`, another background, 16 grey values or more, a part, a mask.
    Scans are far from images that are none. They are nearer to doubtful ones: scores of a masked scan lie as
    statistics do.

    Args:
        voxels: `(X, Y, Z)`, an array or a reader of its parts. NaN is background; a volume of NaN alone is a broken
            scan.
    """
    volume = np.asanyarray(voxels)
    nan = np.isnan(volume) if volume.dtype.kind == "f" else np.zeros(1, bool)
    if nan.any() and not nan.all():
        within = ndimage.binary_fill_holes(~nan)
        if (nan & within).sum() > HOLES * within.sum():
            return Verdict("none", SHOWS["holes"])
    return verdict_of(statistics(volume))


def verdict_of(s: Statistics | None) -> Verdict:
    """The verdict by the statistics of a volume; a broken one, without any, is a scan."""
    if s is None:
        return SCAN
    shown = {
        "few": s.values < FEW_VALUES,
        "sparse": s.sparse > SPARSE,
        "labels": s.equal > EQUAL and s.following < NEXT,
        "field": s.step < SMOOTH,
        "statistic": s.beside < ABRUPT and s.even > EVEN and s.background > BACKGROUND,
        "ct": s.greys >= GREYS and s.crowd > CROWD,
        "probabilities": s.greys >= GREYS and s.foot > FOOT and s.background > EMPTY,
    }
    found = next((what for what, shows in shown.items() if shows), None)
    if found is None:
        return SCAN
    return Verdict("doubtful" if found in DOUBTFUL else "none", SHOWS[found].format(s.values))


def statistics(voxels: Any) -> Statistics | None:
    """The statistics of a volume, `(X, Y, Z)`; None if it holds no number."""
    volume = np.asanyarray(voxels)
    if volume.dtype.kind == "f" and not (good := np.isfinite(volume)).all():
        if not good.any():
            return None
        volume = np.where(good, volume, volume[good].min())
    starts = [max(0, count - MIDDLE) // 2 for count in volume.shape]
    block = volume[tuple(slice(start, start + MIDDLE) for start in starts)].astype(np.float32)
    values, counts = np.unique(block, return_counts=True)
    count, common = len(values), int(counts.argmax())
    background = float(np.mean(volume.astype(np.float32) == values[common]))
    first = len(np.unique(volume)) if count < FEW_VALUES else count, count, min(background, counts[common] / block.size)
    if counts[common] > SPARSE * block.size:
        return Statistics(*first)
    others = np.repeat(np.delete(values, common), np.delete(counts, common))  # in order
    ends = _at(others, TAIL), _at(others, 1 - TAIL)
    equal, following, beside, step = _neighbours(np.searchsorted(values, block), values.clip(*ends), common)
    low, high = _at(others, 0.01), _at(others, 0.99)
    shorter, longer = sorted((high - values[common], values[common] - low))
    span, tiny = high - low, float(np.finfo(np.float32).tiny)
    within = others[slice(*np.searchsorted(others, (low + ENDS * span, high - ENDS * span)))].astype(np.float64)
    crowd = np.searchsorted(within, within + BAND * span, side="right") - np.arange(len(within))
    lowest, below = ends[0] + (ends[1] - ends[0]) / 20, counts[:common].sum() / block.size
    return Statistics(
        *(*first, equal, following, beside),
        step=step / max(float(others.clip(*ends).std()), tiny),
        even=float(shorter / max(longer, tiny)),
        background=background,
        crowd=float(crowd.max(initial=0) / max(len(within), len(others) / 4)),
        foot=float(np.mean(others < lowest)) if below <= TAIL else 0.0,
    )


def _at(ordered: np.ndarray, share: float) -> float:
    return float(ordered[int(share * (len(ordered) - 1))])


def _neighbours(ranks: np.ndarray, values: np.ndarray, common: int) -> tuple[float, float, float, float]:
    """Shares of neighbours, and a step.

    Returns:
        Along the axis where second most neighbours are equal, since slices may be repeated: their share, without pairs
        of the commonest value, and the share of next values among the others. The share of next values among unequal
        pairs with the commonest value. The mean step of pairs without it, the largest of all axes.
    """
    found, steps, beside = [(0.0, 1.0)] * 2, [0.0], []
    for axis in (axis for axis, count in enumerate(ranks.shape) if count > 1):
        one, other = (ranks.take(range(k, ranks.shape[axis] - 1 + k), axis) for k in (0, 1))
        within, without = (one != common) & (other != common), (one == common) & (other == common)
        apart = abs(one - other)
        found.append((_share(apart[~without] == 0), _share(apart[within & (apart > 0)] == 1)))
        beside.append(apart[~within & ~without] == 1)
        steps.append(float(abs(values[one[within]] - values[other[within]]).mean()) if within.any() else 0.0)
    return *sorted(found)[-2], _share(np.concatenate(beside or [[]])), max(steps)


def _share(found: np.ndarray) -> float:
    return float(found.mean()) if found.size else 0.0
