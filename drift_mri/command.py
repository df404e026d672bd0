"""`drift-mri`: Thick-slice brain MRI scans to isotropic ones, from any folder. It runs configs/inference.yaml."""

import argparse
import logging
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn

from . import BUNDLE, __version__

sys.path.insert(0, str(BUNDLE))  # where `scripts` is, of which the configs speak

from scripts.command_line import check_config, check_options
from scripts.errors import mistakes_alone, printable, report_input_errors
from scripts.options import GRANTED, GROUPS, MEANINGS, OPTIONS, PATHS, PATTERNS, check_there

if TYPE_CHECKING:
    from monai.bundle import ConfigWorkflow

HYPHENS = re.compile(r"(?<=^--)[\w-]+")  # in an option's name they are as good as underscores
# MONAI imports them where they are, which takes seconds
UNNEEDED = {"ignite", "matplotlib", "mlflow", "skimage", "sklearn", "tensorboard"}


def table() -> str:
    """The options as docs/usage.md shows them, in Markdown: a table for each group."""
    lines = list[str]()
    for group, what in GROUPS.items():
        lines += [f"### {group.capitalize()}: {what}", "", "| option | what |", "| --- | --- |"]
        for name, one in OPTIONS.items():
            if one.group == group:
                values = one.value or " or ".join(map(str, one.choices))
                lines.append(f"| `{f'--{name} {values}'.strip()}` | {one.help} |".replace("*", r"\*"))
        lines.append("")
    return "\n".join(lines)


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one line."""

    def parse_args(self, args=None, namespace=None):  # type: ignore[override, no-untyped-def]
        """As argparse does, but names the option that was probably meant. A word after `--dry_run` may be a scan."""
        words = [HYPHENS.sub(lambda name: name[0].replace("-", "_"), word) for word in args]
        for k, word in enumerate(words):
            if word == "--dry_run" and words[k + 1 : k + 2] != ["json"]:
                words[k] = "--dry_run=true"
        options, strangers = self.parse_known_args(words, namespace)
        for stranger in strangers:
            name, _, value = stranger.partition("=")
            known = name.lstrip("-").lower()
            if known in GRANTED and not value:
                continue
            if stranger.startswith("-") and known in MEANINGS:
                self.error(f"{name} is no option: {MEANINGS[known]}")
            if not stranger.startswith("-"):
                self.error(f"{stranger} is one too many: scans stand together, and --report and its like take no value")
            near = get_close_matches(name, [f"--{name}" for name in vars(options)], 1)
            self.error(f"{stranger} is no option{''.join(f'; the nearest is {one}' for one in near)}")
        return options

    def error(self, message: str) -> NoReturn:
        """Exits with code 2."""
        self.exit(2, f"error: {printable(message)}. See {self.prog} --help.\n")


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    result = Parser(prog="drift-mri", description=__doc__.split(". ")[0].split(": ")[1] + ".", allow_abbrev=False)
    result.add_argument(
        "input",
        nargs="+",
        help="a scan (NIfTI, MGZ, MGH, NRRD, MetaImage), DICOM files, a folder of scans and DICOM series at "
        "any depth, or a BIDS dataset",
    )
    result.add_argument(
        "-o",
        "--output_dir",
        metavar="OUT",
        help="folder of the results; or BIDS_DIR OUT participant, as BIDS Apps take it",
    )
    groups = {name: result.add_argument_group(name, what) for name, what in GROUPS.items()}
    for name, one in OPTIONS.items():
        groups[one.group].add_argument(f"--{name}", default=None, **one.argparse)
    result.add_argument("--version", action="version", version=f"drift-mri {__version__}")
    return result


def _take_bids_app(options: argparse.Namespace) -> None:
    """Takes the words of a BIDS App, `BIDS_DIR OUT participant`, for input and output."""
    if options.input[2:] == ["group"]:
        parser().error("group is no level of this app: each scan is rebuilt by itself. Set participant")
    if options.input[2:] != ["participant"]:
        parser().error("there is no folder for the results: expected -o OUT, or BIDS_DIR OUT participant")
    options.input, options.output_dir = options.input[:1], options.input[1]


def overrides(options: argparse.Namespace) -> dict[str, Any]:
    """Options for `ConfigWorkflow`. Paths and patterns are `Path`s: in texts MONAI reads `$`, `@`, `%`, `#`."""
    if "output_dir" in options and options.output_dir is None:
        _take_bids_app(options)
    given = {name: value for name, value in vars(options).items() if value is not None and name != "config"}
    for name in given.keys() & {*PATHS, *PATTERNS}:
        texts = given[name] if isinstance(given[name], list) else [given[name]]
        if not all(texts):
            parser().error(f"{name} is empty: expected a {'path' if name in PATHS else 'pattern or label'}")
        if (name, texts) == ("guide", ["auto"]):
            continue
        paths = [PurePosixPath(text) if name in PATTERNS else Path(text).absolute() for text in texts]
        given[name] = paths if isinstance(given[name], list) else paths[0]
    return given


def workflow(options: argparse.Namespace, given: Mapping[str, Any]) -> "ConfigWorkflow":
    """configs/inference.yaml, initialized: with the files of `options.config` and then the options stacked on it."""
    check_there({**given, "config": [*map(os.path.abspath, options.config or [])]})  # before seconds of imports
    warnings.filterwarnings("ignore", module="monai|torch")  # of their own machinery, not of the scan
    hidden = UNNEEDED - sys.modules.keys()
    sys.modules.update(dict.fromkeys(hidden))  # None says: not installed
    from monai.bundle import ConfigWorkflow  # here: it takes seconds, which --help need not

    for name in hidden:
        del sys.modules[name]
    configs = BUNDLE / "configs"
    logging.getLogger("monai.bundle.workflows").setLevel(logging.ERROR)  # it says where files are
    files = [str(configs / "inference.yaml")]
    for path in map(Path, options.config or []):
        check_config(path)
        files.append(str(path.absolute()))
    if options.config:
        check_options(["--config_file", str(files)])
    result = ConfigWorkflow(
        workflow_type="inference",
        config_file=files,
        logging_file=str(configs / "logging.conf"),
        bundle_root=str(BUNDLE),
        **given,
    )
    if given.get("dry_run") == "json":  # nothing else on standard output
        for handler in logging.getLogger().handlers:
            handler.setStream(sys.stderr)  # type: ignore[attr-defined]  # of configs/logging.conf
    result.initialize()
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """The command. Its exit code is 1 if a scan failed, 2 for arguments that the help does not know, 130 on Ctrl-C."""
    options = parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    given = overrides(options)
    report_input_errors()
    with mistakes_alone():
        built = workflow(options, given)
        built.run()
        built.finalize()
