"""Options: the one table of them, and the door where what was typed is looked at before work starts.

`python -m monai.bundle run` takes any option. A misspelt one changes nothing, one with the name of a component replaces
that component, and the text of each becomes what Python or a config would make of it. `check_options` refuses these.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from .errors import InputError

PROGRAM = ("monai", "bundle", "__main__.py")
SCRIPTS = Path(__file__).parent
EVALUATED = ("$", "@", "%")  # a text that begins so is code, a reference or a file to a config


def _profile(text: str) -> str | float:
    """A number or a name; `profile.slice_profile` says which."""
    try:
        return float(text)
    except ValueError:
        return text


# Name of an option of configs/inference.yaml -> how argparse takes it. docs/usage.md's table is made of it, too.
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
        "help": "average over mirror images: the networks run four times",
    },
    "both_planes": {
        "choices": ("true", "false"),
        "help": "rebuild in the planes along both in-plane axes (default), or only in those along the longer one, in "
        "less time",
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
        "choices": ("nifti", "dicom", "auto"),
        "help": "NIfTI (default); a derived MR series for scans that came as DICOM, without the others; or auto: each "
        "as it came",
    },
    "error_map": {
        "action": "store_true",
        "help": "beside each result a map NAME_sr_error: the half-width of the interval that holds the truth",
    },
    "confidence": {
        "type": float,
        "metavar": "SHARE",
        "help": "share of voxels whose truth is in the interval of --error_map, 0.5 to 0.99 (default: 0.9)",
    },
    "regions": {
        "metavar": "FILE",
        "help": "a label map in the scan's place; with --error_map, NAME_sr_error_regions.csv holds each region's mean "
        "and its error bar",
    },
    "report": {
        "action": "store_true",
        "help": "a page for each scan, to scroll through: measured, cubic and rebuilt, geometry, spectra, agreement "
        "with the measurement",
    },
    "anonymous": {
        "action": "store_true",
        "help": "leave the scan's name, date and series out of its page, to pass that on under another name; record, "
        "summary and index still name the scan",
    },
    "missing_slices": {
        "choices": ("refuse", "longest"),
        "help": "of a DICOM series that lacks slices: refuse it (default), or rebuild its longest unbroken part",
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
    "session_label": {
        "action": "extend",
        "nargs": "+",
        "metavar": "LABEL",
        "help": "take only these sessions of a BIDS dataset, with or without ses-",
    },
    "together": {
        "action": "store_true",
        "help": "make one volume of all stacks of one head and contrast, such as an axial and a sagittal one; in "
        "folders they are found by names and headers",
    },
    "reference": {
        "metavar": "PATTERN",
        "help": "with --together: the stack that gives grid, place and units, as a shell pattern on paths or series' "
        "names (default: the first)",
    },
    "dry_run": {
        "nargs": "?",
        "const": "true",
        "choices": ("true", "false", "json"),
        "metavar": "json",
        "help": "list what would be done with which scan, and about how long it takes, and write nothing; json: for "
        "programs",
    },
    "allow_failures": {
        "action": "store_true",
        "help": "exit with code 0 even if a scan failed; summary.csv names it",
    },
    "jobs": {
        "type": int,
        "metavar": "N",
        "help": "scans at once, each in a process of its own; the cores are shared out (default: 1)",
    },
    "ckpt_path": {
        "metavar": "FILE",
        "help": "weights, with their card beside them, model.json for model.pt (default: the shipped ones)",
    },
}

NEEDS = {"ignite": "pytorch-ignite tensorboard"}  # module -> what installs it, and what it is used with
PATHS = (
    "input",
    "dataset_dir",
    "label_dir",
    "output_dir",
    "ckpt_path",
    "error_start",
    "shipped",
    "segmenter",
    "regions",
)  # paths; segmenter is a command, which begins with one
PATTERNS = tuple(name for name, how in OPTIONS.items() if how.get("metavar") in ("PATTERN", "LABEL"))


def check_options(argv: Sequence[str] | None = None) -> None:
    """Checks what was typed, if the program is `python -m monai.bundle run`.

    It stands in the configs' `initialize`. Before, MONAI evaluates `bundle_root` alone, and looks up values that begin
    with `%`.

    Args:
        argv: the program and its arguments. None for those of this process.

    Raises:
        InputError: if a name is no option, an option does not take its value, a path would be read as something else
            than was typed, or a config names what is not in this bundle.
    """
    program, *typed = sys.argv if argv is None else argv
    if Path(program).parts[-3:] != PROGRAM or typed[:1] != ["run"]:
        return
    from fire.parser import DefaultParseValue  # here: MONAI takes seconds, which drift-mri --help need not
    from monai.bundle import ConfigParser

    texts = _texts(typed[1:])
    values = {name: DefaultParseValue(text) for name, text in texts.items()}
    values = {**ConfigParser.load_config_files(values.get("args_file", {})), **values}
    config = _config(values)
    _check_targets([config, values])
    for name in ("run_id", "init_id", "final_id"):
        if name in values and _root(values[name]) not in config:
            raise InputError(f"{values[name]} is nothing that can be run.{_nearest(_root(values[name]), config)}")
    for name, value in values.items():
        if name not in _runner():
            _check_name(name, value, config)
    for name in (*PATHS, *PATTERNS):
        if name in texts:
            _check_text(name, texts[name], values[name])


def _runner() -> list[str]:
    """Options of MONAI's runner."""
    from monai.bundle import run

    return [name for name in signature(run).parameters if name != "override"]


