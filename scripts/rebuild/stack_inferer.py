"""A measured stack of slices, by any method: the one way from thick slices to the rebuilt volume.

scan -> RAS+, tissue in [-1, 1] -> the method (`StackInferer.fine`) -> reconciled -> scan
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from monai.inferers import Inferer
from torch import Tensor, nn

from ..errors import InputError, flag
from ..stack import grid
from ..stack.acquisition import Acquisition
from ..stack.intensity import intensity_range
from ..stack.interpolation import interpolate
from ..stack.missing import filled, missing_slices
from .consistency import reconcile
from .guide import Guide, fine_affine_of
from .progress import part
from .rebuilt import Rebuilt


@dataclass(frozen=True)
class Slices:
    """The measured slices as a method gets them, in RAS+ order.

    Attributes:
        values: `(X, Y, Z)`, tissue in [-1, 1], on the CPU.
        acquisition: of the slices, not `at_target`.
        spacing: `(3,)`, edges of their voxels, in mm.
        device: of the network.
        guide: in their place; None for none.
    """

    values: Tensor
    acquisition: Acquisition
    spacing: np.ndarray
    device: torch.device
    guide: Guide | None = None

    def planes(self, volume: Tensor, other: int) -> Tensor:
        """The planes of a volume along the slice axis, which is their third, and another axis: `(P, 1, H, W)`."""
        return volume.movedim((self.acquisition.slice_axis, other), (1, 2))[:, None].to(self.device)


class StackInferer(Inferer, ABC):
    """Rebuilds a stack of thick slices: all that lies between a scan and its result, whatever the method.

    1. The stack is brought into RAS+ order. The result does not depend on how the scan is stored.
    2. The intensities of its tissue become [-1, 1] (`intensity.intensity_range`).
    3. A method makes the fine volume (`fine`).
    4. The result is reconciled with the slices.
    5. Undershoot is cut: no voxel is darker than the range's beginning.
    6. Voxels beyond tissue, such as padding and hot spots, are laid on as they were. So are slices that are missing
       (`missing.missing_slices`): their neighbours are rebuilt as if something smooth lay between them.

    Args:
        bfloat16: convolutions in bfloat16; weights, sums of windows and the result stay in float32.
        consistency: `"project"` to reconcile the result with the slices; `"measure"` to leave it as it is. No other
            step depends on it.
        progress: show which part is at work, and how far it is (`progress.part`).

    Attributes:
        settings: what changes a result, but for the precision: name -> plain value.
        both_planes: whether two families of planes are rebuilt.
    """

    both_planes = False

    def __init__(self, bfloat16: bool = False, consistency: str = "project", progress: bool = False):
        super().__init__()
        self.bfloat16 = flag("bfloat16", bfloat16)
        if consistency not in ("measure", "project"):
            raise InputError(f"consistency is {consistency!r}: expected measure or project. Set one of them.")
        self.projects = consistency == "project"
        self.progress = progress
        self.settings: dict[str, Any] = {"consistency": consistency}

    def step_count(self, acquisition: Acquisition) -> int:
        """Steps from one state to the next for a stack; 0 for a method that computes its result at once."""
        return 0

    def steps_source(self, acquisition: Acquisition) -> str:
        """Where the number of steps comes from, for the record."""
        return "the method"

    @abstractmethod
    def fine(self, slices: Slices, network: nn.Module) -> tuple[Tensor, Tensor | None]:
        """The method: thick slices -> the volume on the fine grid.

        Args:
            slices: measured.
            network: on the device, in evaluation mode.

        Returns:
            `(X', Y', Z')` in [-1, 1], on the CPU; and of the same shape the spread of what it is the mean of, or None.
        """

    # hosts pass the first two alone; MONAI declares *args and **kwargs as well
    @torch.no_grad()
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
        volume = self.rebuilt(inputs, network, guide).volume
        affine, meta = volume.affine.expand(inputs.affine.shape), grid.meta_without_affine(volume)
        return MetaTensor(volume.as_tensor()[None, None], affine=affine, meta=meta)

    @torch.no_grad()
    def rebuilt(self, inputs: MetaTensor, network: nn.Module, guide: MetaTensor | None = None) -> Rebuilt:
        """Rebuilds one stack. A stack at the target, or a constant one, has no steps and no spread."""
        if inputs.dim() != 5 or inputs.shape[:2] != (1, 1):
            raise ValueError(f"inputs are {tuple(inputs.shape)}: expected one volume, (1, 1, X, Y, Z).")
        stored = Acquisition.of(inputs)
        steps, source = 0, "none: the slices are at the target"
        affine = inputs.affine.reshape(4, 4).double().cpu().numpy()
        result, spread = inputs.as_tensor()[0, 0].cpu().float(), None
        meta = grid.meta_without_affine(inputs)
        stack = MetaTensor(result, affine=torch.from_numpy(affine), meta=dict(meta))  # MONAI adds the affine to it
        if not stored.at_target:
            turn = grid.Turn.of(affine)
            acquisition = stored.moved(*turn)
            steps, source = self.step_count(acquisition), self.steps_source(acquisition)
            measured = turn.into(result)
            if measured.min() == measured.max():
                steps, source = 0, "none: the scan is constant"
                rebuilt = interpolate(measured, acquisition, "nearest")
            else:
                spacing = grid.voxel_spacing(affine)[list(turn.axes)]
                turned = None
                if guide is not None:
                    turned = Guide.of(turn.into(guide.as_tensor()[0].cpu().float()), acquisition, spacing)
                rebuilt, spread = self._rebuild(measured, acquisition, spacing, network, inputs.device, turned)
            result = turn.back(rebuilt)
            spread = None if spread is None else turn.back(spread)
            affine = fine_affine_of(stack)
        return Rebuilt(stack, MetaTensor(result, affine=torch.from_numpy(affine), meta=meta), steps, source, spread)

    def _rebuild(
        self,
        measured: Tensor,
        acquisition: Acquisition,
        spacing: np.ndarray,
        network: nn.Module,
        device: torch.device,
        guide: Guide | None,
    ) -> tuple[Tensor, Tensor | None]:
        """`(X, Y, Z)` slices in RAS+ order and the scan's units -> `(X', Y', Z')` and its spread."""
        missing = missing_slices(measured, acquisition.slice_axis)
        whole = filled(measured, acquisition.slice_axis, missing)
        scale = intensity_range(whole)
        tissue = scale.tissue(whole)
        volume, spread = self.fine(Slices(scale.to_unit(tissue), acquisition, spacing, device, guide), network)
        if not torch.isfinite(volume).all():
            raise InputError("the weights give NaN or infinite voxels: they are broken. Set --ckpt_path to others.")
        result = scale.to_scan(volume)
        if self.projects:
            with part("reconciling", wanted=self.progress):
                result = reconcile(result, tissue, acquisition)
        result = result.clamp(min=scale.low) + interpolate(whole - tissue, acquisition, "nearest")
        if (masked := scale.masked(whole)).any():
            result = result.where(interpolate(masked.float(), acquisition, "nearest") < 0.5, 0)
        if missing:
            gone = torch.zeros_like(measured).index_fill(acquisition.slice_axis, torch.tensor(list(missing)), 1)
            there = interpolate(gone, acquisition, "nearest") < 0.5
            result = result.where(there, interpolate(measured, acquisition, "nearest"))
        return result, None if spread is None else spread * (scale.high - scale.low) / 2
