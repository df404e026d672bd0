"""What an evaluation cannot do is refused, with what is expected."""

from __future__ import annotations

import math

from ..errors import InputError


def expect(good: bool, name: str, value: object, expected: str) -> None:
    """Refuses an option whose value is not good.

    Raises:
        InputError: says what is expected.
    """
    if not good:
        raise InputError(f"{name} is {value!r}: expected {expected}. Set --{name}.")


def is_number(value: object, least: float) -> bool:
    """Whether a value is a finite number, `least` or more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value < math.inf


def check_thickness(name: str, axis: int, fine_spacing: float, thickness: float) -> None:
    """Refuses slices of a volume that are thinner than its voxels along an axis; lengths in mm.

    Raises:
        InputError: if they are.
    """
    if thickness < fine_spacing:
        raise InputError(
            f"{name} has voxels of {fine_spacing:.4g} mm along axis {axis}: slices of {thickness:g} mm cannot be "
            "simulated, expected thicker ones. Set --thicknesses."
        )
