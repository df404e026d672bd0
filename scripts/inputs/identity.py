"""The identity of a scan: whose head it shows, in which session, by which contrast, and how its slices lie.

Contents come before headers, headers before names.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import stem
from ..stack.grid import slice_axis, voxel_spacing
from . import bids, dicom
from .dicom.headers import numbers, value
from .readers import ScanReader
from .weighting import AGENTS, PLANE, contrast_of, names_contrast, weighting_and_agent

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
    def of(cls, source: Path | dicom.Series) -> "Identity":
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

    def other_contrast(self, other: "Identity") -> str | None:
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
    weighting, given = weighting_and_agent(first, said, agent, times, value(header, "ScanningSequence"))
    axes, edges = series.lies
    person = series.frames[0].first_said("PatientName", "PatientID")
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
    weighting, given = weighting_and_agent(description, named, agent, times, fields.get("ScanningSequence"))
    date = bids.session_date(path) or re.sub(r"\D", "", str(fields.get("AcquisitionDateTime") or ""))[:8]
    found = Identity(person, session, date, contrast_of(stem(path.name)), weighting, given, times)
    try:
        _, image = ScanReader().read(path)
        edges = voxel_spacing(image.affine)
        axes = np.asarray(image.affine)[:3, :3] / edges
        return replace(found, axes=axes, edges=edges, slice_axis=slice_axis(edges))
    except Exception as error:  # noqa: BLE001  # a broken file guides nothing, and says so when it is rebuilt
        return replace(found, broken=str(error) or type(error).__name__)


def _whose(path: Path, fields: Mapping[str, Any]) -> tuple[tuple[str, ...], str, str]:
    """Person, session, and the words that may name the contrast."""
    name, (root, subject, session) = stem(path.name), bids.place(path)
    if root is not None:
        return (str(root), subject), session, ENTITY.sub(_kept_entity, name.lower())
    study = str(fields.get("StudyInstanceUID") or "")
    known = str(fields.get("PatientID") or fields.get("PatientName") or "")
    above, folder = list[str](), path.absolute().parent
    while folder.name and _person(folder.name, {}) == () and any(map(names_contrast, _split(folder.name))):
        above, folder = [folder.name, *above], folder.parent
    said = ENTITY.sub(_kept_entity, " ".join([*above, name]).lower())
    return ((known,) if study and known else (str(folder), *_person(name, fields))), study, said


def _kept_entity(entity: re.Match) -> str:
    """The words of a BIDS entity that may name a contrast or an agent: those of the space are another scan's."""
    key, _, label = entity[0].partition("-")
    return f"ce {label}" if key == "ce" else label if key == "acq" else ""


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
        if word not in known and not PROTOCOL.fullmatch(word) and not names_contrast(word)
    )


def _split(name: str) -> list[str]:
    return [word for word in re.split(r"[^\w*+]+|_+", name.lower()) if word]
