"""Several stacks of one head: the volume that they make, and what its record and its page say of each stack."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from monai.data import MetaTensor

from ..errors import InputError, printable
from ..rebuild.gain import ONE_CONTRAST
from ..rebuild.rebuilt import Rebuilt
from ..rebuild.registration import ALIKE, angle_and_shift
from ..rebuild.stacks import Part, Stack
from ..rebuild.together import together
from ..stack.grid import centre

logger = logging.getLogger("drift")

OUTLIER = 2.0  # times the agreement of the stack that agrees best; noise and contrast of stacks differ by less


@dataclass(frozen=True)
class StackFacts:
    """The record's facts on a stack.

    Attributes:
        motion: `(4, 4)`, from the result's world to the stack's, in mm, RAS+.
        degrees, millimetres: how far it turned the head and moved its middle.
        gain: the smallest and largest factor to the reference's units.
        likeness, relation: of its shape and of its intensities to the reference's.
        agreement: of the result with its slices; None for a stack that was left out.
        disputes: place, volume and difference of each.
    """

    name: str
    motion: list[list[float]]
    degrees: float
    millimetres: float
    gain: list[float]
    likeness: float
    relation: float
    share: float
    agreement: float | None
    disputes: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]

    @property
    def record(self) -> dict[str, Any]:
        """As the record writes it."""
        return {name.capitalize(): value for name, value in vars(self).items()}


def make_together(names: Sequence[str], rebuilt: Sequence[Rebuilt]) -> tuple[Rebuilt, list[StackFacts]]:
    """A single volume of several stacks, the reference first, and the facts on each."""
    stacks = [Stack.of(one.slices, one.volume) for one in rebuilt]
    for name, stack in zip(names, stacks):
        if stack.measured.constant:
            raise InputError(f"{name} is constant: expected a head. Leave it out with --exclude.")
    volume, parts = together(stacks)
    if not any(part.share for part in parts[1:]):
        whys = "; ".join(f"{name} {_why_left_out(part)}" for name, part in zip(names[1:], parts[1:]))
        raise InputError(
            f"{names[0]}: no other stack goes with it: {whys}. Leave out --together, or name another --reference."
        )
    facts = [_facts(name, stack, part, volume) for name, stack, part in zip(names, stacks, parts)]
    best = min(fact.agreement for fact in facts if fact.agreement is not None)
    for index, fact in enumerate(facts):
        said = motion_said(rebuilt[index]) if index else ""  # of the first one the record has an entry
        doubts = (f"{fact.name}: {said}" if said else None, _doubt(fact, parts[index], best))
        facts[index] = replace(fact, warnings=(*fact.warnings, *(one for one in doubts if one)))
        for warning in facts[index].warnings:
            logger.warning(warning)
    return replace(rebuilt[0], volume=volume, spread=None), facts


def motion_said(rebuilt: Rebuilt) -> str:
    """The words for a stack whose head moved between its packages; none for a still one."""
    motion = rebuilt.motion
    if motion is None or not motion.moved:
        return ""
    if rebuilt.taken_back:
        became = "they were taken back to one place"
    elif motion.in_reach(rebuilt.slices.acquisition.slice_spacing):
        became = "set --motion to take them back to one place"
    else:
        became = "that is too far for --motion to take them back"
    return f"{motion}; {became}."


def _why_left_out(part: Part) -> str:
    """Why a stack takes no part."""
    if part.likeness < ALIKE:
        return f"shows another head or region: its likeness to the first is {part.likeness:.2f}, below {ALIKE}"
    if part.spoils:
        return f"would take the result away from the slices of the first, to {100 * part.spoils:.1f} % of their signal"
    return (
        f"is of another contrast: a rising curve explains {100 * part.relation:.0f} % of the first by it, less than "
        f"{100 * ONE_CONTRAST:.0f} %"
    )


def _doubt(fact: StackFacts, part: Part, best: float) -> str | None:
    """Why a stack may not belong to the others, by the agreement that is `best` among them; None where it does."""
    if fact.agreement is None:
        return f"{fact.name} is left out: it {_why_left_out(part)}."
    if fact.agreement > OUTLIER * best:
        differs = f"{fact.name} differs from the result by {100 * fact.agreement:.1f} %"
        return f"{differs}, another stack by {100 * best:.1f} %. The head may have moved within it."
    return None


def _facts(name: str, stack: Stack, part: Part, volume: MetaTensor) -> StackFacts:
    degrees, mm = angle_and_shift(part.motion, centre(volume.affine, volume.shape))
    close, warnings = None, []
    if part.share:
        close = Rebuilt(stack.measured, stack.rebuilt if part.placed is None else part.placed).agreement
    if stack.missing:
        which = ", ".join(f"{index + 1} is {what}" for index, what in stack.missing.items())
        warnings.append(f"{name}: slice {which}. The other stacks fill its place.")
    if part.moved_slices:
        which = ", ".join(str(index) for index in part.moved_slices)
        warnings.append(
            f"{name}: slices {which} (from 0) disagree with the other stacks. The head may have moved there."
        )
    odd = tuple(
        {"Place": np.round(one.place, 1).tolist(), "Volume": round(one.volume), "Difference": round(one.difference, 3)}
        for one in part.disputes
    )
    warnings += [f"{name} shows {_in_words(one)}. Look at each stack there." for one in odd]
    return StackFacts(
        name=printable(name),
        motion=np.round(part.motion, 6).tolist(),
        degrees=round(degrees, 3),
        millimetres=round(mm, 3),
        gain=[round(float(one), 4) for one in (part.gain.min(), part.gain.max())],
        likeness=round(part.likeness, 3),
        relation=round(part.relation, 3),
        share=round(part.share, 3),
        agreement=close,
        disputes=odd,
        warnings=tuple(warnings),
    )


def _in_words(odd: Mapping[str, Any]) -> str:
    """A dispute; places as the page says them."""
    sides = ", ".join(f"{'LR PA IS'.split()[a][mm >= 0]} {abs(mm):.1f}" for a, mm in enumerate(odd["Place"]))
    how = "brighter" if odd["Difference"] > 0 else "darker"
    return (
        f"{odd['Volume']} mm^3 at {sides} mm up to {100 * abs(odd['Difference']):.0f} % {how} than the others do: the "
        "result has a mean of both"
    )
