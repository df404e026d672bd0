"""How images of one acquisition make stacks, by geometry and contrast, and which stacks are not rebuilt.

Labels that programs change split no stack.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, combinations, pairwise
from typing import TypeVar

import numpy as np

from ...errors import InputError, few
from ...stack import grid
from ...stack.interleaving import alike_across
from ...stack.planes import gaps, multiples, one_grid, places, spacing, torn
from .. import kinds
from ..headers import CONTRAST, DISTINCTIVE, LABELS, UNSAID, Frame, numbers, patient, value
from .pixels import blocks, copies
from .policies import PHILIPS_COUNT

MAX_VOLUMES = 8  # more at one place are a dynamic, functional or diffusion series
OVERLAP = 0.6  # of the thickness: slices that lie nearer to each other are of two stacks
COUNTS = {  # of the images of an acquisition, for people: attribute
    "ImagesInAcquisition": "ImagesInAcquisition",
    "Number of Slices MR of Philips": PHILIPS_COUNT,
}
LOST = (
    "{} of {} images are not there, by {} of the header: an end of the head may be missing. Export the series again if "
    "so."
)
SAME_VALUE = 1.02  # ratio of times and angles that are one contrast: scanners adapt them a little from slice to slice
NUMBERS = {"EchoTime", "InversionTime", "DiffusionBValue", "RepetitionTime", "FlipAngle"}
One = TypeVar("One")


def stacks(frames: list[Frame], longest_part: bool) -> Iterator[tuple[list[Frame], str | None, str]]:
    """Splits images of one of `acquisitions` into volumes: images, the reason to skip them or None, and a note."""
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
    alike = grouped(fit, lambda frame, others: one_grid(frame.stored_as(others[0]), others[0]))
    parallel = [[frame.stored_as(group[0]) for frame in group] for group in alike]
    large = [stack for stack in parallel if len(stack) >= grid.MIN_SLICES]
    why = f"mixed orientations or matrices: {len(parallel)} in one series"
    normals = np.array([stack[0].normal for stack in large or parallel]).reshape(-1, 3)
    cosine = abs(normals @ normals.T).min(initial=1)
    if cosine < np.cos(np.pi / 4):  # more than 45 degrees apart
        yield list(chain(*parallel)), f"{why}, as in a localizer", ""
        return
    parts = [stack for stack in parallel if any(torn(stack, other) for other in parallel if other is not stack)]
    if parts:
        turned = f"turns of more than {grid.MAX_SHEAR} degrees or other pixels"
        yield list(chain(*parts)), f"{why}, which make one stack but for {turned}. Export the series again", ""
    for stack in (stack for stack in parallel if stack not in parts):
        volumes = _volumes(stack)
        if len(volumes) > MAX_VOLUMES:
            yield stack, f"{len(volumes)} volumes at one place: a dynamic, functional or diffusion series", ""
        else:
            for volume in volumes:
                yield described(volume, longest_part)


def acquisitions(series: Sequence[list[Frame]]) -> list[list[Frame]]:
    """Joins series whose slices make one stack: odd and even ones under two UIDs, or a UID for each image."""
    candidates: dict[tuple, list[list[Frame]]] = {}
    joined = []
    for frames in series:
        first = frames[0]
        if all(not _reason(frame) and one_grid(frame, first) for frame in frames):
            whose = patient(first.header), first.distinctive["StudyInstanceUID"], first.shape
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


def _one_series(frames: list[Frame], others: Sequence[list[Frame]]) -> bool:
    """Whether images under a series UID for each may be of one stack."""
    every = [*chain(*others), *frames]
    described = {str(frame.header.get("SeriesDescription")) for frame in every}
    return len(described) == 1 and one_grid(frames[0], every[0]) and not _contrasts(every)


def _one_stack(part: Sequence[Frame], other: Sequence[Frame]) -> bool:
    """Whether slices of two groups are parts of one even stack: beside each other or between each other."""
    both = [*part, *other]
    if not one_grid(part[0], other[0]) or _contrasts(both) or two_persons(both):
        return False
    found = places(both)
    if len(found) < grid.MIN_SLICES or len(found) < len(places(part)) + len(places(other)):
        return False
    pitch, thickness = spacing(both), float(np.nan_to_num(part[0].thickness))
    count, even = multiples(gaps(both), pitch)
    return bool((even & (count == 1)).all()) and pitch >= OVERLAP * thickness


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


def different(frames: Sequence[Frame], attribute: str) -> list[str]:
    """Values of an attribute that are different contrasts, in order; times and angles that hardly differ are one."""
    values = sorted({frame.distinctive[attribute] for frame in frames} - {"None"})
    if attribute not in NUMBERS:
        return values
    try:
        ordered = sorted(values, key=float)
    except ValueError:  # words where numbers belong
        return values
    return ordered[:1] + [b for a, b in pairwise(ordered) if float(b) > SAME_VALUE * float(a)]


def described(frames: list[Frame], longest_part: bool) -> tuple[list[Frame], str | None, str]:
    """A stack, the reason to skip it or None, and a note."""
    if why := _contrasts(frames) or _not_one(frames, longest_part):
        return frames, why, ""
    kept, note = _unbroken(frames) if longest_part else (frames, "")
    joined, mixed = _labels(kept)
    return kept, mixed, " ".join(filter(None, (note, joined)))


def _contrasts(frames: Sequence[Frame]) -> str | None:
    """Why a stack is of several contrasts by its headers; None if it is of one."""
    for attribute, name in CONTRAST.items():
        values = [one.removesuffix(".0") for one in different(frames, attribute)]
        if len(values) > 1:
            return (
                f"slices have {len(values)} {name} ({few(values)}), which one volume has not. Export each of its "
                "volumes as a series of its own"
            )
    return None


def _labels(frames: list[Frame]) -> tuple[str | None, str | None]:
    """A note on labels that differ within a stack of one contrast, and why it is skipped if its pixels are of several.

    Neighbouring slices of one contrast differ less than slices that lie two places apart. Across a change of labels,
    each is compared with the slices of its own label that are next to it.
    """
    differ = [name for name in LABELS if len(different(frames, name)) > 1]
    if not differ:
        return None, None
    said = " and ".join(f"{len(different(frames, name))} {LABELS[name]}" for name in differ)
    with suppress(InputError):  # which is said when the series is read
        slices, firsts = blocks(frames), [first for first, *_ in places(frames)]
        if not all(alike_across(slices, [one.distinctive[name] for one in firsts]) for name in differ):
            return None, f"slices have {said}, and their pixels are of several contrasts. Export the series again"
    return f"slices have {said}: they are joined, since their pixels are of one contrast.", None


def _not_one(frames: list[Frame], longest_part: bool) -> str | None:
    """Why images are two stacks that lie apart, or repeats; None if they are one stack."""
    pitch, together = spacing(frames), places(frames)
    if not pitch:
        few_places = f"{len(together)} place{'s' * (len(together) > 1)}"
        where = f": {len(frames)} images lie at {few_places}" if len(frames) > len(together) else ""
        return f"fewer than {grid.MIN_SLICES} slices{where}"
    aside = [max(np.linalg.norm(frame.position - place[0].position) for frame in place) for place in together]  # mm
    if min(aside) > max(frames[0].plane[6:]):
        return (
            f"two parallel stacks beside each other, {np.median(aside):.3g} mm apart. Export each as a series of its "
            "own"
        )
    steps = gaps(frames)
    (breaks,) = np.nonzero(steps > 1.5 * pitch)
    runs = [len(run) for run in np.split(np.arange(len(together)), breaks + 1)]
    count, even = multiples(steps[breaks], pitch)
    wide = count - 1 >= min(runs)
    if not longest_part and len(runs) > 1 and min(runs) >= grid.MIN_SLICES and (~even | wide).all():
        counts = " and ".join(map(str, runs))
        return (
            f"{len(runs)} parallel stacks of {counts} slices, {steps[breaks].max():.3g} mm apart. Export each as a "
            "series of its own, or set --missing_slices longest, which rebuilds the longest"
        )
    images = [{(str(value(one.header, "SOPInstanceUID")), one.image[1]) for one in place} for place in together]
    at_once = int(np.median([*map(len, images)]))  # copies of a file are one
    if at_once > 1 and not copies(frames):
        return f"{at_once} images at each place, which no attribute tells apart: an ASL, functional or repeated series"
    return None


def lost(frames: list[Frame]) -> str:
    """A note on images that a header counts and that are not there: no geometry tells of a lost end. Empty for none."""
    for name, attribute in COUNTS.items():
        said = int(np.nan_to_num(min(numbers(frame.header, attribute, 1)[0] for frame in frames)))
        if said > len(frames):
            return LOST.format(said - len(frames), said, name)
    return ""


def _unbroken(frames: list[Frame]) -> tuple[list[Frame], str]:
    """The longest part of a stack that lacks no slice, the first of equals, and a note; empty for all."""
    together, steps = places(frames), gaps(frames) / spacing(frames)
    (breaks,) = np.nonzero(steps > 1.5)
    parts = np.split(np.arange(len(together)), breaks + 1)
    longest = max(parts, key=len)
    if len(parts) == 1 or len(longest) < grid.MIN_SLICES:
        return frames, ""
    missing = int(np.round(steps[breaks]).sum()) - len(breaks)
    note = (
        f"{missing} of {len(together) + missing} slices are missing: {len(longest)} slices, the longest unbroken part, "
        "are rebuilt, and the others are left out."
    )
    return [frame for index in longest for frame in together[index]], note
