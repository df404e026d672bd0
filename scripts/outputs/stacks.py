"""Several stacks of one head: the volume that they make, and what its record and its page say of each stack."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from monai.data import MetaTensor

from ..errors import InputError, printable
from ..rebuild.consistency import difference, noise_sd
from ..rebuild.registration import ALIKE, angle_and_shift
from ..rebuild.together import Part, Stack, together
from ..stack.acquisition import Acquisition
from ..stack.intensity import intensity_range
from ..stack.tissue import head_mask
from .record import agreement

logger = logging.getLogger("drift")

MOVED = 0.1  # of the signal; heads that lie still differ by less where there is no noise (docs/benchmarks.md)
OUTLIER = 2.0  # times the agreement of the stack that agrees best; noise and contrast of stacks differ by less


def make_together(items: Sequence[Mapping], stacks: Sequence[Stack]) -> tuple[MetaTensor, list[dict[str, Any]]]:
    """One volume of several stacks, and what the record says of each.

    Args:
        items: of `scans.scans`, of the stacks.
        stacks: the reference first.

    Returns:
        The volume of `together.together`, and for each stack a dictionary: `Name`; `Motion`, 4 x 4, from the result's
        world to the stack's, in mm, RAS+; `Degrees` and `Millimetres`, how far it turned the head and moved its middle;
        `Gain`, the smallest and largest factor to the reference's units; `Likeness`; `Share` of the result;
        `Agreement` of the result with its slices, null for a stack that was left out; `Warnings`.

    Raises:
        InputError: if no stack shows the head of the reference, or one is constant.
    """
    names = [str(item["name"]) for item in items]
    for name, stack in zip(names, stacks):
        if stack.measured.min() == stack.measured.max():
            raise InputError(f"{name} is constant: expected a head. Leave it out with --exclude.")
    volume, parts = together(stacks)
    if not any(part.share for part in parts[1:]):
        alike = ", ".join(f"{name} ({part.likeness:.2f})" for name, part in zip(names[1:], parts[1:]))
        raise InputError(
            f"{names[0]}: of {alike}, none shows its head in its contrast; from {ALIKE} on, likeness would be enough. "
            "Leave out --together, or name another --reference."
        )
    facts = [_facts(name, stack, part, volume) for name, stack, part in zip(names, stacks, parts)]
    best = min(fact["Agreement"] for fact in facts if fact["Agreement"] is not None)
    for stack, fact in zip(stacks, facts):
        if fact["Agreement"] is None:
            fact["Warnings"].append(
                f"{fact['Name']} is left out: its likeness to {names[0]} is {fact['Likeness']:.2f}, below {ALIKE}. It "
                "may show another head, region or contrast."
            )
        elif fact["Agreement"] > OUTLIER * best:
            fact["Warnings"].append(
                f"{fact['Name']} differs from the result by {100 * fact['Agreement']:.1f} %, another stack by "
                f"{100 * best:.1f} %. The head may have moved within it."
            )
        elif fact["Agreement"] > math.hypot(MOVED, _noise(stack)):
            fact["Warnings"].append(
                f"{fact['Name']} differs from the result by {100 * fact['Agreement']:.1f} %, more than noise explains. "
                "The head may have moved within it."
            )
        for warning in fact["Warnings"]:
            logger.warning(warning)
    return volume, facts


def _noise(stack: Stack) -> float:
    """The noise of a stack as a share of its signal, as `agreement` is one."""
    slices = stack.measured.as_tensor()
    measured = slices - intensity_range(slices).low
    signal = measured[head_mask(measured.clamp(min=0))].square().mean().sqrt().item()
    return noise_sd(measured, Acquisition.of(stack.measured).slice_axis) / signal


def _facts(name: str, stack: Stack, part: Part, volume: MetaTensor) -> dict[str, Any]:
    centre = np.asarray(volume.affine) @ [*((np.array(volume.shape) - 1) / 2), 1]
    degrees, mm = angle_and_shift(part.motion, centre[:3])
    close, warnings = None, []
    if part.share:
        result = stack.rebuilt if part.placed is None else part.placed
        gap = difference(result.as_tensor(), stack.measured.as_tensor(), Acquisition.of(stack.measured))
        close = agreement(gap, stack.measured)
    if part.moved_slices:
        which = ", ".join(str(index) for index in part.moved_slices)
        warnings.append(
            f"{name}: slices {which} (from 0) disagree with the other stacks. The head may have moved there."
        )
    return {
        "Name": printable(name),
        "Motion": np.round(part.motion, 6).tolist(),
        "Degrees": round(degrees, 3),
        "Millimetres": round(mm, 3),
        "Gain": [round(float(one), 4) for one in (part.gain.min(), part.gain.max())],
        "Likeness": round(part.likeness, 3),
        "Share": round(part.share, 3),
        "Agreement": close,
        "Warnings": warnings,
    }
