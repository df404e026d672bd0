"""DRIFT on a stack of slices, and the methods that sharpen planes as it does.

slices -> stage 1 (planes of each family) -> families weighed -> stage 2 (windows, the flow)

An Euler step goes along the planes of either family in turn, so that a step costs half as much as one for each family.
The paper's networks take both stages plane by plane, and their families are weighed last.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import Any

import torch
from monai.inferers import SlidingWindowInferer
from torch import Tensor, nn
from torch.nn.functional import pad as pad_ends

from ..errors import InputError, flag, is_number, is_whole
from ..method.networks import Drift
from ..method.schedule import N_MAX, N_MIN, ais_steps, euler_times, pad
from ..method.slice_projection import SliceProjectionNetwork, neighbours
from ..stack.acquisition import Acquisition
from ..stack.interpolation import interpolate
from ..stack.slices import Slices
from ..stack.spectra import with_detail
from .device import device_of
from .families import weigh_families
from .guide import NetworkGuide
from .progress import part
from .stack_inferer import StackInferer
from .windows import BLOCK, LEAST_EDGE, PIXELS_PER_CALL, air_margin, in_calls, in_parts, signal_box


@dataclass(eq=False)
class PlaneInferer(StackInferer):
    """Sharpens the planes that contain the slice axis, for a network that maps planes `(B, 1, H, W)` to planes.

    `stage1` puts the slices on the fine grid, `stage2` makes their planes sharp, and `flow` moves the volume that is
    weighed from them. A method overrides any. The box around the head (`windows.signal_box`) alone is rebuilt; the air
    outside keeps its input.

    Args:
        roi_size: edge of the square windows, in pixels, a multiple of 8. Along a side that is shorter, windows are as
            long as the side, and at least 16 pixels.
        overlap: of neighbouring windows, as a share of `roi_size`; 0.25 of 128 is 32 pixels.
        sw_batch_size: windows per network call; null for as many as have 8 x 128 x 128 pixels. Calls that run out of
            a GPU's memory are repeated in halves.
        both_planes: rebuild in the planes along either in-plane axis, and weigh both (`families.weigh_families`).
            Otherwise the planes along the longer in-plane axis are used.
        spread: tell half the distance between the two families before the flow, which an error map looks at; it
            changes no result.
    """

    roi_size: int = 128
    overlap: float = 0.25
    sw_batch_size: int | None = None
    both_planes: bool = False
    spread: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        size, count = self.roi_size, self.sw_batch_size
        if type(size) is not int or size < BLOCK or size % BLOCK:
            raise InputError(f"roi_size is {size!r}: expected a multiple of {BLOCK} pixels. Set inferer::roi_size.")
        if count is not None and not is_whole(count, 1):
            raise InputError(f"sw_batch_size is {count!r}: expected 1 or more, or null. Set inferer::sw_batch_size.")
        if not (is_number(self.overlap) and self.overlap < 1):
            raise InputError(f"overlap is {self.overlap!r}: expected a number from 0 to below 1. Set inferer::overlap.")
        self.both_planes = flag("both_planes", self.both_planes)
        self.settings |= {"both_planes": self.both_planes, "roi_size": size, "overlap": self.overlap}

    @property
    def one_family(self) -> "PlaneInferer":
        """The method by the planes along the longer in-plane axis alone."""
        return replace(self, both_planes=False, spread=False)

    def stage1(
        self,
        slices: Slices,
        box: tuple[slice, ...],
        others: Sequence[int],
        network: nn.Module,
        guide: NetworkGuide | None,
    ) -> list[Tensor]:
        """The planes of each family on the fine grid; here the slices by nearest neighbour.

        Args:
            box: around the head, on the fine grid.
            others: the in-plane axis of each family.

        Returns:
            Planes of the box, `(P, 1, H, W)` in [-1, 1], the slice axis third, on the network's device.
        """
        a, device = slices.acquisition, device_of(network)
        head = interpolate(slices.array, a, "nearest")[box]
        return [planes_of(head, a.slice_axis, other).to(device) for other in others]

    def stage2(self, families: list[Tensor], slices: Slices, network: nn.Module) -> list[Tensor]:
        """The planes of `stage1` made sharp, of the same shapes; here by the network, window by window."""
        return [self.by_windows(planes, network) for planes in families]

    def fine(self, slices: Slices, network: nn.Module, guide: NetworkGuide | None) -> tuple[Tensor, Tensor | None]:
        """`stage1`, `stage2`, the families weighed, and `flow`; in the box around the head."""
        a = slices.acquisition
        volume = interpolate(slices.array, a, "nearest")
        spread = torch.zeros(volume.shape) if self.spread and self.both_planes else None
        box = signal_box(volume)
        if volume[box].numel():
            others = longer_first(volume[box].shape, a.slice_axis)[: 1 + self.both_planes]
            planes = self.stage2(self.stage1(slices, box, others, network, guide), slices, network)
            families = [p[:, 0].movedim((1, 2), (a.slice_axis, other)).cpu() for p, other in zip(planes, others)]
            if self.both_planes:
                volume[box] = weigh_families(families, others, slices.edges[others], a.slice_spacing)
            else:
                (volume[box],) = families
            volume[box] = self.flow(volume[box], others, slices, network)
            if spread is not None:
                spread[box] = (families[0] - families[1]).abs() / 2
        return volume, spread

    def flow(self, head: Tensor, others: Sequence[int], slices: Slices, network: nn.Module) -> Tensor:
        """The steps of a part of the volume, `(X, Y, Z)` in [-1, 1], once its families are weighed; here none."""
        return head

    def by_windows(self, planes: Tensor, sharpen: Callable[[Tensor], Tensor]) -> Tensor:
        """Planes through overlapping windows, which Gaussian weights blend.

        Planes without air are given some beside them (`windows.air_margin`).

        Args:
            planes: `(P, 1, H, W)`.
            sharpen: windows -> windows, both `(B, 1, H', W')`.

        Returns:
            `(P, 1, H, W)`.
        """
        margin = air_margin(planes)
        wide = pad_ends(planes, (margin, margin), value=-1.0)
        roi = [min(self.roi_size, max(LEAST_EDGE, -(-n // BLOCK) * BLOCK)) for n in wide.shape[2:]]
        count = self.sw_batch_size or max(1, PIXELS_PER_CALL // math.prod(roi))
        steps = [max(int(edge * (1 - self.overlap)), 1) for edge in roi]  # as MONAI lays them
        total = len(wide) * math.prod(-(-max(n - r, 0) // s) + 1 for n, r, s in zip(wide.shape[2:], roi, steps))
        with part("windows", total, self.progress) as count_done:

            def views(windows: Tensor) -> Tensor:
                count_done(len(windows))
                with torch.autocast(windows.device.type, torch.bfloat16, enabled=self.bfloat16):
                    return in_parts(sharpen, windows).float()

            cut_and_blend = SlidingWindowInferer(roi, count, self.overlap, mode="gaussian", padding_mode="replicate")
            return cut_and_blend(wide, views).narrow(3, margin, planes.shape[3])  # type: ignore[union-attr]


def planes_of(volume: Tensor, slice_axis: int, other: int) -> Tensor:
    """The planes of a volume along the slice axis, which is their third, and another axis: `(P, 1, H, W)`."""
    return volume.movedim((slice_axis, other), (1, 2))[:, None]


def longer_first(shape: tuple[int, ...], slice_axis: int) -> list[int]:
    """The in-plane axes of a volume `(X, Y, Z)`, the longer one first."""
    return sorted((a for a in range(3) if a != slice_axis), key=shape.__getitem__, reverse=True)


@dataclass(eq=False)
class DriftInferer(PlaneInferer):
    """DRIFT (Secs. 3.6, S4.5): all windows share one Euler schedule and one conditioning, which depend on thickness.

    Args:
        steps: Euler steps; null for AIS, 0 for stage 1 alone.
        n_max: most steps of AIS; 1 for one step at any thickness.
        deblocked: steps from slice to slice in flat tissue become ramps (`deblocking.deblock`), whether or not the
            result was reconciled.
        sharp: the velocity counts `sharp_velocity` times, which leads beyond the mean of the images that fit. Results
            say that their detail is drawn.
        sharp_velocity: a factor, 1 or more; without `sharp` it may be null, and changes nothing.
        sharp_detail: a factor, 1 or more, on the detail of stage 1's estimate that is finer than the slices
            (`spectra.with_detail`). With `sharp` the flow begins there.
    """

    steps: int | None = None
    n_max: int = N_MAX
    deblocked: bool = False
    sharp: bool = False
    sharp_velocity: float | None = None
    sharp_detail: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.deblocked, self.sharp = flag("deblocked", self.deblocked), flag("sharp", self.sharp)
        if self.steps is not None and not is_whole(self.steps, 0):
            raise InputError(f"steps is {self.steps!r}: expected a whole number, or null for AIS. Set inferer::steps.")
        if not is_whole(self.n_max, N_MIN):
            raise InputError(f"n_max is {self.n_max!r}: expected a whole number, {N_MIN} or more. Set inferer::n_max.")
        if self.sharp and self.steps == 0:
            raise InputError(
                "sharp is true, and steps is 0: no step leads anywhere. Leave out --sharp or inferer::steps."
            )
        if not is_number(self.sharp_velocity, 1) and (self.sharp or self.sharp_velocity is not None):
            raise InputError(
                f"sharp_velocity is {self.sharp_velocity!r}: expected a number, 1 or more. Set inferer::sharp_velocity."
            )
        if not is_number(self.sharp_detail, 1):
            raise InputError(
                f"sharp_detail is {self.sharp_detail!r}: expected a number, 1 or more. Set inferer::sharp_detail."
            )
        names = ("steps", "n_max", "deblocked", "sharp", "sharp_velocity", "sharp_detail")
        self.settings |= {name: getattr(self, name) for name in names}

    @property
    def draft(self) -> "DriftInferer":
        """Stage 1 alone, in about half the time: the texture of stage 2 says nothing of places."""
        return replace(self, steps=0, sharp=False)

    @property
    def mean(self) -> "DriftInferer":
        """The method without drawn detail."""
        return replace(self, sharp=False)

    @property
    def factor(self) -> float:
        """The factor on the velocity."""
        return self.sharp_velocity or 1.0 if self.sharp else 1.0

    def steps_for(self, acquisition: Acquisition) -> tuple[int, str]:
        """Euler steps for a stack thicker than its target: of the option, one for every thickness, or AIS."""
        if self.steps is not None:
            return self.steps, "the option inferer::steps"
        if self.n_max == 1:
            return 1, "N_max = 1"
        thickness, target = acquisition.slice_thickness, acquisition.target_spacing
        source = f"AIS, PAD = {pad(thickness, target):.3f}"
        return ais_steps(thickness, target, self.n_max), source

    def stage1(  # type: ignore[override]  # of one network alone
        self,
        slices: Slices,
        box: tuple[slice, ...],
        others: Sequence[int],
        network: Drift,
        guide: NetworkGuide | None,
    ) -> list[Tensor]:
        """Stage 1 on the measured slices, whole planes at once; the paper's sees windows, in `stage2`."""
        if not isinstance(network.apn, SliceProjectionNetwork):
            return super().stage1(slices, box, others, network, guide)
        a, device = slices.acquisition, device_of(network)
        thick = tuple(slice(None) if axis == a.slice_axis else part for axis, part in enumerate(box))
        volumes = [slices.array[thick]]
        if guide is not None and guide.share[box].any():  # it saw this part
            volumes += [guide.fine[box], guide.slices[thick], guide.share[box]]
        rows = torch.from_numpy(a.fine_rows[box[a.slice_axis]])[None].to(device, torch.float32)
        families, total = [], sum(volumes[0].shape[3 - a.slice_axis - other] for other in others)
        with part("planes", total, self.progress) as count_done:
            for other in others:
                facts = slices.lengths(other).to(device), rows
                image, *beside = (planes_of(volume, a.slice_axis, other).to(device) for volume in volumes)
                around = neighbours(len(image), network.apn.planes).to(device)

                def sharpen(places: Tensor, *beside: Tensor, seen: Tensor = image[:, 0], facts: Any = facts) -> Tensor:
                    return network.apn(seen[places], *facts, *beside).to(seen.dtype)

                with torch.autocast(device.type, torch.bfloat16, enabled=self.bfloat16):
                    pixels = rows.shape[1] * image.shape[3]
                    families.append(in_calls(sharpen, pixels, around, *beside, done=count_done))
        return families

    def stage2(  # type: ignore[override]  # of one network alone
        self, families: list[Tensor], slices: Slices, network: Drift
    ) -> list[Tensor]:
        """Both stages of the paper's networks; after stage 1 on the measured slices `flow` takes the steps."""
        if isinstance(network.apn, SliceProjectionNetwork):
            return families
        a, device = slices.acquisition, families[0].device
        times = euler_times(self.steps_for(a)[0]).to(device, torch.float32)
        thickness = slices.lengths((a.slice_axis + 1) % 3)[:, :2].to(device)  # no pixel counts
        faster = {"factor": self.factor} if self.sharp else {}  # a network of one's own takes none
        method = partial(network, thickness=thickness, times=times, **faster)
        return [self.by_windows(planes, method) for planes in families]

    def flow(  # type: ignore[override]  # of one network alone
        self, head: Tensor, others: Sequence[int], slices: Slices, network: Drift
    ) -> Tensor:
        """Euler steps of the weighed volume, each on the planes along one of `others`, in turn."""
        a, device = slices.acquisition, device_of(network)
        times = euler_times(self.steps_for(a)[0]).to(device, torch.float32)
        if not isinstance(network.apn, SliceProjectionNetwork) or len(times) == 1:
            return head
        if self.sharp:
            head = with_detail(head, a.slice_axis, a.target_spacing, a.slice_thickness, self.sharp_detail)
        modulations = network.modulations(slices.lengths(others[0]).to(device), times)  # no pixel counts
        for n, other in zip(range(len(times) - 1), cycle(others)):
            step = partial(
                network.refine, modulations=modulations[n : n + 1], times=times[n : n + 2], factor=self.factor
            )
            planes = self.by_windows(planes_of(head, a.slice_axis, other).to(device), step)
            head = planes[:, 0].movedim((1, 2), (a.slice_axis, other)).cpu()
        return head
