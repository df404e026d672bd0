"""Whether a result agrees with the measured slices, and how it is reconciled with them.

The slice model acquires the result again: `y = A x` along the slice axis. `x` are the result's fine slices, `y` the
thick ones, and `A` is the small matrix of `profile.slice_matrix`.

The model must know how the slices were acquired. With a wrong profile or gap, the difference holds the model's error
too, and the projection carries that error into the result.
"""

from dataclasses import replace

import torch
from torch import Tensor

from ..stack.profile import acquire, along_slices, slice_matrix
from ..stack.slices import Slices

SMOOTHNESS = 0.6  # slice spacings; the correlation length of the result's errors, see `project`
RESULT_ERROR = 0.02  # standard deviation of those errors, as a share of the tissue's range (docs/benchmarks.md)


def difference(result: Tensor, slices: Slices) -> Tensor:
    """The map `A x - y`: what the scanner would measure of the result, minus what it did measure.

    The result, `(X, Y, Z)`, lies on the fine grid; the map lies on that of the measured slices, `(X, Y, Z)`. All three
    have one unit.
    """
    again = acquire(result, slices.acquisition)
    if again.shape != slices.shape:
        raise ValueError(
            f"result is {tuple(result.shape)}, the measured scan {tuple(slices.shape)}: expected one field of view. "
            "Check the acquisition."
        )
    return again - slices.array.to(result)


def relative_rmse(difference: Tensor, slices: Slices) -> float:
    """The number: RMS of the difference in the head, divided by the RMS of the measured intensities there.

    0 is full agreement. Two things other than a wrong result raise it. A result without the scan's noise differs by
    that noise. A wrong slice model differs too.

    Intensities of the measured slices count from the scan's floor up.
    """
    head = slices.head
    error, signal = (one[head].double().square().mean().sqrt() for one in (difference.cpu(), slices.above_floor))
    return (error / signal).item()


def project(result: Tensor, slices: Slices, regularisation: float, smoothness: float) -> Tensor:
    """Moves the result onto the measurement by the smallest change, `x' = x + C A^T (A C A^T + lambda I)^-1 (y - A x)`.

    The change `d = x' - x` minimises `d^T C^-1 d + |A x' - y|^2 / lambda`. So `x'` is the most likely volume if

    - the scan's noise is white,
    - `C` is the correlation of the result's errors along the slice axis,
    - lambda is the variance of the noise over the variance of those errors.

    With `C = I` the errors are white. The change then has the shape of the slices, and brings steps.

    Args:
        result, slices: as in `difference`.
        regularisation: lambda. For contiguous slices of n fine ones, `A A^T` is about 1/n. Patterns that the slices
            hardly see are left alone: there the projection would amplify noise and a wrong profile. 0 meets the
            measurement as nearly as the model can.
        smoothness: standard deviation of the Gaussian correlation of the errors, in slice spacings; 0 for white
            errors. The slices see as much of smooth errors as of white ones.

    Returns:
        `(X, Y, Z)` on the fine grid.
    """
    if not regularisation >= 0:
        raise ValueError(f"regularisation is {regularisation}: expected 0 or more.")
    acquisition, surplus = slices.acquisition, difference(result, slices)
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


def reconcile(result: Tensor, slices: Slices) -> Tensor:
    """The projection for real scans: it fits the gain of every slice, and it leaves noise in the measurement.

    Interleaved slices differ in gain by a few percent, which would show as bands. So each measured slice is first
    scaled to fit the result best. The change is smooth from slice to slice.

    Lambda is the variance of the scan's noise over the variance of the result's errors. `Slices.noise` gives the first.
    `RESULT_ERROR` of the tissue's range is the standard deviation of the second.

    Args:
        result, slices: as in `difference`. No signal is the floor of the slices. Constant ones give the result itself.
    """
    surplus = difference(result, slices)
    if slices.constant:
        return result
    in_slice = [a for a in range(3) if a != slices.acquisition.slice_axis]
    low, high, _ = slices.scale
    signal = slices.array.to(result).double() - low  # whose squares neither overflow nor vanish
    energy = signal.square().sum(in_slice, keepdim=True).clamp(min=torch.finfo(signal.dtype).tiny)
    fitted = low + signal * (1 + (surplus * signal).sum(in_slice, keepdim=True) / energy)
    regularisation = (slices.noise / (RESULT_ERROR * (high - low))) ** 2
    return project(result, replace(slices, array=fitted.to(result)), regularisation, SMOOTHNESS)
