"""Kinds of images by what headers and sidecars say in defined terms, which settle it. A name is only remarked on."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from .headers import ELSEWHERE_CODES, ENHANCED, Policies, first_reason, milliseconds, value
from .names import words

OVERRIDE = " (--include {} takes it nevertheless)"  # of a scan that is skipped for its kind
MARK = "it may be no scan of a head: {}"  # of a doubtful one
DIFFUSION_SERIES = "a diffusion series"
GE_CREATOR, GE_COMPONENT = (0x0043, 0x0010), (0x0043, 0x102F)  # 0 magnitude, 1 phase, 2 real, 3 imaginary
B_VALUES = {  # tag of a vendor's b-value -> tag of the element that names the vendor's block, and its name
    (0x0019, 0x100C): ((0x0019, 0x0010), "SIEMENS MR HEADER"),
    (0x0043, 0x1039): (GE_CREATOR, "GEMS_PARM_01"),
    (0x2001, 0x1003): ((0x2001, 0x0010), "Philips Imaging DD 001"),
}
OFFSET = 10**9  # that GE adds to a b-value
MEASURES = {  # quantities of maps, as words of ImageType
    *"ADC EADC FA RA MD TENSOR VELOCITY V".split(),
    *"CBF CBV MTT TTP TMAX RCBF RCBV RELCBF RELCBV RELMTT".split(),
}
CONTRASTS = {"T1", "T2", "T2STAR", "R1", "R2", "R2STAR", "PROTONDENSITY", "RHO"}  # maps too, but only of derived images
ELSEWHERE = set(  # body parts (PS3.16, annex L) that are no head; those that end in SPINE are none either
    "ABDOMEN ABDOMENPELVIS ADRENAL ANKLE ANUS AORTA ARM AXILLA BACK BLADDER BREAST BRONCHUS BUTTOCK CALCANEUS CALF "
    "CAROTID CERVIX CHEEK CHEST CHESTABDOMEN CHESTABDPELVIS CLAVICLE COCCYX COLON CORNEA CORONARYARTERY DUODENUM ELBOW "
    "ESOPHAGUS EXTREMITY EYE EYELID FEMUR FETUS FIBULA FINGER FOOT FOREARM GALLBLADDER HAND HEART HIP HUMERUS ILEUM "
    "ILIUM JAW JEJUNUM JOINT KIDNEY KNEE LARYNX LEG LIVER LUNG MANDIBLE MAXILLA MEDIASTINUM MOUTH NECK NECKCHEST "
    "NECKCHESTABDOMEN NECKCHESTABDPELV NOSE ORBIT ORBITS OVARY PANCREAS PAROTID PATELLA PELVIS PELVISLOWEXTREMT PENIS "
    "PHARYNX PROSTATE RADIUS RADIUSULNA RECTUM RIB SACRUM SCAPULA SCLERA SCROTUM SHOULDER SIJOINT SPLEEN STERNUM "
    "STOMACH SUBMANDIBULAR TESTIS THIGH THORAX THUMB THYMUS THYROID TIBIA TIBIAFIBULA TMJ TOE TONGUE TRACHEA ULNA "
    "URETER URETHRA UTERUS VAGINA VULVA WHOLEBODY WRIST ZYGOMA"
    "".split()
)
HUMAN = {"337915000", "L-85B00"}  # species
UNITS = ("rad", "hz", "s", "ms", "1/s", "mm^2/s", "mm2/s", "ppm", "t")  # of maps; a head has none
WEIGHTED = set("T1w T2w PDw T2starw FLAIR inplaneT1 inplaneT2 PDT2 PD T2star FLASH angio UNIT1".split())
NOT_MAGNITUDE = {"part-phase", "part-real", "part-imag"}
REMARKS = {  # on a word of a name
    "its name says {}; the networks know heads alone": {word for word in ELSEWHERE if len(word) > 2} | {"SPINE"},
    "its name says {}, as those of maps do": {
        *(word for word in MEASURES if len(word) > 2),
        *"MASK DSEG SEG PROBSEG MAP T1MAP R1MAP T2MAP R2MAP T2STARMAP R2STARMAP MTRMAP MTR MTSAT QSM CHIMAP".split(),
    },
}
STATISTIC, LABELS = (*range(2, 25),), (*range(1001, 1012),)  # intent codes of NIfTI
INTENT = "its header says by intent_code {} that it holds {}"
SECONDS, FEW_SLICES = 25.0, 20  # longest repetition time in ms, and most slices, of a localizer
SLABS = {"MRAcquisitionType": "3D", "AngioFlag": "Y", "AcquisitionContrast": "TOF"}  # angiography repeats as quickly
LOCALIZER = "a localizer: {} slices at a repetition time of {:.3g} ms take seconds"


def of_intent(code: int) -> str | None:
    """Why a NIfTI file is no scan, by the intent code of its header."""
    what = "a statistic" if code in STATISTIC else "labels, vectors or estimates" if code in LABELS else ""
    return INTENT.format(code, what) if what else None


def localizer(slices: int, header: Any) -> str | None:
    """Why a stack of so many slices is a localizer, by its header or sidecar; None if it is none."""
    time, slab = milliseconds(header, "RepetitionTime"), any(value(header, key) == term for key, term in SLABS.items())
    return LOCALIZER.format(slices, time) if 0 < time <= SECONDS and slices <= FEW_SLICES and not slab else None


def remark_on(*names: str) -> str:
    """The remark on names of which a word is a body part's or a map's; empty for none. It has no consequence.

    >>> remark_on("SAG T2 C-SPINE"), remark_on("T2_mask"), remark_on("MD_FLAIR_ra")
    ('its name says SPINE; the networks know heads alone', 'its name says MASK, as those of maps do', '')
    """
    said = [word.upper() for name in names for word in words(name)]
    return next((why.format(word) for word in said for why, table in REMARKS.items() if word in table), "")


def _terms(header: Any, *keywords: str) -> list[str]:
    said = [term for keyword in keywords for term in np.atleast_1d(value(header, keyword, []))]
    return [re.sub(r"[\W_]", "", str(term).upper()) for term in said]


def _says(terms: str) -> Callable[[Any], Any]:
    return lambda header: set(terms.split()) & set(_terms(header, *TERMS))


def _map(header: Any) -> str:
    kind, *further = _terms(header, "ImageType") or [""]
    shown = [word for word in further if word in MEASURES or word.endswith("MAP")]
    named = kind == "DERIVED" and str(value(header, "SOPClassUID", "")) not in ENHANCED  # there a word is the contrast
    shown += [word for word in further if named and word in CONTRASTS]
    return ", ".join(shown)


def _diffusion(header: Any) -> Any:
    stated = [value(header, "DiffusionBValue")]
    stated += [value(header, tag) for tag, (block, name) in B_VALUES.items() if value(header, block) == name]
    for b_value in stated:
        with suppress(TypeError, ValueError, IndexError):
            if float(np.atleast_1d(b_value)[0]) % OFFSET > 0:
                return True
    sequence = re.match(r"\W*ep_b\d", str(value(header, "SequenceName", "")))
    return sequence or _says("DIFFUSION TRACE TRACEW")(header)


def _echo_planar(header: Any) -> Any:
    """Slices that are read out at once, by which T2*-weighted series in 3-D do not go."""
    sequence = {str(one) for one in np.atleast_1d(value(header, "ScanningSequence", []))}
    planar = "EP" in sequence or value(header, "EchoPlanarPulseSequence") == "YES"
    return planar and value(header, "MRAcquisitionType") != "3D"


def _elsewhere(header: Any) -> str | None:
    part = str(value(header, "BodyPartExamined", "")).upper()
    parts = re.findall("[A-Z]+", part)
    elsewhere = any(word in ELSEWHERE or word.endswith("SPINE") for word in parts)
    return part if elsewhere and not re.search("HEAD|BRAIN", part) else None


def _region(header: Any) -> str | None:
    """The meaning of the first code of a region, where none of them is of a head."""
    found = value(header, "AnatomicRegionSequence", [])
    said = [f"{value(one, 'CodingSchemeDesignator', '')} {value(one, 'CodeValue', '')}" for one in found]
    return str(value(found[0], "CodeMeaning", said[0])) if said and ELSEWHERE_CODES.issuperset(said) else None


TERMS = (  # attributes of defined terms; blanks and signs in them count for nothing
    "ImageType ComplexImageComponent VolumeBasedCalculationTechnique AcquisitionContrast ArterialSpinLabelingContrast "
    "AnatomicalOrientationType"
).split()
SAYS = {  # their terms
    "a localizer": "LOCALIZER",
    "secondary images: reformats, maps, screenshots or results of earlier runs": "SECONDARY",
    "projections, not slices": "PROJECTION PROJECTIONIMAGE MIP MAXIP MINIP MNIP MAXIMUM MINIMUM",
    "mosaics, which hold many slices in one image": "MOSAIC",
    "phase images, not magnitude": "P PHASE PHASEMAP SWP",
    "real or imaginary images, not magnitude": "R REAL I IMAGINARY",
    "a subtraction of two scans": "SUB SUBTRACT SUBTRACTED SUBTRACTION",
    "the fat image of a Dixon series": "FAT F",
    "an inversion of MP2RAGE": "INV1 INV2",
    "perfusion images, not anatomy": "ASL PERFUSION CONTINUOUS PSEUDOCONTINUOUS PULSED",
    "an animal, by AnatomicalOrientationType": "QUADRUPED",
}
# A reason to skip an image, since it shows something else than slices of a head -> the test for it. The first test that
# finds something decides; its finding stands for {} in the reason.
CONTENTS: Policies = {
    **{why: _says(words) for why, words in SAYS.items()},
    "phase, real or imaginary images, not magnitude": lambda image: (
        value(image, GE_COMPONENT) in (1, 2, 3) and value(image, GE_CREATOR) == "GEMS_PARM_01"
    ),
    "parametric maps, not anatomy: {}": _map,
    "a map in units of {}, not anatomy": lambda image: (  # of sidecars; units of PET are others
        (said := str(value(image, "Units", ""))).lower() in UNITS and said
    ),
    DIFFUSION_SERIES: _diffusion,
    "echo-planar images, as of functional or diffusion series": _echo_planar,
    "not a head: BodyPartExamined is {}": _elsewhere,
    "not a head: AnatomicRegionSequence says {}": _region,
    "an animal, by PatientSpeciesCodeSequence": lambda image: any(
        value(one, "CodeValue", "337915000") not in HUMAN for one in value(image, "PatientSpeciesCodeSequence", [])
    ),
    "of a phantom or a quality control, by QualityControlImage": lambda image: (
        value(image, "QualityControlImage") == "YES"
    ),
}
DESCRIBED = (  # attributes that the tests above read, and that sidecars have under the same names
    "Modality BodyPartExamined SeriesDescription ProtocolName DiffusionBValue EchoPlanarPulseSequence "
    "MRAcquisitionType ScanningSequence SequenceName Units QualityControlImage AngioFlag"
).split() + TERMS
ALSO = {"BodyPartExamined": "BodyPart", "SequenceName": "PulseSequenceName", "ImageType": "ImageTypeText"}
READ: list[str | tuple[int, int]] = [
    *(GE_CREATOR, GE_COMPONENT, *(tag for pair in B_VALUES.items() for tag in (pair[0], pair[1][0]))),
    *("AnatomicRegionSequence", "PatientSpeciesCodeSequence"),
    *DESCRIBED,
]


def of_sidecar(fields: Mapping[str, Any]) -> str | None:
    """Why a volume is no MR scan of a head, by the fields of its JSON sidecar; None if they do not say so."""
    if any(content and re.match("(NumberOf)?Diffusion", name) for name, content in fields.items()):
        return DIFFUSION_SERIES
    said = {}
    for name in DESCRIBED:
        found = fields.get(name) or fields.get(ALSO.get(name, name))
        if isinstance(found, str) and name in ("ImageType", "ScanningSequence"):  # as converters join them
            found = re.split(r"[\\_/]", found) if name == "ScanningSequence" else found.split("\\")
        said[name] = found
    modality = said["Modality"]
    if modality and modality != "MR":
        return f"not MR: the modality is {modality}"
    return first_reason(said, CONTENTS)
