"""Which part of a volume the networks see, in which windows, and how many at once."""

from collections.abc import Callable

import torch
from monai.transforms.utils import generate_spatial_bounding_box
from torch import Tensor
from torch.nn.functional import avg_pool3d

from ..errors import InputError, logger

BLOCK = 8  # voxels; edge of the blocks whose mean tells air from head, and the U-Nets' stride
AIR = -0.9  # of [-1, 1]: a block whose mean is above holds signal
LEAST_AIR = 0.05  # of the voxels; crops without air have up to 4 % as dark, heads in their box a fifth and more
MARGIN = 16  # pixels
LEAST_EDGE = 16  # pixels of a window: bfloat16 convolutions from 2 pixels to 1 give NaN at times (torch 2.13)
PIXELS_PER_CALL = 8 * 128**2  # eight of the paper's windows


def signal_box(volume: Tensor) -> tuple[slice, ...]:
    """The smallest box with everything that shows signal, and 8 to 16 voxels of air around it.

    Blocks of 8 voxels are judged by their mean, so that noise and single bright voxels in air do not count. The volume
    is in [-1, 1]. Without signal the ranges along the three axes are empty.
    """
    edges = [min(BLOCK, n) for n in volume.shape]
    means = avg_pool3d(volume[None], edges, ceil_mode=True)
    first, last = generate_spatial_bounding_box(means, lambda mean: mean > AIR, margin=1, allow_smaller=True)
    return tuple(slice(edge * a, min(edge * b, n)) for edge, a, b, n in zip(edges, first, last, volume.shape))


def air_margin(planes: Tensor) -> int:
    """How many pixels of air planes are given at either end of their in-plane axis: none if they have some already.

    Networks with group norms, such as the paper's, are trained on heads in air. In crops without air their errors
    grow, and a margin of air takes that back. Above and below the slices it would be a false edge.

    `planes`, `(P, 1, H, W)` in [-1, 1], are all planes of one volume.
    """
    return MARGIN if (planes < AIR).float().mean() < LEAST_AIR else 0


def in_parts(sharpen: Callable[..., Tensor], *windows: Tensor) -> Tensor:
    """The windows at once or, where a GPU's memory does not hold them, one half after the other.

    Args:
        sharpen: takes one batch of each of `windows`.
        windows: of one batch size.
    """
    try:
        return sharpen(*windows)
    except torch.OutOfMemoryError as error:
        count = len(windows[0])
        if count == 1:
            raise InputError(
                "the GPU's memory does not hold one plane or window: free some, or hide the GPU "
                "(CUDA_VISIBLE_DEVICES=) to run on the CPU."
            ) from error
    logger.warning(f"the GPU's memory does not hold {count} windows: going on with {count // 2}")
    torch.cuda.empty_cache()
    halves = zip(*(part.split(-(-count // 2)) for part in windows))
    return torch.cat([in_parts(sharpen, *half) for half in halves])


def in_calls(
    sharpen: Callable[..., Tensor], pixels: int, *planes: Tensor, done: Callable[[int], object] = lambda count: None
) -> Tensor:
    """Planes `(P, ...)` of so many pixels each through a network, as many at once as `PIXELS_PER_CALL` says.

    `done` hears how many more came out.
    """
    result = []
    for call in zip(*(part.split(max(1, PIXELS_PER_CALL // pixels)) for part in planes)):
        result.append(in_parts(sharpen, *call))
        done(len(call[0]))
    return torch.cat(result)
