"""The roles of scans in one examination: which join in one volume, which guide another, and why."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from ..errors import InputError, few
from ..files import stem
from ..stack.grid import slice_axis, voxel_spacing
from . import bids, dicom
from .dicom.headers import numbers, value
from .readers import ScanReader
from .scan import Scan

logger = logging.getLogger("drift")

PLANE = r"(ax|axi|axial|tra|trans|transverse|transversal|sag|sagittal|cor|coronal|obl|oblique)"
ORIENTATION = re.compile(  # words of names that say how the slices lie, or which of several runs it is
    rf"run-\w+|acq-{PLANE}(\d+(mm)?)?|{PLANE}", re.IGNORECASE
)
WEIGHTINGS = {  # the first that is found; a T1 FLAIR is a T1w scan
    "T1w": r"(?<![a-z\d])t1(?!\d|rho)|mp-?rage|bravo|f?spgr(?![a-z])|inplanet1",
    "T2*w": r"(?<![a-z\d])t2 ?(\*|star)|(?<![a-z])swi(?![a-z])",
    "FLAIR": r"flair|tirm|dark ?fluid",
    "T2w": r"(?<![a-z\d])t2(?!\d)|inplanet2",
    "PDw": r"(?<![a-z])pd(?![a-su-z])|proton ?density",
}
AGENT = re.compile(r"(?<![a-z])(gd|gad[a-z]*|km|post|ce-(?!none)\w+|t1w?(gd|ce|c))(?![a-z])|\+ ?c(?![a-z])")
NO_AGENT = re.compile(r"(?<![a-z])(pre|nativ|native|ce-none)(?![a-z])")
SAME_TIME = 1.2  # ratio of echo or inversion times; protocols of one contrast differ a little by direction
SAME_REPETITION = 2.0  # ratio of repetition times, which depend on the number of slices too
PARALLEL = 0.9  # cosine of the angle between slices; series of one direction are repeats, or of another contrast
ISOTROPIC = 1.3  # the longest edge of a voxel over the shortest
THINNER = 0.6  # most of the spacing of the slices that a scan along them guides
BEST = ("T1w", "T2w", "FLAIR", "PDw", "T2*w")  # guides, by what they bring (docs/benchmarks.md)


def contrast_of(name: str) -> str:
    """A name without the words that say how the slices lie.

    >>> [contrast_of(name) for name in ("sub-01_acq-ax_run-2_T2w", "t2_tse_tra_320", "acq-pre_T1w")]
    ['sub-01 t2w', 't2 tse 320', 'acq-pre t1w']
    """
    return " ".join(
        word for word in re.split(r"[^A-Za-z0-9+*-]+", name.lower()) if word and not ORIENTATION.fullmatch(word)
    )


@dataclass(frozen=True)
class Protocol:
    """Facts on a scan of one stack, by headers and names.

    Attributes:
        head: patient and study of DICOM; folder, and what the name says before its contrast.
        frame: of reference; empty outside of DICOM.
        words: `contrast_of` the name or the series description.
        weighting: one of `WEIGHTINGS`; empty where nothing says it.
        agent: whether a contrast agent was given; None where nothing says so.
        times: `(3,)`, echo, inversion and repetition time in ms; NaN where they are missing.
        normal: `(3,)`, of the slices of DICOM; zeros of other scans.
    """

    head: tuple[str, ...]
    frame: str
    words: str
    weighting: str
    agent: bool | None
    times: np.ndarray
    normal: np.ndarray

    @classmethod
    def of(cls, scan: Scan) -> Protocol:
        keys = ("EchoTime", "InversionTime", "RepetitionTime")
        if isinstance(scan.source, dicom.Series):
            header = dicom.read_headers(scan.source)[0][0]
            said = " ".join(str(value(header, key, "")) for key in ("SeriesDescription", "SequenceName"))
            words = contrast_of(str(value(header, "SeriesDescription", "")))
            head = tuple(str(value(header, key, "")) for key in ("PatientID", "StudyInstanceUID"))
            frame, given = (str(value(header, key, "")) for key in ("FrameOfReferenceUID", "ContrastBolusAgent"))
            times = np.array([numbers(header, key, 1)[0] for key in keys])
            normal = np.cross(*numbers(header, "ImageOrientationPatient", 6).reshape(2, 3))
        else:
            name = stem(scan.source.name)
            words, frame, normal = contrast_of(name), "", np.zeros(3)
            fields = [_field(scan.source, key) for key in keys]
            times = np.array([1000 * one if isinstance(one, int | float) else np.nan for one in fields])
            given = str(_field(scan.source, "ContrastBolusIngredient") or "")
            said = f"{name} {_field(scan.source, 'SeriesDescription') or ''}"
            head = (str(scan.source.parent), _before_contrast(name))
        said = re.sub(r"[_\s]+", " ", said.lower())
        weighting = next((name for name, words in WEIGHTINGS.items() if re.search(words, said)), "")
        agent = True if given.strip() and given.strip().lower() not in ("none", "no") else None
        if agent is None and (AGENT.search(said) or NO_AGENT.search(said)):
            agent = bool(AGENT.search(said))
        return cls(head, frame, words, weighting, agent, times, normal)

    def other_contrast(self, other: Protocol) -> str | None:
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


def _field(path: Path, name: str) -> object:
    """A field of a scan's sidecars; None where one cannot be read, which is said when the scan is."""
    try:
        return bids.sidecar_value(path, name)[0]
    except InputError:
        return None


