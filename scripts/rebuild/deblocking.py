"""Deblocking: in flat tissue, a part of each step from slice to slice is spread over the slices beside it.

Slices measure the mean of a texture finer than they are, not its course. The estimate of least squared error is then
nearly a plateau for each slice. That holds for networks and for the best linear estimator (docs/benchmarks.md).

Decoders of video meet the same steps between blocks. As in List et al., IEEE Trans. Circuits Syst. Video Technol.
13:614-619 (2003), the filter smooths borders and spares edges. It takes no more of a step than shows as one.

A border of slices need not lie between two planes: a plane that holds one shows half of the step on either side. The
ramps leave the slices as they are: a result that was reconciled stays so.
"""

from functools import lru_cache

import torch
from torch import Tensor

from ..stack.acquisition import Acquisition
from ..stack.interpolation import interpolate
from ..stack.profile import along_slices
from ..stack.slices import Slices
from ..stack.tissue import edge_strength
from ..stack.trace import border_distance, steps
from .consistency import unseen

FLATTEST = 1.25  # times the head's median gradient; half of a step is looked at there
ROLL_OFF = 8  # exponent; from flat to edge is a factor of 1.5 in the gradient
MOST = 1.5  # times the ramps, which hold less than a step: slices would see the rest
HALVINGS = 12  # of the share of the ramps, which is then exact to 1 in 4096


def deblock(result: Tensor, slices: Slices) -> Tensor:
    """Spreads a share of each step between slices over both of them, as a ramp. Edges stay, and so do the slices.

    The share is the one by which planes differ as much across borders as within slices (`trace.step_ratio` is 1). The
    cubic spline between the slices has no steps. Its gradient says which tissue is flat. Ramps lack what the slices
    would see of them (`consistency.unseen`).

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
    tissue = (head & (strength <= 1)).to(result.device)
    own = steps(result, a, tissue)
    if not _steep(*own):
        return result
    flat = (1 / (1 + (strength / FLATTEST) ** ROLL_OFF)).to(result)
    ramps = _ramps(result, flat, a)
    ramp, low, high = steps(ramps, a, tissue), 0.0, MOST
    for _ in range(HALVINGS):
        share = (low + high) / 2
        low, high = (share, high) if _steep(*(one + share * more for one, more in zip(own, ramp))) else (low, share)
    return result + (low + high) / 2 * ramps


def _steep(across: Tensor, within: Tensor) -> bool:
    """Whether planes differ more across borders of slices than within slices."""
    return bool(across.abs().double().mean() > within.abs().double().mean())


def _ramps(volume: Tensor, flat: Tensor, acquisition: Acquisition) -> Tensor:
    """The change that makes ramps of all steps in flat tissue, `(X, Y, Z)`."""
    axis, count = acquisition.slice_axis, acquisition.fine_count - 1
    inside = torch.minimum(flat.narrow(axis, 1, count), flat.narrow(axis, 0, count))
    return flat * along_slices(_ramps_of_changes(acquisition), volume.diff(dim=axis) * inside, acquisition)


@lru_cache(maxsize=64)
def _ramps_of_changes(acquisition: Acquisition) -> Tensor:
    """The matrix that makes ramps of the changes between planes, `(fine_count, fine_count - 1)`.

    A ramp rises over both slices beside the border. A border between two planes has all of their change for its step. A
    border within a plane has the shares of both changes beside it that voxels as boxes would show.
    """
    a = acquisition
    place = a.fine_rows[:, None] + 0.5  # of planes, in slices from the beginning of the first
    middle = (place[1:, 0] + place[:-1, 0]) / 2
    reach = min(1.0, a.slice_spacing / a.target_spacing / 2)  # planes; no farther than a slice's middle
    share = (1 - border_distance(a) / reach).clip(0)
    border = middle.round().clip(1, max(a.slice_count - 1, 1))
    rises = (place - border + 1).clip(0, 2) / 2
    return unseen(a) @ torch.from_numpy(share * (rises - (place > middle)))
