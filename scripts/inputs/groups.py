"""Which stacks make one volume together: those of one person, session and contrast."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from ..errors import InputError, few, printable
from ..files import stem
from . import dicom
from .dicom.headers import numbers, value

logger = logging.getLogger("drift")

ORIENTATION = re.compile(  # words of names that say how the slices lie, or which of several runs it is
    r"(acq|run)-\w+?|ax|axi|axial|tra|trans|transverse|transversal|sag|sagittal|cor|coronal|obl|oblique", re.IGNORECASE
)
SAME_TIME = 1.2  # ratio of echo or inversion times; protocols of one contrast differ a little by direction
PARALLEL = 0.9  # cosine of the angle between slices; series of one direction are repeats, or of another contrast


def contrast_of(name: str) -> str:
    """A name without the words that say how the slices lie.

    >>> [contrast_of(name) for name in ("sub-01_acq-ax_run-2_T2w", "t2_tse_tra_320", "T2 SAG TSE 320")]
    ['sub-01 t2w', 't2 tse 320', 't2 tse 320']
    """
    return " ".join(
        word for word in re.split(r"[^A-Za-z0-9-]+", name.lower()) if word and not ORIENTATION.fullmatch(word)
    )


def grouped(items: Sequence[dict], named: Sequence[dict], reference: str | None = None) -> list[dict]:
    """Items of which those that belong together are one.

    Files and folders that hold one scan each, and were given by name, belong together. So do volumes of one folder
    whose names differ only in words such as `axial`, `acq-...` or `run-...`, and DICOM series of one study that are
    alike in all but their direction (`_Protocol`). What is left alone is logged.

    Args:
        items: of `scans.scans`.
        named: those of them that were given by name, where several were.
        reference: a shell pattern on paths and series' names. In each group the first scan that it matches gives grid,
            place and units. None for the first scan.

    Returns:
        Items as those of `scans.scans`; that of a group has `stacks`, the items that it is made of, the reference
        first.

    Raises:
        InputError: if the pattern matches no scan.
    """
    if reference is not None and not any(_matches(item, reference) for item in items):
        names = few([item["name"] for item in items])
        raise InputError(f"--reference {reference} matches no scan: expected one of {names}.")
    groups: list[list[dict]] = [list(named)] if named else []
    volumes: dict[tuple[str, str], list[dict]] = {}
    series: list[list[tuple[dict, _Protocol]]] = []
    for item in (item for item in items if item not in named):
        if isinstance(item["image"], dicom.Series):
            protocol = _Protocol.of(item["image"])
            for group in series:
                if all(protocol.goes_with(other) for _, other in group):
                    group.append((item, protocol))
                    break
            else:
                series.append([(item, protocol)])
        else:
            path = Path(item["image"])
            volumes.setdefault((str(path.parent), contrast_of(stem(path.name))), []).append(item)
    groups += [*volumes.values(), *([item for item, _ in group] for group in series)]
    return [_one(group, reference) for group in groups]


@dataclass(frozen=True)
class _Protocol:
    """What tells whether two DICOM series show one head in one contrast, from two directions.

    Attributes:
        same: patient, study, frame of reference, contrast agent, kind of image and words of the description.
        times: echo and inversion time, in ms; NaN where they are missing.
        normal: of the slices, `(3,)`.
    """

    same: tuple[str, ...]
    times: np.ndarray
    normal: np.ndarray

    @classmethod
    def of(cls, series: dicom.Series) -> _Protocol:
        header = dicom.read_headers(series)[0][0]
        names = "PatientID StudyInstanceUID FrameOfReferenceUID ContrastBolusAgent".split()
        same = [str(value(header, name, "")) for name in names]
        times = np.array([numbers(header, name, 1)[0] for name in ("EchoTime", "InversionTime")])
        row, column = numbers(header, "ImageOrientationPatient", 6).reshape(2, 3)
        words = contrast_of(str(value(header, "SeriesDescription", "")))
        return cls((*same, words), times, np.cross(row, column))

    def goes_with(self, other: _Protocol) -> bool:
        known = np.isfinite(self.times) & np.isfinite(other.times)
        pairs = np.sort([self.times[known], other.times[known]], axis=0)
        return (
            self.same == other.same
            and np.array_equal(np.isfinite(self.times), np.isfinite(other.times))
            and bool((pairs[1] <= SAME_TIME * pairs[0]).all())
            and abs(float(self.normal @ other.normal)) < PARALLEL
        )


def _matches(item: dict, pattern: str) -> bool:
    image = item["image"]
    names = [str(item["name"])] if isinstance(image, dicom.Series) else [str(image), Path(image).name]
    return any(fnmatchcase(name, pattern) for name in names)


def _one(group: Sequence[dict], reference: str | None) -> dict:
    """The item of a group; a scan that is left alone is its own."""
    if len(group) == 1:
        logger.info(
            f"{printable(str(group[0]['name']))} is left alone: no other stack of its head and contrast is there."
        )
        return group[0]
    first = next((item for item in group if reference is not None and _matches(item, reference)), group[0])
    stacks = [first, *(item for item in group if item is not first)]
    logger.info(
        f"{len(stacks)} stacks go together: " + ", ".join(printable(str(item["name"])) for item in stacks) + "."
    )
    result = Path(first["result"])
    if "dataset" in first:
        *entities, suffix = result.name.split("_")
        *kept, said = [one for one in entities if not ORIENTATION.fullmatch(one)]  # desc-sr, see `bids.derivative_name`
        name = "_".join([*kept, f"{said.removesuffix('sr')}together", suffix])
    else:
        name = f"{result.name.removesuffix('_sr')}_together_sr"
    return first | {
        "name": " + ".join(str(item["name"]) for item in stacks),
        "sources": [source for item in stacks for source in item["sources"]],
        "result": str(result.with_name(name)),
        "stacks": stacks,
    }
