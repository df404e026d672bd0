"""Pixels of a stack's images: their intensities, and comparisons of contrasts, copies, and where a head is cut."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from pydicom.pixels import apply_modality_lut

from ...errors import InputError
from ...stack.interleaving import block_means
from ...stack.planes import places
from ..headers import Frame, numbers, read_dataset, reason, rescaling


def planes(frames: Sequence[Frame]) -> dict[Frame, np.ndarray]:
    """Intensities of images, `(rows, columns)`, NaN where they are padding. Each file is read once."""
    found = {}
    for path, members in groupby(sorted(frames, key=lambda one: one.image), key=lambda one: one.image[0]):
        with named(path):
            dataset = read_dataset(path)
            stored = dataset.pixel_array.reshape(-1, dataset.Rows, dataset.Columns)
            found.update({frame: _plane(stored[frame.image[1]], frame) for frame in members})
    return found


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Raises an `InputError` that names a file for whatever pydicom and the decoders raise, which is of many types."""
    try:
        yield
    except Exception as error:
        raise InputError(f"{path} cannot be read ({reason(error)}). Export or download it again.") from error


def _plane(stored: np.ndarray, frame: Frame) -> np.ndarray:
    """Intensities of stored pixels, float32: by the modality LUT, else by `headers.rescaling`; NaN where padded."""
    slope, intercept = rescaling(frame.header)
    by_table = "ModalityLUTSequence" in frame.header
    plane = (apply_modality_lut(stored, frame.header) if by_table else stored * slope + intercept).astype(np.float32)
    if not np.isfinite(plane).all():
        raise ValueError("infinite intensities")
    first, limit = (numbers(frame.header, f"PixelPadding{name}", 1)[0] for name in ("Value", "RangeLimit"))
    padding = (np.fmin(first, limit) <= stored) & (stored <= np.fmax(first, limit))  # PS3.3, C.7.5.1.1.2
    plane[padding & np.isfinite(first)] = np.nan
    return np.flip(plane, frame.flipped)


def blocks(frames: Sequence[Frame]) -> np.ndarray:
    """`(n, rows, columns)`: means of blocks of the first image at each place."""
    firsts = [first for first, *_ in places(frames)]
    found = planes(firsts)
    return block_means(torch.from_numpy(np.nan_to_num([found[first] for first in firsts]))).numpy()


def copies(frames: list[Frame]) -> bool:
    """Whether all images at one place have the same pixels: a series that was sent twice, under new UIDs."""
    try:
        found = planes(frames)
    except InputError:
        return False
    return all(len({found[frame].tobytes() for frame in place}) == 1 for place in places(frames))
