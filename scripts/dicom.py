"""DICOM: which MR series can be rebuilt, their slices in space, and the derived series that goes back to the archive.

A multi-frame image is first laid out as classic headers, one for each frame; all that follows knows one kind of header.
Positions and orientations of DICOM are LPS, affines here are RAS as in NIfTI; lengths are in mm.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
from pydicom import Dataset, dcmread, dcmwrite, uid
from pydicom.dataelem import DataElement
from pydicom.dataset import FileMetaDataset
from pydicom.pixels import apply_modality_lut, get_decoder, set_pixel_data
from pydicom.sr.codedict import codes
from pydicom.tag import Tag
from pydicom.valuerep import format_number_as_ds

from . import grid
from .errors import InputError

logger = logging.getLogger("drift")

MAX_VOLUMES = 8  # more at one place are a dynamic, functional or diffusion series
SAME_PLACE = 0.05  # mm between positions that count as rounding of the header
SAME_PLANE = 1e-4  # likewise, in directions and in mm of pixel spacing
SPACING_TOLERANCE = 0.01  # share of the spacing by which a slice may lie off the even grid; at least SAME_PLACE

MR_IMAGES = (uid.MRImageStorage, uid.EnhancedMRImageStorage, uid.LegacyConvertedEnhancedMRImageStorage)
UNFIT_TYPES = {
    "LOCALIZER": "a localizer",
    "SECONDARY": "secondary images: reformats, maps, screenshots or results of earlier runs",
    "PROJECTION IMAGE": "projections, not slices",
    "MOSAIC": "mosaics, which hold many slices in one image",
    "P": "phase images, not magnitude",
    "PHASE": "phase images, not magnitude",
    "PHASE MAP": "phase images, not magnitude",
}
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
SEARCHED = (  # what is read of a file to find out what it is, with VOLUME_KEYS
    "SOPClassUID SOPInstanceUID Modality SeriesInstanceUID SeriesNumber SeriesDescription Rows Columns PixelData "
    "ImagePositionPatient ImageOrientationPatient PixelSpacing SliceThickness PhotometricInterpretation RescaleSlope "
    "RescaleIntercept SharedFunctionalGroupsSequence PerFrameFunctionalGroupsSequence"
).split()
INHERITED = " ".join(  # what still holds for a rebuilt series, by module (PS3.3, A.4.3); nothing else is copied
    [
        # Patient
        "PatientName PatientID IssuerOfPatientID PatientBirthDate PatientSex OtherPatientIDsSequence",
        "PatientIdentityRemoved DeidentificationMethod DeidentificationMethodCodeSequence",
        # General Study, Patient Study
        "StudyInstanceUID StudyDate StudyTime StudyID AccessionNumber IssuerOfAccessionNumberSequence",
        "ReferringPhysicianName StudyDescription ProcedureCodeSequence PatientAge PatientSize PatientWeight",
        # General Series, Frame of Reference
        "SeriesNumber SeriesDescription BodyPartExamined Laterality PatientPosition ProtocolName",
        "RequestAttributesSequence FrameOfReferenceUID PositionReferenceIndicator",
        # General Equipment: the scanner; what rebuilt the series is added as contributing equipment
        "Manufacturer ManufacturerModelName DeviceSerialNumber SoftwareVersions InstitutionName InstitutionAddress",
        "InstitutionalDepartmentName StationName ContributingEquipmentSequence",
        # General Acquisition, General Image, Contrast/Bolus, SOP Common
        "AcquisitionDate AcquisitionTime PhotometricInterpretation VOILUTFunction BurnedInAnnotation",
        "RecognizableVisualFeatures LossyImageCompression ContrastBolusAgent ContrastBolusAgentSequence",
        "ContrastBolusRoute ContrastBolusVolume SpecificCharacterSet TimezoneOffsetFromUTC",
        # MR Image
        "ScanningSequence SequenceVariant SequenceName ScanOptions MRAcquisitionType AngioFlag RepetitionTime EchoTime",
        "InversionTime EchoNumbers EchoTrainLength FlipAngle VariableFlipAngleFlag NumberOfAverages PixelBandwidth",
        "ImagingFrequency ImagedNucleus MagneticFieldStrength ReceiveCoilName TransmitCoilName",
    ]
).split()
ONCE_IS_ENOUGH = {"BurnedInAnnotation": "YES", "RecognizableVisualFeatures": "YES", "LossyImageCompression": "01"}
MAY_BE_EMPTY = (  # type 2: must be there, with or without a value
    "PatientName PatientID PatientBirthDate PatientSex StudyDate StudyTime StudyID ReferringPhysicianName "
    "AccessionNumber PatientPosition PositionReferenceIndicator Manufacturer ScanOptions MRAcquisitionType "
    "RepetitionTime EchoTime EchoTrainLength"
).split()


@dataclass(frozen=True)
class Series:
    """Images that form one volume, or that are skipped for one reason.

    Attributes:
        name: for people and for files; the same in every run.
        images: (path, index of the frame in the file) of each image, in the order found.
        skipped: why they are not rebuilt; None if they are taken.
    """

    name: str
    images: tuple[tuple[Path, int], ...]
    skipped: str | None = None


@dataclass(frozen=True)
class Volume:
    """A series as one stack of slices.

    Attributes:
        array: `(X, Y, Z)` float32: columns, rows and slices, in the units of the rescaled images.
        affine: `(4, 4)`, voxel -> mm, RAS.
        slice_thickness: (0018,0050) in mm, None where it is missing.
        slice_spacing: between slice centres, from their positions, in mm.
        header: what a derived series inherits; its `RescaleSlope` is the finest intensity step of the source.
    """

    array: np.ndarray
    affine: np.ndarray
    slice_thickness: float | None
    slice_spacing: float
    header: Dataset


@dataclass(frozen=True, eq=False)
class _Frame:
    """What the header of one image says."""

    image: tuple[Path, int]
    series_uid: str
    name: str  # of its series
    unfit: str | None  # why it cannot be a slice; then it may have no place either
    keys: list[str]
    shape: tuple[int, int]  # rows, columns
    position: np.ndarray  # of the first pixel's centre, LPS, mm
    plane: np.ndarray  # directions of a row and of a column, LPS; mm between rows, between columns
    normal: np.ndarray
    distance: float  # along the normal, mm
    thickness: float  # mm, NaN where missing


@contextmanager
def _quiet() -> Iterator[None]:
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


# --- headers ---


def is_dicom(path: str | os.PathLike) -> bool:
    """Whether a file bears the mark of DICOM, `DICM` at byte 128; False for folders and what cannot be opened."""
    try:
        if not Path(path).is_file():  # a pipe would block
            return False
        with open(path, "rb") as file:
            return file.read(132)[128:] == b"DICM"
    except OSError:
        return False


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _element(header: Dataset, keyword: str) -> DataElement | None:
    """An attribute, None where it is missing, empty or not legal."""
    try:
        element = header[keyword]
    except Exception:  # absent, or text where a number belongs: pydicom raises many types
        return None
    return None if element.is_empty else element


def _value(header: Dataset, keyword: str, default: Any = None) -> Any:
    element = _element(header, keyword)
    return default if element is None else element.value


def _numbers(header: Dataset, keyword: str, count: int) -> np.ndarray:
    """`(count,)` finite numbers, all NaN where the attribute is anything else."""
    try:
        numbers = np.atleast_1d(np.array(_value(header, keyword), dtype=float))
    except (TypeError, ValueError):
        numbers = np.full(0, np.nan)
    good = numbers.shape == (count,) and np.isfinite(numbers).all()
    return numbers if good else np.full(count, np.nan)


def _classic_headers(dataset: Dataset) -> list[Dataset]:
    """One header for each frame, with the attributes of functional groups where classic images have them."""
    if "PerFrameFunctionalGroupsSequence" not in dataset:
        return [dataset]
    shared, frames = dataset.get("SharedFunctionalGroupsSequence", []), dataset.PerFrameFunctionalGroupsSequence
    whole = dict(dataset.items())
    del whole[Tag("PerFrameFunctionalGroupsSequence")]
    headers = []
    for frame in frames:
        header = Dataset(dict(whole))
        for macro in chain(*shared, frame):
            if macro.VR == "SQ" and not macro.tag.is_private and len(macro.value) == 1:
                header.update(macro.value[0])
        for enhanced, classic in ENHANCED_NAMES.items():
            if enhanced in header:
                setattr(header, classic, _value(header, enhanced))
        pulse = {"SPIN": "SE", "GRADIENT": "GR", "BOTH": ["SE", "GR"]}.get(str(_value(header, "EchoPulseSequence")))
        if pulse is not None:
            header.ScanningSequence = pulse
        headers.append(header)
    return headers


def _can_decode(syntax: uid.UID) -> bool:
    try:
        return not syntax.is_compressed or get_decoder(syntax).is_available
    except NotImplementedError:
        return False


def _unfit(header: Dataset, syntax: uid.UID) -> str | None:
    """Why an image cannot be part of a stack of MR slices, None if it can."""
    kind = uid.UID(_value(header, "SOPClassUID", ""))
    modality = _value(header, "Modality", "missing")
    colours = _value(header, "PhotometricInterpretation", "MONOCHROME2")
    types = {*np.atleast_1d(_value(header, "ImageType", [])), _value(header, "ComplexImageComponent")}
    unfit_types = [reason for name, reason in UNFIT_TYPES.items() if name in types]
    orientation, spacing = _numbers(header, "ImageOrientationPatient", 6), _numbers(header, "PixelSpacing", 2)
    slope, intercept = (_numbers(header, f"Rescale{name}", 1)[0] for name in ("Slope", "Intercept"))
    if "Secondary Capture" in kind.name:
        return "secondary captures, which are screenshots or scanned pages"
    if modality != "MR":
        return f"not MR: the modality is {modality}"
    if kind == uid.EnhancedMRColorImageStorage or colours not in ("MONOCHROME1", "MONOCHROME2"):
        return "colour images"
    if kind not in MR_IMAGES:
        return f"no MR images but {kind.name or 'objects without SOPClassUID'}"
    if unfit_types:
        return unfit_types[0]
    if not all(isinstance(_value(header, f"{what}InstanceUID"), str) for what in ("Series", "SOP")):
        return "SeriesInstanceUID or SOPInstanceUID is missing or broken"
    if "PixelData" not in header:
        return "no pixel data"
    if np.isnan([*_numbers(header, "ImagePositionPatient", 3), *orientation, *spacing]).any():
        return "missing geometry: ImagePositionPatient, ImageOrientationPatient or PixelSpacing"
    if abs(orientation.reshape(2, 3) @ orientation.reshape(2, 3).T - np.eye(2)).max() > 0.01 or spacing.min() <= 0:
        return "broken geometry: ImageOrientationPatient is no pair of directions or PixelSpacing is not positive"
    if ("RescaleSlope" in header and not abs(slope) > 0) or ("RescaleIntercept" in header and np.isnan(intercept)):
        return "broken intensities: RescaleSlope or RescaleIntercept is no number, or the slope is 0"
    if not _can_decode(syntax):
        return f"compressed as {syntax.name}, which needs a decoder: pip install python-gdcm, or decompress the files"
    return None


def _frame(header: Dataset, image: tuple[Path, int], syntax: uid.UID) -> _Frame:
    series_uid, number = str(_value(header, "SeriesInstanceUID", "")), _value(header, "SeriesNumber", 0)
    description = re.sub(r"[^\w.+]+", "_", str(_value(header, "SeriesDescription", ""))).strip("_.") or "series"
    mark = hashlib.sha256(series_uid.encode()).hexdigest()[:6]  # two patients may share number and description
    position, spacing = _numbers(header, "ImagePositionPatient", 3), _numbers(header, "PixelSpacing", 2)
    row, column = _numbers(header, "ImageOrientationPatient", 6).reshape(2, 3)
    row, column = (one / max(np.linalg.norm(one), 0.1) for one in (row, column))  # headers round; zero stays zero
    normal = np.cross(row, column)
    return _Frame(
        image=image,
        series_uid=series_uid,
        name=f"{number:03d}-{description}-{mark}",
        unfit=_unfit(header, syntax),
        keys=[str(_value(header, key)) for key in VOLUME_KEYS],
        shape=(_value(header, "Rows", 0), _value(header, "Columns", 0)),
        position=position,
        plane=np.concatenate([row, column, spacing]),
        normal=normal,
        distance=float(position @ normal),
        thickness=float(_numbers(header, "SliceThickness", 1)[0]),
    )


# --- finding series ---


def _files(source: str | os.PathLike | Sequence[str | os.PathLike]) -> list[Path]:
    """Files of a folder at any depth, without hidden ones, or those of a list."""
    if not isinstance(source, str | os.PathLike):
        return list(dict.fromkeys(path for entry in source for path in _files(entry)))
    root = Path(source)
    if root.is_dir():
        found = []
        for folder, inner, names in os.walk(root):  # follows no link to a folder: it may lead in a circle
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            found += [Path(folder, name) for name in sorted(names) if not name.startswith(".")]
        return found
    if not root.is_file():
        raise InputError(f"{root} does not exist. Give a folder of DICOM files or the files themselves.")
    with open(root, "rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise InputError(f"{root} is a zip file. Unpack it and give the folder.")
    if root.name.upper() == "DICOMDIR":
        raise InputError(f"{root} is an index without images. Give the folder that it lies in.")
    return [root]


@_quiet()
def find_series(source: str | os.PathLike | Sequence[str | os.PathLike], thin: float = 1.3) -> tuple[list[Series], int]:
    """Groups DICOM files into volumes and says which of them are stacks of thick MR slices.

    Files are grouped by SeriesInstanceUID. What cannot be part of a stack is set apart, by reason. The rest is split by
    orientation and matrix and then, only where images share a place, by what tells them apart (`VOLUME_KEYS`).

    Args:
        source: a folder, searched at any depth; a file; or a list of them.
        thin: slices that are no thicker and no farther apart than this, in mm, need no rebuilding.

    Returns:
        The series, sorted by name, and the number of files that are no DICOM objects of a series.

    Raises:
        InputError: if there is no such file, or it is a zip file or a DICOMDIR.
    """
    strangers = 0
    series: list[Series] = []
    by_uid: dict[str, list[_Frame]] = {}
    for path in _files(source):
        if not is_dicom(path):
            strangers += 1
            continue
        try:
            # values of more than 1024 bytes are read when asked for: pixels never
            dataset = dcmread(path, defer_size=1024, specific_tags=SEARCHED + VOLUME_KEYS)
            if dataset.file_meta.get("MediaStorageSOPClassUID") == uid.MediaStorageDirectoryStorage:
                strangers += 1
                continue
            for index, header in enumerate(_classic_headers(dataset)):
                frame = _frame(header, (path, index), dataset.file_meta.TransferSyntaxUID)
                by_uid.setdefault(frame.series_uid, []).append(frame)
        except Exception as error:  # pydicom raises many types for a broken file
            series.append(Series(path.name, ((path, 0),), f"{path} cannot be read as DICOM ({_reason(error)})"))
    for frames in by_uid.values():
        stacks = list(_stacks(frames, thin))
        for part, (members, skipped) in enumerate(stacks, start=1):
            name = frames[0].name + (f"-{part}" if len(stacks) > 1 else "")
            series.append(Series(name, tuple(frame.image for frame in members), skipped))
    return sorted(series, key=lambda one: one.name), strangers


def _stacks(frames: list[_Frame], thin: float) -> Iterator[tuple[list[_Frame], str | None]]:
    """Splits the images of one series into volumes, each with the reason to skip it or None."""
    for reason in sorted({frame.unfit for frame in frames if frame.unfit}):
        yield [frame for frame in frames if frame.unfit == reason], reason
    planes: list[list[_Frame]] = []
    for frame in (frame for frame in frames if not frame.unfit):
        for plane in planes:
            if frame.shape == plane[0].shape and abs(frame.plane - plane[0].plane).max() < SAME_PLANE:
                plane.append(frame)
                break
        else:
            planes.append([frame])
    least = grid.MIN_SLICES if len(planes) > 1 else 1
    stacks = [plane for plane in planes if len(plane) >= least]
    normals = np.array([stack[0].normal for stack in stacks]).reshape(-1, 3)
    if abs(normals @ normals.T).min(initial=1) < np.sqrt(0.5):  # more than 45 degrees apart
        stacks, least = [], len(frames) + 1
    mixed = [frame for plane in planes if len(plane) < least for frame in plane]
    if mixed:
        yield mixed, f"mixed orientations or matrices: {len(planes)} in one series, as in a localizer"
    for stack in stacks:
        volumes = _volumes(stack)
        if len(volumes) > MAX_VOLUMES:
            yield stack, f"{len(volumes)} volumes at one place: a dynamic, functional or diffusion series"
        else:
            yield from ((volume, _unfit_stack(volume, thin)) for volume in volumes)


def _places(frames: Sequence[_Frame]) -> list[list[_Frame]]:
    """Frames in order along the normal; those at the same place together."""
    places: list[list[_Frame]] = []
    for frame in sorted(frames, key=lambda one: one.distance):
        if places and frame.distance - places[-1][0].distance < SAME_PLACE:
            places[-1].append(frame)
        else:
            places.append([frame])
    return places


def _spacing(frames: Sequence[_Frame]) -> float:
    """Usual distance between neighbouring places, in mm; 0 for less than `grid.MIN_SLICES`."""
    distances = [place[0].distance for place in _places(frames)]
    return float(np.median(np.diff(distances))) if len(distances) >= grid.MIN_SLICES else 0.0


def _volumes(frames: list[_Frame], first_key: int = 0) -> list[list[_Frame]]:
    """Splits a stack by the first key that tells images at the same place apart, and so on until none does.

    A key that would leave every other slice in each part numbers the slices, not the volumes.
    """
    places = _places(frames)
    for key in range(first_key, len(VOLUME_KEYS)):
        if any(len({frame.keys[key] for frame in place}) > 1 for place in places):
            values = sorted({frame.keys[key] for frame in frames})
            parts = [[frame for frame in frames if frame.keys[key] == value] for value in values]
            if max(map(_spacing, parts)) <= 1.5 * _spacing(frames):
                return [volume for part in parts for volume in _volumes(part, key + 1)]
    return [frames]


def _unfit_stack(frames: list[_Frame], thin: float) -> str | None:
    """Why a stack is not rebuilt, None if it is."""
    spacing, pixel = _spacing(frames), float(frames[0].plane[6:].max())
    if not spacing:
        return f"fewer than {grid.MIN_SLICES} slices"
    if max(spacing, np.nan_to_num(frames[0].thickness)) <= max(thin, 1.01 * pixel):
        return f"thin or isotropic already: slices {spacing:.3g} mm apart, pixels of {pixel:.3g} mm"
    return None


# --- reading ---


@_quiet()
def read_series(series: Series) -> Volume:
    """Reads a series that was taken, in the order of its slices in space.

    Raises:
        InputError: if a file is broken, a slice is missing, different images share a place, or slices lie unevenly,
            along a tilted line or on a sheared grid. Nothing is filled in or resampled.
    """
    if series.skipped:
        raise InputError(f"{series.name} was skipped: {series.skipped}. Give another series.")
    images: dict[_Frame, tuple[Dataset, np.ndarray]] = {}
    for path, members in groupby(series.images, key=lambda image: image[0]):
        images |= _read(path, [index for _, index in members])
    frames, repeats = [], []
    for frame, *others in _places(list(images)):
        for other in others:
            if not np.array_equal(images[other][1], images[frame][1]):
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
    stated = _numbers(headers[0], "SpacingBetweenSlices", 1)[0]
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
        array=np.stack([images[frame][1].T for frame in frames], axis=-1),
        affine=affine,
        slice_thickness=float(np.median(thickness)) if thickness else None,
        slice_spacing=spacing,
        header=_inherited(headers, [frame.image[1] for frame in frames]),
    )


def _read(path: Path, indices: list[int]) -> dict[_Frame, tuple[Dataset, np.ndarray]]:
    """Header and rescaled pixels `(rows, columns)` of some frames of a file."""
    images = {}
    try:
        dataset = dcmread(path)
        headers = _classic_headers(dataset)
        stored = dataset.pixel_array.reshape(-1, dataset.Rows, dataset.Columns)
        for index in indices:
            frame = _frame(headers[index], (path, index), dataset.file_meta.TransferSyntaxUID)
            images[frame] = headers[index], apply_modality_lut(stored[index], headers[index]).astype(np.float32)
    except Exception as error:  # pydicom and the decoders raise many types for a broken file
        raise InputError(f"{path} cannot be read ({_reason(error)}). Export or download it again.") from error
    for frame, (_, plane) in images.items():
        if frame.unfit or not np.isfinite(plane).all():
            raise InputError(f"{path} cannot be used: {frame.unfit or 'infinite intensities'}. Export it again.")
    return images


def _affine(name: str, frames: Sequence[_Frame]) -> np.ndarray:
    """RAS affine `(4, 4)` of slices in order, one at each place; warns of slight unevenness.

    Raises:
        InputError: if they do not form an even and orthogonal grid.
    """
    gaps = np.diff([frame.distance for frame in frames])
    usual = float(np.median(gaps))
    tolerance = max(SPACING_TOLERANCE * usual, SAME_PLACE)
    multiples = np.round(gaps / usual)
    if multiples.max() > 1 and (abs(gaps - multiples * usual) <= tolerance * multiples).all():
        after, missing = int(np.argmax(multiples > 1)), int((multiples - 1).sum())
        raise InputError(
            f"{name}: {missing} of {len(frames) + missing} slices missing; slices are {usual:.4g} mm apart, but "
            f"{frames[after].image[0]} and {frames[after + 1].image[0]} {gaps[after]:.4g} mm. Export the whole series "
            "again: nothing is filled in."
        )
    positions = np.array([frame.position for frame in frames])
    step = (positions[-1] - positions[0]) / (len(frames) - 1)
    off = np.linalg.norm(positions - positions[0] - np.arange(len(frames))[:, None] * step, axis=1).max()
    if off > tolerance:
        raise InputError(
            f"{name}: slices lie unevenly, {gaps.min():.4g} to {gaps.max():.4g} mm apart and up to {off:.2g} mm off an "
            f"even grid; at most {tolerance:.2g} mm is supported. Give the files of one even stack."
        )
    if off > SAME_PLACE / 5:
        logger.warning(f"{name}: slices lie up to {off:.2g} mm off an even grid; their mean spacing is used.")
    row, column, (between_rows, between_columns) = np.split(frames[0].plane, [3, 6])
    affine = np.eye(4)
    affine[:3] = np.stack([row * between_columns, column * between_rows, step, positions[0]], axis=1)
    shear = grid.shear_angle(affine)
    if shear > grid.MAX_SHEAR:
        raise InputError(
            f"{name}: slices are sheared, {shear:.2f} degrees off orthogonal, at most {grid.MAX_SHEAR} is supported. "
            "Resample to an orthogonal grid first."
        )
    return np.diag([-1, -1, 1, 1]) @ affine


def _inherited(headers: list[Dataset], indices: list[int]) -> Dataset:
    """What a series derived from these images inherits: allowed attributes that have one value in all of them."""
    common = Dataset()
    for keyword in INHERITED:
        elements = [_element(header, keyword) for header in headers]
        once = [e for e in elements if e is not None and e.value == ONCE_IS_ENOUGH.get(keyword)]
        element = once[0] if once else elements[0]
        if element is not None and (once or all(element == other for other in elements[1:])):
            common.add(copy.deepcopy(element))
    common.remove_private_tags()  # those inside sequences
    if "SpecificCharacterSet" not in common and any("SpecificCharacterSet" in header for header in headers):
        common.SpecificCharacterSet = "ISO_IR 192"
    pair = ("WindowCenter", "WindowWidth")
    windows = [[_numbers(header, k, np.size(_value(header, k)))[0] for k in pair] for header in headers]
    if np.isfinite(windows).all():  # one for all slices: they will be scrolled through
        common.WindowCenter, common.WindowWidth = map(_decimal, np.median(windows, axis=0))
    common.RescaleSlope = _decimal(min(abs(_value(header, "RescaleSlope", 1)) for header in headers))
    intercepts = {_value(header, "RescaleIntercept", 0) for header in headers}
    common.RescaleIntercept = _decimal(intercepts.pop() if len(intercepts) == 1 else 0)
    common.SourceImageSequence = []
    for instance in dict.fromkeys(header.SOPInstanceUID for header in headers):  # a multi-frame image stands once
        item = Dataset()
        item.ReferencedSOPClassUID, item.ReferencedSOPInstanceUID = headers[0].SOPClassUID, instance
        if "NumberOfFrames" in headers[0]:
            frames = [index + 1 for index, header in zip(indices, headers) if header.SOPInstanceUID == instance]
            item.ReferencedFrameNumber = sorted(frames)
        item.PurposeOfReferenceCodeSequence = _code(codes.DCM.SourceImageForImageProcessingOperation)
        common.SourceImageSequence.append(item)
    return common


def _code(code: Any) -> list[Dataset]:
    item = Dataset()
    item.CodeValue, item.CodingSchemeDesignator, item.CodeMeaning = code.value, code.scheme_designator, code.meaning
    return [item]


def _decimal(number: Any) -> str:
    """A decimal string (DS): at most 16 characters."""
    return format_number_as_ds(float(number))


# --- writing ---


@_quiet()
def write_series(
    folder: str | os.PathLike, array: np.ndarray, affine: np.ndarray, header: Dataset, version: str
) -> None:
    """Writes a rebuilt volume as a derived MR series: a folder of single-frame images, complete or absent.

    Args:
        folder: made by this function; an earlier result of it is replaced.
        array: `(X, Y, Z)`, slices last, in the units of the source.
        affine: `(4, 4)`, voxel -> mm, RAS.
        header: of the `Volume` that was rebuilt.
        version: of this software.

    Raises:
        InputError: if the folder holds anything else, or the volume has NaN or infinite voxels or a sheared affine.
    """
    array, folder = np.asarray(array), Path(folder)
    if not np.isfinite(array).all():
        raise InputError(f"{folder}: the volume has NaN or infinite voxels, which DICOM cannot hold. Mend them first.")
    if grid.shear_angle(affine) > grid.MAX_SHEAR:
        raise InputError(f"{folder}: the affine is sheared, which DICOM cannot hold. Resample the volume first.")
    if folder.exists() and not (folder.is_dir() and all(re.fullmatch(r"\d+\.dcm", p.name) for p in folder.iterdir())):
        raise InputError(f"{folder} exists and is no earlier result. Move it or choose another output_dir.")
    lps = np.diag([-1, -1, 1, 1]) @ np.asarray(affine, dtype=float)
    edges = grid.voxel_spacing(lps)
    directions = lps[:3, :3] / edges
    stored, slope, intercept = _stored(array, float(header.RescaleSlope), float(header.RescaleIntercept))
    common = _derived(header, float(edges[2]), version)
    common.ImageOrientationPatient = [_decimal(cosine) for cosine in directions[:, :2].T.ravel()]
    common.PixelSpacing = [_decimal(edges[1]), _decimal(edges[0])]  # between rows, between columns
    common.SliceThickness = common.SpacingBetweenSlices = _decimal(edges[2])
    if (float(slope), float(intercept)) != (1, 0):
        common.RescaleSlope, common.RescaleIntercept, common.RescaleType = slope, intercept, "US"
    partial, earlier = (folder.with_name(f".{os.getpid()}-{name}{folder.name}") for name in ("", "earlier-"))
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        for k in range(array.shape[2]):
            image = Dataset(dict(common.items()))  # of its own: Dataset(common) would share
            position = lps[:3, 3] + k * lps[:3, 2]
            image.ImagePositionPatient = [_decimal(p) for p in position]
            image.SliceLocation = _decimal(position @ np.cross(directions[:, 0], directions[:, 1]))
            image.InstanceNumber = k + 1
            image.SOPInstanceUID = uid.generate_uid(prefix=None)
            image.file_meta = FileMetaDataset()
            image.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
            plane = np.ascontiguousarray(stored[:, :, k].T)
            set_pixel_data(image, plane, common.PhotometricInterpretation, 16, generate_instance_uid=False)
            dcmwrite(partial / f"{k + 1:04d}.dcm", image, enforce_file_format=True)
        if folder.exists():
            folder.rename(earlier)
        partial.rename(folder)
        shutil.rmtree(earlier, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    logger.info(f"wrote {folder}")


def _stored(array: np.ndarray, step: float, intercept: float) -> tuple[np.ndarray, str, str]:
    """16-bit integers, and the slope and intercept that bring the intensities back to within half a slope.

    The slope is `step` where the range of the intensities allows; else it spreads them over all 65536 values.
    """
    low, high = float(array.min()), float(array.max())
    for dtype in (np.uint16, np.int16):
        limits = np.iinfo(dtype)
        if limits.min <= np.rint((low - intercept) / step) and np.rint((high - intercept) / step) <= limits.max:
            break
    else:
        dtype, limits, intercept = np.uint16, np.iinfo(np.uint16), low
        step = max(step, (high - low) / (limits.max - 1))  # one value to spare: decimal strings round
    slope, offset = _decimal(step), _decimal(intercept)
    stored = np.rint((array.astype(float) - float(offset)) / float(slope))
    return stored.clip(limits.min, limits.max).astype(dtype), slope, offset


def _derived(header: Dataset, spacing: float, version: str) -> Dataset:
    """What all images of a derived series share, but for the grid and the pixels."""
    common = copy.deepcopy(header)
    del common.RescaleSlope, common.RescaleIntercept
    now = datetime.now()
    for event in ("InstanceCreation", "Content", "Series"):
        setattr(common, f"{event}Date", now.strftime("%Y%m%d"))
        setattr(common, f"{event}Time", now.strftime("%H%M%S"))
    common.SOPClassUID, common.Modality = uid.MRImageStorage, "MR"
    common.ImageType = ["DERIVED", "SECONDARY", "OTHER"]
    common.SeriesInstanceUID = uid.generate_uid(prefix=None)
    common.SeriesNumber = 1000 + common.get("SeriesNumber", 0) % 1000000
    common.SeriesDescription = f"{common.get('SeriesDescription', '')[:55]} DRIFT SR".strip()  # 64 characters
    common.DerivationDescription = (
        f"Slices rebuilt {spacing:.3g} mm apart by DRIFT {version} (through-plane super-resolution). "
        "Detail finer than the source slices is estimated, not measured."
    )
    common.DerivationCodeSequence = _code(codes.DCM.SpatialResampling)
    tool = Dataset()
    tool.PurposeOfReferenceCodeSequence = _code(codes.DCM.ProcessingEquipment)
    tool.Manufacturer, tool.ManufacturerModelName, tool.SoftwareVersions = "DRIFT", "DRIFT", version
    tool.ContributionDateTime = now.strftime("%Y%m%d%H%M%S")
    tool.ContributionDescription = common.DerivationDescription
    common.ContributingEquipmentSequence = [*common.get("ContributingEquipmentSequence", []), tool]
    required = {
        "StudyInstanceUID": uid.generate_uid(prefix=None),
        "FrameOfReferenceUID": uid.generate_uid(prefix=None),
        "ScanningSequence": "RM",
        "SequenceVariant": "NONE",
        "PhotometricInterpretation": "MONOCHROME2",
        **dict.fromkeys(MAY_BE_EMPTY),
    }
    for keyword, value in required.items():
        if keyword not in common:
            setattr(common, keyword, value)
    if "IR" in common.ScanningSequence and "InversionTime" not in common:
        common.InversionTime = None  # required with a value or without
    return common
