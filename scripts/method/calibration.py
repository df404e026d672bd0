"""From the error network's numbers to intervals that hold the truth: split conformal calibration, person by person.

A score is `|error| / (number of the network x scale of the scan)`. The scale knows the gaps and the noise of the scan's
slices (`scan_scale`). The 90 % quantile of a person's scores is the factor of the intervals that hold the truth in 90 %
of this person's voxels. The factor of all is a quantile over people (`SURE`): people are exchangeable, voxels are not.
Angelopoulos and Bates, Found. Trends Mach. Learn. 16:494-591 (2023); for groups Lee et al., arXiv:2306.06342.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from ..errors import InputError, is_number

LEVELS = (0.25, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.985, 0.995)  # of the quantiles that are kept
LEAST, MOST = 0.5, 0.99  # confidence
NEAR = 0.1  # of a thickness; as far beyond the calibrated ones their factor holds
SURE = 0.9  # share of people in whom intervals hold as much as the confidence says
QUIET, TYPICAL = 5e-3, 5e-3  # noise of slices, as a share of their range: the least that counts, and the one of scale 1


def confidence_level(value: object) -> float:
    """The option `confidence` as a number; anything else is an `InputError`."""
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
        people: for each person and thickness the quantiles at `LEVELS`.
        exponents: of `scan_scale`.
        guided: for each thickness, how much narrower intervals are where a whole, sharp guide is: a factor. Empty for
            none.
    """

    thicknesses: Sequence[float]
    people: Sequence[Sequence[Sequence[float]]]
    exponents: tuple[float, float]
    guided: Sequence[float] = ()

    def __post_init__(self) -> None:
        if (np.diff(self.thicknesses) <= 0).any():
            raise InputError(f"error_map: thicknesses {list(self.thicknesses)} do not ascend.")
        shape = (len(self.thicknesses), len(LEVELS))
        for number, quantiles in enumerate(self.people, start=1):
            numbers = np.asarray(quantiles, dtype=float)
            if numbers.shape != shape or not np.isfinite(numbers).all() or (np.diff(numbers) < 0).any():
                raise InputError(
                    f"error_map: quantiles of person {number} are not {shape[0]} x {shape[1]} that ascend."
                )
        if not self.people:
            raise InputError("error_map: no person calibrates it.")
        if len(self.guided) not in (0, len(self.thicknesses)) or not all(one > 0 for one in self.guided):
            raise InputError(
                f"error_map: guided is {list(self.guided)}: expected a factor for each thickness, or none."
            )

    def factor(self, thickness: float, confidence: float) -> float:
        """The factor of scaled errors whose interval holds the share `confidence` of voxels, in `SURE` of people.

        Args:
            thickness: of the slices, in mm. Between thicknesses the factor's logarithm is linear in the thickness's,
                beyond them the factor is the nearest one's.
            confidence: share of voxels.
        """
        needed = [[float(np.interp(confidence, LEVELS, one)) for one in rows] for rows in self.people]
        return self._between([over_people(column) for column in zip(*needed)], thickness)

    def narrowest(self, thickness: float) -> float:
        """The factor to which a guide narrows intervals at most; thicknesses are as in `factor`."""
        return self._between(self.guided, thickness) if self.guided else 1.0

    def _between(self, factors: Sequence[float], thickness: float) -> float:
        return float(np.exp(np.interp(math.log(thickness), np.log(self.thicknesses), np.log(factors))))

    def outside(self, thickness: float) -> str:
        """Why a thickness, in mm, is not one that was calibrated, for people; empty for one that was."""
        least, most = self.thicknesses[0], self.thicknesses[-1]
        if least * (1 - NEAR) <= thickness <= most * (1 + NEAR):
            return ""
        return (
            f"error map: slices of {thickness:.3g} mm are beyond the {least:g} to {most:g} mm that were calibrated. "
            "It may hold more or less than it says"
        )


@dataclass(frozen=True)
class Foretelling:
    """From the gain that a scan's own slices show to the gain through them (`rebuild.reduced_resolution`), in dB.

        offset + slope x gain + thickness x ln(slice thickness / target) + axial, where slices are axial

    The thinner the slices, the more is gained through them. Along the head less is gained than across it, and slices
    that are axial are tested across it. Fitted on simulated scans of people that no network was trained on
    (`python -m benchmarks.check`).

    Attributes:
        error: root mean square of what it is off by, for people who took no part in the fit.
    """

    offset: float
    slope: float
    thickness: float
    axial: float
    error: float

    def __post_init__(self) -> None:
        numbers = {one.name: getattr(self, one.name) for one in fields(self)}
        if not all(is_number(one, -math.inf) for one in numbers.values()) or not self.error > 0:
            raise InputError(f"foretelling is {numbers}: expected five numbers, the error above 0.")

    def through(self, gain: float, thickness: float, is_axial: bool) -> tuple[float, float]:
        """The gain through slices that the gain within them foretells, and its standard error.

        The thickness of the slices is in targets.
        """
        told = self.offset + self.slope * gain + self.thickness * math.log(thickness) + self.axial * is_axial
        return told, self.error


def over_people(factors: Sequence[float]) -> float:
    """The factor that suffices for a further person with a chance of `SURE`; of few people the largest.

    Split conformal: of `n` exchangeable numbers the `ceil(SURE x (n + 1))`-th smallest.
    """
    rank = min(math.ceil(SURE * (len(factors) + 1)), len(factors))
    return sorted(factors)[rank - 1]


def scan_scale(exponents: tuple[float, float], spacing_ratio: float, noise: float) -> float:
    """The scale of a scan's expected errors, by the gaps between its slices and by their noise.

    The exponents are of the ratio, slice spacing over thickness, and of the noise, as a share of the range of the
    slices' tissue. Fine texture counts as noise.
    """
    gap, noisy = exponents
    return float(spacing_ratio**gap * (max(noise, QUIET) / TYPICAL) ** noisy)


def quantiles(scores: np.ndarray) -> list[float]:
    """The quantiles of scores that a calibration keeps, at `LEVELS`."""
    return [float(f"{value:.5g}") for value in np.quantile(scores, LEVELS)]
