"""Does the result agree with what was measured: acquire it again with the slice model and compare, or reconcile it.

The acquisition is `y = A x` along the slice axis alone, `x` the result's fine slices, `y` the measured thick ones and
`A` the small matrix of `profile.slice_matrix`. The model must be told how the slices were acquired: with another
profile or another gap the difference holds the model's error as well, and the projection puts it into the result.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from ..errors import InputError
from ..stack.acquisition import Acquisition
from ..stack.intensity import intensity_range
from ..stack.profile import acquire, along_slices, slice_matrix
from ..stack.tissue import head_mask

SMOOTHNESS = 0.6  # slice spacings; over which errors of the result go together, see `project`
RESULT_ERROR = 0.02  # standard deviation, as a share of the range of the scan's tissue (docs/benchmarks.md)


def projects(consistency: str) -> bool:
    """Whether results are moved onto the measurement, for each value of the option `consistency`.

    Raises:
        InputError: if there is no such value.
    """
    if consistency not in ("measure", "project"):
        raise InputError(f"consistency is {consistency!r}: expected measure or project. Set --consistency.")
    return consistency == "project"


def difference(result: Tensor, measured: Tensor, acquisition: Acquisition) -> Tensor:
    """The map: what the scanner would have measured of the result, less what it did measure, `A x - y`.

    Args:
        result: `(X, Y, Z)` on the fine grid.
        measured: `(X, Y, Z)`, the slices, in the units of `result`.
        acquisition: of the slices.

    Returns:
        `(X, Y, Z)` on the grid of `measured`, in the same units.

    Raises:
        TypeError: if the result holds integers.
        ValueError: if the two are not on the grids of the acquisition.
    """
    again = acquire(result, acquisition)
    if again.shape != measured.shape:
        raise ValueError(
            f"result is {tuple(result.shape)}, the measured scan {tuple(measured.shape)}: expected one field of view. "
            "Check the acquisition."
        )
    return again - measured.to(result)


def relative_rmse(difference: Tensor, measured: Tensor) -> float:
    """The number: RMS of the difference over the head, divided by the RMS of the measured intensities there.

    Zero intensity is no signal. The head is `tissue.head_mask` of the measured slices, with negative values, left in
    air by noise or resampling, taken for zero. 0 is full agreement; a result that is rightly free of the scan's noise
    has that noise as difference, and a slice model that is wrong counts as well.

    Args:
        difference: `(X, Y, Z)`, of the function of that name.
        measured: `(X, Y, Z)`.

    Raises:
        ValueError: if the measured scan is constant or nowhere positive, or has NaN or infinite voxels.
    """
    measured = measured.to(difference)
    head = head_mask(measured.clamp(min=0))
    error, signal = (volume[head].double().square().mean().sqrt() for volume in (difference, measured))
    return (error / signal).item()


def noise_sd(measured: Tensor, axis: int) -> float:
    """Standard deviation of the noise in measured slices, in their units: what a mask that is blind to ramps leaves.

    Immerkaer, Comput. Vis. Image Underst. 64:300-302 (1996), with the median in place of the mean, which edges would
    raise. It takes the noise of neighbouring pixels for independent: in scans that were interpolated in plane it finds
    less than there is.

    Args:
        measured: `(X, Y, Z)`, not constant.
        axis: slice axis.
    """
    second_difference = np.array([1.0, -2.0, 1.0])
    mask = np.expand_dims(np.outer(second_difference, second_difference), axis % 3)
    response = ndimage.convolve(measured.cpu().float().numpy(), mask, mode="nearest")
    inside = head_mask(measured.clamp(min=0)).cpu().numpy()
    return float(np.median(np.abs(response[inside])) / (0.6745 * np.linalg.norm(mask)))  # median of |N(0, 1)|


def project(
    result: Tensor, measured: Tensor, acquisition: Acquisition, regularisation: float, smoothness: float = 0.0
) -> Tensor:
    """Moves the result onto the measurement by the smallest change, `x + C A^T (A C A^T + lambda I)^-1 (y - A x)`.

    With `d = x' - x` this minimises `d^T C^-1 d + |A x' - y|^2 / lambda`: the most likely volume where the scan's noise
    is white, `C` is the correlation of the result's errors along the slice axis, and lambda is the variance of the
    noise over that of the errors. Where errors are white, `C = I`, the change has the shape of the slices, and steps.

    Args:
        result, measured, acquisition: as `difference`.
        regularisation: lambda. `A A^T` is about 1/n for contiguous slices of n fine ones; patterns that the slices
            hardly see, where noise and a wrong profile would be amplified, are left alone. 0 meets the measurement as
            nearly as the model can.
        smoothness: standard deviation of the Gaussian that the errors are correlated by, in slice spacings; 0 for white
            ones. Slices see as much of either.

    Returns:
        `(X, Y, Z)` on the fine grid.

    Raises:
        TypeError: as `difference`.
        ValueError: as `difference`, or if the regularisation is negative.
    """
    if not regularisation >= 0:
        raise ValueError(f"regularisation is {regularisation}: expected 0 or more.")
    surplus = difference(result, measured, acquisition)
    matrix = slice_matrix(acquisition).double()
    spread = matrix.T  # C A^T
    if smoothness:
        place = torch.arange(matrix.shape[1]) * acquisition.target_spacing / (smoothness * acquisition.slice_spacing)
        spread = torch.exp(-((place[:, None] - place).double() ** 2) / 2) @ matrix.T
        spread *= (matrix @ matrix.T).trace() / (matrix @ spread).trace()
    normal = matrix @ spread + regularisation * torch.eye(len(matrix), dtype=torch.float64)
    # pseudo-inverse: overlapping slices can be linearly dependent, and lambda may be 0
    gain = spread @ torch.linalg.pinv(normal, rtol=1e-9, hermitian=True)
    return result - along_slices(gain, surplus, acquisition)


def reconcile(result: Tensor, measured: Tensor, acquisition: Acquisition) -> Tensor:
    """The projection as a real scan bears it: the slices' gains are fitted, and noise is left in the measurement.

    Each measured slice is first multiplied by what brings it nearest to the result, as interleaved slices differ in
    gain by a few percent and would show as bands. The change is smooth from slice to slice. Lambda is the variance of
    the scan's noise, `noise_sd`, over that of the result's errors, `RESULT_ERROR` of its tissue's range.

    Args:
        result, measured, acquisition: as `difference`; zero intensity is no signal.

    Returns:
        `(X, Y, Z)` on the fine grid; the result itself where the measured scan is constant or nowhere positive.

    Raises:
        TypeError, ValueError: as `difference`.
    """
    surplus = difference(result, measured, acquisition)
    if measured.max() <= max(measured.min().item(), 0):
        return result
    axis = acquisition.slice_axis
    in_slice = [a for a in range(3) if a != axis]
    slices = measured.to(result).double()  # whose squares neither overflow nor vanish
    energy = slices.square().sum(in_slice, keepdim=True).clamp(min=torch.finfo(slices.dtype).tiny)
    slices = slices * (1 + (surplus * slices).sum(in_slice, keepdim=True) / energy)
    low, high, _ = intensity_range(measured)
    error_sd = RESULT_ERROR * (high - low)
    regularisation = (noise_sd(measured, axis) / error_sd) ** 2
    return project(result, slices.to(result), acquisition, regularisation, SMOOTHNESS)
