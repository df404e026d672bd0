"""Deblocking: in flat tissue, steps from slice to slice become ramps.

Slices measure the mean of a texture finer than they are, not its course. The estimate of least squared error is then
nearly a plateau for each slice. That holds for networks and for the best linear estimator (docs/benchmarks.md).

Decoders of video meet the same steps between blocks. As in List et al., IEEE Trans. Circuits Syst. Video Technol.
13:614-619 (2003), the filter smooths borders, spares edges, and changes no voxel by more than a bound.
"""

import math

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from ..stack.interpolation import interpolate
from ..stack.slices import Slices
from ..stack.tissue import edge_strength
from ..stack.trace import step_ratio

FLATTEST = 1.25  # times the head's median gradient; half of the change is made there
ROLL_OFF = 8  # exponent; from flat to edge is a factor of 1.5 in the gradient
LARGEST = 3.5  # standard deviations of the slices' noise; a larger difference is anatomy


def deblock(result: Tensor, slices: Slices) -> Tensor:
    """Averages flat tissue along the slice axis over the width of a slice. Steps become ramps; edges stay.

    The cubic spline between the slices has no steps. Its gradient says which tissue is flat. No voxel changes by more
    than the noise of the slices explains, so a scan without noise is left alone. So is a result that averaging would
    not rid of steps: where there are none, texture is averaged more within slices than across their borders.

    Args:
        result: `(X, Y, Z)` on the fine grid.
        slices: in the units of `result`.

    Returns:
        `(X, Y, Z)` on the fine grid, of a lower step ratio (`trace.step_ratio`), or the result itself where
        that lowers no step ratio or the scan is constant.
    """
    if slices.constant:
        return result
    acquisition = slices.acquisition
    # The slices give the head: the spline's undershoot beside a mask would pass for its floor
    head = interpolate(slices.head.to(result), acquisition, "nearest") > 0.5
    strength = edge_strength(interpolate(slices.above_floor.to(result), acquisition, "cubic"), head)
    flat = 1 / (1 + (strength / FLATTEST) ** ROLL_OFF)
    width = math.ceil(acquisition.slice_spacing / acquisition.target_spacing - 1e-6)  # voxels; no slice has more
    kernel = np.ones(width) if width % 2 else np.pad(np.ones(width - 1), 1, constant_values=0.5)
    mean = ndimage.convolve1d(result.cpu().numpy(), kernel / width, acquisition.slice_axis, mode="nearest")
    bound = LARGEST * slices.noise.deviation
    ramped = result + flat.to(result) * (torch.from_numpy(mean).to(result) - result).clamp(-bound, bound)
    tissue = (head & (strength <= 1)).to(result.device)
    before, after = (step_ratio(volume, acquisition, tissue) for volume in (result, ramped))
    return ramped if after < before else result
