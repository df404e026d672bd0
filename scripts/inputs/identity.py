"""The identity of a scan: whose head it shows, in which session, by which contrast, and how its slices lie.

Standards settle these: attributes of DICOM, fields of sidecars, suffixes and entities of BIDS. A name only shows what
they leave open.
"""

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..files import stem
from ..stack.grid import slice_axis, voxel_spacing
from . import bids, dicom
from .headers import ENHANCED, milliseconds, numbers, patient, value
from .kinds import WEIGHTED, remark_on
from .names import contrast_of, folder, words
from .readers import ScanReader

TIMES = ("EchoTime", "InversionTime", "RepetitionTime")
SAME_TIME = 1.2  # ratio of echo or inversion times; protocols of one contrast differ a little by direction
SAME_REPETITION = 2.0  # ratio of repetition times, which depend on the number of slices too
ACQUIRED = {  # AcquisitionContrast, and the third word of ImageType of enhanced images
    **{"T1": "T1w", "T2": "T2w", "T2_STAR": "T2*w", "PROTON_DENSITY": "PDw", "FLUID_ATTENUATED": "FLAIR"},
    "STIR": "STIR",
}
DENIED = {"T1w": "T2w FLAIR", "T2w": "T1w FLAIR", "FLAIR": "T1w", "PDw": "T1w T2w FLAIR"}  # of names, by times
AMOUNTS = ("ContrastBolusVolume", "ContrastBolusTotalDose")  # 0 where nobody entered one
AGENTS = ("ContrastBolusIngredient", "ContrastBolusAgent")
NO = "no none not na without wo false unknown".split()  # begin the name of an agent that nobody says was given
NO_VOLUME = re.compile(r"0+([.,]0+)?(?![.,]?\d)")
REMARK = "its name says {}, its times are those of {}"
UNEVEN = "its slices lie unevenly, and dcm2niix interpolated them in {}. Give the DICOM series"


class Shows(NamedTuple):
    """The contrast of a scan, one of `names.WEIGHTINGS`, for people; what says it; a remark on names; theirs alone."""

    contrast: str = ""
    source: str = ""
    remark: str = ""
    named: str = ""


@dataclass(frozen=True)
class Identity:
    """The identity of a scan of one stack.

    Attributes:
        head: patient and study of DICOM and of sidecars; folder and subject of BIDS; empty where no standard says it.
        stated: the contrast that a standard says; of BIDS suffix and entities, empty where none does.
        times: `(3,)`, echo, inversion and repetition time in ms; NaN where they are missing.
        words: of a file's name but those of its contrast.
        frame: of reference; empty outside of DICOM.
        axes: `(3, 3)`, directions of the voxels' axes in columns, RAS+; identity where it cannot be read.
        edges: `(3,)`, of the voxels, in mm; NaN where it cannot be read.
        broken: why the scan cannot be read; empty where it can.
    """

    head: tuple[str, ...] = ()
    session: str = ""
    date: datetime.date | None = None
    shows: Shows = field(default_factory=Shows)
    stated: tuple[str, ...] = ()
    agent: bool = False
    fat_saturated: bool = False
    times: np.ndarray = field(default_factory=lambda: np.full(3, np.nan))
    words: tuple[str, ...] = ()
    folder: str = ""
    frame: str = ""
    axes: np.ndarray = field(default_factory=lambda: np.eye(3))
    edges: np.ndarray = field(default_factory=lambda: np.full(3, np.nan))
    broken: str = ""

    @classmethod
    def of(cls, source: Path | dicom.Series) -> "Identity":
        """The identity of a file or series, by its header, its sidecars and its name; no voxels are read."""
        return _of_series(source) if isinstance(source, dicom.Series) else _of_file(source)

    @property
    def contrast(self) -> str:
        """Contrast and agent, for people; empty where nothing says them."""
        return f"{self.shows.contrast}{' with agent' * self.agent}".strip()

    @property
    def slice_axis(self) -> int:
        """Array axis of the slices."""
        return slice_axis(self.edges)

    @property
    def normal(self) -> np.ndarray:
        """`(3,)`, of the slices."""
        return self.axes[:, self.slice_axis]

    def axis_along(self, thick: "Identity") -> int:
        """The array axis that is nearest to the normal of another scan's slices."""
        return int(np.abs(thick.normal @ self.axes).argmax())

    def other_contrast(self, other: "Identity") -> str | None:
        """Why two scans are not of one contrast by standards; None where these leave it open."""
        if self.stated and other.stated and self.stated != other.stated:
            return "one is {}, the other {}".format(*(" ".join(one.stated) for one in (self, other)))
        if self.agent != other.agent:
            return "a contrast agent was given before one of them"
        if self.fat_saturated != other.fat_saturated:
            return "one is fat-saturated, the other is not"
        names, limits = ("echo", "inversion", "repetition"), (SAME_TIME, SAME_TIME, SAME_REPETITION)
        for name, limit, pair in zip(names, limits, np.sort([self.times, other.times], axis=0).T):
            if pair[1] > limit * pair[0]:
                return f"their {name} times are {pair[0]:g} and {pair[1]:g} ms"
        if np.isnan(self.times[1]) != np.isnan(other.times[1]) and np.isfinite([self.times[0], other.times[0]]).all():
            return "one has an inversion time, the other none"
        return None

    def one_contrast(self, other: "Identity") -> bool:
        """Whether standards call two scans one contrast: suffix and entities of BIDS, or times, fat and agent."""
        by_times = np.isfinite([self.times[[0, 2]], other.times[[0, 2]]]).all()
        by_suffix = self.stated == other.stated != () and self.stated[0] in WEIGHTED
        return bool(by_times or by_suffix) and self.other_contrast(other) is None


