"""Whether a result agrees with the measured slices, and how it is reconciled with them.

The slice model acquires the result again: `y = A x` along the slice axis. `x` are the result's fine slices, `y` the
thick ones, and `A` is the small matrix of `profile.slice_matrix`.

The model must know how the slices were acquired. With a wrong profile or gap, the difference holds the model's error
too, and the projection carries that error into the result.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from scipy import fft, ndimage
from torch import Tensor

from ..stack.acquisition import Acquisition
from ..stack.noise import cosine_frequencies, magnitude
from ..stack.profile import acquire, along_slices, slice_matrix
from ..stack.slices import Slices

SMOOTHNESS = 0.6  # slice spacings; the correlation length of the result's errors, see `project`
ERROR, COARSE, STEEP = 0.1, 0.23, 4  # of `error_deviation`: share of the range, cycles per voxel, exponent
DEPENDENT = 1e-9  # of the largest eigenvalue; a smaller one is of slices that depend on others
QUIET = 0.003  # of the range; slices have at least this noise, since no model of them is exact


def difference(result: Tensor, slices: Slices) -> Tensor:
    """The map `A x - y`: the slices that the scanner would measure of the result, minus the measured ones.

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


def compared(slices: Slices) -> Tensor:
    """Where a result is compared with its slices, `(X, Y, Z)` bool: the head, without hot spots.

    A spot of 80 times the tissue leaks into the slices beside it: there, they do not count either. In squares it
    would outweigh all else that is wrong.
    """
    hot = slices.array > slices.tissue_range.ceiling
    cross = np.zeros((3, 3, 3), dtype=bool)
    cross.swapaxes(0, slices.acquisition.slice_axis)[:, 1, 1] = True
    return slices.head & ~torch.from_numpy(ndimage.binary_dilation(hot.numpy(), cross))


def rmse(difference: Tensor, slices: Slices) -> float:
    """RMS of the difference where result and slices are `compared`, in their units."""
    return difference.cpu()[compared(slices)].double().square().mean().sqrt().item()


def relative_rmse(difference: Tensor, slices: Slices) -> float:
    """The number: `rmse`, divided by the RMS of the measured intensities there.

    0 is full agreement. Two things other than a wrong result raise it. A result without the scan's noise differs by
    that noise. A wrong slice model differs too.

    Intensities of the measured slices count from the scan's floor up.
    """
    return rmse(difference, slices) / rmse(slices.above_floor, slices)


def project(result: Tensor, slices: Slices, regularisation: float | Tensor, smoothness: float) -> Tensor:
    """Moves the result onto the measurement by the smallest change, `x' = x + C A^T (A C A^T + lambda I)^-1 (y - A x)`.

    The change `d = x' - x` minimises `d^T C^-1 d + |A x' - y|^2 / lambda`. So `x'` is the most likely volume if

    - the noise of neighbouring slices is independent,
    - `C` is the correlation of the result's errors along the slice axis,
    - lambda is the variance of the noise over the variance of those errors.

    With `C = I` the errors are white. The change then has the shape of the slices, and brings steps.

    Args:
        result, slices: as in `difference`.
        regularisation: lambda, or one for each in-plane frequency, as the cosine transform of a slice orders them. For
            contiguous slices of n fine ones, `A A^T` is about 1/n. Patterns that the slices hardly see are left alone:
            there the projection would amplify noise and a wrong profile. 0 meets the measurement as nearly as the
            model can.
        smoothness: standard deviation of the Gaussian correlation of the errors, in slice spacings; 0 for white
            errors. The slices see as much of smooth errors as of white ones.

    Returns:
        `(X, Y, Z)` on the fine grid.
    """
    acquisition, cross, normal = slices.acquisition, *_covariances(slices.acquisition, smoothness)
    values, patterns = torch.linalg.eigh(normal)
    surplus = difference(result, slices).double().cpu()  # where the transform is
    seen = along_slices(patterns.T, surplus, acquisition).movedim(acquisition.slice_axis, -1)
    if isinstance(regularisation, Tensor):
        damped = (values.clamp(min=0) + regularisation[..., None]).numpy()
        weighed = fft.dctn(seen.numpy(), axes=(0, 1), norm="ortho") / damped  # slices are mirrored at their ends
        moved = torch.from_numpy(fft.idctn(weighed, axes=(0, 1), norm="ortho"))
    elif regularisation >= 0:
        # overlapping slices can be linearly dependent, and lambda may be 0: what no slice sees stays
        damped = values + regularisation
        moved = seen * torch.where(damped > DEPENDENT * damped.max(), 1 / damped, 0)
    else:
        raise ValueError(f"regularisation is {regularisation}: expected 0 or more.")
    change = along_slices(cross @ patterns, moved.movedim(-1, acquisition.slice_axis), acquisition)
    return result - change.to(result)


