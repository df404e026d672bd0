"""Measured slices as one value, with the facts that they show: the range of their tissue, the head, gaps, the noise."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from . import brightness, grid
from .acquisition import Acquisition
from .intensity import IntensityRange, intensity_range
from .missing import MANY, filled, missing_slices, odd_slices, said_of
from .noise import Noise, noise_of
from .tissue import head_mask


@dataclass(frozen=True, eq=False)
class Slices:
    """A stack of measured slices. Each fact is computed once, when it is first asked for.

    Attributes:
        array: `(X, Y, Z)` float32 on the CPU, finite.
        acquisition: of the slices.
        affine: `(4, 4)`, voxel -> mm.
        meta: facts of their reader, such as their name.
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
        meta = {name: value for name, value in volume.meta.items() if name not in ("affine", "tissue_range")}
        result = cls(array.cpu().float(), acquisition, affine.double().cpu(), meta)
        known = IntensityRange.attached(volume)
        return result if known is None else result.like(result.array, tissue_range=known)

    def like(
        self, array: Tensor, acquisition: Acquisition | None = None, affine: Tensor | None = None, **facts: Any
    ) -> Self:
        """Slices of other voxels, with the facts that hold of them. The facts that are not named are computed anew.

        Args:
            array: `(X, Y, Z)`.
            acquisition, affine: of the voxels; None where they lie in the places of these slices.
            facts: `tissue_range`, `head`, `missing` and `noise`, as the properties.
        """
        result = replace(
            self,
            array=array,
            acquisition=self.acquisition if acquisition is None else acquisition,
            affine=self.affine if affine is None else affine,
        )
        vars(result).update(facts)
        return result

    @property
    def shape(self) -> torch.Size:
        """`(X, Y, Z)`."""
        return self.array.shape

    @cached_property
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
    def tissue_range(self) -> IntensityRange:
        """The range of their tissue."""
        return intensity_range(self.array)

    @cached_property
    def head(self) -> Tensor:
        """`(X, Y, Z)` bool; a `ValueError` for constant slices."""
        return head_mask(self.array, self.tissue_range)

    @cached_property
    def odd(self) -> dict[int, str]:
        """Slices that are nothing like their neighbours, or copies of one: index -> their fault."""
        return odd_slices(self.array, self.acquisition.slice_axis, self.tissue_range)

    @cached_property
    def missing(self) -> dict[int, str]:
        """Those of them that were not measured."""
        return missing_slices(self.odd, self.acquisition.slice_count)

    @cached_property
    def noise(self) -> Noise:
        """The noise of the slices, which are not constant, in their units: as given, or as their tissue shows it."""
        turn, given = self.turn, self.acquisition.noise  # looked for in RAS+: storage changes nothing
        axis = turn.axes.index(self.acquisition.slice_axis)
        found = self._turned(noise_of(turn.into(self.tissue.above_floor), axis, turn.into(self.head)))
        return found if given is None else replace(found, deviation=given * self.tissue_range.extent)

    @property
    def noise_share(self) -> float:
        """Standard deviation of the noise, as a share of the range of their tissue."""
        return self.noise.deviation / self.tissue_range.extent

    def lengths(self, axis: int) -> Tensor:
        """The `lengths` of planes along an in-plane axis, `(1, 5)`, see `SliceProjectionNetwork.forward`."""
        a, edge = self.acquisition, float(self.edges[axis])
        facts = [a.slice_thickness, a.target_spacing, a.slice_spacing, edge, self.noise_share]
        return torch.tensor([facts], dtype=torch.float32)

    @property
    def above_floor(self) -> Tensor:
        """Intensities from the scan's floor up: 0 is no signal, whatever the scan's own zero means."""
        return self.array - self.tissue_range.low

    @property
    def signal(self) -> Tensor:
        """Intensities from the floor up to the brightest of tissue, which are compared: `IntensityRange.signal`."""
        return self.tissue_range.signal(self.array)

    @cached_property
    def filled(self) -> Self:
        """The slices with the missing ones interpolated between their neighbours; themselves where none is missing.

        None is missing then. Range, head and noise are those of the filled slices.
        """
        if not self.missing:
            return self
        return self.like(filled(self.array, self.acquisition.slice_axis, self.missing), missing={})

    @cached_property
    def tissue(self) -> Self:
        """The slices with tissue alone (`IntensityRange.tissue`); themselves where all is.

        The range and the missing slices stay. A mask may leave the head.
        """
        tissue = self.tissue_range.tissue(self.array)
        if torch.equal(tissue, self.array):
            return self
        return self.like(tissue, tissue_range=self.tissue_range, missing=self.missing)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Which slices are missing and which brightness is odd, for people; none of slices that are not rebuilt."""
        if self.acquisition.at_target or self.constant:
            return ()
        count, others = self.acquisition.slice_count, [one for one in self.odd.items() if one[0] not in self.missing]
        many = [MANY.format(len(others), count, 1 + others[0][0], others[0][1])] if others else []
        lost = said_of(self.missing, count)
        return (*brightness.doubts(self.array, self.tissue_range, self.head), *many, *lost)

    @cached_property
    def unit(self) -> Self:
        """The slices with their tissue in [-1, 1], as networks see them. Their facts change their unit."""
        tissue, (low, high, ceiling) = self.tissue, self.tissue_range
        array, gain = self.tissue_range.to_unit(tissue.array), 2 / (high - low)
        tissue_range = IntensityRange(-1.0, 1.0, (ceiling - low) * gain - 1)
        if self.constant:  # it has no head
            return self.like(array, tissue_range=tissue_range)
        noise = replace(self.noise, deviation=self.noise.deviation * gain)
        return self.like(array, tissue_range=tissue_range, head=tissue.head, missing=self.missing, noise=noise)

    @cached_property
    def turn(self) -> grid.Turn:
        """The way of their array into the order that is nearest to RAS+."""
        return grid.Turn.of(self.affine)

    @cached_property
    def canonical(self) -> Self:
        """The slices in that order. Their facts turn with them."""
        turn, acquisition = self.turn, self.acquisition.moved(*self.turn)
        affine, last = self.affine[:, [*turn.axes, 3]], acquisition.slice_count - 1
        for axis in turn.flipped:
            affine[:3, 3] += affine[:3, axis] * (self.shape[turn.axes[axis]] - 1)
            affine[:3, axis] *= -1
        array = turn.into(self.array)
        if self.constant:  # it has no head
            return self.like(array, acquisition, affine)
        flipped = acquisition.slice_axis in turn.flipped
        missing = dict(sorted((last - index if flipped else index, what) for index, what in self.missing.items()))
        noise, head = self._turned(self.noise), turn.into(self.head)
        return self.like(
            array, acquisition, affine, tissue_range=self.tissue_range, head=head, missing=missing, noise=noise
        )

    def _turned(self, noise: Noise) -> Noise:
        """Noise of these slices in RAS+ order, or back: the two in-plane axes may stand in the other order there."""
        first, second = (axis for axis in self.turn.axes if axis != self.acquisition.slice_axis)
        return replace(noise, widths=noise.widths[::-1]) if first > second else noise