def _of_series(series: dicom.Series) -> Identity:
    header, (axes, edges) = series.frames[0].header, series.lies
    said = [_text(header, "AcquisitionContrast"), *np.atleast_1d(value(header, "ImageType", []))[2:3]]
    stated = [ACQUIRED[one] for one in said[: 1 + (_text(header, "SOPClassUID") in ENHANCED)] if one in ACQUIRED][:1]
    names = (_text(header, "SeriesDescription"), f"{_text(header, 'ProtocolName')} {_text(header, 'SequenceName')}")
    return Identity(
        head=(patient(header), _text(header, "StudyInstanceUID")),
        date=bids.day(_text(header, "StudyDate")),
        frame=_text(header, "FrameOfReferenceUID"),
        axes=axes,
        edges=edges,
        **_contrast(header, stated, "the header", names),
    )


def _of_file(path: Path) -> Identity:
    fields, name, (where, subject, session) = bids.sidecar(path), stem(path.name), bids.place(path)
    head, place = (patient(fields), _text(fields, "StudyInstanceUID")), path.absolute().parent
    stated = bids.contrast(name) if where is not None else ()
    stated = stated if stated and stated[0] in WEIGHTED else ()
    names = [_text(fields, "SeriesDescription"), _text(fields, "ProtocolName"), name]
    names += [place.name] if folder(path) != place else []
    found = Identity(
        head=(str(where), subject) if where is not None else head if all(head) else (),
        session=session,
        date=bids.session_date(path) or bids.day(fields.get("AcquisitionDateTime")),
        words=tuple(word for word in words(name) if not contrast_of(word)),
        folder=str(place),
        **_contrast(fields, stated, "its suffix", names),
    )
    twin = path.with_name(path.name.replace(name, f"{re.sub(r'_Eq_[0-9]+$', '', name)}_Eq_1"))
    if twin.is_file():
        found = replace(found, shows=found.shows._replace(remark=UNEVEN.format(twin.name)))
    try:
        _, image = ScanReader().read(path)
        edges = voxel_spacing(image.affine)
        return replace(found, axes=np.asarray(image.affine)[:3, :3] / edges, edges=edges)
    except Exception as error:  # noqa: BLE001  # a broken file guides nothing, and says so when it is rebuilt
        return replace(found, broken=str(error) or type(error).__name__)


def _text(header: Any, keyword: str) -> str:
    return str(value(header, keyword, ""))


def _contrast(header: Any, stated: Sequence[str], source: str, names: Sequence[str]) -> dict[str, Any]:
    """The facts of an `Identity` that tell contrasts apart, of a header or the fields of a sidecar.

    A standard says the contrast that is shown, else times that contradict the name, else the name, else times.
    """
    times = np.array([milliseconds(header, key) for key in TIMES])
    named, timed, remark = contrast_of(*names), by_times(times, value(header, "ScanningSequence")), remark_on(*names)
    said = contrast_of(*stated[:1])
    if said:
        shows = Shows(said, source, remark, named)
    elif timed and timed in DENIED.get(named, "").split():
        shows = Shows(timed, "its times", REMARK.format(named, timed), named)
    else:
        shows = Shows(named or timed, "its name" if named else "its times" if timed else "", remark, named)
    options = [str(one).upper() for one in np.atleast_1d(value(header, "ScanOptions", []))]
    fat = "FAT" in str(value(header, "SpectrallySelectedSuppression", "NONE")).upper()
    fat |= "FS" in re.split(r"[\\_]", "_".join(options))
    agent = _agent(header, stated)
    return {"times": times, "shows": shows, "stated": tuple(stated), "agent": agent, "fat_saturated": fat}


def _agent(header: Any, stated: Sequence[str]) -> bool:
    """Whether an agent was given: by its code or amount, else by its name or an entity's label, unless it says no."""
    if value(header, "ContrastBolusAgentSequence") or any(numbers(header, key, 1)[0] > 0 for key in AMOUNTS):
        return True
    labels = (one[3:] for one in stated if one.startswith("ce-"))
    said = next((str(found) for key in AGENTS if (found := value(header, key))), next(labels, ""))
    words = re.findall(r"[^\W\d_]+", said.lower().replace("/", ""))  # n/a, w/o
    return bool(words) and words[0] not in NO and not NO_VOLUME.match(said.strip())


def by_times(times: np.ndarray, sequence: object) -> str:
    """The weighting by echo, inversion and repetition time in ms, where they leave no doubt."""
    echo, inversion, repetition = times
    if inversion > 1500 and echo > 60:
        return "FLAIR"
    if echo < 15 and 300 < inversion < 1500:
        return "T1w"
    if "GR" in str(sequence) or inversion > 0:
        return ""
    if echo < 30 and repetition < 1000:
        return "T1w"
    return "T2w" if echo > 70 and repetition > 2000 else ""
