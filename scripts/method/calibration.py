"""From the error network's numbers to intervals that hold the truth: split conformal calibration, person by person.

A score is `|error| / (number of the network x scale of the scan)`. The scale knows the gaps and the noise of the scan's
slices (`scan_scale`). The 90 % quantile of the scores is the factor of the intervals that hold the truth in 90 %
of voxels. Each person counts the same, whatever the number of voxels: people are exchangeable, voxels are not.
Angelopoulos and Bates, Found. Trends Mach. Learn. 16:494-591 (2023); for groups Lee et al., arXiv:2306.06342.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool3d

from ..errors import InputError

LEVELS = (0.25, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.985, 0.995)  # of the quantiles that are kept
LEAST, MOST = 0.5, 0.99  # confidence
BOXES = (2, 4, 8, 16)  # voxels along an edge; regions whose mean errors are looked at
FULL = 0.99  # share of a box that lies in the head
QUIET, TYPICAL = 5e-4, 5e-3  # noise of slices, as a share of their range: the least that counts, and that of scale 1


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
        people: `person` -> for each thickness the quantiles at `LEVELS`.
        exponents: of `scan_scale`.
        regions: of `region_factor`: the volume in mm3 within which errors go together, the exponent, and a factor.
    """

    thicknesses: Sequence[float]
    people: Mapping[str, Sequence[Sequence[float]]]
    exponents: tuple[float, float]
    regions: tuple[float, float, float]

    def __post_init__(self) -> None:
        """
        Raises:
            InputError: if a table has another shape, or its numbers or the thicknesses do not ascend.
        """
        if (np.diff(self.thicknesses) <= 0).any():
            raise InputError(f"error_map: thicknesses {list(self.thicknesses)} do not ascend.")
        shape = (len(self.thicknesses), len(LEVELS))
        for name, quantiles in self.people.items():
            numbers = np.asarray(quantiles, dtype=float)
            if numbers.shape != shape or not np.isfinite(numbers).all() or (np.diff(numbers) < 0).any():
                raise InputError(f"error_map: quantiles of {name} are not {shape[0]} x {shape[1]} that ascend.")
        if not self.people:
            raise InputError("error_map: no person calibrates it.")

    def factor(self, thickness: float, confidence: float, without: str | None = None) -> float:
        """What scaled errors are multiplied by, so that the interval holds as much as `confidence` says.

        Args:
            thickness: of the slices, in mm. Between thicknesses the factor's logarithm is linear in the thickness's.
            confidence: share of voxels.
            without: name of a person who is left out.
        """
        left_out = None if without is None or len(self.people) == 1 else person(without)
        chosen = [np.asarray(one, dtype=float) for name, one in self.people.items() if name != left_out]
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


def scan_scale(exponents: tuple[float, float], spacing_ratio: float, noise: float) -> float:
    """What expected errors of a scan are multiplied by: errors grow with gaps between the slices and with noise.

    Args:
        exponents: of the ratio, and of the noise.
        spacing_ratio: slice spacing over thickness.
        noise: of the slices, as a share of the range of their tissue. Fine texture counts as noise.
    """
    gap, noisy = exponents
    return float(spacing_ratio**gap * (max(noise, QUIET) / TYPICAL) ** noisy)


def decay(volume: np.ndarray | float, together: float, exponent: float) -> Any:
    """Variance of the mean error of a region over that of a voxel's error, by the region's volume in mm3."""
    return (1 + volume / together) ** -exponent


def box_means(volume: Tensor, head: Tensor, edge: int) -> np.ndarray:
    """Means of `volume`, `(X, Y, Z)`, over the cubes of `edge` voxels that lie in the head, `(X, Y, Z)` bool."""
    if min(volume.shape) < edge:
        return np.zeros(0)
    means, share = avg_pool3d(torch.stack([volume, head.to(volume)])[:, None], edge)[:, 0]
    return means[share > FULL].double().numpy()


def quantiles(scores: np.ndarray) -> list[float]:
    """The quantiles of scores that a calibration keeps, at `LEVELS`."""
    return [float(f"{value:.5g}") for value in np.quantile(scores, LEVELS)]


def _mixture_quantile(people: Sequence[np.ndarray], level: float) -> float:
    """The quantile of a mixture in which each person has one share."""
    at = np.unique(np.concatenate(people))
    levels = np.mean([np.interp(at, one, LEVELS) for one in people], axis=0)
    return float(np.interp(level, levels, at))
