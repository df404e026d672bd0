"""The record of a result: what is written into it, and what later runs ask it.

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
    Results, Anonymous                                   sizes and hashes of what was written, kind of page
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from torch import Tensor

from ..errors import InputError, printable
from ..files import sha256, whole_file
from ..inputs import bids
from ..inputs.scan import Guiding, Scan
from ..method.weights import read_card
from ..pages.index import glance
from ..rebuild.rebuilt import Rebuilt
from ..stack.acquisition import Acquisition
from ..stack.grid import plane_name
from ..stack.interpolation import interpolate
from ..stack.slices import Slices
from ..stack.tissue import flat_tissue
from ..stack.trace import step_ratio
from ..train.recipe import digest, recipe
from .dicom import check_series_folder
from .stacks import StackFacts, motion_said

WITHOUT_EFFECT = {  # ids of the config that change no result; of bfloat16 the option counts, a setting
    *("_meta_", "bundle_root", "ckpt_path", "device", "bfloat16", "progress", "sw_batch_size"),
    *("error_map", "error_maps", "confidence", "regions", "spread"),
}
LARGEST_STEP_RATIO = 1000.0  # stands for infinity, which JSON does not know
UNKNOWN = (OSError, ValueError, TypeError, LookupError, AttributeError)  # there is no record, or it is not one of ours
GUIDE_PLACED = (
    "registered: the head had turned by {Degrees:.1f} degrees and moved by {Millimetres:.1f} mm; likeness "
    "{Likeness:.2f}"
)
RAW = "bids:raw:"  # begins the URI of a source within a BIDS dataset


def file_of(stem: Path, ending: str) -> Path:
    """A file of the result `stem`, which is a path without its ending."""
    return stem.with_name(stem.name + ending)


def state(path: Path) -> dict[str, Any]:
    """Size in bytes and hash of a file, or of a folder's DICOM files in the order of their names; empty if missing."""
    if not path.exists():
        return {}
    files = sorted(path.glob("*.dcm")) if path.is_dir() else [path]
    return {"Bytes": sum(file.stat().st_size for file in files), "SHA256": sha256(files)}


