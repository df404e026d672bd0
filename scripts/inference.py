"""A whole volume through the network: planes that contain the slice axis, sliding windows, averaging."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import torch
from monai.data import MetaTensor
from monai.inferers import Inferer, SlidingWindowInferer
from monai.transforms.utils import generate_spatial_bounding_box
from torch import Tensor
from torch.nn.functional import avg_pool3d

from .errors import InputError, flag
from .networks import Drift
from .schedule import N_MAX, ais_steps, euler_times

logger = logging.getLogger("drift")

BLOCK = 8  # voxels; edge of the blocks whose mean tells air from head, and the U-Nets' stride
AIR = -0.9  # of [-1, 1]: a block whose mean is above holds signal
MOST_WINDOWS = 256  # in a call, on a GPU
PIXELS_ON_CPU = 8 * 128**2  # in a call; eight of the paper's windows


def acquisition(image: MetaTensor) -> tuple[int, float, float, float]:
    """Slice axis; slice spacing, slice thickness and target thickness (mm) from one volume's meta data, batched or not.

    Raises:
        ValueError: if the image does not carry them.
    """
    keys = ("slice_axis", "slice_spacing", "slice_thickness", "target_thickness")
    meta = getattr(image, "meta", {})
    missing = [key for key in keys if key not in meta]
    if missing:
        raise ValueError(f"image meta data lack {missing}: run the bundle's preprocessing, or set them (mm).")
    # collated values are one-element arrays
    axis, spacing, thickness, target = (float(np.ravel(meta[key])[0]) for key in keys)
    return int(axis), spacing, thickness, target


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
    """Rebuilds a re-gridded volume plane by plane with Gaussian-weighted sliding windows (Secs. 3.6, S4.5).

    Every window of a volume shares one Euler schedule, which depends on thickness alone, and one conditioning. The
    network sees the box around the head (`signal_box`). The air outside keeps its input.

    Args:
        roi_size: edge of the square windows, in pixels. Along a side that is shorter, windows are as long as the side.
        overlap: of neighbouring windows, as a share of `roi_size`; 0.25 of 128 is 32 pixels.
        sw_batch_size: windows per network call; null on a CPU for as many as have 8 x 128 x 128 pixels, and on a GPU
            for what fits in half of its free memory. Calls that run out of a GPU's memory are repeated in halves.
        both_planes: rebuild in the planes along either in-plane axis and average. Otherwise the planes along the
            longer in-plane axis are used.
        steps: Euler steps; null for AIS, 0 for stage 1 alone.
        n_max: most steps of AIS.
        bfloat16: convolutions in bfloat16; weights, sums of windows and the result stay in float32.
        progress: show a progress bar.
    """

    def __init__(
        self,
        roi_size: int = 128,
        overlap: float = 0.25,
        sw_batch_size: int | None = None,
        both_planes: bool = False,
        steps: int | None = None,
        n_max: int = N_MAX,
        bfloat16: bool = False,
        progress: bool = False,
    ):
        super().__init__()
        self.roi_size = roi_size
        self.overlap = overlap
        self.sw_batch_size = sw_batch_size
        self.both_planes = flag("both_planes", both_planes)
        self.steps = steps
        self.n_max = n_max
        self.bfloat16 = flag("bfloat16", bfloat16)
        self.progress = progress

    def step_count(self, slice_thickness: float, target_thickness: float) -> int:
        """Euler steps for a scan; thicknesses in mm."""
        return ais_steps(slice_thickness, target_thickness, self.n_max) if self.steps is None else self.steps

    # hosts pass these two alone; MONAI declares *args and **kwargs as well
    @torch.no_grad()
    def __call__(self, inputs: MetaTensor, network: Drift) -> MetaTensor:  # type: ignore[override]
        """Rebuilds one volume.

        Args:
            inputs: `(1, 1, X, Y, Z)` on the fine grid, in [-1, 1], with `slice_axis` and, in mm, `slice_spacing`,
                `slice_thickness` and `target_thickness` in its meta data. A volume whose slices are as thin and as near
                as the target comes back as it is.
            network: on the device of the inputs.

        Returns:
            The volume, same shape and meta data, with `steps`, the number of Euler steps, among them.

        Raises:
            ValueError: if the batch holds more than one volume or the meta data are missing.
            InputError: if a GPU's memory does not hold one window.
        """
        if inputs.dim() != 5 or inputs.shape[:2] != (1, 1):
            raise ValueError(f"inputs are {tuple(inputs.shape)}: expected one volume, (1, 1, X, Y, Z).")
        axis, slice_spacing, slice_thickness, target_thickness = acquisition(inputs)
        if max(slice_spacing, slice_thickness) <= target_thickness:
            return MetaTensor(inputs, meta={**inputs.meta, "steps": 0})
        result = inputs.as_tensor().clone()
        volume = result[0, 0]
        head = volume[signal_box(volume)]
        steps = self.step_count(slice_thickness, target_thickness)
        if head.numel():
            times = euler_times(steps).to(volume)
            modulations = network.modulations(volume.new_tensor([[slice_thickness, target_thickness]]), times)

            def sharpen(windows: Tensor) -> Tensor:
                with torch.autocast(windows.device.type, torch.bfloat16, enabled=self.bfloat16):
                    return network.integrate(windows, *modulations, times).float()

            others = sorted((a for a in range(3) if a != axis), key=lambda a: -volume.shape[a])
            families = others if self.both_planes else others[:1]
            mean = torch.zeros_like(head)
            for other in families:
                planes = head.movedim((axis, other), (1, 2))[:, None]  # (normal, 1, slice axis, other)
                mean += self._rebuild(planes, sharpen)[:, 0].movedim((1, 2), (axis, other)) / len(families)
            head.copy_(mean)
        return MetaTensor(result, meta={**inputs.meta, "steps": steps}, applied_operations=inputs.applied_operations)

    def _rebuild(self, planes: Tensor, sharpen: Callable[[Tensor], Tensor]) -> Tensor:
        """`(P, 1, H, W)` planes through `sharpen`, window by window."""
        roi = tuple(min(self.roi_size, -(-n // BLOCK) * BLOCK) for n in planes.shape[2:])
        windows_per_call = self.sw_batch_size or self._windows_per_call(planes.new_zeros(1, 1, *roi), sharpen)
        cut_and_blend = SlidingWindowInferer(
            roi, windows_per_call, self.overlap, mode="gaussian", padding_mode="replicate", progress=self.progress
        )
        return cut_and_blend(planes, lambda windows: in_parts(sharpen, windows))  # type: ignore[return-value]

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
