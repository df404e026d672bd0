"""The identity of a scan: whose head it shows, by which contrast, its sharpness along each axis, and so its role.

Contents come before headers, headers before names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ..errors import InputError
from ..files import stem
from ..stack.grid import slice_axis, voxel_spacing
from . import bids, dicom
from .dicom.headers import numbers, value
from .readers import ScanReader

PLANE = r"(ax|axi|axial|tra|trans|transverse|transversal|sag|sagittal|cor|coronal|obl|oblique)"
ORIENTATION = re.compile(  # words of names that say how the slices lie, or which of several runs it is
    rf"run-\w+|acq-{PLANE}(\d+(mm)?)?|{PLANE}", re.IGNORECASE
)
WEIGHTINGS = {  # the first that is found; a T1 FLAIR is a T1w scan
    "STIR": r"stir(?![a-z])",
    "DIR": r"(?<![a-z])dir(?![a-z])",
    "T1w": r"(?<![a-z\d])t1(?!\d|rho)|inplanet1",
    "T2*w": r"(?<![a-z\d])t2 ?(\*|star)",
    "FLAIR": r"flair|tirm|dark ?fluid|(?<![a-z\d])t2f(?![a-z])",
    "T2w": r"(?<![a-z\d])t2(?!\d)|inplanet2",
    "PDw": r"(?<![a-z])pd(?![a-su-z])|proton ?density",
}
SEQUENCES = {  # names of sequences that say it where no weighting is named
    "T1w": r"mp ?rage|mp2rage|(?<![a-z])(bravo|vibe|3?d?tfe|f?spgr)(?![a-z])",
    "T2*w": r"(?<![a-z])(swi|swan|ha?emo)(?![a-z])",
    "T2w": r"(?<![a-z])space(?![a-z])",
}
AGENTS = (
    r"gd|gad[a-z]*|km|kontrast(mittel)?|contrast|post(?! ?op)|ce|t1w?(gd|ce|c)|dotarem|magnevist|prohance|multihance|"
    r"omniscan|primovist|clariscan|vueway|elucirem"
)
AGENT = re.compile(rf"(?<![a-z])({AGENTS})(?![a-z])|(?<![a-z])c ?\+|\+ ?c(?![a-z])")
NO_AGENT = re.compile(
    r"(?<![a-z])(pre(?! ?op)|nativ|native|ohne (km|kontrast\w*)|no ?(gd|contrast)|ce none|(w/?o|without|non) ?contrast)"
    r"(?![a-z])"
)
ELSEWHERE = re.compile(r"(?<![a-z\d])(to|in)(?![a-z\d]).*")  # a scan in the place of another: whose words follow
PROTOCOL = re.compile(  # words of names that say how a scan was made, and not whose it is
    rf"{PLANE}|{AGENTS}|c\+|\+c|pre|nativ|native|none|op|[23]d|\d+(p\d+)?mm|\d+x\d+(x\d+)?(mm)?|iso(tropic)?|cube|vista|"
    r"(tse|fse|se|gre|ge|tfe|ffe|tir|ir|fl|space|vibe)([23]d)?\d*|blade|propeller|mpr|mp|fs|fatsat|fat|sat|spair|spir|"
    r"dixon|water|w|weighted|brain|bet|head|skull|stripped|skullstripped|n4|defaced?|anon|orig|raw|vol|scan|image|img|"
    r"mri?|p\d|te\d+|tr\d+|ti\d+|thick|thin|hires|high|low|res|resampled|registered|reg|star|proton|density|dark|fluid|"
    r"128|192|256|320|384|448|512|acpc|norm(alized)?|denoised|corrected|preproc(essed)?|crop(ped)?|reorient(ed)?"
)
ENTITY = re.compile(r"(acq|ce|run|rec|part|echo|inv|desc|space|dir|task)-[a-z0-9]+")  # of BIDS
SAME_TIME = 1.2  # ratio of echo or inversion times; protocols of one contrast differ a little by direction
SAME_REPETITION = 2.0  # ratio of repetition times, which depend on the number of slices too
PARALLEL = 0.9  # cosine of the angle between slices; series of one direction are repeats, or of another contrast
ISOTROPIC = 1.3  # the longest edge of a voxel over the shortest
THINNER = 0.6  # most of the spacing of the slices that a scan along them guides
BEST = ("T1w", "T2w", "FLAIR", "PDw", "T2*w")  # guides, by what they bring (docs/benchmarks.md)


@dataclass(frozen=True)
class Identity:
    """The identity of a scan of one stack.

    Attributes:
        person: folder and words of a name; subject of a BIDS dataset; name or ID of DICOM and of sidecars.
        session: of the person: study of DICOM, session of BIDS; empty where there is none.
        date: `YYYYMMDD`, of the session; empty where nothing says it.
        words: `contrast_of` the name or the series description.
        weighting: one of `WEIGHTINGS`; empty where nothing says it.
        agent: whether a contrast agent was given; None where nothing says so.
        times: `(3,)`, echo, inversion and repetition time in ms; NaN where they are missing.
        frame: of reference; empty outside of DICOM.
        axes: `(3, 3)`, directions of the voxels' axes in columns, RAS+; identity of what cannot be read.
        edges: `(3,)`, of the voxels, in mm; NaN of what cannot be read.
        slice_axis: array axis of the slices.
        broken: why the scan cannot be read; empty where it can.
    """

    person: tuple[str, ...]
    session: str = ""
    date: str = ""
    words: str = ""
    weighting: str = ""
    agent: bool | None = None
    times: np.ndarray = field(default_factory=lambda: np.full(3, np.nan))
    frame: str = ""
    axes: np.ndarray = field(default_factory=lambda: np.eye(3))
    edges: np.ndarray = field(default_factory=lambda: np.full(3, np.nan))
    slice_axis: int = 2
    broken: str = ""

    @classmethod
    def of(cls, source: Path | dicom.Series) -> Identity:
        """The identity of a file or series, by its header, its sidecars and its name; no voxels are read."""
        return _of_series(source) if isinstance(source, dicom.Series) else _of_file(source)

    @property
    def head(self) -> tuple[str, ...]:
        """Person and session, which all scans of an examination share."""
        return (*self.person, self.session)

    @property
    def contrast(self) -> str:
        """Weighting and agent, for people; empty where nothing says them."""
        return self.weighting + " with agent" * bool(self.agent)

    @property
    def normal(self) -> np.ndarray:
        """`(3,)`, of the slices."""
        return self.axes[:, self.slice_axis]

    def other_contrast(self, other: Identity) -> str | None:
        """Why two scans are not of one contrast, by headers and names; None where these leave it open."""
        if self.weighting and other.weighting and self.weighting != other.weighting:
            return f"one is {self.weighting}, the other {other.weighting}"
        if bool(self.agent) != bool(other.agent):
            return "a contrast agent was given before one of them"
        names, limits = ("echo", "inversion", "repetition"), (SAME_TIME, SAME_TIME, SAME_REPETITION)
        for name, limit, pair in zip(names, limits, np.sort([self.times, other.times], axis=0).T):
            if pair[1] > limit * pair[0]:
                return f"their {name} times are {pair[0]:g} and {pair[1]:g} ms"
        if np.isnan(self.times[1]) != np.isnan(other.times[1]) and np.isfinite([self.times[0], other.times[0]]).all():
            return "one has an inversion time, the other none"
        return None


def _of_series(series: dicom.Series) -> Identity:
    header = series.frames[0].header
    said = " ".join(str(value(header, key, "")) for key in ("SeriesDescription", "ProtocolName", "SequenceName"))
    first, study, frame, date, agent = (
        str(value(header, key, ""))
        for key in ("SeriesDescription", "StudyInstanceUID", "FrameOfReferenceUID", "StudyDate", "ContrastBolusAgent")
    )
    times = np.array([numbers(header, key, 1)[0] for key in ("EchoTime", "InversionTime", "RepetitionTime")])
    weighting, given = _contrast(first, said, agent, times, value(header, "ScanningSequence"))
    axes, edges = series.lies
    whose = [series.frames[0].distinctive[key] for key in ("PatientName", "PatientID")]
    person = next((one for one in whose if one not in ("", "None", "NONE")), "")
    words, thick = contrast_of(first), slice_axis(edges)
    return Identity((person,), study, date, words, weighting, given, times, frame, axes, edges, thick)


def _of_file(path: Path) -> Identity:
    try:
        fields = bids.sidecar(path)
    except InputError:  # which is said when the scan is read
        fields = {}
    said = [fields.get(key) for key in ("EchoTime", "InversionTime", "RepetitionTime")]
    times = np.array([1000 * one if isinstance(one, int | float) else np.nan for one in said])
    description = " ".join(str(fields.get(key) or "") for key in ("SeriesDescription", "ProtocolName"))
    agent = str(fields.get("ContrastBolusIngredient") or "")
    person, session, named = _whose(path, fields)
    weighting, given = _contrast(description, named, agent, times, fields.get("ScanningSequence"))
    date = bids.session_date(path) or re.sub(r"\D", "", str(fields.get("AcquisitionDateTime") or ""))[:8]
    found = Identity(person, session, date, contrast_of(stem(path.name)), weighting, given, times)
    try:
        _, image = ScanReader().read(path)
        edges = voxel_spacing(image.affine)
        axes = np.asarray(image.affine)[:3, :3] / edges
        return replace(found, axes=axes, edges=edges, slice_axis=slice_axis(edges))
    except Exception as error:  # noqa: BLE001  # a broken file guides nothing, and says so when it is rebuilt
        return replace(found, broken=str(error) or type(error).__name__)


# --- whose head ---


def _whose(path: Path, fields: Mapping[str, Any]) -> tuple[tuple[str, ...], str, str]:
    """Person, session, and the words that may name the contrast."""
    name, (root, subject, session) = stem(path.name), bids.place(path)
    if root is not None:
        return (str(root), subject), session, ENTITY.sub(_kept_entity, name.lower())
    study = str(fields.get("StudyInstanceUID") or "")
    known = str(fields.get("PatientID") or fields.get("PatientName") or "")
    above, folder = list[str](), path.absolute().parent
    while folder.name and _person(folder.name, {}) == () and any(map(_names_contrast, _split(folder.name))):
        above, folder = [folder.name, *above], folder.parent
    said = ENTITY.sub(_kept_entity, " ".join([*above, name]).lower())
    return ((known,) if study and known else (str(folder), *_person(name, fields))), study, said


def _kept_entity(entity: re.Match) -> str:
    """The words of a BIDS entity that may name a contrast or an agent: those of the space are another scan's."""
    key, _, label = entity[0].partition("-")
    return f"ce {label}" if key == "ce" else label if key == "acq" else ""


