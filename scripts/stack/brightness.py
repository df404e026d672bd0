"""Brightness that makes a result less sure: hot spots, tissue far darker than other tissue, and a coil's slope.

The figures are of 70 heads, among them brains without skull and whole necks.
"""

import numpy as np
from torch import Tensor

from .intensity import BRIGHTEST, DIMMEST, HOT, IntensityRange

DARK = 0.5  # of the head is darker than a third of its typical intensity; heads have up to 0.32 so dark
SLOPE = 2.2  # times as bright on one side as on the other; heads are up to 1.9 times
BLOCKS, LEAST = 6, 8  # blocks along each axis of the field of view; and the fewest that tell a slope
SPOTS = (
    "{:.1f} % of the head is more than 5 times as bright as its tissue, as beside metal. Networks see tissue in its "
    "place, and it is laid on as it was measured. Look at it there."
)
FAINT = (
    "{:.0f} % of the head is darker than a third of its bright tissue, as beside fluid that is far brighter. Contrast "
    "within it is less sure."
)
SLOPES = (
    "tissue is {:.1f} times as bright on one side of the head as on the other, as with a surface coil. The dark side "
    "is less sure: correct the bias field first."
)


def doubts(volume: Tensor, tissue_range: IntensityRange, head: Tensor) -> tuple[str, ...]:
    """Which brightness of a scan makes its result less sure, for people.

    Args:
        volume: `(X, Y, Z)`, finite.
        tissue_range, head: of the volume.
    """
    typical, inside = (tissue_range.ceiling - tissue_range.low) / BRIGHTEST, int(head.sum())
    hot = int((volume > tissue_range.ceiling).sum()) / max(inside, 1)
    dark = int((volume[head] <= tissue_range.low + DIMMEST * typical).sum()) / max(inside, 1)
    slope = slope_of((tissue_range.tissue(volume) - tissue_range.low).numpy(), head.numpy(), tissue_range.extent)
    said = ((SPOTS, 100 * hot, hot > HOT), (FAINT, 100 * dark, dark > DARK), (SLOPES, slope, slope > SLOPE))
    return tuple(text.format(number) for text, number, true in said if true)


def slope_of(signal: np.ndarray, head: np.ndarray, extent: float) -> float:
    """How many times as bright the head is at one end of the exponential that fits the means of its blocks best.

    Args:
        signal: `(X, Y, Z)`, of tissue, above the scan's floor.
        head: `(X, Y, Z)` bool.
        extent: of the range of tissue; means of less than a thousandth of it count as so much.
    """
    counts = [min(BLOCKS, n) for n in signal.shape]
    axes = [np.arange(n) * count // n for n, count in zip(signal.shape, counts)]
    block = np.ravel_multi_index(np.ix_(*axes), counts).ravel()
    size, inside = (np.bincount(block, weights, np.prod(counts)) for weights in (None, head.ravel()))
    sums = np.bincount(block, (signal * head).ravel(), np.prod(counts))
    kept = np.flatnonzero(2 * inside > size)
    if len(kept) < LEAST:
        return 1.0
    places = np.stack([np.ones(len(kept)), *np.unravel_index(kept, counts)], 1)
    logarithm = np.log(np.maximum(sums[kept] / inside[kept], extent / 1000))
    fitted = places @ np.linalg.lstsq(places, logarithm)[0]
    return float(np.exp(np.ptp(fitted)))
