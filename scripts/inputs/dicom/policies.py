"""Which images are no slices to rebuild, by their headers: one table of reasons and tests.

The same tests look at what a JSON sidecar says of a NIfTI volume.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from pydicom import Dataset, uid
from pydicom.pixels import get_decoder

from ..bids import DIFFUSION, PERFUSION, PROJECTION, REFERENCE
from .headers import numbers, value

MR_IMAGES = (uid.MRImageStorage, uid.EnhancedMRImageStorage, uid.LegacyConvertedEnhancedMRImageStorage)
GE_CREATOR, GE_COMPONENT = (0x0043, 0x0010), (0x0043, 0x102F)  # 0 magnitude, 1 phase, 2 real, 3 imaginary
B_VALUES = {  # tag of a vendor's b-value -> tag of the element that names the vendor's block, and its name
    (0x0019, 0x100C): ((0x0019, 0x0010), "SIEMENS MR HEADER"),
    (0x0043, 0x1039): (GE_CREATOR, "GEMS_PARM_01"),
    (0x2001, 0x1003): ((0x2001, 0x0010), "Philips Imaging DD 001"),
}
OVERRIDE = " (--include {} takes it nevertheless)"  # of a scan that is skipped for what it says that it shows
DIFFUSION_SERIES = "a diffusion series"
OFFSET = 10**9  # that GE adds to a b-value
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
HEAD = re.compile(r"(?<![a-z])(brain|head|skull|cerebr|schaedel|schädel|kopf|cerveau|encephale)", re.IGNORECASE)


def _kind(header: Dataset) -> uid.UID:
    return uid.UID(value(header, "SOPClassUID", ""))


def _words(header: Dataset) -> list[str]:
    keywords = ("ImageType", "ComplexImageComponent", "VolumeBasedCalculationTechnique")
    said = [word for keyword in keywords for word in np.atleast_1d(value(header, keyword, []))]
    return [re.sub(r"[\W_]", "", str(word).upper()) for word in said]


def _says(words: str) -> Callable[[Dataset], Any]:
    return lambda header: set(words.split()) & set(_words(header))


def _ge_component(header: Dataset) -> Any:
    return value(header, GE_COMPONENT) in (1, 2, 3) and value(header, GE_CREATOR) == "GEMS_PARM_01"


def _map(header: Dataset) -> str:
    kind, *further = _words(header) or [""]
    shown = [word for word in further if word in MEASURES or word.endswith("MAP")]
    shown += [word for word in further if kind == "DERIVED" and word in CONTRASTS]
    return ", ".join(shown)


def _named(header: Dataset, kind: re.Pattern) -> bool:
    """Whether the names that people gave a series speak of a kind of image."""
    said = [str(value(header, keyword, "")) for keyword in ("SeriesDescription", "ProtocolName")]
    return any(map(kind.search, said))


def _perfusion(header: Dataset) -> Any:
    contrast = value(header, "AcquisitionContrast") == "PERFUSION"
    asl = value(header, "ArterialSpinLabelingContrast") or "ASL" in _words(header)
    return asl or contrast or _named(header, PERFUSION)


def _b_value(header: Dataset) -> float:
    """In s/mm2, 0 where none is stated."""
    stated = [value(header, "DiffusionBValue")]
    stated += [value(header, tag) for tag, (block, name) in B_VALUES.items() if value(header, block) == name]
    found = [0.0]
    for one in stated:
        with suppress(TypeError, ValueError, IndexError):
            found.append(float(np.atleast_1d(one)[0]) % OFFSET)
    return max(found)


def _diffusion(header: Dataset) -> Any:
    sequence = re.match(r"\W*ep_b\d", str(value(header, "SequenceName", "")))
    said = value(header, "AcquisitionContrast") == "DIFFUSION" or _named(header, DIFFUSION)
    return _b_value(header) > 0 or said or sequence or _says("DIFFUSION TRACE TRACEW")(header)


def _echo_planar(header: Dataset) -> Any:
    """Slices that are read out at once, by which T2*-weighted series in 3-D do not go."""
    sequence = {str(one) for one in np.atleast_1d(value(header, "ScanningSequence", []))}
    planar = "EP" in sequence or value(header, "EchoPlanarPulseSequence") == "YES"
    return planar and value(header, "MRAcquisitionType") != "3D"


def _elsewhere(header: Dataset) -> str | None:
    part = str(value(header, "BodyPartExamined", "")).upper()
    if _named(header, HEAD):  # technicians choose body parts from a list
        return None
    words = re.findall("[A-Z]+", part)
    elsewhere = any(word in ELSEWHERE or word.endswith("SPINE") for word in words)
    return part if elsewhere and not re.search("HEAD|BRAIN", part) else None


def _units(header: Dataset) -> str | None:
    """The unit that a sidecar states; a head has none. Dimensions of PET are another attribute of this name."""
    said = str(value(header, "Units", ""))
    return said if said.lower() in ("rad", "hz", "s", "ms", "1/s", "mm^2/s", "mm2/s", "ppm", "t") else None


def _no_geometry(header: Dataset) -> Any:
    asked = {"ImagePositionPatient": 3, "ImageOrientationPatient": 6, "PixelSpacing": 2}
    return any(np.isnan(numbers(header, keyword, count)).any() for keyword, count in asked.items())


def _broken_plane(header: Dataset) -> Any:
    directions = numbers(header, "ImageOrientationPatient", 6).reshape(2, 3)
    cosines = directions @ directions.T
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


# A reason to skip an image -> the test for it. The first test that finds something decides; what it found stands for {}
# in the reason.
Policies = dict[str, Callable[[Dataset], Any]]
OBJECTS: Policies = {
    "secondary captures, which are screenshots or scanned pages": lambda image: (
        "Secondary Capture" in _kind(image).name
    ),
    "not MR: the modality is {}": lambda image: (found := value(image, "Modality", "missing")) != "MR" and found,
    "colour images": lambda image: (
        _kind(image) == uid.EnhancedMRColorImageStorage
        or value(image, "PhotometricInterpretation", "MONOCHROME2") not in ("MONOCHROME1", "MONOCHROME2")
    ),
    "inverted images (MONOCHROME1), whose smallest intensity is the brightest: export them as MONOCHROME2": (
        lambda image: value(image, "PhotometricInterpretation") == "MONOCHROME1"
    ),
    "no MR images but {}": lambda image: (
        _kind(image) not in MR_IMAGES and (_kind(image).name or "objects without SOPClassUID")
    ),
}
PROJECTIONS = "projections, not slices"
SAYS = {  # words of ImageType and of the like
    "a localizer": "LOCALIZER",
    "secondary images: reformats, maps, screenshots or results of earlier runs": "SECONDARY",
    PROJECTIONS: "PROJECTION PROJECTIONIMAGE MIP MAXIP MINIP MNIP MAXIMUM MINIMUM",
    "mosaics, which hold many slices in one image": "MOSAIC",
    "phase images, not magnitude": "P PHASE PHASEMAP SWP",
    "real or imaginary images, not magnitude": "R REAL I IMAGINARY",
}
CONTENTS: Policies = {  # which --include may overrule
    **{why: _says(words) for why, words in SAYS.items()},
    PROJECTIONS: lambda image: _says(SAYS[PROJECTIONS])(image) or _named(image, PROJECTION),
    "phase, real or imaginary images, not magnitude": _ge_component,
    "parametric maps, not anatomy: {}": _map,
    "a map in units of {}, not anatomy": _units,
    "perfusion images, not anatomy": _perfusion,
    DIFFUSION_SERIES: _diffusion,
    "reference images of echo-planar series (SBRef)": lambda image: _named(image, REFERENCE),
    "echo-planar images, as of functional or diffusion series": _echo_planar,
    "not a head: BodyPartExamined is {}": _elsewhere,
}
FORMS: Policies = {
    "SeriesInstanceUID or SOPInstanceUID is missing or broken": lambda image: any(
        not isinstance(value(image, f"{one}InstanceUID"), str) for one in ("Series", "SOP")
    ),
    "no pixel data": lambda image: "PixelData" not in image,
    "missing geometry: ImagePositionPatient, ImageOrientationPatient or PixelSpacing": _no_geometry,
    "broken geometry: ImageOrientationPatient is no pair of directions or PixelSpacing is not positive": _broken_plane,
    "broken intensities: RescaleSlope or RescaleIntercept is no number, or the slope is 0": _broken_intensities,
    "compressed as {}, which needs a decoder: pip install python-gdcm, or decompress the files": _needs_decoder,
}
# as sidecars call some of them
ALSO = {"BodyPartExamined": "BodyPart", "SequenceName": "PulseSequenceName", "ImageType": "ImageTypeText"}
DESCRIBED = (  # attributes that sidecars have under the same names
    "Modality ImageType ComplexImageComponent VolumeBasedCalculationTechnique BodyPartExamined SeriesDescription "
    "ProtocolName ArterialSpinLabelingContrast AcquisitionContrast DiffusionBValue EchoPlanarPulseSequence "
    "MRAcquisitionType ScanningSequence SequenceName Units"
).split()
READ: list[str | tuple[int, int]] = [  # attributes that the tests above read
    GE_CREATOR,
    GE_COMPONENT,
    *(tag for pair in B_VALUES.items() for tag in (pair[0], pair[1][0])),
    *DESCRIBED,
    *"SOPClassUID SOPInstanceUID SeriesInstanceUID PhotometricInterpretation PixelData ImagePositionPatient "
    "ImageOrientationPatient PixelSpacing RescaleSlope RescaleIntercept".split(),
]


def _first(header: Dataset, policies: Policies) -> str | None:
    for why, test in policies.items():
        if found := test(header):
            return why.format(found)
    return None


def shows_no_head(header: Dataset) -> str | None:
    """Why an image shows something else than slices of a head; None if it does not say so."""
    return _first(header, CONTENTS)


def unfit(header: Dataset) -> str | None:
    """Why an image cannot be part of a stack of MR slices, whatever it shows; None if it can."""
    return _first(header, OBJECTS | FORMS)


def sidecar_shows_no_head(fields: Mapping[str, Any]) -> str | None:
    """Why a NIfTI volume is no MR scan of a head, by the fields of its JSON sidecar; None if they do not say so."""
    if any(value and re.match("(NumberOf)?Diffusion", name) for name, value in fields.items()):
        return DIFFUSION_SERIES
    header = Dataset()
    header.SOPClassUID, header.Modality = uid.MRImageStorage, "MR"
    for name in DESCRIBED:
        found = fields.get(name) or fields.get(ALSO.get(name, name))
        if isinstance(found, str) and name in ("ImageType", "ScanningSequence"):  # as converters join them
            found = re.split(r"[\\_/]", found) if name == "ScanningSequence" else found.split("\\")
        with suppress(TypeError, ValueError, AttributeError):
            if found:
                setattr(header, name, found)
    return _first(header, OBJECTS | CONTENTS)
