"""What a thick slice is: a pulse excites a slice profile, and the anatomy is integrated under it (Sec. S1).

    pulse -> Bloch simulation -> profile -> kernel on the fine grid -> matrix (thick slices x fine slices)

The acquisition of a stack is linear and acts along the slice axis alone, so it is one small matrix.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from scipy.optimize import brentq
from sigpy.mri import rf
from torch import Tensor

from ..errors import InputError
from .acquisition import SLR, Acquisition, Profile
from .grid import centred_positions


def full_width_half_maximum(z: np.ndarray, profile: np.ndarray) -> float:
    """Width of a single-peaked curve at half its maximum, linear between samples; in the unit of `z`."""
    half = profile.max() / 2
    above = np.flatnonzero(profile >= half)
    first, last = above[0], above[-1]
    left = np.interp(half, profile[first - 1 : first + 1], z[first - 1 : first + 1])
    right = np.interp(-half, -profile[last : last + 2], z[last : last + 2])
    return float(right - left)


@lru_cache(maxsize=64)
def slr_profile(time_bandwidth: float = SLR) -> tuple[np.ndarray, np.ndarray]:
    """Magnitude slice profile of a 90 degree, linear-phase SLR excitation pulse, by Bloch simulation.

    Pauly et al., IEEE Trans. Med. Imaging 10:53-65 (1991).

    Args:
        time_bandwidth: time-bandwidth product of the pulse; the larger, the sharper the slice's edges.

    Returns:
        Positions in slice widths (full width at half maximum) from the centre, and |Mxy| there; the phase that a
        perfect rephasing leaves is neglected.

    Raises:
        ValueError: if `time_bandwidth` is below 2, where no slice is selected.
    """
    if not time_bandwidth >= 2:
        raise ValueError(f"time-bandwidth product is {time_bandwidth}: expected 2 or more, 4 is common.")
    pulse = rf.slr.dzrf(n=256, tb=time_bandwidth, ptype="ex", ftype="ls", d1=0.01, d2=0.01, cancel_alpha_phs=False)
    x = np.linspace(-1.5 * time_bandwidth, 1.5 * time_bandwidth, 3001)  # nominal slice: |x| < time_bandwidth / 2
    a, b = rf.sim.abrm(pulse, x, balanced=True)
    profile = np.abs(2 * np.conj(a) * b)
    z = x / full_width_half_maximum(x, profile)
    for array in (z, profile):
        array.setflags(write=False)  # cached
    return z, profile


def slice_profile(profile: Profile) -> tuple[np.ndarray, np.ndarray]:
    """Magnitude of the transverse magnetisation across a slice.

    Args:
        profile: time-bandwidth product of an SLR pulse, the paper's profile; `"gaussian"`, which a short Gaussian pulse
            excites; `"rectangular"`, the ideal; or `"point"`, as thin as the fine grid, which decimation takes.

    Returns:
        Positions in slice widths (full width at half maximum) from the centre, and the magnitude there.

    Raises:
        InputError: if there is no such profile.
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
    magnitude = shapes[profile].astype(float)
    for array in (z, magnitude):
        array.setflags(write=False)  # cached
    return z, magnitude


def _integrate(z: np.ndarray, magnitude: np.ndarray, width: float, fine_spacing: float) -> np.ndarray:
    """Integrals of the profile, stretched to `width` mm, over the voxels of the fine grid; odd length, sum 1."""
    cumulative = np.concatenate([[0.0], np.cumsum((magnitude[1:] + magnitude[:-1]) / 2 * np.diff(z))])
    reach = int(np.ceil(z[-1] * width / fine_spacing - 0.5))
    edges = (np.arange(-reach, reach + 2) - 0.5) * fine_spacing / width
    weights = np.diff(np.interp(edges, z, cumulative))
    return weights / weights.sum()


