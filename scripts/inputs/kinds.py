"""Images that show something else than slices of a head: tables of reasons and tests, on voxels, headers and names.

Headers of DICOM, the sidecars of volumes and the names of both are looked at by the same words.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from ..files import stem
from .headers import Policies, dataset_of, first_reason, value

OVERRIDE = " (--include {} takes it nevertheless)"  # of a scan that is skipped for what it says that it shows
DIFFUSION_SERIES = "a diffusion series"
FEW_VALUES = 64  # whole numbers in a mask or a label map, at most; scans have more
EQUAL = 0.6  # of the neighbours in a map of many labels have the same label; in scans 0.1 have
LARGEST, SHOWN, SURE = 1.001, 0.02, 0.95  # probability, rounded; more than nothing; almost 1
CERTAIN = 0.2  # of the voxels of a map of probabilities are almost 1
SPARSE = 0.01  # of the voxels of a map of lesions are not 0
GE_CREATOR, GE_COMPONENT = (0x0043, 0x0010), (0x0043, 0x102F)  # 0 magnitude, 1 phase, 2 real, 3 imaginary
B_VALUES = {  # tag of a vendor's b-value -> tag of the element that names the vendor's block, and its name
    (0x0019, 0x100C): ((0x0019, 0x0010), "SIEMENS MR HEADER"),
    (0x0043, 0x1039): (GE_CREATOR, "GEMS_PARM_01"),
    (0x2001, 0x1003): ((0x2001, 0x0010), "Philips Imaging DD 001"),
}
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
HEAD = r"(?<![a-z])(brain|head|skull|cerebr|schaedel|schädel|kopf|cerveau|encephale)"
UNITS = ("rad", "hz", "s", "ms", "1/s", "mm^2/s", "mm2/s", "ppm", "t")  # of maps; a head has none
WEIGHTED = {"T1w", "T2w", "PDw", "T2starw", "FLAIR", "inplaneT1", "inplaneT2", "PDT2", "PD", "T2star", "FLASH", "angio"}
NOT_MAGNITUDE = {"part-phase", "part-real", "part-imag"}
SUFFIXES = (  # the last part of a file's name
    r"(deface)?mask|(.*\+)?[ad]?seg|probseg|labels?|.*map|phase(diff|[12])?|magnitude[12]?|epi|bold|cb[fv]|sbref|dwi|"
    r"m0scan|ph|real|imag(inary)?|e?adc|m(in|ax|n)?ip|mp2rage"
)
NAMES = {  # reason -> words of file names, series descriptions and protocols: whole ones, of small letters
    "perfusion images, not anatomy": r"([23]d[ _-]?)?(c|p|pc|v)?asl|(?<!post[ _-])perfusion",
    DIFFUSION_SERIES: r"dwi|dti|dki|diff|diffusion|hardi|trace[wd]?|tensor|e?adc",
    "reference images of echo-planar series (SBRef)": r"sbref",
    "projections, not slices": r"m(in|ax|n)?ip",
    "a subtraction of two scans": r"subtract\w*|subtr|(?<=[ _-])sub(?=$|[ _](?!\d))",
    "the fat image of a Dixon series": (r"fat[ _-]?(only|images?|fraction|percentage)|dixon.*[ _-](f|fat)(?=$)"),
    "an inversion of MP2RAGE": r"inv[ _-]?[12]",
    "a parametric map": r"[a-z\d*]*map",
    "a map of probabilities": (
        r"prob(ability)?(seg|map)?s?\d*|posteriors?\d*|pve(seg)?([ _]\d)?|ples|uncertainty|gm|wm|csf"
    ),
    "a bias field": r"bias([ _-]?field)?",
    "a label map": r"\w*aparc\w*|(wm)?parc(ellation)?|a?seg|synthseg|atlas",
}
BY_NAME = {why: re.compile(rf"(?<![a-z\d])({words})(?![a-z\d])") for why, words in NAMES.items()}
SPM = r"(m|s|w|r)*c[1-6](?=[a-z])"  # begins the names of SPM's tissue maps, in letters of either size
LABEL_MAP, PROBABILITIES = (
    "a label map: it holds whole numbers, most of whose neighbours are equal",
    "a map of probabilities: it holds 0 to 1",
)
FEW = "a mask or a label map: it holds {count} whole numbers"


def of_voxels(voxels: Any, name: str = "") -> str | None:
    """Why a volume is no scan, by its voxels; None for a scan, as its middle slice mostly says.

    Args:
        voxels: `(X, Y, Z)`, an array, or what reads it in parts.
        name: of the file, where one is there.
    """
    middle = np.asanyarray(voxels[:, :, voxels.shape[2] // 2])
    values = np.unique(middle)
    if np.array_equal(values, np.rint(values)):
        few = len(values) <= FEW_VALUES
        if few and (count := len(np.unique(voxels))) <= FEW_VALUES:
            return FEW.format(count=count)
        if few or _equal_neighbours(middle) > EQUAL:
            volume = np.asanyarray(voxels)
            if np.array_equal(volume, np.rint(volume)) and _equal_neighbours(volume) > EQUAL:
                return LABEL_MAP
    elif values[0] >= 0 and values[-1] <= LARGEST:
        volume = np.asanyarray(voxels)
        shown = volume[volume > SHOWN]
        certain = np.mean(shown > SURE) if len(shown) else 0
        of_probabilities = certain > CERTAIN or len(shown) < SPARSE * volume.size or re.match(SPM, name, re.IGNORECASE)
        if volume.min() >= 0 and volume.max() <= LARGEST and of_probabilities:
            return PROBABILITIES
    return None


def _equal_neighbours(labels: np.ndarray) -> float:
    """The share of neighbours with one value, where not both are 0."""
    equal = pairs = 0
    for axis in (axis for axis, count in enumerate(labels.shape) if count > 1):
        one, other = (labels.take(range(k, labels.shape[axis] - 1 + k), axis) for k in (0, 1))
        shown = (one != 0) | (other != 0)
        equal, pairs = equal + int((shown & (one == other)).sum()), pairs + int(shown.sum())
    return equal / max(pairs, 1)


def _words(header: Any) -> list[str]:
    keywords = ("ImageType", "ComplexImageComponent", "VolumeBasedCalculationTechnique")
    said = [word for keyword in keywords for word in np.atleast_1d(value(header, keyword, []))]
    return [re.sub(r"[\W_]", "", str(word).upper()) for word in said]


def _says(words: str) -> Callable[[Any], Any]:
    return lambda header: set(words.split()) & set(_words(header))


def _ge_component(header: Any) -> Any:
    return value(header, GE_COMPONENT) in (1, 2, 3) and value(header, GE_CREATOR) == "GEMS_PARM_01"


def _map(header: Any) -> str:
    kind, *further = _words(header) or [""]
    shown = [word for word in further if word in MEASURES or word.endswith("MAP")]
    shown += [word for word in further if kind == "DERIVED" and word in CONTRASTS]
    return ", ".join(shown)


def _named(header: Any, kind: re.Pattern) -> bool:
    """Whether the names that people gave a series speak of a kind of image."""
    said = [str(value(header, keyword, "")).lower() for keyword in ("SeriesDescription", "ProtocolName")]
    return any(map(kind.search, said))


def _perfusion(header: Any) -> Any:
    contrast = value(header, "AcquisitionContrast") == "PERFUSION"
    return value(header, "ArterialSpinLabelingContrast") or "ASL" in _words(header) or contrast


def _b_value(header: Any) -> float:
    """In s/mm2, 0 where none is stated."""
    stated = [value(header, "DiffusionBValue")]
    stated += [value(header, tag) for tag, (block, name) in B_VALUES.items() if value(header, block) == name]
    found = [0.0]
    for one in stated:
        with suppress(TypeError, ValueError, IndexError):
            found.append(float(np.atleast_1d(one)[0]) % OFFSET)
    return max(found)


def _diffusion(header: Any) -> Any:
    sequence = re.match(r"\W*ep_b\d", str(value(header, "SequenceName", "")))
    said = value(header, "AcquisitionContrast") == "DIFFUSION"
    return _b_value(header) > 0 or said or sequence or _says("DIFFUSION TRACE TRACEW")(header)


def _echo_planar(header: Any) -> Any:
    """Slices that are read out at once, by which T2*-weighted series in 3-D do not go."""
    sequence = {str(one) for one in np.atleast_1d(value(header, "ScanningSequence", []))}
    planar = "EP" in sequence or value(header, "EchoPlanarPulseSequence") == "YES"
    return planar and value(header, "MRAcquisitionType") != "3D"


def _elsewhere(header: Any) -> str | None:
    part = str(value(header, "BodyPartExamined", "")).upper()
    if _named(header, re.compile(HEAD)):  # technicians choose body parts from a list
        return None
    words = re.findall("[A-Z]+", part)
    elsewhere = any(word in ELSEWHERE or word.endswith("SPINE") for word in words)
    return part if elsewhere and not re.search("HEAD|BRAIN", part) else None


def _units(header: Any) -> str | None:
    """The unit that a sidecar states. Dimensions of PET are another attribute of this name."""
    said = str(value(header, "Units", ""))
    return said if said.lower() in UNITS else None


SAYS = {  # words of ImageType and of the like
    "a localizer": "LOCALIZER",
    "secondary images: reformats, maps, screenshots or results of earlier runs": "SECONDARY",
    "projections, not slices": "PROJECTION PROJECTIONIMAGE MIP MAXIP MINIP MNIP MAXIMUM MINIMUM",
    "mosaics, which hold many slices in one image": "MOSAIC",
    "phase images, not magnitude": "P PHASE PHASEMAP SWP",
    "real or imaginary images, not magnitude": "R REAL I IMAGINARY",
    "a subtraction of two scans": "SUB SUBTRACT SUBTRACTED SUBTRACTION",
    "the fat image of a Dixon series": "FAT F",
    "an inversion of MP2RAGE": "INV1 INV2",
}
# A reason to skip an image -> the test for it. The first test that finds something decides; what it found stands for {}
# in the reason.
CONTENTS: Policies = {
    **{why: _says(words) for why, words in SAYS.items()},
    "phase, real or imaginary images, not magnitude": _ge_component,
    "parametric maps, not anatomy: {}": _map,
    "a map in units of {}, not anatomy": _units,
    "perfusion images, not anatomy": _perfusion,
    DIFFUSION_SERIES: _diffusion,
    "echo-planar images, as of functional or diffusion series": _echo_planar,
    "not a head: BodyPartExamined is {}": _elsewhere,
}
DESCRIBED = (  # attributes that the tests above read, and that sidecars have under the same names
    "Modality ImageType ComplexImageComponent VolumeBasedCalculationTechnique BodyPartExamined SeriesDescription "
    "ProtocolName ArterialSpinLabelingContrast AcquisitionContrast DiffusionBValue EchoPlanarPulseSequence "
    "MRAcquisitionType ScanningSequence SequenceName Units"
).split()
ALSO = {"BodyPartExamined": "BodyPart", "SequenceName": "PulseSequenceName", "ImageType": "ImageTypeText"}
READ: list[str | tuple[int, int]] = [
    *(GE_CREATOR, GE_COMPONENT, *(tag for pair in B_VALUES.items() for tag in (pair[0], pair[1][0]))),
    *DESCRIBED,
]


def of_header(header: Any) -> str | None:
    """Why an image shows something else than slices of a head, by a DICOM header; None if it does not say so."""
    named = next((why for why, words in BY_NAME.items() if _named(header, words)), None)
    return first_reason(header, CONTENTS) or named


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
    return of_header(dataset_of(said))


def of_name(name: str) -> str | None:
    """Why a file shows no anatomy, by its name; None where the name does not say so.

    >>> [of_name(name) for name in ("sub-01_T2w.nii.gz", "head.mgz", "nasal.nii", "sub-01_desc-dwi_T2w.nii", "c1.nii")]
    [None, None, None, None, None]
    >>> [of_name(name) for name in ("sub-01_dseg.nii.gz", "brain_mask.nii", "8_swi_e1_ph.nii", "3DpCASL.nii")]
    ['a mask, a map or a phase image', 'a mask, a map or a phase image', 'a mask, a map or a phase image', 'perfusion \
images, not anatomy']
    """
    *entities, suffix = stem(name).split("_")
    if re.fullmatch(SUFFIXES, suffix, re.IGNORECASE) or NOT_MAGNITUDE & set(entities):
        return "a mask, a map or a phase image"
    if suffix in WEIGHTED:
        return None
    return next((why for why, words in BY_NAME.items() if words.search(stem(name).lower())), None)
