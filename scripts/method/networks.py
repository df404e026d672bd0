"""The two networks of DRIFT. Both are U-Nets. Slice thickness and flow time scale and shift their group norms.

Sizes, wiring and initialisation follow Sec. S4.1. All modules compile with `torch.jit.script`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from monai.networks.nets.diffusion_model_unet import zero_module
from torch import Tensor, nn

from .error_pattern import ErrorPatternNetwork
from .flow import euler_step
from .slice_projection import SliceProjectionNetwork, noise_level
from .unet import UNet


def _mlp(*widths: int) -> nn.Sequential:
    """Two linear layers with a SiLU between them."""
    return nn.Sequential(nn.Linear(widths[0], widths[1]), nn.SiLU(), nn.Linear(widths[1], widths[2]))


class ThicknessEmbedding(nn.Module):
    """Input and target slice thickness, as `tau = 1 / T`, become a condition (Eq. 2), 512 numbers in the paper.

    Args:
        noise: whether the slices' noise shifts the condition, which the paper's does not. The shift begins at 0.
    """

    def __init__(self, width: int = 256, noise: bool = False):
        super().__init__()
        self.dim = 2 * width
        self.embed_input = _mlp(1, width // 2, width)
        self.embed_target = _mlp(1, width // 2, width)
        self.combine = _mlp(self.dim, self.dim, self.dim)
        self.embed_noise = zero_module(nn.Linear(1, self.dim, bias=False)) if noise else None

    def forward(self, thickness: Tensor) -> Tensor:
        """`thickness` is `(B, 2)`, `[T_i, T_hr]` in mm, or `(B, 3)` with the noise's share of the range.

        Returns `(B, dim)`.
        """
        tau = 1.0 / thickness[:, :2].clamp(min=0.1)  # mm; keeps tau finite
        pair = torch.cat([self.embed_input(tau[:, :1]), self.embed_target(tau[:, 1:])], dim=1)
        if self.embed_noise is not None:
            pair = pair + self.embed_noise(noise_level(thickness[:, 2:]))
        return self.combine(pair)


class TimeThicknessEmbedding(nn.Module):
    """Flow time and slice thickness become a conditioning vector (Eq. 7); 768 numbers in the paper."""

    def __init__(self, width: int = 256, noise: bool = False) -> None:
        super().__init__()
        self.dim = 3 * width
        self.embed_time = _mlp(256, 2 * width, width)
        self.embed_thickness = ThicknessEmbedding(width, noise)
        self.combine = _mlp(self.dim, self.dim, self.dim)
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(128) / 127)
        self.frequencies: Tensor  # declared here: TorchScript cannot read it on the class
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, thickness: Tensor, t: Tensor) -> Tensor:
        """`thickness` as in `ThicknessEmbedding`, `t` is `(B,)` in [0, 1]; returns `(B, dim)`."""
        angles = t[:, None] * self.frequencies[None, :]
        time = self.embed_time(torch.cat([angles.sin(), angles.cos()], dim=1))
        return self.combine(torch.cat([time, self.embed_thickness(thickness)], dim=1))


class AnatomicalProjectionNetwork(nn.Module):
    """Stage 1, the APN. It turns a degraded image into a coarse sharp one, `z = f(x, c)` (Eq. 4).

    Args:
        residual: add the input to the output. The network then starts as the identity and learns a correction. The
            paper's networks do not.
    """

    def __init__(self, channels: Sequence[int], residual: bool = False):
        super().__init__()
        self.lengths = 2  # how many condition the network
        self.embedding = ThicknessEmbedding()
        self.unet = UNet(channels, self.embedding.dim)
        self.residual = residual
        if residual:
            zero_module(self.unet.conv_out)

    def forward(
        self,
        image: Tensor,
        thickness: Tensor,
        rows: Tensor | None = None,
        guide: Tensor | None = None,
        guide_slices: Tensor | None = None,
        guide_share: Tensor | None = None,
    ) -> Tensor:
        """Args: `image`, `(B, 1, H, W)` in [-1, 1]; `thickness`, `(B or 1, 2)` in mm. Returns `(B, 1, H, W)`."""
        if rows is not None or guide is not None or guide_slices is not None or guide_share is not None:
            raise ValueError(
                "this stage 1 takes planes on the fine grid and no guide: put them there, and leave rows and guide out."
            )
        estimate = self.unet(image, self.unet.modulation(self.embedding(thickness)))
        return image + estimate if self.residual else estimate


class VelocityNetwork(nn.Module):
    """Stage 2: velocity `v(s(t); t, c)` of the rectified flow (Eq. 8). It starts at zero: the flow is at rest.

    Args:
        channels: of the levels, from the finest on.
        width: of the embedding of times and lengths.
        norm: whether blocks have group norms, as the paper's have.
        noise: whether `thickness` ends with the noise of the slices, as a share of their range (`stage2_lengths`).
        block: see `UNet`.
        unit: of the velocity, of intensities in [-1, 1]; 1 in the paper. Detail is about 0.1.
            Without norms a network whose outputs are ten times too strong ends its training at rest.
    """

    def __init__(
        self,
        channels: Sequence[int],
        width: int = 256,
        norm: bool = True,
        noise: bool = False,
        block: int = 1,
        unit: float = 1.0,
    ):
        super().__init__()
        self.unit = unit
        self.embedding = TimeThicknessEmbedding(width, noise)
        self.unet = UNet(channels, self.embedding.dim, norm, block)
        zero_module(self.unet.conv_out)

    def modulation(self, thickness: Tensor, t: Tensor) -> Tensor:
        """`UNet.modulation` for `thickness` and `t`, see `forward`."""
        return self.unet.modulation(self.embedding(thickness, t))

    def forward(self, xt: Tensor, thickness: Tensor, t: Tensor) -> Tensor:
        """The velocity, `(B, 1, H, W)`.

        Args:
            xt: `(B, 1, H, W)`.
            thickness: of slices and target, `(B or 1, 2)` in mm; with `noise` `(B or 1, 3)`.
            t: times, `(B or 1,)`.
        """
        return self.at(xt, self.modulation(thickness, t))

    def at(self, xt: Tensor, modulation: Tensor) -> Tensor:
        """The velocity under a given modulation."""
        return self.unit * self.unet(xt, modulation)


def stage2_lengths(lengths: Tensor) -> Tensor:
    """The lengths of stage 2: thickness and target, and the noise where stage 1 has it."""
    return torch.cat([lengths[:, :2], lengths[:, 4:]], dim=1)


class Drift(nn.Module):
    """Both stages (Eq. 1). Euler's method moves stage 1's estimate along the rectified flow.

    Args:
        apn: stage 1, the paper's or one on the measured slices.
        velocity: stage 2, the same for both.
        error: the third network, of the error map; it changes no result. None where no map is wanted.
    """

    def __init__(
        self,
        apn: AnatomicalProjectionNetwork | SliceProjectionNetwork,
        velocity: VelocityNetwork,
        error: ErrorPatternNetwork | None = None,
    ):
        super().__init__()
        self.apn = apn
        self.velocity = velocity
        self.error = error

    def modulations(self, thickness: Tensor, times: Tensor) -> Tensor:
        """The modulations of the velocity's norms for all steps, `(N, B or 1, M)`, the same for all windows.

        `thickness` is `(B or 1, 2)` in mm, or stage 1's five `lengths`; `times` is `(N + 1,)`.
        """
        thickness = stage2_lengths(thickness)
        rows, steps = thickness.shape[0], times.shape[0] - 1
        t = times[:-1].repeat_interleave(rows)
        modulation = self.velocity.modulation(thickness.repeat(steps, 1), t)
        return modulation.reshape(steps, rows, modulation.shape[1])

    def refine(self, x: Tensor, modulations: Tensor, times: Tensor, factor: float = 1.0) -> Tensor:
        """Runs the flow from stage 1's estimate `x`, `(B, 1, H, W)`, under given modulations.

        The velocity counts `factor` times, see `forward`.
        """
        for n in range(times.shape[0] - 1):
            x = euler_step(x, factor * self.velocity.at(x, modulations[n]), times[n], times[n + 1])
        return x

    def forward(
        self,
        image: Tensor,
        thickness: Tensor | None = None,
        times: Tensor | None = None,
        rows: Tensor | None = None,
        guide: Tensor | None = None,
        guide_slices: Tensor | None = None,
        guide_share: Tensor | None = None,
        factor: float = 1.0,
    ) -> Tensor:
        """Sharpens a batch of planes.

        Args:
            image: `(B, 1, H, W)`, intensities in [-1, 1]. The paper's stage 1 takes planes on the fine grid. Stage 1 on
                the measured slices takes those.
            thickness: input and target slice thickness in mm, `(B or 1, 2)`. Stage 1 on the measured slices takes its
                five `lengths`, `(B or 1, 5)`. Without them the image is at the target already, 1 mm, and has no noise.
            times: `(N + 1,)` Euler times from 0 to 1 (`schedule.euler_times`). Without them, and for `N = 0`, the
                result is stage 1's.
            rows: `(B or 1, R)`, for stage 1 on the measured slices alone: see there. Without them the result has the
                rows of the image.
            guide, guide_slices, guide_share: for stage 1 on the measured slices alone: see there.
            factor: on the velocity. 1 is the paper's flow, which stays near the mean of the images that fit; more
                leads further away from stage 1's estimate, to more detail.

        Returns:
            `(B, 1, H, W)`, with rows `(B, 1, R, W)`.
        """
        if thickness is None:
            thickness = torch.ones(1, self.apn.lengths, dtype=image.dtype, device=image.device)
            thickness[:, 4:] = 0.0
        x = self.apn(image, thickness, rows, guide, guide_slices, guide_share)
        x = x.to(image.dtype)  # where autocast is on: in bfloat16 small steps vanish
        return x if times is None else self.refine(x, self.modulations(thickness, times), times, factor)
