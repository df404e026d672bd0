"""A rebuilt volume as a derived MR series: a folder of single-frame images, which is complete or absent."""

import copy
import os
import re
import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
from pydicom import Dataset, dcmread, dcmwrite, uid
from pydicom.dataset import FileMetaDataset
from pydicom.pixels import set_pixel_data

from ...errors import InputError, logger
from ...files import check_ours
from ...inputs.dicom import Series, read_headers
from ...inputs.headers import quiet
from ...rebuild.rebuilt import DRAWN, ESTIMATED
from ...stack import grid
from .inherit import GUIDE, code, decimal, inherited, references

ERROR_SERIES = 500  # added to the number of the rebuilt series: the number of its error map
DIGITS = 60_000  # values that an error map is spread over, of 65,536
TOGETHER_SERIES = 250  # added to the number of the first series' own for that of several
UIDS = ("SeriesInstanceUID", "StudyInstanceUID", "FrameOfReferenceUID")
FIXED = {  # attributes of a derived series, whatever its source says
    "SOPClassUID": uid.MRImageStorage,
    "Modality": "MR",
    "ImageType": ["DERIVED", "SECONDARY", "OTHER"],
    # Rebuilt slices have no times of their own. Converters would take those of a 2D series for acquired at once.
    "MRAcquisitionType": "3D",
}
REQUIRED = {"ScanningSequence": "RM", "SequenceVariant": "NONE", "PhotometricInterpretation": "MONOCHROME2"}
NAME = "DRIFT"  # of the equipment; converters would take a model and a version for the scanner's
LABEL, LONGEST = "DRIFT SR", 55  # after the description of the source, of so many characters: 64 in all
SHARPER = " sharp"  # after the label, with the option of this name
GUIDED, SHORTER = " guided by {name}", 40  # after the label; the source's description then keeps so many characters
BY_GUIDE = "Guided by {name}, another contrast of the head, which shows where edges are. "
DERIVATION = (
    "Slices rebuilt {spacing:.3g} mm apart by {by} (through-plane super-resolution) from an acquisition of "
    "type {kind}. Detail finer than the source slices is {detail}, not measured."
)
WARNED = "Warning: {text}."  # a sentence of ImageComments for each
MOST = 5_000  # letters of them; a long text (LT) takes 10,240 bytes
MAY_BE_EMPTY = (  # type 2: must be there, with or without a value
    "PatientName PatientID PatientBirthDate PatientSex StudyDate StudyTime StudyID ReferringPhysicianName "
    "AccessionNumber PatientPosition PositionReferenceIndicator Manufacturer ScanOptions RepetitionTime EchoTime "
    "EchoTrainLength"
).split()


def check_series_folder(folder: Path) -> None:
    """Refuses a folder that holds anything but a series."""
    ours = folder.is_dir() and all(re.fullmatch(r"\d+\.dcm", path.name) for path in folder.iterdir())
    check_ours(folder, ours or not folder.exists())


