"""Which stacks of images are not rebuilt, or only in their longest unbroken part, and why."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ...errors import few
from ...stack import grid
from ...stack.acquisition import ALREADY_THIN, is_thin
from ..headers import CONTRAST, LABELS, Frame, numbers
from .pixels import alike_across, copies
from .places import gaps, multiples, places, spacing
from .policies import PHILIPS_COUNT

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


def described(frames: list[Frame], thin: float | None, longest_part: bool) -> tuple[list[Frame], str | None, str]:
    """A stack, the reason to skip it or None, and a note."""
    why = _contrasts(frames) or _not_one(frames, longest_part)
    kept, note = _unbroken(frames) if longest_part and not why else (frames, "")
    joined, mixed = (None, "") if why else _labels(kept)
    return kept, why or mixed or _needless(kept, thin), " ".join(one for one in (note, joined) if one)


def _contrasts(frames: list[Frame]) -> str | None:
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
    if all(alike_across(frames, name) for name in differ):
        return f"slices have {said}: they are joined, since their pixels are of one contrast.", None
    return None, f"slices have {said}, and their pixels are of several contrasts. Export the series again"


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
    at_once = int(np.median([len({frame.instance for frame in place}) for place in together]))
    if at_once > 1 and not copies(frames):
        return f"{at_once} images at each place, which no attribute tells apart: an ASL, functional or repeated series"
    return None


def _needless(frames: list[Frame], thin: float | None) -> str | None:
    """Why a stack need not be rebuilt; None if it needs it.

    Slices that are finer than one edge of their pixels are a reformat of thick slices, which lie along that edge.
    """
    pitch, pixel = spacing(frames), float(frames[0].plane[6:].max())
    _, finer, largest = sorted([pitch, *frames[0].plane[6:]])
    if thin is not None and is_thin(float(largest), float(np.nan_to_num(frames[0].thickness)), float(finer), thin):
        return f"{ALREADY_THIN}: slices {pitch:.3g} mm apart, pixels of {pixel:.3g} mm"
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
