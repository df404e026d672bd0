"""How a stack of slices was acquired, as one value that is settled once and that everything else takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from . import grid

# Of slices: the time-bandwidth product of an SLR pulse, or a shape by its name (`profile.slice_profile`)
Profile = float | Literal["gaussian", "rectangular", "point"]
SLR = 4.0  # dimensionless; a common clinical 2-D excitation

SHORTEST, LONGEST = 0.2, grid.MAX_SPACING  # mm; of slice thickness and target
ROUNDING = 1.01  # headers round: lengths within this factor are one
PLAUSIBLE = 0.5  # of the largest spacing; slices that overlap more do not occur
CUBES = 0.8  # of the slice spacing; where slices overlap and a pixel is larger, any axis may be theirs
CUBE = 0.9  # of the largest spacing; so near to a cube a header knows the axis better
GUESSED = "the largest spacing"
GUESS = "the slice spacing, for want of better"  # where a slice thickness came from that nobody stated


@dataclass(frozen=True)
class Acquisition:
    """Where measured slices lie, how thick they are, and the fine grid that they are rebuilt on; lengths in mm.

    Both grids have the same centre along the slice axis, but for the shift.

    Attributes:
        slice_axis: of the array `(X, Y, Z)`.
        slice_count: of measured slices.
        slice_spacing: between their centres.
        slice_thickness: full width at half maximum of their profile, `T_i`.
        target_spacing: of the fine grid, and the slice thickness to reach, `T_hr`.
        fine_count: of slices of the fine grid.
        profile: of the measured slices, see `profile.slice_profile`.
        shift: of the measured slices from their centred place.
        packages: package of each slice, a digit each (`packages.by_times`); empty where no times say it.
        sources: name of an attribute -> where it came from, for people.
        warnings: what people should know.
    """

    slice_axis: int
    slice_count: int
    slice_spacing: float
    slice_thickness: float
    target_spacing: float
    fine_count: int
    profile: Profile = SLR
    shift: float = 0.0
    packages: str = field(default="", compare=False)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def stack(
        cls, axis: int, count: int, *, spacing: float, thickness: float, target: float, **others: Any
    ) -> Acquisition:
        """The acquisition of measured slices: the fine grid has as many slices as cover them."""
        return cls(axis, count, spacing, thickness, target, grid.fine_count(count, spacing, target), **others)

    @classmethod
    def of_truth(
        cls,
        axis: int,
        fine_count: int,
        *,
        edge: float,
        thickness: float,
        spacing: float | None = None,
        profile: Profile = SLR,
        shift: float = 0.0,
    ) -> Acquisition:
        """Slices to be simulated, as many as cover the grid of the truth; without a spacing they have no gaps.

        `fine_count` voxels of the truth, each of `edge` mm, lie along the axis.
        """
        spacing = thickness if spacing is None else spacing
        count = grid.thick_count(fine_count, edge, spacing)
        return cls(axis, count, spacing, thickness, edge, fine_count, profile, shift)

    def __post_init__(self) -> None:
        for name in ("slice_spacing", "slice_thickness", "target_spacing"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)} mm: expected a positive length.")

    @property
    def gap(self) -> float:
        """Unmeasured tissue between neighbouring slices, in mm; negative where slices overlap."""
        return self.slice_spacing - self.slice_thickness

    @property
    def at_target(self) -> bool:
        """Whether there is nothing to rebuild: the slices are as thin and as near as the target."""
        return max(self.slice_spacing, self.slice_thickness) <= self.target_spacing

    @property
    def fine_rows(self) -> np.ndarray:
        """Where the fine slices lie among the thick ones, `(fine_count,)`, in slices from the centre of the first."""
        rows = grid.centred_positions(self.fine_count, self.target_spacing, self.slice_count, self.slice_spacing)
        return rows - self.shift / self.slice_spacing

    @property
    def slice_rows(self) -> np.ndarray:
        """Where the thick slices lie among the fine ones, `(slice_count,)`, in fine slices from the first's centre."""
        rows = grid.centred_positions(self.slice_count, self.slice_spacing, self.fine_count, self.target_spacing)
        return rows + self.shift / self.target_spacing

    @property
    def nearest_slices(self) -> np.ndarray:
        """For each fine slice, the thick slice that contains its centre, `(fine_count,)` integers (Eq. S3).

        A centre on the border of two slices goes to the one nearer the middle of the stack, so that flipping commutes.
        """
        middle = (self.slice_count - 1) / 2
        offset = self.fine_rows - middle
        rows = middle + np.sign(offset) * np.maximum(np.abs(offset) - 1e-6, 0)
        return np.clip(np.floor(rows + 0.5), 0, self.slice_count - 1).astype(int)

    def dim(self, image: Any) -> int:
        """The slice axis among the dimensions of an image, whose last three are X, Y and Z."""
        return image.ndim - 3 + self.slice_axis

    def attach(self, volume: Any) -> None:
        """Writes the value into a `MetaTensor`'s meta data, in plain types, which batches can hold."""
        volume.meta["acquisition"] = asdict(self) | {"warnings": "\n".join(self.warnings)}

    @classmethod
    def of(cls, volume: Any) -> Acquisition:
        """Reads what `attach` has written, from a volume or from a batch of one."""
        facts = getattr(volume, "meta", {}).get("acquisition")
        if facts is None:
            raise ValueError("the image carries no acquisition: run the bundle's preprocessing, or attach one.")

        def plain(value: Any) -> Any:  # collation makes tensors of numbers, lists of texts and nothing of {}
            return value[0] if isinstance(value, list) else value.item() if hasattr(value, "item") else value

        found = {name.name: plain(facts[name.name]) for name in fields(cls) if name.name != "sources"}
        found["sources"] = {name: plain(source) for name, source in (facts["sources"] or {}).items()}
        found["warnings"] = tuple(found["warnings"].split("\n")) if found["warnings"] else ()
        return cls(**found)

    def moved(self, axes: tuple[int, ...], flipped: tuple[int, ...] = ()) -> Acquisition:
        """The same stack after its array was transposed to `axes` and then flipped, see `grid.Turn`."""
        axis = axes.index(self.slice_axis)
        if axis not in flipped:
            return replace(self, slice_axis=axis)
        return replace(self, slice_axis=axis, shift=-self.shift, packages=self.packages[::-1])


