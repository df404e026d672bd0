"""A measured stack of slices through a network: the one way from thick slices to the rebuilt volume.

scan -> RAS+, [-1, 1] -> stage 1 (planes of each family on the fine grid) -> stage 2 (windows, the flow)
     -> families weighed -> deblocked -> reconciled -> scan
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from monai.inferers import Inferer, SlidingWindowInferer
from torch import Tensor, nn
from torch.nn.functional import pad as pad_ends
from tqdm.auto import tqdm

from ..errors import InputError, flag
from ..method.networks import Drift
from ..method.schedule import N_MAX, ais_steps, euler_times, pad
from ..method.slice_projection import SliceProjectionNetwork
from ..stack import grid
from ..stack.acquisition import Acquisition
from ..stack.intensity import intensity_range
from ..stack.interpolation import interpolate
from ..stack.missing import filled, missing_slices
from .consistency import projects, reconcile
from .deblocking import deblock
from .families import weigh_families
from .guide import Guide
from .rebuilt import Rebuilt
from .windows import BLOCK, PIXELS_PER_CALL, air_beside, in_calls, in_parts, signal_box

FLIPS = ((), (2,), (3,), (2, 3))  # of planes (B, 1, H, W)


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
    6. What lies beyond tissue, such as padding and hot spots, is laid on as it was. So are slices that are missing
       (`missing.missing_slices`): their neighbours are rebuilt as if something smooth lay between them.

    Args:
        bfloat16: convolutions in bfloat16; weights, sums of windows and the result stay in float32.
        consistency: `"project"` to reconcile the result with the slices; `"measure"` to leave it as it is. No other
            step depends on it.
        progress: show a progress bar, where there is a terminal.

    Attributes:
        settings: what changes a result, but for the precision: name -> plain value.
        both_planes: whether two families of planes are rebuilt.
    """

    both_planes = False

    def __init__(self, bfloat16: bool = False, consistency: str = "project", progress: bool = False):
        super().__init__()
        self.bfloat16 = flag("bfloat16", bfloat16)
        self.projects = projects(consistency)
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
            inputs: `(1, 1, X, Y, Z)`, the measured slices in their own units, with their affine and their acquisition
                (`Acquisition.attach`) in the meta data.
            network: on the device of the inputs.
            guide: `(1, X', Y', Z')`, another contrast on the fine grid (`guide.beside`). A method without use for one
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
        """Rebuilds one stack, and tells what is known of it.

        Returns:
            The rebuilt scan. One that is at the target, or constant, has no steps and no spread.

        Raises:
            ValueError: if the batch holds more than one stack or no acquisition.
            InputError: if the weights give NaN, or a GPU's memory does not hold one window.
        """
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
                beside = None
                if guide is not None:
                    beside = Guide.of(turn.into(guide.as_tensor()[0].cpu().float()), acquisition, spacing)
                rebuilt, spread = self._rebuild(measured, acquisition, spacing, network, inputs.device, beside)
            result = turn.back(rebuilt)
            spread = None if spread is None else turn.back(spread)
            affine = grid.fine_affine(
                affine, stored.slice_axis, stored.slice_count, stored.fine_count, stored.target_spacing
            )
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
            result = reconcile(result, tissue, acquisition)
        result = result.clamp(min=scale.low) + interpolate(whole - tissue, acquisition, "nearest")
        if (masked := scale.masked(whole)).any():
            result = result.where(interpolate(masked.float(), acquisition, "nearest") < 0.5, 0)
        if missing:
            gone = torch.zeros_like(measured).index_fill(acquisition.slice_axis, torch.tensor(list(missing)), 1)
            seen = interpolate(gone, acquisition, "nearest") < 0.5
            result = result.where(seen, interpolate(measured, acquisition, "nearest"))
        return result, None if spread is None else spread * (scale.high - scale.low) / 2