def _before_contrast(name: str) -> str:
    """The words of a name before its contrast, direction and protocol: the person, if any.

    >>> [_before_contrast(name) for name in ("anna_T2_ax", "anna-2_flair", "T1w", "sub-01_acq-ax_T2w")]
    ['anna', 'anna-2', '', 'sub-01']
    """
    kept: list[str] = []
    for word in re.split(r"[_\s]+", name.lower()):
        contrast = any(re.search(one, word) for one in WEIGHTINGS.values())
        if contrast or ORIENTATION.fullmatch(word) or re.match("(acq|ce|run|rec|part|echo|inv)-", word):
            break
        kept.append(word)
    return "_".join(kept)


class Role(NamedTuple):
    """A scan's part beside another, and why; the guide of the least rank is the best."""

    scan: Scan
    what: Literal["joins", "guides", "is left alone"]
    why: str
    rank: tuple[int, ...] = ()


def guided(scans: Sequence[Scan], others: Sequence[Scan], may_guide: Callable[[Scan], bool]) -> list[Scan]:
    """Scans, each with the best guide among all, also among `others`, if any. The log says which, and why.

    `may_guide` says whether a scan shows a head, and is asked for the best ones alone.
    """
    protocol = cache(Protocol.of)  # which reads files
    heads: dict[tuple[str, ...], list[Scan]] = {}
    for one in (*(stack for scan in scans for stack in scan.each), *others):
        heads.setdefault(protocol(one).head, []).append(one)
    result = []
    for scan in scans:
        try:
            found = roles(scan, heads[protocol(scan.each[0]).head], protocol)
        except InputError as error:  # which is said again when it is rebuilt
            found = [Role(scan, "is left alone", str(error))]
        best = next((role for role in found if role.what == "guides" and may_guide(role.scan)), None)
        if best is not None:
            logger.info(f"{best.scan.name} guides {scan.name}: {best.why}.")
            scan = replace(scan, guide=best.scan, guide_reason=best.why)
        else:
            reasons = [f"{role.scan.name}: {role.why}" for role in found if role.what != "guides"]
            logger.info(f"{scan.name} has no guide. {few(reasons) if reasons else 'No scan of its head is there'}.")
        result.append(scan)
    return result


def roles(scan: Scan, others: Sequence[Scan], protocol: Callable[[Scan], Protocol] = Protocol.of) -> list[Role]:
    """The role of each other scan beside a thick one, guides first and the best of them at the head.

    A scan of the same patient and study, or of the same folder and person, that is of another contrast and sharp along
    the slices of the thick one guides it: best a 3-D one, then a stack of another direction, then a stack of the same
    direction whose slices are at most `THINNER` as far apart. Results, maps, masks and localizers are not among them.
    """
    own, each = protocol(scan.each[0]), [one.source for one in scan.each]
    directions, edges = _lies(scan.each[0])
    axis = slice_axis(edges)
    slices = directions[:, axis], float(edges[axis])
    found = [_role(own, *slices, other, protocol(other)) for other in others if other.source not in each]
    return sorted(found, key=lambda role: (role.what != "guides", role.rank))


def _role(own: Protocol, normal: np.ndarray, spacing: float, other: Scan, theirs: Protocol) -> Role:
    """The role of a scan beside one of thick slices with this normal and spacing."""
    if theirs.head != own.head:
        return Role(other, "is left alone", "it is of another person, session or study")
    why = own.other_contrast(theirs)
    try:
        directions, edges = _lies(other)
    except Exception as error:  # noqa: BLE001  # a broken file guides nothing, and says so when it is rebuilt
        return Role(other, "is left alone", f"it cannot be read ({error})")
    thick = slice_axis(edges)
    turned = abs(float(normal @ directions[:, thick])) < PARALLEL
    if why is None and not (own.weighting and theirs.weighting):
        return Role(other, "is left alone", "neither its name nor its header says that it is of another contrast")
    if why is None and turned:
        return Role(other, "joins", "it has the same contrast and another direction")
    if why is None:
        return Role(other, "is left alone", "it has the same contrast and the same direction")
    if edges.max() <= ISOTROPIC * edges.min() and edges.max() <= THINNER * spacing:
        kind, sharp = 0, f"its voxels of {edges.max():.2g} mm are isotropic"
    elif turned and edges[int(np.abs(normal @ directions).argmax())] <= THINNER * spacing:
        kind, sharp = 1, "its slices lie in another direction"
    elif not turned and edges[thick] <= THINNER * spacing:
        kind, sharp = 2, f"its slices are {edges[thick]:.2g} mm apart, not {spacing:.2g} mm"
    else:
        return Role(other, "is left alone", f"it is not sharp across the slices: {edges[thick]:.2g} mm apart")
    best = BEST.index(theirs.weighting) if theirs.weighting in BEST else len(BEST)
    return Role(other, "guides", f"{why}; {sharp}", (kind, best, bool(theirs.agent)))


