"""The stacks of one head that become one volume, and the part of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from monai.data import MetaTensor
from torch import Tensor

from ..stack.grid import meta_without_affine
from ..stack.intensity import IntensityRange
from ..stack.interpolation import interpolate
from ..stack.slices import Slices
from ..stack.tissue import head_mask
from .gain import ONE_CONTRAST
from .registration import ALIKE


@dataclass(frozen=True)
class Stack:
    """A stack among others.

    Attributes:
        measured: its slices.
        rebuilt: `(X', Y', Z')` on its fine grid.
        missing: of its slices, filled in both.
    """

    measured: Slices
    rebuilt: MetaTensor
    missing: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, measured: Slices, rebuilt: MetaTensor) -> "Stack":
        """A stack with its missing slices filled, so that it can be registered; `known` says where nothing counts."""
        if not measured.missing:
            return cls(measured, rebuilt)
        stack, whole = cls(measured.filled, rebuilt, measured.missing), measured.filled
        volume = rebuilt.as_tensor().where(stack.known > 0, interpolate(whole.array, whole.acquisition, "linear"))
        return replace(stack, rebuilt=MetaTensor(volume, affine=rebuilt.affine, meta=meta_without_affine(rebuilt)))

    @classmethod
    def splined(cls, measured: Slices) -> "Stack":
        """A stack with the cubic spline of its slices in the place of a rebuilt volume."""
        whole = measured.filled
        volume = interpolate(whole.array, whole.acquisition, "cubic").clamp(min=whole.tissue_range.low)
        return cls(whole, MetaTensor(volume, affine=measured.fine_affine), measured.missing)

    @property
    def known(self) -> Tensor:
        """`(X', Y', Z')`, 0 in the place of missing slices, 1 elsewhere."""
        acquisition, slices = self.measured.acquisition, torch.ones_like(self.measured.array)
        slices = slices.index_fill(acquisition.slice_axis, torch.tensor(list(self.missing), dtype=torch.long), 0)
        return (interpolate(slices, acquisition, "nearest") > 0.5).float()

    @cached_property
    def head(self) -> Tensor:
        """`(X', Y', Z')`, where the rebuilt volume shows it; bool."""
        return head_mask(self.rebuilt.as_tensor())

    @property
    def floor(self) -> float:
        """Intensity of no signal, in the slices and in their result."""
        return self.measured.tissue_range.low

    @cached_property
    def tissue(self) -> "Stack":
        """The stack with tissue alone (`IntensityRange.tissue`): a bright spot is no head, and moves none."""
        slices, tissue_range = self.measured, self.measured.tissue_range
        facts = {name: getattr(slices, name) for name in ("tissue_range", "head", "missing", "noise")}
        rebuilt = MetaTensor(tissue_range.tissue(self.rebuilt.as_tensor()), affine=self.rebuilt.affine)
        return Stack(slices.like(slices.tissue.array, **facts), rebuilt, self.missing)

    @cached_property
    def above_floor(self) -> "Stack":
        """The stack with its floor at 0. A gain multiplies intensities above a floor."""
        if not self.floor:
            return self
        slices, (low, high, ceiling) = self.measured, self.measured.tissue_range
        tissue_range = IntensityRange(0.0, high - low, ceiling - low)
        level = slices.like(
            slices.above_floor, tissue_range=tissue_range, head=slices.head, missing=slices.missing, noise=slices.noise
        )
        return Stack(level, self.rebuilt - self.floor, self.missing)  # type: ignore[arg-type]  # torch: Tensor


class Dispute(NamedTuple):
    """A place that a stack shows otherwise than the others do, such as a lesion that it alone shows.

    Attributes:
        place: its middle in the world of the result, RAS+, in mm.
        volume: in mm^3.
        difference: of the stack from the others at its most, as a share of the head's intensity.
    """

    place: tuple[float, float, float]
    volume: float
    difference: float


@dataclass(frozen=True)
class Part:
    """The part that a stack took.

    Attributes:
        motion: `(4, 4)`, from the reference's world to the stack's, in mm.
        likeness: of `registration.likeness` to the reference; 1 for the reference itself.
        relation: of their intensities, see `gain.relation`; 1 for the reference itself, 0 where heads are not alike.
        gain: `(X', Y', Z')` on the grid of the result: the reference's units per unit of the stack.
        seen: `(X', Y', Z')`, 1 within the stack's field of view and 0 beyond.
        share: of the result that is the stack's, 0 to 1; 0 where the stack is left apart.
        placed: `(X'', Y'', Z'')`, the result on the stack's fine grid, in its units; None where it is left apart.
        moved_slices: indices of measured slices that disagree with the others.
        spoils: how far the result would be from the reference's slices with the stack, as a share of their signal,
            where it is left apart for that; else 0.
        disputes: places that the stack shows otherwise than the others do.
    """

    motion: np.ndarray
    likeness: float
    relation: float
    gain: Tensor
    seen: Tensor
    share: float = 0.0
    placed: MetaTensor | None = None
    moved_slices: tuple[int, ...] = ()
    spoils: float = 0.0
    disputes: tuple[Dispute, ...] = ()

    @property
    def belongs(self) -> bool:
        """Whether the stack shows the head of the reference in its contrast."""
        return self.likeness >= ALIKE and self.relation >= ONE_CONTRAST
