"""How a stack of slices was acquired, as one value that is settled once and that everything else takes."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np

from ..errors import InputError
from . import grid

# A slice profile: the time-bandwidth product of an SLR pulse, or a shape by its name (`profile.slice_profile`)
Profile = float | Literal["gaussian", "rectangular", "point"]
SLR = 4.0  # dimensionless; a common clinical 2-D excitation

SHORTEST, LONGEST = 0.2, grid.MAX_SPACING  # mm; of slice thickness and target
ROUNDING = 1.01  # headers round: lengths within this factor are one


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
        noise: standard deviation of their noise, as a share of the range of their tissue; None for the one they show.
        packages: package of each slice, a digit each (`packages.by_times`); empty where no times say it.
        sources: name of an attribute -> where it came from, for people.
        warnings: doubtful facts, for people.
    """

    slice_axis: int
    slice_count: int
    slice_spacing: float
    slice_thickness: float
    target_spacing: float
    fine_count: int
    profile: Profile = SLR
    shift: float = 0.0
    noise: float | None = field(default=None, compare=False)
    packages: str = field(default="", compare=False)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def stack(cls, axis: int, count: int, *, spacing: float, thickness: float, target: float, **others: Any) -> Self:
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
    ) -> Self:
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

    @cached_property
    def fine_rows(self) -> np.ndarray:
        """Where the fine slices lie among the thick ones, `(fine_count,)`, in slices from the centre of the first."""
        rows = grid.centred_positions(self.fine_count, self.target_spacing, self.slice_count, self.slice_spacing)
        return rows - self.shift / self.slice_spacing

    @cached_property
    def slice_rows(self) -> np.ndarray:
        """Where the thick slices lie among the fine ones, `(slice_count,)`, in fine slices from the first's centre."""
        rows = grid.centred_positions(self.slice_count, self.slice_spacing, self.fine_count, self.target_spacing)
        return rows + self.shift / self.target_spacing

    @cached_property
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
        noise = math.nan if self.noise is None else self.noise
        volume.meta["acquisition"] = asdict(self) | {"noise": noise, "warnings": "\n".join(self.warnings)}

    @classmethod
    def of(cls, volume: Any) -> Self:
        """Reads the facts that `attach` has written, from a volume or from a batch of one."""
        facts = getattr(volume, "meta", {}).get("acquisition")
        if facts is None:
            raise ValueError("the image carries no acquisition: run the bundle's preprocessing, or attach one.")

        def plain(value: Any) -> Any:  # collation makes tensors of numbers, lists of texts and nothing of {}
            return value[0] if isinstance(value, list) else value.item() if hasattr(value, "item") else value

        found = {name.name: plain(facts[name.name]) for name in fields(cls) if name.name != "sources"}
        found["sources"] = {name: plain(source) for name, source in (facts["sources"] or {}).items()}
        found["noise"] = None if math.isnan(found["noise"]) else found["noise"]
        found["warnings"] = tuple(found["warnings"].split("\n")) if found["warnings"] else ()
        return cls(**found)

    def moved(self, axes: tuple[int, ...], flipped: tuple[int, ...] = ()) -> Self:
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
