"""The slices of a series as one volume, in their order in space. Nothing is filled in."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import torch
from nibabel.spatialimages import SpatialImage
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


@quiet()
def read_series(series: Series) -> SpatialImage:
    """A series that was taken, in the order of its slices in space.

    Its array is float32: columns, rows and slices, in the units of the rescaled images. `extra` has meta data of
    `readers.ScanReader.get_data`: what its headers state, description and date of the series, and its note.
    Padding (`PixelPaddingValue`, to `PixelPaddingRangeLimit`) is no signal: it becomes the floor of the rest
    (`intensity.intensity_range`), which is 0 in most scans.
    """
    if series.skipped:
        raise InputError(f"{series.name} was skipped: {series.skipped}. Give another series.")
    planes, frames, repeats = _read(series), [], []
    for frame, *others in places(list(planes)):
        for other in others:
            if not np.array_equal(planes[other], planes[frame], equal_nan=True):
                raise InputError(
                    f"{series.name}: {frame.image[0]} and {other.image[0]} are different images at the same place. "
                    "Give the files of one volume only."
                )
            repeats.append(f"{other.image[0]} repeats {frame.image[0]}")
        frames.append(frame)
    if repeats:
        logger.warning(f"{series.name}: {len(repeats)} repeated images are left out: {repeats[0]}, and so on.")
    header, affine = frames[0].header, _affine(series.name, frames)
    spacing = float(grid.voxel_spacing(affine)[2])
    said = numbers(header, "SpacingBetweenSlices", 1)[0]
    if abs(said - spacing) > max(SPACING_TOLERANCE * spacing, SAME_PLACE):
        logger.warning(
            f"{series.name}: SpacingBetweenSlices is {said:.4g} mm, but slices lie {spacing:.4g} mm apart, which "
            "is used. Check that none is missing."
        )
    thickness = [frame.thickness for frame in frames if frame.thickness > 0]
    if thickness and max(thickness) > 1.01 * min(thickness):
        logger.warning(
            f"{series.name}: slices are {min(thickness):g} to {max(thickness):g} mm thick; the median, "
            f"{np.median(thickness):g} mm, is used."
        )
    source, names = "the DICOM header", {"series": "SeriesDescription", "date": "StudyDate"}
    stated: dict[str, list] = {"slice_axis": [2, source]}
    if thickness:
        stated["slice_thickness"] = [float(np.median(thickness)), source]
    for keyword in TIMES:
        if found := by_times([float(numbers(frame.header, keyword, 1)[0]) for frame in frames]):
            stated["packages"] = [found, f"{keyword} of {source}"]
            break
    array = _without_padding(series.name, np.stack([planes[frame].T for frame in frames], axis=-1))
    facts = {"stated": stated, "series": {name: str(value(header, keyword, "")) for name, keyword in names.items()}}
    return SpatialImage(array, affine, extra={**facts, **({"warning": series.note} if series.note else {})})


@quiet()
def read_headers(series: Series) -> tuple[list[Dataset], list[int]]:
    """Classic headers of a series, in the order of the slices of `read_series`, and the index of each in its file."""
    frames = [first for first, *_ in places(list(_read(series, pixels=False)))]
    return [frame.header for frame in frames], [frame.image[1] for frame in frames]


def _read(series: Series, pixels: bool = True) -> dict[Frame, np.ndarray]:
    """Rescaled pixels `(rows, columns)` of a series, NaN where they are padding, by images; or the images alone."""
    images = {}
    for path, members in groupby(series.images, key=lambda image: image[0]):
        try:
            dataset = read_dataset(path, stop_before_pixels=not pixels)
            headers = classic_headers(dataset)
            stored = dataset.pixel_array.reshape(-1, dataset.Rows, dataset.Columns) if pixels else None
            for _, index in members:
                header = headers[index]
                frame = Frame.of(header, (path, index), unfit(header) if pixels else None)
                images[frame] = np.empty(0) if stored is None else _plane(stored[index], frame)
        except Exception as error:  # pydicom and the decoders raise many types for a broken file
            raise InputError(f"{path} cannot be read ({reason(error)}). Export or download it again.") from error
    return images


def _plane(stored: np.ndarray, frame: Frame) -> np.ndarray:
    plane = intensities(stored, frame.header)
    if frame.unfit or not np.isfinite(plane).all():
        raise ValueError(frame.unfit or "infinite intensities")
    first, limit = (numbers(frame.header, f"PixelPadding{name}", 1)[0] for name in ("Value", "RangeLimit"))
    padding = (np.fmin(first, limit) <= stored) & (stored <= np.fmax(first, limit))  # PS3.3, C.7.5.1.1.2
    plane[padding & np.isfinite(first)] = np.nan
    return plane


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
