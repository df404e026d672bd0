"""Which intensities of a scan are tissue: a range that air, padding, undershoot and hot spots do not move."""

import math
import zlib
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from ..errors import InputError

UPPER_PERCENTILE = 99.7  # of the head; 99.9 of a field of view that it fills a third of
LOWER_PERCENTILE = 0.1  # of scans that were standardised
NEGATIVE = 0.05  # of the voxels that are not zero; padding and the undershoot of splines are fewer
DIMMEST = 1 / 3  # of the head's typical intensity; noise of a twelfth of it reaches this in one voxel in 2,000
BRIGHTEST = 5.0  # times the head's typical intensity; of 54 scans none has a voxel in 20,000 above it
NEAR, CROWD = 0.1, 0.1  # a floor has a crowd, a share of all voxels, near it, in typical intensities
DEAD = 1e-4  # of all voxels are few enough to be dead ones: far below all others, they are no floor
PADDED = 0.01  # of the voxels hold the one value that is padding; more negative ones than this may move a floor
FAR = 1.5  # typical intensities from the floor to padding anywhere; the air of standardised scans is nearer
NOTHING = 1e-4  # of the intensity of half of the strength; less is no signal
VARIED, RELATED = 0.2, 0.6  # noise varies by more of its mean; voxels two away are correlated by less
HOT, BROAD = 1e-3, 0.1  # of the head is brighter than five times its typical intensity: beyond, it is no hot spot
SKIRT, FADED = 10, 2.0  # voxels around a hot spot, and typical intensities down to which they are of it
HEM = 2  # voxels more, in which it fades to the intensity of tissue
LOUDEST = 1.5  # of the range of tissue: packages and slices of one head differ in gain
TAIL = 97.0  # percentile of the voxels that may be noise, to which they are clipped
POCKETS = 0.01  # of the background: NaN within the head that is no signal, as where a sinus is
MINORITY = 0.15  # of the voxels with a signal; more are no hot spot


class IntensityRange(NamedTuple):
    """The range of a scan's tissue, in the scan's units.

    Attributes:
        low: becomes -1.
        high: becomes 1; vessels and fat may be brighter.
        ceiling: brighter voxels are no tissue.
    """

    low: float
    high: float
    ceiling: float

    @property
    def extent(self) -> float:
        """How much is between both ends."""
        return self.high - self.low

    def tissue(self, volume: Tensor) -> Tensor:
        """The volume with tissue alone: `low` where it is darker or masked, typical above the ceiling.

        A hot spot that is cut off at the ceiling is still the strongest contrast in its plane. Networks would change
        the tissue around it.
        """
        typical = self.low + (self.ceiling - self.low) / BRIGHTEST
        return volume.clamp(min=self.low).where(volume <= self.ceiling, typical).where(~self.masked(volume), self.low)

    def signal(self, volume: Tensor) -> Tensor:
        """How far the volume lies above the floor, from 0 to `LOUDEST` of the extent, `(X, Y, Z)`.

        Squares and correlations are of it: in them a spot of 25 times the tissue weighs as much as 600 of its voxels.
        """
        top = self.low + LOUDEST * self.extent
        return volume.clamp(self.low, top).where(~self.masked(volume), self.low) - self.low

    def masked(self, volume: Tensor) -> Tensor:
        """Voxels that a mask left at 0 in a standardised scan, where 0 is the intensity of tissue."""
        zero = volume == 0
        return zero & (self.low < 0 and bool(zero.double().mean() > CROWD))

    def to_unit(self, volume: Tensor) -> Tensor:
        """Intensities mapped linearly, `[low, high]` to `[-1, 1]` (Sec. S4.3), without clipping."""
        return (volume - self.low) * (2 / self.extent) - 1

    def to_scan(self, unit: Tensor) -> Tensor:
        """Undoes `to_unit`."""
        return (unit + 1) * (self.extent / 2) + self.low

    def attach(self, volume: Any) -> None:
        """Writes the range of a `MetaTensor`'s voxels into its meta data, in plain numbers, which batches can hold."""
        volume.meta["tissue_range"] = [*self, _checksum(volume)]

    @classmethod
    def attached(cls, volume: Any) -> Self | None:
        """The range that `attach` has written; None where there is none, or where the voxels have changed since."""
        *ends, checksum = map(float, volume.meta.get("tissue_range", [math.nan]))  # collation makes tensors of them
        return cls(*ends) if checksum == _checksum(volume) else None


