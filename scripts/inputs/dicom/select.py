"""Which series among files can be rebuilt. Each is split into volumes; those that are not taken have a reason."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from pydicom import uid
from pydicom.tag import Tag
from tqdm import tqdm

from ...errors import InputError, few, logger
from ...files import ends_as, walk
from ...stack.planes import spacing
from .. import headers, kinds
from ..headers import DISTINCTIVE, LABELS, Frame, classic_headers, first_reason, quiet, read_dataset, reason
from . import policies
from .stacks import acquisitions, lost, stacks

ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".7z", ".rar")
ENDINGS = tuple(f"{ending}{zipped}" for ending in (".dcm", ".ima", ".dicom") for zipped in ("", ".gz"))


@dataclass(frozen=True)
class Series:
    """Images that form one volume, or that are skipped for one reason.

    Attributes:
        name: for people and for files; the same in every run.
        images: (path, index of the frame in the file) of each image, in the order found.
        skipped: why they are not rebuilt; None if they are taken.
        part: number among the volumes of one acquisition, from 1.
        note: on the choice of images, for the record; empty for all of them.
        frames: their headers, in the order found; none of a file that cannot be read.
    """

    name: str
    images: tuple[tuple[Path, int], ...]
    skipped: str | None = None
    part: int = 1
    note: str = ""
    frames: tuple[Frame, ...] = field(default=(), compare=False, repr=False)

    @cached_property
    def lies(self) -> tuple[np.ndarray, np.ndarray]:
        """Directions of the volume's axes, `(3, 3)` in columns, RAS+, and its voxels' edges in mm, `(3,)`."""
        rows, columns, (height, width) = np.split(self.frames[0].plane, [3, 6])
        axes = np.stack([rows, columns, np.cross(rows, columns)], 1) * [[-1], [-1], [1]]
        return axes, np.array([width, height, spacing(self.frames)])


def _files(source: str | os.PathLike | Sequence[str | os.PathLike]) -> Iterator[Path]:
    for path in map(Path, [source] if isinstance(source, str | os.PathLike) else source):
        if path.is_dir():
            yield from (folder / name for folder, _, names in walk(path) for name in names)
        elif path.name.upper() == "DICOMDIR":
            raise InputError(f"{path} is an index without images. Give the folder that it lies in.")
        else:
            yield path


def _name(frames: Sequence[Frame]) -> str:
    """The name that most images have: those of one UID may be of several descriptions."""
    return min(Counter(frame.name for frame in frames).most_common(), key=lambda found: (-found[1], found[0]))[0]


def _may_be_cut(path: Path) -> bool:
    """Whether a file without the mark of DICOM may be a broken one: it is named as one, or has no content."""
    if ends_as(path, ENDINGS) or not path.exists():  # as a link to a file that was not fetched
        return True
    try:
        with open(path, "rb") as file:
            return path.is_file() and not file.read(132).strip(b"\0")  # empty, or room that a download left
    except OSError:
        return True


@quiet()
def find_series(
    source: str | os.PathLike | Sequence[str | os.PathLike],
    longest_part: bool = False,
    asked_for: Callable[[str], bool] = lambda name: False,
) -> list[Series]:
    """Groups DICOM files into volumes and says which of them are stacks of MR slices.

    Files are grouped by SeriesInstanceUID. Series that are parts of one stack are joined (`acquisitions`), and each
    group is split into volumes (`stacks`). Objects that are no images count as no part of their series.

    Args:
        source: a folder, searched at any depth; a file; or a list of them.
        longest_part: of a stack that lacks slices, take the longest part that lacks none, not all, which is refused.
        asked_for: whether the user asks for a series by its name, whatever its header says that it shows.
    """
    strangers, unread, series = list[Path](), list[Path](), list[Series]()
    searched = [Tag(one) for one in (*policies.READ, policies.PHILIPS_COUNT, *kinds.READ, *DISTINCTIVE, *LABELS)]
    by_series, objects = defaultdict[str, list[Frame]](list), defaultdict[str, list[Frame]](list)  # of one UID, both
    files = list(dict.fromkeys(_files(source)))
    for path in tqdm(files, desc="headers", unit="file", leave=False, delay=1, disable=None):
        if not headers.is_dicom(path):
            strangers.append(path)
            continue
        try:
            # values of more than 1024 bytes are read when asked for: pixels never
            dataset = read_dataset(path, defer_size=1024, specific_tags=searched)
            if dataset.file_meta.get("MediaStorageSOPClassUID") == uid.MediaStorageDirectoryStorage:
                strangers.append(path)
                continue
            if "TransferSyntaxUID" not in dataset.file_meta:
                raise ValueError("cut in its first lines")
            if "PixelData" not in dataset and dataset.file_meta.get("MediaStorageSOPClassUID") in policies.MR_IMAGES:
                unread.append(path)
            for index, header in enumerate(classic_headers(dataset)):
                no_image, shows = first_reason(header, policies.OBJECTS), first_reason(header, kinds.CONTENTS)
                frame = Frame.of(header, (path, index), no_image or first_reason(header, policies.FORMS), shows)
                (objects if no_image else by_series)[frame.distinctive["SeriesInstanceUID"]].append(frame)
        except Exception as error:  # noqa: BLE001  # pydicom raises many types for a broken file
            unread.append(path)
            series.append(Series(path.name, ((path, 0),), f"{path} cannot be read as DICOM ({reason(error)})"))
    for frames in [*acquisitions(list(by_series.values())), *objects.values()]:
        frames = [replace(frame, shows=None) if asked_for(frame.name) else frame for frame in frames]
        parts = list(stacks(frames, longest_part))
        count, number = Counter(_name(members) for members, *_ in parts), Counter[str]()
        for part, (members, skipped, note) in enumerate(parts, start=1):
            number[name := _name(members)] += 1
            mark = f"-{number[name]}" if count[name] > 1 else ""
            if skipped and any(frame.shows and not frame.unfit for frame in members):
                skipped += kinds.OVERRIDE.format(name)
            if not (skipped or asked_for(name)) and (why := kinds.localizer(len(members), members[0].header)):
                skipped = why + kinds.OVERRIDE.format(name)
            if len(parts) == 1 and not skipped:
                note = " ".join(filter(None, (note, lost(members))))
            images = tuple(frame.image for frame in members)
            series.append(Series(name + mark, images, skipped, part, note, tuple(members)))
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