def _texts(typed: Sequence[str]) -> dict[str, str]:
    """Options -> what was typed for them. Fire tells them apart, as it does for MONAI's runner."""
    import fire
    from fire.decorators import SetParseFn
    from monai.bundle import run

    texts: dict[str, str] = {}

    @SetParseFn(str)
    @wraps(run)
    def keep(*positional: str | None, **others: str) -> None:
        texts.update({name: text for name, text in zip(_runner(), positional) if text is not None}, **others)

    fire.Fire(keep, list(typed[: typed.index("--")] if "--" in typed else typed))  # what follows is for fire itself
    return texts


def _root(name: Any) -> str:
    return re.split("::|#", str(name))[0]


def _config(values: Mapping[str, Any]) -> dict[str, Any]:
    """Top-level content of the config files, with what experiment tracking adds."""
    from monai.bundle import ConfigParser
    from monai.bundle.utils import DEFAULT_EXP_MGMT_SETTINGS

    parser = ConfigParser()
    parser.read_config(values["config_file"])
    tracking = values.get("tracking", {})
    added: Any = DEFAULT_EXP_MGMT_SETTINGS.get(tracking) if isinstance(tracking, str) else tracking
    return {**parser.get(), **(added or ConfigParser.load_config_files(tracking)).get("configs", {})}


def _is_component(name: str, content: Any) -> bool:
    """Whether a top-level name of a config stands for a part of the machinery. A plain value sets an option alone."""
    if isinstance(content, list):
        return any(isinstance(one, dict) for one in content)
    code = isinstance(content, str) and content.startswith("$")
    return name not in OPTIONS and (isinstance(content, dict) or (code and name not in PATHS))


def _check_name(name: str, value: Any, config: Mapping[str, Any]) -> None:
    options = [one for one, content in config.items() if not _is_component(one, content)]
    root = _root(name)
    if root not in config:
        raise InputError(f"--{name} is no option.{_nearest(root, [*_runner(), *config], '--')}")
    if root != name:
        return _check_part(name, config)
    if isinstance(value, dict | list) or (isinstance(value, str) and value.startswith(EVALUATED)):
        return
    if name not in options:
        made_of = [one for one in re.findall(r"@(\w+)", str(config[name])) if one in options]
        near = get_close_matches(name, options, 1) or made_of[:1]
        meant = f" Did you mean --{near[0]}?" if near else ""
        raise InputError(
            f"--{name} is no option but a component of the config, which {value!r} would replace.{meant} A part of it "
            f"is set as in --{name}::PART VALUE."
        )
    how = OPTIONS.get(name, {})
    choices = ["true", "false"] if how.get("action") == "store_true" else list(map(str, how.get("choices", ())))
    if choices and value is not None and str(value).lower() not in choices:
        raise InputError(f"--{name} is {value!r}: expected {' or '.join(choices)}.")
    if how.get("type") is float and not (value is None or type(value) in (int, float)):
        raise InputError(f"--{name} is {value!r}: expected a number, in mm.")