def _checksum(volume: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(volume.cpu(), np.float32).data)


def check_finite(volume: Tensor, name: str) -> None:
    """Refuses voxels that are no numbers. They would spread over a result, or over weights in training."""
    count = int((~torch.isfinite(volume)).sum())
    if count:
        raise InputError(f"{name} has {count} NaN or infinite voxels: expected none. Mask or mend them first.")


def intensity_range(volume: Tensor) -> IntensityRange:
    """The range of a scan's tissue. The amount of air around the head does not change it.

    All slices share one range. A range for each slice would show as bands.

    - The range begins at the scan's floor, which is 0 in most scans (`_floor`).
    - The head's typical intensity is measured from there (`_typical`).
    - The head lies between a third and five times the typical intensity. Darker is air; brighter is a hot spot.
    - The range ends at the 99.7th percentile of the head. A hot spot's skirt is left out, see `_skirt`.

    Args:
        volume: of any shape, finite.

    Returns:
        A range with `low < high <= ceiling`. That of a constant volume begins at the constant.

    Example:
        The same head with no air, and with a hundred times as much air as head:

        >>> head = torch.arange(100.0, 1001.0)
        >>> intensity_range(head)
        IntensityRange(low=0.0, high=997.648, ceiling=3227.5)
        >>> intensity_range(torch.cat([head, torch.zeros(90000)]))
        IntensityRange(low=0.0, high=997.648, ceiling=3227.5)
    """
    values = np.asarray(volume.detach().cpu(), dtype=np.float64)
    ordered = np.sort(values, axis=None)
    low = _floor(values, ordered)
    for without_tail in (True, False):
        typical = _typical(values, ordered, low, without_tail)
        if typical == 0:  # constant
            high = max(low + 1, float(np.nextafter(np.float32(low), np.float32(math.inf))))
            return IntensityRange(low, high, high)
        first, end = np.searchsorted(ordered, [low + DIMMEST * typical, low + BRIGHTEST * typical], side="right")
        head, hot = ordered[first:end], len(ordered) - end
        if hot < BROAD * len(head):
            break
    if HOT * len(head) < hot < BROAD * len(head):
        skirt = _skirt(values, low, typical)
        head = np.sort(values[~skirt & (values > low + DIMMEST * typical) & (values <= low + BRIGHTEST * typical)])
    high = float(np.percentile(head, UPPER_PERCENTILE))
    return IntensityRange(low, high, low + BRIGHTEST * typical)


def without_signal(volume: Tensor) -> tuple[Tensor, float]:
    """A volume whose NaN is no signal, and the intensity of that: the floor of the other voxels, 0 in most scans."""
    nan = torch.isnan(volume)
    low = intensity_range(volume[~nan]).low
    return volume.where(~nan, low), low


def unwrapped(stored: np.ndarray) -> np.ndarray:
    """Whole numbers of 16 bits, `(X, Y, Z)`, as they are, or float32 where values above 32767 became negative.

    Then most steps through 0 are longer than 2^15: a head is brightest beside what is nearly as bright. Its air is
    positive: no corner is negative, and a tenth of the other voxels is dark. In CT, and in real and imaginary parts,
    intensities pass 0 in small steps.
    """
    if stored.min() >= 0 or stored[np.ix_(*[[0, -1]] * 3)].min() < 0:
        return stored
    array = stored.astype(np.float32)
    if np.percentile(array[array >= 0], 10) > 2**14:
        return stored
    through = [np.diff(array, axis=axis)[np.diff(array < 0, axis=axis)] for axis in range(3)]
    if np.median(np.abs(np.concatenate(through))) <= 2**15:
        return stored
    array[array < 0] += 2**16
    return array


def is_background(nan: Tensor) -> bool:
    """Whether voxels, `(X, Y, Z)`, reach the border and surround a head, but for few pockets."""
    outside = ~ndimage.binary_fill_holes(~nan.cpu().numpy())
    pockets = int(nan.sum()) - outside.sum()
    return not nan.all() and bool(pockets <= POCKETS * outside.sum())


def _skirt(values: np.ndarray, low: float, typical: float) -> np.ndarray:
    """Mask of the fading rims of hot spots: bright voxels that a few steps join to brighter ones."""
    hot, bright = values > low + BRIGHTEST * typical, values > low + FADED * typical
    return ndimage.binary_dilation(ndimage.binary_dilation(hot, iterations=SKIRT, mask=bright), iterations=HEM)


