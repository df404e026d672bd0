"""Which volumes to learn from: sharp ones and their split by subject, label maps, and how often each is drawn."""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import nibabel as nib
from monai.data import CacheDataset, get_track_meta, set_track_meta
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..errors import InputError, logger
from ..files import NIFTI, ends_as, stem, walk
from ..inputs import kinds, names
from ..inputs.exclusion import looked_at
from .truth import check_label_map, check_truth

VALIDATION_SHARE = 0.15  # of subjects, where no datalist says
UNSAID: dict[str, Any] = {
    "sharp_axes": (0, 1, 2),
    "contrast": "unknown",
}  # facts of a volume whose entry says no others


def _subjects(root: Path, paths: Sequence[Path]) -> list[str]:
    """The person of each file below a folder: `sub-...` in its path, the first token of its name, or its folder.

    Folders and tokens are those of `inputs.names`, by which heads are told apart before a guide's image does. No image
    tells here: a folder whose first tokens all differ is of as many people. Where files of one name lie in several
    folders, as in `ana/T1.nii` and `ben/T1.nii`, the folders name the people.
    """
    named: dict[Path, str] = {}
    for path in paths:
        match = re.search(r"(sub-[A-Za-z0-9]+)", path.relative_to(root).as_posix())
        named[path] = match[1] if match else names.first_token(stem(path.name))
    others = [path for path in paths if not named[path].startswith("sub-")]
    places = {path: names.folder(path).relative_to(root.absolute()).parts for path in others}
    folder = {path: (*places[path], ".")[0] for path in others}
    if len({(path.name, places[path]) for path in others}) == len({path.name for path in others}):
        return [one or folder[path] for path, one in named.items()]
    for first in set(folder.values()):
        held = sorted({named[path] for path in others if folder[path] == first} - {""})
        if len(held) > 1:
            raise InputError(
                f"{root}: files of one name lie in several folders, and {first} holds {held[0]} and {held[1]}: which "
                "are one person's is not known. Name files or folders sub-..., or give a datalist with subjects."
            )
    return [folder.get(path, named[path]) for path in paths]


def _held_out(subjects: set[str]) -> set[str]:
    """Subjects for validation: each by its own name, so that new ones never move old ones; at least one, never all."""
    rank = {subject: int(hashlib.sha256(subject.encode()).hexdigest(), 16) % 1000 for subject in sorted(subjects)}
    chosen = {subject for subject in rank if rank[subject] < 1000 * VALIDATION_SHARE}
    return chosen if 0 < len(chosen) < len(rank) else set(sorted(rank, key=rank.__getitem__)[:1])


def from_datalist(path: Path, section: str) -> list[dict]:
    """Entries of a datalist's section, `"training"`, `"validation"` or `"thick"`, as items of `sharp_volumes`."""
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path} cannot be read as a JSON datalist ({error}). Mend it.") from error
    if isinstance(content, dict):  # Medical Segmentation Decathlon
        entries = content.get(section, [])
    else:  # one list, a `kind` for each entry
        entries = content
    if not isinstance(entries, list):
        raise InputError(f"{path}: {section} is a {type(entries).__name__}: expected a list of volumes. Mend it.")
    entries = [{"image": entry} if isinstance(entry, str) else entry for entry in entries]
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("image"), str):
            raise InputError(f'{path}: entry {entry!r} names no image: expected a path in its "image". Mend it.')
        for name in ("lesions", "contrast"):
            if not isinstance(entry.get(name, ""), str):
                raise InputError(f"{path}: entry {entry!r} has a {name} that is no text. Mend it, or leave it out.")
        guides = entry.get("guides", [])
        if not isinstance(guides, list) or not all(isinstance(guide, str) for guide in guides):
            raise InputError(f"{path}: entry {entry!r} has guides that are no list of paths. Mend it.")
        axes = entry.get("sharp_axes", [0])
        known = isinstance(axes, list) and all(type(axis) is int and axis in range(3) for axis in axes)
        if not known or not 0 < len({*axes}) == len(axes):
            raise InputError(
                f"{path}: entry {entry!r} has no sharp axes: expected some of 0, 1 and 2, each once. Mend it, or leave "
                "them out for all three."
            )
    if isinstance(content, list):
        kind = {"training": "train", "validation": "val", "thick": "thick"}[section]
        entries = [entry for entry in entries if entry.get("kind") == kind]
    names = {"image": "label", "lesions": "lesions"}
    return [
        {**UNSAID, "subject": entry["image"], **entry}
        | {name: str(path.parent / entry[key]) for key, name in names.items() if key in entry}
        | ({"guides": [str(path.parent / guide) for guide in entry["guides"]]} if "guides" in entry else {})
        for entry in entries
    ]


