"""The identity of a scan: whose head it shows, in which session, by which contrast, and how its slices lie.

Contents come before headers, headers before names.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..files import VOLUMES, ends_as, stem
from ..stack.grid import slice_axis, voxel_spacing
from . import bids, dicom
from .headers import numbers, value
from .readers import ScanReader
from .weighting import BIDS_NAME, ENTITY, NUMBERED, agent, by_times, contrast_of, of_protocol, split, weighting

TIMES = ("EchoTime", "InversionTime", "RepetitionTime")
SAME_TIME = 1.2  # ratio of echo or inversion times; protocols of one contrast differ a little by direction
SAME_REPETITION = 2.0  # ratio of repetition times, which depend on the number of slices too


@dataclass(frozen=True)
class Identity:
    """The identity of a scan of one stack.

    Attributes:
        person: folder and words of a name; subject of a BIDS dataset; name or ID of DICOM and of sidecars.
        perhaps: the same without a number that a converter may have written; scans that share it may be one person's.
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
    perhaps: tuple[str, ...]
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
    first, protocol, sequence, study, frame, date, given = (
        str(value(header, key, ""))
        for key in "SeriesDescription ProtocolName SequenceName StudyInstanceUID FrameOfReferenceUID StudyDate "
        "ContrastBolusAgent".split()
    )
    times = np.array([numbers(header, key, 1)[0] for key in TIMES])
    kind = weighting(first, f"{protocol} {sequence}") or by_times(times, value(header, "ScanningSequence"))
    axes, edges = series.lies
    person = (series.frames[0].first_said("PatientName", "PatientID"),)
    words, with_agent = contrast_of(first), agent(given, first, protocol, sequence)
    return Identity(
        person, person, study, bids.day(date), words, kind, with_agent, times, frame, axes, edges, slice_axis(edges)
    )


def _of_file(path: Path) -> Identity:
    fields = bids.readable_sidecar(path)
    times = np.array([1000 * _number(fields.get(key)) for key in TIMES])
    name = stem(path.name)
    person, perhaps, session, further = _whose(path, fields)
    names = [name] if BIDS_NAME.fullmatch(name.lower()) else [*_described(fields), name]
    kind = weighting(*names) or further or by_times(times, fields.get("ScanningSequence"))
    with_agent = agent(str(fields.get("ContrastBolusIngredient") or ""), *names)
    date = bids.session_date(path) or bids.day(fields.get("AcquisitionDateTime"))
    found = Identity(person, perhaps, session, date, contrast_of(name), kind, with_agent, times)
    try:
        _, image = ScanReader().read(path)
        edges = voxel_spacing(image.affine)
        axes = np.asarray(image.affine)[:3, :3] / edges
        return replace(found, axes=axes, edges=edges, slice_axis=slice_axis(edges))
    except Exception as error:  # noqa: BLE001  # a broken file guides nothing, and says so when it is rebuilt
        return replace(found, broken=str(error) or type(error).__name__)


def _number(said: Any) -> float:
    """A positive number of a sidecar; NaN for anything else."""
    good = isinstance(said, int | float) and not isinstance(said, bool) and 0 < said < 1e6
    return float(said) if good else np.nan


def _described(fields: Mapping[str, Any]) -> list[str]:
    return [str(fields.get(key) or "") for key in ("SeriesDescription", "ProtocolName")]