@quiet()
def write_series(
    folder: str | os.PathLike,
    array: np.ndarray,
    affine: np.ndarray,
    source: Series,
    version: str,
    key: str,
    what: str = "",
    others: Sequence[Series] = (),
    guide: Series | Path | None = None,
    by: str = "",
    warnings: Sequence[str] = (),
    test: str = "",
    sharp: bool = False,
) -> None:
    """Writes a rebuilt volume as a derived MR series.

    The same source images, patient, key and version give the same UIDs.

    Args:
        folder: is made; an earlier result in it is replaced.
        array: `(X, Y, Z)`, slices last, in the units of the source.
        affine: `(4, 4)`, voxel -> mm, RAS.
        source: the series that was rebuilt; its files are still there.
        key: of the result, a text that names its settings and weights.
        what: the voxels are, if not the scan rebuilt; such as "error bar: ...".
        others: further stacks that the volume was made of. Their images are sources as well.
        guide: a scan of another contrast that guided. Images of a series are sources of a purpose of their own.
        by: who rebuilt, in words (`Origin.said`); DRIFT of this version where nothing is said.
        warnings: of the record. An archive has no other place for them.
        test: what a test on the scan's own slices found; empty without one.
        sharp: whether detail is drawn (`Rebuilt.sharp`).
    """
    array, folder = np.asarray(array), Path(folder)
    _clear(folder)
    if not np.isfinite(array).all():
        raise InputError(f"{folder}: the volume has NaN or infinite voxels, which DICOM cannot hold. Mend them first.")
    check_series_folder(folder)
    lps = np.diag([-1, -1, 1, 1]) @ np.asarray(affine, dtype=float)
    edges = grid.voxel_spacing(lps)
    header, *further = (inherited(*read_headers(one), one.part) for one in (source, *others))
    if further:
        own = header.get("SeriesDescription", "")[: 46 - len(SHARPER) * sharp]
        header.SeriesDescription = f"{own} {1 + len(further)} stacks".strip()
    for other in further:
        header.SourceImageSequence.extend(other.SourceImageSequence)
    guided_by = _guided_by(header, guide)
    step, intercept = header.RescaleSlope, float(header.RescaleIntercept)
    if what:  # another quantity has a slope of its own
        step, intercept = (array.max() - array.min()) / DIGITS, 0.0
    stored, slope, offset = _stored(array, float(step) or 1.0, intercept)
    common = _derived(header, float(edges[2]), version, key, by or f"{NAME} {version}", sharp)
    _say_origin(common, 1 + len(further), guided_by, what)
    common.DerivationDescription += f" Tested: {test}." if test else ""
    if warnings:
        common.ImageComments = " ".join(WARNED.format(text=text.rstrip(".")) for text in warnings)[:MOST]
    if not all(text.isascii() for text in (guided_by, test, *warnings)):
        common.SpecificCharacterSet = "ISO_IR 192"
    if (replaced := _of_other_images(folder, common)) is not None:
        count = len(replaced.SourceImageSequence)
        common.SeriesDescription = (
            f"{common.get('SeriesDescription', '')[:36]} (replaces that of {count} images)".strip()
        )
        common.DerivationDescription += f" It replaces series {replaced.SeriesInstanceUID}, of {count} images."
    common.ImageOrientationPatient = [decimal(cosine) for cosine in (lps[:3, :2] / edges[:2]).T.ravel()]
    common.PixelSpacing = [decimal(edges[1]), decimal(edges[0])]  # between rows, between columns
    common.SliceThickness = common.SpacingBetweenSlices = decimal(edges[2])
    if (float(slope), float(offset)) != (1, 0):
        common.RescaleSlope, common.RescaleIntercept, common.RescaleType = slope, offset, "US"
    partial, earlier = (folder.with_name(f".{os.getpid()}-{name}{folder.name}") for name in ("", "earlier-"))
    partial.mkdir(parents=True)
    try:
        _write_images(partial, common, stored, lps)
        if folder.exists():
            folder.rename(earlier)
        partial.rename(folder)
    finally:
        _clear(folder)
    logger.info(f"wrote {folder}")


def _say_origin(header: Dataset, stacks: int, guided_by: str, what: str) -> None:
    """Says in a derived header of how many stacks the series was made, by which guide, and what its voxels are."""
    if stacks > 1:
        header.DerivationDescription = f"Made of {stacks} series. {header.DerivationDescription}"
        header.SeriesNumber += TOGETHER_SERIES
    if guided_by:
        own, label, sharper = header.SeriesDescription.rpartition(LABEL)
        own = own[:SHORTER].strip()
        header.SeriesDescription = f"{own} {label}{sharper}{GUIDED.format(name=guided_by)}".strip()[:64].strip()
        header.DerivationDescription = BY_GUIDE.format(name=guided_by) + header.DerivationDescription
    if what:
        header.SeriesDescription = f"{header.SeriesDescription[:48]} {what.partition(':')[0]}"
        header.DerivationDescription = f"{what[:1].upper()}{what[1:]}. {header.DerivationDescription}"
        header.SeriesNumber += ERROR_SERIES
        header.pop("WindowCenter", None), header.pop("WindowWidth", None)


def _write_images(folder: Path, header: Dataset, stored: np.ndarray, affine: np.ndarray) -> None:
    """Writes a file for each slice of integers `(X, Y, Z)`, by their header and affine, voxel -> mm, LPS."""
    across = np.cross(*(affine[:3, :2] / grid.voxel_spacing(affine)[:2]).T)
    for k in range(stored.shape[2]):
        image = Dataset(dict(header.items()))  # of its own: Dataset(header) would share
        position = affine[:3, 3] + k * affine[:3, 2]
        image.ImagePositionPatient = [decimal(p) for p in position]
        image.SliceLocation = decimal(position @ across)
        image.InstanceNumber = k + 1
        image.SOPInstanceUID = uid.generate_uid(entropy_srcs=[f"{header.SeriesInstanceUID} {k}"])
        image.file_meta = FileMetaDataset()
        image.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
        plane = np.ascontiguousarray(stored[:, :, k].T)
        set_pixel_data(image, plane, header.PhotometricInterpretation, 16, generate_instance_uid=False)
        dcmwrite(folder / f"{k + 1:04d}.dcm", image, enforce_file_format=True)