def _nifti_files(root: Path) -> list[Path]:
    """NIfTI files below a folder. Hidden files and folders, such as git-annex has them, are left out."""
    found = (folder / name for folder, _, names in walk(root) for name in names if ends_as(name, NIFTI))
    return sorted(path for path in found if path.is_file())


def _from_tree(root: Path, section: str) -> list[dict]:
    paths = _nifti_files(root)
    items = [
        {**UNSAID, "label": str(p), "subject": s}
        | ({"contrast": kind} if (kind := stem(p.name).split("_")[-1]) in kinds.WEIGHTED else {})
        for p, s in zip(paths, _subjects(root, paths))
    ]
    held_out = _held_out({item["subject"] for item in items})
    return [item for item in items if (item["subject"] in held_out) == (section == "validation")]


def _fit(root: Path, items: Sequence[dict], check: Callable[[dict], None]) -> list[dict]:
    """The items that pass a check. In a folder the others are skipped with a line that says why."""
    fit, mistakes = [], []
    with logging_redirect_tqdm():
        for item in tqdm(items, desc="looking", unit="volume", leave=False, delay=1, disable=None):
            try:
                check(item)
                fit.append(item)
            except InputError as mistake:
                if not root.is_dir():
                    raise
                mistakes.append(mistake)
                logger.info(f"Skipped: {mistake}")
    if not fit:
        raise InputError(f"{root}: none of {len(items)} volumes is fit. The first: {mistakes[0]}")
    return fit


def _check(item: dict, by_name: bool) -> None:
    """Refuses a volume that is no truth; in a folder, where nobody named it, also a doubtful one."""
    doubt = check_truth(path := item["label"], item["sharp_axes"])
    if by_name and (why := doubt or looked_at(Path(path), None).why):
        raise InputError(f"{path} is no sure scan: {why}. Name it in a datalist if it is one.")
    if doubt:
        logger.warning(f"{path}: {kinds.MARK.format(doubt)}. It is taken, since the datalist names it.")


def sharp_volumes(
    dataset_dir: str | os.PathLike, section: str | None, largest_spacing: float | None = None
) -> list[dict]:
    """Sharp volumes to train on, to validate with, or all.

    Args:
        dataset_dir: a folder with NIfTI files at any depth, whose subjects are split by name; or a datalist in JSON:
            `{"training": [{"image": "a.nii.gz", "sharp_axes": [0, 1]}, ...], "validation": [...]}` or one list whose
            entries have `"kind": "train"` or `"val"`. Paths are relative to the datalist. Without `"subject"` each
            file is a subject of its own. A file that is no truth (`truth.check_truth`) is refused in a datalist; in a
            folder it is skipped with a line that says why.
        section: `"training"`, `"validation"`, or `"all"` for both. Null: all of a folder, validation of a datalist.
        largest_spacing: in mm; volumes with a larger one along any axis are left out, for methods that learn from
            solid pieces and not from planes. Null for none.

    Returns:
        Items with `label`, the path; `sharp_axes`, the array axes along which the volume is truly sharp (all three
        where nothing is said); `subject`; `contrast`, in a folder the suffix of a BIDS name, such as `T1w`, and
        `"unknown"` where nothing is said; where the datalist names them, `lesions`, the path of a mask, and `guides`,
        paths of scans of other contrasts of the same head, in place.
    """
    root = Path(dataset_dir)
    if section is None:
        section = "all" if root.is_dir() else "validation"
    if section not in ("training", "validation", "all"):
        raise InputError(f"section is {section!r}: expected training, validation or all. Set --section.")
    if not root.exists():
        raise InputError(f"dataset_dir {root} does not exist. Give a folder of NIfTI volumes or a datalist in JSON.")
    read = from_datalist if root.is_file() else _from_tree
    items = {name: read(root, name) for name in ("training", "validation")}
    shared = {i["subject"] for i in items["training"]} & {i["subject"] for i in items["validation"]}
    if shared:
        raise InputError(f"{root}: subjects {sorted(shared)} stand in both training and validation. Split by subject.")
    items["all"] = items["training"] + items["validation"]
    if not items[section]:
        one = "".join(f" Here all are of one, {name}." for name in {item["subject"] for item in items["all"]})
        raise InputError(
            f"{root}: no volumes for {section}. A folder needs NIfTI files of two subjects or more, a datalist needs "
            f"both a training and a validation list.{one if root.is_dir() else ''}"
        )
    chosen = items[section]
    if section == "training":
        if root.is_dir():
            both = [sorted({item["subject"] for item in items[name]}) for name in ("training", "validation")]
            learnt, held_out = (f"{len(names)} ({', '.join(names)})" for names in both)
            logger.info(f"{root}: trains on {learnt}; holds out {held_out}, by their names. A datalist says otherwise.")
        for item in chosen:
            if len(item["sharp_axes"]) < 2:
                raise InputError(
                    f"{item['label']} has one sharp axis: training takes planes that are sharp along both of theirs. "
                    'Give it two "sharp_axes" or more, or leave it out.'
                )
    chosen = _fit(root, chosen, partial(_check, by_name=root.is_dir()))
    if largest_spacing is not None:
        headers: list[Any] = [nib.load(item["label"]).header for item in chosen]
        chosen = [item for item, header in zip(chosen, headers) if max(header.get_zooms()[:3]) <= largest_spacing]
        if not chosen:
            raise InputError(
                f"{root}: every volume for {section} has voxels above largest_spacing, {largest_spacing:g} mm. "
                "Give others, or raise it."
            )
    known = ("label", "subject", "contrast", "lesions", "guides")
    return [
        {name: item[name] for name in known if name in item} | {"sharp_axes": tuple(item["sharp_axes"])}
        for item in chosen
    ]