def _whose(path: Path, fields: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...], str, str]:
    """Person, `Identity.perhaps`, session, and the weighting that folder or number say where the name says none."""
    name, folder, (root, subject, session) = stem(path.name), path.absolute().parent, bids.place(path)
    if root is not None:
        return (person := (str(root), subject)), person, session, ""
    known, study = (str(fields.get(key) or "") for key in ("PatientID", "StudyInstanceUID"))
    known = known or str(fields.get("PatientName") or "")
    session = study or next(iter(re.findall(r"(?<![a-z\d])ses-[a-z0-9]+", name.lower())), "")
    named, further = weighting(name), "" if _person(folder.name) else weighting(folder.name)
    if known and study:
        return (known,), (known,), session, further
    words = _person(name, fields)
    if further and named in ("", further):  # a folder for each contrast: people have one name in all of them
        return (own := (str(folder.parent), known, *words)), own, session, further
    beside, (rest, number) = _beside(folder), _apart(name)
    kept = [one for one in words if not (found := NUMBERED.fullmatch(one)) or found[1] in beside.differing]
    own = perhaps = (str(folder), known, *kept)
    if number in kept:
        kept.pop(-1 if kept[-1] == number else kept.index(number))
        if rest in beside.channels and not named:
            return (own := (str(folder), known, *kept)), own, session, f"channel {int(number)}"
        perhaps = own if _person(" ".join(rest)) in beside.people else (str(folder), known, *kept)
    return own, perhaps, session, ""


def _person(name: str, fields: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """The words of a name that say whose head it is: all but those of the protocol.

    >>> [_person(name) for name in ("IXI002-Guys-0828-T1", "T1_bob", "anna_T2_ax", "sub-01_acq-ax_T2w", "PD01")]
    [('ixi002', 'guys', '0828'), ('bob',), ('anna',), ('sub-01',), ('pd01',)]
    """
    fields = fields or {}
    protocol = {
        word.lstrip("0") for one in (*_described(fields), fields.get("SeriesNumber")) for word in split(str(one))
    }
    name = name.lower()
    subject = [found[0]] if (found := re.match(r"sub-[a-z0-9]+", name)) else []
    rest = "" if BIDS_NAME.fullmatch(name) else ENTITY.sub("", name.removeprefix("".join(subject)))
    words = [word for word in split(rest) if word.lstrip("0") not in protocol and not of_protocol(word)]
    return (*subject, *words)


class Beside(NamedTuple):
    """The names of a folder's volumes beside each other.

    Attributes:
        differing: words of `NUMBERED` with several numbers: these are people's, or tell nothing.
        people: words of persons whose further number is of a person, since two contrasts share one, or one contrast
            has several.
        channels: words of names that name no contrast, of which files are numbered from 0000 on, as for nnU-Net.
    """

    differing: frozenset[str]
    people: frozenset[tuple[str, ...]]
    channels: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, names: Iterable[str]) -> "Beside":
        """Compares names without their endings."""
        numbers, numbered = defaultdict(set), defaultdict(set)
        people, channels = set(), set()
        for name in names:
            for word in split(name):
                if one := NUMBERED.fullmatch(word):
                    numbered[one[1]].add(word)
            rest, number = _apart(name)
            if number and (contrast := weighting(name)):
                whose = _person(" ".join(rest))
                for key, found in (((whose, number), contrast), (rest, number)):
                    numbers[key].add(found)
                    if len(numbers[key]) > 1:
                        people.add(whose)
            elif number == "0000" and any(word[-1].isdigit() for word in rest):
                channels.add(rest)
        differing = frozenset(letters for letters, words in numbered.items() if len(words) > 1)
        return cls(differing, frozenset(people), frozenset(channels))


def _apart(name: str) -> tuple[tuple[str, ...], str]:
    """The words of a name without the number at its end, else at its beginning, and this number; empty for none.

    A number behind a word that is none of a protocol, as in `T2_patient_7`, is a person's.
    """
    words = split(name)
    place = next((k for k in (-1, 0) if words and words[k].isdecimal()), None)
    if place == -1 and len(words) > 1 and not (words[-2].isdecimal() or of_protocol(words[-2])):
        place = None
    number = "" if place is None else words.pop(place)
    return tuple(words), number


def _beside(folder: Path) -> Beside:
    try:
        return _names_of(str(folder), os.stat(folder).st_mtime_ns)
    except OSError:  # which is said when the scan is read
        return Beside.of([])


@lru_cache(maxsize=64)
def _names_of(folder: str, changed: int) -> Beside:
    """Once for a folder, until it changes."""
    return Beside.of(stem(name) for name in os.listdir(folder) if ends_as(name, VOLUMES))
