"""Which images cannot be part of a stack of MR slices, whatever they show: tables of reasons and tests."""

from typing import Any

import numpy as np
from pydicom import Dataset, uid
from pydicom.pixels import get_decoder

from ..headers import Policies, numbers, value

FLOATS = ("FloatPixelData", "DoubleFloatPixelData")
MR_IMAGES = (uid.MRImageStorage, uid.EnhancedMRImageStorage, uid.LegacyConvertedEnhancedMRImageStorage)


def _other_kind(header: Dataset) -> str | None:
    kind = uid.UID(value(header, "SOPClassUID", ""))
    named = f"objects of a maker's own kind ({kind})" if kind and kind.is_private else kind.name
    return None if kind in MR_IMAGES else named or "objects without SOPClassUID"


def _no_plane(header: Dataset) -> bool:
    directions = numbers(header, "ImageOrientationPatient", 6).reshape(2, 3)
    turned = abs(directions @ directions.T - np.eye(2)).max() <= 0.01  # NaN, of missing numbers, is not
    placed = np.isfinite(numbers(header, "ImagePositionPatient", 3)).all()
    return not (turned and placed and numbers(header, "PixelSpacing", 2).min() > 0)


def _broken_intensities(header: Dataset) -> Any:
    slope, intercept = (numbers(header, f"Rescale{name}", 1)[0] for name in ("Slope", "Intercept"))
    return ("RescaleSlope" in header and not abs(slope) > 0) or ("RescaleIntercept" in header and np.isnan(intercept))


def _needs_decoder(header: Dataset) -> str | None:
    syntax = header.file_meta.TransferSyntaxUID
    try:
        return None if not syntax.is_compressed or get_decoder(syntax).is_available else syntax.name
    except NotImplementedError:
        return syntax.name


MAKERS_SYNTAX = (
    "in the transfer syntax {} of their maker, which other programs cannot read: export them again in a standard one, "
    "such as Explicit VR Little Endian"
)
OBJECTS: Policies = {  # that are no grey MR images, whatever their series: raw data, reports, screenshots
    "not MR: the modality is {}": lambda image: (found := value(image, "Modality", "missing")) != "MR" and found,
    "colour images": lambda image: (
        value(image, "PhotometricInterpretation", "MONOCHROME2") not in ("MONOCHROME1", "MONOCHROME2")
    ),
    "inverted images (MONOCHROME1), whose smallest intensity is the brightest: export them as MONOCHROME2": (
        lambda image: value(image, "PhotometricInterpretation") == "MONOCHROME1"
    ),
    "no MR images but {}": _other_kind,
}
FORMS: Policies = {
    MAKERS_SYNTAX: lambda image: (found := image.file_meta.TransferSyntaxUID).is_private and found,
    "SeriesInstanceUID or SOPInstanceUID is missing or broken": lambda image: any(
        not isinstance(value(image, f"{one}InstanceUID"), str) for one in ("Series", "SOP")
    ),
    "pixels of floating point ({}), which MR images do not have: export them as integers": lambda image: (
        "PixelData" not in image and ", ".join(one for one in FLOATS if one in image)
    ),
    "no pixel data": lambda image: "PixelData" not in image,
    "missing or broken geometry: ImagePositionPatient, ImageOrientationPatient (two directions) or PixelSpacing "
    "(above 0)": _no_plane,
    "broken intensities: RescaleSlope or RescaleIntercept is no number, or the slope is 0": _broken_intensities,
    "compressed as {}, which needs a decoder: pip install python-gdcm, or decompress the files": _needs_decoder,
}
ACQUIRED = (  # attributes that say which slices came first, the most telling first; each rises with time
    "AcquisitionTime FrameAcquisitionDateTime AcquisitionDateTime TriggerTime AcquisitionNumber"
).split()
READ = (  # attributes that decide on a file or how it is read, besides those of `kinds` and `headers`
    "SOPClassUID SOPInstanceUID SeriesInstanceUID Modality PhotometricInterpretation PixelData ImagePositionPatient "
    "ImageOrientationPatient PixelSpacing RescaleSlope RescaleIntercept FloatPixelData DoubleFloatPixelData StudyDate "
    "FrameOfReferenceUID SeriesNumber Rows Columns SliceThickness SharedFunctionalGroupsSequence "
    "PerFrameFunctionalGroupsSequence SpacingBetweenSlices PixelRepresentation PixelPaddingValue "
    "PixelPaddingRangeLimit ModalityLUTSequence RealWorldValueMappingSequence ImagesInAcquisition ContrastBolusAgent "
    "ContrastBolusIngredient ContrastBolusAgentSequence ContrastBolusVolume ContrastBolusTotalDose"
).split()
READ += ACQUIRED
PHILIPS_COUNT = (0x2001, 0x1018)  # Number of Slices MR
