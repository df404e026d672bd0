"""The record of a result. `facts` makes its facts, `entries` lists its entries, `provenance` compares them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import printable
from ..inputs.scan import Candidate, Scan
from ..method.origin import Origin
from ..pages import planes
from ..pages.index import glance
from ..rebuild.error_map import ErrorMaps
from ..rebuild.guide import PlacedGuide
from ..rebuild.rebuilder import Rebuilder
from ..rebuild.rebuilt import DRAWN, Rebuilt
from ..rebuild.reduced_resolution import Check, expected_gain
from ..stack.slices import Slices
from ..train.recipe import digest
from .bids import kept
from .entries import Record
from .error_maps import describe_error_map
from .facts import acquired, calibrated, facts, noise_entry, rounding, texture
from .provenance import name_from, source_of, state

PICTURE = 144  # pixels; edge of the pictures of a test: a record of them is smaller than 100 kB
SKULL = ("there (SkullStripped false)", "a guess for want of better: the dataset is raw")
UNTESTED = "None: nothing was rebuilt, or the slices have too few pixels to be acquired again."
SHARP = "{steps} beyond the mean; detail is {detail}. PSNR falls, and lesions may be drawn or lost."
GUIDE_PLACED = (
    "registered: the head had turned by {Degrees:.1f} degrees and moved by {Millimetres:.1f} mm; likeness "
    "{Likeness:.2f}; it saw {Share:.0%} of the head"
)


def describe(
    scan: Scan,
    rebuilt: Rebuilt,
    maps: ErrorMaps,
    origin: Origin,
    *,
    stacks: Sequence[Mapping[str, Any]] = (),
    warnings: Sequence[str] = (),
    used: Candidate | None = None,
    check: Mapping[str, Any] | None = None,
    files: Sequence[Path] = (),
    seconds: float | None = None,
    **made: Any,
) -> Record:
    """The record of a result.

    Args:
        maps: by which the error map was made, if there is one.
        origin: of the network that rebuilt.
        stacks: the facts of `stack_facts.make_together`.
        used: the guide among those of the scan that was used.
        check: the entry of `describe_check`; None where none was asked for.
        files: that were written, the result first.
        seconds: that it took.
        made: entries on weights and settings, as they are.
    """
    guide, (fields, guess) = _guide(scan, rebuilt, used), kept(scan.path)
    error = describe_error_map(rebuilt, maps) if maps.wanted else {}
    noise, (steps, ratio, within) = noise_entry(rebuilt), texture(rebuilt.slices, rebuilt.volume)
    said = warnings_of(scan, rebuilt, warnings, stacks, used)
    target = round(rebuilt.slices.acquisition.target_spacing, 6)
    parts = {
        "Guide": guide,
        "Sharp": sharp_said(rebuilt.steps or 0) if rebuilt.sharp else "",
        "Motion": _motion(rebuilt),
        "Noise": noise,
        "Streak": {"Ratio": ratio, "Steps": within},
        "Stacks": [_stack(scan, stack) for stack in stacks],
        "ErrorMap": error,
        "Check": check or {},
    }
    return Record.made(
        Description=_description(rebuilt, origin, guide, noise, stacks),
        Sources=[source_of(scan, file) for file in (*scan.files, *(used.scan.files if used is not None else ()))],
        SliceThickness=target,
        SpacingBetweenSlices=target,
        **fields,
        Facts={
            **facts(rebuilt, _steps(rebuilt, origin)),
            **acquired(noise),
            **({"guide": (guide["Name"], GUIDE_PLACED.format(**guide))} if guide else {}),
            **({"skull": SKULL} if guess else {}),
            **(rounding(files[0]) if files else {}),
            **calibrated(error, maps),
        },
        **{name: entry for name, entry in parts.items() if entry},
        Warnings=said,
        Agreement=rebuilt.agreement,
        Overview=glance(rebuilt.slices, rebuilt.volume),
        Summary={
            **_summary(rebuilt, origin, guide, error, check or {}, said),
            **{"step_ratio": steps, "streak": ratio, "streak_steps": within, "noise": noise.get("Share")},
            **({} if seconds is None else {"seconds": seconds}),
        },
        **made,
        **({"Results": {name_from(scan.result, path): state(path) for path in files}} if files else {}),
    )


def euler_steps(count: int) -> str:
    """A number of steps in words."""
    return f"{count} Euler step{'s' * (count != 1)}"


def sharp_said(steps: int) -> str:
    """The words for a sharp result of so many steps: what it is, and what it costs."""
    return SHARP.format(steps=euler_steps(steps), detail=DRAWN)


def _description(
    rebuilt: Rebuilt,
    origin: Origin,
    guide: Mapping[str, Any],
    noise: Mapping[str, Any],
    stacks: Sequence[Mapping[str, Any]],
) -> str:
    steps, ran = _steps(rebuilt, origin), [f"Super-resolved along the slice axis by {origin.said()}"]
    if steps:
        ran.append(f"{'sharp, ' * rebuilt.sharp}in {euler_steps(steps)}")
    elif steps == 0 and origin.ours:
        ran.append("stage 1 alone")
    if guide:
        ran.append(f"guided by {guide['Name']}")
    if noise:
        ran.append(f"at {noise['Share']:.1%} noise")
    what = f"{', '.join(ran)}: detail is {rebuilt.detail}, not measured."
    if rebuilt.slices.acquisition.at_target:
        what = "Not rebuilt: the slices are at the target of DRIFT already."
    elif rebuilt.slices.constant:
        what = "Not rebuilt: the scan is constant."
    joined = sum(stack["Share"] > 0 for stack in stacks)
    return f"Made of {joined} stacks. {what}" if joined > 1 else what


def warnings_of(
    scan: Scan,
    rebuilt: Rebuilt,
    warnings: Sequence[str] = (),
    stacks: Sequence[Mapping[str, Any]] = (),
    used: Candidate | None = None,
) -> tuple[str, ...]:
    """Those of the rebuilt scan, the run, the guide and the stacks.

    The arguments are those of `describe`.
    """
    placed = rebuilt.guide
    saw_little = "" if placed is None else placed.coverage.warning(_name_of(scan, placed, used))
    of_stacks = [warning for stack in stacks for warning in stack["Warnings"]]
    every = (*rebuilt.warnings, *warnings, saw_little, *of_stacks)
    return tuple(named(scan, warning) for warning in every if warning)


def _steps(rebuilt: Rebuilt, origin: Origin) -> int | None:
    """Euler steps; None where they are those of a card that is not the network's."""
    return rebuilt.steps if origin.flows else None


