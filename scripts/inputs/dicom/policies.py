"""Which images are no slices to rebuild, by their headers: one table of reasons and tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from pydicom import Dataset, uid
from pydicom.pixels import get_decoder

from ..bids import PERFUSION
from .headers import numbers, value

MR_IMAGES = (uid.MRImageStorage, uid.EnhancedMRImageStorage, uid.LegacyConvertedEnhancedMRImageStorage)
GE_CREATOR, GE_COMPONENT = (0x0043, 0x0010), (0x0043, 0x102F)  # 0 magnitude, 1 phase, 2 real, 3 imaginary
MEASURES = {  # what maps show, as words of ImageType
    *"ADC EADC FA RA MD TENSOR VELOCITY V".split(),
    *"CBF CBV MTT TTP TMAX RCBF RCBV RELCBF RELCBV RELMTT".split(),
}
CONTRASTS = {"T1", "T2", "T2STAR", "R1", "R2", "R2STAR", "PROTONDENSITY", "RHO"}  # maps too, but only of derived images
ELSEWHERE = set(  # body parts (PS3.16, annex L) that are no head; those that end in SPINE are none either
    "ABDOMEN ANKLE AORTA ARM AXILLA BACK BLADDER BREAST CALF CERVIX CHEST CLAVICLE COCCYX COLON ELBOW EXTREMITY FEMUR "
    "FETUS FINGER FOOT FOREARM GALLBLADDER HAND HEART HIP HUMERUS KIDNEY KNEE LEG LIVER LUNG NECK PANCREAS PELVIS "
    "PROSTATE RECTUM RIB SACRUM SCROTUM SHOULDER SPLEEN STERNUM STOMACH TESTIS THIGH THORAX THUMB TOE UTERUS WRIST"
    "".split()
)


def _kind(header: Dataset) -> uid.UID:
    return uid.UID(value(header, "SOPClassUID", ""))


def _words(header: Dataset) -> list[str]:
    """Words of the header on the kind of image, in capitals, without spaces and underscores."""
    keywords = ("ImageType", "ComplexImageComponent", "VolumeBasedCalculationTechnique")
    said = [word for keyword in keywords for word in np.atleast_1d(value(header, keyword, []))]
    return [re.sub(r"[\W_]", "", str(word).upper()) for word in said]


def _says(words: str) -> Callable[[Dataset], Any]:
    """A test for any of some words."""
    return lambda header: set(words.split()) & set(_words(header))


def _ge_component(header: Dataset) -> Any:
    return value(header, GE_COMPONENT) in (1, 2, 3) and value(header, GE_CREATOR) == "GEMS_PARM_01"


def _map(header: Dataset) -> str:
    kind, *further = _words(header) or [""]
    shown = [word for word in further if word in MEASURES or word.endswith("MAP")]
    shown += [word for word in further if kind == "DERIVED" and word in CONTRASTS]
    return ", ".join(shown)


def _perfusion(header: Dataset) -> Any:
    said = [str(value(header, keyword, "")) for keyword in ("SeriesDescription", "ProtocolName")]
    return value(header, "ArterialSpinLabelingContrast") or "ASL" in _words(header) or any(map(PERFUSION.search, said))


def _elsewhere(header: Dataset) -> str | None:
    part = str(value(header, "BodyPartExamined", "")).upper()
    words = re.findall("[A-Z]+", part)
    elsewhere = any(word in ELSEWHERE or word.endswith("SPINE") for word in words)
    return part if elsewhere and not re.search("HEAD|BRAIN", part) else None


def _orientation(header: Dataset) -> np.ndarray:
    return numbers(header, "ImageOrientationPatient", 6).reshape(2, 3)


def _no_geometry(header: Dataset) -> Any:
    asked = {"ImagePositionPatient": 3, "ImageOrientationPatient": 6, "PixelSpacing": 2}
    return any(np.isnan(numbers(header, keyword, count)).any() for keyword, count in asked.items())


def _broken_geometry(header: Dataset) -> Any:
    cosines = _orientation(header) @ _orientation(header).T
    return abs(cosines - np.eye(2)).max() > 0.01 or numbers(header, "PixelSpacing", 2).min() <= 0


def _broken_intensities(header: Dataset) -> Any:
    slope, intercept = (numbers(header, f"Rescale{name}", 1)[0] for name in ("Slope", "Intercept"))
    return ("RescaleSlope" in header and not abs(slope) > 0) or ("RescaleIntercept" in header and np.isnan(intercept))


def _needs_decoder(header: Dataset) -> str | None:
    syntax = header.file_meta.TransferSyntaxUID
    try:
        return None if not syntax.is_compressed or get_decoder(syntax).is_available else syntax.name
    except NotImplementedError:
        return syntax.name


# Each policy is a reason to skip an image and a test for it. The first test that finds something decides; what it found
# stands for {} in the reason.
POLICIES: tuple[tuple[str, Callable[[Dataset], Any]], ...] = (
    (
        "secondary captures, which are screenshots or scanned pages",
        lambda header: "Secondary Capture" in _kind(header).name,
    ),
    (
        "not MR: the modality is {}",
        lambda header: (found := value(header, "Modality", "missing")) != "MR" and found,
    ),
    (
        "colour images",
        lambda header: (
            _kind(header) == uid.EnhancedMRColorImageStorage
            or value(header, "PhotometricInterpretation", "MONOCHROME2") not in ("MONOCHROME1", "MONOCHROME2")
        ),
    ),
    (
        "inverted images (MONOCHROME1), whose smallest intensity is the brightest: export them as MONOCHROME2",
        lambda header: value(header, "PhotometricInterpretation") == "MONOCHROME1",
    ),
    (
        "no MR images but {}",
        lambda header: _kind(header) not in MR_IMAGES and (_kind(header).name or "objects without SOPClassUID"),
    ),
    ("a localizer", _says("LOCALIZER")),
    ("secondary images: reformats, maps, screenshots or results of earlier runs", _says("SECONDARY")),
    ("projections, not slices", _says("PROJECTION PROJECTIONIMAGE MIP MAXIP MINIP MNIP MAXIMUM MINIMUM")),
    ("mosaics, which hold many slices in one image", _says("MOSAIC")),
    ("phase images, not magnitude", _says("P PHASE PHASEMAP")),
    ("real or imaginary images, not magnitude", _says("R REAL I IMAGINARY")),
    ("phase, real or imaginary images, not magnitude", _ge_component),
    ("parametric maps, not anatomy: {}", _map),
    ("perfusion images, not anatomy", _perfusion),
    ("not a head: BodyPartExamined is {}", _elsewhere),
    (
        "SeriesInstanceUID or SOPInstanceUID is missing or broken",
        lambda header: any(not isinstance(value(header, f"{one}InstanceUID"), str) for one in ("Series", "SOP")),
    ),
    ("no pixel data", lambda header: "PixelData" not in header),
    ("missing geometry: ImagePositionPatient, ImageOrientationPatient or PixelSpacing", _no_geometry),
    (
        "broken geometry: ImageOrientationPatient is no pair of directions or PixelSpacing is not positive",
        _broken_geometry,
    ),
    ("broken intensities: RescaleSlope or RescaleIntercept is no number, or the slope is 0", _broken_intensities),
    ("compressed as {}, which needs a decoder: pip install python-gdcm, or decompress the files", _needs_decoder),
)
READ: list[str | tuple[int, int]] = [  # attributes that the tests above read
    GE_CREATOR,
    GE_COMPONENT,
    *"SOPClassUID SOPInstanceUID Modality ImageType ComplexImageComponent VolumeBasedCalculationTechnique "
    "BodyPartExamined SeriesInstanceUID PhotometricInterpretation PixelData ImagePositionPatient "
    "ImageOrientationPatient PixelSpacing RescaleSlope RescaleIntercept SeriesDescription ProtocolName "
    "ArterialSpinLabelingContrast".split(),
]


def unfit(header: Dataset) -> str | None:
    """Why an image cannot be part of a stack of MR slices of a head; None if it can.

    Args:
        header: classic, with its `file_meta`.
    """
    for why, test in POLICIES:
        if found := test(header):
            return why.format(found)
    return None
