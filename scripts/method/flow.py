"""The rectified flow on one page, in the paper's symbols: state, velocity, endpoint, step, and which times to train on.

Time runs from 0, the APN's coarse estimate `x0`, to 1, the sharp target `x1`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class PathSample(NamedTuple):
    """A batch of points on straight paths, all that the losses of stage 2 need.

    The first samples of the batch have thickness `T_i`; those from `len(xt) - len(partner)` on are the same anatomy at
    `T_j = T_i - 1 mm`, and `partner` names the index of each one's `T_i` sample (Sec. 3.5). Where CETA has a time of
    its own (Sec. S12), its pairs come behind all of those, first the `T_i` then the `T_j`, and are for CETA alone.

    Attributes:
        xt: `(B, 1, H, W)` states `s(t)`.
        x0: `(B, 1, H, W)` coarse estimates `z` of the frozen APN.
        x1: `(B, 1, H, W)` targets `y`, NaN where nothing is known.
        t: `(B,)` times in [0, 1].
        partner: `(P,)` indices into the batch, of the partners of its last `P` samples; empty without CETA.
        beside: how many of the last samples are for CETA alone.
    """

    xt: Tensor
    x0: Tensor
    x1: Tensor
    t: Tensor
    partner: Tensor
    beside: int = 0


def state_at(x0: Tensor, x1: Tensor, t: Tensor) -> Tensor:
    """State on the straight path, `s(t) = (1 - t) x0 + t x1` (Eq. 6).

    Args:
        x0: `(B, 1, H, W)` start.
        x1: `(B, 1, H, W)` end.
        t: `(B,)` times in [0, 1].
    """
    t = t.view(-1, 1, 1, 1)
    return (1 - t) * x0 + t * x1


def target_velocity(x0: Tensor, x1: Tensor) -> Tensor:
    """Velocity of the straight path, `u = x1 - x0`, the same at all times (Eq. 6)."""
    return x1 - x0


def endpoint(x0: Tensor, v: Tensor) -> Tensor:
    """Where the path that starts at `x0` with velocity `v` ends, `x0 + v` (Eq. 11)."""
    return x0 + v


def euler_step(xt: Tensor, v: Tensor, t: Tensor, t_next: Tensor) -> Tensor:
    """One step of Euler's method, `x(t_next) = x(t) + (t_next - t) v` (Sec. S4.5)."""
    return xt + (t_next - t) * v


def endpoint_biased(r: Tensor, alpha: float) -> Tensor:
    """Training times dense near 0 and 1 (Eq. 10).

    Args:
        r: uniform draws from [0, 1].
        alpha: exponent; the times have density `alpha * |2t - 1| ** (alpha - 1)`, so 1 is uniform.

    Raises:
        ValueError: if `alpha` is not positive.
    """
    if not alpha > 0:
        raise ValueError(f"alpha is {alpha}: expected a positive exponent; the paper uses 2.")
    return 0.5 - 0.5 * torch.sign(r - 0.5) * torch.abs(2 * r - 1) ** (1 / alpha)
