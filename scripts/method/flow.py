"""The rectified flow in the paper's symbols: state, velocity, endpoint, Euler step, and the times of training.

Time runs from 0 to 1: from the APN's coarse estimate `x0` to the sharp target `x1`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class PathSample(NamedTuple):
    """A batch of points on straight paths. It is all that the losses of stage 2 need.

    The first samples have thickness `T_i`. The last `len(partner)` ones show the same anatomy at `T_j = T_i - 1 mm`,
    and `partner` holds the index of the `T_i` sample of each (Sec. 3.5).

    Example: four planes, of which the second and the third have a thinner partner, are six samples. `partner` is then
    `[1, 2]`: sample 4 is sample 1's anatomy, sample 5 is sample 2's.

    Attributes:
        xt: `(B, 1, H, W)` states `s(t)`.
        x0: `(B, 1, H, W)` coarse estimates `z` of the frozen APN.
        x1: `(B, 1, H, W)` targets `y`, NaN where nothing is known.
        t: `(B,)` times in [0, 1].
        partner: `(P,)` indices into the batch: the partners of its last `P` samples. Empty without CETA.
    """

    xt: Tensor
    x0: Tensor
    x1: Tensor
    t: Tensor
    partner: Tensor


def state_at(x0: Tensor, x1: Tensor, t: Tensor) -> Tensor:
    """State on the straight path, `s(t) = (1 - t) x0 + t x1`, of planes `(B, 1, H, W)` at times `(B,)` (Eq. 6)."""
    t = t.view(-1, 1, 1, 1)
    return (1 - t) * x0 + t * x1


def target_velocity(x0: Tensor, x1: Tensor) -> Tensor:
    """Velocity of the straight path, `u = x1 - x0`, the same at all times (Eq. 6)."""
    return x1 - x0


def endpoint(x0: Tensor, v: Tensor) -> Tensor:
    """End of the path that starts at `x0` with velocity `v`: `x0 + v` (Eq. 11)."""
    return x0 + v


def euler_step(xt: Tensor, v: Tensor, t: Tensor, t_next: Tensor) -> Tensor:
    """A step of Euler's method, `x(t_next) = x(t) + (t_next - t) v` (Sec. S4.5)."""
    return xt + (t_next - t) * v


def endpoint_biased(r: Tensor, alpha: float) -> Tensor:
    """Training times dense near 0 and 1 (Eq. 10).

    Args:
        r: uniform draws from [0, 1].
        alpha: exponent. The times have density `alpha * |2t - 1| ** (alpha - 1)`. 1 is uniform.

    Example:
        >>> endpoint_biased(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]), 2.0)
        tensor([1.0000, 0.8536, 0.5000, 0.1464, 0.0000])
    """
    if not alpha > 0:
        raise ValueError(f"alpha is {alpha}: expected a positive exponent; the paper uses 2.")
    return 0.5 - 0.5 * torch.sign(r - 0.5) * torch.abs(2 * r - 1) ** (1 / alpha)
