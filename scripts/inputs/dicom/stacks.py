"""How images of one acquisition make stacks: by geometry and contrast. Labels that programs change split none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations, pairwise

import numpy as np

from ...errors import few
from ...stack import grid
from ...stack.acquisition import ALREADY_THIN, is_thin
from ...stack.tissue import TISSUE
from .. import kinds
from .headers import CONTRAST, DISTINCTIVE, LABELS, Frame, intensities, read_dataset
from .places import SAME_PLACE, gaps, multiples, places, spacing

MAX_VOLUMES = 8  # more at one place are a dynamic, functional or diffusion series
SAME_PLANE = 0.5  # pixels by which planes may lie apart in the field of view, besides a turn of `grid.MAX_SHEAR`
NEARLY_PARALLEL = 5  # degrees between slices that may be of one stack, were they not turned
SAME_VALUE = 1.02  # ratio of times and angles that are one contrast: scanners adapt them a little from slice to slice
NUMBERS = {"EchoTime", "InversionTime", "DiffusionBValue", "RepetitionTime", "FlipAngle"}
OVERLAP = 0.6  # of the thickness: slices that lie nearer to each other are of two stacks that lie within each other
ALIKE = 1.25  # times the difference of next but one slices: neighbours of one contrast differ by no more
LARGE = 0.8  # of the largest area of tissue; slices at the end of a whole head have less
BLOCKS = 32  # along each edge of an image, whose means are compared


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
    parallel: list[list[Frame]] = []  # of one orientation and matrix each
    for frame in fit:
        for others in parallel:
            if _one_grid(frame, others[0]):
                others.append(frame)
                break
        else:
            parallel.append([frame])
    least = grid.MIN_SLICES if len(parallel) > 1 else 1
    large = [stack for stack in parallel if len(stack) >= least]
    why = f"mixed orientations or matrices: {len(parallel)} in one series"
    normals = np.array([stack[0].normal for stack in large or parallel]).reshape(-1, 3)
    cosine = abs(normals @ normals.T).min(initial=1)
    if cosine < np.cos(np.pi / 4):  # more than 45 degrees apart
        yield list(chain(*parallel)), f"{why}, as in a localizer", ""
        return
    torn = [stack for stack in parallel if any(_torn(stack, other) for other in parallel if other is not stack)]
    strays = [stack for stack in parallel if len(stack) < least and stack not in torn]
    if torn:
        turned = f"turns of more than {grid.MAX_SHEAR} degrees or other pixels"
        yield list(chain(*torn)), f"{why}, which make one stack but for {turned}. Export the series again", ""
    if strays:
        yield list(chain(*strays)), f"{why}, and fewer than {grid.MIN_SLICES} slices of each of these", ""
    for stack in (stack for stack in large if stack not in torn):
        volumes = _volumes(stack)
        if len(volumes) > MAX_VOLUMES:
            yield stack, f"{len(volumes)} volumes at one place: a dynamic, functional or diffusion series", ""
        else:
            for part in chain(*map(_within_each_other, volumes)):
                yield _described(part, thin, longest_part)


def acquisitions(series: Sequence[list[Frame]]) -> list[list[Frame]]:
    """Joins series whose slices make one stack: odd and even ones under two UIDs, or a UID for each image."""
    candidates: dict[str, list[list[Frame]]] = {}
    joined = []
    for frames in series:
        first = frames[0]
        if all(not _reason(frame) and _one_grid(frame, first) for frame in frames):
            whose = (first.distinctive[one] for one in ("PatientName", "PatientID", "StudyInstanceUID"))
            known = next((one for one in whose if one not in ("", "None", "NONE")), "")
            candidates.setdefault(known, []).append(frames)
        else:
            joined.append(frames)
    for groups in candidates.values():
        few_slices = [group for group in groups if len(group) < grid.MIN_SLICES]
        merged = [group for group in groups if len(group) >= grid.MIN_SLICES]
        singles: list[list[Frame]] = []
        for group in few_slices:
            for others in singles:
                if _one_grid(group[0], others[0]) and _one_protocol([*others, *group], "SeriesDescription"):
                    others.extend(group)
                    break
            else:
                singles.append(list(group))
        for group in singles:
            parts = [one for one in few_slices if one[0] in group]
            whole = len(places(group)) == len(group) >= grid.MIN_SLICES
            merged += [group] if whole else parts
        while pair := next((pair for pair in combinations(merged, 2) if _one_stack(*pair)), None):
            merged = [*(group for group in merged if group not in pair), [*pair[0], *pair[1]]]
        joined += merged
    return joined


def two_persons(frames: Sequence[Frame]) -> bool:
    """Whether images are of two persons: neither name nor ID is the same, as far as there are any."""
    people = {tuple(frame.distinctive[one] for one in ("PatientName", "PatientID")) for frame in frames}
    for pair in combinations(sorted(people), 2):
        known = [(a, b) for a, b in zip(*pair) if not {a, b} & {"", "None", "NONE"}]
        if known and all(a != b for a, b in known):
            return True
    return False


def ends_in_tissue(frames: Sequence[Frame]) -> bool:
    """Whether a stack of slices ends where tissue is nearly as large as it is at its largest, as if it were cut."""
    slices = [_blocks(first) for first, *_ in places(frames)]
    bright = TISSUE * max(float(np.percentile(one, 99)) for one in slices)
    areas = [int((one > bright).sum()) for one in slices]
    return max(areas[0], areas[-1]) > LARGE * max(areas)


def _reason(frame: Frame) -> str | None:
    return frame.unfit or frame.shows


def _one_protocol(frames: Sequence[Frame], *attributes: str) -> bool:
    """Whether images have one contrast by their headers, and one value of further attributes."""
    said = [{str(frame.header.get(one)) for frame in frames} for one in attributes]
    return all(len(_different(frames, one)) < 2 for one in CONTRAST) and all(len(values) == 1 for values in said)


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


def _parts(frames: Sequence[Frame], attribute: str) -> dict[str, list[Frame]]:
    """Images by the values of an attribute."""
    found: dict[str, list[Frame]] = {}
    for frame in frames:
        found.setdefault(frame.distinctive[attribute], []).append(frame)
    return {one: found[one] for one in sorted(found)}


def _volumes(frames: list[Frame], attributes: Sequence[str] = DISTINCTIVE) -> list[list[Frame]]:
    """Splits a stack by the first attribute that tells images at one place apart, and so on until none does.

    An attribute that would leave every other slice in each part numbers the slices, not the volumes.
    """
    together = places(frames)
    for further, name in enumerate(attributes, start=1):
        if any(len({frame.distinctive[name] for frame in place}) > 1 for place in together):
            parts = list(_parts(frames, name).values())
            if max(map(spacing, parts)) <= 1.5 * spacing(frames):
                return [volume for part in parts for volume in _volumes(part, attributes[further:])]
    return [frames]


def _different(frames: Sequence[Frame], attribute: str) -> list[str]:
    """Values of an attribute that are different contrasts, in order; times and angles that hardly differ are one."""
    values = sorted({frame.distinctive[attribute] for frame in frames} - {"None"})
    if attribute not in NUMBERS:
        return values
    try:
        ordered = sorted(values, key=float)
    except ValueError:  # words where numbers belong
        return values
    return ordered[:1] + [b for a, b in pairwise(ordered) if float(b) > SAME_VALUE * float(a)]


def _within_each_other(frames: list[Frame]) -> list[list[Frame]]:
    """The stacks of one contrast each that lie within each other, where that is sure: each is whole, without wide gaps.

    Two echoes that lie half a slice apart are such stacks. Parts that lie beside each other are none: one echo above
    and another below are a broken stack.
    """
    for attribute in (*CONTRAST, "ImageType"):
        parts = list(_parts(frames, attribute).values())
        apart = 1 < len(parts) == len(_different(frames, attribute)) and all(map(_whole, parts))
        if apart and all(_overlap(*pair) for pair in combinations(parts, 2)):
            return [volume for part in parts for volume in _within_each_other(part)]
    return [frames]


def _overlap(part: Sequence[Frame], other: Sequence[Frame]) -> bool:
    """Whether slices of one part lie between those of another."""
    order = [frame in part for frame, *_ in places([*part, *other])]
    return sum(a != b for a, b in pairwise(order)) > 1


def _whole(frames: list[Frame]) -> bool:
    """Whether slices are an even stack that lacks none, by their thickness as well."""
    pitch, thickness = spacing(frames), float(np.nan_to_num(frames[0].thickness))
    return 0 < pitch <= 1.5 * thickness and bool((abs(gaps(frames) - pitch) <= SAME_PLACE + 0.1 * pitch).all())


def _described(frames: list[Frame], thin: float | None, longest_part: bool) -> tuple[list[Frame], str | None, str]:
    """A stack, the reason to skip it or None, and a note."""
    why = _contrasts(frames) or _not_one(frames, longest_part)
    kept, note = _unbroken(frames) if longest_part and not why else (frames, "")
    joined, mixed = (None, "") if why else _labels(kept)
    return kept, why or mixed or _needless(kept, thin), " ".join(one for one in (note, joined) if one)


def _contrasts(frames: list[Frame]) -> str | None:
    """Why a stack is of several contrasts by its headers; None if it is of one."""
    for attribute, name in CONTRAST.items():
        values = [one.removesuffix(".0") for one in _different(frames, attribute)]
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
    different = [name for name in LABELS if len(_different(frames, name)) > 1]
    if not different:
        return None, None
    said = " and ".join(f"{len(_different(frames, name))} {LABELS[name]}" for name in different)
    if all(_pixels_alike(frames, name) for name in different):
        return f"slices have {said}: they are joined, since their pixels are of one contrast.", None
    return None, f"slices have {said}, and their pixels are of several contrasts. Export the series again"


def _pixels_alike(frames: list[Frame], attribute: str) -> bool:
    """Whether slices on both sides of a change of an attribute differ no more than others do."""
    firsts = [first for first, *_ in places(frames)]
    try:
        slices = [_blocks(first) for first in firsts]
    except Exception:  # noqa: BLE001  # what is wrong with a file is said when the series is read
        return True
    labels = [first.distinctive[attribute] for first in firsts]

    def apart(i: int, j: int) -> float:
        return float(abs(slices[i] - slices[j]).sum() / max(abs(slices[i]).sum() + abs(slices[j]).sum(), 1e-9))

    across = [k for k in range(len(labels) - 1) if labels[k] != labels[k + 1]]
    beside = [(k - 1, k + 1) for k in range(1, len(labels) - 1) if {k - 2, k - 1, k, k + 1} & set(across)]
    own = [pair for pair in beside if labels[pair[0]] == labels[pair[1]]] or beside
    here = np.mean([apart(k, k + 1) for k in across])
    return bool(here <= ALIKE * np.mean([apart(*pair) for pair in own]))


def _blocks(frame: Frame) -> np.ndarray:
    """Mean intensities of an image in blocks."""
    plane = _plane(frame)
    rows, columns = (np.linspace(0, n, min(n, BLOCKS) + 1).astype(int)[:-1] for n in plane.shape)
    sums = np.add.reduceat(np.add.reduceat(plane, rows, 0), columns, 1)
    counts = np.add.reduceat(np.add.reduceat(np.ones_like(plane), rows, 0), columns, 1)
    return sums / counts


def _plane(frame: Frame) -> np.ndarray:
    dataset = read_dataset(frame.image[0])
    stored = dataset.pixel_array
    return intensities(stored[frame.image[1]] if stored.ndim > 2 else stored, frame.header)


def _not_one(frames: list[Frame], longest_part: bool) -> str | None:
    """Why images are two stacks that lie apart, or repeats; None if they are one stack."""
    pitch, together = spacing(frames), places(frames)
    if not pitch:
        return f"fewer than {grid.MIN_SLICES} slices"
    aside = [_aside(place) for place in together]
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
    at_once = int(np.median([len({frame.instance for frame in place}) for place in together]))
    if at_once > 1 and not _copies(frames):
        return f"{at_once} images at each place, which no attribute tells apart: an ASL, functional or repeated series"
    return None


def _aside(place: Sequence[Frame]) -> float:
    """How far images at one place lie beside each other, in mm."""
    return float(max(np.linalg.norm(frame.position - place[0].position) for frame in place))


def _needless(frames: list[Frame], thin: float | None) -> str | None:
    """Why a stack need not be rebuilt; None if it needs it.

    Slices that are finer than one edge of their pixels are a reformat of thick slices, which lie along that edge.
    """
    pitch, pixel = spacing(frames), float(frames[0].plane[6:].max())
    _, finer, largest = sorted([pitch, *frames[0].plane[6:]])
    if thin is not None and is_thin(float(largest), float(np.nan_to_num(frames[0].thickness)), float(finer), thin):
        return f"{ALREADY_THIN}: slices {pitch:.3g} mm apart, pixels of {pixel:.3g} mm"
    return None


def _unbroken(frames: list[Frame]) -> tuple[list[Frame], str]:
    """The longest part of a stack that lacks no slice, the first of equals, and what is said of it; empty for all."""
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


def _copies(frames: list[Frame]) -> bool:
    """Whether all images at one place have the same pixels: a series that was sent twice, under new UIDs."""
    try:
        return all(len({_plane(frame).tobytes() for frame in place}) == 1 for place in places(frames))
    except Exception:  # noqa: BLE001  # pydicom and the decoders raise many types for a broken file
        return False
