"""The physics of a thick slice: a pulse excites a slice profile, and the scanner sums the anatomy under it (Sec. S1).

    pulse -> profile -> kernel on the fine grid -> matrix (thick slices x fine slices)

The acquisition of a stack is linear and acts along the slice axis alone. It is therefore one small matrix.
"""

from functools import lru_cache

import numpy as np
import torch
from scipy.integrate import cumulative_trapezoid
from scipy.optimize import brentq
from scipy.signal import firls
from torch import Tensor

from ..errors import InputError
from .acquisition import SLR, Acquisition, Profile

PULSE_LENGTH = 256  # samples
RIPPLE = 0.01  # of the magnetisation, within the slice and beside it


def full_width_half_maximum(z: np.ndarray, profile: np.ndarray) -> float:
    """Width of a single-peaked curve at half its maximum, in the unit of `z`. The curve is linear between samples.

    >>> full_width_half_maximum(np.arange(5.0), np.array([0.0, 1.0, 2.0, 1.0, 0.0]))
    2.0
    """
    half = profile.max() / 2
    above = np.flatnonzero(profile >= half)
    first, last = above[0], above[-1]
    left = np.interp(half, profile[first - 1 : first + 1], z[first - 1 : first + 1])
    right = np.interp(-half, -profile[last : last + 2], z[last : last + 2])
    return float(right - left)


@lru_cache(maxsize=64)
def slr_profile(time_bandwidth: float = SLR) -> tuple[np.ndarray, np.ndarray]:
    """Magnitude slice profile of a 90 degree, linear-phase SLR excitation pulse.

    Pauly et al., IEEE Trans. Med. Imaging 10:53-65 (1991). The pulse is designed by its polynomials A and B. B is a
    low-pass filter, here of least squares, and |A|^2 = 1 - |B|^2. The pulse leaves |Mxy| = 2 |A| |B|. The phase that is
    left after rephasing is neglected.

    Args:
        time_bandwidth: time-bandwidth product of the pulse. A larger one gives sharper edges; below 2 it selects no
            slice.

    Returns:
        Positions from the centre, in slice widths (full width at half maximum), and |Mxy| there.
    """
    if not time_bandwidth >= 2:
        raise ValueError(f"time-bandwidth product is {time_bandwidth}: expected 2 or more, 4 is common.")
    pass_ripple, stop_ripple = np.sqrt(RIPPLE / 2), RIPPLE / np.sqrt(2)  # of B at 90 degrees
    p, s = np.log10(pass_ripple), np.log10(stop_ripple)
    transition = (5.309e-3 * p**2 + 7.114e-2 * p - 0.4761) * s - 2.66e-3 * p**2 - 0.5941 * p - 0.4278  # D_inf
    edges = np.array([0, time_bandwidth - transition, time_bandwidth + transition, PULSE_LENGTH]) / PULSE_LENGTH
    taps = firls(PULSE_LENGTH + 1, edges, [1, 1, 0, 0], weight=[1, pass_ripple / stop_ripple])
    x = np.linspace(-1.5 * time_bandwidth, 1.5 * time_bandwidth, 3001)  # nominal slice: |x| < time_bandwidth / 2
    turns = np.outer(x, np.arange(len(taps)) / PULSE_LENGTH - 0.5)
    b = np.sqrt(0.5) * np.cos(2 * np.pi * turns) @ taps
    profile = 2 * np.abs(b) * np.sqrt(1 - b**2)
    z = x / full_width_half_maximum(x, profile)
    for array in (z, profile):
        array.setflags(write=False)  # cached
    return z, profile


def slice_profile(profile: Profile) -> tuple[np.ndarray, np.ndarray]:
    """Magnitude of the transverse magnetisation across a slice.

    Args:
        profile: a number is the time-bandwidth product of an SLR pulse, the paper's profile. `"gaussian"` is that of a
            short Gaussian pulse, `"rectangular"` the ideal one. `"point"` is as thin as the fine grid: the slices are
            decimated.

    Returns:
        Positions from the centre, in slice widths (full width at half maximum), and the magnitude there.
    """
    if isinstance(profile, (int, float)) and not isinstance(profile, bool) and 2 <= profile <= 32:
        return slr_profile(float(profile))
    z = np.linspace(-2, 2, 4001)
    shapes = {"gaussian": 2.0 ** (-4 * z**2), "rectangular": np.abs(z) <= 0.5, "point": np.abs(z) < 1e-4}
    if profile not in tuple(shapes):  # it may be anything
        raise InputError(
            f"slice profile is {profile!r}: expected 'gaussian' or 'rectangular', 'point' for decimated slices, or the "
            "time-bandwidth product of an SLR pulse, 2 to 32; 4 is common."
        )
    return z, shapes[profile].astype(float)


