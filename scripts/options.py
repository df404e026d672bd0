"""Options of the command: one table, and the check that no value is code to MONAI."""

from collections.abc import Iterator, Mapping
from typing import Any

from .errors import InputError

EVALUATED = ("$", "@", "%")  # a text that begins so is code, a reference or a file to a config

SWITCH, LENGTH = {"action": "store_true"}, {"type": float, "metavar": "MM"}
GLOBS, LABELS = ({"action": "extend", "nargs": "+", "metavar": one} for one in ("PATTERN", "LABEL"))
# Option of configs/inference.yaml, or `config` -> how argparse takes it. docs/usage.md's table is made of it, too.
OPTIONS: dict[str, dict[str, Any]] = {
    "slice_thickness": dict(
        **LENGTH,
        help="thickness of the measured slices; without it the DICOM header's or BIDS sidecar's, else the slice "
        "spacing",
    ),
    "slice_spacing": dict(
        **LENGTH,
        help="for slices that were interpolated: the spacing that they had, to which they are taken back first",
    ),
    "target_thickness": dict(
        **LENGTH,
        help="thickness to reach; without it the finer in-plane spacing, within what the weights were trained for",
    ),
    "slice_axis": dict(
        type=int,
        choices=(0, 1, 2),
        help="array axis of the slices; without it the one that the header names, else that of the largest spacing",
    ),
    "isotropic": dict(**SWITCH, help="resample the pixels to the target too, so that the result has cubes for voxels"),
    "dtype": dict(
        choices=("float32", "int16"),
        help="voxels of NIfTI results: float32 (default), or int16, scaled, in half the space, right to half a step",
    ),
    "output_format": dict(
        choices=("nifti", "dicom", "auto"),
        help="NIfTI (default); a derived MR series for scans that came as DICOM, without the others; or auto: each as "
        "it came",
    ),
    "error_map": dict(
        **SWITCH, help="beside each result a map NAME_sr_error: the half-width of the interval that holds the truth"
    ),
    "confidence": dict(
        type=float,
        metavar="SHARE",
        help="share of voxels whose truth is in the interval of --error_map, 0.5 to 0.99 (default: 0.9)",
    ),
    "regions": dict(
        metavar="FILE",
        help="a label map in the scan's place; with --error_map, NAME_sr_error_regions.csv holds each region's mean "
        "and its error bar",
    ),
    "report": dict(
        **SWITCH,
        help="a page for each scan, to scroll through: measured, cubic and rebuilt, geometry, spectra, agreement with "
        "the measurement",
    ),
    "missing_slices": dict(
        choices=("refuse", "longest"),
        help="of a DICOM series that lacks slices: refuse it (default), or rebuild its longest unbroken part",
    ),
    "include": dict(
        **GLOBS,
        help="take only scans whose path within the folder, or whose series' name, matches one of these shell "
        "patterns, such as '*T2w*'",
    ),
    "exclude": dict(**GLOBS, help="leave out scans that match one of these"),
    "participant_label": dict(**LABELS, help="take only these participants of a BIDS dataset, with or without sub-"),
    "session_label": dict(**LABELS, help="take only these sessions of a BIDS dataset, with or without ses-"),
    "together": dict(
        **SWITCH,
        help="make one volume of all stacks of one head and contrast, such as an axial and a sagittal one; in folders "
        "they are found by names and headers",
    ),
    "reference": dict(
        metavar="PATTERN",
        help="with --together: the stack that gives grid, place and units, as a shell pattern on paths or series' "
        "names (default: the first)",
    ),
    "guide": dict(
        nargs="?",
        const="auto",
        metavar="SCAN",
        help="a sharp scan of another contrast of the same head, such as a 3-D T1w, or a folder with its DICOM series;"
        " it is registered, and shows where edges are. Without SCAN, or auto: for each scan the best one that "
        "lies beside it",
    ),
    "motion": dict(
        **SWITCH,
        help="take the slices of a head that moved between the packages of its stack back to their places, which takes "
        "about twice as long; a head that lay still is rebuilt as without",
    ),
    "dry_run": dict(
        nargs="?",
        const="true",
        choices=("true", "false", "json"),
        metavar="json",
        help="list what would be done with which scan, and write nothing; json: for programs",
    ),
    "allow_failures": dict(**SWITCH, help="exit with code 0 even if a scan failed; summary.csv names it"),
    "jobs": dict(
        type=int, metavar="N", help="scans at once, each in a process of its own; the cores are shared out (default: 1)"
    ),
    "ckpt_path": dict(
        metavar="FILE", help="weights, with their card beside them, model.json for model.pt (default: the shipped ones)"
    ),
    "config": dict(
        action="append",
        metavar="FILE",
        help="a config to stack on configs/inference.yaml: settings of the method, a network of another size or of "
        "your own",
    ),
}

PATHS = (  # segmenter is a command, which begins with one
    *("input", "dataset_dir", "label_dir", "output_dir", "guide", "regions"),
    *("ckpt_path", "error_start", "shipped", "segmenter"),
)
PATTERNS = tuple(name for name, how in OPTIONS.items() if how.get("metavar") in ("PATTERN", "LABEL"))


def texts(value: Any) -> Iterator[str]:
    """The texts in a value, at any depth."""
    if isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts(one)
    elif isinstance(value, str):
        yield value


def check_texts(options: Mapping[str, Any]) -> None:
    """Refuses options, name -> value, whose text MONAI would evaluate, or look up, when it is put into a config."""
    for name, value in options.items():
        for text in texts(value):
            if text.startswith(EVALUATED):
                plain = f"./{text}" if name in PATHS else f"[{text[0]}]{text[1:]}"  # to a shell pattern the same
                remedy = f"Write it as {plain}." if name in (*PATHS, *PATTERNS) else "Give a value."
                raise InputError(f"--{name} {text} begins with {text[0]}, which MONAI would evaluate. {remedy}")
