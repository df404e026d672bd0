"""`drift-mri`: Thick-slice brain MRI scans to isotropic ones, from any folder. It runs configs/inference.yaml."""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from . import BUNDLE

HYPHENS = re.compile(r"(?<=^--)[\w-]+")  # in an option's name they are as good as underscores
PATHS = ("output_dir", "ckpt_path")
LISTS = ("input", "include", "exclude", "participant_label")
SIZES = sorted(path.stem for path in (BUNDLE / "configs" / "models").glob("*.yaml"))


def _profile(text: str) -> str | float:
    """A number or a name; `slice_profile.slice_profile` says which."""
    try:
        return float(text)
    except ValueError:
        return text


# Name of an option of configs/inference.yaml -> how argparse takes it. README.md's table is made of it.
OPTIONS: dict[str, dict[str, Any]] = {
    "slice_thickness": {
        "type": float,
        "metavar": "MM",
        "help": "thickness of the measured slices; without it the DICOM header's or BIDS sidecar's, else the slice "
        "spacing",
    },
    "target_thickness": {
        "type": float,
        "metavar": "MM",
        "help": "thickness to reach; without it the finer in-plane spacing, within what the weights were trained for",
    },
    "slice_axis": {
        "type": int,
        "choices": (0, 1, 2),
        "help": "array axis of the slices; without it the one that the header names, else that of the largest spacing",
    },
    "isotropic": {
        "action": "store_true",
        "help": "resample the pixels to the target too, so that the result has cubes for voxels",
    },
    "flips": {
        "action": "store_true",
        "help": "average over mirror images, in four times the time",
    },
    "both_planes": {
        "choices": ("true", "false"),
        "help": "average the planes along both in-plane axes (default), or take the longer one alone, in half the time",
    },
    "speed": {"choices": ("fast", "paper"), "help": "whole planes (default), or the paper's 128-pixel windows"},
    "bfloat16": {
        "choices": ("true", "false"),
        "help": "convolutions in bfloat16; without it where the processor has it",
    },
    "consistency": {
        "choices": ("project", "measure"),
        "help": "move the result onto the measured slices as far as noise allows (default), or only measure how it "
        "agrees with them",
    },
    "profile": {
        "type": _profile,
        "metavar": "PROFILE",
        "help": "slice profile: gaussian, rectangular, or a pulse's time-bandwidth product (default: 4, an SLR pulse)",
    },
    "dtype": {
        "choices": ("float32", "int16"),
        "help": "voxels of NIfTI results: float32 (default), or int16, scaled, in half the space, right to half a step",
    },
    "output_format": {
        "choices": ("nifti", "dicom"),
        "help": "NIfTI (default), or a derived MR series for scans that came as DICOM",
    },
    "report": {
        "action": "store_true",
        "help": "a page for each scan, to scroll through: measured, cubic and rebuilt, geometry, spectra, agreement "
        "with the measurement",
    },
    "anonymous": {
        "action": "store_true",
        "help": "leave the scan's name, date and series out of its page",
    },
    "include": {
        "action": "extend",
        "nargs": "+",
        "metavar": "PATTERN",
        "help": "take only scans whose path within the folder, or whose series' name, matches one of these shell "
        "patterns, such as '*T2w*'",
    },
    "exclude": {
        "action": "extend",
        "nargs": "+",
        "metavar": "PATTERN",
        "help": "leave out scans that match one of these",
    },
    "participant_label": {
        "action": "extend",
        "nargs": "+",
        "metavar": "LABEL",
        "help": "take only these participants of a BIDS dataset, with or without sub-",
    },
    "dry_run": {
        "action": "store_true",
        "help": "list what would be done with which scan, and about how long it takes, and write nothing",
    },
    "ckpt_path": {
        "metavar": "FILE",
        "help": "weights, with their card beside them, model.json for model.pt (default: the shipped ones)",
    },
}


SIZE: dict[str, Any] = {"choices": SIZES, "help": "of the network that --ckpt_path holds (default: tiny)"}


