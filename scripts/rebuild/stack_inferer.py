"""A measured stack of slices, by any method: the one way from thick slices to the rebuilt volume.

scan -> RAS+, tissue in [-1, 1] -> the method (`StackInferer.fine`) -> reconciled -> deblocked -> scan
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from monai.data import MetaTensor
from monai.inferers import Inferer
from torch import Tensor, nn

from ..errors import InputError, flag
from ..stack import grid
from ..stack.acquisition import Acquisition
from ..stack.interpolation import interpolate
from ..stack.slices import Slices
from .consistency import reconcile
from .deblocking import deblock
from .guide import NetworkGuide
from .progress import part
from .rebuilt import Rebuilt


@dataclass(eq=False)
class StackInferer(Inferer, ABC):
    """Rebuilds a stack of thick slices: all that lies between a scan and its result, whatever the method.

    1. The stack is brought into RAS+ order. The result does not depend on how the scan is stored.
    2. The intensities of its tissue become [-1, 1] (`intensity.intensity_range`).
    3. A method makes the fine volume (`fine`).
    4. The result is reconciled with the slices.
    5. Steps from slice to slice become ramps, which the slices do not see (`deblocking.deblock`).
    6. Undershoot is cut: no voxel is darker than the range's beginning.
    7. Voxels beyond tissue, such as padding and hot spots, are laid on as they were. So are slices that are missing
       (`missing.missing_slices`): their neighbours are rebuilt as if something smooth lay between them.

    Args:
        bfloat16: convolutions in bfloat16; weights, sums of windows and the result stay in float32.
        consistency: `"project"` to reconcile the result with the slices; `"measure"` to leave it as it is. No other
            step depends on it.
        progress: show which part is at work, and how far it is (`progress.part`).

    Attributes:
        settings: all that changes a result but the precision: name -> plain value.
        both_planes: whether two families of planes are rebuilt.
        sharp: whether detail is drawn from what heads look like, where estimates are means.
        deblocked: whether steps become ramps.
    """

    bfloat16: bool = field(default=False, kw_only=True)
    consistency: str = field(default="project", kw_only=True)
    progress: bool = field(default=False, kw_only=True)

    both_planes = False
    sharp = False
    deblocked = False

    def __post_init__(self) -> None:
        self.bfloat16 = flag("bfloat16", self.bfloat16)
        if self.consistency not in ("measure", "project"):
            raise InputError(f"consistency is {self.consistency!r}: expected measure or project. Set one of them.")
        self.settings: dict[str, Any] = {"consistency": self.consistency}

    def steps_for(self, acquisition: Acquisition) -> tuple[int, str]:
        """Steps from one state to the next for a stack, and where their number comes from, for the record.

        A method that computes its result at once has 0.
        """
        return 0, "the method"

    @property
    def draft(self) -> "StackInferer":
        """The method for a result that only leads to another one: itself, or a cheaper form of it."""
        return self

    @property
    def mean(self) -> "StackInferer":
        """The method for a result that guides: itself, or a form of it that draws no detail."""
        return self

    @property
    def one_family(self) -> "StackInferer":
        """The method by the planes of one family; itself where it has no two."""
        return self

    @abstractmethod
    def fine(self, slices: Slices, network: nn.Module, guide: NetworkGuide | None) -> tuple[Tensor, Tensor | None]:
        """The method: thick slices -> the volume on the fine grid.

        Args:
            slices: in RAS+ order, tissue in [-1, 1], not at the target.
            network: on its device, in evaluation mode.
            guide: in the place of the slices; None for none.

        Returns:
            `(X', Y', Z')` in [-1, 1], on the CPU; and of the same shape its spread, or None.
        """

    # hosts pass the first two alone; MONAI declares *args and **kwargs as well
    def __call__(  # type: ignore[override]
        self, inputs: MetaTensor, network: nn.Module, guide: MetaTensor | None = None
    ) -> MetaTensor:
        """Rebuilds one stack.

        Args:
            inputs: `(1, 1, X, Y, Z)` with their acquisition (`Acquisition.attach`).
            guide: `(1, X', Y', Z')`, another contrast on the fine grid (`guide.on_grid`). A method without use for one
                leaves it alone.

        Returns:
            `(1, 1, X', Y', Z')` on the fine grid with its affine and the meta data of the inputs, float32, in the units
            of the scan, on the CPU.
        """
        if inputs.dim() != 5 or inputs.shape[:2] != (1, 1):
            raise ValueError(f"inputs are {tuple(inputs.shape)}: expected one volume, (1, 1, X, Y, Z).")
        volume = self.rebuilt(Slices.of(inputs), network, guide).volume
        affine, meta = volume.affine.expand(inputs.affine.shape), grid.meta_without_affine(volume)
        return MetaTensor(volume.as_tensor()[None, None], affine=affine, meta=meta)

    @torch.no_grad()
    def rebuilt(self, slices: Slices, network: nn.Module, guide: MetaTensor | None = None) -> Rebuilt:
        """Rebuilds one stack. A stack at the target, or a constant one, has no steps and no spread."""
        a, meta = slices.acquisition, dict(slices.meta)  # MONAI adds the affine to it
        if a.at_target:
            volume = MetaTensor(slices.array, affine=slices.affine, meta=meta)
            return Rebuilt(slices, volume, 0, "none: the slices are at the target")
        if slices.constant:
            volume = MetaTensor(interpolate(slices.array, a, "nearest"), affine=slices.fine_affine, meta=meta)
            return Rebuilt(slices, volume, 0, "none: the scan is constant")
        turn, turned, beside = slices.turn, slices.canonical, None
        if guide is not None:
            beside = NetworkGuide.of(turn.into(guide.as_tensor()[0].cpu().float()), turned)
        whole = turned.filled
        fine, spread = self.fine(whole.unit, network, beside)
        if not torch.isfinite(fine).all():
            raise InputError("the weights give NaN or infinite voxels: they are broken. Set --ckpt_path to others.")
        result = turn.back(self._in_units(fine, turned))
        if spread is not None:
            spread = turn.back(spread * whole.tissue_range.extent / 2)
        volume = MetaTensor(result, affine=slices.fine_affine, meta=meta)
        steps, source = self.steps_for(turned.acquisition)
        return Rebuilt(slices, volume, steps, source, spread, sharp=self.sharp and steps > 0)

    def _in_units(self, fine: Tensor, slices: Slices) -> Tensor:
        """A method's volume in the units of the scan, reconciled and deblocked; what is no tissue as it was.

        The slices are in RAS+ order.
        """
        a, whole = slices.acquisition, slices.filled
        tissue_range, tissue = whole.tissue_range, whole.tissue
        result = tissue_range.to_scan(fine)
        if self.consistency == "project":
            with part("reconciling", wanted=self.progress):
                result = reconcile(result, tissue)
        if self.deblocked:
            result = deblock(result, tissue)
        result = result.clamp(min=tissue_range.low) + interpolate(whole.array - tissue.array, a, "nearest")
        if (masked := tissue_range.masked(whole.array)).any():
            result = result.where(interpolate(masked.float(), a, "nearest") < 0.5, 0)
        if slices.missing:
            gone = torch.zeros_like(slices.array).index_fill(a.slice_axis, torch.tensor(list(slices.missing)), 1)
            there = interpolate(gone, a, "nearest") < 0.5
            result = result.where(there, interpolate(slices.array, a, "nearest"))
        return result
