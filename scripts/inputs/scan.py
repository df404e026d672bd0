"""A scan: its files, its facts, and where its result goes."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..stack.grid import voxel_spacing
from ..stack.spectra import SPACING_LOST, sharpness, spacing_is_lost
from . import dicom, kinds
from .identity import Identity
from .names import Head, of_files
from .readers import ScanReader


@dataclass(frozen=True)
class Scan:
    """A scan to rebuild.

    Attributes:
        source: of `readers.ScanReader.read`.
        result: path of its result, without the ending.
        dataset: root of the BIDS dataset that it is from.
        stacks: where several make one volume, each of them, the reference first.
        guides: scans of another contrast of the same head, the best first; the first that fits guides.
        truth: the sharp volume that it was made from.
        reports: folder of its page and tables; None for its result's.
        archived: whether an archive has its images; files then have the images' UIDs for names, and do not stay.
    """

    name: str
    source: Path | dicom.Series
    files: tuple[Path, ...]
    result: Path
    dataset: Path | None = None
    stacks: tuple["Scan", ...] = ()
    guides: tuple["Candidate", ...] = ()
    truth: Path | None = None
    doubt: str = ""
    reports: Path | None = None
    archived: bool = False

    @cached_property
    def identity(self) -> Identity:
        """Its identity; with several stacks the first one's."""
        return Identity.of(self.each[0].source)

    @cached_property
    def samples(self) -> list[float] | str:
        """How far apart the samples are that it shows along each axis of its array, in mm; or why that is not known."""
        try:
            array, meta = (reader := ScanReader()).get_data(reader.read(self.source))
            volume, edges = torch.from_numpy(np.nan_to_num(array)), voxel_spacing(meta["affine"])
            return f"{SPACING_LOST}. Mend its header" if spacing_is_lost(volume, edges) else sharpness(volume, edges)
        except Exception as error:  # noqa: BLE001  # which is said again when it is rebuilt
            return str(error).rstrip(".")

    @property
    def path(self) -> Path | None:
        """The path of its file; None for a DICOM series."""
        return self.source if isinstance(self.source, Path) else None

    @property
    def each(self) -> tuple["Scan", ...]:
        """Its stacks; itself where it is one."""
        return self.stacks or (self,)

    @property
    def page(self) -> Path:
        """Path of its page, and of tables, without the ending."""
        return (self.reports or self.result.parent) / self.result.name

    @property
    def mark(self) -> str:
        """The warning of a doubtful scan; empty for others."""
        doubts = dict.fromkeys(one.doubt for one in self.each if one.doubt)
        return kinds.MARK.format("; ".join(doubts)) if doubts else ""

    @property
    def remark(self) -> str:
        """The remark on the names of its stacks, for people; empty for none."""
        return "; ".join(dict.fromkeys(filter(None, (one.identity.shows.remark for one in self.each))))

    @property
    def is_dicom(self) -> bool:
        """Whether it, or each of its stacks, is a DICOM series."""
        return all(one.path is None for one in self.each)


class Candidate(NamedTuple):
    """A scan that may guide another, and why it was found to; empty for one that the user named."""

    scan: Scan
    why: str = ""


def heads(scans: Iterable[Scan]) -> dict[Any, Head]:
    """The head of each scan of one stack, by its source: as standards say, else as its file's name and folder do."""
    stated = {one.source: one.identity.head for one in scans}
    return stated | of_files(one for one, head in stated.items() if not head and isinstance(one, Path))


def by_head(scans: Sequence[Scan]) -> list[list[Scan]]:
    """Scans of one stack, those of each head together."""
    of, found = heads(scans), defaultdict[Head, list[Scan]](list)
    for one in scans:
        found[of[one.source]].append(one)
    return list(found.values())


def datalist(scans: Sequence[Scan]) -> list[dict[str, Any]]:
    """Scans as a dataset of MONAI takes them."""
    return [{"image": scan.source} for scan in scans]
