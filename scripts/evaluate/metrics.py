"""Image quality of a rebuilt volume against its truth, along and across the slice axis.

Every function takes `(X, Y, Z)` volumes on one grid and in one unit. Intensity scales and masks come from the truth
alone: no method is measured on a scale of its own. A factor or an offset that both volumes share changes nothing.
"""

import math

import numpy as np
import torch
from monai.metrics import PSNRMetric, SSIMMetric
from scipy import ndimage, stats
from torch import Tensor

from ..stack.grid import check_pair
from ..stack.intensity import data_range

SSIM_WINDOW = 11  # pixels; MONAI's, and Wang et al.'s
TOUCHING = np.ones((3, 3, 3))  # voxels that touch, if only at a corner, are one lesion
RING = 2  # voxels; width of the surroundings that a lesion is compared with


def psnr(prediction: Tensor, truth: Tensor, mask: Tensor | None = None) -> float:
    """Peak signal-to-noise ratio over the volume, `20 log10(range) - 10 log10(MSE)`, in dB (Sec. 4.1).

    The whole range of the truth is the peak. Errors count within the mask, everywhere without one.
    """
    check_pair(prediction, truth)
    peak = data_range(truth)
    if mask is not None:
        if not mask.any():
            raise ValueError("mask holds no voxel: expected one or more. Check the truth that it was made from.")
        prediction, truth = prediction[mask], truth[mask]
    pair = prediction.double()[None, None], truth.double()[None, None]
    return PSNRMetric(max_val=peak)(*pair).item()  # type: ignore[union-attr]  # MONAI: or a list


def ssim(prediction: Tensor, truth: Tensor) -> float:
    """Structural similarity of 2-D slices, averaged over each direction's slices, then over directions (Sec. 4.1).

    Wang et al., IEEE Trans. Image Process. 13:600-612 (2004). The same map, which takes the truth to [0, 1], is
    applied to both volumes. A direction whose slices are smaller than the window is left out.

    Returns:
        At most 1; NaN where no direction has slices as large as the window.
    """
    check_pair(prediction, truth)
    low, extent = truth.min(), data_range(truth)
    # float32, as MONAI computes; in [0, 1] its cancellation in E[x^2] - E[x]^2 does not matter
    unit_prediction, unit_truth = (((v.double() - low) / extent).float() for v in (prediction, truth))
    metric = SSIMMetric(spatial_dims=2, data_range=1.0, win_size=SSIM_WINDOW)
    directions = []
    for normal in range(3):
        pair = [v.movedim(normal, 0)[:, None].contiguous() for v in (unit_prediction, unit_truth)]  # (slices, 1, H, W)
        if min(pair[0].shape[2:]) >= SSIM_WINDOW:
            directions.append(metric(*pair).double().mean().item())  # type: ignore[union-attr]  # MONAI: or a list
    return float(np.mean(directions)) if directions else math.nan


def laplacian(volume: Tensor) -> Tensor:
    """Sum of the second differences along the three axes, in intensity per voxel squared; edges are repeated."""
    return torch.from_numpy(ndimage.laplace(volume.cpu().numpy(), mode="nearest"))


def hf_psnr(prediction: Tensor, truth: Tensor) -> float:
    """PSNR of the high-pass filtered volumes, in dB (Sec. S10).

    `20 log10(range of the truth's image) - 10 log10(MSE of the Laplacians)`. The range is the image's: the number does
    not depend on the truth's sharpest voxel.
    """
    check_pair(prediction, truth)
    filtered = [laplacian(v.double())[None, None] for v in (prediction, truth)]
    return PSNRMetric(max_val=data_range(truth))(*filtered).item()  # type: ignore[union-attr]  # MONAI: or a list


def gradient_rmse(prediction: Tensor, truth: Tensor, axis: int) -> float:
    """Grad-RMSE, `sqrt(mean((grad_z prediction - grad_z truth)^2))` with the slice axis as z (Eq. S4).

    The gradient is the difference of neighbouring slices of the fine grid, in shares of the truth's range per voxel.
    """
    check_pair(prediction, truth)
    error = (prediction.double() - truth.double()).diff(dim=axis) / data_range(truth)
    return error.square().mean().sqrt().item()


def lesion_sizes(mask: Tensor) -> Tensor:
    """For each voxel, how many voxels its lesion has, 0 outside of lesions; a mask is above 0 in them.

    Voxels that touch, if only at a corner, are one lesion.
    """
    labels, _ = ndimage.label(mask.cpu().numpy() > 0, TOUCHING)
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    return torch.from_numpy(sizes[labels]).to(mask.device)


def lesion_contrast_kept(
    prediction: Tensor, truth: Tensor, sizes: Tensor, below: float = math.inf, least: float = 0
) -> float:
    """Contrast of lesions over their contrast in the truth: 1 where they stand out as before, 0 where they are gone.

    A lesion's contrast is its mean less the mean of the ring of two voxels around it, without other lesions. Each
    lesion has a ratio of its own, so that bright and dark ones do not cancel. Its weight is its contrast in the truth:
    the ratio of a faint one is mostly noise.

    Example: one lesion is 40 above its ring, and 20 above it in the prediction. Another is 10 below its ring in both.
    The ratios are 0.5 and 1, the result is (40 x 0.5 + 10 x 1) / 50 = 0.6.

    Args:
        sizes: `(X, Y, Z)`, see `lesion_sizes`.
        below, least: only lesions of fewer than `below` voxels count, and of `least` or more.

    Returns:
        The weighted mean of the ratios; NaN where there is no such lesion, or none that has a ring and a contrast.
    """
    check_pair(prediction, truth)
    voxels = sizes.cpu().numpy()
    volumes = [volume.double().cpu().numpy() for volume in (prediction, truth)]
    labels, _ = ndimage.label((voxels > 0) & (voxels >= least) & (voxels < below), TOUCHING)
    kept = whole = 0.0
    for label, box in enumerate(ndimage.find_objects(labels), 1):
        wide = tuple(slice(max(side.start - RING, 0), side.stop + RING) for side in box)
        inside = labels[wide] == label
        ring = ndimage.binary_dilation(inside, iterations=RING) & (voxels[wide] == 0)
        if ring.any():
            after, before = (volume[wide][inside].mean() - volume[wide][ring].mean() for volume in volumes)
            kept += np.sign(before) * after  # |before| x after / before
            whole += abs(before)
    return kept / whole if whole else math.nan


def covered(error: Tensor, width: Tensor, mask: Tensor) -> float:
    """The share of a mask's voxels where the error's magnitude is within the half-width; NaN for an empty mask."""
    return (error <= width)[mask].double().mean().item()


def width_and_rank(error: Tensor, width: Tensor, head: Tensor) -> dict[str, float]:
    """The gain of an error map over a constant bound, and how far its order agrees with the errors'.

    Args:
        error, width, head: as in `covered`, with half-widths of 90 %.

    Returns:
        `error_width`, the mean half-width over the constant that holds as many of the head's errors; and `error_rank`,
        Spearman's rank correlation of half-width and error in the head.
    """
    errors, widths = (volume[head].double().cpu().numpy() for volume in (error, width))
    constant = np.quantile(errors, np.mean(errors <= widths))
    return {
        "error_width": float(widths.mean() / constant) if constant else math.nan,
        "error_rank": float(stats.spearmanr(widths, errors).statistic),
    }