@lru_cache(maxsize=4096)
def profile_kernel(slice_thickness: float, fine_spacing: float, profile: Profile = SLR) -> np.ndarray:
    """Slice profile as weights on the fine grid, `h` in Eq. S1.

    The profile's width is set so that the kernel's own full width at half maximum, linear between its samples, is the
    slice thickness; voxels are not small against thin slices, and integration over them would widen the kernel.

    Args:
        slice_thickness: in mm.
        fine_spacing: of the grid, in mm. Slices no thicker than it, and points, give the identity.
        profile: see `slice_profile`.

    Returns:
        Weights of odd length, symmetric, sum 1.

    Raises:
        ValueError: if a length is not positive.
    """
    if not (slice_thickness > 0 and fine_spacing > 0):
        raise ValueError(f"slice thickness {slice_thickness} mm, fine spacing {fine_spacing} mm: expected both > 0.")
    ratio = slice_thickness / fine_spacing
    if ratio <= 1 + 1e-6 or profile == "point":
        return np.ones(1)
    z, magnitude = slice_profile(profile)

    def kernel(width: float) -> np.ndarray:
        return np.pad(_integrate(z, magnitude, width, 1.0), 1)

    def excess(width: float) -> float:
        weights = kernel(width)
        return full_width_half_maximum(np.arange(len(weights)), weights) - ratio

    weights = kernel(brentq(excess, 0.05, 2 * ratio, xtol=1e-4))[1:-1]
    return (weights + weights[::-1]) / 2


@lru_cache(maxsize=256)
def slice_matrix(acquisition: Acquisition) -> Tensor:
    """The acquisition as a matrix: convolution with the profile (Eq. S1), then centred linear resampling (Eq. S2).

    The fine slices are continued symmetrically beyond both ends.

    Returns:
        `(slice_count, fine_count)` float tensor whose rows sum to 1.
    """
    a = acquisition
    kernel = profile_kernel(a.slice_thickness, a.target_spacing, a.profile)
    reach = len(kernel) // 2
    padded = np.pad(np.arange(a.fine_count), reach, mode="symmetric")  # which voxel stands at each padded place
    columns = np.lib.stride_tricks.sliding_window_view(padded, len(kernel))  # (fine_count, taps)
    blur = np.zeros((a.fine_count, a.fine_count))
    np.add.at(blur, (np.arange(a.fine_count)[:, None], columns), kernel[None, :])

    position = centred_positions(a.slice_count, a.slice_spacing, a.fine_count, a.target_spacing)
    position = np.clip(position + a.shift / a.target_spacing, 0, a.fine_count - 1)
    below = np.floor(position).astype(int)
    above = np.minimum(below + 1, a.fine_count - 1)
    weight = (position - below)[:, None]
    return torch.from_numpy((1 - weight) * blur[below] + weight * blur[above]).float()


def along_slices(matrix: Tensor, image: Tensor, acquisition: Acquisition) -> Tensor:
    """A matrix applied along the slice axis of an image, whose last three dimensions are X, Y and Z."""
    dim = acquisition.dim(image)
    return (image.movedim(dim, -1) @ matrix.T.to(image)).movedim(-1, dim)


def acquire(image: Tensor, acquisition: Acquisition) -> Tensor:
    """Thick slices of a sharp image.

    Args:
        image: on the fine grid; its last three dimensions are X, Y and Z.
        acquisition: of the slices.

    Returns:
        The image with `slice_count` slices along the slice axis.

    Raises:
        TypeError: if the image holds integers.
        ValueError: if it has not the slices of the fine grid.
    """
    if not image.is_floating_point():
        raise TypeError(f"image is {image.dtype}: expected floating point. Convert it with .float().")
    if image.shape[acquisition.dim(image)] != acquisition.fine_count:
        raise ValueError(
            f"image is {tuple(image.shape)}: expected {acquisition.fine_count} slices along its axis "
            f"{acquisition.dim(image)}. Check the acquisition."
        )
    return along_slices(slice_matrix(acquisition), image, acquisition)