@lru_cache(maxsize=64)
def unseen(acquisition: Acquisition) -> Tensor:
    """The matrix that takes from a result all that its slices see, `(fine_count, fine_count)`, by a smooth change.

    It is that of `project` onto slices of 0 with `regularisation` 0: `I - C A^T (A C A^T)^-1 A`.
    """
    cross, normal = _covariances(acquisition, SMOOTHNESS)
    seen = torch.linalg.pinv(normal, rtol=DEPENDENT, hermitian=True) @ slice_matrix(acquisition).double()
    return torch.eye(len(cross), dtype=cross.dtype) - cross @ seen


@lru_cache(maxsize=64)
def _covariances(acquisition: Acquisition, smoothness: float) -> tuple[Tensor, Tensor]:
    """`C A^T` and `A C A^T`, see `project`."""
    matrix = slice_matrix(acquisition).double()
    cross = matrix.T
    if smoothness:
        place = torch.arange(matrix.shape[1]) * acquisition.target_spacing / (smoothness * acquisition.slice_spacing)
        cross = torch.exp(-((place[:, None] - place).double() ** 2) / 2) @ matrix.T
        cross *= (matrix @ matrix.T).trace() / (matrix @ cross).trace()
    normal = matrix @ cross
    return cross, (normal + normal.T) / 2


def error_deviation(frequency: np.ndarray) -> np.ndarray:
    """How far a result may differ from clean slices at an in-plane frequency, as a share of the range.

        E = 0.1 / (1 + (f / 0.23)^4)

    Patterns of five voxels and more may be wrong by 10 % of the range: a lesion may be lost. Where patterns are finer,
    networks lose little but noise. The numbers balance PSNR and lesions in noise (docs/benchmarks.md).

    >>> error_deviation(np.array([0, 0.23, 0.46])).round(4).tolist()
    [0.1, 0.05, 0.0059]

    Args:
        frequency: in cycles per voxel of the target.
    """
    return ERROR / (1 + (frequency / COARSE) ** STEEP)


def noise_over_error(slices: Slices) -> Tensor:
    """Lambda of `project` for each in-plane frequency: the variance of the noise over that of the result's errors.

    Coarse differences from the slices are measured well: a blob of 20 pixels has a quarter of a pixel's noise, and the
    errors of results are largest there. At fine frequencies noise outweighs errors. So a lesion goes back, and
    fine noise does not (Wiener's filter).
    """
    acquisition = slices.acquisition
    in_plane = [axis for axis in range(3) if axis != acquisition.slice_axis]
    per_pixel = [cosine_frequencies(slices.shape[axis]) for axis in in_plane]
    target = acquisition.target_spacing
    per_voxel = np.hypot(*np.ix_(*(f * target / slices.edges[axis] for f, axis in zip(per_pixel, in_plane))))
    power = np.square(slices.noise_share) * slices.noise.power(*per_pixel)
    error = np.square(error_deviation(per_voxel))
    _, normal = _covariances(acquisition, SMOOTHNESS)
    return torch.from_numpy((power + QUIET**2) / error) * normal.diagonal().mean()


def reconcile(result: Tensor, slices: Slices, without: Sequence[int] = ()) -> Tensor:
    """The projection for real scans: it fits the gain of every slice, and it leaves noise in the measurement.

    Interleaved slices differ in gain by a few percent, which would show as bands. So each measured slice is first
    scaled to fit the result best. The change is smooth from slice to slice.

    The scanner would measure the result with noise, whose magnitude raises dark voxels. In air nothing is compared.

    Args:
        result, slices: as in `difference`. No signal is the floor of the slices. Constant ones give the result itself.
        without: indices of slices onto which nothing is moved.
    """
    surplus = difference(result, slices)
    if slices.constant:
        return result
    in_slice = [a for a in range(3) if a != slices.acquisition.slice_axis]
    low, head = slices.tissue_range.low, slices.head.to(result)
    signal = slices.array.to(result).double() - low  # whose squares neither overflow nor vanish
    again = (surplus + signal).clamp(min=0)
    surplus = (magnitude(again, slices.noise.deviation) - signal) * head
    inside = signal * head
    energy = inside.square().sum(in_slice, keepdim=True).clamp(min=torch.finfo(signal.dtype).tiny)
    surplus = surplus - inside * ((surplus * inside).sum(in_slice, keepdim=True) / energy)
    left_out = torch.tensor(without, dtype=torch.long, device=surplus.device)
    surplus.index_fill_(slices.acquisition.slice_axis, left_out, 0)
    fitted = acquire(result, slices.acquisition) - surplus
    return project(result, slices.like(fitted), noise_over_error(slices), SMOOTHNESS)
