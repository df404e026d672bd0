"""The trace of the slices in flat tissue: steps from slice to slice become ramps, as decoders of video deblock.

Of texture finer than a slice the mean is measured and the course is not. The estimate of least squared error is then
nearly a plateau for each slice, for networks as for the best linear estimator (docs/benchmarks.md). As in List et al.,
IEEE Trans. Circuits Syst. Video Technol. 13:614-619 (2003), what smooths the borders spares edges and is bounded.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from ..stack.acquisition import Acquisition
from ..stack.interpolation import interpolate
from ..stack.tissue import edge_strength, head_mask
from .consistency import noise_sd

FLATTEST = 1.25  # times the head's median gradient; where half of the change is made
ROLL_OFF = 8  # exponent; tissue passes from flat to edge within a factor of 1.5 in the gradient
LARGEST = 3.5  # standard deviations of the slices' noise; a larger difference is anatomy


def deblock(result: Tensor, measured: Tensor, acquisition: Acquisition) -> Tensor:
    """Averages flat tissue along the slice axis over the width of a slice, where a step becomes a ramp; leaves edges.

    What is flat is told by the cubic spline between the slices, which has no steps. No voxel changes by more than
    noise in the slices explains: a scan without noise is left alone.

    Args:
        result: `(X, Y, Z)` on the fine grid.
        measured: `(X, Y, Z)`, the slices, in the units of `result`.
        acquisition: of the slices.

    Returns:
        `(X, Y, Z)` on the fine grid; the result itself where the measured scan is constant.
    """
    if measured.max() == measured.min():
        return result
    positive = measured.to(result) - measured.min()
    spline = interpolate(positive, acquisition, "cubic")
    flat = 1 / (1 + (edge_strength(spline, head_mask(spline)) / FLATTEST) ** ROLL_OFF)
    width = math.ceil(acquisition.slice_spacing / acquisition.target_spacing - 1e-6)  # voxels; no slice has more
    kernel = np.ones(width) if width % 2 else np.pad(np.ones(width - 1), 1, constant_values=0.5)
    mean = ndimage.convolve1d(result.cpu().numpy(), kernel / width, acquisition.slice_axis, mode="nearest")
    bound = LARGEST * noise_sd(positive, acquisition.slice_axis)
    change = (torch.from_numpy(mean).to(result) - result).clamp(-bound, bound)
    return result + flat.to(result) * change
