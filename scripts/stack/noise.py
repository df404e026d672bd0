"""The noise of slices as scanners make it: white in the acquired matrix, which the image's pixels are finer than.

    white in k-space -> zero-filled: smooth over some pixels -> magnitude: Rician

A scanner often fills k-space with zeros, so that pixels are up to twice as fine as what it measured. Neighbouring
pixels then share their noise, and image and noise end at one frequency. Slices are measured one by one: their noises
are independent.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import fft
from scipy.optimize import nnls
from torch import Tensor

TAPER = 0.75  # of the band, where scanners' filters begin to fall to its end
WIDEST = 2.2  # pixels; scanners rarely interpolate further
PATCH = 24  # pixels; edge of the patches whose spectra are looked at, and a third of it at least
FLATTEST = 0.3  # of the patches in the head
LOWEST = 2.5 / 16  # per pixel; what is coarser is anatomy
FALL = 5  # exponent of the spectrum of anatomy
FAINT = 0.01  # of the power at low frequencies; what is less is as good as none
ROUNDING = 1e-7  # of float32
MANY = 256  # pixels along an axis of a common slice
NOISY = 0.5  # of the least power inside the band is noise, however much texture explains
HELD = 0.3  # of the power; a band that lets less through says nothing of levels


@dataclass(frozen=True)
class Noise:
    """The noise of a stack of slices.

    Attributes:
        deviation: its standard deviation, in the units of the slices, or of their range.
        widths: of the acquired pixels along the two in-plane axes, in pixels of the image, 1 or more.
    """

    deviation: float
    widths: tuple[float, float] = (1.0, 1.0)

    def power(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Its power at in-plane frequencies, per pixel, over that of white noise: `(n, m)`, 1 on average over all."""
        bands = [np.square(band(f, width)) for f, width in zip((first, second), self.widths)]
        return np.outer(*(one / one.mean() for one in bands))


def band(frequency: np.ndarray, width: float) -> np.ndarray:
    """The share of each frequency, per pixel, that a scanner keeps: 1 inside its band, 0 beyond.

    The band ends at `1 / (2 width)`. Over its last quarter it falls as a cosine does.
    """
    if width <= 1:
        return np.ones(len(frequency))
    place = 2 * width * frequency  # 1 at the end of the band
    return np.cos(np.pi / 2 * ((place - TAPER) / (1 - TAPER)).clip(0, 1)) * (place < 1)


def cosine_frequencies(count: int) -> np.ndarray:
    """The frequencies of the cosine transform of `count` pixels, per pixel."""
    return np.arange(count) / (2 * count)


def kept_variance(count: int, width: float) -> float:
    """The share of white noise's variance that the band keeps, along an axis of `count` pixels."""
    return float(np.square(band(cosine_frequencies(count), width)).mean())


def band_limited(image: Tensor, axes: Sequence[int], widths: Sequence[float]) -> Tensor:
    """An image as a coarser matrix shows it: along `axes` without frequencies above `band`; mirrored at its ends."""
    for axis, width in zip(axes, widths):
        if width > 1:
            spectrum = fft.dct(image.numpy(), axis=axis, norm="ortho")
            kept = band(cosine_frequencies(image.shape[axis]), width).astype(spectrum.dtype)
            spectrum = np.moveaxis(np.moveaxis(spectrum, axis, -1) * kept, -1, axis)
            image = torch.from_numpy(fft.idct(spectrum, axis=axis, norm="ortho"))
    return image


def with_noise(slices: Tensor, axes: Sequence[int], noise: Noise, drawn: Tensor) -> Tensor:
    """Magnitude slices with Rician noise: the magnitude of the slices plus complex Gaussian noise.

    Args:
        slices: float, of any shape, without noise, in the units of the noise.
        axes: in-plane, to which the noise's widths belong.
        drawn: `(2, *slices.shape)`, standard normal numbers.
    """
    if not noise.deviation:
        return slices
    inside = [axis % slices.dim() + 1 for axis in axes]
    kept = math.prod(kept_variance(drawn.shape[axis], width) for axis, width in zip(inside, noise.widths))
    real, imaginary = band_limited(drawn, inside, noise.widths) * (noise.deviation / math.sqrt(kept))
    return torch.hypot(slices + real, imaginary)


def magnitude(signal: Tensor, deviation: float) -> Tensor:
    """The mean of magnitudes with Rician noise, which raises dark voxels: Rice, Bell Syst. Tech. J. 24:46 (1945).

    No signal becomes 1.25 standard deviations; a signal of ten of them is raised by a twentieth of one.
    """
    if not deviation:
        return signal
    half = signal.square() / (4 * deviation**2)
    bessel = (1 + 2 * half) * torch.special.i0e(half) + 2 * half * torch.special.i1e(half)
    return deviation * math.sqrt(math.pi / 2) * bessel


