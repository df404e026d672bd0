"""Several stacks of one head: the volume that they make, and the facts on each in its record and its page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from monai.data import MetaTensor

from ..errors import InputError, logger, printable
from ..rebuild.gain import ONE_CONTRAST
from ..rebuild.rebuilt import Rebuilt
from ..rebuild.registration import ALIKE, angle_and_shift
from ..rebuild.stacks import Part, Stack
from ..rebuild.together import explained, fitting, together
from ..stack.grid import SIDES, centre
from ..stack.slices import Slices


def check_fits(names: Sequence[str], stacks: Sequence[Slices]) -> list[Part]:
    """The parts of several stacks, the reference first, by `fitting`; a line says which are left out, and why."""
    for name, stack in zip(names, stacks):
        if stack.constant:
            raise InputError(f"{name} is constant: expected a head. Leave it out with --exclude.")
    fits = fitting(stacks)
    for name, part in zip(names, fits):
        if not part.belongs:
            logger.warning(_left_out(name, part))
    return fits


def make_together(
    names: Sequence[str], measured: Sequence[Slices], fits: Sequence[Part], rebuilt: Sequence[Rebuilt]
) -> tuple[Rebuilt, list[dict[str, Any]]]:
    """A single volume of several stacks, the reference first, and the facts on each, as the record has them.

    Where no other stack goes with the first, the volume is its own. `rebuilt` has the stacks that fit.
    """
    stacks = [Stack.of(one.slices, one.volume) for one in rebuilt]
    volume, parts = together(stacks, [fit for fit in fits if fit.belongs])
    inside, facts = iter(zip(rebuilt, stacks, parts)), list[dict[str, Any]]()
    for name, slices, fit in zip(names, measured, fits):
        if not fit.belongs:
            facts.append(_facts(name, Stack(slices, volume), fit, volume) | {"Warnings": [_left_out(name, fit)]})
            continue
        one, stack, part = next(inside)
        facts.append(fact := _facts(name, stack, part, volume))
        said = one.motion_said if one is not rebuilt[0] else ""  # the record has an entry on the first one
        doubts = (f"{fact['Name']}: {said}" if said else None, _doubt(fact, part, stack))
        fact["Warnings"] += [doubt for doubt in doubts if doubt]
        for warning in fact["Warnings"]:
            logger.warning(warning)
    joined = any(part.share for part in parts[1:])
    return replace(rebuilt[0], volume=volume, spread=None) if joined else rebuilt[0], facts


def _left_out(name: str, part: Part) -> str:
    return f"{printable(name)} is left out and rebuilt alone: it {_why_left_out(part)}."


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


def _doubt(fact: Mapping[str, Any], part: Part, stack: Stack) -> str | None:
    """Why a stack may not belong to the others; None where it does."""
    name, agreement = fact["Name"], fact["Agreement"]
    if agreement is None:
        return _left_out(name, part)
    if agreement > (limit := explained(stack)):
        return (
            f"{name} differs from the result by {100 * agreement:.1f} %, more than the {100 * limit:.1f} % of a still "
            "head. The head may have moved within this stack, or within another."
        )
    return None


def _facts(name: str, stack: Stack, part: Part, volume: MetaTensor) -> dict[str, Any]:
    """The record's entry on a stack.

    `Motion` is `(4, 4)`, from the result's world to the stack's, in mm, RAS+: it turns the head by `Degrees` and moves
    its middle by `Millimetres`. `Gain` is the smallest and largest factor to the reference's units. `Likeness` and
    `Relation` are of its shape and of its intensities to the reference's. `Agreement` is of the result with its slices;
    None for a stack that was left out.
    """
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
    odd = [
        {"Place": np.round(one.place, 1).tolist(), "Volume": round(one.volume), "Difference": round(one.difference, 3)}
        for one in part.disputes
    ]
    warnings += [f"{name} shows {_in_words(one)}. Look at each stack there." for one in odd]
    return {
        "Name": printable(name),
        "Motion": np.round(part.motion, 6).tolist(),
        "Degrees": round(degrees, 3),
        "Millimetres": round(mm, 3),
        "Gain": [round(float(one), 4) for one in (part.gain.min(), part.gain.max())],
        "Likeness": round(part.likeness, 3),
        "Relation": round(part.relation, 3),
        "Share": round(part.share, 3),
        "Agreement": close,
        "Disputes": odd,
        "Warnings": warnings,
    }


def _in_words(odd: Mapping[str, Any]) -> str:
    """A dispute; places as the page says them."""
    sides = ", ".join(f"{SIDES[a][mm >= 0]} {abs(mm):.1f}" for a, mm in enumerate(odd["Place"]))
    how = "brighter" if odd["Difference"] > 0 else "darker"
    return (
        f"{odd['Volume']} mm^3 at {sides} mm up to {100 * abs(odd['Difference']):.0f} % {how} than the others do: the "
        "result has a mean of both"
    )
