"""Power along an axis of a volume, by frequency: how much detail a volume has through its slices."""

from collections.abc import Sequence

import numpy as np
import torch
from scipy import fft
from torch import Tensor

from .grid import check_pair
from .noise import cosine_frequencies

BLOCK = 160  # voxels along each edge of the middle of a volume, by which `sharpness` is measured
DULL = 0.1  # of the power along the other axes; slices that were interpolated have less, and scans 0.15 or more
DULLER, COARSE = 1.5, 2.0  # times a voxel's edge, and mm; slices that show no more than such were interpolated
INTERPOLATED = "its slices were interpolated along axis {}: they show no more than {:.2g} mm slices do"
SPACING_LOST = "its voxels are cubes of 1 mm by its header, and thick slices by what they show: the spacing was lost"
LOWEST = 0.05  # cycles/mm; larger structures differ by direction
REPEATED = 1.6  # times as many neighbours differ along the other axes; in scans of 16 values 1.2, in repeats 2 and more
FEWEST = 16  # voxels along each axis of a volume whose spectra say something
FLAT, FLAT_WIDTH = 0.5, 40  # see `spacing_is_lost`
LOST = 4.0  # scans of cubes have up to 2.7 times the power of the other axes
TAPER = 0.9  # of 1/T; from here on detail counts as finer than slices of a thickness T, and at 1/T in full


def through_plane_bands(slice_thickness: float, spacing: float) -> list[tuple[float, float]]:
    """The three frequency bands above the thick slices' own, from the easiest to rebuild to the hardest.

    1. `1/(2T)` to `1/T`: from the Nyquist frequency of contiguous slices to the first zero of a box as thick as they.
    2. From there to half the fine grid's Nyquist frequency.
    3. From there to the fine grid's Nyquist frequency.

    Args:
        slice_thickness: `T` in mm.
        spacing: of the fine grid, in mm.

    Returns:
        Lower and upper edges in cycles/mm. A band is empty where its lower edge is not below its upper.

    Example:
        >>> through_plane_bands(5.0, 1.0)
        [(0.1, 0.2), (0.2, 0.25), (0.25, 0.5)]
    """
    nyquist = 1 / (2 * spacing)
    first_zero = 1 / slice_thickness
    return [(first_zero / 2, first_zero), (first_zero, nyquist / 2), (nyquist / 2, nyquist)]


def with_detail(volume: Tensor, axis: int, spacing: float, thickness: float, factor: float) -> Tensor:
    """A volume whose detail along an axis that is finer than its thick slices counts several times.

    Finer is what lies beyond `1/T`, the first zero of a box as thick as the slices. A smooth step leads there.

    Args:
        volume: `(X, Y, Z)`, float32 on the CPU; mirrored at its ends.
        axis: of the slices.
        spacing: along the axis, in mm.
        thickness: of the slices, `T` in mm.
        factor: on the detail; 1 changes nothing.
    """
    place = cosine_frequencies(volume.shape[axis]) / spacing * thickness
    step = ((place - TAPER) / (1 - TAPER)).clip(0, 1)
    weights = 1 + (factor - 1) * step**2 * (3 - 2 * step)
    spectrum = fft.dct(volume.movedim(axis, -1).numpy(), norm="ortho") * weights.astype(np.float32)
    return torch.from_numpy(fft.idct(spectrum, norm="ortho")).movedim(-1, axis)


def _line_power(volume: Tensor, axis: int) -> Tensor:
    """Power at each frequency along an axis, summed over its lines; `(count // 2 + 1,)`.

    The window is for heads that the field of view cuts off. Such a line has a step between its two ends, and without a
    window the step's spectrum covers the frequencies of interest.
    """
    lines = volume.double().movedim(axis, -1)
    lines = lines - lines.mean(-1, keepdim=True)
    window = torch.hann_window(lines.shape[-1], periodic=False, dtype=lines.dtype, device=lines.device)
    return torch.fft.rfft(lines * window).abs().square().sum((0, 1))


def power_density(volume: Tensor, axis: int, spacing: float) -> tuple[Tensor, Tensor]:
    """Power spectrum along an axis, averaged over its lines, per unit of frequency.

    Densities of two directions can be compared although their voxels differ in size. An ideal scan of isotropic tissue
    has the same density in every direction.

    Returns:
        Frequencies in cycles/mm, from 0 to Nyquist, and the density there, in squared intensity times mm.
    """
    count = volume.shape[axis]
    frequencies = torch.fft.rfftfreq(count, d=spacing, dtype=torch.float64, device=volume.device)
    lines = volume.numel() / count
    window_power = torch.hann_window(count, periodic=False, dtype=torch.float64).square().sum().item()
    return frequencies, _line_power(volume, axis) * (spacing / (lines * window_power))


def power_ratios(
    prediction: Tensor, truth: Tensor, axis: int, spacing: float, bands: Sequence[tuple[float, float]]
) -> list[float]:
    """Through-plane power of a volume relative to the truth's, `10 log10(P_prediction / P_truth)` in each band.

    `P` is the power spectrum along the slice axis, Hann-windowed, summed over all lines and over the band. 0 dB is as
    much detail as the truth has, right or wrong. Less is blur. More is noise or steps.

    Args:
        prediction, truth: `(X, Y, Z)`.
        axis: slice axis.
        spacing: along the axis, in mm.
        bands: lower and upper edges in cycles/mm. A band holds its lower edge. It holds its upper one only at Nyquist.
            A band that holds no frequency of the discrete spectrum gives NaN.
    """
    check_pair(prediction, truth)
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