def _name_of(scan: Scan, placed: PlacedGuide, used: Candidate | None) -> str:
    """The name of the guide that was used."""
    return printable(placed.name) if used is None else named(scan, used.scan.name)


def _summary(
    rebuilt: Rebuilt,
    origin: Origin,
    guide: Mapping[str, Any],
    error: Mapping[str, Any],
    check: Mapping[str, Any],
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The scan's row of summary.csv."""
    a = rebuilt.slices.acquisition
    bar, gain = error.get("MedianOfRange"), check.get("Gain")
    return {
        "slice_axis": a.slice_axis,
        "slice_thickness": round(a.slice_thickness, 6),
        "slice_spacing": round(a.slice_spacing, 6),
        "target_thickness": round(a.target_spacing, 6),
        "steps": _steps(rebuilt, origin),
        "agreement": rebuilt.agreement,
        "guide": guide.get("Name", ""),
        "warnings": " | ".join(warnings),
        **({} if bar is None else {"error_bar": bar}),
        **({} if gain is None else {"gain": expected_gain(gain, check.get("Foretold"))}),
    }


def _guide(scan: Scan, rebuilt: Rebuilt, used: Candidate | None) -> dict[str, Any]:
    placed = rebuilt.guide
    if placed is None:
        return {}
    return {
        "Name": _name_of(scan, placed, used),
        **({"Reason": used.why} if used is not None and used.why else {}),
        "Motion": np.round(placed.motion, 6).tolist(),
        "Degrees": round(placed.degrees, 3),
        "Millimetres": round(placed.millimetres, 3),
        "Likeness": round(placed.likeness, 3),
        "Share": round(placed.coverage.share, 3),
        "Borders": {end: list(place) for end, place in placed.coverage.borders.items()},
    }


def asked_check(rebuilder: Rebuilder) -> dict[str, Any]:
    """Entries of a record whose test is the one that is asked for; empty if none is."""
    line = rebuilder.foretelling
    return {"Foretelling": None if line is None else digest(asdict(line))} if rebuilder.check else {}


def describe_check(check: Check | None, slices: Slices, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The record's entry on the test of the method on a scan's own slices that is asked for (`asked_check`)."""
    if check is None:
        return {"Description": UNTESTED, **asked}
    said, low_high = str(check), planes.window(slices.array, slices.tissue_range)
    foretold = check.foretold or ()
    return {
        "Description": f"{said[0].upper()}{said[1:]}.",
        "Slices": list(check.slices),
        "Directions": check.directions,
        "Spline": round(check.spline, 2),
        "Rebuilt": round(check.rebuilt, 2),
        "Gain": round(check.gain, 2),
        **dict(zip(("Foretold", "Error"), (round(one, 2) for one in foretold))),
        **asked,
        "Spots": [
            {
                "Size": one.size,
                "Contrast": one.contrast,
                "Kept": round(one.kept, 3),
                "Spline": round(one.spline, 3),
                "Count": one.count,
            }
            for one in check.spots
        ],
        "Pictures": {
            name: planes.png(planes.shades(planes.hang(planes.central(plane, PICTURE)), *low_high))
            for name, plane in check.pictures.items()
        },
    }


def named(scan: Scan, text: str) -> str:
    """A text that names the scan's files, and its guides', as `Sources` does: paths of one machine help no other."""
    for one in (*scan.each, *(guide.scan for guide in scan.guides)):
        text = text if one.path is None else text.replace(one.name, printable(source_of(scan, one.path)))
    return text


def _stack(scan: Scan, stack: Mapping[str, Any]) -> dict[str, Any]:
    warnings = [named(scan, warning) for warning in stack["Warnings"]]
    return {**stack, "Name": named(scan, stack["Name"]), "Warnings": warnings}


def _motion(rebuilt: Rebuilt) -> dict[str, Any]:
    """The record's entry of a head that moved; empty for a still one."""
    motion = rebuilt.motion
    if motion is None or not motion.moved:
        return {}
    return {
        "Description": rebuilt.motion_said,
        "TakenBack": rebuilt.taken_back,
        "Packages": motion.packages,
        "Matrices": np.round(motion.matrices, 6).tolist(),
        "Degrees": round(motion.degrees, 3),
        "Millimetres": round(motion.millimetres, 3),
        "Displacement": round(motion.displacement, 3),
        "Uncertainty": round(motion.uncertainty, 3),
    }