def _check_part(name: str, config: Any) -> None:
    """Refuses a part that a component of this bundle does not have, such as `inferer::n_mx`."""
    *path, part = re.split("::|#", name)
    for one in path:
        inside = config if isinstance(config, dict) else dict(enumerate(config)) if isinstance(config, list) else {}
        config = inside.get(int(one) if one.isdigit() else one)
    target = config.get("_target_", "") if isinstance(config, dict) else ""
    if target.startswith("scripts.") and part not in config and not part.startswith("_"):
        known = signature(resolve_name(target)).parameters
        if part not in known and all(one.kind is not one.VAR_KEYWORD for one in known.values()):
            raise InputError(f"--{name} is no option: {'::'.join(path)} has {', '.join(known)}. Set one of them.")


def _nearest(name: str, known: Sequence[str] | Mapping[str, Any], prefix: str = "") -> str:
    found = get_close_matches(name, known, 1)
    return f" Did you mean {prefix}{found[0]}?" if found else " Look up the top-level names of the config file."


def _check_text(name: str, text: str, value: Any) -> None:
    kind, as_text = ("path", f"./{text}") if name in PATHS else ("pattern or label", f"\"['{text}']\"")
    listed = isinstance(value, list | tuple) and text[0] in "[("
    if listed and not all(isinstance(one, str) for one in value):
        raise InputError(f"--{name} {text} is read as {value}: expected names in quotes, as in \"['a.nii', 'b.nii']\".")
    number = name in PATTERNS and type(value) is int and str(value) == text  # a label
    if not listed and text[:1] not in ("'", '"') and value != text and not number:
        raise InputError(f"--{name} {text} would be read as {value!r}: expected a {kind}. Write it as {as_text}.")
    for one in value if listed else [str(value)]:
        if not one:
            raise InputError(f"--{name} is empty: expected a {kind}. Leave it out, or give . for this folder.")
        if one.startswith(EVALUATED):
            plain = f"./{one}" if name in PATHS else f"[{one[0]}]{one[1:]}"  # to a shell pattern the same
            raise InputError(f"--{name} {one} begins with {one[0]}, which MONAI would evaluate. Write it as {plain}.")


def _missing(module: str) -> str | None:
    """The package that a module of the bundle imports and that is not installed."""
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        package = str(error.name).split(".")[0]
        return None if package == "scripts" else package
    except ImportError:
        return None
    return None


def _check_targets(content: Any) -> None:
    """Refuses a config that names what is no longer where it says; the sources of the bundle tell where it is."""
    if isinstance(content, dict | list):
        for one in content.values() if isinstance(content, dict) else content:
            _check_targets(one)
    for named in re.findall(r"\bscripts(?:\.\w+)+", content) if isinstance(content, str) else []:
        try:
            resolve_name(named)
        except (ImportError, AttributeError) as error:
            if package := _missing(named.rpartition(".")[0]):
                needs = NEEDS.get(package, package)
                raise InputError(f"{named} needs {package}, which is not installed: pip install {needs}") from error
            *_, name = named.split(".")
            own = re.compile(rf"^(class|def) {name}\b", re.MULTILINE)
            files = [path for path in sorted(SCRIPTS.rglob("*.py")) if own.search(path.read_text(encoding="utf-8"))]
            now = [".".join(("scripts", *path.relative_to(SCRIPTS).with_suffix("").parts, name)) for path in files]
            said = f"is {' or '.join(now)} now" if now else f"cannot be found ({error})"
            raise InputError(f"{named} {said}. Change the config that names it.") from error
