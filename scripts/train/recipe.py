"""The recipe of a training: all that its result depends on. Two trainings with one recipe make the same weights."""

import hashlib
import json
import traceback
from collections.abc import Container, Mapping, Sequence
from typing import Any

from monai.bundle import ConfigParser
from monai.bundle.reference_resolver import ReferenceResolver

from ..errors import InputError
from ..files import sha256

# Ids that change no result, wherever they stand in a config
PLACES = {  # the content of files counts
    *("bundle_root", "dataset_dir", "label_dir", "output_dir"),
    *("ckpt_path", "start", "error_start", "shipped"),
}
LOGS = {"val_interval", "checkpoint_interval", "tracking", "config"}
WITHOUT_EFFECT = PLACES | LOGS | {"device"}
RELEASE = "_meta_::version"
SHOWN = 3  # differences in a message
ABSENT = "absent"
SPELT = {"true": True, "false": False}  # texts of a command line


def parser_at_work() -> ConfigParser:
    """The config in which this stands as a component.

    MONAI gives a component its arguments, not the config they stand in. The parser is found among the callers.
    """
    for frame, _ in traceback.walk_stack(None):
        caller = frame.f_locals.get("self")
        if isinstance(caller, ConfigParser):
            return caller
    raise RuntimeError("a training is a component of a config: make it by a ConfigParser.")


def recipe(parser: ConfigParser, name: str, without: Container[str] = WITHOUT_EFFECT) -> dict[str, Any]:
    """All that a component depends on: its part of the config, each part that it refers to, at any depth, the release.

    Paths, devices, intervals and logs of a training are left out.

    Args:
        parser: with the config, all overrides included.
        name: id of the component, such as `stage1`.
        without: names of ids that change no result, wherever they stand.

    Returns:
        Id of each value -> the value, as in `{"network_def::apn::residual": True, "seed": 0}`. References stay as they
        are written, since their values stand beside them.
    """
    values: dict[str, Any] = {}
    reached, waiting = set(), [name, *([RELEASE] if RELEASE in parser else [])]
    while waiting:
        place = ReferenceResolver.normalize_id(waiting.pop())
        if place in reached or any(part in without for part in ReferenceResolver.split_id(place)):
            continue
        reached.add(place)
        item = parser[place]
        if isinstance(item, dict | list) and item:
            waiting += [inner for _, inner, _ in ReferenceResolver.iter_subconfigs(place, item)]
            continue
        if isinstance(item, str):
            waiting += ReferenceResolver.match_refs_pattern(item)
            item = SPELT.get(item.lower(), item)
        plain = item is None or isinstance(item, str | int | float | dict | list)
        values[place] = item if plain else f"{type(item).__module__}.{type(item).__qualname__}"
    return values


def options_of(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a recipe, for logs: name -> value. Parts of something, references and expressions are none."""
    return {name: item for name, item in recipe.items() if "::" not in name and not str(item).startswith(("$", "@"))}


def digest(*content: object) -> str:
    """A short hash of values that JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def data_digest(volumes: Sequence[Mapping], label_maps: Sequence[Mapping]) -> str:
    """A hash of the data: of each file's content, wherever it lies, and of its entry."""

    def known(item: Mapping) -> dict:
        return {**item, **{name: sha256([item[name]]) for name in ("label", "lesions", "guide") if name in item}}

    try:
        return digest(*([known(item) for item in items] for items in (volumes, label_maps)))
    except OSError as error:
        raise InputError(f"a volume of the data cannot be read ({error}). Mend the datalist.") from error


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Names the differences of two recipes, the first few in full; empty if there are none."""
    names = sorted(name for name in {*old, *new} if old.get(name, ABSENT) != new.get(name, ABSENT))
    named = [f"{name} was {old.get(name, ABSENT)}, is {new.get(name, ABSENT)}" for name in names[:SHOWN]]
    return "; ".join([*named, *([f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else [])])
