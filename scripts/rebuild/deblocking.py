"""Deblocking: in flat tissue, a part of each step from slice to slice is spread over the slices beside it.

Slices measure the mean of a texture finer than they are, not its course. The estimate of least squared error is then
nearly a plateau for each slice. That holds for networks and for the best linear estimator (docs/benchmarks.md).

Decoders of video meet the same steps between blocks. As in List et al., IEEE Trans. Circuits Syst. Video Technol.
13:614-619 (2003), the filter smooths borders and spares edges. It takes no more of a step than shows as one.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..stack.interpolation import interpolate
from ..stack.slices import Slices
from ..stack.tissue import edge_strength
from ..stack.trace import borders, steps

FLATTEST = 1.25  # times the head's median gradient; half of a step is looked at there
ROLL_OFF = 8  # exponent; from flat to edge is a factor of 1.5 in the gradient
HALVINGS = 12  # of the share of the steps, which is then exact to 1 in 4096


def deblock(result: Tensor, slices: Slices) -> Tensor:
    """Spreads a share of each step between slices over both of them, as a ramp. Edges stay.

    The share is the one by which planes differ across borders as much as within slices (`trace.step_ratio` is 1), all
    at most. The cubic spline between the slices has no steps. Its gradient says which tissue is flat.

    Args:
        result: `(X, Y, Z)` on the fine grid.
        slices: in the units of `result`.

    Returns:
        `(X, Y, Z)` on the fine grid; the result itself where planes do not differ more across borders.
    """
    if slices.constant:
        return result
    a = slices.acquisition
    # The slices give the head: the spline's undershoot beside a mask would pass for its floor
    head = interpolate(slices.head.to(result), a, "nearest") > 0.5
    strength = edge_strength(interpolate(slices.above_floor.to(result), a, "cubic"), head)
    flat = (1 / (1 + (strength / FLATTEST) ** ROLL_OFF)).to(result)
    ramps = _ramps(result.movedim(a.slice_axis, -1), flat.movedim(a.slice_axis, -1), slices).movedim(-1, a.slice_axis)
    tissue = (head & (strength <= 1)).to(result.device)
    own, ramp = steps(result, a, tissue), steps(ramps, a, tissue)  # across borders, and within slices
    share, low, high = 0.0, 0.0, 1.0
    for _ in range(HALVINGS + 1):  # the first one looks at the result itself
        across, within = ((one + share * more).abs().double().mean() for one, more in zip(own, ramp))
        if across > within:
            low = share
        elif share == 0:
            return result
        else:
            high = share
        share = (low + high) / 2
    return result + share * ramps


def _ramps(volume: Tensor, flat: Tensor, slices: Slices) -> Tensor:
    """Ramps against all steps, `(..., Z)`: half of a step at either side of its border, 0 at the slice's other."""
    a = slices.acquisition
    border, place = torch.from_numpy(borders(a)), a.nearest_slices
    jumps = pad((volume.diff(dim=-1) * torch.minimum(flat[..., 1:], flat[..., :-1]))[..., border], (1, 1))
    slice_of = torch.from_numpy(np.cumsum(np.diff(place, prepend=place[0]) != 0))
    behind = torch.from_numpy(a.fine_rows - place + 0.5).clamp(0, 1).to(volume)  # 0 where a slice begins, 1 at its end
    return (behind * jumps[..., slice_of + 1] - (1 - behind) * jumps[..., slice_of]) / 2