@lru_cache(maxsize=4096)
def profile_kernel(slice_thickness: float, fine_spacing: float, profile: Profile = SLR) -> np.ndarray:
    """Slice profile as weights on the fine grid, `h` in Eq. S1.

    The kernel's own full width at half maximum is the slice thickness, linear between its samples. The profile is made
    a little narrower for that: the voxels over which it is integrated widen it.

    Args:
        slice_thickness: in mm.
        fine_spacing: of the grid, in mm. The kernel is the identity for slices no thicker than this, and for points.
        profile: see `slice_profile`.

    Returns:
        Weights of odd length, symmetric, sum 1.

    Example:
        >>> profile_kernel(5.0, 1.0).round(2).tolist()
        [0.0, 0.0, 0.0, 0.0, 0.04, 0.16, 0.2, 0.2, 0.2, 0.16, 0.04, 0.0, 0.0, 0.0, 0.0]
    """
    if not (slice_thickness > 0 and fine_spacing > 0):
        raise ValueError(f"slice thickness {slice_thickness} mm, fine spacing {fine_spacing} mm: expected both > 0.")
    ratio = slice_thickness / fine_spacing
    if ratio <= 1 + 1e-6 or profile == "point":
        return np.ones(1)
    z, magnitude = slice_profile(profile)
    cumulative = cumulative_trapezoid(magnitude, z, initial=0)

    def kernel(width: float) -> np.ndarray:
        """Integrals of the profile, stretched to `width` voxels, over voxels of the fine grid; a zero at either end."""
        reach = int(np.ceil(z[-1] * width - 0.5))
        edges = (np.arange(-reach, reach + 2) - 0.5) / width
        weights = np.diff(np.interp(edges, z, cumulative))
        return np.pad(weights / weights.sum(), 1)

    def excess(width: float) -> float:
        weights = kernel(width)
        return full_width_half_maximum(np.arange(len(weights)), weights) - ratio

    weights = kernel(brentq(excess, 0.05, 2 * ratio, xtol=1e-4))[1:-1]
    weights = (weights + weights[::-1]) / 2
    weights.setflags(write=False)  # cached
    return weights


@lru_cache(maxsize=256)
def slice_matrix(acquisition: Acquisition) -> Tensor:
    """The acquisition as a matrix: convolution with the profile (Eq. S1), then centred linear resampling (Eq. S2).

    Beyond both ends the fine slices are mirrored.

    Returns:
        `(slice_count, fine_count)` float tensor. Its rows sum to 1.

    Example:
        >>> slice_matrix(Acquisition.of_truth(2, 6, edge=1.0, thickness=2.0, profile="rectangular"))
        tensor([[0.5000, 0.3750, 0.1250, 0.0000, 0.0000, 0.0000],
                [0.0000, 0.1250, 0.3750, 0.3750, 0.1250, 0.0000],
                [0.0000, 0.0000, 0.0000, 0.1250, 0.3750, 0.5000]])
    """
    a = acquisition
    kernel = profile_kernel(a.slice_thickness, a.target_spacing, a.profile)
    reach = len(kernel) // 2
    padded = np.pad(np.arange(a.fine_count), reach, mode="symmetric")  # which voxel stands at each padded place
    columns = np.lib.stride_tricks.sliding_window_view(padded, len(kernel))  # (fine_count, taps)
    blur = np.zeros((a.fine_count, a.fine_count))
    np.add.at(blur, (np.arange(a.fine_count)[:, None], columns), kernel[None, :])

    position = np.clip(a.slice_rows, 0, a.fine_count - 1)
    below = np.floor(position).astype(int)
    above = np.minimum(below + 1, a.fine_count - 1)
    weight = (position - below)[:, None]
    return torch.from_numpy((1 - weight) * blur[below] + weight * blur[above]).float()


def along_slices(matrix: Tensor, image: Tensor, acquisition: Acquisition) -> Tensor:
    """Applies a matrix along the slice axis of an image. The image's last three dimensions are X, Y and Z."""
    dim = acquisition.dim(image)
    return (image.movedim(dim, -1) @ matrix.T.to(image)).movedim(-1, dim)


def acquire(image: Tensor, acquisition: Acquisition) -> Tensor:
    """Thick slices of a sharp image on the fine grid, whose last three dimensions are X, Y and Z."""
    if not image.is_floating_point():
        raise TypeError(f"image is {image.dtype}: expected floating point. Convert it with .float().")
    if image.shape[acquisition.dim(image)] != acquisition.fine_count:
        raise ValueError(
            f"image is {tuple(image.shape)}: expected {acquisition.fine_count} slices along its axis "
            f"{acquisition.dim(image)}. Check the acquisition."
        )
    return along_slices(slice_matrix(acquisition), image, acquisition)
