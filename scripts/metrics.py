"""Image quality of a rebuilt volume against its truth, along and across the slice axis.

Every function takes `(X, Y, Z)` volumes on one grid and in one unit. Intensity scales and masks come from the truth
alone, so that no method is measured on a scale of its own; multiplying both volumes by one factor, or adding one
constant to both, changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from monai.metrics import PSNRMetric, SSIMMetric
from scipy import ndimage
from torch import Tensor
from torch.nn.functional import pad

from .intensity import intensity_range

SSIM_WINDOW = 11  # pixels; MONAI's, and Wang et al.'s
HEAD_THRESHOLD = 0.1  # of the range of the truth's tissue


def _check(prediction: Tensor, truth: Tensor) -> None:
    if prediction.shape != truth.shape or truth.dim() != 3:
        raise ValueError(
            f"prediction is {tuple(prediction.shape)}, truth {tuple(truth.shape)}: expected two volumes (X, Y, Z) of "
            "one shape. Resample the prediction to the truth's grid first."
        )


def data_range(truth: Tensor) -> float:
    """Largest minus smallest intensity of the truth.

    Raises:
        ValueError: if the truth holds one value, or NaN or infinite ones.
    """
    extent = float(truth.max()) - float(truth.min())
    if not 0 < extent < math.inf:
        raise ValueError(f"truth has an intensity range of {extent}: expected a positive one. Leave this volume out.")
    return extent


def psnr(prediction: Tensor, truth: Tensor, mask: Tensor | None = None) -> float:
    """Peak signal-to-noise ratio over the volume, `20 log10(range) - 10 log10(MSE)`, in dB (Sec. 4.1).

    Args:
        prediction: `(X, Y, Z)`.
        truth: `(X, Y, Z)`; its whole range is the peak.
        mask: `(X, Y, Z)` bool, the voxels whose error counts; all without it.

    Returns:
        dB; infinite where the volumes are equal.

    Raises:
        ValueError: if shapes differ, the truth is constant, or the mask is empty.
    """
    _check(prediction, truth)
    peak = data_range(truth)
    if mask is not None:
        if not mask.any():
            raise ValueError("mask holds no voxel: expected one or more. Check the truth that it was made from.")
        prediction, truth = prediction[mask], truth[mask]
    pair = prediction.double()[None, None], truth.double()[None, None]
    return PSNRMetric(max_val=peak)(*pair).item()  # type: ignore[union-attr]  # MONAI: or a list


def ssim(prediction: Tensor, truth: Tensor) -> float:
    """Structural similarity of 2-D slices, averaged over each direction's slices, then over directions (Sec. 4.1).

    Wang et al., IEEE Trans. Image Process. 13:600-612 (2004). Both volumes are mapped as takes the truth to [0, 1]. A
    direction whose slices are smaller than the window is left out.

    Args:
        prediction: `(X, Y, Z)`.
        truth: `(X, Y, Z)`.

    Returns:
        At most 1; NaN where no direction has slices as large as the window.

    Raises:
        ValueError: if shapes differ or the truth is constant.
    """
    _check(prediction, truth)
    low, extent = truth.min(), data_range(truth)
    # float32, as MONAI computes; after the map its cancellation in E[x^2] - E[x]^2 does not matter
    unit_prediction, unit_truth = (((v.double() - low) / extent).float() for v in (prediction, truth))
    metric = SSIMMetric(spatial_dims=2, data_range=1.0, win_size=SSIM_WINDOW)
    directions = []
    for normal in range(3):
        pair = [v.movedim(normal, 0)[:, None].contiguous() for v in (unit_prediction, unit_truth)]  # (slices, 1, H, W)
        if min(pair[0].shape[2:]) >= SSIM_WINDOW:
            directions.append(metric(*pair).double().mean().item())  # type: ignore[union-attr]  # MONAI: or a list
    return float(np.mean(directions)) if directions else math.nan


def laplacian(volume: Tensor) -> Tensor:
    """Sum of the second differences along the three axes, in intensity per voxel squared; edges are repeated.

    Args:
        volume: `(X, Y, Z)`.

    Returns:
        `(X, Y, Z)`.
    """
    result = torch.zeros_like(volume)
    for axis in range(3):
        moved = volume.movedim(axis, -1)
        padded = pad(moved, (1, 1), mode="replicate")
        result += padded.diff(n=2, dim=-1).movedim(-1, axis)
    return result


def hf_psnr(prediction: Tensor, truth: Tensor) -> float:
    """PSNR of the high-pass filtered volumes, in dB (Sec. S10).

    `20 log10(range of the truth's image) - 10 log10(MSE of the Laplacians)`: the range stays the image's, so that
    the number does not depend on the truth's sharpest voxel.

    Args:
        prediction: `(X, Y, Z)`.
        truth: `(X, Y, Z)`.

    Raises:
        ValueError: if shapes differ or the truth is constant.
    """
    _check(prediction, truth)
    filtered = [laplacian(v.double())[None, None] for v in (prediction, truth)]
    return PSNRMetric(max_val=data_range(truth))(*filtered).item()  # type: ignore[union-attr]  # MONAI: or a list


def gradient_rmse(prediction: Tensor, truth: Tensor, axis: int) -> float:
    """Grad-RMSE, `sqrt(mean((grad_z prediction - grad_z truth)^2))` with the slice axis as z (Eq. S4).

    The gradient is the difference of neighbouring slices of the fine grid, in shares of the truth's range per voxel.

    Args:
        prediction: `(X, Y, Z)`.
        truth: `(X, Y, Z)`.
        axis: slice axis.

    Raises:
        ValueError: if shapes differ or the truth is constant.
    """
    _check(prediction, truth)
    error = (prediction.double() - truth.double()).diff(dim=axis) / data_range(truth)
    return error.square().mean().sqrt().item()


def through_plane_bands(slice_thickness: float, spacing: float) -> list[tuple[float, float]]:
    """Frequency bands above what thick slices can hold, from the easiest to rebuild to the hardest.

    From the Nyquist frequency of contiguous slices to the first zero of a box of their thickness, `1/(2T)` to `1/T`;
    from there to half the fine grid's Nyquist frequency; from half of it to all of it.

    Args:
        slice_thickness: `T` in mm.
        spacing: of the fine grid, in mm.

    Returns:
        Lower and upper edges in cycles/mm. A band is empty where its lower edge is not below its upper.
    """
    nyquist = 1 / (2 * spacing)
    first_zero = 1 / slice_thickness
    return [(first_zero / 2, first_zero), (first_zero, nyquist / 2), (nyquist / 2, nyquist)]


def _line_power(volume: Tensor, axis: int) -> Tensor:
    """Power at each frequency along an axis, summed over its lines; `(count // 2 + 1,)`.

    Without the window, a head that is cut off at the field of view's border is a step between the line's two ends, and
    its spectrum covers the frequencies of interest.
    """
    lines = volume.double().movedim(axis, -1)
    lines = lines - lines.mean(-1, keepdim=True)
    window = torch.hann_window(lines.shape[-1], periodic=False, dtype=lines.dtype, device=lines.device)
    return torch.fft.rfft(lines * window).abs().square().sum((0, 1))


def power_density(volume: Tensor, axis: int, spacing: float) -> tuple[Tensor, Tensor]:
    """Power spectrum along an axis, averaged over its lines, per unit of frequency.

    It compares directions of one scan whose voxels differ in size: an ideal scan of isotropic tissue has one density in
    all of them.

    Args:
        volume: `(X, Y, Z)`.
        axis: along which.
        spacing: along it, in mm.

    Returns:
        Frequencies in cycles/mm, from 0 to Nyquist, and the density there, in squared intensity times mm.
    """
    count = volume.shape[axis]
    frequencies = torch.fft.rfftfreq(count, d=spacing, dtype=torch.float64, device=volume.device)
    lines = volume.numel() / count
    window_power = torch.hann_window(count, periodic=False, dtype=torch.float64).square().sum().item()
    return frequencies, _line_power(volume, axis) * (spacing / (lines * window_power))


def directional_power_ratio(
    volume: Tensor, axis: int, reference: int, spacings: Sequence[float], band: tuple[float, float]
) -> float:
    """Power along the slice axis over power along an in-plane axis, in dB: 0 is as sharp through slices as within.

    Args:
        volume: `(X, Y, Z)`.
        axis: slice axis.
        reference: in-plane axis.
        spacings: of the three axes, in mm.
        band: lower and upper frequency in cycles/mm.

    Returns:
        `10 log10` of the ratio of the mean densities in the band.

    Raises:
        ValueError: if an axis has no frequency in the band.
    """
    densities = []
    for a in (axis, reference):
        frequencies, density = power_density(volume, a, spacings[a])
        inside = (frequencies >= band[0]) & (frequencies < band[1])
        if not inside.any():
            raise ValueError(f"axis {a} has no frequency in {band} cycles/mm: expected a wider band.")
        densities.append(density[inside].mean())
    return 10 * (densities[0] / densities[1]).log10().item()


def power_ratios(
    prediction: Tensor, truth: Tensor, axis: int, spacing: float, bands: Sequence[tuple[float, float]]
) -> list[float]:
    """Through-plane power of a volume relative to the truth's, `10 log10(P_prediction / P_truth)` in each band.

    `P` is the power spectrum along the slice axis, Hann-windowed, summed over all lines and over the band. 0 dB is as
    much detail as the truth has, right or wrong; less is blur, more is noise or steps.

    Args:
        prediction: `(X, Y, Z)`.
        truth: `(X, Y, Z)`.
        axis: slice axis.
        spacing: along it, in mm.
        bands: lower and upper edges in cycles/mm; a band holds its lower edge, and its upper one only at Nyquist.

    Returns:
        dB for each band; NaN for one without a frequency of the discrete spectrum.

    Raises:
        ValueError: if shapes differ.
    """
    _check(prediction, truth)
    count = truth.shape[axis]
    cycles = torch.fft.rfftfreq(count, dtype=torch.float64, device=truth.device)  # cycles per voxel, 0 to 0.5
    power, reference = _line_power(prediction, axis), _line_power(truth, axis)
    ratios = []
    for low, high in bands:
        below = 1.0 if high * spacing > 0.5 - 1e-9 else high * spacing - 1e-9  # Nyquist belongs to the last band
        inside = (cycles >= low * spacing - 1e-9) & (cycles < below)
        ratio = power[inside].sum() / reference[inside].sum()  # 0 / 0 is NaN
        ratios.append(10 * ratio.log10().item())
    return ratios


def head_mask(truth: Tensor) -> Tensor:
    """Voxels of the head, from the truth alone: PSNR over a field of view that is half air says little about anatomy.

    Brighter than a tenth of the range of tissue (`intensity.intensity_range`); holes filled slice by slice in each
    direction, since skull and sinuses reach the border of the field of view; the largest connected part of it.

    Args:
        truth: `(X, Y, Z)`.

    Returns:
        `(X, Y, Z)` bool.

    Raises:
        ValueError: if the truth is constant.
    """
    data_range(truth)
    low, high, _ = intensity_range(truth)
    inside = truth.cpu().numpy() > low + HEAD_THRESHOLD * (high - low)
    cross = ndimage.generate_binary_structure(3, 1)
    for normal in range(3):
        in_slice = cross.copy()
        in_slice.swapaxes(0, normal)[[0, 2]] = False
        inside |= ndimage.binary_fill_holes(inside, in_slice)
    parts, _ = ndimage.label(inside)
    largest = np.bincount(parts.ravel())[1:].argmax() + 1
    return torch.from_numpy(parts == largest).to(truth.device)
