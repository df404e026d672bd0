"""Which part of a volume the networks see, in which windows, and how many at once."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import torch
from monai.inferers import SlidingWindowInferer
from monai.transforms.utils import generate_spatial_bounding_box
from torch import Tensor
from torch.nn.functional import avg_pool3d
from tqdm.auto import tqdm

from ..errors import InputError

logger = logging.getLogger("drift")

BLOCK = 8  # voxels; edge of the blocks whose mean tells air from head, and the U-Nets' stride
AIR = -0.9  # of [-1, 1]: a block whose mean is above holds signal
LEAST_AIR = 0.05  # of the voxels; crops without air have up to 4 % as dark, heads in their box a fifth and more
MARGIN = 16  # pixels
MOST_WINDOWS = 256  # in a call, on a GPU
PIXELS_PER_CALL = 8 * 128**2  # eight of the paper's windows; windows on a GPU are as many as fit


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


def air_beside(planes: Tensor) -> int:
    """How many pixels of air planes are given at either end of their in-plane axis: none if they have some already.

    Networks with group norms, such as the paper's, are trained on heads in air. In crops without air their errors
    grow, and a margin of air takes that back. Above and below the slices it would be a false edge.

    Args:
        planes: `(P, 1, H, W)` in [-1, 1], all those of a volume.
    """
    return MARGIN if (planes < AIR).float().mean() < LEAST_AIR else 0


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


def windows_per_call(window: Tensor, sharpen: Callable[[Tensor], Tensor]) -> int:
    """How many windows a call takes: see `inferer.PlaneInferer`, `sw_batch_size`.

    Args:
        window: `(1, 1, H, W)`, one of them.
        sharpen: what is called with them.
    """
    device = window.device
    if device.type != "cuda":
        return max(1, PIXELS_PER_CALL // window.numel())
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    in_parts(sharpen, window)
    one = torch.cuda.max_memory_allocated(device) - before
    free = torch.cuda.mem_get_info(device)[0]
    return int(min(max(free // 2 // one, 1), MOST_WINDOWS))


def by_windows(
    planes: Tensor,
    sharpen: Callable[[Tensor], Tensor],
    roi_size: int,
    overlap: float,
    sw_batch_size: int | None,
    bar: tqdm,
) -> Tensor:
    """Planes through `sharpen`, window by window.

    Args:
        planes: `(P, 1, H, W)`.
        sharpen: windows -> windows, both `(B, 1, H', W')`.
        roi_size, overlap, sw_batch_size: see `inferer.PlaneInferer`.
        bar: counts planes.

    Returns:
        `(P, 1, H, W)`.
    """
    roi = tuple(min(roi_size, -(-n // BLOCK) * BLOCK) for n in planes.shape[2:])
    count = sw_batch_size or windows_per_call(planes.new_zeros(1, 1, *roi), sharpen)
    steps = [max(int(edge * (1 - overlap)), 1) for edge in roi]  # as MONAI lays them
    windows_per_plane = math.prod(-(-max(n - r, 0) // s) + 1 for n, r, s in zip(planes.shape[2:], roi, steps))
    done = before = bar.n

    def counted(windows: Tensor) -> Tensor:
        nonlocal done
        done += len(windows) / windows_per_plane
        bar.update(int(done + 1e-6) - bar.n)
        return in_parts(sharpen, windows)

    cut_and_blend = SlidingWindowInferer(roi, count, overlap, mode="gaussian", padding_mode="replicate")
    result = cut_and_blend(planes, counted)
    bar.update(before + len(planes) - bar.n)
    return result  # type: ignore[return-value]  # MONAI: or several