def with_guides(volumes: Sequence[dict]) -> list[dict]:
    """An item for each guide of each volume, whose path is its `guide`; one item for a volume without guides."""
    items: list[dict] = []
    for volume in volumes:
        plain = {key: value for key, value in volume.items() if key != "guides"}
        items += [{**plain, "guide": guide} for guide in volume.get("guides", [])] or [plain]
    return items


def label_maps(label_dir: str | os.PathLike | None) -> list[dict]:
    """Label maps that contrasts are synthesised from, at any depth of a folder (`contrast.RandTissueContrastd`).

    Other files are skipped with a line that says why. Items are as in `sharp_volumes`, their contrast
    `"synthetic"`.
    """
    if label_dir is None:
        return []
    root = Path(label_dir)
    paths = _nifti_files(root)
    if not paths:
        raise InputError(
            f"label_dir {root}: no .nii or .nii.gz file there. Give a folder of label maps, or leave it out."
        )
    items = [{"label": str(p), "sharp_axes": (0, 1, 2), "subject": p.name, "contrast": "synthetic"} for p in paths]
    return _fit(root, items, lambda item: check_label_map(item["label"]))


def contrast_weights(
    volumes: Sequence[Mapping], label_maps: Sequence[Mapping], shares: Mapping[str, float], guided: float = 0.5
) -> list[float]:
    """Weights for drawing items so that each contrast has its share, however many volumes show it.

    Args:
        volumes: items of `sharp_volumes`, or of `with_guides`.
        label_maps: items of `label_maps`; their contrast is `"synthetic"`.
        shares: contrast -> how often it is drawn, relative to the others; 1 for those that are not named.
        guided: share of a contrast's planes that come from items with a guide, where it has both kinds.

    Returns:
        A weight for each item, the volumes first.
    """
    items = [*volumes, *label_maps]
    count = Counter((item["contrast"], "guide" in item) for item in items)
    weights = []
    for item in items:
        contrast, has_guide = item["contrast"], "guide" in item
        part = 1.0
        if (contrast, not has_guide) in count:
            part = guided if has_guide else 1 - guided
        weights.append(shares.get(contrast, 1.0) * part / count[contrast, has_guide])
    return weights


class CachedVolumes(CacheDataset):
    """Volumes in memory, whose random transforms give plain tensors.

    A patch needs no affine, and MONAI's record of one takes much of the time that a patch takes. The transforms up to
    the first random one are applied once.
    """

    def __init__(self, data: Sequence, transform: Callable):
        super().__init__(data, transform, copy_cache=False)  # copies would lose the affine

    def _transform(self, index: int) -> Any:
        tracked = get_track_meta()
        set_track_meta(False)
        try:
            return super()._transform(index)
        finally:
            set_track_meta(tracked)
