"""The header of one image: attributes as far as they are legal, its place in space, and what tells it from others."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from pydicom import Dataset
from pydicom.dataelem import DataElement
from pydicom.tag import Tag
from pydicom.valuerep import format_number_as_ds

SAME_PLACE = 0.05  # mm between positions that count as rounding of the header

ENHANCED_NAMES = {  # name of an attribute in multi-frame images: in classic ones
    "FrameType": "ImageType",
    "EffectiveEchoTime": "EchoTime",
    "InversionTimes": "InversionTime",
    "TemporalPositionIndex": "TemporalPositionIdentifier",
    "FrameAcquisitionNumber": "AcquisitionNumber",
    "PulseSequenceName": "SequenceName",
}
VOLUME_KEYS = (  # what may tell volumes of one series apart, the most telling first
    "ImageType ComplexImageComponent EchoNumbers EchoTime InversionTime DiffusionBValue TemporalPositionIdentifier "
    "AcquisitionNumber"
).split()


@dataclass(frozen=True, eq=False)
class Frame:
    """What the header of one image says. One that is unfit may have no place.

    Attributes:
        image: (path, index of the frame in the file).
        series: what images of one series share: patient, study and series.
        name: of the series.
        instance: SOPInstanceUID and frame, which copies of a file share.
        unfit: why it cannot be a slice, None if it can.
        keys: values of `VOLUME_KEYS`.
        shape: rows, columns.
        position: of the first pixel's centre, LPS, mm.
        plane: directions of a row and of a column, LPS; mm between rows, between columns.
        normal: of the plane.
        distance: of the plane along the normal, mm.
        thickness: mm, NaN where missing.
    """

    image: tuple[Path, int]
    series: str
    name: str
    instance: tuple[str, int]
    unfit: str | None
    keys: list[str]
    shape: tuple[int, int]
    position: np.ndarray
    plane: np.ndarray
    normal: np.ndarray
    distance: float
    thickness: float

    @classmethod
    def of(cls, header: Dataset, image: tuple[Path, int], unfit: str | None) -> Frame:
        """From a classic header."""
        identity = ("PatientID", "PatientName", "StudyInstanceUID", "SeriesInstanceUID")
        series, number = "\n".join(str(value(header, k, "")) for k in identity), value(header, "SeriesNumber", 0)
        description = re.sub(r"[^\w.+]+", "_", str(value(header, "SeriesDescription", ""))).strip("_.") or "series"
        mark = hashlib.sha256(series.encode()).hexdigest()[:6]  # two patients may share number and description
        position, spacing = numbers(header, "ImagePositionPatient", 3), numbers(header, "PixelSpacing", 2)
        row, column = numbers(header, "ImageOrientationPatient", 6).reshape(2, 3)
        row, column = (one / max(np.linalg.norm(one), 0.1) for one in (row, column))  # headers round; zero stays zero
        normal = np.cross(row, column)
        return cls(
            image=image,
            series=series,
            name=f"{number:03d}-{description}-{mark}",
            instance=(str(value(header, "SOPInstanceUID")), image[1]),
            unfit=unfit,
            keys=[str(value(header, key)) for key in VOLUME_KEYS],
            shape=(value(header, "Rows", 0), value(header, "Columns", 0)),
            position=position,
            plane=np.concatenate([row, column, spacing]),
            normal=normal,
            distance=float(position @ normal),
            thickness=float(numbers(header, "SliceThickness", 1)[0]),
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Without pydicom's remarks on every value that strays from the standard: they name no file."""
    remarks = logging.getLogger("pydicom")
    level = remarks.level
    remarks.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pydicom")
            yield
    finally:
        remarks.setLevel(level)


def is_dicom(path: str | os.PathLike) -> bool:
    """Whether a file bears the mark of DICOM, `DICM` at byte 128; False for folders and what cannot be opened."""
    try:
        if not Path(path).is_file():  # a pipe would block
            return False
        with open(path, "rb") as file:
            return file.read(132)[128:] == b"DICM"
    except OSError:
        return False


def reason(error: Exception) -> str:
    """What an exception says, in one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def element(header: Dataset, keyword: str | tuple[int, int]) -> DataElement | None:
    """An attribute, None where it is missing, empty or not legal."""
    try:
        found = header[keyword]
    except Exception:  # noqa: BLE001  # absent, or text where a number belongs: pydicom raises many types
        return None
    return None if found.is_empty else found


def value(header: Dataset, keyword: str | tuple[int, int], default: Any = None) -> Any:
    """Value of an attribute, `default` where it is missing, empty or not legal."""
    found = element(header, keyword)
    return default if found is None else found.value


def numbers(header: Dataset, keyword: str, count: int) -> np.ndarray:
    """`(count,)` finite numbers, all NaN where the attribute is anything else."""
    try:
        found = np.atleast_1d(np.array(value(header, keyword), dtype=float))
    except (TypeError, ValueError):
        found = np.full(0, np.nan)
    good = found.shape == (count,) and np.isfinite(found).all()
    return found if good else np.full(count, np.nan)


def decimal(number: Any) -> str:
    """A decimal string (DS): at most 16 characters."""
    return format_number_as_ds(float(number))


def code(keyword: str) -> list[Dataset]:
    """A code sequence of one item: a code of the DICOM standard by its keyword, such as SpatialResampling."""
    from pydicom.sr.codedict import codes  # here: its tables take 0.4 s, which most scans need not

    coded, item = getattr(codes.DCM, keyword), Dataset()
    item.CodeValue, item.CodingSchemeDesignator, item.CodeMeaning = coded.value, coded.scheme_designator, coded.meaning
    return [item]


def classic_headers(dataset: Dataset) -> list[Dataset]:
    """One header for each frame, with the attributes of functional groups where classic images have them."""
    if "PerFrameFunctionalGroupsSequence" not in dataset:
        return [dataset]
    shared, frames = dataset.get("SharedFunctionalGroupsSequence", []), dataset.PerFrameFunctionalGroupsSequence
    whole = dict(dataset.items())
    del whole[Tag("PerFrameFunctionalGroupsSequence")]
    headers = []
    for frame in frames:
        header = Dataset(dict(whole))
        header.file_meta = dataset.file_meta
        for macro in chain(*shared, frame):
            if macro.VR == "SQ" and not macro.tag.is_private and len(macro.value) == 1:
                header.update(macro.value[0])
        for enhanced, classic in ENHANCED_NAMES.items():
            if enhanced in header:
                setattr(header, classic, value(header, enhanced))
        pulse = {"SPIN": "SE", "GRADIENT": "GR", "BOTH": ["SE", "GR"]}.get(str(value(header, "EchoPulseSequence")))
        if pulse is not None:
            header.ScanningSequence = pulse
        headers.append(header)
    return headers