def sharpness(volume: Tensor, edges: Sequence[float] | np.ndarray) -> list[float]:
    """How far apart the samples along each axis lie that a volume was made of, in mm; its edges where it is sharp.

    Interpolated slices have next to no power beyond the Nyquist frequency of the slices that they were made of, and the
    other axes have. So the frequency is looked for from which on the density falls below `DULL` of theirs, over half an
    octave. Noise of the scanner is in all directions, and does not hide it. Slices that were repeated, as nearest
    neighbours are, are sharp to the spectrum: most neighbours along one axis alone are equal.

    Args:
        volume: `(X, Y, Z)`.
        edges: of its voxels, in mm. A volume of fewer than `FEWEST` voxels along an axis is taken to be sharp.
    """
    if min(volume.shape) < FEWEST:
        return [float(edge) for edge in edges]
    curves = _densities(volume, edges)
    found = []
    for axis, edge in enumerate(edges):
        frequencies, power, theirs = _beside(curves, axis)
        starts = frequencies[(frequencies >= LOWEST) & (1.5 * frequencies <= frequencies[-1])]
        bands = {start: (frequencies >= start) & (frequencies <= 1.5 * start) & np.isfinite(theirs) for start in starts}
        dull = [one for one, band in bands.items() if band.sum() > 2 and power[band].sum() < DULL * theirs[band].sum()]
        found.append(max(float(edge), 1 / (2 * dull[0]) if dull else 0.0))
    changes = [_changes(volume, axis) for axis in range(3)]
    axis = int(np.argmin(changes))
    if (repeats := sorted(changes)[1] / changes[axis]) > REPEATED:
        found[axis] = max(found[axis], repeats * float(edges[axis]))
    return found


def _changes(volume: Tensor, axis: int) -> float:
    """The share of neighbours with two values, without plateaus at the least and largest, as of background."""
    count = volume.shape[axis]
    one, other = volume.narrow(axis, 0, count - 1), volume.narrow(axis, 1, count - 1)
    equal = (one == other) & (one > volume.min()) & (one < volume.max())
    pairs = ((one != other) | equal).sum().clamp(min=1)
    return max(1 - float(equal.sum() / pairs), 1 / count)


def interpolated(
    sharp: Sequence[float], edges: Sequence[float] | np.ndarray, axes: Sequence[int] = (0, 1, 2)
) -> tuple[int, float] | None:
    """The axis along which a volume was interpolated from thick slices, and their spacing, in mm; None if along none.

    Pixels that a scanner interpolated within the plane are finer than `COARSE`, and count as they are.

    Args:
        sharp: of `sharpness`.
        edges: of the voxels, in mm.
        axes: that are looked at.
    """
    axis = max(axes, key=lambda one: sharp[one] / edges[one])
    return (axis, sharp[axis]) if sharp[axis] > max(DULLER * edges[axis], COARSE) else None


def dull(volume: Tensor, edges: Sequence[float] | np.ndarray, axes: Sequence[int] = (0, 1, 2)) -> str:
    """Why a volume shows less along some axes than the edges of its voxels say, for people; empty where it does not."""
    if volume.min() == volume.max():
        return ""
    if spacing_is_lost(volume, edges):
        return SPACING_LOST
    found = interpolated(sharpness(volume, edges), edges, axes)
    return INTERPOLATED.format(*found) if found else ""


def spacing_is_lost(volume: Tensor, edges: Sequence[float] | np.ndarray) -> bool:
    """Whether a flat volume of cubes of 1 mm is a stack of thick slices whose header lost their spacing.

    Such slices seem to change quickly from one to the next: the density along them is above `LOST` of the other axes'.
    """
    thin = int(np.argmin(volume.shape))
    cubes = np.allclose(edges, 1, atol=1e-6)
    if not cubes or volume.shape[thin] > FLAT * max(volume.shape) or sorted(volume.shape)[1] < FLAT_WIDTH:
        return False
    frequencies, power, theirs = _beside(_densities(volume, edges), thin)
    upper = (frequencies >= frequencies[-1] / 2) & np.isfinite(theirs)
    return bool(power[upper].sum() > LOST * theirs[upper].sum())


def _densities(volume: Tensor, edges: Sequence[float] | np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """`power_density` along each axis, of the middle of a volume."""
    for axis, count in enumerate(volume.shape):
        volume = volume.narrow(axis, max(0, count - BLOCK) // 2, min(count, BLOCK))
    curves = (power_density(volume, axis, float(edge)) for axis, edge in enumerate(edges))
    return [(frequencies.numpy(), density.numpy()) for frequencies, density in curves]


def _beside(curves: Sequence[tuple[np.ndarray, np.ndarray]], axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Frequencies of an axis, its density there, and the mean of the other axes' that reach as far, else NaN."""
    frequencies, power = curves[axis]
    others = [np.interp(frequencies, *curve, right=np.nan) for k, curve in enumerate(curves) if k != axis]
    known = np.isfinite(others)
    return frequencies, power, np.where(known, others, 0).sum(0) / np.where(known.any(0), known.sum(0), np.nan)
