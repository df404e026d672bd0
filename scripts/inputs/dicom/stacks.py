"""How images of one acquisition make stacks: by geometry and contrast. Labels that programs change split none."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import TypeVar

import numpy as np

from ...stack import grid
from .. import kinds
from ..headers import CONTRAST, DISTINCTIVE, UNSAID, Frame
from .places import gaps, multiples, places, spacing
from .stack_policies import described, different

MAX_VOLUMES = 8  # more at one place are a dynamic, functional or diffusion series
SAME_PLANE = 0.5  # pixels by which planes may lie apart in the field of view, besides a turn of `grid.MAX_SHEAR`
NEARLY_PARALLEL = 5  # degrees between slices that may be of one stack, were they not turned
OVERLAP = 0.6  # of the thickness: slices that lie nearer to each other are of two stacks
One = TypeVar("One")


def stacks(
    frames: list[Frame], thin: float | None, longest_part: bool
) -> Iterator[tuple[list[Frame], str | None, str]]:
    """Splits the images of one acquisition into volumes: images, the reason to skip them or None, and a note.

    Args:
        frames: of `acquisitions`.
        thin, longest_part: see `select.find_series`.
    """
    if two_persons(frames):
        yield frames, "slices of two persons, by PatientName and PatientID. Export the series of each person again", ""
        return
    diffusion = next((one.shows for one in frames if kinds.DIFFUSION_SERIES in (one.shows or "")), None)
    if diffusion:  # images without a b-value are of it, too
        frames = [frame if _reason(frame) else replace(frame, shows=diffusion) for frame in frames]
    fit = [frame for frame in frames if not _reason(frame)]
    for why in sorted({_reason(frame) or "" for frame in frames} - {""}):
        unfit = [frame for frame in frames if _reason(frame) == why]
        if fit and all(frame.shows and not frame.unfit for frame in unfit) and _one_stack(fit, unfit):
            yield [*fit, *unfit], f"{len(unfit)} of {len(fit) + len(unfit)} slices of one stack are {why}", ""
            fit = []
        else:
            yield unfit, why, ""
    alike = grouped(fit, lambda frame, others: _one_grid(frame.stored_as(others[0]), others[0]))
    parallel = [[frame.stored_as(group[0]) for frame in group] for group in alike]
    large = [stack for stack in parallel if len(stack) >= grid.MIN_SLICES]
    why = f"mixed orientations or matrices: {len(parallel)} in one series"
    normals = np.array([stack[0].normal for stack in large or parallel]).reshape(-1, 3)
    cosine = abs(normals @ normals.T).min(initial=1)
    if cosine < np.cos(np.pi / 4):  # more than 45 degrees apart
        yield list(chain(*parallel)), f"{why}, as in a localizer", ""
        return
    torn = [stack for stack in parallel if any(_torn(stack, other) for other in parallel if other is not stack)]
    if torn:
        turned = f"turns of more than {grid.MAX_SHEAR} degrees or other pixels"
        yield list(chain(*torn)), f"{why}, which make one stack but for {turned}. Export the series again", ""
    for stack in (stack for stack in parallel if stack not in torn):
        volumes = _volumes(stack)
        if len(volumes) > MAX_VOLUMES:
            yield stack, f"{len(volumes)} volumes at one place: a dynamic, functional or diffusion series", ""
        else:
            for volume in volumes:
                yield described(volume, thin, longest_part)


def acquisitions(series: Sequence[list[Frame]]) -> list[list[Frame]]:
    """Joins series whose slices make one stack: odd and even ones under two UIDs, or a UID for each image."""
    candidates: dict[tuple, list[list[Frame]]] = {}
    joined = []
    for frames in series:
        first = frames[0]
        if all(not _reason(frame) and _one_grid(frame, first) for frame in frames):
            whose = first.first_said("PatientName", "PatientID"), first.distinctive["StudyInstanceUID"], first.shape
            candidates.setdefault(whose, []).append(frames)
        else:
            joined.append(frames)
    for groups in candidates.values():
        merged = [group for group in groups if len(group) >= grid.MIN_SLICES]
        for alike in grouped([group for group in groups if len(group) < grid.MIN_SLICES], _one_series):
            whole = list(chain(*alike))
            merged += [whole] if len(places(whole)) == len(whole) >= grid.MIN_SLICES else alike
        parts = grouped(merged, lambda frames, others: _one_stack(list(chain(*others)), frames))
        joined += [list(chain(*one)) for one in parts]
    return joined


def grouped(every: Iterable[One], belongs: Callable[[One, list[One]], bool]) -> list[list[One]]:
    """Groups in the order of their first members. Each thing is in the first group that it belongs to."""
    groups: list[list[One]] = []
    for one in every:
        group = next((group for group in groups if belongs(one, group)), None)
        if group is None:
            groups.append(group := [])
        group.append(one)
    return groups


def two_persons(frames: Sequence[Frame]) -> bool:
    """Whether images are of two persons: neither name nor ID is the same, as far as there are any."""
    people = {tuple(frame.distinctive[one] for one in ("PatientName", "PatientID")) for frame in frames}
    pairs = ([(a, b) for a, b in zip(*pair) if not {a, b} & UNSAID] for pair in combinations(people, 2))
    return any(known and all(a != b for a, b in known) for known in pairs)


def _reason(frame: Frame) -> str | None:
    return frame.unfit or frame.shows


def _one_protocol(frames: Sequence[Frame], *attributes: str) -> bool:
    """Whether images have one contrast by their headers, and one value of further attributes."""
    said = [{str(frame.header.get(one)) for frame in frames} for one in attributes]
    return all(len(different(frames, one)) < 2 for one in CONTRAST) and all(len(values) == 1 for values in said)


def _one_series(frames: list[Frame], others: Sequence[list[Frame]]) -> bool:
    """Whether images under a series UID for each may be of one stack."""
    every = [*chain(*others), *frames]
    return _one_grid(frames[0], every[0]) and _one_protocol(every, "SeriesDescription")


def _one_stack(part: Sequence[Frame], other: Sequence[Frame]) -> bool:
    """Whether slices of two groups are parts of one even stack: beside each other or between each other."""
    both = [*part, *other]
    if not _one_grid(part[0], other[0]) or not _one_protocol(both) or two_persons(both):
        return False
    found = places(both)
    if len(found) < grid.MIN_SLICES or len(found) < len(places(part)) + len(places(other)):
        return False
    pitch, thickness = spacing(both), float(np.nan_to_num(part[0].thickness))
    count, even = multiples(gaps(both), pitch)
    return bool((even & (count == 1)).all()) and pitch >= OVERLAP * thickness


def _turn(frame: Frame, other: Frame) -> float:
    """Largest angle between the rows and between the columns of two planes, in degrees."""
    pairs = [(frame.plane[k : k + 3], other.plane[k : k + 3]) for k in (0, 3)]
    return float(np.degrees([np.arctan2(np.linalg.norm(np.cross(a, b)), a @ b) for a, b in pairs]).max())


def _one_grid(frame: Frame, other: Frame) -> bool:
    """Whether two planes have one matrix and, but for rounding of their headers, one orientation and pixel spacing."""
    if frame.shape != other.shape:
        return False
    apart = abs(frame.plane[6:] / other.plane[6:] - 1) * frame.shape  # pixels, at the far edges
    return _turn(frame, other) <= grid.MAX_SHEAR and bool(apart.max() <= SAME_PLANE)


def _torn(stack: list[Frame], other: list[Frame]) -> bool:
    """Whether two groups of slices are parts of one stack: nearly parallel, and between or beside each other."""
    if stack[0].shape != other[0].shape or _turn(stack[0], other[0]) > NEARLY_PARALLEL:
        return False
    both = [*stack, *other]
    if min(len(stack), len(other)) < grid.MIN_SLICES:
        return len(places(both)) == len(places(stack)) + len(places(other))
    return 1.5 * spacing(both) < max(spacing(stack), spacing(other))


def _volumes(frames: list[Frame], attributes: Sequence[str] = DISTINCTIVE) -> list[list[Frame]]:
    """Splits a stack by the first attribute that tells images at one place apart, and so on until none does.

    An attribute that would leave every other slice in each part numbers the slices, not the volumes.
    """
    together = places(frames)
    for further, name in enumerate(attributes, start=1):
        if any(len({frame.distinctive[name] for frame in place}) > 1 for place in together):
            values = sorted({frame.distinctive[name] for frame in frames})
            parts = [[frame for frame in frames if frame.distinctive[name] == one] for one in values]
            if max(map(spacing, parts)) <= 1.5 * spacing(frames):
                return [volume for part in parts for volume in _volumes(part, attributes[further:])]
    return [frames]
