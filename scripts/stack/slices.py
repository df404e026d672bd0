"""Measured slices as one value, with the facts that they show: the range of their tissue, the head, gaps, the noise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, Self, TypeVar

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from . import grid
from .acquisition import Acquisition
from .intensity import IntensityRange, intensity_range
from .missing import filled, missing_slices
from .tissue import head_mask

Fact = TypeVar("Fact")


@dataclass(frozen=True, eq=False)
class Slices:
    """A stack of measured slices. Each fact is computed once, when it is first asked for.

    Attributes:
        array: `(X, Y, Z)` float32 on the CPU, finite.
        acquisition: of the slices.
        affine: `(4, 4)`, voxel -> mm.
        meta: what their reader says of them, such as their name.
    """

    array: Tensor
    acquisition: Acquisition
    affine: Tensor = field(default_factory=lambda: torch.eye(4, dtype=torch.float64))
    meta: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, volume: Any) -> Self:
        """A `MetaTensor` that carries its acquisition; channel and batch in front of `(X, Y, Z)` are of one."""
        if volume.shape[:-3].numel() != 1:
            raise ValueError(f"slices are {tuple(volume.shape)}: expected one volume, (1, X, Y, Z).")
        return cls._with(volume, Acquisition.of(volume))

    @classmethod
    def sharp(cls, volume: Any) -> Self:
        """A sharp `MetaTensor` `(X, Y, Z)`, a channel in front of it or not: slices at their target."""
        edge = float(grid.voxel_spacing(volume.affine)[2])
        return cls._with(volume, Acquisition.stack(2, volume.shape[-1], spacing=edge, thickness=edge, target=edge))

    @classmethod
    def _with(cls, volume: Any, acquisition: Acquisition) -> Self:
        array, affine = volume.as_tensor().reshape(volume.shape[-3:]), volume.affine.reshape(4, 4)
        return cls(array.cpu().float(), acquisition, affine.double().cpu(), grid.meta_without_affine(volume))

    @property
    def shape(self) -> torch.Size:
        """`(X, Y, Z)`."""
        return self.array.shape

    @property
    def edges(self) -> np.ndarray:
        """Edges of a voxel, `(3,)` in mm."""
        return grid.voxel_spacing(self.affine)

    @property
    def fine_shape(self) -> list[int]:
        """The shape of the fine grid, `(X', Y', Z')`."""
        a = self.acquisition
        return [a.fine_count if axis == a.slice_axis else count for axis, count in enumerate(self.shape)]

    @property
    def fine_affine(self) -> Tensor:
        """The affine of the fine grid, `(4, 4)`."""
        a = self.acquisition
        affine = grid.respaced_affine(self.affine.numpy(), a.slice_axis, a.slice_count, a.fine_count, a.target_spacing)
        return torch.from_numpy(affine)

    @cached_property
    def constant(self) -> bool:
        """Whether they hold one value: then there is no head, and nothing to rebuild."""
        return bool(self.array.min() == self.array.max())

    @cached_property
    def scale(self) -> IntensityRange:
        """The range of their tissue."""
        return intensity_range(self.array)

    @cached_property
    def head(self) -> Tensor:
        """`(X, Y, Z)` bool; a `ValueError` for constant slices."""
        return head_mask(self.array, self.scale)

    @cached_property
    def missing(self) -> dict[int, str]:
        """Slices that were not measured: index -> what they are."""
        return missing_slices(self.array, self.acquisition.slice_axis, self.scale)

    @cached_property
    def noise(self) -> float:
        """Standard deviation of the noise, in the units of the slices, which are not constant.

        A mask that is blind to ramps leaves the noise: Immerkaer, Comput. Vis. Image Underst. 64:300-302 (1996). The
        median stands in place of the mean, because edges would raise the mean.

        The noise of neighbouring pixels is taken as independent. Where a scan was interpolated in plane, the estimate
        is too low.
        """
        second_difference = np.array([1.0, -2.0, 1.0])
        mask = np.expand_dims(np.outer(second_difference, second_difference), self.acquisition.slice_axis)
        response = ndimage.convolve(self.array.numpy(), mask, mode="nearest")
        inside = self.head.numpy()
        return float(np.median(np.abs(response[inside])) / (0.6745 * np.linalg.norm(mask)))  # median of |N(0, 1)|

    @property
    def above_floor(self) -> Tensor:
        """Intensities from the scan's floor up: 0 is no signal, whatever the scan's own zero means."""
        return self.array - self.scale.low

    @cached_property
    def filled(self) -> Self:
        """The slices with the missing ones interpolated between their neighbours; themselves where none is missing."""
        if not self.missing:
            return self
        return replace(self, array=filled(self.array, self.acquisition.slice_axis, self.missing))

    @cached_property
    def tissue(self) -> Self:
        """The slices without what is no tissue (`IntensityRange.tissue`); themselves where all is."""
        tissue = self.scale.tissue(self.array)
        return self if torch.equal(tissue, self.array) else replace(self, array=tissue)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Which slices are missing, for people; none of a stack at its target, which is not rebuilt."""
        odd = {} if self.acquisition.at_target else self.missing
        return tuple(
            f"slice {index + 1} of {self.acquisition.slice_count} is {what}: it is taken for a missing slice, and its "
            "neighbours are rebuilt without it."
            for index, what in odd.items()
        )

    @cached_property
    def unit(self) -> Self:
        """The slices with their tissue in [-1, 1], as networks see them."""
        return replace(self, array=self.scale.to_unit(self.tissue.array))

    @cached_property
    def turn(self) -> grid.Turn:
        """The way of their array into the order that is nearest to RAS+."""
        return grid.Turn.of(self.affine)

    @cached_property
    def canonical(self) -> "Slices":
        """The slices in that order. Their facts turn with them."""
        turn, acquisition = self.turn, self.acquisition.moved(*self.turn)
        affine, last = self.affine[:, [*turn.axes, 3]], acquisition.slice_count - 1
        for axis in turn.flipped:
            affine[:3, 3] += affine[:3, axis] * (self.shape[turn.axes[axis]] - 1)
            affine[:3, axis] *= -1
        result = Slices(turn.into(self.array), acquisition, affine, self.meta)
        if self.constant:  # it has no head
            return result
        flipped = acquisition.slice_axis in turn.flipped
        missing = dict(sorted((last - index if flipped else index, what) for index, what in self.missing.items()))
        facts = {"scale": self.scale, "head": turn.into(self.head), "missing": missing, "noise": self.noise}
        vars(result).update(facts)
        return result


def fact(find: Callable[[Slices], Fact]) -> Callable[[Slices], Fact]:
    """A function of slices whose answer is kept with them, as their own facts are: it is computed once."""

    @wraps(find)
    def once(slices: Slices) -> Fact:
        known = vars(slices)
        if find.__qualname__ not in known:
            known[find.__qualname__] = find(slices)
        return known[find.__qualname__]

    return once
