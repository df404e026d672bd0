"""TPDM: two diffusion priors of perpendicular planes, guided by what was measured.

Lee et al., ICCV 2023, with the variance-exploding diffusion of Song et al., ICLR 2021. The priors know nothing of
slices: they are trained on sharp planes alone, and one training serves any measurement.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from monai.engines import PrepareBatch
from torch import Tensor, nn
from torch.nn.functional import pad
from tqdm.auto import tqdm

from ...rebuild.windows import BLOCK, PIXELS_PER_CALL
from ...stack.acquisition import Acquisition, Profile
from ...stack.profile import slice_matrix
from .stacks import HeadInferer

SMALLEST, LARGEST = 0.01, 378.0  # standard deviations of the noise, for intensities in [0, 1]
SNR = 0.16  # of the corrector's steps
LARGEST_SD = 0.5  # of pixels in [0, 1]
PUBLISHED_PIXELS = 6 * 256**2  # of the planes whose joint residual the published guidance weight belongs to


def noise_level(t: Tensor) -> Tensor:
    """Standard deviation of the noise at times in [0, 1]: geometric from 0.01 to 378."""
    return SMALLEST * (LARGEST / SMALLEST) ** t


class Prior(nn.Module):
    """An unconditional 2-D prior: the noise of a noisy plane, as the best linear guess and the correction of a U-Net.

    The guess is that for independent pixels of a standard deviation of 0.5. A network that has to learn it from nothing
    is wrong by a few percent for long, and a few percent of the largest noise, 378, is no image.

    Args:
        unet: `(x, timesteps) -> noise`, from one channel to one.
    """

    def __init__(self, unet: nn.Module):
        super().__init__()
        self.correction = unet

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """The noise in units of its standard deviation, minus `noise_level` times the score.

        Args:
            x: `(B, 1, H, W)`, planes in [0, 1] and noise.
            t: `(B,)` in [0, 1].
        """
        height, width = x.shape[2:]
        filled = pad(2 * x - 1, (0, -width % BLOCK, 0, -height % BLOCK), mode="replicate")
        level = noise_level(t).view(-1, 1, 1, 1)
        guess = x * level / (level**2 + LARGEST_SD**2)
        return guess + self.correction(filled, timesteps=1000 * t)[:, :, :height, :width]


class Tpdm(nn.Module):
    """Both priors and the sampler.

    The published network is an NCSN++ of 61,433,601 parameters, the paper's table says 44.1 M; MONAI's nearest U-Net,
    of channels (128, 256, 256, 256), 3 blocks and no attention, has 45,366,657. Slice axes are drawn at random in
    training, so both priors see planes of all directions along which volumes are sharp.

    Args:
        primary: prior of the planes that contain the slice axis.
        auxiliary: prior of those orthogonal to it.
    """

    def __init__(self, primary: nn.Module, auxiliary: nn.Module):
        super().__init__()
        self.primary = Prior(primary)
        self.auxiliary = Prior(auxiliary)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Training: the first half of the batch to the primary prior, the second to the auxiliary; see `Prior`."""
        half = -(-len(x) // 2)
        return torch.cat([self.primary(x[:half], t[:half]), self.auxiliary(x[half:], t[half:])])


class TpdmBatch(PrepareBatch):
    """Sharp planes and noise of random levels in, the noise out: denoising score matching, weighted by its variance."""

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(x, noise, (t,), {})` on the device; the planes' [-1, 1] becomes [0, 1]."""
        sharp = (batchdata["label"].to(device, non_blocking=non_blocking) + 1) / 2
        t = torch.rand(len(sharp), device=sharp.device)
        noise = torch.randn_like(sharp)
        return sharp + noise_level(t).view(-1, 1, 1, 1) * noise, noise, (t,), {}


class Measurement(NamedTuple):
    """The guidance of planes `(P, 1, H, W)`, measured along their last axis.

    Attributes:
        target: `(P, 1, H, Z)`, `sqrt(f) y` and noise.
        matrix: `(Z, W)`, `sqrt(f) A`.
        strength: lambda, of planes of this size.
    """

    target: Tensor
    matrix: Tensor
    strength: float

    def gradient(self, x: Tensor, estimate: Tensor) -> Tensor:
        """The gradient of each plane's residual norm, times lambda; `estimate` of the sharp planes comes from `x`."""
        residual = estimate @ self.matrix.T - self.target
        (gradient,) = torch.autograd.grad(residual.flatten(1).norm(dim=1).sum(), x)
        return self.strength * gradient


def corrected(x: Tensor, score: Tensor, noise: Tensor, level: float) -> Tensor:
    """A step of Langevin dynamics at one level, planes `(P, 1, H, W)`, each with a step size of its own.

    The step is in inverse proportion to the score. For pixels of standard deviation s the score has the size of the
    noise over `sqrt(level^2 + s^2)`, and in [0, 1] s is 0.5 at most: a smaller score, of a prior that has hardly
    learned, is taken for that one, as steps have no bound otherwise.
    """
    size, pull = (v.flatten(1).norm(dim=1).view(-1, 1, 1, 1) for v in (noise, score))
    ratio = SNR * size / torch.maximum(pull, size / math.hypot(level, LARGEST_SD))
    return x + 2 * ratio**2 * score + 2 * ratio * noise


def predicted(x: Tensor, score: Tensor, level: float, after: float) -> Tensor:
    """The mean of the reverse diffusion from one level to the next, which is carried on without its noise."""
    return x + (level**2 - after**2) * score


class TpdmInferer(HeadInferer):
    """Samples a volume that both priors like and that agrees with the measurement (Alg. 1).

    Steps alternate between the priors; each is a Langevin corrector and a reverse-diffusion predictor. The primary's
    are guided, `x - lambda d|r|/dx`, where `r = sqrt(f) (A x0 - y)` less noise of the present level, and `x0` is the
    prior's estimate of the sharp plane. The paper's norm is taken over six planes together: lambda depends on the
    batch. Here each plane has its own, and lambda grows with its size, so that pixels move as far as the paper's.

    Args:
        steps: `N`, 2000 in the paper; fewer are to be called reduced steps.
        strength: lambda; null for the paper's `f - 1`, `f` fine slices for each measured one.
        profile: of the slices that `A` stands for; null for the profile of the scan's acquisition. The paper's are
            rectangular: means of adjacent slices.
        seed: of the noise.
        others: see `StackInferer`.
    """

    def __init__(
        self,
        steps: int,
        strength: float | None = None,
        profile: Profile | None = None,
        seed: int = 0,
        **others: Any,
    ):
        super().__init__(**others)
        self.steps = steps
        self.strength = strength
        self.profile = profile
        self.seed = seed
        self.settings |= {"steps": steps, "strength": strength, "measurement": profile, "seed": seed}

    def steps_for(self, acquisition: Acquisition) -> tuple[int, str]:
        """Steps of the diffusion, each with two evaluations of a prior."""
        return self.steps, "the method"

    def head(self, stack: Tensor, acquisition: Acquisition, network: Tpdm) -> Tensor:
        """See `HeadInferer.head`; the primary's planes lie along the longer side."""
        told = replace(acquisition, profile=acquisition.profile if self.profile is None else self.profile)
        longer = stack.shape[0] > stack.shape[1]
        y = (stack.transpose(0, 1) if longer else stack) / 2 + 0.5
        x = 2 * self.sample(network, y, slice_matrix(told).to(y)) - 1
        return x.transpose(0, 1) if longer else x

    def sample(self, network: Tpdm, y: Tensor, matrix: Tensor) -> Tensor:
        """The volume.

        Args:
            network: both priors.
            y: `(X, Y, Z)` measured slices in [0, 1], stacked along the last axis; the primary's planes lie along the
                last two.
            matrix: `A`, `(Z, Z')`, the measurement.

        Returns:
            `(X, Y, Z')`.
        """
        generator = torch.Generator()  # on the CPU: one noise for all devices
        generator.manual_seed(self.seed)

        def noise(like: Tensor) -> Tensor:
            return torch.randn(like.shape, generator=generator).to(y)

        factor = matrix.shape[1] / matrix.shape[0]
        strength = factor - 1 if self.strength is None else self.strength
        strength *= math.sqrt(y.shape[1] * matrix.shape[1] / PUBLISHED_PIXELS)
        times = torch.linspace(1, 0, self.steps)
        levels = [*noise_level(times).tolist(), 0.0]
        inverse = torch.linalg.pinv(matrix)
        x = levels[0] * noise(y @ inverse.T)
        x = x + (y - x @ matrix.T) @ inverse.T  # the measured slices stand from the start on
        for step in tqdm(range(self.steps), desc="steps", leave=False, disable=None if self.progress else True):
            t, level, after = times[step].to(y), levels[step], levels[step + 1]
            primary = step % 2 == 0
            prior, normal = (network.primary, 0) if primary else (network.auxiliary, 2)
            for predicts in (False, True):
                planes, random = (v.movedim(normal, 0)[:, None] for v in (x, noise(x)))
                target = math.sqrt(factor) * y[:, None] + level * noise(y)[:, None]
                parts = []
                for k in torch.arange(len(planes)).split(max(1, PIXELS_PER_CALL // planes[0].numel())):
                    guide = Measurement(target[k], math.sqrt(factor) * matrix, strength) if primary else None
                    score, pull = self._score(prior, planes[k], t, level, guide)
                    if predicts:
                        moved = predicted(planes[k], score, level, after)
                    else:
                        moved = corrected(planes[k], score, random[k], level)
                    parts.append(moved - pull)
                x = torch.cat(parts)[:, 0].movedim(0, normal)
        return x

    def _score(
        self, prior: nn.Module, x: Tensor, t: Tensor, level: float, guide: Measurement | None
    ) -> tuple[Tensor, Tensor | float]:
        """A prior's score of planes `(P, 1, H, W)`, and how far the measurement pulls them."""
        with torch.set_grad_enabled(guide is not None):
            x = x.detach().requires_grad_(guide is not None)
            with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bfloat16):
                noise = prior(x, t.expand(len(x))).float()
            pull = 0.0 if guide is None else guide.gradient(x, x - level * noise)
        return -noise.detach() / level, pull
