"""The command line of MONAI's runner: its words are checked before work starts.

`python -m monai.bundle run` takes any option. A misspelt one changes nothing, one with the name of a component replaces
that component, and a text may be code. `check_options` refuses these.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from .errors import InputError, few
from .options import EVALUATED, MEANINGS, OPTIONS, PATHS, PATTERNS, check_texts, texts

if TYPE_CHECKING:
    from monai.bundle import ConfigParser

NEAR = 0.85  # of the letters of two names; names of one config are less alike, and slips more
PROGRAM = ("monai", "bundle", "__main__.py")
# module -> the packages to install for it
NEEDS = {"ignite": "pytorch-ignite tensorboard", "skimage": "scikit-image"}


def check_options(typed: Sequence[str] | None = None) -> None:
    """Checks options of `python -m monai.bundle run`; None for those of this process, if that is its command.

    It stands in the configs' `initialize`. Before, MONAI evaluates `bundle_root` alone, and looks up values that begin
    with `%`.
    """
    if typed is None:
        if Path(sys.argv[0]).parts[-3:] != PROGRAM or sys.argv[1:2] != ["run"]:
            return
        typed = sys.argv[2:]
    from monai.bundle import ConfigParser  # here: it takes seconds, which drift-mri --help need not
    from monai.utils import ensure_tuple

    values = _values(typed)
    values = {**ConfigParser.load_config_files(values.get("args_file", {})), **values}
    sys.path += [str(Path(path).absolute().parent) for path in ensure_tuple(values["config_file"])]  # for their modules
    config = _config(values)
    _check_targets([config, *(value for name, value in values.items() if name not in (*PATHS, *PATTERNS))])
    for name in ("run_id", "init_id", "final_id"):
        if name in values and _root(values[name]) not in config:
            raise InputError(f"{values[name]} is nothing that can be run.{_nearest(_root(values[name]), config)}")
    run = _root(values.get("run_id", "run"))
    reached = _check_references(run, config)
    if idle := [f"--{name}" for name in values if name in OPTIONS and name in config and name not in reached]:
        raise InputError(f"{few(idle)}: nothing in `{run}` of this config refers to it. Leave it out.")
    for name, value in values.items():
        if name not in _runner():
            _check_name(name, value, config)


def check_names(config: "ConfigParser") -> None:
    """Refuses a value whose name is nearly that of another one, and that nothing refers to.

    MONAI passes over a misspelt override of a workflow, or a misspelt line of a stacked file, in silence. A name of
    another config of the bundle is none: a file of a method may hold `profiles` for its training, and rebuild.
    """
    content = config.get()
    used = set(re.findall(r"@(\w+)", json.dumps(content, default=str)))
    for name in [name for name, value in content.items() if name not in used and not _is_component(name, value)]:
        near = get_close_matches(name, used, 2, NEAR)
        near = [one for one in near if re.sub(r"\d", "", one) != re.sub(r"\d", "", name)]  # stage1, stage2
        if near and name not in _names_of_the_bundle():
            raise InputError(f"{name} is no name of this config, and nothing refers to it. Did you mean {near[0]}?")


def _names_of_the_bundle() -> set[str]:
    """Top-level names of the bundle's own configs."""
    files = Path(__file__).parents[1].glob("configs/*.yaml")
    return {name for file in files for name in re.findall(r"(?m)^(\w+):", file.read_text(encoding="utf-8"))}


def _runner() -> list[str]:
    from monai.bundle import run

    return [name for name in signature(run).parameters if name != "override"]


def _values(typed: Sequence[str]) -> dict[str, Any]:
    """Options -> values, as Fire reads them for MONAI's runner."""
    import fire
    from monai.bundle import run

    values: dict[str, Any] = {}

    @wraps(run)
    def keep(*positional: Any, **others: Any) -> None:
        values.update({name: value for name, value in zip(_runner(), positional) if value is not None}, **others)

    fire.Fire(keep, list(typed[: typed.index("--")] if "--" in typed else typed))  # Fire has the words after it
    return values


def _root(name: Any) -> str:
    return re.split("::|#", str(name))[0]


def check_config(path: str | Path) -> None:
    """Refuses a file of settings that cannot be read, or that holds something else."""
    from monai.bundle import ConfigParser

    wanted = "expected settings of the method in a file that ends in .yaml or .json. Set --config"
    try:
        content = ConfigParser.load_config_file(str(path))
    except Exception as error:  # noqa: BLE001  # of YAML, JSON, MONAI and the disk
        raise InputError(f"config {path} cannot be read ({str(error).partition(chr(10))[0]}): {wanted}.") from None
    if not isinstance(content, dict):
        raise InputError(f"config {path} holds a {type(content).__name__}: {wanted}.")