def noise_of(volume: Tensor, slice_axis: int, head: Tensor) -> Noise:
    """The noise that slices show: its standard deviation, and how far it was interpolated along either in-plane axis.

    In the spectrum of small flat patches, noise is a plateau up to the end of the scanner's band. Anatomy falls from
    low to high frequencies, with their fifth power. So the model of the spectrum is

        B(f) B(g) (N + T (f^2 + g^2)^-2.5)

    with a plateau `N`, a texture `T`, and a `band` of each axis, whose widths are searched. A falling spectrum is no
    noise, and a flat one no texture. Texture of 1 % of the range or less cannot be told from noise, and the other way
    round: docs/benchmarks_appendix.md says how far.

    Patches are the flattest ones in the head, and not dark: there, noise of magnitude images is weaker.

    Args:
        volume: `(X, Y, Z)` on the CPU, not constant.
        head: `(X, Y, Z)` bool, one voxel or more.

    Returns:
        The noise in the units of the volume; 0 where no patch fits into the slices.
    """
    power = _spectrum(volume.numpy(), slice_axis, head.numpy())
    if len(power) <= LOWEST * PATCH:
        return Noise(0.0)
    frequency = np.arange(len(power)) / (2 * (len(power) - 1))
    distance = np.hypot(*np.meshgrid(frequency, frequency, indexing="ij"))
    cells = distance > LOWEST
    found, texture = power[cells], (distance[cells] / LOWEST) ** -FALL
    faint = FAINT * float(np.median(power[cells & (distance < 2 * LOWEST)]))
    if faint <= ROUNDING**2 * power.max():
        return Noise(0.0)
    found = np.maximum(found, ROUNDING * faint)
    seen = dict[float, np.ndarray]()  # power of the band; the windows of `_spectrum`, Hann's, blur it by a frequency
    for width in np.arange(1.0, WIDEST + 0.21, 0.05).round(2).tolist():
        mirrored = np.pad(np.square(band(frequency, width)), 1, mode="reflect")
        seen[width] = np.convolve(mirrored, [1 / 6, 2 / 3, 1 / 6], mode="valid")
    best, level, widths = math.inf, 0.0, (1.0, 1.0)
    for first, second in itertools.product(seen, repeat=2):
        kept = np.outer(seen[first], seen[second])[cells]
        inside = kept > HELD
        if not inside.any():
            continue
        relative = kept[inside] / found[inside]  # so that each error counts by its own size
        (plateau, slope), _ = nnls(np.column_stack([relative, relative * texture[inside]]), np.ones(len(relative)))
        plateau = max(plateau, NOISY * (found[inside] / kept[inside]).min())
        off = np.square(np.log((plateau + slope * texture) * kept + faint) - np.log(found + faint)).sum()
        if off < best:
            best, level, widths = off, plateau, (first, second)
    share = math.prod(kept_variance(MANY, width) for width in widths)
    return Noise(math.sqrt(level * share), widths)


def _spectrum(volume: np.ndarray, slice_axis: int, head: np.ndarray) -> np.ndarray:
    """Mean power of the head's flattest patches by frequency, `(n, n)` from 0 to a half per pixel.

    White noise of variance 1 has the power 1. The array is empty where the slices hold no patch.
    """
    slices, inside = np.moveaxis(volume, slice_axis, 0), np.moveaxis(head, slice_axis, 0)
    shorter = min(slices.shape[1:])
    size = min(max(shorter // 3, PATCH // 3), PATCH) // 2 * 2  # small slices, too, hold several
    if size > shorter:
        return np.zeros((0, 0))

    # patches overlap by half, counted from either end: a mirrored slice has the mirrored patches
    starts = [np.arange(0, (count - size) // 2 + 1, size // 2) for count in slices.shape[1:]]
    rows, columns = np.ix_(*(np.union1d(one, count - size - one) for one, count in zip(starts, slices.shape[1:])))
    windows = (np.lib.stride_tricks.sliding_window_view(one, (size, size), (1, 2)) for one in (slices, inside))  # type: ignore[call-overload]
    patches, heads = (one[:, rows, columns].reshape(-1, size, size) for one in windows)
    share = heads.mean((1, 2))
    shown = patches[share >= min(1.0, float(share.max()))].astype(np.float64)
    window = np.outer(*[np.hanning(size + 2)[1:-1]] * 2)
    means = np.average(shown.reshape(len(shown), -1), axis=1, weights=window.ravel())
    bright = means - volume.min() >= np.median(means - volume.min()) / 2
    shown = (shown - means[:, None, None])[bright] * (window / np.sqrt(np.square(window).mean()))
    power = np.square(np.abs(np.fft.fft2(shown))) / size**2
    lowest = np.arange(-2, 3)
    coarse = power[:, lowest[:, None], lowest].sum((1, 2))
    mean = power[coarse <= np.quantile(coarse, FLATTEST)].mean(0)
    for axis in (0, 1):  # of positive and negative frequencies the mean
        mean = (mean + np.roll(np.flip(mean, axis), 1, axis)) / 2
    return mean[: size // 2 + 1, : size // 2 + 1]
