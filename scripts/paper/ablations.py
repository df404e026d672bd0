"""Networks without one of the method's parts, for the paper's ablations (Tab. 2)."""

import torch
from torch import Tensor

from ..method.networks import VelocityNetwork


class UnconditionedVelocityNetwork(VelocityNetwork):
    """A velocity network without the slice thickness: it sees 1 mm in its place, always.

    Its parameters are those of `VelocityNetwork`, so that either one builds on the same stage 1.
    """

    def modulation(self, thickness: Tensor, t: Tensor) -> Tensor:
        """As `VelocityNetwork`, of the time alone."""
        return super().modulation(torch.ones_like(thickness), t)