def describe(
    scan: Scan,
    rebuilt: Rebuilt,
    stacks: Sequence[StackFacts] = (),
    warnings: Sequence[str] = (),
    used: Guiding | None = None,
) -> dict[str, Any]:
    """The record of a result: its nature, its sources, and the facts that were taken for the acquisition.

    The guide among those of the scan that was used is `used`.
    """
    slices, acquisition = rebuilt.slices, rebuilt.slices.acquisition
    target = round(acquisition.target_spacing, 6)
    what = "Super-resolved along the slice axis by DRIFT: detail is estimated, not measured."
    if acquisition.at_target:
        what = "Not rebuilt: the slices are at the target of DRIFT already."
    elif slices.constant:
        what = "Not rebuilt: the scan is constant."
    if stacks:
        what = f"Made of {sum(stack.share > 0 for stack in stacks)} stacks. {what}"
    guide, (fields, skull) = _guide(scan, rebuilt, used), kept(scan)
    files = [*scan.files, *(used.scan.files if used is not None else ())]
    motion = _motion(rebuilt)
    moved = (motion["Description"],) if motion else ()
    warnings = (
        *slices.warnings,
        *acquisition.warnings,
        *warnings,
        *moved,
        *(warning for stack in stacks for warning in stack.warnings),
    )
    warnings = tuple(named(scan, warning) for warning in warnings)
    return {
        "Description": what,
        "Sources": [_source(scan, file) for file in files],
        "SliceThickness": target,
        "SpacingBetweenSlices": target,
        **fields,
        "Facts": {
            **_facts(acquisition, slices.affine, (str(rebuilt.steps), rebuilt.steps_source)),
            **({"guide": (guide["Name"], GUIDE_PLACED.format(**guide))} if guide else {}),
            **skull,
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
        text = text if one.path is None else text.replace(one.name, printable(_source(scan, one.path)))
    return text


def _stack(scan: Scan, stack: StackFacts) -> dict[str, Any]:
    warnings = [named(scan, warning) for warning in stack.warnings]
    return {**stack.record, "Name": named(scan, stack.name), "Warnings": warnings}


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


def made_with(parser: ConfigParser, weights: str, version: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All that makes results, on whatever machine: the config, the weights' file, the bundle's version.

    The config's hash is of all that its `rebuilder` is made of, overrides included, but for the error map, which
    `error_maps.asked` compares. The third number of the version changes no result. The settings, options that change a
    result, are for people: one that was left open, such as bfloat16, is null whatever a machine chose.
    """
    card = read_card(weights)
    return {
        "ConfigSHA256": digest(asdict(replace(card, error_map=None)), recipe(parser, "rebuilder", WITHOUT_EFFECT)),
        "WeightsSHA256": card.sha256,  # which loading checks
        "Release": ".".join(version.split(".")[:2]),
        "Settings": dict(settings),
    }


def rounding(path: Path) -> dict[str, tuple[str, str]]:
    """The fact that a result of integers is rounded; no fact of other results."""
    image: Any = None if path.is_dir() else nib.load(path)
    if image is None or image.get_data_dtype().kind == "f":
        return {}
    half = float(image.dataobj.slope) / 2
    return {"voxels": (str(image.get_data_dtype()), f"the option dtype; intensities are right to {half:.3g}")}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a record, or another sidecar."""
    with whole_file(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def complete(
    stem: Path, made: Mapping[str, Any], anonymous: bool = False, error_map: Mapping[str, Any] | None = None
) -> dict | None:
    """The record of a result that needs no second run; None where there is none.

    Such a result has the same input, settings and weights, and its voxels are unharmed. Its page may be missing or
    harmed, or say more or less of the scan than is asked for. Then the page is left out of `Results`.

    Args:
        stem: path of the result without its ending.
        made: what the record must say.
        anonymous: whether the page must leave out what names the scan.
        error_map: of `error_maps.asked`; an error map that is not asked for does not matter.
    """
    try:
        record = json.loads(file_of(stem, ".json").read_text(encoding="utf-8"))
        same = all(record[name] == value for name, value in made.items())
        same &= all(record["ErrorMap"][name] == value for name, value in (error_map or {}).items())
        result, *others = record["Results"].items()
    except UNKNOWN:
        return None
    fit = record.get("Anonymous", False) == anonymous
    whole = [result, *(one for one in others if fit or not one[0].endswith(".html"))]
    whole = [(name, was) for name, was in whole if state(stem.parent / name) == was]
    needed = [result, *(one for one in others if error_map and not one[0].endswith(".html"))]
    return {**record, "Results": dict(whole)} if same and all(one in whole for one in needed) else None


def other_source(scan: Scan) -> Path | None:
    """The scan that is still there whose result lies in the place of this one's; None where there is none."""
    try:
        content = json.loads(file_of(scan.result, ".json").read_text(encoding="utf-8"))
        earlier = _path(content["Sources"][0], scan.result)
        other = earlier.is_file() and earlier.resolve() not in {file.resolve() for file in scan.files}
    except UNKNOWN:
        return None
    return earlier if other else None


def check_place(scan: Scan, as_dicom: bool) -> None:
    """Refuses a result that would replace that of another scan which is still there, or a folder of other files."""
    if as_dicom:
        check_series_folder(scan.result)
    if (earlier := other_source(scan)) is not None:
        raise InputError(
            f"{scan.result} holds the result of {earlier.resolve()}, which that of {scan.name} would replace. Set "
            "another --output_dir for each, or give the folder that holds both."
        )


def _source(scan: Scan, path: Path) -> str:
    """How the record names a source: within a BIDS dataset by its URI, else by its path relative to the record.

    Both hold from any folder, and after scans and results were moved together.
    """
    source = path.absolute()
    if scan.dataset is not None and source.is_relative_to(scan.dataset):
        return RAW + source.relative_to(scan.dataset).as_posix()
    folder = scan.result.parent.resolve()  # `..` leads out of a folder, not out of a link to it
    return Path(os.path.relpath(source.parent.resolve() / source.name, folder)).as_posix()


def _path(source: str, stem: Path) -> Path:
    """Where the source lies that a record names."""
    folder, root = stem.parent.resolve(), bids.dataset_root(stem)
    if source.startswith(RAW) and root is not None:  # the derivative's description says where `raw` is
        folder = root.resolve() / bids.description(root)["DatasetLinks"]["raw"]
    return folder / source.removeprefix(RAW)


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


def kept(scan: Scan) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    """Fields of a scan's sidecars that hold for the result too, and the fact of its skull where that is a guess.

    There are none of broken sidecars: the user knew better.
    """
    if scan.path is None or not scan.path.exists():  # an image in memory
        return {}, {}
    try:
        fields, guess = bids.kept(scan.path)
    except InputError:
        return {}, {}
    why = ("there (SkullStripped false)", "a guess for want of better: the dataset is raw")
    return fields, {"skull": why} if guess else {}
