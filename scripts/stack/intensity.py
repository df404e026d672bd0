"""Which intensities of a scan are tissue: a range that is deaf to padding, undershoot and hot spots."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError

UPPER_PERCENTILE = 99.9
HOT_PERCENTILE = 97.0  # hot spots fill less of a scan than the 3 % above, heads more
BRIGHTEST = 5.0  # times the head's typical intensity; of 54 scans none has a voxel in 20,000 above it


class IntensityRange(NamedTuple):
    """In the scan's own units.

    Attributes:
        low: becomes -1.
        high: becomes 1; vessels and fat may be brighter.
        ceiling: what is brighter is no tissue.
    """

    low: float
    high: float
    ceiling: float

    def tissue(self, volume: Tensor) -> Tensor:
        """The volume without what lies beyond tissue: raised to `low`, and typical where it is above the ceiling.

        Bright spots that were cut off at the ceiling would still be the strongest contrast in their planes, and change
        what networks make of the tissue around them.
        """
        typical = self.low + (self.ceiling - self.low) / BRIGHTEST
        return volume.clamp(min=self.low).where(volume <= self.ceiling, typical)

    def to_unit(self, volume: Tensor) -> Tensor:
        """Intensities mapped linearly, `[low, high]` to `[-1, 1]` (Sec. S4.3), without clipping."""
        return (volume - self.low) * (2 / (self.high - self.low)) - 1

    def to_scan(self, unit: Tensor) -> Tensor:
        """Undoes `to_unit`."""
        return (unit + 1) * ((self.high - self.low) / 2) + self.low


def check_finite(volume: Tensor, name: str) -> None:
    """Refuses voxels that are no numbers, which would spread over a result, or over weights in training.

    Raises:
        InputError: if a voxel is NaN or infinite.
    """
    count = int((~torch.isfinite(volume)).sum())
    if count:
        raise InputError(f"{name} has {count} NaN or infinite voxels: expected none. Mask or mend them first.")


def intensity_range(volume: Tensor) -> IntensityRange:
    """The range of a scan's tissue; one for all its slices, since one for each would show as bands (reading note 3).

    Magnitude images have no negative intensities: where fewer than one voxel in a hundred is negative, as padding and
    the undershoot of splines are, the range begins at 0, or at the smallest intensity above. Elsewhere, as in scans
    that were standardised, it begins at the 0.1th percentile. It ends at the 99.9th percentile of the voxels up to the
    ceiling, which is 5 times the head's typical intensity, the median of all voxels above the mean of those that are
    clipped at the 97th percentile, which hot spots do not reach.

    Args:
        volume: of any shape, finite.

    Returns:
        A range with `low < high <= ceiling`; of a constant volume it begins at the constant.
    """
    values = np.asarray(volume.detach().cpu(), dtype=np.float64).ravel()
    darkest, dark, hundredth, hot = np.percentile(values, (0, 100 - UPPER_PERCENTILE, 1, HOT_PERCENTILE))
    low = max(darkest, 0.0) if hundredth >= 0 else dark
    bright = values[values > np.minimum(values, hot).mean()]
    typical = float(np.median(bright)) - low if len(bright) else 0.0
    ceiling = low + BRIGHTEST * typical
    high = float(np.percentile(values[values <= ceiling], UPPER_PERCENTILE)) if typical > 0 else low
    if high <= low:  # fewer than one voxel in a thousand is not background
        high = ceiling = max(float(values.max()), low + 1)
    return IntensityRange(float(low), high, float(max(ceiling, high)))


def data_range(truth: Tensor) -> float:
    """Largest minus smallest intensity of the truth.

    Raises:
        ValueError: if the truth holds one value, or NaN or infinite ones.
    """
    extent = float(truth.max()) - float(truth.min())
    if not 0 < extent < math.inf:
        raise ValueError(f"truth has an intensity range of {extent}: expected a positive one. Leave this volume out.")
    return extent
