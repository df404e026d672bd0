"""An evaluation refuses what it cannot do, and says what is expected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import InputError, is_number
from ..stack.acquisition import length


def expect(good: bool, name: str, value: object, expected: str) -> None:
    """Refuses an option whose value is not good."""
    if not good:
        raise InputError(f"{name} is {value!r}: expected {expected}. Set --{name}.")


def check_thickness(name: str, axis: int, fine_spacing: float, thickness: float) -> None:
    """Refuses slices of a volume that are thinner than its voxels along an axis; lengths in mm."""
    if thickness < fine_spacing:
        raise InputError(
            f"{name} has voxels of {fine_spacing:.4g} mm along axis {axis}: slices of {thickness:g} mm cannot be "
            "simulated, expected thicker ones. Set --thicknesses."
        )


def lengths(thicknesses: float | Sequence[float]) -> list[float]:
    """The option `thicknesses`, in mm."""
    return [length("thicknesses", t, "Set --thicknesses [3.0,5.0].") for t in np.ravel(thicknesses).tolist()]


def check_draws(motion: Sequence[float], seed: int, **shares: float) -> tuple[float, float]:
    """Most degrees and mm of what is drawn, beside shares of intensity, each 0 or more."""
    for name, value in shares.items():
        expect(is_number(value, 0), name, value, "a share, 0 or more")
    pair = isinstance(motion, Sequence) and len(motion) == 2 and all(is_number(one, 0) for one in motion)
    expect(pair, "motion", motion, "degrees and mm, [5.0, 5.0]")
    expect(isinstance(seed, int), "seed", seed, "a whole number")
    return motion[0], motion[1]