def _config(values: Mapping[str, Any]) -> dict[str, Any]:
    """Top-level content of the config files, with the additions of experiment tracking."""
    from monai.bundle import ConfigParser
    from monai.bundle.utils import DEFAULT_EXP_MGMT_SETTINGS

    parser = ConfigParser()
    parser.read_config(values["config_file"])
    tracking = values.get("tracking", {})
    added: Any = DEFAULT_EXP_MGMT_SETTINGS.get(tracking) if isinstance(tracking, str) else tracking
    return {**parser.get(), **(added or ConfigParser.load_config_files(tracking)).get("configs", {})}


def _check_references(run_id: str, config: Mapping[str, Any]) -> set[str]:
    """Top-level names on which a run depends.

    Refuses a config that lacks the file on which it stands, such as evaluate.yaml without inference.yaml.
    """
    reached: set[str] = set()
    waiting = {run_id}
    while waiting:
        name = waiting.pop()
        reached.add(name)
        for text in re.findall(r'"[$@][^"]*"', json.dumps(config.get(name), default=str)):
            waiting |= set(re.findall(r"@(\w+)", text)) - reached
    if lost := sorted(reached - {run_id, *config}):
        raise InputError(
            f"{few(lost)}: named in the config and nowhere defined. A file is missing under it. Stack it, such as "
            "evaluate.yaml on inference.yaml: --config_file \"['configs/inference.yaml','configs/evaluate.yaml']\"."
        )
    return reached


def _is_component(name: str, content: Any) -> bool:
    """Whether a top-level name of a config stands for a part of the machinery. A plain value sets an option alone."""
    if isinstance(content, list):
        return any(isinstance(one, dict) for one in content)
    return isinstance(content, dict) or (isinstance(content, str) and content[:1] == "$" and name not in PATHS)


def _check_name(name: str, value: Any, config: Mapping[str, Any]) -> None:
    root = _root(name)
    if root not in config:
        if root in MEANINGS:
            raise InputError(f"--{name} is no option: {MEANINGS[root]}.")
        raise InputError(f"--{name} is no option.{_nearest(root, [*_runner(), *config], '--')}")
    if root != name:
        return _check_part(name, config)
    if not _is_component(name, config[name]):
        check_texts({name: value})
        if name in (*PATHS, *PATTERNS):
            _check_path(name, value)
    elif not isinstance(value, dict | list) and not str(value).startswith(EVALUATED):
        options = [one for one, content in config.items() if not _is_component(one, content)]
        made_of = [one for one in re.findall(r"@(\w+)", str(config[name])) if one in options]
        near = get_close_matches(name, options, 1) or made_of[:1]
        meant = f" Did you mean --{near[0]}?" if near else ""
        raise InputError(
            f"--{name} is no option but a component of the config, which {value!r} would replace.{meant} A part of it "
            f"is set as in --{name}::PART VALUE."
        )


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


def _check_path(name: str, value: Any) -> None:
    """Refuses a path or pattern that Fire reads as something else than a text, as it does 2024 and 1e5."""
    kind, as_text = ("path", "./NAME") if name in PATHS else ("pattern or label", "\"['NAME']\"")
    several = name in (*PATTERNS, "input") and isinstance(value, list | tuple)
    for one in value if several else [value]:
        if one == "":
            raise InputError(f"--{name} is empty: expected a {kind}. Leave it out, or give . for this folder.")
        if not (one is None or isinstance(one, str) or (name in PATTERNS and type(one) is int)):  # an int is a label
            raise InputError(f"--{name} is read as {one!r}: expected a {kind}. Write it as {as_text}.")


def _missing(module: str) -> str | None:
    """The package that a module of the bundle imports and that is not installed."""
    try:
        import_module(module)
    except ImportError as error:
        package = str(error.name).split(".")[0]
        return package if isinstance(error, ModuleNotFoundError) and package != "scripts" else None
    return None


def _check_targets(content: Any) -> None:
    """Refuses a config that names things unknown to this bundle, or things of a package that is not installed."""
    for named in re.findall(r"\bscripts(?:\.\w+)+", " ".join(texts(content))):
        try:
            resolve_name(named)
        except (ImportError, AttributeError) as error:
            if package := _missing(named.rpartition(".")[0]):
                needs = NEEDS.get(package, package)
                raise InputError(f"{named} needs {package}, which is not installed: pip install {needs}") from error
            raise InputError(f"{named} cannot be found ({error}). Change the config that names it.") from error