def _floor(values: np.ndarray, ordered: np.ndarray) -> float:
    """The intensity of no signal: 0, as in magnitude images, but for two kinds of scans.

    A standardised scan has many negative voxels: its floor is its 0.1th percentile. A raised scan has many voxels near
    its darkest one, which is positive: its floor is that one. A crop without air has few voxels so dark. Some dead
    voxels far below all others take no part.

    Padding is no floor: one negative value of many voxels that lies far below all others, or in a corner of the field
    and below the air of the others.
    """
    rest = ordered[np.searchsorted(ordered, ordered[0], side="right") :]
    if ordered[0] < 0 and len(rest) and len(ordered) - len(rest) > PADDED * len(ordered):
        floor = _floor(values, rest)
        typical = _typical(values, rest, floor)
        first, end = np.searchsorted(rest, [floor - NEAR * typical, floor + NEAR * typical], side="right")
        beside_air = ordered[0] in values[np.ix_(*[[0, -1]] * values.ndim)] and end - first > CROWD * len(rest)
        least = FAR if not beside_air else NEAR if floor < 0 else 0  # standardised air has the masked one beside it
        if typical > 0 and floor - ordered[0] > least * typical:
            return floor
    filled = ordered[ordered != 0]  # a mask leaves zeros
    if np.searchsorted(filled, 0.0) > NEGATIVE * len(filled):
        return float(np.percentile(filled, LOWER_PERCENTILE))
    darkest, others = float(ordered[0]), float(ordered[int(DEAD * len(ordered))])
    if others <= 0:
        return 0.0
    margin = NEAR * _typical(values, ordered, others)
    if darkest < others - margin:
        darkest = others
    near = np.searchsorted(ordered, darkest + margin, side="right")
    return darkest if 0 < darkest and near > CROWD * len(ordered) else 0.0


def _typical(values: np.ndarray, ordered: np.ndarray, low: float, without_tail: bool = False) -> float:
    """The head's typical intensity above `low`, a median; 0 if nothing is brighter than `low`.

    The strongest voxels make half of the sum of fourth powers. Voxels down to a third of the weakest of these are the
    bright ones; all others with a signal are dim. Many bright voxels are the head. Few bright voxels, or many of one
    value, are either a small head in air, if the dim ones are noise, or hot spots or padding beside a head. These are
    left out, and the search starts again. `without_tail` finds less noise.
    """
    signal = ordered - low
    strength = np.cumsum(np.maximum(signal, 0) ** 4)  # air is weak, however much there is
    end = len(signal)
    while end and strength[end - 1] > 0:
        half = signal[np.searchsorted(strength[:end], strength[end - 1] / 2)]
        start, first = np.searchsorted(signal[:end], [NOTHING * half, DIMMEST * half], side="right")
        many = end - first > MINORITY * (end - start) and (first == start or signal[first] < signal[end - 1])
        if many or _is_noise(values - low, signal[start], signal[first - 1], without_tail):
            return float(np.median(signal[first:end]))
        end = first
    return 0.0


def _is_noise(signal: np.ndarray, dimmest: float, brightest: float, without_tail: bool) -> bool:
    """Whether voxels between two intensities are noise: they vary much, and say little of those two voxels away.

    Rayleigh noise, as of air in magnitude images, has a standard deviation of 0.52 of its mean. They may be looked
    at without their tail as well: a few bright voxels, as of a hot spot's skirt, hide how tissue is correlated.
    """
    inside = (signal >= dimmest) & (signal <= brightest)
    if signal[inside].std() < VARIED * signal[inside].mean():
        return False
    clipped = [np.minimum(signal, np.percentile(signal[inside], TAIL))] if without_tail else []
    for axis in range(signal.ndim):
        here = np.moveaxis(inside, axis, 0)
        pairs = here[2:] & here[:-2]
        for what in (signal, *clipped):
            there = np.moveaxis(what, axis, 0)
            if pairs.sum() > 2 and np.corrcoef(there[2:][pairs], there[:-2][pairs])[0, 1] > RELATED:
                return False
    return True


def data_range(truth: Tensor) -> float:
    """Largest minus smallest intensity of the truth.

    Raises:
        ValueError: if the truth holds one value, or NaN or infinite ones.
    """
    extent = float(truth.max()) - float(truth.min())
    if not 0 < extent < math.inf:
        raise ValueError(f"truth has an intensity range of {extent}: expected a positive one. Leave this volume out.")
    return extent
