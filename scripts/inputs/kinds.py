"""Kinds of images by what headers, sidecars and names say. Standards settle, names mark doubt."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from .headers import Policies, first_reason, value
from .weighting import WEIGHTINGS, of_protocol, split, weighting

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
    "ABDOMEN ANKLE AORTA ARM AXILLA BACK BLADDER BREAST CALF CERVIX CHEST CLAVICLE COCCYX COLON ELBOW EXTREMITY FEMUR "
    "FETUS FINGER FOOT FOREARM GALLBLADDER HAND HEART HIP HUMERUS KIDNEY KNEE LEG LIVER LUNG NECK PANCREAS PELVIS "
    "PROSTATE RECTUM RIB SACRUM SCROTUM SHOULDER SPLEEN STERNUM STOMACH TESTIS THIGH THORAX THUMB TOE UTERUS WRIST"
    "".split()
)
HEAD = r"(?<![a-z])(brain|head|skull|cerebr|schaedel|schädel|kopf|cerveau|encephale)"
UNITS = ("rad", "hz", "s", "ms", "1/s", "mm^2/s", "mm2/s", "ppm", "t")  # of maps; a head has none
WEIGHTED = set("T1w T2w PDw T2starw FLAIR inplaneT1 inplaneT2 PDT2 PD T2star FLASH angio UNIT1".split())
NOT_MAGNITUDE = {"part-phase", "part-real", "part-imag"}
DOUBTED = (  # whole words of names, in small letters, that are seldom of a scan
    r"(de)?facemask|mask|labels?|lesions?|wmhs?|[ad]?seg(mentation)?|synthseg|(wm)?parc(ellation)?|aparc\S*|atlas|\w*map\d*|"
    r"prob(ability|abilities|seg)?|posteriors|pve(seg)?|ples|uncertainty|[gw]m|csf|b[01]|pha(se(diff)?)?|magnitude|ph|"
    r"real|imag(inary)?|m(in|ax|n)?ip|inv[12]?|subtract\w*|subtr|sub|f|epi|bold|func|nodif|sbref|mean|"
    r"std|t?snr|[zt]?stat|[zt]score|con|spm[ft]|beta|(var)?cope|qsm|chi|swp|fa|md|rd|ad|ra|[ed]?adc|dwi|dti|dki|"
    r"diff(usion)?|hardi|trace[wd]?|tensor|mtr|mtsat|mwf|r[12](star)?|tmax|ttp|mtt|r?cb[fv]|perfusion|([23]d)?(c|p|pc|v)?asl|"
    r"m0(scan)?|cta?|cbct|pet|suv|fdg|loc(ali[sz]er)?|scout|survey|plan(scan)?|3plane"
)
OF_SCANS = "pre|post|after|before|nach|vor|no|non|without|ohne|sans|sin|senza|with|mit|vs"  # before a doubted word
SPM = r"([mswr]*c|[mswr]+p)[1-6](?=[a-z][a-z\d])"  # begins the names of SPM's tissue maps, in letters of either size
STATISTIC, LABELS = (*range(2, 25),), (*range(1001, 1012),)  # intent codes of NIfTI
INTENT = "its header says by intent_code {} that it holds {}"
SECONDS, FEW_SLICES = 25.0, 20  # longest repetition time in ms, and most slices, of a localizer
LOCALIZER = "a localizer: {} slices at a repetition time of {:.3g} ms take seconds"


def of_intent(code: int) -> str | None:
    """Why a NIfTI file is no scan, by the intent code of its header."""
    if code not in STATISTIC and code not in LABELS:
        return None
    return INTENT.format(code, "a statistic" if code in STATISTIC else "labels, vectors or estimates")


def localizer(slices: int, repetition_time: float) -> str | None:
    """Why a stack is a localizer, by its protocol; the repetition time in ms."""
    seconds = 0 < repetition_time <= SECONDS and slices <= FEW_SLICES
    return LOCALIZER.format(slices, repetition_time) if seconds else None


def doubt_of(name: str) -> str:
    """The doubt that a name marks, of a file without its ending or of a series; empty where it marks none.

    Where words name a contrast, the last word behind them counts, protocol and numbers aside; else all do. The suffixes
    of BIDS are contrasts. A number of two digits and more behind a word is of a person or a series.

    >>> names = ("posterior_fossa_T2", "T2_mask_applied", "GM_1965_T2_ax", "T1_after_perfusion", "sub-01_FLASH")
    >>> [doubt_of(name) for name in names], doubt_of("brain_mask"), doubt_of("T2_pve_1")
    (['', '', '', '', ''], "its name says 'mask'", "its name says 'pve'")
    """
    if name.split("_")[-1] in WEIGHTED:
        return ""
    if found := re.match(SPM, name, re.IGNORECASE):
        return f"its name begins with '{found[0]}', as those of tissue maps do"
    words, contrast = ["", *split(name), ""], re.compile("|".join(WEIGHTINGS.values()))
    named = max((k for k, word in enumerate(words) if of_protocol(word) and contrast.search(word)), default=0)
    behind = [k for k in range(named + 1, len(words) - 1) if not words[k].isdecimal()]
    if named:
        behind = [k for k in behind if not of_protocol(words[k])][-1:]
    for k in behind:
        found = re.fullmatch(rf"({DOUBTED})(\d*)", words[k])
        if found and not re.fullmatch(OF_SCANS, words[k - 1]):
            number = found[found.re.groups] or (words[k + 1] if words[k + 1].isdecimal() else "")
            if not (weighting(name) and len(number) > 1) and not (found[1] == "sub" and words[k + 1]):
                return f"its name says '{found[1]}'"
    return ""


def _words(header: Any) -> list[str]:
    keywords = ("ImageType", "ComplexImageComponent", "VolumeBasedCalculationTechnique")
    said = [word for keyword in keywords for word in np.atleast_1d(value(header, keyword, []))]
    return [re.sub(r"[\W_]", "", str(word).upper()) for word in said]


def _says(words: str) -> Callable[[Any], Any]:
    return lambda header: set(words.split()) & set(_words(header))


def _map(header: Any) -> str:
    kind, *further = _words(header) or [""]
    shown = [word for word in further if word in MEASURES or word.endswith("MAP")]
    shown += [word for word in further if kind == "DERIVED" and word in CONTRASTS]
    return ", ".join(shown)


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
    names = (str(value(header, keyword, "")).lower() for keyword in ("SeriesDescription", "ProtocolName"))
    if any(re.search(HEAD, name) for name in names):  # technicians choose body parts from a list
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
# A reason to skip an image, since it shows something else than slices of a head -> the test for it. The first test that
# finds something decides; its finding stands for {} in the reason.
CONTENTS: Policies = {
    **{why: _says(words) for why, words in SAYS.items()},
    "phase, real or imaginary images, not magnitude": lambda image: (
        value(image, GE_COMPONENT) in (1, 2, 3) and value(image, GE_CREATOR) == "GEMS_PARM_01"
    ),
    "parametric maps, not anatomy: {}": _map,
    "a map in units of {}, not anatomy": _units,
    "perfusion images, not anatomy": lambda image: (
        value(image, "ArterialSpinLabelingContrast")
        or "ASL" in _words(image)
        or value(image, "AcquisitionContrast") == "PERFUSION"
    ),
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
