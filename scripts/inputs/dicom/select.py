"""Which series among files can be rebuilt. Each is split into volumes; those that are not taken have a reason."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydicom import uid
from pydicom.tag import Tag
from tqdm import tqdm

from ...errors import InputError, few
from ...files import walk
from ...stack import grid
from ...stack.acquisition import is_thin
from . import policies
from .headers import DISTINCTIVE, SAME_PLACE, Frame, classic_headers, is_dicom, quiet, read_dataset, reason

logger = logging.getLogger("drift")

MAX_VOLUMES = 8  # more at one place are a dynamic, functional or diffusion series
SAME_PLANE = 1e-4  # in directions and in mm of pixel spacing: counts as rounding of the header
ENDINGS = tuple(f"{ending}{zipped}" for ending in (".dcm", ".ima", ".dicom") for zipped in ("", ".gz"))
SEARCHED = [  # attributes that are read of a file to find out what it is
    *map(Tag, policies.READ),
    *map(Tag, DISTINCTIVE),
    *map(
        Tag, "PatientID PatientName StudyInstanceUID SeriesNumber SeriesDescription Rows Columns SliceThickness".split()
    ),
    *map(Tag, "SharedFunctionalGroupsSequence PerFrameFunctionalGroupsSequence".split()),
]


@dataclass(frozen=True)
class Series:
    """Images that form one volume, or that are skipped for one reason.

    Attributes:
        name: for people and for files; the same in every run.
        images: (path, index of the frame in the file) of each image, in the order found.
        skipped: why they are not rebuilt; None if they are taken.
        part: number among the volumes of one SeriesInstanceUID, from 1.
        note: what the record says of the choice of images; empty for all of them.
    """

    name: str
    images: tuple[tuple[Path, int], ...]
    skipped: str | None = None
    part: int = 1
    note: str = ""


def _files(source: str | os.PathLike | Sequence[str | os.PathLike]) -> list[Path]:
    """Files of a folder at any depth, without hidden ones, or those of a list."""
    if not isinstance(source, str | os.PathLike):
        return list(dict.fromkeys(path for entry in source for path in _files(entry)))
    root = Path(source)
    if root.is_dir():
        return [folder / name for folder, _, names in walk(root) for name in names]
    if not root.is_file():
        raise InputError(f"{root} does not exist. Give a folder of DICOM files or the files themselves.")
    with open(root, "rb") as file:
        mark = file.read(4)
    if mark == b"PK\x03\x04":
        raise InputError(f"{root} is a zip file. Unpack it and give the folder.")
    if mark[:2] == b"\x1f\x8b" and not is_dicom(root):
        raise InputError(f"{root} is gzipped, and no DICOM file. Unpack it and give the folder.")
    if root.name.upper() == "DICOMDIR":
        raise InputError(f"{root} is an index without images. Give the folder that it lies in.")
    return [root]


def _may_be_cut(path: Path) -> bool:
    """Whether a file without the mark of DICOM may be a broken one: it is named as one, or has no content."""
    if path.name.lower().endswith(ENDINGS):
        return True
    if not path.is_file():
        return path.is_symlink() and not path.exists()
    try:
        with open(path, "rb") as file:
            return not file.read(132).strip(b"\0")  # empty, or room that a download left
    except OSError:
        return True


@quiet()
def find_series(
    source: str | os.PathLike | Sequence[str | os.PathLike], thin: float, longest_part: bool = False
) -> list[Series]:
    """Groups DICOM files into volumes and says which of them are stacks of thick MR slices.

    Files are grouped by patient, study and SeriesInstanceUID. Then each group is split:

    1. Images that cannot be part of a stack are set apart, by reason (`policies.POLICIES`).
    2. The rest is split by orientation and matrix.
    3. Where images share a place, they are split by what tells them apart (`DISTINCTIVE`).

    Gzipped files are read as they are. A warning names files that cannot be read but may be slices of a series that is
    taken.

    Args:
        source: a folder, searched at any depth; a file; or a list of them.
        thin: slices that are no thicker and no farther apart than this, in mm, need no rebuilding.
        longest_part: of a stack that lacks slices, take the longest part that lacks none. Otherwise all of it is taken,
            and `read_series` refuses it.

    Returns:
        The series, sorted by name.

    Raises:
        InputError: if there is no such file, or it is a zip file, gzipped or a DICOMDIR.
    """
    strangers: list[Path] = []
    unread: list[Path] = []
    series: list[Series] = []
    by_series: dict[str, list[Frame]] = {}
    for path in tqdm(_files(source), desc="headers", unit="file", leave=False, delay=1, disable=None):
        if not is_dicom(path):
            strangers.append(path)
            continue
        try:
            # values of more than 1024 bytes are read when asked for: pixels never
            dataset = read_dataset(path, defer_size=1024, specific_tags=SEARCHED)
            if dataset.file_meta.get("MediaStorageSOPClassUID") == uid.MediaStorageDirectoryStorage:
                strangers.append(path)
                continue
            if "TransferSyntaxUID" not in dataset.file_meta:
                raise ValueError("cut in its first lines")
            if "PixelData" not in dataset and dataset.file_meta.get("MediaStorageSOPClassUID") in policies.MR_IMAGES:
                unread.append(path)
            for index, header in enumerate(classic_headers(dataset)):
                frame = Frame.of(header, (path, index), policies.unfit(header))
                by_series.setdefault(frame.series, []).append(frame)
        except Exception as error:  # noqa: BLE001  # pydicom raises many types for a broken file
            unread.append(path)
            series.append(Series(path.name, ((path, 0),), f"{path} cannot be read as DICOM ({reason(error)})"))
    for frames in by_series.values():
        stacks = list(_stacks(frames, thin))
        for part, (members, skipped) in enumerate(stacks, start=1):
            name = frames[0].name + (f"-{part}" if len(stacks) > 1 else "")
            members, note = (members, "") if skipped or not longest_part else _unbroken(members)
            series.append(Series(name, tuple(frame.image for frame in members), skipped, part, note))
    _warn(series, unread + [path for path in strangers if _may_be_cut(path)])
    return sorted(series, key=lambda one: one.name)


def _warn(series: list[Series], unread: list[Path]) -> None:
    """Names files that cannot be read beside a series that is taken. No geometry tells that an end slice is missing."""
    for one in series:
        folders = {path.parent for path, _ in one.images}
        beside = [path for path in unread if path.parent in folders]
        if beside and not one.skipped:
            logger.warning(
                f"{one.name}: {few(beside)} cannot be read, and may hold slices of it that are now missing. Export the "
                "series again."
            )


def _stacks(frames: list[Frame], thin: float) -> Iterator[tuple[list[Frame], str | None]]:
    """Splits the images of one series into volumes, each with the reason to skip it or None."""
    for why in sorted({frame.unfit for frame in frames if frame.unfit}):
        yield [frame for frame in frames if frame.unfit == why], why
    parallel: list[list[Frame]] = []  # of one orientation and matrix each
    for frame in (frame for frame in frames if not frame.unfit):
        for others in parallel:
            if frame.shape == others[0].shape and abs(frame.plane - others[0].plane).max() < SAME_PLANE:
                others.append(frame)
                break
        else:
            parallel.append([frame])
    least = grid.MIN_SLICES if len(parallel) > 1 else 1
    stacks = [stack for stack in parallel if len(stack) >= least]
    mixed = [frame for stack in parallel if len(stack) < least for frame in stack]
    normals = np.array([stack[0].normal for stack in stacks]).reshape(-1, 3)
    if abs(normals @ normals.T).min(initial=1) < np.cos(np.pi / 4):  # more than 45 degrees apart
        stacks, mixed = [], [frame for stack in parallel for frame in stack]
    if mixed:
        yield mixed, f"mixed orientations or matrices: {len(parallel)} in one series, as in a localizer"
    for stack in stacks:
        volumes = _volumes(stack)
        if len(volumes) > MAX_VOLUMES:
            yield stack, f"{len(volumes)} volumes at one place: a dynamic, functional or diffusion series"
        else:
            yield from ((volume, _unfit_stack(volume, thin)) for volume in volumes)


def places(frames: Sequence[Frame]) -> list[list[Frame]]:
    """Frames in order along the normal; those at the same place together."""
    found: list[list[Frame]] = []
    for frame in sorted(frames, key=lambda one: one.distance):
        if found and frame.distance - found[-1][0].distance < SAME_PLACE:
            found[-1].append(frame)
        else:
            found.append([frame])
    return found


def _spacing(frames: Sequence[Frame]) -> float:
    """Median distance between neighbouring places, in mm; 0 for fewer than `grid.MIN_SLICES`."""
    distances = [place[0].distance for place in places(frames)]
    return float(np.median(np.diff(distances))) if len(distances) >= grid.MIN_SLICES else 0.0


def _unbroken(frames: list[Frame]) -> tuple[list[Frame], str]:
    """The longest part of a stack that lacks no slice, the first of equals, and what is said of it; empty for all."""
    together = places(frames)
    gaps = np.diff([place[0].distance for place in together]) / _spacing(frames)
    (breaks,) = np.nonzero(gaps > 1.5)
    parts = np.split(np.arange(len(together)), breaks + 1)
    longest = max(parts, key=len)
    if len(parts) == 1 or len(longest) < grid.MIN_SLICES:
        return frames, ""
    missing = int(np.round(gaps[breaks]).sum()) - len(breaks)
    note = (
        f"{missing} of {len(together) + missing} slices are missing: {len(longest)} slices, the longest unbroken part, "
        "are rebuilt, and the others are left out."
    )
    return [frame for index in longest for frame in together[index]], note


def _volumes(frames: list[Frame], first: int = 0) -> list[list[Frame]]:
    """Splits a stack by the first attribute that tells images at one place apart, and so on until none does.

    An attribute that would leave every other slice in each part numbers the slices, not the volumes.

    Args:
        frames: of the stack.
        first: attribute of `DISTINCTIVE` to begin with.
    """
    together = places(frames)
    for index in range(first, len(DISTINCTIVE)):
        if any(len({frame.distinctive[index] for frame in place}) > 1 for place in together):
            values = sorted({frame.distinctive[index] for frame in frames})
            parts = [[frame for frame in frames if frame.distinctive[index] == value] for value in values]
            if max(map(_spacing, parts)) <= 1.5 * _spacing(frames):
                return [volume for part in parts for volume in _volumes(part, index + 1)]
    return [frames]


def _unfit_stack(frames: list[Frame], thin: float) -> str | None:
    """Why a stack is not rebuilt; None if it is."""
    spacing, pixel = _spacing(frames), float(frames[0].plane[6:].max())
    if not spacing:
        return f"fewer than {grid.MIN_SLICES} slices"
    if is_thin(spacing, float(np.nan_to_num(frames[0].thickness)), pixel, thin):
        return f"thin or isotropic already: slices {spacing:.3g} mm apart, pixels of {pixel:.3g} mm"
    at_once = int(np.median([len({frame.instance for frame in place}) for place in places(frames)]))
    if at_once > 1:
        return f"{at_once} images at each place, which no attribute tells apart: an ASL, functional or repeated series"
    return None