def _lies(scan: Scan) -> tuple[np.ndarray, np.ndarray]:
    """Directions of a scan's axes, `(3, 3)` in columns, RAS+, and its voxels' edges in mm, `(3,)`."""
    if isinstance(scan.source, dicom.Series):
        headers = dicom.read_headers(scan.source)[0]
        rows, columns = numbers(headers[0], "ImageOrientationPatient", 6).reshape(2, 3)
        axes = np.stack([rows, columns, np.cross(rows, columns)], 1) * [[-1], [-1], [1]]
        places = np.sort([numbers(one, "ImagePositionPatient", 3) @ np.cross(rows, columns) for one in headers])
        height, width = numbers(headers[0], "PixelSpacing", 2)
        return axes, np.array([width, height, float(np.median(np.diff(places)))])
    _, image = ScanReader().read(scan.source)
    edges = voxel_spacing(image.affine)
    return np.asarray(image.affine)[:3, :3] / edges, edges


def grouped(scans: Sequence[Scan], named: Sequence[Scan], reference: str | None = None) -> list[Scan]:
    """Scans, of which those of one head and contrast are joined.

    Files and folders that hold one scan each, and were given by name, belong together. So do volumes of one folder
    whose names differ only in words such as `axial`, `acq-sag` or `run-...`, and DICOM series of one study that are
    alike in all but their direction. A scan that is left alone is logged, with the reason.

    Args:
        scans: each of one stack.
        named: those of them that were given by name, where several were.
        reference: a shell pattern on paths and series' names. In each group the first scan that it matches gives grid,
            place and units, else the first scan.
    """
    if reference is not None and not any(_matches(scan, reference) for scan in scans):
        names = few([scan.name for scan in scans])
        raise InputError(f"--reference {reference} matches no scan: expected one of {names}.")
    protocols = {scan: Protocol.of(scan) for scan in scans}
    for other in named[1:]:
        if why := protocols[named[0]].other_contrast(protocols[other]):
            raise InputError(
                f"{named[0].name} and {other.name} are not of one contrast: {why}. Leave out --together, or give the "
                "stacks of one contrast."
            )
    groups: list[list[Scan]] = [list(named)] if named else []
    for scan in (scan for scan in scans if scan not in named):
        for group in groups[bool(named) :]:
            if not any(_apart(protocols[scan], protocols[other]) for other in group):
                group.append(scan)
                break
        else:
            groups.append([scan])
    for (scan,) in (group for group in groups if len(group) == 1):
        same = [one for one in scans if one is not scan and protocols[one].head == protocols[scan].head]
        reasons = [f"not with {one.name}, for {_apart(protocols[scan], protocols[one])}" for one in same]
        why = few(reasons) if reasons else "no other stack of its head and contrast is there"
        logger.info(f"{scan.name} is left alone: {why}.")
    return [group[0] if len(group) == 1 else _one(group, reference) for group in groups]


def _apart(one: Protocol, other: Protocol) -> str | None:
    """Why two scans do not join in one volume; None where they do."""
    if one.head != other.head or one.frame != other.frame:
        return "it is of another person, session, study or frame of reference"
    if why := one.other_contrast(other):
        return why
    if one.words != other.words:
        return "its name says something else"
    parallel = abs(float(one.normal @ other.normal)) >= PARALLEL
    return "its slices lie in the same direction" if parallel else None


def _matches(scan: Scan, pattern: str) -> bool:
    names = [scan.name] if scan.path is None else [str(scan.path), scan.path.name]
    return any(fnmatchcase(name, pattern) for name in names)


def _one(group: Sequence[Scan], reference: str | None) -> Scan:
    """The scan that a group is."""
    first = next((scan for scan in group if reference is not None and _matches(scan, reference)), group[0])
    stacks = (first, *(scan for scan in group if scan is not first))
    logger.info(f"{len(stacks)} stacks go together: " + ", ".join(scan.name for scan in stacks) + ".")
    if first.dataset is not None:
        *entities, suffix = first.result.name.split("_")
        *kept, label = [one for one in entities if not ORIENTATION.fullmatch(one)]  # of `bids.derivative_name`: desc-sr
        result = "_".join([*kept, f"{label.removesuffix('sr')}together", suffix])
    else:
        result = f"{first.result.name.removesuffix('_sr')}_together_sr"
    return replace(
        first,
        name=" + ".join(scan.name for scan in stacks),
        files=tuple(file for scan in stacks for file in scan.files),
        result=first.result.with_name(result),
        stacks=stacks,
    )
