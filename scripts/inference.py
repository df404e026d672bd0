"""A measured stack of slices through the networks: the one way from thick slices to the rebuilt volume."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import torch
from monai.data import MetaTensor
from monai.inferers import Inferer, SlidingWindowInferer
from monai.transforms.utils import generate_spatial_bounding_box
from torch import Tensor
from torch.nn.functional import avg_pool3d
from tqdm.auto import tqdm

from . import grid
from .acquisition import Acquisition
from .consistency import projects, reconcile
from .errors import InputError, flag
from .intensity import intensity_range
from .interpolation import interpolate
from .networks import Drift
from .schedule import N_MAX, ais_steps, euler_times

logger = logging.getLogger("drift")

BLOCK = 8  # voxels; edge of the blocks whose mean tells air from head, and the U-Nets' stride
AIR = -0.9  # of [-1, 1]: a block whose mean is above holds signal
MOST_WINDOWS = 256  # in a call, on a GPU
PIXELS_ON_CPU = 8 * 128**2  # in a call; eight of the paper's windows
FLIPS = ((), (2,), (3,), (2, 3))  # of planes (B, 1, H, W)


def window_size(speed: str) -> int:
    """Edge of the largest windows, in pixels, for each value of the option `speed`; 512 holds whole planes of heads.

    Raises:
        InputError: if there is no such value.
    """
    sizes = {"paper": 128, "fast": 512}  # Sec. S4.5; docs/benchmarks.md
    if speed not in sizes:
        raise InputError(f"speed is {speed!r}: expected {' or '.join(sizes)}. Set --speed.")
    return sizes[speed]


def signal_box(volume: Tensor) -> tuple[slice, ...]:
    """The smallest box with everything that shows signal, and 8 to 16 voxels of air around it.

    Blocks of 8 voxels are judged by their mean, so that noise and single bright voxels in air do not count.

    Args:
        volume: `(X, Y, Z)` in [-1, 1].

    Returns:
        Ranges along the three axes; empty ones if there is no signal.
    """
    edges = [min(BLOCK, n) for n in volume.shape]
    means = avg_pool3d(volume[None], edges, ceil_mode=True)
    first, last = generate_spatial_bounding_box(means, lambda mean: mean > AIR, margin=1, allow_smaller=True)
    return tuple(slice(edge * a, min(edge * b, n)) for edge, a, b, n in zip(edges, first, last, volume.shape))


def in_parts(sharpen: Callable[[Tensor], Tensor], windows: Tensor) -> Tensor:
    """The windows at once or, where a GPU's memory does not hold them, one half after the other.

    Raises:
        InputError: if it does not hold one window.
    """
    try:
        return sharpen(windows)
    except torch.OutOfMemoryError as error:
        count = len(windows)
        if count == 1:
            raise InputError(
                "the GPU's memory does not hold one window: free some, use smaller weights or windows "
                "(--inferer::roi_size 64), or hide it (CUDA_VISIBLE_DEVICES=) to run on the CPU."
            ) from error
    logger.warning(f"the GPU's memory does not hold {count} windows: going on with {count // 2}")
    torch.cuda.empty_cache()
    return torch.cat([in_parts(sharpen, part) for part in windows.split(-(-count // 2))])


class DriftInferer(Inferer):
    """Rebuilds a stack of thick slices (Secs. 3.6, S4.5): all that lies between a scan and its result.

    The stack is brought into RAS+ order, so that the result does not depend on how the scan is stored; its tissue's
    intensities become [-1, 1]; the slices are put on the fine grid by nearest neighbour. The networks then sharpen the
    planes that contain the slice axis, by Gaussian-weighted sliding windows; all windows share one Euler schedule and
    one conditioning, which depend on thickness alone. They see the box around the head (`signal_box`); the air outside
    keeps its input. The result is reconciled with the slices, and where the scan has no negative tissue it has none
    either. What lies beyond tissue (`intensity.IntensityRange`) is laid on last, as it was.

    Args:
        roi_size: edge of the square windows, in pixels. Along a side that is shorter, windows are as long as the side.
        overlap: of neighbouring windows, as a share of `roi_size`; 0.25 of 128 is 32 pixels.
        sw_batch_size: windows per network call; null on a CPU for as many as have 8 x 128 x 128 pixels, and on a GPU
            for what fits in half of its free memory. Calls that run out of a GPU's memory are repeated in halves.
        both_planes: rebuild in the planes along either in-plane axis and average. Otherwise the planes along the
            longer in-plane axis are used.
        flips: average over the planes and their three mirror images, in four times the time.
        steps: Euler steps; null for AIS, 0 for stage 1 alone.
        n_max: most steps of AIS.
        bfloat16: convolutions in bfloat16; weights, sums of windows and the result stay in float32.
        consistency: `"project"` to reconcile the result with the slices; `"measure"` for the networks' own.
        progress: show a progress bar, where there is a terminal.
    """

    def __init__(
        self,
        roi_size: int = 128,
        overlap: float = 0.25,
        sw_batch_size: int | None = None,
        both_planes: bool = False,
        flips: bool = False,
        steps: int | None = None,
        n_max: int = N_MAX,
        bfloat16: bool = False,
        consistency: str = "project",
        progress: bool = False,
    ):
        super().__init__()
        self.roi_size = roi_size
        self.overlap = overlap
        self.sw_batch_size = sw_batch_size
        self.both_planes = flag("both_planes", both_planes)
        self.flips = flag("flips", flips)
        self.steps = steps
        self.n_max = n_max
        self.bfloat16 = flag("bfloat16", bfloat16)
        self.projects = projects(consistency)
        self.progress = progress

    def step_count(self, acquisition: Acquisition) -> int:
        """Euler steps for a stack."""
        if acquisition.at_target or self.steps is not None:
            return self.steps or 0
        return ais_steps(acquisition.slice_thickness, acquisition.target_spacing, self.n_max)

    # hosts pass these two alone; MONAI declares *args and **kwargs as well
    @torch.no_grad()
    def __call__(self, inputs: MetaTensor, network: Drift) -> MetaTensor:  # type: ignore[override]
        """Rebuilds one stack.

        Args:
            inputs: `(1, 1, X, Y, Z)`, the measured slices in their own units, with their affine and their acquisition
                (`Acquisition.attach`) in the meta data.
            network: on the device of the inputs.

        Returns:
            `(1, 1, X', Y', Z')` on the fine grid with its affine, float32, in the units of the scan, on the CPU;
            `steps`, the number of Euler steps, is in its meta data. A stack that is at the target comes back as it is.

        Raises:
            ValueError: if the batch holds more than one stack or no acquisition.
            InputError: if the weights give NaN, or a GPU's memory does not hold one window.
        """
        if inputs.dim() != 5 or inputs.shape[:2] != (1, 1):
            raise ValueError(f"inputs are {tuple(inputs.shape)}: expected one volume, (1, 1, X, Y, Z).")
        stored, steps = Acquisition.of(inputs), 0
        affine = inputs.affine.reshape(4, 4).double().cpu().numpy()
        result = inputs.as_tensor()[0, 0].cpu().float()
        if not stored.at_target:
            axes, flipped = grid.canonical(affine)
            acquisition = stored.moved(axes, flipped)
            steps = self.step_count(acquisition)
            measured = result.permute(axes).flip(flipped).contiguous()
            rebuilt = self._rebuild(measured, acquisition, steps, network, inputs.device)
            result = rebuilt.flip(flipped).permute([axes.index(a) for a in range(3)]).contiguous()
            affine = grid.fine_affine(
                affine, stored.slice_axis, stored.slice_count, stored.fine_count, stored.target_spacing
            )
        meta = {name: value for name, value in inputs.meta.items() if name != "affine"} | {"steps": steps}
        batched = torch.from_numpy(affine)[None] if inputs.affine.dim() == 3 else torch.from_numpy(affine)
        return MetaTensor(result[None, None], affine=batched, meta=meta)

    def _rebuild(
        self, measured: Tensor, acquisition: Acquisition, steps: int, network: Drift, device: torch.device
    ) -> Tensor:
        """`(X, Y, Z)` slices in RAS+ order and the scan's units -> `(X', Y', Z')`."""
        scale = intensity_range(measured)
        tissue = scale.tissue(measured)
        volume = interpolate(scale.to_unit(tissue), acquisition, "nearest")
        box = signal_box(volume)
        if volume[box].numel():
            lengths = (acquisition.slice_thickness, acquisition.target_spacing)
            sharp = self._sharpen(volume[box].to(device), acquisition.slice_axis, lengths, steps, network).cpu()
            if not torch.isfinite(sharp).all():
                raise InputError("the weights give NaN or infinite voxels: they are broken. Set --ckpt_path to others.")
            volume[box] = sharp
        result = scale.to_scan(volume)
        if self.projects:
            result = reconcile(result, tissue, acquisition)
        if scale.low >= 0:
            result = result.clamp(min=0)
        return result + interpolate(measured - tissue, acquisition, "nearest")

    def _sharpen(
        self, head: Tensor, slice_axis: int, thicknesses: tuple[float, float], steps: int, network: Drift
    ) -> Tensor:
        """`(X, Y, Z)` on the fine grid in [-1, 1] through the networks; both families of planes, or one."""
        times = euler_times(steps).to(head)
        modulations = network.modulations(head.new_tensor([thicknesses]), times)
        flips = FLIPS if self.flips else FLIPS[:1]

        def sharpen(windows: Tensor) -> Tensor:
            with torch.autocast(windows.device.type, torch.bfloat16, enabled=self.bfloat16):
                views = [network.integrate(windows.flip(f), *modulations, times).float().flip(f) for f in flips]
            return torch.stack(views).mean(0) if self.flips else views[0]

        others = sorted((a for a in range(3) if a != slice_axis), key=lambda a: -head.shape[a])
        families = others if self.both_planes else others[:1]
        count = sum(head.numel() // (head.shape[slice_axis] * head.shape[other]) for other in families)
        mean = torch.zeros_like(head)
        hidden = None if self.progress else True  # null hides it where there is no terminal
        with tqdm(total=count, desc="planes", leave=False, disable=hidden) as bar:
            for other in families:
                planes = head.movedim((slice_axis, other), (1, 2))[:, None]  # (normal, 1, slice axis, other)
                sharp = self._planes(planes, sharpen, bar)[:, 0].movedim((1, 2), (slice_axis, other))
                mean += sharp / len(families)
        return mean

    def _planes(self, planes: Tensor, sharpen: Callable[[Tensor], Tensor], bar: tqdm) -> Tensor:
        """`(P, 1, H, W)` planes through `sharpen`, window by window."""
        roi = tuple(min(self.roi_size, -(-n // BLOCK) * BLOCK) for n in planes.shape[2:])
        windows_per_call = self.sw_batch_size or self._windows_per_call(planes.new_zeros(1, 1, *roi), sharpen)
        steps = [max(int(edge * (1 - self.overlap)), 1) for edge in roi]  # as MONAI lays them
        windows_per_plane = math.prod(-(-max(n - r, 0) // s) + 1 for n, r, s in zip(planes.shape[2:], roi, steps))
        done = before = bar.n

        def counted(windows: Tensor) -> Tensor:
            nonlocal done
            done += len(windows) / windows_per_plane
            bar.update(int(done + 1e-6) - bar.n)
            return in_parts(sharpen, windows)

        cut_and_blend = SlidingWindowInferer(
            roi, windows_per_call, self.overlap, mode="gaussian", padding_mode="replicate"
        )
        result = cut_and_blend(planes, counted)
        bar.update(before + len(planes) - bar.n)
        return result  # type: ignore[return-value]  # MONAI: or several

    @staticmethod
    def _windows_per_call(window: Tensor, sharpen: Callable[[Tensor], Tensor]) -> int:
        """See `sw_batch_size`."""
        device = window.device
        if device.type != "cuda":
            return max(1, PIXELS_ON_CPU // window.numel())
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        sharpen(window)
        one = torch.cuda.max_memory_allocated(device) - before
        free = torch.cuda.mem_get_info(device)[0]
        return int(min(max(free // 2 // one, 1), MOST_WINDOWS))


def rebuild(measured: MetaTensor, network: Drift, inferer: Inferer, device: torch.device | str) -> MetaTensor:
    """One scan through the networks; every host calls this.

    Args:
        measured: `(1, X, Y, Z)`, what the bundle's preprocessing gives.
        network: on the device.
        inferer: a `DriftInferer`.
        device: of the network.

    Returns:
        `(1, X', Y', Z')` on the CPU, see `DriftInferer`.

    Raises:
        ValueError, InputError: as the inferer.
    """
    return inferer(measured[None].to(device), network)[0]
