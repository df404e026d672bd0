"""From the error network's numbers to intervals that hold the truth: split conformal calibration, person by person.

A score is `|error| / (number of the network x scale of the scan)`. The 90 % quantile of the scores is the factor of the
intervals that hold the truth in 90 % of voxels. Each person counts the same, whatever the number of voxels: people are
exchangeable, voxels are not. Angelopoulos and Bates, Found. Trends Mach. Learn. 16:494-591 (2023); for groups Lee et
al., arXiv:2306.06342.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError

LEVELS = (0.25, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.985, 0.995)  # of the quantiles that are kept
LEAST, MOST = 0.5, 0.99  # confidence


def confidence_level(value: object) -> float:
    """The option `confidence` as a number.

    Raises:
        InputError: if it is none that maps can be made for.
    """
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not LEAST <= number <= MOST:
        raise InputError(f"confidence is {value!r}: expected a number from {LEAST} to {MOST}. Set --confidence.")
    return number


@dataclass(frozen=True)
class Calibration:
    """Quantiles of the scores of people that no network was trained on.

    Attributes:
        thicknesses: of the slices that were simulated, in mm, in ascending order.
        people: `person` -> for each thickness the quantiles at `LEVELS`, for scans that tell their own scale.
        standing_in: the same for scans that cannot tell it; their scale counts as 1.
        regions: of `region_factor`: the volume in mm3 within which errors go together, the exponent, and a factor.
    """

    thicknesses: Sequence[float]
    people: Mapping[str, Sequence[Sequence[float]]]
    standing_in: Mapping[str, Sequence[Sequence[float]]]
    regions: tuple[float, float, float]

    def __post_init__(self) -> None:
        """
        Raises:
            InputError: if a table has another shape, or its numbers do not ascend.
        """
        shape = (len(self.thicknesses), len(LEVELS))
        for table in (self.people, self.standing_in):
            for name, quantiles in table.items():
                numbers = np.asarray(quantiles, dtype=float)
                if numbers.shape != shape or not np.isfinite(numbers).all() or (np.diff(numbers) < 0).any():
                    raise InputError(f"error_map: quantiles of {name} are not {shape[0]} x {shape[1]} that ascend.")
        if not self.people or not self.standing_in:
            raise InputError("error_map: no person calibrates it.")

    def factor(self, thickness: float, confidence: float, own: bool, without: str | None = None) -> float:
        """What the network's numbers are multiplied by, so that the interval holds as much as `confidence` says.

        Args:
            thickness: of the slices, in mm. Between thicknesses the factor's logarithm is linear in the thickness's.
            confidence: share of voxels.
            own: whether the scan tells its own scale.
            without: name of a person who is left out.
        """
        table = self.people if own else self.standing_in
        left_out = None if without is None or len(table) == 1 else person(without)
        chosen = [np.asarray(table[name], dtype=float) for name in table if name != left_out]
        factors = [_mixture_quantile([one[k] for one in chosen], confidence) for k in range(len(self.thicknesses))]
        return float(np.exp(np.interp(math.log(thickness), np.log(self.thicknesses), np.log(factors))))

    def region_factor(self, volume: float) -> float:
        """Half-width of the 95 % interval of a region's mean, over the root mean square of its voxels' 90 % ones.

        Errors of neighbours go together, so the mean of many voxels gains less than the root of their number.

        Args:
            volume: of the region, in mm3.
        """
        together, exponent, factor = self.regions
        return factor * decay(volume, together, exponent) ** 0.5


def person(name: str) -> str:
    """A name that tells people apart and does not name them: a card goes to others with its weights."""
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def decay(volume: np.ndarray | float, together: float, exponent: float) -> Any:
    """Variance of the mean error of a region over that of a voxel's error, by the region's volume in mm3."""
    return (1 + volume / together) ** -exponent


def quantiles(scores: np.ndarray) -> list[float]:
    """The quantiles of scores that a calibration keeps, at `LEVELS`."""
    return [float(f"{value:.5g}") for value in np.quantile(scores, LEVELS)]


def _mixture_quantile(people: Sequence[np.ndarray], level: float) -> float:
    """The quantile of a mixture in which each person has one share."""
    at = np.unique(np.concatenate(people))
    levels = np.mean([np.interp(at, one, LEVELS) for one in people], axis=0)
    return float(np.interp(level, levels, at))
