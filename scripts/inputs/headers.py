"""The header of one image: its legal attributes, its place in space, and its differences from other images."""

import gzip
import hashlib
import io
import logging
import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydicom import Dataset, dcmread, filereader, uid
from pydicom.dataelem import DataElement
from pydicom.sr.codedict import codes
from pydicom.sr.coding import snomed_mapping
from pydicom.tag import Tag

from ..stack.planes import Plane

GZIP = b"\x1f\x8b"  # first bytes of a gzipped file
MOST_BYTES = 2**28  # that a packed file is unpacked to; more is no image, but would fill the memory

ENHANCED_NAMES = {  # name of an attribute in multi-frame images: in classic ones
    "FrameType": "ImageType",
    "EffectiveEchoTime": "EchoTime",
    "InversionTimes": "InversionTime",
    "TemporalPositionIndex": "TemporalPositionIdentifier",
    "FrameAcquisitionNumber": "AcquisitionNumber",
    "PulseSequenceName": "SequenceName",
}
ENHANCED = {uid.EnhancedMRImageStorage, uid.LegacyConvertedEnhancedMRImageStorage}
IN_HEAD = {  # regions of PS3.16, CID 4030, that are of a head or in one
    *"Brain Cerebellum CircleOfWillis CranialVenousSystem Head HeadAndNeck InternalAuditoryCanal".split(),
    *"SellaTurcica Skull VertebralColumnAndCranium".split(),
}
ELSEWHERE_CODES = {  # scheme and value of its other regions, which are none
    f"{scheme} {value}"
    for region in (getattr(codes.cid4030, name) for name in codes.cid4030.dir() if name not in IN_HEAD)
    for scheme, value in (("SCT", region.value), ("SRT", snomed_mapping["SCT"].get(region.value, "")))
}
PULSES = {"SPIN": "SE", "GRADIENT": "GR", "BOTH": ["SE", "GR"]}  # EchoPulseSequence: ScanningSequence
DISTINCTIVE = (  # attributes that may tell the volumes of one series apart, the most telling first
    "StudyInstanceUID ImageType ComplexImageComponent EchoNumbers EchoTime InversionTime DiffusionBValue "
    "RepetitionTime FlipAngle TemporalPositionIdentifier AcquisitionNumber"
).split()
CONTRAST = {  # attributes with one value for a whole volume -> their names for people
    "ComplexImageComponent": "complex components",
    "EchoTime": "echo times",
    "InversionTime": "inversion times",
    "DiffusionBValue": "b-values",
    "FlipAngle": "flip angles",
}
UNSAID = {"", "None", "NONE"}  # texts of attributes that are missing or empty
LABELS = {  # attributes that may differ within a stack of one contrast, which its pixels then show
    "PatientName": "patient names",
    "PatientID": "patient IDs",
    "StudyInstanceUID": "study UIDs",
    "SeriesInstanceUID": "series UIDs",
    "ImageType": "image types",
    "RepetitionTime": "repetition times",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Frame(Plane):
    """The header of one image. Numbers that it lacks, as unfit images may, are NaN.

    Attributes:
        image: (path, index of the frame in the file).
        name: of its series, for people and for files.
        unfit: why the image cannot be a slice; None if it can.
        shows: why it shows no anatomy of a head; None if it may.
        distinctive: value of each of `DISTINCTIVE` and `LABELS`, as text.
    """

    image: tuple[Path, int]
    name: str
    unfit: str | None
    shows: str | None
    header: Dataset
    distinctive: dict[str, str]

    @classmethod
    def of(cls, header: Dataset, image: tuple[Path, int], unfit: str | None = None, shows: str | None = None) -> Self:
        """The frame of a classic header."""
        identity = ("PatientID", "PatientName", "StudyInstanceUID", "SeriesInstanceUID")
        whose = "\n".join(str(value(header, k, "")) for k in identity)
        number = int(np.nan_to_num(numbers(header, "SeriesNumber", 1)[0]))
        description = re.sub(r"[^\w.+]+", "_", str(value(header, "SeriesDescription", ""))).strip("_.") or "series"
        mark = hashlib.sha256(whose.encode()).hexdigest()[:6]  # two patients may share number and description
        position, spacing = numbers(header, "ImagePositionPatient", 3), numbers(header, "PixelSpacing", 2)
        row, column = numbers(header, "ImageOrientationPatient", 6).reshape(2, 3)
        row, column = (one / max(np.linalg.norm(one), 0.1) for one in (row, column))  # headers round; zero stays zero
        normal = np.cross(row, column)
        return cls(
            image=image,
            name=f"{number:03d}-{description}-{mark}",
            unfit=unfit,
            shows=shows,
            header=header,
            distinctive={keyword: said(header, keyword) for keyword in (*DISTINCTIVE, *LABELS)},
            shape=(value(header, "Rows", 0), value(header, "Columns", 0)),
            position=position,
            plane=np.concatenate([row, column, spacing]),
            normal=normal,
            thickness=float(numbers(header, "SliceThickness", 1)[0]),
        )


def said(header: Dataset | Mapping[str, Any], keyword: str) -> str:
    """Value of an attribute as text; a person's name without the signs that programs add."""
    found = str(value(header, keyword))
    return " ".join(re.split(r"[\s^=]+", found.upper())).strip() if keyword == "PatientName" else found


def patient(header: Dataset | Mapping[str, Any]) -> str:
    """Name of a patient, else ID, by a header or a sidecar; empty where neither is said."""
    return next((one for name in ("PatientName", "PatientID") if (one := said(header, name)) not in UNSAID), "")


def rescaling(header: Dataset) -> tuple[float, float]:
    """Slope and intercept from stored pixels to intensities: of the rescaling, else of the one real-world mapping."""
    real = header.get("RealWorldValueMappingSequence", [header])
    if "RescaleSlope" not in header and "ModalityLUTSequence" not in header and len(real) == 1:
        slope, intercept = (float(numbers(real[0], f"RealWorldValue{name}", 1)[0]) for name in ("Slope", "Intercept"))
        if np.isfinite([slope, intercept]).all():
            return slope, intercept
    return float(value(header, "RescaleSlope", 1)), float(value(header, "RescaleIntercept", 0))


@contextmanager
def quiet() -> Iterator[None]:
    """Silences pydicom, which remarks on every value that strays from the standard and names no file."""
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
    """Whether a file, unpacked where it is gzipped, has `DICM` at byte 128. False where it cannot be opened."""
    with suppress(OSError, EOFError, zlib.error):
        if Path(path).is_file():  # opening a pipe would block
            with open(path, "rb") as file:
                packed = file.read(2) == GZIP
                file.seek(0)
                return (gzip.GzipFile(fileobj=file) if packed else file).read(132)[128:] == b"DICM"
    return False


def read_dataset(source: str | os.PathLike | bytes, **options: Any) -> Dataset:
    """A DICOM file, or its content; gzipped or deflated ones too.

    A few bytes may unpack to any number: no more than `MOST_BYTES` are unpacked.
    """
    packed = {name: given for name, given in options.items() if name != "defer_size"}  # no file has these bytes
    with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as file:
        begin = file.read(132)
        if begin[:2] == GZIP:
            file.seek(0)
            return read_dataset(_bounded(gzip.GzipFile(fileobj=file).read(MOST_BYTES + 1)), **packed)
        if begin[128:] == b"DICM":
            meta = filereader.read_dataset(file, False, True, stop_when=lambda tag, *_: tag.group != 2)
            if meta.get("TransferSyntaxUID") == uid.DeflatedExplicitVRLittleEndian:
                _bounded(zlib.decompressobj(-zlib.MAX_WBITS).decompress(file.read(), MOST_BYTES + 1))
                options = packed
    return dcmread(io.BytesIO(source) if isinstance(source, bytes) else source, **options)


def _bounded(content: bytes) -> bytes:
    if len(content) > MOST_BYTES:
        raise ValueError(f"it unpacks to more than {MOST_BYTES >> 20} MB")
    return content


def reason(error: Exception) -> str:
    """The message of an exception, in one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def element(header: Dataset, keyword: str | tuple[int, int]) -> DataElement | None:
    """An attribute, None where it is missing, empty or not legal."""
    try:
        found = header[keyword]
    except Exception:  # noqa: BLE001  # absent, or text where a number belongs: pydicom raises many types
        return None
    return None if found.is_empty else found


def value(header: Dataset | Mapping[str, Any], keyword: Any, default: Any = None) -> Any:
    """Value of an attribute, or of a sidecar's field; `default` where it is missing, empty or not legal."""
    if isinstance(header, Mapping):
        return header.get(keyword) or default
    found = element(header, keyword)
    return default if found is None else found.value


def numbers(header: Dataset | Mapping[str, Any], keyword: Any, count: int) -> np.ndarray:
    """`(count,)` finite numbers, all NaN where the attribute is anything else."""
    with suppress(TypeError, ValueError, OverflowError):
        found = np.atleast_1d(np.array(value(header, keyword), dtype=float))
        if found.shape == (count,) and np.isfinite(found).all():
            return found
    return np.full(count, np.nan)


def milliseconds(header: Dataset | Mapping[str, Any], keyword: str) -> float:
    """A time in ms, NaN where it is missing; sidecars state it in s."""
    return float(numbers(header, keyword, 1)[0]) * (1000 if isinstance(header, Mapping) else 1)


# A reason to skip an image -> the test for it. Its finding stands for {} in the reason.
Policies = dict[str, Callable[[Any], Any]]


def first_reason(header: Dataset | Mapping[str, Any], policies: Policies) -> str | None:
    """The first reason of a table whose test finds something in a header."""
    for why, test in policies.items():
        if found := test(header):
            return why.format(found)
    return None


def classic_headers(dataset: Dataset) -> list[Dataset]:
    """Headers as classic images have them, one for each frame; a classic one comes back as it is.

    The attributes of a multi-frame image's functional groups move to the top, under their classic names.
    """
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
        pulse = PULSES.get(str(value(header, "EchoPulseSequence")))
        if pulse is not None:
            header.ScanningSequence = pulse
        headers.append(header)
    return headers
