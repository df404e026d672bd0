"""The noise of slices as scanners make it: white in the acquired matrix, which the image's pixels are finer than.

    white in k-space -> zero-filled: smooth over some pixels -> magnitude: Rician

A scanner often fills k-space with zeros, so that pixels are up to three times as fine as what it measured. Neighbouring
pixels then share their noise, and image and noise end at one frequency. The measured part of k-space is a rectangle, or
an ellipse without the rectangle's corners. Slices are measured one by one: their noises are independent.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from scipy import fft
from torch import Tensor

TAPERS = (0.6, 0.75)  # of the way to the band's end, where its fall begins; an earlier one looks like texture
WIDEST = 3.0  # pixels; scanners rarely interpolate further
PATCH = 24  # pixels; edge of the patches whose spectra are looked at, and a third of it at least
FLATTEST = 0.3  # of the patches in the head
ODD = 4.0  # times the power of the median slice, or one over it; slices beyond do not count
LOWEST = 2.5 / 16  # per pixel; what is coarser is anatomy
FALL = 5  # exponent of the spectrum of anatomy
MEDIAN = math.log(2)  # of the power of noise over its mean, at a frequency of a real and an imaginary part
REAL_MEDIAN = 0.455  # and of a real part alone
FAINT = 0.01  # of the power at low frequencies; what is less is as good as none
ROUNDING = 1e-7  # of float32
FEW = PATCH // 4  # frequencies, or fewer, tell no shape of a band
MANY = 128  # frequencies along an axis, of which the band's share is taken
ROUGH = tuple(np.arange(1.0, WIDEST + 0.05, 0.1).round(1).tolist())  # widths that the first look tries
FINE = tuple(np.arange(1.0, 1.625, 0.05).round(2).tolist())  # and the second look, in shares of those
NOISY = 0.5  # of the least power inside the band is noise, however much texture explains
HELD = (0.1, 0.3)  # of the power, at either look: less says nothing of levels. A wide band holds little at first
WITHIN = 0.9  # of the acquired pixels' widths, as the first look finds them; the second look then sees the band's end


@dataclass(frozen=True)
class Noise:
    """The noise of a stack of slices.

    Attributes:
        deviation: its standard deviation, in the units of the slices, or of their range.
        widths: of the acquired pixels along the two in-plane axes, in pixels of the image, 1 or more.
        round: whether the scanner left out the corners of k-space.
        taper: where its filter begins to fall, as a share of the way to the end of the band.
    """

    deviation: float
    widths: tuple[float, float] = (1.0, 1.0)
    round: bool = False
    taper: float = 0.75

    @property
    def white(self) -> bool:
        """Whether all of k-space was measured."""
        return max(self.widths) <= 1 and not self.round

    def kept(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The share of each in-plane frequency that the scanner keeps: 1 inside its band, 0 beyond.

        Along an axis the band ends at `1 / (2 width)`. Beyond the taper it falls as a cosine does.

        Args:
            first, second: frequencies along the two axes, per pixel, `(n,)` and `(m,)`.

        Returns:
            `(n, m)`.
        """
        places = [2 * width * frequency for width, frequency in zip(self.widths, (first, second))]  # 1 at the end
        if self.round:
            return self._fall(np.hypot(*np.ix_(*places)))
        return np.outer(
            *(self._fall(one) if width > 1 else np.ones(len(one)) for one, width in zip(places, self.widths))
        )

    def _fall(self, place: np.ndarray) -> np.ndarray:
        return np.cos(np.pi / 2 * ((place - self.taper) / (1 - self.taper)).clip(0, 1)) * (place < 1)

    def power(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Its power at in-plane frequencies, per pixel, over that of white noise: `(n, m)`, 1 on average over all."""
        kept = np.square(self.kept(first, second))
        return kept / kept.mean()


def cosine_frequencies(count: int) -> np.ndarray:
    """The frequencies of the cosine transform of `count` pixels, per pixel."""
    return np.arange(count) / (2 * count)


def band_limited(image: Tensor, axes: Sequence[int], noise: Noise) -> Tensor:
    """An image as the scanner shows it that has such noise: along both `axes` with its band; mirrored at its ends."""
    if noise.white:
        return image
    spectrum = fft.dctn(image.numpy(), axes=axes, norm="ortho")
    kept = noise.kept(*(cosine_frequencies(image.shape[axis]) for axis in axes))
    spectrum *= _along(kept.astype(spectrum.dtype), axes, image.dim())
    return torch.from_numpy(fft.idctn(spectrum, axes=axes, norm="ortho"))


def _along(plane: np.ndarray, axes: Sequence[int], count: int) -> np.ndarray:
    """A plane `(n, m)` as an array of `count` axes, two of which are `axes`."""
    return np.moveaxis(plane.reshape(*plane.shape, *[1] * (count - 2)), (0, 1), axes)


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
    kept = np.square(noise.kept(*(cosine_frequencies(drawn.shape[axis]) for axis in inside))).mean()
    real, imaginary = band_limited(drawn, inside, noise) * (noise.deviation / math.sqrt(kept))
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
    """The noise that slices show: its standard deviation, and what the scanner measured of k-space.

    In the spectrum of small flat patches, noise is a plateau up to the end of the scanner's band. Anatomy falls from
    low to high frequencies, with their fifth power. So the model of the spectrum is

        B(f, g) (N + T (f^2 + g^2)^-2.5)

    with a plateau `N`, a texture `T`, and a band `B`, whose shape, widths and taper are searched. A falling spectrum is
    no noise, and a flat one no texture. Texture of 1 % of the range or less cannot be told from noise, and the other
    way round: docs/benchmarks_appendix.md says how far.

    Slices are looked at twice: as they are, for the band, and with patches that hold as many acquired pixels as those
    of slices that nobody interpolated. There no part of the spectrum is empty.

    Patches are the flattest ones in the head, and not dark: there, noise of magnitude images is weaker. Slices that are
    quieter or louder than most do not count. At each frequency the median patch says the power: noise has as much in
    all patches, a fold or an edge has more in some.

    Args:
        volume: `(X, Y, Z)` on the CPU, not constant, from the scan's floor up: 0 is no signal.
        head: `(X, Y, Z)` bool, one voxel or more.

    Returns:
        The noise in the units of the volume; 0 where no patch fits into the slices.
    """
    slices, inside = (np.moveaxis(one.numpy(), slice_axis, 0) for one in (volume, head))
    rough = _fitted(slices, inside, (1.0, 1.0), ROUGH, HELD[0])
    first, second = (max(1.0, WITHIN * width) for width in rough.widths)
    return _fitted(slices, inside, (first, second), FINE, HELD[1])


def _fitted(
    slices: np.ndarray, inside: np.ndarray, pixels: tuple[float, float], widths: tuple[float, ...], least: float
) -> Noise:
    """The noise whose spectrum fits best, of both shapes and all tapers.

    Args:
        pixels: of the image, that an acquired pixel holds at least along either axis. Frequencies count in these.
        widths: of the acquired pixels, in `pixels`; each is tried along either axis.
        least: where a band lets through this share of the power or less, it says nothing of levels.
    """
    power = _spectrum(slices, inside, pixels)
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
    bands, kept = _bands(len(power), widths)
    kept = kept[:, cells]
    held = kept > least
    relative = np.where(held, kept / found, 0.0)  # so that each error counts by its own size
    plateau, slope = _two_levels(relative, texture)
    lowest = np.where(held, found / np.where(held, kept, 1.0), np.inf).min(1)
    plateau = np.maximum(plateau, NOISY * np.where(np.isfinite(lowest), lowest, 0.0))
    fitted = np.log((plateau[:, None] + slope[:, None] * texture) * kept + faint)
    off = np.where(held.any(1), np.square(fitted - np.log(found + faint)).sum(1), np.inf)
    best = int(off.argmin())
    first, second = (pixel * width for pixel, width in zip(pixels, bands[best].widths))
    noise, common = replace(bands[best], widths=(first, second)), cosine_frequencies(MANY)
    return replace(noise, deviation=math.sqrt(plateau[best] * np.square(noise.kept(common, common)).mean()))


@cache
def _bands(count: int, widths: tuple[float, ...]) -> tuple[list[Noise], np.ndarray]:
    """All bands that are tried, and their power at `count` frequencies along either axis as `_spectrum` shows it.

    The windows there, Hann's, blur it by a frequency.
    """
    frequency = np.arange(count) / (2 * (count - 1))
    shapes, tapers = ((False, True), TAPERS) if count > FEW else ((False,), TAPERS[-1:])
    bands = [
        Noise(1.0, (first, second), shape, taper)
        for first, second, shape, taper in itertools.product(widths, widths, shapes, tapers)
        if taper == TAPERS[-1] or shape or max(first, second) > 1  # else nothing falls
    ]
    power = np.stack([np.square(one.kept(frequency, frequency)) for one in bands])
    for axis in (1, 2):
        mirrored = np.take(power, [1, *range(count), count - 2], axis)
        before, here, after = (np.take(mirrored, range(start, start + count), axis) for start in range(3))
        power = before / 6 + 2 * here / 3 + after / 6
    return bands, power


def _two_levels(relative: np.ndarray, texture: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Plateau and slope of each band, neither negative, whose sum is nearest to the spectrum: least squares.

    Args:
        relative: of each band, its power over the spectrum's, `(bands, cells)`; 0 where a cell does not count.
        texture: `(cells,)`.
    """
    both = relative * texture
    a, b, c = ((one * other).sum(1) for one, other in ((relative, relative), (relative, both), (both, both)))
    p, q = relative.sum(1), both.sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = a * c - b * b
        plateau, slope = (p * c - q * b) / size, (q * a - p * b) / size
        alone = ~((size > 0) & (plateau >= 0) & (slope >= 0))  # then one of them is 0
        flat = p**2 / a >= q**2 / c
        plateau = np.where(alone, np.where(flat, p / a, 0.0), plateau)
        slope = np.where(alone, np.where(flat, 0.0, q / c), slope)
    return np.nan_to_num(plateau), np.nan_to_num(slope)


def _spectrum(slices: np.ndarray, inside: np.ndarray, pixels: tuple[float, float]) -> np.ndarray:
    """Power of the head's flattest patches by frequency, `(n, n)`, from 0 to a half per `pixels`.

    White noise of variance 1 has the power 1. The array is empty where the slices hold no patch.
    """
    shorter = int(min(count / pixel for count, pixel in zip(slices.shape[1:], pixels)))
    size = min(max(shorter // 3, PATCH // 3), PATCH) // 2 * 2  # small slices, too, hold several
    if size > shorter:
        return np.zeros((0, 0))
    sizes = [2 * int(size * pixel / 2) for pixel in pixels]
    shown, number = _patches(slices, inside, sizes)
    power = np.square(np.abs(np.fft.fft2(shown))) / math.prod(sizes)
    lowest = np.arange(-2, 3)
    coarse = power[:, lowest[:, None], lowest].sum((1, 2))
    flattest = [np.quantile(coarse[number == one], FLATTEST) for one in range(1 + number[-1])]
    own = coarse <= np.take(flattest, number)
    levels = np.bincount(number[own], (power.sum((1, 2)) - coarse)[own]) / np.bincount(number[own])  # of slices
    usual = (levels * ODD >= np.median(levels)) & (levels <= ODD * np.median(levels))
    power, coarse = power[usual[number]], coarse[usual[number]]
    power = power[coarse <= np.quantile(coarse, FLATTEST)]
    both = np.concatenate([power, np.roll(np.flip(power, 2), 1, 2)])  # of positive and negative frequencies
    half = np.arange(size // 2 + 1)
    real = np.logical_and.outer(*(2 * half % one == 0 for one in sizes))  # a frequency of one part, else of two
    return np.median(both[:, half[:, None], half], 0) / np.where(real, REAL_MEDIAN, MEDIAN)


def _patches(slices: np.ndarray, inside: np.ndarray, sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The patches of the head that are not dark, windowed, without mean and slope, `(N, *sizes)`; and of which slice.

    Slices with patches count from 0.
    """
    # they overlap by half, counted from either end: a mirrored slice has the mirrored patches
    starts = [np.arange(0, (n - one) // 2 + 1, one // 2) for n, one in zip(slices.shape[1:], sizes)]
    ends = (n - one - start for n, one, start in zip(slices.shape[1:], sizes, starts))
    rows, columns = np.ix_(*map(np.union1d, starts, ends))
    windows = (np.lib.stride_tricks.sliding_window_view(one, sizes, (1, 2)) for one in (slices, inside))  # type: ignore[call-overload]
    patches, heads = (one[:, rows, columns].reshape(-1, *sizes) for one in windows)
    number = np.repeat(np.arange(len(slices)), len(patches) // len(slices))  # of a patch's slice
    share = heads.mean((1, 2))
    held = share >= min(1.0, float(share.max()))
    shown, number = patches[held].astype(np.float64), number[held]
    window = np.outer(*(np.hanning(one + 2)[1:-1] for one in sizes))
    means = np.average(shown.reshape(len(shown), -1), axis=1, weights=window.ravel())
    bright = means >= np.median(means) / 2
    shown, number = (shown - means[:, None, None])[bright], number[bright]
    for place in np.ix_(*(np.arange(one) - (one - 1) / 2 for one in sizes)):  # a slope would leak into all frequencies
        weight = window * place
        shown -= place * (shown * weight).sum((1, 2), keepdims=True) / (weight * place).sum()
    return shown * (window / np.sqrt(np.square(window).mean())), np.unique(number, return_inverse=True)[1]
