"""Refusals of an evaluation, each with the expected value."""

from collections.abc import Sequence

import numpy as np

from ..errors import InputError
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
