"""The facts of an acquisition, settled once: the user's values, the file's, and the grid's."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from . import grid
from .acquisition import ROUNDING, SLR, Acquisition, Profile, length

PLAUSIBLE = 0.5  # of the largest spacing; slices that overlap more do not occur
CUBES = 0.8  # of the slice spacing; where slices overlap and a pixel is larger, any axis may be theirs
CUBE = 0.9  # of the largest spacing; so near to a cube a header knows the axis better
FLAT, TALL = 60.0, 260.0  # mm; a field of view flatter within its slices and taller across them holds no head
GUESSED = "the largest spacing"
NAMES = {"slice_thickness": "SliceThickness", "slice_spacing": "SpacingBetweenSlices"}  # of facts, in files
GUESS = "the slice spacing, for want of better"  # where a slice thickness came from that nobody stated


@dataclass(frozen=True)
class Given:
    """The user's facts of an acquisition, lengths in mm; None leaves one to the file and its grid.

    Attributes:
        slice_thickness: of the slices.
        target_thickness: of the result.
        slice_axis: of the array.
        profile: of the slices.
        isotropic: whether the pixels will be resampled to the target.
    """

    slice_thickness: float | None = None
    target_thickness: float | None = None
    slice_axis: int | None = None
    profile: Profile = SLR
    isotropic: bool = False


def settle(
    name: str,
    affine: ArrayLike,
    shape: tuple[int, ...],
    stated: Mapping[str, tuple[Any, str]],
    given: Given,
    card: Any,
) -> Acquisition:
    """Settles the facts of an acquisition and says where each came from.

    The user's values win, then the file's, unless its grid denies them, then those that the grid suggests: the
    slice axis is the one with the largest spacing, the thickness the slice spacing, the target the finer in-plane
    spacing, within the trained range.

    Args:
        name: of the scan, for messages.
        affine: `(4, 4)`, voxel -> mm.
        shape: `(X, Y, Z)`.
        stated: `slice_axis`, `slice_thickness` and `slice_spacing`, as far as the file says them: value and source.
        card: the ranges of the weights' training, a `weights.Card`.
    """
    spacing, warnings = grid.voxel_spacing(affine), list[str]()
    stated = _lengths(name, stated, given, warnings)
    axis, axis_source = _axis(spacing, stated, given, warnings)
    if shape[axis] < grid.MIN_SLICES:
        raise InputError(
            f"{name} has {shape[axis]} slices along axis {axis}: expected {grid.MIN_SLICES} or more. "
            "Set --slice_axis if the slices lie along another axis."
        )
    slice_spacing, pixels, view = float(spacing[axis]), np.delete(spacing, axis), spacing * shape
    if view[axis] > TALL and view.min() < FLAT:
        warnings.append(
            f"the field of view is {' x '.join(f'{edge:.0f}' for edge in view)} mm, which is none of a head: axis "
            f"{view.argmin()} of the array may be that of the slices. Give the array in the order of its affine."
        )
    target, target_source = _target(pixels, given.target_thickness, card)
    thickness, source = _thickness(axis, spacing, stated, given.slice_thickness, warnings)
    thin = max(thickness, slice_spacing) <= ROUNDING * target
    implausible = given.slice_thickness is None and slice_spacing < PLAUSIBLE * spacing.max()
    if given.slice_axis is not None and (thin or implausible) and spacing.max() > ROUNDING * target:
        raise InputError(
            f"{name}: slice_axis is {axis}, along which voxels are {slice_spacing:.3g} mm, no thick slices' spacing: "
            f"expected their axis, such as {grid.slice_axis(spacing)}. Leave out --slice_axis."
        )
    overlap = thickness > ROUNDING * slice_spacing
    if axis_source == GUESSED and overlap and not thin and pixels.max() > CUBES * slice_spacing:
        edges = " x ".join(f"{edge:.3g}" for edge in spacing)
        raise InputError(
            f"{name}: slices of {thickness:.3g} mm overlap and voxels of {edges} mm are nearly cubes: no spacing tells "
            "along which axis the slices lie. Set --slice_axis to 0, 1 or 2."
        )
    if abs(thickness - target) <= (ROUNDING - 1) * target:
        thickness = target
    if thin:
        target_source = "the slice spacing: nothing is to be rebuilt"
        source = source if thickness == slice_spacing else target_source
        thickness = target = slice_spacing
    elif thickness < target:
        raise InputError(
            f"{name}: slice thickness {thickness:g} mm ({source}) is smaller than the target, {target:g} mm. "
            "Set --slice_thickness to the true thickness or --target_thickness to a smaller one."
        )
    else:
        seen = None if given.isotropic else pixels
        warnings += _denied(slice_spacing, stated) + _beyond_training(
            thickness, source, slice_spacing, seen, target, card
        )
    return Acquisition.stack(
        axis,
        shape[axis],
        spacing=slice_spacing,
        thickness=thickness,
        target=target,
        profile=given.profile,
        sources={
            "slice_axis": axis_source,
            "slice_spacing": "the affine",
            "slice_thickness": source,
            "target_spacing": target_source,
        },
        warnings=tuple(warnings),
    )


def _lengths(
    name: str, stated: Mapping[str, tuple[Any, str]], given: Given, warnings: list[str]
) -> dict[str, tuple[Any, str]]:
    """The facts of a file, of which the lengths are numbers. Those that are as good as empty are left out.

    These are 0, no text, and a text with its unit, which DICOM forbids.
    """
    found = dict(stated)
    for fact, keyword in NAMES.items():
        value, source = stated.get(fact, (None, ""))
        if value is None:
            continue
        try:
            found[fact] = length(f"{name}: {keyword} of {source}", value, "Mend it, or remove it."), source
        except InputError:
            empty = value == 0 or (isinstance(value, str) and re.fullmatch(r"\s*|.*mm\s*", value))
            if fact == "slice_thickness" and not empty and given.slice_thickness is None:  # the user knows better
                raise
            warnings.append(f"{keyword} of {source} is {value!r}, which is no length. It is not used.")
            del found[fact]
    return found


def _denied(slice_spacing: float, stated: Mapping[str, tuple[Any, str]]) -> list[str]:
    """A warning where a file says another spacing of slices than its affine."""
    said, source = stated.get("slice_spacing", (slice_spacing, ""))
    if abs(said - slice_spacing) <= max(grid.SPACING_TOLERANCE * slice_spacing, grid.SAME_PLACE):
        return []
    return [
        f"SpacingBetweenSlices of {source} is {said:.4g} mm, but slices lie {slice_spacing:.4g} mm apart by their "
        f"places, which is used. By the header the head is {said / slice_spacing:.2f} times as high. Check which is "
        "right, and that no slice is missing."
    ]


def _axis(
    spacing: np.ndarray, stated: Mapping[str, tuple[Any, str]], given: Given, warnings: list[str]
) -> tuple[int, str]:
    """The slice axis, and where it came from.

    A header may be older than the array's order of axes. So an axis that it names has the largest spacing, or a
    thickness speaks for it: slices that are thicker than any spacing overlap, and those as thick as their spacing, but
    not as the finest one, lie along it.
    """
    if given.slice_axis is not None:
        return given.slice_axis, "given"
    thickness = given.slice_thickness
    if thickness is None:
        thickness, _ = stated.get("slice_thickness", (None, ""))
    if "slice_axis" in stated:
        axis, source = stated["slice_axis"]
        largest, own, finest = spacing.max(), spacing[axis], spacing.min()
        overlap = thickness is not None and thickness > ROUNDING * largest
        alike = thickness is not None and max(thickness, own) <= ROUNDING * min(thickness, own)
        if own >= CUBE * largest or (own >= PLAUSIBLE * largest and (overlap or (alike and own > ROUNDING * finest))):
            return int(axis), source
        warnings.append(
            f"{source} names axis {axis}, whose spacing of {own:.3g} mm is no slice spacing: the axis of the largest "
            f"spacing, {largest:.3g} mm, is taken. Set --slice_axis if that is wrong."
        )
    return grid.slice_axis(spacing), GUESSED


def _target(pixels: np.ndarray, given: float | None, card: Any) -> tuple[float, str]:
    """The slice thickness to reach, in mm, and where it came from; `pixels` are the two spacings in plane."""
    if given is not None:
        return given, "given"
    (low, high), finer = card.target_range, pixels.min()
    brought = "" if low <= finer <= high else f", {finer:.3g} mm, brought into the trained {low:g} to {high:g} mm"
    return float(np.clip(finer, low, high)), f"the finer in-plane spacing{brought}"


def _thickness(
    axis: int,
    spacing: np.ndarray,
    stated: Mapping[str, tuple[Any, str]],
    given: float | None,
    warnings: list[str],
) -> tuple[float, str]:
    """The slice thickness in mm, and where it came from. A thickness of another axis is not taken."""
    thickness, source = stated.get("slice_thickness", (None, ""))
    if given is not None:
        if thickness is not None and abs(thickness - given) > (ROUNDING - 1) * thickness:
            warnings.append(f"slice thickness {given:g} mm is given and used; {source} says {thickness:g} mm.")
        return given, "given"
    if thickness is not None and stated.get("slice_axis", (None, ""))[0] != axis:
        pixels = np.delete(spacing, axis)
        of_pixels = (np.maximum(pixels, thickness) <= ROUNDING * np.minimum(pixels, thickness)).any()
        if of_pixels and thickness < PLAUSIBLE * spacing[axis]:
            warnings.append(
                f"{source} says that slices are {thickness:g} mm thick, as pixels are, but they lie "
                f"{spacing[axis]:.3g} mm apart: it speaks of another axis, and is not used."
            )
            thickness = None
    return (float(spacing[axis]), GUESS) if thickness is None else (float(thickness), source)


def _beyond_training(
    thickness: float, source: str, spacing: float, pixels: np.ndarray | None, target: float, card: Any
) -> list[str]:
    """A warning for each fact that the weights have not seen, or that nobody stated; 1 % is rounding."""
    warnings = []
    low, high = card.target_range
    if not low <= target <= high:
        warnings.append(
            f"target {target:g} mm is outside the {low:g} to {high:g} mm that the weights were trained for; expect "
            "blur or false detail."
        )
    if source == GUESS:
        warnings.append(
            f"nothing states the slice thickness: the slice spacing, {spacing:.3g} mm, is taken for it. Set "
            "--slice_thickness where slices have gaps or overlap."
        )
    if thickness > ROUNDING * card.max_thickness:
        warnings.append(
            f"slices of {thickness:.3g} mm are thicker than the {card.max_thickness:g} mm that the weights were "
            "trained for; expect missing detail."
        )
    low, high = card.pixel_range
    if pixels is not None and (pixels.min() * ROUNDING < low or pixels.max() > ROUNDING * high):
        edges = " x ".join(f"{pixel:.3g}" for pixel in pixels)
        warnings.append(
            f"pixels of {edges} mm are outside the {low:g} to {high:g} mm that the weights were trained for; "
            "--isotropic resamples them to the target."
        )
    low, high = card.spacing_ratio
    if not low <= ROUNDING * spacing / thickness or not spacing / thickness <= ROUNDING * high:
        warnings.append(
            f"slices of {thickness:.3g} mm lie {spacing:.3g} mm apart, {spacing / thickness:.2f} times their "
            f"thickness; the weights were trained for {low:g} to {high:g}."
        )
    return warnings
