"""The recipe of a training: all that its result depends on. Two trainings with one recipe make the same weights."""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Mapping, Sequence
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
MACHINE = {"device", "num_workers", "follower"}
INTERVALS = {"val_interval", "checkpoint_interval"}
WITHOUT_EFFECT = PLACES | MACHINE | INTERVALS
RELEASE = "_meta_::version"
LOG = "@follower"  # what the first of several processes does alone changes no result: it is `_disabled_` in the others
SHOWN = 3  # differences in a message
ABSENT = "absent"


def parser_at_work() -> ConfigParser:
    """The parser of the config whose component is being made.

    MONAI gives a component its arguments, not the config they stand in. The parser is found among the callers.

    Raises:
        RuntimeError: if no parser is among the callers.
    """
    for frame, _ in traceback.walk_stack(None):
        caller = frame.f_locals.get("self")
        if isinstance(caller, ConfigParser):
            return caller
    raise RuntimeError("a training is a component of a config: make it by a ConfigParser.")


def recipe(parser: ConfigParser, name: str) -> dict[str, Any]:
    """What a component depends on: its own part of the config, each part that it refers to, at any depth, the release.

    Paths, devices, workers, intervals and logs are left out (`WITHOUT_EFFECT`, `LOG`).

    Args:
        parser: with the config, all overrides included.
        name: id of the component, such as `stage1`.

    Returns:
        Id of each value -> the value, as in `{"network_def::apn::residual": True, "seed": 0}`. References stay as they
        are written, since what they refer to stands beside them.
    """
    values: dict[str, Any] = {}
    reached, waiting = set(), [name, *([RELEASE] if RELEASE in parser else [])]
    while waiting:
        place = ReferenceResolver.normalize_id(waiting.pop())
        if place in reached or WITHOUT_EFFECT & set(ReferenceResolver.split_id(place)):
            continue
        reached.add(place)
        item = parser[place]
        if isinstance(item, dict) and item.get("_disabled_") == LOG:
            continue
        if isinstance(item, dict | list) and item:
            waiting += [inner for _, inner, _ in ReferenceResolver.iter_subconfigs(place, item)]
            continue
        if isinstance(item, str):
            waiting += ReferenceResolver.match_refs_pattern(item)
        plain = item is None or isinstance(item, str | int | float | dict | list)
        values[place] = item if plain else f"{type(item).__module__}.{type(item).__qualname__}"
    return values


def options_at_work() -> dict[str, Any]:
    """The options of a training, for logs: name -> value, of all that is no component, reference or expression."""

    def plain(item: Any) -> bool:
        if isinstance(item, dict | list):
            return all(map(plain, item.values() if isinstance(item, dict) else item))
        return not str(item).startswith(("$", "@"))

    config: dict = parser_at_work().get()
    known = {name: item for name, item in config.items() if name != ConfigParser.meta_key and plain(item)}
    return {name: item for name, item in known.items() if not isinstance(item, dict) or "_target_" not in item}


def digest(*content: object) -> str:
    """A short hash of values that JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def data_digest(volumes: Sequence[Mapping], label_maps: Sequence[Mapping]) -> str:
    """A hash of the data: of each file's content, wherever it lies, and of what is said of it.

    Args:
        volumes: items of `datasets.sharp_volumes`.
        label_maps: items of `datasets.label_maps`.

    Raises:
        InputError: if a file cannot be read.
    """

    def known(item: Mapping) -> dict:
        return {**item, **{name: sha256([item[name]]) for name in ("label", "lesions") if name in item}}

    try:
        return digest(*([known(item) for item in items] for items in (volumes, label_maps)))
    except OSError as error:
        raise InputError(f"a volume of the data cannot be read ({error}). Mend the datalist.") from error


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Names what differs between two recipes, the first few in full; empty if nothing does."""
    names = sorted(name for name in {*old, *new} if old.get(name, ABSENT) != new.get(name, ABSENT))
    told = [f"{name} was {old.get(name, ABSENT)}, is {new.get(name, ABSENT)}" for name in names[:SHOWN]]
    return "; ".join([*told, *([f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else [])])