class PlaneInferer(StackInferer):
    """Sharpens the planes that contain the slice axis, for a network that maps planes `(B, 1, H, W)` to planes.

    `stage1` puts the slices on the fine grid, `stage2` makes their planes sharp. A method overrides either. The box
    around the head (`windows.signal_box`) alone is rebuilt; the air outside keeps its input.

    Args:
        roi_size: edge of the square windows, in pixels, a multiple of 8. Along a side that is shorter, windows are as
            long as the side.
        overlap: of neighbouring windows, as a share of `roi_size`; 0.25 of 128 is 32 pixels.
        sw_batch_size: windows per network call; null for as many as have 8 x 128 x 128 pixels. Calls that run out of
            a GPU's memory are repeated in halves.
        both_planes: rebuild in the planes along either in-plane axis, and weigh both (`families.weigh_families`).
            Otherwise the planes along the longer in-plane axis are used.
        flips: average over the planes and their three mirror images.
        spread: tell half the distance between the two families, which an error map looks at; it changes no result.
        bfloat16, consistency, progress: see `StackInferer`.
    """

    deblocked = False

    def __init__(
        self,
        roi_size: int = 128,
        overlap: float = 0.25,
        sw_batch_size: int | None = None,
        both_planes: bool = False,
        flips: bool = False,
        spread: bool = False,
        bfloat16: bool = False,
        consistency: str = "project",
        progress: bool = False,
    ):
        super().__init__(bfloat16, consistency, progress)
        if roi_size < BLOCK or roi_size % BLOCK:
            raise InputError(f"roi_size is {roi_size}: expected a multiple of {BLOCK} pixels. Set --inferer::roi_size.")
        if sw_batch_size is not None and sw_batch_size < 1:
            raise InputError(f"sw_batch_size is {sw_batch_size}: expected 1 or more. Set --inferer::sw_batch_size.")
        self.roi_size = roi_size
        self.overlap = overlap
        self.sw_batch_size = sw_batch_size
        self.both_planes = flag("both_planes", both_planes)
        self.flips = flag("flips", flips)
        self.mirrors = FLIPS if self.flips else FLIPS[:1]
        self.spread = spread
        planes = {"both_planes": self.both_planes, "flips": self.flips}
        self.settings |= {**planes, "roi_size": roi_size, "overlap": overlap}

    def stage1(self, slices: Slices, box: tuple[slice, ...], others: Sequence[int], network: nn.Module) -> list[Tensor]:
        """The planes of each family on the fine grid; here the slices by nearest neighbour.

        Args:
            slices: all that were measured.
            box: around the head, on the fine grid.
            others: the in-plane axis of each family.
            network: see `fine`.

        Returns:
            Planes of the box, `(P, 1, H, W)` in [-1, 1], the slice axis third, on the network's device.
        """
        head = interpolate(slices.values, slices.acquisition, "nearest")[box]
        return [slices.planes(head, other) for other in others]

    def stage2(self, families: list[Tensor], acquisition: Acquisition, network: nn.Module) -> list[Tensor]:
        """The planes of `stage1` made sharp, of the same shapes; here by the network, window by window."""
        return [self.by_windows(planes, network) for planes in families]

    def fine(self, slices: Slices, network: nn.Module) -> tuple[Tensor, Tensor | None]:
        """See `StackInferer.fine`."""
        a = slices.acquisition
        volume = interpolate(slices.values, a, "nearest")
        spread = torch.zeros(volume.shape) if self.spread and self.both_planes else None
        box = signal_box(volume)
        if volume[box].numel():
            others = longer_first(volume[box].shape, a.slice_axis)[: 1 + self.both_planes]
            planes = self.stage2(self.stage1(slices, box, others, network), a, network)
            families = [p[:, 0].movedim((1, 2), (a.slice_axis, other)).cpu() for p, other in zip(planes, others)]
            if self.both_planes:
                volume[box] = weigh_families(families, others, slices.spacing[others], a.slice_spacing)
            else:
                (volume[box],) = families
            if spread is not None:
                spread[box] = (families[0] - families[1]).abs() / 2
        return deblock(volume, slices.values, a) if self.deblocked else volume, spread

    def by_windows(self, planes: Tensor, sharpen: Callable[[Tensor], Tensor]) -> Tensor:
        """Planes through overlapping windows, which Gaussian weights blend.

        Planes without air are given some beside them (`windows.air_beside`). A window is the mean over its mirror
        images, if `flips`.

        Args:
            planes: `(P, 1, H, W)`.
            sharpen: windows -> windows, both `(B, 1, H', W')`.

        Returns:
            `(P, 1, H, W)`.
        """
        margin = air_beside(planes)
        wide = pad_ends(planes, (margin, margin), value=-1.0)
        roi = [min(self.roi_size, -(-n // BLOCK) * BLOCK) for n in wide.shape[2:]]
        count = self.sw_batch_size or max(1, PIXELS_PER_CALL // math.prod(roi))
        steps = [max(int(edge * (1 - self.overlap)), 1) for edge in roi]  # as MONAI lays them
        total = len(wide) * math.prod(-(-max(n - r, 0) // s) + 1 for n, r, s in zip(wide.shape[2:], roi, steps))
        hidden = None if self.progress else True  # null hides it where there is no terminal
        with tqdm(total=total, desc="windows", leave=False, disable=hidden) as bar:

            def views(windows: Tensor) -> Tensor:
                bar.update(len(windows))
                with torch.autocast(windows.device.type, torch.bfloat16, enabled=self.bfloat16):
                    return mean([in_parts(sharpen, windows.flip(f)).float().flip(f) for f in self.mirrors])

            cut_and_blend = SlidingWindowInferer(roi, count, self.overlap, mode="gaussian", padding_mode="replicate")
            return cut_and_blend(wide, views).narrow(3, margin, planes.shape[3])  # type: ignore[union-attr]


def longer_first(shape: tuple[int, ...], slice_axis: int) -> list[int]:
    """The in-plane axes of a volume `(X, Y, Z)`, the longer one first."""
    return sorted((a for a in range(3) if a != slice_axis), key=lambda a: -shape[a])


def mean(views: Sequence[Tensor]) -> Tensor:
    """Mean over images of one shape; an only one is not copied."""
    return torch.stack(list(views)).mean(0) if len(views) > 1 else views[0]


class DriftInferer(PlaneInferer):
    """DRIFT (Secs. 3.6, S4.5): all windows share one Euler schedule and one conditioning, which depend on thickness.

    Args:
        roi_size, overlap, sw_batch_size, both_planes, flips, spread: see `PlaneInferer`.
        steps: Euler steps; null for AIS, 0 for stage 1 alone.
        n_max: most steps of AIS; 1 for one step at any thickness, as distilled weights have it.
        deblocked: steps from slice to slice in flat tissue become ramps (`deblocking.deblock`), whether or not the
            result is then reconciled.
        bfloat16, consistency, progress: see `StackInferer`.
    """

    def __init__(
        self,
        roi_size: int = 128,
        overlap: float = 0.25,
        sw_batch_size: int | None = None,
        both_planes: bool = False,
        flips: bool = False,
        spread: bool = False,
        steps: int | None = None,
        n_max: int = N_MAX,
        deblocked: bool = False,
        bfloat16: bool = False,
        consistency: str = "project",
        progress: bool = False,
    ):
        super().__init__(roi_size, overlap, sw_batch_size, both_planes, flips, spread, bfloat16, consistency, progress)
        self.steps = steps
        self.n_max = n_max
        self.deblocked = flag("deblocked", deblocked)
        self.settings |= {"steps": steps, "n_max": n_max, "deblocked": self.deblocked}

    def step_count(self, acquisition: Acquisition) -> int:
        """Euler steps for a stack."""
        if acquisition.at_target or self.steps is not None:
            return self.steps or 0
        if self.n_max == 1:  # the flow in one step, which serves every thickness
            return 1
        return ais_steps(acquisition.slice_thickness, acquisition.target_spacing, self.n_max)

    def steps_source(self, acquisition: Acquisition) -> str:
        """See `StackInferer.steps_source`."""
        if self.steps is not None:
            return "the option inferer::steps"
        if self.n_max == 1:
            return "N_max = 1"
        return f"AIS, PAD = {pad(acquisition.slice_thickness, acquisition.target_spacing):.3f}"

    def stage1(  # type: ignore[override]  # of one network alone
        self, slices: Slices, box: tuple[slice, ...], others: Sequence[int], network: Drift
    ) -> list[Tensor]:
        """Stage 1 on the measured slices, whole planes at once; the paper's sees windows, in `stage2`."""
        if not isinstance(network.apn, SliceProjectionNetwork):
            return super().stage1(slices, box, others, network)
        a, device = slices.acquisition, slices.device
        thick = tuple(slice(None) if axis == a.slice_axis else part for axis, part in enumerate(box))
        volumes, guide = [slices.values[thick]], slices.guide
        if guide is not None and guide.share[box].any():  # it saw this part
            volumes += [guide.fine[box], guide.slices[thick], guide.share[box]]
        rows = torch.from_numpy(a.fine_rows[box[a.slice_axis]])[None].to(device, torch.float32)
        mirrored = (a.slice_count - 1 - rows).flip(1)
        families = []
        for other in others:
            lengths = [a.slice_thickness, a.target_spacing, a.slice_spacing, float(slices.spacing[other])]
            planes, views = [slices.planes(volume, other) for volume in volumes], []
            pixels = rows.shape[1] * planes[0].shape[3]
            for f in self.mirrors:
                told = {"thickness": torch.tensor([lengths], device=device), "rows": mirrored if 2 in f else rows}

                def sharpen(image: Tensor, *beside: Tensor, told: dict = told) -> Tensor:
                    return network(image, **told, **dict(zip(("guide", "guide_slices", "guide_share"), beside)))

                with torch.autocast(device.type, torch.bfloat16, enabled=self.bfloat16):
                    sharp = in_calls(sharpen, pixels, *(p.flip(f) for p in planes))
                views.append(sharp.flip(f))
            families.append(mean(views))
        return families

    def stage2(  # type: ignore[override]  # of one network alone
        self, families: list[Tensor], acquisition: Acquisition, network: Drift
    ) -> list[Tensor]:
        """Both stages of the paper's network; after stage 1 on the measured slices `Drift.refine`."""
        device = families[0].device
        times = euler_times(self.step_count(acquisition)).to(device, torch.float32)
        lengths = torch.tensor([[acquisition.slice_thickness, acquisition.target_spacing]], device=device)
        sharpen = partial(network, thickness=lengths, times=times)
        if isinstance(network.apn, SliceProjectionNetwork):
            if len(times) == 1:
                return families
            sharpen = partial(network.refine, modulations=network.modulations(lengths, times), times=times)
        return [self.by_windows(planes, sharpen) for planes in families]
