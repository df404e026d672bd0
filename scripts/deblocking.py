"""The trace of the slices in flat tissue: steps from slice to slice become ramps, as decoders of video deblock.

Of texture finer than a slice the mean is measured and the course is not. The estimate of least squared error is then
nearly a plateau for each slice, for any network and the best linear estimator alike (docs/benchmarks.md). List et al.,
IEEE Trans. Circuits Syst. Video Technol. 13:614-619 (2003): smooth across the borders of blocks, but not edges.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from .acquisition import Acquisition
from .interpolation import interpolate
from .metrics import edge_strength, head_mask

ROLL_OFF = 8  # exponent; tissue passes from flat to edge within a factor of 1.5 in the gradient


def deblock(result: Tensor, measured: Tensor, acquisition: Acquisition) -> Tensor:
    """Averages flat tissue along the slice axis over the width of a slice, where a step becomes a ramp; leaves edges.

    What is flat is told by the cubic spline between the slices, which has no steps: half of the average counts at the
    median gradient of the head.

    Args:
        result: `(X, Y, Z)` on the fine grid.
        measured: `(X, Y, Z)`, the slices, in the units of `result`.
        acquisition: of the slices.

    Returns:
        `(X, Y, Z)` on the fine grid; the result itself where the measured scan is constant.
    """
    if measured.max() == measured.min():
        return result
    spline = interpolate(measured.to(result), acquisition, "cubic")
    flat = 1 / (1 + edge_strength(spline, head_mask(spline)) ** ROLL_OFF)
    width = math.ceil(acquisition.slice_spacing / acquisition.target_spacing - 1e-6)  # voxels; no slice has more
    kernel = np.ones(width) if width % 2 else np.pad(np.ones(width - 1), 1, constant_values=0.5)
    mean = ndimage.convolve1d(result.cpu().numpy(), kernel / width, acquisition.slice_axis, mode="nearest")
    return torch.lerp(result, torch.from_numpy(mean).to(result), flat.to(result))
