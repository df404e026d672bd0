"""The door: the command line is looked at before work starts, so that no slip of the hand is passed over.

`python -m monai.bundle run` takes any option: a misspelt one changes nothing, and the text of each becomes what Python
or a config would make of it. That suits numbers; for names of files it is refused here.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fire.parser import DefaultParseValue
from monai.bundle import ConfigParser, run
from monai.bundle.utils import DEFAULT_EXP_MGMT_SETTINGS

from .errors import InputError

PROGRAM = ("monai", "bundle", "__main__.py")
OPTIONS = [name for name in inspect.signature(run).parameters if name != "override"]  # of MONAI's runner
PATHS = ("input", "dataset_dir", "label_dir", "output_dir", "ckpt_path", "segmenter")  # or what begins with one
PATTERNS = ("include", "exclude", "participant_label")
EVALUATED = ("$", "@", "%")  # a text that begins so is code, a reference or a file to a config


def check_options(argv: Sequence[str] | None = None) -> None:
    """Checks what was typed, if the program is `python -m monai.bundle run`.

    It stands in the configs' `initialize`, before which MONAI evaluates nothing but `bundle_root`. MONAI does look up
    `%` before: such a value ends in its own message, unless it names a config.

    Args:
        argv: the program and its arguments; null for those of this process.

    Raises:
        InputError: if an option or id is known neither to MONAI nor to the config files, or a path would be read as
            something else than was typed.
    """
    program, *typed = sys.argv if argv is None else argv
    if Path(program).parts[-3:] != PROGRAM or typed[:1] != ["run"]:
        return
    texts = _texts(typed[1:])
    values = {name: DefaultParseValue(text) for name, text in texts.items()}
    values = {**ConfigParser.load_config_files(values.get("args_file", {})), **values}
    known = _known(values)
    for name in values:
        if name not in OPTIONS and _root(name) not in known:
            raise InputError(f"--{name} is no option.{_nearest(_root(name), [*OPTIONS, *known], '--')}")
    for name in ("run_id", "init_id", "final_id"):
        if name in values and _root(values[name]) not in known:
            raise InputError(f"{values[name]} is nothing that can be run.{_nearest(_root(values[name]), known)}")
    for name in (*PATHS, *PATTERNS):
        if name in texts:
            _check_text(name, texts[name], values[name])


def _texts(typed: Sequence[str]) -> dict[str, str]:
    """Options and their texts, told apart as fire does."""
    texts: dict[str, str] = {}
    words, alone = list(typed), []
    while words and words[0] != "--":  # what follows is for fire itself
        word = words.pop(0)
        if not _is_flag(word):
            alone.append(word)
            continue
        name, equals, text = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if not equals and (not words or _is_flag(words[0])):
            text = "" if name in (*PATHS, *PATTERNS) else "True"
            name = name if name in OPTIONS else name.removeprefix("no")
        elif not equals:
            text = words.pop(0)
        texts[name] = text
    return {**dict(zip([name for name in OPTIONS if name not in texts], alone)), **texts}


def _is_flag(word: str) -> bool:
    return bool(re.match("--|-[a-zA-Z]", word))


def _root(name: Any) -> str:
    return re.split("::|#", str(name))[0]


def _known(values: dict[str, Any]) -> set[str]:
    """Top-level names of the config files, and those that experiment tracking adds."""
    parser = ConfigParser()
    parser.read_config(values["config_file"])
    tracking = values.get("tracking", {})
    settings: Any = DEFAULT_EXP_MGMT_SETTINGS.get(tracking) if isinstance(tracking, str) else tracking
    return {*parser.get(), *(settings or ConfigParser.load_config_files(tracking)).get("configs", {})}


def _nearest(name: str, known: Collection[str], prefix: str = "") -> str:
    found = get_close_matches(name, known, 1)
    return f" Did you mean {prefix}{found[0]}?" if found else " Look up the top-level names of the config file."


def _check_text(name: str, text: str, value: Any) -> None:
    kind, as_text = ("path", f"./{text}") if name in PATHS else ("pattern or label", f"\"['{text}']\"")
    listed = isinstance(value, list | tuple) and text[0] in "[("
    if listed and not all(isinstance(one, str) for one in value):
        raise InputError(f"--{name} {text} is read as {value}: expected names in quotes, as in \"['a.nii', 'b.nii']\".")
    number = name in PATTERNS and type(value) is int and str(value) == text  # a label
    if not listed and text[:1] not in ("'", '"') and value != text and not number:
        raise InputError(f"--{name} {text} would be read as {value!r}. Write it as {as_text}.")
    for one in value if listed else [str(value)]:
        if not one:
            raise InputError(f"--{name} is empty: expected a {kind}. Leave it out, or give . for this folder.")
        if one.startswith(EVALUATED):
            plain = f"./{one}" if name in PATHS else f"[{one[0]}]{one[1:]}"  # to a shell pattern the same
            raise InputError(f"--{name} {one} begins with {one[0]}, which MONAI would evaluate. Write it as {plain}.")
