"""CETA at a time of its own, in place of the times of the flow's states (Sec. S12)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..method.flow import PathSample, state_at
from ..method.losses import FlowLoss, ceta
from ..train.batches import FlowBatch


@dataclass(eq=False)
class TimedFlowBatch(FlowBatch):
    """A batch whose pairs come once more, at CETA's time: first all `T_i`, then all `T_j`. They serve CETA alone.

    Args:
        ceta_time: in [0, 1].
    """

    ceta_time: float = field(kw_only=True)

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns what `FlowBatch` does, with two more planes of each pair."""
        xt, path, (thickness, t), _ = super().__call__(batchdata, device, non_blocking, **kwargs)
        count, pairs = len(t), len(path.partner)
        again = torch.cat([path.partner, torch.arange(count - pairs, count, device=xt.device)])
        x0, x1, thickness = (torch.cat([whole, whole[again]]) for whole in (path.x0, path.x1, thickness))
        t = torch.cat([t, t.new_full((2 * pairs,), self.ceta_time)])
        xt = state_at(x0, x1.where(x1.isfinite(), x0), t)
        partner = torch.arange(count, count + pairs, device=xt.device)
        return xt, PathSample(xt, x0, x1, t, partner), (thickness, t), {}


class TimedFlowLoss(FlowLoss):
    """The loss of such batches: the velocity learns of the samples alone, CETA of the pairs alone."""

    def forward(self, v: Tensor, path: PathSample) -> Tensor:
        """`v` is `(B, 1, H, W)`; returns a scalar."""
        count = len(v) - 2 * len(path.partner)
        xt, x0, x1, t = (part[:count] for part in (path.xt, path.x0, path.x1, path.t))
        samples = PathSample(xt, x0, x1, t, path.partner[:0])
        return super().forward(v[:count], samples) + self.ceta_weight * ceta(v, path)