def table() -> str:
    """The options as README.md shows them, in Markdown."""
    lines = ["| option | what |", "| --- | --- |"]
    for name, how in {**OPTIONS, "size": SIZE}.items():
        values = how.get("metavar") or " or ".join(map(str, how.get("choices", ())))
        lines.append(f"| `{f'--{name} {values}'.strip()}` | {how['help']} |".replace("*", r"\*"))
    return "\n".join(lines) + "\n"


class Parser(argparse.ArgumentParser):
    """Tells a mistake in one line."""

    def parse_args(self, args=None, namespace=None):  # type: ignore[override, no-untyped-def]
        """As argparse does, but names what was probably meant."""
        options, strangers = self.parse_known_args(args, namespace)
        for stranger in strangers:
            if not stranger.startswith("-"):
                self.error(f"{stranger} is one too many: scans stand together, and --report and its like take no value")
            near = get_close_matches(stranger.partition("=")[0], [f"--{name}" for name in vars(options)], 1)
            self.error(f"{stranger} is no option{''.join(f'; the nearest is {one}' for one in near)}")
        return options

    def error(self, message: str) -> NoReturn:
        """Exits with code 2."""
        self.exit(2, f"error: {message}. See {self.prog} --help.\n")


def version() -> str:
    """Of the bundle."""
    return json.loads((BUNDLE / "configs" / "metadata.json").read_text(encoding="utf-8"))["version"]


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    result = Parser(prog="drift-mri", description=__doc__.split(". ")[0].split(": ")[1] + ".", allow_abbrev=False)
    result.add_argument(
        "input",
        nargs="+",
        help="a scan (NIfTI, MGZ, MGH, Analyze, NRRD, MetaImage), DICOM files, a folder of scans and DICOM series at "
        "any depth, or a BIDS dataset",
    )
    result.add_argument("-o", "--output_dir", required=True, metavar="OUT", help="folder of the results")
    for name, how in OPTIONS.items():
        result.add_argument(f"--{name}", default=None, **how)
    result.add_argument("--size", **SIZE)
    result.add_argument("--version", action="version", version=f"drift-mri {version()}")
    return result


def overrides(options: argparse.Namespace) -> dict[str, Any]:
    """Options as `ConfigWorkflow` takes them; paths are `Path`s, since MONAI reads `$`, `@`, `%` and `#` in texts.

    Raises:
        SystemExit: if a path is empty.
    """
    given = {name: value for name, value in vars(options).items() if value is not None and name != "size"}
    for name, value in given.items():
        texts = value if name in LISTS else [value] if name in PATHS else []
        if not all(texts):
            parser().error(f"{name} is empty: expected a {'path' if name in ('input', *PATHS) else 'pattern or label'}")
    lists = {name: [Path(text) for text in given[name]] for name in LISTS if name in given}
    lists["input"] = [path.absolute() for path in lists["input"]]
    return given | lists | {name: Path(given[name]).absolute() for name in PATHS if name in given}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command.

    Args:
        arguments: of the command line.

    Raises:
        SystemExit: with exit code 1 if a scan failed, 2 if the arguments are not as the help says, 130 on Ctrl-C.
    """
    words = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args([HYPHENS.sub(lambda name: name[0].replace("-", "_"), word) for word in words])
    given = overrides(options)
    warnings.filterwarnings("ignore", module="monai")  # of its own machinery, not of the scan
    sys.path.insert(0, str(BUNDLE))
    try:
        from monai.bundle import ConfigWorkflow  # here: it takes seconds, which --help need not

        configs = BUNDLE / "configs"
        logging.getLogger("monai.bundle.workflows").setLevel(logging.WARNING)  # it tells where that file is
        files = [configs / "inference.yaml", *([configs / "models" / f"{options.size}.yaml"] if options.size else [])]
        workflow = ConfigWorkflow(
            workflow_type="inference",
            config_file=[str(path) for path in files],
            logging_file=str(configs / "logging.conf"),
            bundle_root=str(BUNDLE),
            **given,
        )
        workflow.initialize()
        workflow.run()
        workflow.finalize()
    except KeyboardInterrupt:
        from scripts.errors import INTERRUPTED

        print(INTERRUPTED, file=sys.stderr)
        raise SystemExit(130) from None
    except Exception as error:
        from scripts.errors import input_error

        mistake = input_error(error)
        if mistake is None:
            raise
        raise SystemExit(f"error: {mistake}") from None