def _guided_by(header: Dataset, guide: Series | Path | None) -> str:
    """The name of a guide, empty for none. The images of a series become sources of the header."""
    if guide is None or isinstance(guide, Path):
        return "" if guide is None else guide.name
    headers, indices = read_headers(guide)
    header.SourceImageSequence.extend(references(headers, indices, GUIDE))
    return str(headers[0].get("SeriesDescription") or guide.name)


def _of_other_images(folder: Path, header: Dataset) -> Dataset | None:
    """The header of the result that a new one replaces, if it was made of other images, as of a series that grew."""
    first = next(iter(sorted(folder.glob("*.dcm"))), None) if folder.is_dir() else None
    if first is None:
        return None
    earlier = dcmread(first, specific_tags=["SeriesInstanceUID", "SourceImageSequence"])

    def sources(one: Dataset) -> set[str]:
        return {item.ReferencedSOPInstanceUID for item in one.get("SourceImageSequence", [])}

    return earlier if sources(earlier) - sources(header) or sources(header) - sources(earlier) else None


def _clear(folder: Path) -> None:
    """Clears remains of writing a series beside its folder. An earlier result comes back where there is no newer."""
    hidden = re.compile(rf"\.\d+-(earlier-)?{re.escape(folder.name)}")
    for path in list(folder.parent.iterdir()) if folder.parent.is_dir() else []:
        left = hidden.fullmatch(path.name)
        if left and left[1] and not folder.exists():
            path.rename(folder)
        elif left:
            shutil.rmtree(path, ignore_errors=True)


def _stored(array: np.ndarray, step: float, intercept: float) -> tuple[np.ndarray, str, str]:
    """Intensities as 16-bit integers, with the slope and the intercept that bring them back to within half a slope.

    The slope is `step` where the range of the intensities allows it. Else the intensities spread over all 65536 values.
    """
    low, high = float(array.min()), float(array.max())
    for dtype in (np.uint16, np.int16):
        limits = np.iinfo(dtype)
        if limits.min <= np.rint((low - intercept) / step) and np.rint((high - intercept) / step) <= limits.max:
            break
    else:
        dtype, limits, intercept = np.uint16, np.iinfo(np.uint16), low
        step = max(step, (high - low) / (limits.max - 1))  # one value to spare: decimal strings round
    slope, offset = decimal(step), decimal(intercept)
    stored = np.rint((array.astype(float) - float(offset)) / float(slope))
    return stored.clip(limits.min, limits.max).astype(dtype), slope, offset


def _derived(header: Dataset, spacing: float, version: str, key: str, by: str, sharp: bool) -> Dataset:
    """The header that all images of a derived series share, without grid and pixels."""
    common = copy.deepcopy(header)
    del common.RescaleSlope, common.RescaleIntercept
    now = datetime.now()
    for event in ("InstanceCreation", "Content", "Series"):
        setattr(common, f"{event}Date", now.strftime("%Y%m%d"))
        setattr(common, f"{event}Time", now.strftime("%H%M%S"))
    kind = common.get("MRAcquisitionType") or "unknown"
    label = LABEL + SHARPER * sharp
    longest = LONGEST + len(LABEL) - len(label)
    common.SeriesDescription = f"{common.get('SeriesDescription', '')[:longest]} {label}".strip()
    detail = DRAWN if sharp else ESTIMATED
    common.DerivationDescription = DERIVATION.format(spacing=spacing, by=by, kind=kind, detail=detail)
    common.DerivationCodeSequence = code("SpatialResampling")
    for keyword, fixed in FIXED.items():
        setattr(common, keyword, fixed)
    tool = Dataset()
    tool.PurposeOfReferenceCodeSequence = code("ProcessingEquipment")
    tool.Manufacturer = NAME
    tool.ContributionDateTime = now.strftime("%Y%m%d%H%M%S")
    tool.ContributionDescription = common.DerivationDescription
    common.ContributingEquipmentSequence = [*common.get("ContributingEquipmentSequence", []), tool]
    sources = [
        f"{item.ReferencedSOPInstanceUID} {item.get('ReferencedFrameNumber', '')}"
        for item in header.SourceImageSequence
    ]
    patient = [str(common.get(keyword, "")) for keyword in ("PatientID", "PatientName")]  # it may be corrected
    made_of = [key, version, *patient, *sources]
    own = {what: uid.generate_uid(entropy_srcs=["\n".join([what, *made_of])]) for what in UIDS}
    common.SeriesInstanceUID = own["SeriesInstanceUID"]
    for keyword, value in {**own, **REQUIRED, **dict.fromkeys(MAY_BE_EMPTY)}.items():
        if keyword not in common:
            setattr(common, keyword, value)
    if "IR" in common.ScanningSequence and "InversionTime" not in common:
        common.InversionTime = None  # required with a value or without
    return common
