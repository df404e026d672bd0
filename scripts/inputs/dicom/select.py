"""Which series among files can be rebuilt. Each is split into volumes; those that are not taken have a reason."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
from pydicom import uid
from pydicom.tag import Tag
from tqdm import tqdm

from ...errors import InputError, few
from ...files import ends_as, walk
from ...stack import grid
from ...stack.acquisition import ALREADY_THIN, is_thin
from . import policies
from .headers import CONTRAST, DISTINCTIVE, GZIP, Frame, classic_headers, is_dicom, quiet, read_dataset, reason
from .places import SAME_PLACE, gaps, places, spacing

logger = logging.getLogger("drift")

MAX_VOLUMES = 8  # more at one place are a dynamic, functional or diffusion series
SAME_PLANE = 0.5  # pixels by which planes may lie apart in the field of view, besides a turn of `grid.MAX_SHEAR`
NEARLY_PARALLEL = 5  # degrees between slices that may be of one stack, were they not turned
SAME_VALUE = 1.02  # ratio of times and angles that are one contrast: scanners adapt them a little from slice to slice
ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".7z", ".rar")
ENDINGS = tuple(f"{ending}{zipped}" for ending in (".dcm", ".ima", ".dicom") for zipped in ("", ".gz"))
DESCRIBED = "PatientID PatientName StudyInstanceUID SeriesNumber SeriesDescription Rows Columns SliceThickness".split()
GROUPS = ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence")
# attributes that are read of a file to find out what it is
SEARCHED = [Tag(one) for one in (*policies.READ, *DISTINCTIVE, *DESCRIBED, *GROUPS)]


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

    @property
    def thin(self) -> bool:
        """Whether it is skipped because it needs no rebuilding; it may guide other series."""
        return (self.skipped or "").startswith(ALREADY_THIN)


def _files(source: str | os.PathLike | Sequence[str | os.PathLike]) -> list[Path]:
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
    if mark[:2] == GZIP and not is_dicom(root):
        raise InputError(f"{root} is gzipped, and no DICOM file. Unpack it and give the folder.")
    if root.name.upper() == "DICOMDIR":
        raise InputError(f"{root} is an index without images. Give the folder that it lies in.")
    return [root]


def _may_be_cut(path: Path) -> bool:
    """Whether a file without the mark of DICOM may be a broken one: it is named as one, or has no content."""
    if ends_as(path, ENDINGS):
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
    source: str | os.PathLike | Sequence[str | os.PathLike],
    thin: float | None,
    longest_part: bool = False,
    asked_for: Callable[[str], bool] = lambda name: False,
) -> list[Series]:
    """Groups DICOM files into volumes and says which of them are stacks of thick MR slices.

    Files are grouped by patient, study and SeriesInstanceUID. Then each group is split:

    1. Images that cannot be part of a stack, or show no head, are set apart, by reason (`policies`).
    2. The rest is split by orientation and matrix.
    3. Where images share a place, they are split by what tells them apart (`DISTINCTIVE`).

    Args:
        source: a folder, searched at any depth; a file; or a list of them. Gzipped files are read as they are.
        thin: slices that are no thicker and no farther apart than this, in mm, need no rebuilding; None takes them.
        longest_part: of a stack that lacks slices, take the longest part that lacks none. Otherwise all of it is taken,
            and `read_series` refuses it.
        asked_for: whether the user asks for a series by its name, whatever its header says that it shows.
    """
    strangers, unread, series = list[Path](), list[Path](), list[Series]()
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
                shown = policies.shows_no_head(header)
                if shown and not frame.unfit and not asked_for(frame.name):
                    frame = replace(frame, unfit=f"{shown}{policies.OVERRIDE.format(frame.name)}")
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
    if archives := [path for path in strangers if ends_as(path, ARCHIVES)]:
        logger.warning(f"{few(archives)}: no archive is looked into. Unpack it, if there are scans in it.")
    unread += [path for path in strangers if _may_be_cut(path)]
    for one in series:  # no geometry tells that an end slice is missing
        folders = {path.parent for path, _ in one.images}
        near = [path for path in unread if path.parent in folders]
        if near and not one.skipped:
            logger.warning(
                f"{one.name}: {few(near)} cannot be read, and may hold slices of it that are now missing. Export the "
                "series again."
            )
    return sorted(series, key=lambda one: one.name)


def only_series(path: Path, thin: float | None, longest_part: bool, remedy: str = "Give its own folder.") -> Series:
    """The one series of a file or folder that `find_series` takes."""
    found = find_series(path if path.is_dir() else [path], thin, longest_part)
    taken = [one for one in found if not one.skipped]
    if len(taken) != 1:
        what, named = "DICOM" if thin is None else "thick DICOM", ", ".join(one.name for one in taken) or "none"
        raise InputError(f"{path} holds {len(taken)} {what} series ({named}): expected one. {remedy}")
    return taken[0]


def _stacks(frames: list[Frame], thin: float | None) -> Iterator[tuple[list[Frame], str | None]]:
    """Splits the images of one series into volumes, each with the reason to skip it or None."""
    diffusion = next((one.unfit for one in frames if policies.DIFFUSION_SERIES in (one.unfit or "")), None)
    if diffusion:  # images without a b-value are of it, too
        frames = [frame if frame.unfit else replace(frame, unfit=diffusion) for frame in frames]
    for why in sorted({frame.unfit for frame in frames if frame.unfit}):
        yield [frame for frame in frames if frame.unfit == why], why
    parallel: list[list[Frame]] = []  # of one orientation and matrix each
    for frame in (frame for frame in frames if not frame.unfit):
        for others in parallel:
            if _one_grid(frame, others[0]):
                others.append(frame)
                break
        else:
            parallel.append([frame])
    least = grid.MIN_SLICES if len(parallel) > 1 else 1
    stacks = [stack for stack in parallel if len(stack) >= least]
    why = f"mixed orientations or matrices: {len(parallel)} in one series"
    normals = np.array([stack[0].normal for stack in stacks or parallel]).reshape(-1, 3)
    cosine = abs(normals @ normals.T).min(initial=1)
    if cosine < np.cos(np.pi / 4):  # more than 45 degrees apart
        yield list(chain(*parallel)), f"{why}, as in a localizer"
        return
    torn = [stack for stack in parallel if any(_torn(stack, other) for other in parallel if other is not stack)]
    strays = [stack for stack in parallel if len(stack) < least and stack not in torn]
    if torn:
        turned = f"turns of more than {grid.MAX_SHEAR} degrees or other pixels"
        yield list(chain(*torn)), f"{why}, which make one stack but for {turned}. Export the series again"
    if strays:
        yield list(chain(*strays)), f"{why}, and fewer than {grid.MIN_SLICES} slices of each of these"
    for stack in (stack for stack in stacks if stack not in torn):
        volumes = _volumes(stack)
        if len(volumes) > MAX_VOLUMES:
            yield stack, f"{len(volumes)} volumes at one place: a dynamic, functional or diffusion series"
        else:
            for volume in volumes:
                for part in _apart(volume):
                    yield part, _contrasts(part) or _unfit_stack(part, thin)


def _turn(frame: Frame, other: Frame) -> float:
    """Largest angle between the rows and between the columns of two planes, in degrees."""
    pairs = [(frame.plane[k : k + 3], other.plane[k : k + 3]) for k in (0, 3)]
    return float(np.degrees([np.arctan2(np.linalg.norm(np.cross(a, b)), a @ b) for a, b in pairs]).max())


def _one_grid(frame: Frame, other: Frame) -> bool:
    """Whether two planes have one matrix and, but for rounding of their headers, one orientation and pixel spacing."""
    if frame.shape != other.shape:
        return False
    apart = abs(frame.plane[6:] / other.plane[6:] - 1) * frame.shape  # pixels, at the far edges
    return _turn(frame, other) <= grid.MAX_SHEAR and bool(apart.max() <= SAME_PLANE)


def _torn(stack: list[Frame], other: list[Frame]) -> bool:
    """Whether two groups of slices are parts of one stack: nearly parallel, and between or beside each other."""
    if stack[0].shape != other[0].shape or _turn(stack[0], other[0]) > NEARLY_PARALLEL:
        return False
    both = [*stack, *other]
    if min(len(stack), len(other)) < grid.MIN_SLICES:
        return len(places(both)) == len(places(stack)) + len(places(other))
    return 1.5 * spacing(both) < max(spacing(stack), spacing(other))


def _unbroken(frames: list[Frame]) -> tuple[list[Frame], str]:
    """The longest part of a stack that lacks no slice, the first of equals, and what is said of it; empty for all."""
    together, steps = places(frames), gaps(frames) / spacing(frames)
    (breaks,) = np.nonzero(steps > 1.5)
    parts = np.split(np.arange(len(together)), breaks + 1)
    longest = max(parts, key=len)
    if len(parts) == 1 or len(longest) < grid.MIN_SLICES:
        return frames, ""
    missing = int(np.round(steps[breaks]).sum()) - len(breaks)
    note = (
        f"{missing} of {len(together) + missing} slices are missing: {len(longest)} slices, the longest unbroken part, "
        "are rebuilt, and the others are left out."
    )
    return [frame for index in longest for frame in together[index]], note


def _parts(frames: list[Frame], attribute: str, values: Sequence[str]) -> list[list[Frame]]:
    return [[frame for frame in frames if frame.distinctive[attribute] == one] for one in values]


def _volumes(frames: list[Frame], attributes: Sequence[str] = DISTINCTIVE) -> list[list[Frame]]:
    """Splits a stack by the first attribute that tells images at one place apart, and so on until none does.

    An attribute that would leave every other slice in each part numbers the slices, not the volumes.
    """
    together = places(frames)
    for further, name in enumerate(attributes, start=1):
        if any(len({frame.distinctive[name] for frame in place}) > 1 for place in together):
            parts = _parts(frames, name, sorted({frame.distinctive[name] for frame in frames}))
            if max(map(spacing, parts)) <= 1.5 * spacing(frames):
                return [volume for part in parts for volume in _volumes(part, attributes[further:])]
    return [frames]


def _different(frames: list[Frame], attribute: str) -> list[str]:
    """Values of an attribute that are different contrasts, in order; times and angles that hardly differ are one."""
    values = sorted({frame.distinctive[attribute] for frame in frames} - {"None"})
    try:
        ordered = sorted(values, key=float)
        return ordered[:1] + [b for a, b in pairwise(ordered) if float(b) > SAME_VALUE * float(a)]
    except ValueError:  # words
        return values


def _apart(frames: list[Frame]) -> list[list[Frame]]:
    """The stacks of one contrast each that a stack is made of, where that is sure: each is whole, and has no wide gaps.

    Two echoes that lie half a slice apart are such stacks. A single echo here and another there is none.
    """
    for attribute in CONTRAST:
        parts = _parts(frames, attribute, _different(frames, attribute))
        if len(parts) > 1 and sum(map(len, parts)) == len(frames) and all(map(_whole, parts)):
            return [volume for part in parts for volume in _apart(part)]
    return [frames]


def _whole(frames: list[Frame]) -> bool:
    """Whether slices are an even stack that lacks none, by their thickness as well."""
    pitch, thickness = spacing(frames), float(np.nan_to_num(frames[0].thickness))
    return 0 < pitch <= 1.5 * thickness and bool((abs(gaps(frames) - pitch) <= SAME_PLACE + 0.1 * pitch).all())


def _contrasts(frames: list[Frame]) -> str | None:
    """Why a stack is of several contrasts; None if it is of one."""
    for attribute, name in CONTRAST.items():
        values = [one.removesuffix(".0") for one in _different(frames, attribute)]
        if len(values) > 1:
            return (
                f"slices have {len(values)} {name} ({few(values)}), which one volume has not. Export each of its "
                "volumes as a series of its own"
            )
    return None


def _unfit_stack(frames: list[Frame], thin: float | None) -> str | None:
    """Why a stack is not rebuilt; None if it is.

    Slices that are finer than one edge of their pixels are a reformat of thick slices, which lie along that edge.
    """
    pitch, pixel = spacing(frames), float(frames[0].plane[6:].max())
    if not pitch:
        return f"fewer than {grid.MIN_SLICES} slices"
    _, finer, largest = sorted([pitch, *frames[0].plane[6:]])
    if thin is not None and is_thin(float(largest), float(np.nan_to_num(frames[0].thickness)), float(finer), thin):
        return f"{ALREADY_THIN}: slices {pitch:.3g} mm apart, pixels of {pixel:.3g} mm"
    at_once = int(np.median([len({frame.instance for frame in place}) for place in places(frames)]))
    if at_once > 1 and not _copies(frames):
        return f"{at_once} images at each place, which no attribute tells apart: an ASL, functional or repeated series"
    return None


def _copies(frames: list[Frame]) -> bool:
    """Whether all images at one place have the same pixels: a series that was sent twice, under new UIDs."""

    def pixels(frame: Frame) -> bytes:
        dataset = read_dataset(frame.image[0])
        stored = dataset.pixel_array
        return np.ascontiguousarray(stored[frame.image[1]] if stored.ndim > 2 else stored).tobytes()

    try:
        return all(len(set(map(pixels, place))) == 1 for place in places(frames))
    except Exception:  # noqa: BLE001  # pydicom and the decoders raise many types for a broken file
        return False
