"""ResShift: a short diffusion chain between the degraded and the sharp image, which shifts their residual.

Yue, Wang and Loy, NeurIPS 2023. Here in pixel space: the paper's autoencoder is one of photographs.
"""

from typing import Any

import torch
from monai.engines import PrepareBatch
from torch import Tensor, nn

from ...rebuild.inferer import PlaneInferer
from ...stack.acquisition import Acquisition
from ...stack.slices import Slices

DARKEST = -1.0  # of images whose tissue is in [-1, 1]; vessels and fat may be brighter than 1


def shifts(steps: int, kappa: float, least: float = 0.04, power: float = 0.3, last: float = 0.99) -> Tensor:
    """Share of the residual that is shifted at each time, `eta_0 = 0 < eta_1 < ... < eta_T` (Eqs. 5 and 6).

    `sqrt(eta)` grows geometrically, with the exponent bent by a power, from `least / kappa` to `last`.

    Args:
        steps: `T`, 2 or more; 15 in the paper.
        kappa: noise for each unit of shift, 2 in the paper.
        least: standard deviation of the noise at `t = 1`; 0.2 for the journal's 4 steps.
        power: the smaller, the more steps lie at large shifts.
        last: `sqrt(eta_T)`.

    Returns:
        `(T + 1,)` float tensor.
    """
    first = min(least / kappa, least)
    exponent = (torch.arange(steps) / (steps - 1)) ** power
    return torch.cat([torch.zeros(1), (first * (last / first) ** exponent) ** 2])


class ResShift(nn.Module):
    """The chain and the network that walks it backwards.

    The network that the paper counts, 118.3 M parameters, is published with 118,593,583; MONAI's nearest U-Net, of
    channels (160, 320, 320, 640) with attention on the two coarsest levels, has 115,671,521.

    Args:
        unet: `(x, timesteps) -> estimate`, from two channels to one.
        steps: `T`.
        kappa: see `shifts`.
    """

    def __init__(self, unet: nn.Module, steps: int = 15, kappa: float = 2.0):
        super().__init__()
        self.unet = unet
        self.steps = steps
        self.kappa = kappa
        self.eta: Tensor
        self.register_buffer("eta", shifts(steps, kappa), persistent=False)

    def _eta(self, t: Tensor) -> Tensor:
        return self.eta[t].view(-1, 1, 1, 1)

    def shift(self, x0: Tensor, y: Tensor, t: Tensor, noise: Tensor) -> Tensor:
        """State of the forward chain, `x_t ~ N(x0 + eta_t (y - x0), kappa^2 eta_t)` (Eq. 2).

        Args:
            x0: `(B, 1, H, W)` sharp images.
            y: `(B, 1, H, W)` degraded ones.
            t: `(B,)` whole numbers from 0, where the state is `x0`, to `T`.
            noise: `(B or 1, 1, H, W)`, standard normal.
        """
        return x0 + self._eta(t) * (y - x0) + self.kappa * self._eta(t).sqrt() * noise

    def reverse(self, xt: Tensor, x0: Tensor, t: Tensor, noise: Tensor) -> Tensor:
        """State at `t - 1`, given the one at `t` and the sharp image (Eq. 7); at `t = 1` it is the sharp image.

        Args:
            xt, x0: `(B, 1, H, W)`.
            t: `(B,)` whole numbers from 1 to `T`.
            noise: `(B or 1, 1, H, W)`, standard normal.
        """
        now, before = self._eta(t), self._eta(t - 1)
        kept = before / now
        return kept * xt + (1 - kept) * x0 + self.kappa * (kept * (now - before)).sqrt() * noise

    def forward(self, xt: Tensor, y: Tensor, t: Tensor) -> Tensor:
        """The network's estimate of `x0`; arguments and result as in `shift`."""
        scale = 3 * self.kappa * self._eta(t).sqrt() + 1  # of the states in pixel space, as published
        return self.unet(torch.cat([xt / scale, y], dim=1), timesteps=t - 1)

    def sample(self, y: Tensor, noise: Tensor) -> Tensor:
        """The sharp images at the end of the reverse chain, from `x_T ~ N(y, kappa^2 eta_T)` (Alg. 2).

        Estimates are clipped where images have no intensities: below.

        Args:
            y: `(B, 1, H, W)` degraded images.
            noise: `(T, B or 1, 1, H, W)`, standard normal; the first belongs to `x_T`.
        """
        x = y + self.kappa * self.eta[-1].sqrt() * noise[0]
        for step in range(self.steps, 0, -1):
            t = torch.full((len(y),), step, device=y.device)
            x = self.reverse(x, self(x, y, t).clamp(min=DARKEST), t, noise[1 - step])  # none is added at t = 1
        return x


class ResShiftBatch(PrepareBatch):
    """States of the forward chain at random times in, sharp planes out.

    Args:
        network: whose chain it is.
    """

    def __init__(self, network: ResShift):
        self.network = network

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(xt, label, (image, t), {})` on the device."""
        y, x0 = (batchdata[key].to(device, non_blocking=non_blocking) for key in ("image", "label"))
        t = torch.randint(1, self.network.steps + 1, (len(y),), device=y.device)
        return self.network.shift(x0, y, t, torch.randn_like(x0)), x0, (y, t), {}


class ResShiftInferer(PlaneInferer):
    """Samples the windows of a stack: the same seed gives the same result.

    Args:
        steps: of the network's chain.
        seed: of the noise.
        others: see `PlaneInferer`.
    """

    def __init__(self, steps: int, seed: int = 0, **others: Any):
        super().__init__(**others)
        self.steps = steps
        self.seed = seed
        self.settings |= {"seed": seed}

    def steps_for(self, acquisition: Acquisition) -> tuple[int, str]:
        """Steps of the chain."""
        return self.steps, "the method"

    def stage2(  # type: ignore[override]  # of one network alone
        self, families: list[Tensor], slices: Slices, network: ResShift
    ) -> list[Tensor]:
        """`ResShift.sample`, with noise that does not depend on how many windows a call has."""
        generator = torch.Generator()  # on the CPU: one noise for all devices
        generator.manual_seed(self.seed)

        def sample(windows: Tensor) -> Tensor:
            fields = [torch.randn(self.steps, 1, *windows.shape[2:], generator=generator) for _ in windows]
            return network.sample(windows, torch.stack(fields, dim=1).to(windows))

        return [self.by_windows(planes, sample) for planes in families]