def _names_contrast(word: str) -> bool:
    return any(re.search(words, word) for table in (WEIGHTINGS, SEQUENCES) for words in table.values())


def _person(name: str, fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of a name that say whose head it is: all but those of the protocol.

    >>> [_person(name, {}) for name in ("IXI002-Guys-0828-T1", "T1_bob", "anna_T2_ax", "sub-01_acq-ax_T2w")]
    [('ixi002', 'guys', '0828'), ('bob',), ('anna',), ('sub', '01')]
    """
    given = " ".join(str(fields.get(key) or "") for key in ("SeriesDescription", "ProtocolName", "SeriesNumber"))
    known = set(_split(given))
    return tuple(
        word
        for word in _split(ENTITY.sub("", name.lower()))
        if word not in known and not PROTOCOL.fullmatch(word) and not _names_contrast(word)
    )


def _split(name: str) -> list[str]:
    return [word for word in re.split(r"[^\w*+]+|_+", name.lower()) if word]


# --- contrast ---


def contrast_of(name: str) -> str:
    """A name without the words that say how the slices lie.

    >>> [contrast_of(name) for name in ("sub-01_acq-ax_run-2_T2w", "t2_tse_tra_320", "acq-pre_T1w")]
    ['sub-01 t2w', 't2 tse 320', 'acq-pre t1w']
    """
    return " ".join(
        word for word in re.split(r"[^A-Za-z0-9+*-]+", name.lower()) if word and not ORIENTATION.fullmatch(word)
    )


def _contrast(description: str, named: str, agent: str, times: np.ndarray, sequence: object) -> tuple[str, bool | None]:
    """Weighting, by the description, else by other names, else by the times in ms; and whether an agent was given."""
    said = [_separated(ELSEWHERE.sub("", _separated(one))) for one in (description, named)]
    tables = [(table, one) for table in (WEIGHTINGS, SEQUENCES) for one in said]
    found = [name for table, one in tables for name, words in table.items() if re.search(words, one)]
    given = True if agent.strip() and agent.strip().lower() not in ("none", "no") else None
    both = " ".join(said)
    if given is None and NO_AGENT.search(both):
        given = False
    elif given is None and AGENT.search(both):
        given = True
    return (found[0] if found else _by_times(times, "GR" in str(sequence))), given


def _separated(name: str) -> str:
    return re.sub(r"[\s_.-]+", " ", name.lower())


def _by_times(times: np.ndarray, gradient: bool) -> str:
    """The weighting by echo, inversion and repetition time in ms, where they leave no doubt."""
    echo, inversion, repetition = times
    if inversion > 1500 and echo > 60:
        return "FLAIR"
    if echo < 15 and 300 < inversion < 1500:
        return "T1w"
    if gradient or inversion > 0:
        return ""
    if echo < 30 and repetition < 1000:
        return "T1w"
    return "T2w" if echo > 70 and repetition > 2000 else ""


# --- roles ---


class Role(NamedTuple):
    """A scan's part beside another, and why; the guide of the least rank is the best."""

    what: Literal["joins", "guides", "is left alone"]
    why: str
    rank: tuple[int, ...] = ()


def role(own: Identity, theirs: Identity) -> Role:
    """The role of a scan beside one of thick slices.

    A scan of another contrast that is sharp along the slices guides them: best a 3-D one, then a stack of another
    direction, then a stack of the same direction whose slices are at most `THINNER` as far apart. Scans of other
    sessions come last, the nearest in time first.
    """
    sessions = theirs.session.startswith("ses-")  # of BIDS; studies of DICOM may be of anybody
    if theirs.person != own.person and theirs.person[0] == own.person[0]:
        words, others = (" ".join(one.person[1:]) or "nobody" for one in (theirs, own))
        return Role("is left alone", f"its name is of another person: {words}, not {others}")
    if theirs.person != own.person or (theirs.session != own.session and not sessions):
        return Role("is left alone", "it is of another person, session or study")
    if theirs.broken:
        return Role("is left alone", f"it cannot be read ({theirs.broken})")
    why, edges, spacing = own.other_contrast(theirs), theirs.edges, float(own.edges[own.slice_axis])
    turned = abs(float(own.normal @ theirs.normal)) < PARALLEL
    if why is None and not (own.weighting and theirs.weighting):
        return Role("is left alone", "neither its name nor its header says that it is of another contrast")
    if why is None and turned and own.session == theirs.session:
        return Role("joins", "it has the same contrast and another direction")
    if why is None:
        return Role("is left alone", "it has the same contrast" + " and the same direction" * (not turned))
    thick = float(edges[theirs.slice_axis])
    if edges.max() <= ISOTROPIC * edges.min() and edges.max() <= THINNER * spacing:
        kind, sharp = 0, f"its voxels of {edges.max():.2g} mm are isotropic"
    elif turned and edges[int(np.abs(own.normal @ theirs.axes).argmax())] <= THINNER * spacing:
        kind, sharp = 1, "its slices lie in another direction"
    elif not turned and thick <= THINNER * spacing:
        kind, sharp = 2, f"its slices are {thick:.2g} mm apart, not {spacing:.2g} mm"
    else:
        return Role("is left alone", f"it is not sharp across the slices: {thick:.2g} mm apart")
    rank = kind, BEST.index(theirs.weighting) if theirs.weighting in BEST else len(BEST), bool(theirs.agent)
    if own.session == theirs.session:
        return Role("guides", f"{why}; {sharp}", (0, 0, *rank))
    away = abs(_day(theirs.date) - _day(own.date)) if theirs.date and own.date else 10**9
    other = f"session {theirs.session.removeprefix('ses-')}" + f" of {theirs.date}" * bool(theirs.date)
    return Role("guides", f"{why}; {sharp}; it is of {other}", (1, away, *rank))


def _day(date: str) -> int:
    """Days of a date `YYYYMMDD`, from any day on."""
    return int(np.datetime64(f"{date[:4]}-{date[4:6]}-{date[6:8]}").astype(int))
