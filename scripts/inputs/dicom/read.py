"""The slices of a series as one volume, in their order in space. Nothing is filled in."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from pydicom import Dataset

from ...errors import InputError, logger
from ...stack import grid
from ...stack.intensity import intensity_range
from ...stack.packages import by_times
from ..headers import Frame, classic_headers, intensities, numbers, quiet, read_dataset, reason, value
from .places import EVEN, SAME_PLACE, SPACING_TOLERANCE, along, multiples, pitch, places, tolerance
from .policies import unfit
from .select import Series

TIMES = (  # attributes that say which slices came first, the most telling first; each rises with time
    "AcquisitionTime FrameAcquisitionDateTime AcquisitionDateTime TriggerTime AcquisitionNumber"
).split()


@dataclass(frozen=True)
class Volume:
    """A series as one stack of slices.

    Attributes:
        array: `(X, Y, Z)` float32: columns, rows and slices, in the units of the rescaled images.
        affine: `(4, 4)`, voxel -> mm, RAS.
        slice_thickness: (0018,0050) in mm, None where it is missing.
        packages: of `packages.by_times`, and the attribute that says them; empty where none does.
        description, date: `SeriesDescription`, and `StudyDate` as `YYYYMMDD`; empty where they are missing.
        note: of the series.
    """

    array: np.ndarray
    affine: np.ndarray
    slice_thickness: float | None
    packages: tuple[str, str]
    description: str
    date: str
    note: str


@quiet()
def read_series(series: Series) -> Volume:
    """Reads a series that was taken, in the order of its slices in space.

    Padding (`PixelPaddingValue`, to `PixelPaddingRangeLimit`) is no signal: it becomes the floor of the rest
    (`intensity.intensity_range`), which is 0 in most scans.
    """
    if series.skipped:
        raise InputError(f"{series.name} was skipped: {series.skipped}. Give another series.")
    images: dict[Frame, tuple[Dataset, np.ndarray]] = {}
    for path, members in groupby(series.images, key=lambda image: image[0]):
        images |= _read(path, [index for _, index in members])
    frames, repeats = [], []
    for frame, *others in places(list(images)):
        for other in others:
            if not np.array_equal(images[other][1], images[frame][1], equal_nan=True):
                raise InputError(
                    f"{series.name}: {frame.image[0]} and {other.image[0]} are different images at the same place. "
                    "Give the files of one volume only."
                )
            repeats.append(f"{other.image[0]} repeats {frame.image[0]}")
        frames.append(frame)
    if repeats:
        logger.warning(f"{series.name}: {len(repeats)} repeated images are left out: {repeats[0]}, and so on.")
    headers = [images[frame][0] for frame in frames]
    affine = _affine(series.name, frames)
    spacing = float(grid.voxel_spacing(affine)[2])
    stated = numbers(headers[0], "SpacingBetweenSlices", 1)[0]
    if abs(stated - spacing) > max(SPACING_TOLERANCE * spacing, SAME_PLACE):
        logger.warning(
            f"{series.name}: SpacingBetweenSlices is {stated:.4g} mm, but slices lie {spacing:.4g} mm apart, which "
            "is used. Check that none is missing."
        )
    thickness = [frame.thickness for frame in frames if frame.thickness > 0]
    if thickness and max(thickness) > 1.01 * min(thickness):
        logger.warning(
            f"{series.name}: slices are {min(thickness):g} to {max(thickness):g} mm thick; the median, "
            f"{np.median(thickness):g} mm, is used."
        )
    return Volume(
        array=_without_padding(series.name, np.stack([images[frame][1].T for frame in frames], axis=-1)),
        affine=affine,
        slice_thickness=float(np.median(thickness)) if thickness else None,
        packages=_packages(headers),
        description=str(value(headers[0], "SeriesDescription", "")),
        date=str(value(headers[0], "StudyDate", "")),
        note=series.note,
    )


@quiet()
def read_headers(series: Series) -> tuple[list[Dataset], list[int]]:
    """Classic headers of a series, in the order of the slices of `read_series`, and the index of each in its file."""
    headers: dict[Frame, Dataset] = {}
    for path, members in groupby(series.images, key=lambda image: image[0]):
        try:
            of_file = classic_headers(read_dataset(path, stop_before_pixels=True))
            headers |= {Frame.of(of_file[index], (path, index)): of_file[index] for _, index in members}
        except Exception as error:  # pydicom raises many types for a broken file
            raise InputError(f"{path} cannot be read ({reason(error)}). Export or download it again.") from error
    frames = [first for first, *_ in places(list(headers))]
    return [headers[frame] for frame in frames], [frame.image[1] for frame in frames]


def _read(path: Path, indices: list[int]) -> dict[Frame, tuple[Dataset, np.ndarray]]:
    """Header and rescaled pixels `(rows, columns)`, NaN where they are padding, of some frames of a file."""
    images = {}
    try:
        dataset = read_dataset(path)
        headers = classic_headers(dataset)
        stored = dataset.pixel_array.reshape(-1, dataset.Rows, dataset.Columns)
        for index in indices:
            header = headers[index]
            frame = Frame.of(header, (path, index), unfit(header))
            plane = intensities(stored[index], header)
            if frame.unfit or not np.isfinite(plane).all():
                raise ValueError(frame.unfit or "infinite intensities")
            plane[_padding(stored[index], header)] = np.nan
            images[frame] = header, plane
    except Exception as error:  # pydicom and the decoders raise many types for a broken file
        raise InputError(f"{path} cannot be read ({reason(error)}). Export or download it again.") from error
    return images


def _packages(headers: Sequence[Dataset]) -> tuple[str, str]:
    """Packages of slices by the first attribute that says them, and its name."""
    for keyword in TIMES:
        if found := by_times([float(numbers(header, keyword, 1)[0]) for header in headers]):
            return found, keyword
    return "", ""


def _padding(stored: np.ndarray, header: Dataset) -> np.ndarray:
    """Mask of the stored values that are padding: one value, or the range to another one (PS3.3, C.7.5.1.1.2)."""
    first, limit = (numbers(header, f"PixelPadding{name}", 1)[0] for name in ("Value", "RangeLimit"))
    return (np.fmin(first, limit) <= stored) & (stored <= np.fmax(first, limit)) & np.isfinite(first)


def _without_padding(name: str, array: np.ndarray) -> np.ndarray:
    """A volume whose padding, NaN, has become no signal, the floor of the rest; a line says so."""
    padding = np.isnan(array)
    if padding.all():
        raise InputError(f"{name}: all voxels are padding (PixelPaddingValue). Export the series again.")
    if padding.any():
        array[padding] = nothing = intensity_range(torch.from_numpy(array[~padding])).low
        logger.info(f"{name}: {padding.sum()} voxels of padding (PixelPaddingValue) become {nothing:g}.")
    return array


def _affine(name: str, frames: Sequence[Frame]) -> np.ndarray:
    """RAS affine `(4, 4)` of slices in their order, one at each place. Slight unevenness is warned of."""
    gaps = np.diff(along(frames))
    usual = pitch(gaps)
    count, even = multiples(gaps, usual)
    if count.max() > 1 and even.all():
        after, missing = int(np.argmax(count > 1)), int((count - 1).sum())
        raise InputError(
            f"{name}: {missing} of {len(frames) + missing} slices missing; slices are {usual:.4g} mm apart, but "
            f"{frames[after].image[0]} and {frames[after + 1].image[0]} {gaps[after]:.4g} mm. Nothing is filled in: "
            "export the whole series again, or set --missing_slices longest, which rebuilds the longest unbroken part."
        )
    positions = np.array([frame.position for frame in frames])
    step = (positions[-1] - positions[0]) / (len(frames) - 1)
    off = np.linalg.norm(positions - positions[0] - np.arange(len(frames))[:, None] * step, axis=1).max()
    if off > tolerance(usual):
        raise InputError(
            f"{name}: slices lie unevenly, {gaps.min():.4g} to {gaps.max():.4g} mm apart and up to {off:.2g} mm off an "
            f"even grid; at most {tolerance(usual):.2g} mm is supported. Give the files of one even stack."
        )
    if off > SAME_PLACE / 5:
        logger.warning(f"{name}: slices lie up to {off:.2g} mm off an even grid; their mean spacing is used.")
    plane = np.median([frame.plane for frame in frames], axis=0)
    row, column, (between_rows, between_columns) = np.split(plane, [3, 6])
    normal = np.cross(row, column)
    if np.linalg.norm(np.cross(normal, positions[-1] - positions[0])) <= EVEN:  # which rounded positions lie off it
        upright = normal * (step @ normal) / (normal @ normal)
        step = upright if grid.shear_angle(np.stack([row, column, step], axis=1)) > grid.MAX_SHEAR else step
    affine = np.eye(4)
    affine[:3] = np.stack([row * between_columns, column * between_rows, step, positions[0]], axis=1)
    return np.diag([-1, -1, 1, 1]) @ affine
