"""A measured stack of slices through a network: the one way from thick slices to the rebuilt volume."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from monai.inferers import Inferer
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
from .consistency import projects, reconcile
from .deblocking import deblock
from .families import weigh_families
from .windows import BLOCK, PIXELS_PER_CALL, air_beside, by_windows, in_parts, signal_box

FLIPS = ((), (2,), (3,), (2, 3))  # of planes (B, 1, H, W)


class StackInferer(Inferer, ABC):
    """Rebuilds a stack of thick slices: all that lies between a scan and its result, whatever the method.

    1. The stack is brought into RAS+ order. The result does not depend on how the scan is stored.
    2. The intensities of its tissue become [-1, 1] (`intensity.intensity_range`).
    3. A method makes the fine volume (`fine`).
    4. The result is reconciled with the slices.
    5. Undershoot is cut: no voxel is darker than the range's beginning.
    6. What lies beyond tissue, such as padding and hot spots, is laid on as it was.

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
    def fine(
        self, thick: Tensor, acquisition: Acquisition, spacing: np.ndarray, network: nn.Module, device: torch.device
    ) -> tuple[Tensor, Tensor | None]:
        """The method: thick slices -> the volume on the fine grid.

        Args:
            thick: `(X, Y, Z)` slices in RAS+ order, tissue in [-1, 1], on the CPU.
            acquisition: of the slices, not `at_target`.
            spacing: `(3,)`, edges of the voxels of `thick`, in mm.
            network: on the device, in evaluation mode.
            device: of the network.

        Returns:
            `(X', Y', Z')` in [-1, 1], on the CPU; and of the same shape the spread of what it is the mean of, or None.
        """

    # hosts pass these two alone; MONAI declares *args and **kwargs as well
    @torch.no_grad()
    def __call__(self, inputs: MetaTensor, network: nn.Module) -> MetaTensor:  # type: ignore[override]
        """Rebuilds one stack.

        Args:
            inputs: `(1, 1, X, Y, Z)`, the measured slices in their own units, with their affine and their acquisition
                (`Acquisition.attach`) in the meta data.
            network: on the device of the inputs.

        Returns:
            `(1, 1, X', Y', Z')` on the fine grid with its affine, float32, in the units of the scan, on the CPU;
            `steps`, the number of steps, and `steps_source` are in its meta data, and where the method tells one its
            `spread`, `(X', Y', Z')` in the same units. A stack that is at the target, or constant, comes back without
            steps and spread.

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
        if not stored.at_target:
            axes, flipped = grid.canonical(affine)
            acquisition = stored.moved(axes, flipped)
            steps, source = self.step_count(acquisition), self.steps_source(acquisition)
            measured = result.permute(axes).flip(flipped).contiguous()
            if measured.min() == measured.max():
                steps, source = 0, "none: the scan is constant"
                rebuilt = interpolate(measured, acquisition, "nearest")
            else:
                spacing = grid.voxel_spacing(affine)[list(axes)]
                rebuilt, spread = self._rebuild(measured, acquisition, spacing, network, inputs.device)
            back = [axes.index(a) for a in range(3)]
            result = rebuilt.flip(flipped).permute(back).contiguous()
            spread = None if spread is None else spread.flip(flipped).permute(back).contiguous()
            affine = grid.fine_affine(
                affine, stored.slice_axis, stored.slice_count, stored.fine_count, stored.target_spacing
            )
        meta = {name: value for name, value in inputs.meta.items() if name != "affine"}
        meta |= {"steps": steps, "steps_source": source} | ({} if spread is None else {"spread": spread})
        batched = torch.from_numpy(affine)[None] if inputs.affine.dim() == 3 else torch.from_numpy(affine)
        return MetaTensor(result[None, None], affine=batched, meta=meta)

    def _rebuild(
        self, measured: Tensor, acquisition: Acquisition, spacing: np.ndarray, network: nn.Module, device: torch.device
    ) -> tuple[Tensor, Tensor | None]:
        """`(X, Y, Z)` slices in RAS+ order and the scan's units -> `(X', Y', Z')` and its spread."""
        scale = intensity_range(measured)
        tissue = scale.tissue(measured)
        volume, spread = self.fine(scale.to_unit(tissue), acquisition, spacing, network, device)
        if not torch.isfinite(volume).all():
            raise InputError("the weights give NaN or infinite voxels: they are broken. Set --ckpt_path to others.")
        result = scale.to_scan(volume)
        if self.projects:
            result = reconcile(result, tissue, acquisition)
        result = result.clamp(min=scale.low) + interpolate(measured - tissue, acquisition, "nearest")
        return result, None if spread is None else spread * (scale.high - scale.low) / 2


class PlaneInferer(StackInferer):
    """Sharpens the planes that contain the slice axis, for a network that maps planes `(B, 1, H, W)` to planes.

    The slices are put on the fine grid by nearest neighbour. The network sees the box around the head (`signal_box`)
    by Gaussian-weighted sliding windows; the air outside keeps its input. Planes without air are given some beside them
    (`windows.air_beside`).

    Args:
        roi_size: edge of the square windows, in pixels, a multiple of 8. Along a side that is shorter, windows are as
            long as the side.
        overlap: of neighbouring windows, as a share of `roi_size`; 0.25 of 128 is 32 pixels.
        sw_batch_size: windows per network call; null on a CPU for as many as have 8 x 128 x 128 pixels, and on a GPU
            for what fits in half of its free memory. Calls that run out of a GPU's memory are repeated in halves.
        both_planes: rebuild in the planes along either in-plane axis, and weigh both (`families.weigh_families`).
            Otherwise the planes along the longer in-plane axis are used.
        flips: average over the planes and their three mirror images.
        spread: tell half the distance between the two families, which an error map looks at; it changes no result.
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
        self.spread = spread
        planes = {"both_planes": self.both_planes, "flips": self.flips}
        self.settings |= {**planes, "roi_size": roi_size, "overlap": overlap}

    def planes(
        self,
        volume: Tensor,
        box: tuple[slice, ...],
        thick: Tensor,
        acquisition: Acquisition,
        spacing: np.ndarray,
        network: nn.Module,
        device: torch.device,
    ) -> Callable[[int], Tensor]:
        """What the windows are cut from, on the device: the slices by nearest neighbour.

        Args:
            volume: `(X', Y', Z')`, the slices by nearest neighbour.
            box: around the head, on the fine grid.
            thick, acquisition, spacing, network, device: see `fine`.

        Returns:
            In-plane axis -> the box's planes along it and the slice axis, `(P, 1, H, W)`, the slice axis third.
        """
        head = volume[box].to(device)
        return lambda other: head.movedim((acquisition.slice_axis, other), (1, 2))[:, None]

    def sharpener(
        self, network: nn.Module, acquisition: Acquisition, device: torch.device
    ) -> Callable[[Tensor], Tensor] | None:
        """What is called with the windows of a stack, `(B, 1, H, W)` in [-1, 1]; here the network itself.

        None where the planes are the result already.
        """
        return network

    def mirrored(self, sharpen: Callable[[Tensor, tuple[int, ...]], Tensor], planes: Tensor) -> Tensor:
        """Planes `(B, 1, H, W)` sharpened in the inferer's precision; if `flips`, the mean over their mirror images.

        Args:
            sharpen: is told which dimensions of its planes are flipped.
            planes: on the network's device.
        """
        with torch.autocast(planes.device.type, torch.bfloat16, enabled=self.bfloat16):
            views = [sharpen(planes.flip(f), f).float().flip(f) for f in (FLIPS if self.flips else FLIPS[:1])]
        return torch.stack(views).mean(0) if self.flips else views[0]

    def fine(
        self, thick: Tensor, acquisition: Acquisition, spacing: np.ndarray, network: nn.Module, device: torch.device
    ) -> tuple[Tensor, Tensor | None]:
        """See `StackInferer.fine`."""
        volume = interpolate(thick, acquisition, "nearest")
        spread = torch.zeros(volume.shape) if self.spread and self.both_planes else None
        box = signal_box(volume)
        if volume[box].numel():
            planes = self.planes(volume, box, thick, acquisition, spacing, network, device)
            sharpen = self.sharpener(network, acquisition, device)
            others = longer_first(volume[box].shape, acquisition.slice_axis)[: 1 + self.both_planes]
            families = self._sharpened(volume[box].shape, acquisition.slice_axis, others, planes, sharpen)
            if self.both_planes:
                volume[box] = weigh_families(families, others, spacing[others], acquisition.slice_spacing)
            else:
                (volume[box],) = families
            if spread is not None:
                spread[box] = (families[0] - families[1]).abs() / 2
        return volume, spread

    def _sharpened(
        self,
        shape: tuple[int, ...],
        slice_axis: int,
        others: Sequence[int],
        planes: Callable[[int], Tensor],
        sharpen: Callable[[Tensor], Tensor] | None,
    ) -> list[Tensor]:
        """The box by the planes along each of the axes `others`: `(X, Y, Z)` in [-1, 1], on the CPU."""
        families = []
        count = sum(shape[3 - slice_axis - other] for other in others)
        hidden = None if self.progress else True  # null hides it where there is no terminal
        with tqdm(total=count, desc="planes", leave=False, disable=hidden) as bar:
            for other in others:
                sharp = planes(other)  # (normal, 1, slice axis, other)
                if sharpen is None:
                    bar.update(len(sharp))
                else:
                    sharp = self._windowed(sharp, sharpen, bar)
                families.append(sharp[:, 0].movedim((1, 2), (slice_axis, other)).cpu())
        return families

    def _windowed(self, planes: Tensor, sharpen: Callable[[Tensor], Tensor], bar: tqdm) -> Tensor:
        """`(P, 1, H, W)` in and out."""

        def views(windows: Tensor) -> Tensor:
            return self.mirrored(lambda view, _: sharpen(view), windows)

        margin = air_beside(planes)
        wide = pad_ends(planes, (margin, margin), value=-1.0)
        sharp = by_windows(wide, views, self.roi_size, self.overlap, self.sw_batch_size, bar)
        return sharp.narrow(3, margin, planes.shape[3])


def longer_first(shape: tuple[int, ...], slice_axis: int) -> list[int]:
    """The in-plane axes of a volume `(X, Y, Z)`, the longer one first."""
    return sorted((a for a in range(3) if a != slice_axis), key=lambda a: -shape[a])


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

    def fine(
        self, thick: Tensor, acquisition: Acquisition, spacing: np.ndarray, network: nn.Module, device: torch.device
    ) -> tuple[Tensor, Tensor | None]:
        """See `StackInferer.fine`."""
        volume, spread = super().fine(thick, acquisition, spacing, network, device)
        return deblock(volume, thick, acquisition) if self.deblocked else volume, spread

    def planes(  # type: ignore[override]  # of one network alone
        self,
        volume: Tensor,
        box: tuple[slice, ...],
        thick: Tensor,
        acquisition: Acquisition,
        spacing: np.ndarray,
        network: Drift,
        device: torch.device,
    ) -> Callable[[int], Tensor]:
        """See `PlaneInferer.planes`; those of stage 1 on the measured slices are its estimates of whole planes."""
        if not isinstance(network.apn, SliceProjectionNetwork):
            return super().planes(volume, box, thick, acquisition, spacing, network, device)
        a = acquisition
        stack = thick[tuple(slice(None) if axis == a.slice_axis else part for axis, part in enumerate(box))]
        rows = torch.from_numpy(a.fine_rows[box[a.slice_axis]])[None].to(device, torch.float32)
        mirrored_rows = (a.slice_count - 1 - rows).flip(1)

        def estimates(other: int) -> Tensor:
            lengths = [a.slice_thickness, a.target_spacing, a.slice_spacing, float(spacing[other])]
            told = torch.tensor([lengths], device=device)

            def sharpen(planes: Tensor, flipped: tuple[int, ...]) -> Tensor:
                return network.apn(planes, told, mirrored_rows if 2 in flipped else rows)

            planes = stack.movedim((a.slice_axis, other), (1, 2))[:, None].to(device)
            calls = planes.split(max(1, PIXELS_PER_CALL // (rows.shape[1] * planes.shape[3])))
            return torch.cat([in_parts(partial(self.mirrored, sharpen), part) for part in calls])

        return estimates

    def sharpener(  # type: ignore[override]  # of one network alone
        self, network: Drift, acquisition: Acquisition, device: torch.device
    ) -> Callable[[Tensor], Tensor] | None:
        """`Drift.refine` with what thickness and times say to the norms, after the paper's stage 1."""
        times = euler_times(self.step_count(acquisition)).to(device, torch.float32)
        lengths = torch.tensor([[acquisition.slice_thickness, acquisition.target_spacing]], device=device)
        modulations = network.modulations(lengths, times)
        if isinstance(network.apn, SliceProjectionNetwork):
            return (lambda windows: network.refine(windows, modulations, times)) if len(times) > 1 else None
        apn, modulation = network.apn, network.apn.modulation(lengths)
        # the flow's state is float32: in bfloat16 small steps vanish
        return lambda windows: network.refine(apn.project(windows, modulation).float(), modulations, times)


def rebuild(measured: MetaTensor, network: nn.Module, inferer: Inferer, device: torch.device | str) -> MetaTensor:
    """One scan through the network; every host calls this.

    Args:
        measured: `(1, X, Y, Z)`, what the bundle's preprocessing gives.
        network: on the device.
        inferer: a `StackInferer`.
        device: of the network.

    Returns:
        `(1, X', Y', Z')` on the CPU, see `StackInferer`.

    Raises:
        ValueError, InputError: as the inferer.
    """
    return inferer(measured[None].to(device), network)[0]
