"""The losses of both stages: Charbonnier and SSIM for the APN, Huber velocity and CETA for the flow."""

from __future__ import annotations

import torch
from monai.losses import SSIMLoss
from torch import Tensor, nn
from torch.nn.functional import huber_loss, mse_loss

from .flow import PathSample, endpoint, target_velocity

INTENSITY_RANGE = 2.0  # images live in [-1, 1] (Sec. S4.3)
FLOOR, PULL = 0.004, 0.1  # of errors, in these units; weight of the squared logarithm of their factor, see `ErrorLoss`


def charbonnier(prediction: Tensor, target: Tensor, epsilon: float = 1e-3) -> Tensor:
    """Mean of `sqrt(difference^2 + epsilon^2) - epsilon`. It is squared below `epsilon` and absolute far above.

    Charbonnier et al., ICIP 1994.

    >>> charbonnier(torch.tensor([0.0, 0.4]), torch.tensor([0.0, 0.0]), epsilon=0.3)  # a mean of 0 and 0.2
    tensor(0.1000)
    """
    return (torch.sqrt((prediction - target) ** 2 + epsilon**2) - epsilon).mean()


class ReconstructionLoss(nn.Module):
    """Stage 1: Charbonnier plus `ssim_weight` x (1 - SSIM) (Eq. 5).

    Args:
        ssim_weight: `lambda_ssim`, 0.5 in the paper.
        epsilon: of Charbonnier, in units of intensity; the paper names none. A large one makes the error squared, and
            the mean minimises it. A small one makes the error absolute, and the median minimises it.
    """

    def __init__(self, ssim_weight: float, epsilon: float = 1e-3):
        super().__init__()
        self.epsilon = epsilon
        self.ssim_weight = ssim_weight
        self.ssim = SSIMLoss(spatial_dims=2, data_range=INTENSITY_RANGE)

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Both `(B, 1, H, W)` in [-1, 1]; returns a scalar."""
        # SSIM compares means by their ratio. A ratio has no meaning around 0: shift to [0, 2]
        return charbonnier(prediction, target, self.epsilon) + self.ssim_weight * self.ssim(prediction + 1, target + 1)


class KnownLoss(nn.Module):
    """A loss of images, `(B, 1, H, W)`, that counts only where the target is known: elsewhere it sees 0 in both."""

    def __init__(self, loss: nn.Module):
        super().__init__()
        self.loss = loss

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Both `(B, 1, H, W)`; `target` is NaN where nothing is known. Returns a scalar."""
        known = target.isfinite()
        nothing = torch.zeros_like(target)
        return self.loss(torch.where(known, prediction, nothing), torch.where(known, target, nothing))


class LesionLoss(nn.Module):
    """A loss, and again the Charbonnier error of lesions: noise hides lesions, and their mean error is nobody's loss.

    Lesions fill few pixels. The best mean answer to noisy slices takes a faint one for noise. The weight makes an error
    of a large lesion as dear as one of `weight + 1` other pixels.

    Args:
        loss: of images.
        weight: of the lesions' error.
        epsilon: see `ReconstructionLoss`.
    """

    def __init__(self, loss: nn.Module, weight: float, epsilon: float):
        super().__init__()
        self.loss = loss
        self.weight = weight
        self.epsilon = epsilon

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """`prediction` is `(B, 1, H, W)`; `target`, `(B, 2, H, W)`, truth and weight of each pixel (`RandLesiond`)."""
        truth, lesions = target.chunk(2, dim=1)
        off = torch.where(truth.isfinite(), prediction - truth.nan_to_num(), 0.0)
        error = (lesions * (torch.sqrt(off**2 + self.epsilon**2) - self.epsilon)).mean()
        return self.loss(prediction, truth) + self.weight * error


class ErrorLoss(nn.Module):
    """The error network: the negative log-likelihood of errors, Laplace distributed, of the size that it expects.

    A batch is one scan. Calibration finds the factor on all its errors later, so the likelihood counts at its best
    factor. A weak pull keeps this factor near 1. Without a floor under errors the expected size would shrink without
    end in air, where errors are 0.
    """

    def forward(self, logarithm: Tensor, error: Tensor) -> Tensor:
        """Both `(B, 1, H, W)`: the logarithm of the errors' size, and errors, not negative. Returns a scalar."""
        factor = ((error + FLOOR) * torch.exp(-logarithm)).mean().log()
        return logarithm.mean() + factor + PULL * factor**2


def ceta(v: Tensor, path: PathSample) -> Tensor:
    """Consistent Endpoint Trajectory Alignment (Eq. 12): one anatomy at two thicknesses should end at one image.

    Args:
        v: `(B, 1, H, W)` predicted velocities.
        path: the batch. Its last `len(partner)` samples make pairs with their partners.

    Returns:
        Mean squared distance over pairs and pixels whose target is known; 0 without pairs.
    """
    pairs = len(path.partner)
    if pairs == 0:
        return v.sum() * 0
    ends, known = endpoint(path.x0, v), path.x1[-pairs:].isfinite()
    return mse_loss(ends[path.partner][known], ends[-pairs:][known])


class FlowLoss(nn.Module):
    """Stage 2: Huber distance to the path's velocity plus `ceta_weight` x CETA (Eqs. 9 and 12).

    Args:
        delta: threshold of the Huber loss, in units of intensity; 0.1 in the paper.
        ceta_weight: `lambda_ceta`, 1 in the paper.
    """

    def __init__(self, delta: float, ceta_weight: float):
        super().__init__()
        self.delta = delta
        self.ceta_weight = ceta_weight

    def forward(self, v: Tensor, path: PathSample) -> Tensor:
        """`v` is `(B, 1, H, W)`; returns a scalar. Pixels whose target is NaN do not count."""
        target = target_velocity(path.x0, path.x1)
        known = target.isfinite()
        velocity_loss = huber_loss(v[known], target[known], delta=self.delta)
        return velocity_loss + self.ceta_weight * ceta(v, path)