ALREADY_THIN = "thin or isotropic already"  # why a scan is not rebuilt, see `is_thin`


def is_thin(spacing: float, thickness: float | None, pixel: float, thin: float) -> bool:
    """Whether slices need no rebuilding: neither farther apart nor known to be thicker than `thin` or pixels, mm."""
    return max(spacing, thickness or 0.0) <= ROUNDING * max(thin, pixel)


def length(name: str, value: Any, remedy: str) -> float:
    """A length in mm that the user or a header gave.

    Raises:
        InputError: if it is no number, or beyond what slices of a head can have.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(value, bool) or not SHORTEST <= number <= LONGEST:
        raise InputError(f"{name} is {value!r}: expected {SHORTEST:g} to {LONGEST:g} mm. {remedy}")
    return number


def settle(
    affine: ArrayLike,
    shape: tuple[int, ...],
    stated: Mapping[str, tuple[Any, str]],
    *,
    name: str = "the scan",
    slice_thickness: float | None = None,
    target_thickness: float | None = None,
    slice_axis: int | None = None,
    profile: Profile = SLR,
    target_range: tuple[float, float],
    pixel_range: tuple[float, float],
    max_thickness: float,
    spacing_ratio: tuple[float, float],
) -> Acquisition:
    """Settles the facts of an acquisition and says where each came from (reading note 4).

    The user's values win, then what the file states, unless its grid denies it, then what the grid suggests: the
    slice axis is the one with the largest spacing, the thickness the slice spacing, the target the finer in-plane
    spacing, within the trained range.

    Args:
        affine: `(4, 4)`, voxel -> mm.
        shape: `(X, Y, Z)`.
        stated: `slice_axis` and `slice_thickness`, as far as the file says them: value and source.
        name: of the scan, for messages.
        slice_thickness: given by the user, in mm.
        target_thickness: given by the user, in mm.
        slice_axis: given by the user.
        profile: of the slices.
        target_range, pixel_range, max_thickness, spacing_ratio: what the weights were trained for (`weights.Card`).
    """
    spacing = grid.voxel_spacing(affine)
    warnings: list[str] = []
    supposed = stated.get("slice_thickness", (None, ""))[0] if slice_thickness is None else slice_thickness
    axis, axis_source = _axis(spacing, stated, slice_axis, supposed, warnings)
    if shape[axis] < grid.MIN_SLICES:
        raise InputError(
            f"{name} has {shape[axis]} slices along axis {axis}: expected {grid.MIN_SLICES} or more. "
            "Set --slice_axis if the slices lie along another axis."
        )
    slice_spacing, pixels = float(spacing[axis]), np.delete(spacing, axis)
    target, target_source = target_thickness, "given"
    low, high = target_range
    if target is None:
        target, target_source = float(np.clip(pixels.min(), low, high)), "the finer in-plane spacing"
        if not low <= pixels.min() <= high:
            target_source += f", {pixels.min():.3g} mm, brought into the trained {low:g} to {high:g} mm"
    thickness, source = _thickness(axis, spacing, stated, slice_thickness, warnings)
    thin = max(thickness, slice_spacing) <= ROUNDING * target
    implausible = slice_thickness is None and slice_spacing < PLAUSIBLE * spacing.max()
    if slice_axis is not None and (thin or implausible) and spacing.max() > ROUNDING * target:
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
        if thickness != slice_spacing:
            source = target_source
        thickness = target = slice_spacing
    elif thickness < target:
        raise InputError(
            f"{name}: slice thickness {thickness:g} mm ({source}) is smaller than the target, {target:g} mm. "
            "Set --slice_thickness to the true thickness or --target_thickness to a smaller one."
        )
    else:
        if not low <= target <= high:
            warnings.append(
                f"target {target:g} mm is outside the {low:g} to {high:g} mm that the weights were trained for; expect "
                "blur or false detail."
            )
        if source == GUESS:
            warnings.append(
                f"nothing states the slice thickness: the slice spacing, {slice_spacing:.3g} mm, is taken for it. Set "
                "--slice_thickness where slices have gaps or overlap."
            )
        warnings += _beyond_training(thickness, slice_spacing, pixels, pixel_range, max_thickness, spacing_ratio)
    sources = {
        "slice_axis": axis_source,
        "slice_spacing": "the affine",
        "slice_thickness": source,
        "target_spacing": target_source,
    }
    return Acquisition.stack(
        axis,
        shape[axis],
        spacing=slice_spacing,
        thickness=thickness,
        target=target,
        profile=profile,
        sources=sources,
        warnings=tuple(warnings),
    )


def _axis(
    spacing: np.ndarray,
    stated: Mapping[str, tuple[Any, str]],
    given: int | None,
    thickness: float | None,
    warnings: list[str],
) -> tuple[int, str]:
    """The slice axis, and where it came from.

    A header may be older than the array's order of axes. So an axis that it names has the largest spacing, or a
    thickness speaks for it: slices that are thicker than any spacing overlap, and those as thick as their spacing, but
    not as the finest one, lie along it.
    """
    if given is not None:
        return given, "given"
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
    thickness: float,
    spacing: float,
    pixels: np.ndarray,
    pixel_range: tuple[float, float],
    max_thickness: float,
    spacing_ratio: tuple[float, float],
) -> list[str]:
    """A warning for each fact that the weights have not seen; 1 % is rounding."""
    warnings = []
    if thickness > ROUNDING * max_thickness:
        warnings.append(
            f"slices of {thickness:.3g} mm are thicker than the {max_thickness:g} mm that the weights were trained "
            "for; expect missing detail."
        )
    low, high = pixel_range
    if pixels.min() * ROUNDING < low or pixels.max() > ROUNDING * high:
        edges = " x ".join(f"{pixel:.3g}" for pixel in pixels)
        warnings.append(
            f"pixels of {edges} mm are outside the {low:g} to {high:g} mm that the weights were trained for; "
            "--isotropic resamples them to the target."
        )
    low, high = spacing_ratio
    if not low <= ROUNDING * spacing / thickness or not spacing / thickness <= ROUNDING * high:
        warnings.append(
            f"slices of {thickness:.3g} mm lie {spacing:.3g} mm apart, {spacing / thickness:.2f} times their "
            f"thickness; the weights were trained for {low:g} to {high:g}."
        )
    return warnings
