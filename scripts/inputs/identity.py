"""The identity of a scan: whose head it shows, in which session, by which contrast, and how its slices lie.

Contents come before headers, headers before names.
"""

import datetime
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
        date: of the session; None where nothing says it.
        words: `contrast_of` the name or the series description.
        weighting: one of `WEIGHTINGS`; empty where nothing says it.
        agent: whether a contrast agent was given; None where nothing says so.
        times: `(3,)`, echo, inversion and repetition time in ms; NaN where they are missing.
        frame: of reference; empty outside of DICOM.
        axes: `(3, 3)`, directions of the voxels' axes in columns, RAS+; identity where it cannot be read.
        edges: `(3,)`, of the voxels, in mm; NaN where it cannot be read.
        slice_axis: array axis of the slices.
        broken: why the scan cannot be read; empty where it can.
    """

    person: tuple[str, ...]
    perhaps: tuple[str, ...]
    session: str = ""
    date: datetime.date | None = None
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
    fields = bids.sidecar(path)
    times = 1000 * np.array([numbers(fields, key, 1)[0] for key in TIMES])
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
    beside, named = _beside(folder), weighting(name)
    further = "" if _person(folder.name) else weighting(folder.name)
    if not beside.contrasts <= {further}:  # a folder T1 that holds a T2, too, is a time point
        further = ""
    if known and study:
        return (known,), (known,), session, further
    words, (rest, numbers) = _person(name, fields), _apart(name)
    if further:  # a folder for each contrast: people have one name in all of them
        return (own := (str(folder.parent), known, *words)), own, session, further
    own, without = ((str(folder), known, *filter(beside.tells, one)) for one in (words, _person(rest, fields)))
    if beside.channels & {rest} and not named:
        return without, without, session, f"channel {int(numbers[-1])}"
    return own, own if _person(rest) in beside.people else without, session, ""


def _person(name: str, fields: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """The words of a name that say whose head it is: all but words of the protocol.

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
        channels: names that name no contrast, of which files are numbered from 0000 on, as for nnU-Net.
        contrasts: those that names say.
    """

    differing: frozenset[str]
    people: frozenset[tuple[str, ...]]
    channels: frozenset[str]
    contrasts: frozenset[str]

    @classmethod
    def of(cls, names: Iterable[str]) -> "Beside":
        """Compares names without their endings."""
        told, numbered = defaultdict(set), defaultdict(set)
        people, channels, contrasts = set(), set(), set()
        for name in names:
            for word in split(name):
                if one := NUMBERED.fullmatch(word):
                    numbered[one[1]].add(word)
            rest, numbers = _apart(name)
            if contrast := weighting(name):
                contrasts.add(contrast)
                whose = _person(rest)
                for key, found in (((whose, *numbers), contrast), (rest, numbers)):
                    told[key].add(found)
                    if numbers and len(told[key]) > 1:
                        people.add(whose)
            elif numbers[-1:] == ("0000",) and re.search(r"\d\b", rest):
                channels.add(rest)
        differing = frozenset(letters for letters, words in numbered.items() if len(words) > 1)
        return cls(differing, frozenset(people), frozenset(channels), frozenset(contrasts))

    def tells(self, word: str) -> bool:
        """Whether a word tells people apart: no word of a protocol that the folder has with one number alone."""
        found = NUMBERED.fullmatch(word)
        return not found or found[1] in self.differing


def _apart(name: str) -> tuple[str, tuple[str, ...]]:
    """A name without the numbers that may be of a series, and these numbers, as converters write them.

    They stand at either end, or are short and follow an ID or a date. A number behind any other word is of a person.

    >>> [_apart(name)[1] for name in ("7_t2_tse_1", "PD01_3_T2", "PD_01_T2", "T2_patient_7", "TCGA-06-0125_T2")]
    [('7', '1'), ('3',), (), (), ()]
    """
    subject = re.match(r"(sub-[a-z0-9]+)?", name.lower())[0]  # type: ignore[index]
    words = [*filter(None, [subject]), *split(name[len(subject) :])]
    numbers, rest, at_end = list[str](), list[str](), True
    for k in reversed(range(len(words))):
        word, before = words[k], words[k - 1] if k else "0"
        own = not of_protocol(before)
        behind = bool(re.search(r"\d", before)) if own else at_end
        if behind and re.fullmatch(r"\d+[a-z]?" if at_end or not k else r"[1-9]\d{0,2}", word):
            numbers.insert(0, word)
        else:
            rest.insert(0, word)
            at_end = at_end and NUMBERED.fullmatch(word) is not None
    return " ".join(rest), tuple(numbers)


def _beside(folder: Path) -> Beside:
    try:
        return _names_of(str(folder), os.stat(folder).st_mtime_ns)
    except OSError:  # which is said when the scan is read
        return Beside.of([])


@lru_cache(maxsize=64)
def _names_of(folder: str, changed: int) -> Beside:
    """Once for a folder, until it changes."""
    return Beside.of(stem(name) for name in os.listdir(folder) if ends_as(name, VOLUMES))
