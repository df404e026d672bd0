"""Provenance: a result's sources and settings, whether it is whole, and whose place it would take."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser

from ..files import sha256, whole_file
from ..inputs import bids
from ..inputs.scan import Scan
from ..method.origin import Origin
from ..method.weights import Card
from ..train.recipe import digest, recipe
from .entries import Record, frozen, to_json

WITHOUT_EFFECT = {  # ids of the config that change no result; of bfloat16 the option counts, a setting
    *("_meta_", "bundle_root", "ckpt_path", "device", "bfloat16", "progress", "sw_batch_size"),
    *("error_map", "error_maps", "confidence", "regions", "spread", "check", "foretelling"),
}
SAID_ALONE = ("error_map", "sharp_error_map", "foretelling")  # facts of a card that change no result
UNKNOWN = (OSError, ValueError, TypeError, LookupError, AttributeError)  # there is no record, or it is not one of ours
RAW = "bids:raw:"  # begins the URI of a source within a BIDS dataset


def file_of(stem: Path, ending: str) -> Path:
    """A file of the result `stem`, which is a path without its ending."""
    return stem.with_name(stem.name + ending)


def name_from(stem: Path, path: Path) -> str:
    """How the record of the result `stem` names a file that was written."""
    return Path(os.path.relpath(path, stem.parent)).as_posix()


def state(path: Path) -> dict[str, Any]:
    """Size in bytes and hash of a file, or of a folder's DICOM files in the order of their names; empty if missing."""
    if not path.exists():
        return {}
    files = sorted(path.glob("*.dcm")) if path.is_dir() else [path]
    return {"Bytes": sum(file.stat().st_size for file in files), "SHA256": sha256(files)}


def made_with(
    parser: ConfigParser, card: Card, origin: Origin, version: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """All that makes results, on whatever machine: the config, the network, its weights, the bundle's version.

    The config's hash is of all that its `rebuilder` is made of, overrides included, but for the error map, which
    `error_maps.asked` compares. The third number of the version changes no result. The settings, options that change a
    result, are for people: one that was left open, such as bfloat16, is null whatever a machine chose.
    """
    made_by = {name: fact for name, fact in asdict(card).items() if name not in SAID_ALONE}
    return {
        "ConfigSHA256": digest(made_by, recipe(parser, "rebuilder", WITHOUT_EFFECT)),
        "Network": origin.entry(),
        "WeightsSHA256": origin.weights,
        "Release": ".".join(version.split(".")[:2]),
        "Settings": dict(settings),
    }


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a record, or another sidecar."""
    with whole_file(path) as partial:
        partial.write_text(to_json(content), encoding="utf-8")


def complete(
    stem: Path,
    made: Mapping[str, Any],
    error_map: Mapping[str, Any] | None = None,
    check: Mapping[str, Any] | None = None,
) -> Record | None:
    """The record of a result that needs no second run; None where there is none.

    Such a result has the same input, settings and weights, and its voxels are unharmed. Its page may be missing or
    harmed. Then the page is left out of `Results`.

    Args:
        stem: path of the result without its ending.
        made: entries that the record must have.
        error_map: of `error_maps.asked`; an error map that is not asked for does not matter.
        check: of `record.asked_check`.
    """
    try:
        record = Record.read(file_of(stem, ".json"))
        same = all(record[name] == frozen(value) for name, value in made.items())
        same &= all(record["ErrorMap"][name] == value for name, value in (error_map or {}).items())
        same &= all(record["Check"][name] == value for name, value in (check or {}).items())
        result, *others = record["Results"].items()
    except UNKNOWN:
        return None
    whole = [(name, was) for name, was in (result, *others) if state(stem.parent / name) == was]
    needed = [result, *(one for one in others if error_map and not one[0].endswith(".html"))]
    return record.replaced(Results=dict(whole)) if same and all(one in whole for one in needed) else None


def other_source(scan: Scan) -> Path | None:
    """The scan that is still there whose result lies in the place of this one's; None where there is none."""
    try:
        earlier = _path(Record.read(file_of(scan.result, ".json"))["Sources"][0], scan.result)
        other = earlier.is_file() and earlier.resolve() not in {file.resolve() for file in scan.files}
    except UNKNOWN:
        return None
    return earlier if other else None


def source_of(scan: Scan, path: Path) -> str:
    """How the record names a source: an archive's image by its UID, within a BIDS dataset by its URI, else by its path.

    The path is relative to the record. All hold from any folder, and after scans and results were moved together.
    """
    if scan.archived:
        return f"urn:oid:{path.stem}"
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
