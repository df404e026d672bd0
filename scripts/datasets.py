"""Which volumes: the training set and its split by subject, the scans to rebuild, and the built-in sample."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

VALIDATION_SHARE = 0.15  # of subjects, where no datalist says


def _subject(path: Path) -> str:
    """BIDS subject of a path, else the file's name up to its first underscore or dot."""
    match = re.search(r"sub-[A-Za-z0-9]+", str(path))
    return match.group(0) if match else re.split(r"[_.]", path.name)[0]


def _in_validation(subject: str) -> bool:
    """Whether a subject is held out; depends on its name alone, so that new volumes never move old ones."""
    return int(hashlib.sha256(subject.encode()).hexdigest(), 16) % 1000 < 1000 * VALIDATION_SHARE


def _from_datalist(path: Path, section: str) -> list[dict]:
    content = json.loads(path.read_text())
    if isinstance(content, dict):  # Medical Segmentation Decathlon
        entries = content.get(section, [])
        entries = [{"image": entry} if isinstance(entry, str) else entry for entry in entries]
    else:  # one list, a `kind` for each entry
        kind = {"training": "train", "validation": "val"}[section]
        entries = [entry for entry in content if entry.get("kind") == kind]
    return [{**entry, "label": str(path.parent / entry["image"])} for entry in entries]


def _from_tree(root: Path, section: str) -> list[dict]:
    paths = sorted(p for p in root.rglob("*") if p.name.endswith((".nii", ".nii.gz")))
    held_out = section == "validation"
    return [
        {"label": str(p), "subject": _subject(p.relative_to(root))}
        for p in paths
        if _in_validation(_subject(p.relative_to(root))) == held_out
    ]


def sharp_volumes(dataset_dir: str | os.PathLike, section: str) -> list[dict]:
    """Sharp volumes to train on or to validate with.

    Args:
        dataset_dir: a folder with NIfTI files at any depth, whose subjects are split by name; or a datalist in JSON:
            `{"training": [{"image": "a.nii.gz", "sharp_axes": [0, 1]}, ...], "validation": [...]}` or one list whose
            entries have `"kind": "train"` or `"val"`. Paths are relative to the datalist.
        section: `"training"` or `"validation"`.

    Returns:
        Items with `label`, the path; `sharp_axes`, the array axes along which the volume is truly sharp (all three
        where nothing is said); `subject` and `contrast`, `"unknown"` where nothing is said.

    Raises:
        ValueError: if nothing is found, or a subject stands in both sections.
    """
    root = Path(dataset_dir)
    if section not in ("training", "validation"):
        raise ValueError(f"section is {section!r}: expected 'training' or 'validation'.")
    if not root.exists():
        raise ValueError(f"dataset_dir {root} does not exist. Give a folder of NIfTI volumes or a datalist in JSON.")
    read = _from_datalist if root.is_file() else _from_tree
    items = {name: read(root, name) for name in ("training", "validation")}
    shared = {i["subject"] for i in items["training"] if "subject" in i} & {
        i["subject"] for i in items["validation"] if "subject" in i
    }
    if shared:
        raise ValueError(f"{root}: subjects {sorted(shared)} stand in both training and validation. Split by subject.")
    if not items[section]:
        raise ValueError(f"{root}: no volumes for {section}. Add NIfTI files, or list them in a JSON datalist.")
    return [
        {
            "label": item["label"],
            "sharp_axes": tuple(item.get("sharp_axes", (0, 1, 2))),
            "subject": item.get("subject", "unknown"),
            "contrast": item.get("contrast", "unknown"),
        }
        for item in items[section]
    ]
