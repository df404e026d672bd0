"""The slices of a series as one volume, in their order in space. Nothing is filled in."""

from collections.abc import Sequence

import numpy as np
import torch
from nibabel.spatialimages import SpatialImage
from pydicom import Dataset

from ...errors import InputError, logger
from ...stack import grid
from ...stack.intensity import without_signal
from ...stack.packages import by_times
from ...stack.planes import EVEN, SAME_PLACE, along, multiples, pitch, places, tolerance
from ..headers import Frame, classic_headers, numbers, quiet, read_dataset, value
from .pixels import named, planes
from .policies import ACQUIRED
from .select import Series


@quiet()
def read_series(series: Series) -> SpatialImage:
    """A series that was taken, in the order of its slices in space.

    Its array is float32: columns, rows and slices, in the units of the rescaled images. `extra` has meta data of
    `readers.ScanReader.get_data`. Padding (`PixelPaddingValue`) is no signal: it becomes the floor of the rest
    (`intensity.intensity_range`), which is 0 in most scans.
    """
    if series.skipped:
        raise InputError(f"{series.name} was skipped: {series.skipped}. Give another series.")
    pixels, frames, repeats = planes(series.frames), [], []
    for frame, *others in places(series.frames):
        for other in others:
            if not np.array_equal(pixels[other], pixels[frame], equal_nan=True):
                raise InputError(
                    f"{series.name}: {frame.image[0]} and {other.image[0]} are different images at the same place. "
                    "Give the files of one volume only."
                )
            repeats.append(f"{other.image[0]} repeats {frame.image[0]}")
        frames.append(frame)
    if repeats:
        logger.warning(f"{series.name}: {len(repeats)} repeated images are left out: {repeats[0]}, and so on.")
    header, affine = frames[0].header, _affine(series.name, frames)
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
    if (spacing := numbers(header, "SpacingBetweenSlices", 1)[0]) > 0:
        stated["slice_spacing"] = [float(spacing), source]
    for keyword in ACQUIRED:
        if found := by_times([float(numbers(frame.header, keyword, 1)[0]) for frame in frames]):
            stated["packages"] = [found, f"{keyword} of {source}"]
            break
    array = _without_padding(series.name, np.stack([pixels[frame].T for frame in frames], axis=-1))
    facts = {"stated": stated, "series": {name: str(value(header, keyword, "")) for name, keyword in names.items()}}
    return SpatialImage(array, affine, extra={**facts, **({"warning": series.note} if series.note else {})})


@quiet()
def read_headers(series: Series) -> tuple[list[Dataset], list[int]]:
    """Classic headers of a series, in the order of the slices of `read_series`, and the index of each in its file."""
    images, files = [first.image for first, *_ in places(series.frames)], {}
    for path in dict.fromkeys(path for path, _ in images):
        with named(path):
            files[path] = classic_headers(read_dataset(path, stop_before_pixels=True))
    return [files[path][index] for path, index in images], [index for _, index in images]


def _without_padding(name: str, array: np.ndarray) -> np.ndarray:
    """A volume whose padding, NaN, has become no signal, the floor of the rest; a line says so."""
    padding = np.isnan(array)
    if padding.all():
        raise InputError(f"{name}: all voxels are padding (PixelPaddingValue). Export the series again.")
    if not padding.any():
        return array
    found, nothing = without_signal(torch.from_numpy(array))
    logger.info(f"{name}: {padding.sum()} voxels of padding (PixelPaddingValue) become {nothing:g}.")
    return found.numpy()


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
