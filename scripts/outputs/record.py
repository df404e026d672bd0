"""The record of a result: what is written into it. Later runs ask it by `provenance`.

A record is the JSON file beside a result, `NAME_sr.json`. It is written last.

    Description, SliceThickness, SpacingBetweenSlices    what the result is; what sidecars say of scanner and skull
    Sources, InputSHA256                                 the files it was made from, relative to the record
    WeightsSHA256, ConfigSHA256, Release, Settings       what made it; with InputSHA256: what a second run compares
    Version, Device, Bfloat16                            where it was made
    Facts, Warnings                                      what was taken for the acquisition, and where it came from
    Stacks                                               with --together: each stack's motion, gain, share, agreement
    Guide                                                with --guide: its name, motion and likeness
    Motion                                               where the head moved between the packages of its slices
    Agreement                                            with the measured slices
    ErrorMap                                             if there is one: its confidence, median and scale
    Overview, Summary                                    the scan's pictures in index.html, its row in summary.csv
    Results                                              sizes and hashes of what was written
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from monai.data import MetaTensor
from torch import Tensor

from ..errors import printable
from ..inputs import bids
from ..inputs.scan import Guiding, Scan
from ..pages.index import glance
from ..rebuild.rebuilt import Rebuilt
from ..stack.acquisition import Acquisition
from ..stack.grid import plane_name
from ..stack.interpolation import interpolate
from ..stack.slices import Slices
from ..stack.tissue import flat_tissue
from ..stack.trace import step_ratio
from .provenance import source_of
from .stack_facts import motion_said

LARGEST_STEP_RATIO = 1000.0  # stands for infinity, which JSON does not know
SKULL = ("there (SkullStripped false)", "a guess for want of better: the dataset is raw")
GUIDE_PLACED = (
    "registered: the head had turned by {Degrees:.1f} degrees and moved by {Millimetres:.1f} mm; likeness "
    "{Likeness:.2f}"
)


def describe(
    scan: Scan,
    rebuilt: Rebuilt,
    stacks: Sequence[Mapping[str, Any]] = (),
    warnings: Sequence[str] = (),
    used: Guiding | None = None,
) -> dict[str, Any]:
    """The record of a result: its nature, its sources, and the facts that were taken for the acquisition.

    `stacks` has the facts of `stack_facts.make_together`. The guide among those of the scan that was used is `used`.
    """
    slices, acquisition = rebuilt.slices, rebuilt.slices.acquisition
    target = round(acquisition.target_spacing, 6)
    what = "Super-resolved along the slice axis by DRIFT: detail is estimated, not measured."
    if acquisition.at_target:
        what = "Not rebuilt: the slices are at the target of DRIFT already."
    elif slices.constant:
        what = "Not rebuilt: the scan is constant."
    if stacks:
        what = f"Made of {sum(stack['Share'] > 0 for stack in stacks)} stacks. {what}"
    guide, (fields, guess) = _guide(scan, rebuilt, used), bids.kept(scan.path)
    files = [*scan.files, *(used.scan.files if used is not None else ())]
    motion = _motion(rebuilt)
    moved = [motion["Description"]] if motion else []
    of_stacks = [warning for stack in stacks for warning in stack["Warnings"]]
    every = (*slices.warnings, *acquisition.warnings, *warnings, *moved, *of_stacks)
    warnings = tuple(named(scan, warning) for warning in every)
    return {
        "Description": what,
        "Sources": [source_of(scan, file) for file in files],
        "SliceThickness": target,
        "SpacingBetweenSlices": target,
        **fields,
        "Facts": {
            **_facts(acquisition, slices.affine, (str(rebuilt.steps), rebuilt.steps_source)),
            **({"guide": (guide["Name"], GUIDE_PLACED.format(**guide))} if guide else {}),
            **({"skull": SKULL} if guess else {}),
        },
        **({"Guide": guide} if guide else {}),
        **({"Motion": motion} if motion else {}),
        **({"Stacks": [_stack(scan, stack) for stack in stacks]} if stacks else {}),
        "Warnings": warnings,
        "Agreement": rebuilt.agreement,
        "Overview": glance(slices, rebuilt.volume),
        "Summary": {  # the scan's row of summary.csv
            "slice_axis": acquisition.slice_axis,
            "slice_thickness": round(acquisition.slice_thickness, 6),
            "slice_spacing": round(acquisition.slice_spacing, 6),
            "target_thickness": target,
            "steps": rebuilt.steps,
            "agreement": rebuilt.agreement,
            "step_ratio": _step_ratio(slices, rebuilt.volume),
            "guide": guide.get("Name", ""),
            "warnings": " | ".join(warnings),
        },
    }


def _guide(scan: Scan, rebuilt: Rebuilt, used: Guiding | None) -> dict[str, Any]:
    placed = rebuilt.guide
    if placed is None:
        return {}
    return {
        "Name": printable(placed.name) if used is None else named(scan, used.scan.name),
        **({"Reason": used.why} if used is not None and used.why else {}),
        "Motion": np.round(placed.motion, 6).tolist(),
        "Degrees": round(placed.degrees, 3),
        "Millimetres": round(placed.millimetres, 3),
        "Likeness": round(placed.likeness, 3),
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
        "Description": motion_said(rebuilt),
        "TakenBack": rebuilt.taken_back,
        "Packages": motion.packages,
        "Matrices": np.round(motion.matrices, 6).tolist(),
        "Degrees": round(motion.degrees, 3),
        "Millimetres": round(motion.millimetres, 3),
        "Displacement": round(motion.displacement, 3),
        "Uncertainty": round(motion.uncertainty, 3),
    }


def rounding(path: Path) -> dict[str, tuple[str, str]]:
    """The fact that a result of integers is rounded; no fact of other results."""
    image: Any = None if path.is_dir() else nib.load(path)
    if image is None or image.get_data_dtype().kind == "f":
        return {}
    half = float(image.dataobj.slope) / 2
    return {"voxels": (str(image.get_data_dtype()), f"the option dtype; intensities are right to {half:.3g}")}


def _facts(acquisition: Acquisition, affine: Tensor, steps: tuple[str, str]) -> dict[str, tuple[str, str]]:
    """Facts that were taken for the acquisition: name -> value, and where it came from."""
    a = acquisition
    shape = a.profile if isinstance(a.profile, str) else f"SLR pulse, time-bandwidth product {a.profile:g}"
    return {
        "slice axis": (f"{a.slice_axis}, {plane_name(affine, a.slice_axis)} slices", a.sources["slice_axis"]),
        "slice spacing": (f"{a.slice_spacing:.4g} mm", a.sources["slice_spacing"]),
        "slice thickness": (f"{a.slice_thickness:.4g} mm", a.sources["slice_thickness"]),
        "gap": (f"{round(a.gap, 4) + 0.0:.4g} mm", "spacing less thickness; negative for overlap"),
        "target thickness": (f"{a.target_spacing:.4g} mm", a.sources["target_spacing"]),
        "steps": steps,
        "slice profile": (shape, "the option profile"),
        **({"pixels": (f"{a.target_spacing:.4g} mm", a.sources["pixels"])} if "pixels" in a.sources else {}),
    }


def _step_ratio(slices: Slices, result: MetaTensor) -> float | None:
    """`trace.step_ratio` of the middle third, in flat tissue of the cubic spline; None where it has no number."""
    acquisition = slices.acquisition
    across = (acquisition.slice_axis + 1) % 3
    count = result.shape[across]
    third = [one.narrow(across, count // 3, -(-count // 3)) for one in (slices.array, result.as_tensor())]
    try:
        spline = interpolate(third[0], acquisition, "cubic")
        flat = flat_tissue(spline.clamp(min=third[0].min()))  # its undershoot is no floor
    except ValueError:  # constant
        return None
    number = step_ratio(third[1], acquisition, flat)
    return None if math.isnan(number) else round(min(number, LARGEST_STEP_RATIO), 4)
