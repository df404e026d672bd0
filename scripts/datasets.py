"""Which volumes: the training set and its split by subject, the scans to rebuild, and the built-in sample."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
import torch

from . import bids, dicom
from .errors import InputError
from .files import NIFTI, VOLUMES, stem, whole_file
from .grid import fine_affine
from .slice_profile import acquire

logger = logging.getLogger("drift")

THIN = 1.3  # mm; scans of voxels no longer than this need no rebuilding: the largest trained target
VALIDATION_SHARE = 0.15  # of subjects, where no datalist says


def _subject(path: Path) -> str:
    """BIDS subject of a path, else the file's name up to its first underscore or dot."""
    match = re.search(r"sub-[A-Za-z0-9]+", str(path))
    return match.group(0) if match else re.split(r"[_.]", path.name)[0]


def _held_out(subjects: set[str]) -> set[str]:
    """Subjects for validation: each by its own name, so that new ones never move old ones; at least one."""
    rank = {subject: int(hashlib.sha256(subject.encode()).hexdigest(), 16) % 1000 for subject in sorted(subjects)}
    chosen = {subject for subject in rank if rank[subject] < 1000 * VALIDATION_SHARE}
    return chosen or set(sorted(rank, key=rank.__getitem__)[:1])


def _from_datalist(path: Path, section: str) -> list[dict]:
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
    if isinstance(content, list):
        kind = {"training": "train", "validation": "val"}[section]
        entries = [entry for entry in entries if entry.get("kind") == kind]
    return [{**entry, "label": str(path.parent / entry["image"])} for entry in entries]


def _nifti_files(root: Path) -> list[Path]:
    return sorted(p for p in root.rglob("*") if p.name.endswith(NIFTI) and not p.name.startswith("."))


def _from_tree(root: Path, section: str) -> list[dict]:
    paths = _nifti_files(root)
    items = [{"label": str(p), "subject": _subject(p.relative_to(root))} for p in paths]
    held_out = _held_out({item["subject"] for item in items})
    return [item for item in items if (item["subject"] in held_out) == (section == "validation")]


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
        InputError: if nothing is found, or a subject stands in both sections.
    """
    root = Path(dataset_dir)
    if section not in ("training", "validation"):
        raise InputError(f"section is {section!r}: expected 'training' or 'validation'.")
    if not root.exists():
        raise InputError(f"dataset_dir {root} does not exist. Give a folder of NIfTI volumes or a datalist in JSON.")
    read = _from_datalist if root.is_file() else _from_tree
    items = {name: read(root, name) for name in ("training", "validation")}
    shared = {i["subject"] for i in items["training"] if "subject" in i} & {
        i["subject"] for i in items["validation"] if "subject" in i
    }
    if shared:
        raise InputError(f"{root}: subjects {sorted(shared)} stand in both training and validation. Split by subject.")
    if not items[section]:
        raise InputError(
            f"{root}: no volumes for {section}. A folder needs NIfTI files of two subjects or more, a datalist needs "
            "both a training and a validation list."
        )
    return [
        {
            "label": item["label"],
            "sharp_axes": tuple(item.get("sharp_axes", (0, 1, 2))),
            "subject": item.get("subject", "unknown"),
            "contrast": item.get("contrast", "unknown"),
        }
        for item in items[section]
    ]


def label_maps(label_dir: str | os.PathLike | None) -> list[dict]:
    """Label maps that contrasts are synthesised from (`contrast.RandTissueContrastd`).

    Args:
        label_dir: a folder with NIfTI files at any depth; null for none.

    Returns:
        Items as those of `sharp_volumes`, their contrast `"synthetic"`.

    Raises:
        InputError: if there is no such folder, or no NIfTI file in it.
    """
    if label_dir is None:
        return []
    root = Path(label_dir)
    paths = _nifti_files(root)
    if not paths:
        raise InputError(
            f"label_dir {root}: no .nii or .nii.gz file there. Give a folder of label maps, or leave it out."
        )
    return [{"label": str(p), "sharp_axes": (0, 1, 2), "subject": p.name, "contrast": "synthetic"} for p in paths]


def contrast_weights(volumes: Sequence[Mapping], label_maps: Sequence[Mapping]) -> list[float]:
    """Weights for drawing items so that rare contrasts are not drowned: `1 / sqrt(n)`, `n` of the item's contrast.

    Args:
        volumes: items of `sharp_volumes`.
        label_maps: items of `label_maps`.

    Returns:
        One weight for each item, the volumes first.
    """
    items = [*volumes, *label_maps]
    count = Counter(item["contrast"] for item in items)
    return [count[item["contrast"]] ** -0.5 for item in items]


def _volume(path: Path, result: Path) -> dict:
    sources = [path, *bids.sidecars(path)]
    if path.suffix in (".nhdr", ".mhd"):  # header and data apart
        sources += sorted(p for p in path.parent.glob(stem(path.name) + ".*") if p != path and p.suffix != ".json")
    return {"image": str(path), "name": str(path), "sources": [str(p) for p in sources], "result": str(result)}


def _dicom(source: Path | Sequence[Path], output_dir: Path) -> list[dict]:
    """The thick series among DICOM files; those that are skipped are named."""
    series, _ = dicom.find_series(source, THIN)
    items = []
    for one in series:
        if one.skipped:
            logger.info(f"{one.name} is skipped: {one.skipped}")
            continue
        sources = sorted({str(path) for path, _ in one.images})
        result = str(output_dir / f"{one.name}_sr")
        items.append({"image": one, "name": one.name, "sources": sources, "result": result})
    return items


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError as error:
        raise InputError(f"{folder} cannot be read ({error.strerror}). Ask for the right to read it.") from error


def _folder(root: Path, output_dir: Path) -> list[dict]:
    """Every volume and every thick DICOM series in a folder, at any depth; results of earlier runs left out."""

    def unreadable(error: OSError) -> None:
        logger.warning(f"{error.filename} is left out: it cannot be read ({error.strerror}).")

    volumes = []
    for folder, folders, names in os.walk(root, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.endswith(VOLUMES) and not name.startswith(".") and not stem(name).endswith("_sr"):
                volumes.append(Path(folder, name))
    items = [_volume(p, output_dir / p.relative_to(root).with_name(stem(p.name) + "_sr")) for p in volumes]
    return items + _dicom(root, output_dir)


def _dataset(root: Path, output_dir: Path) -> list[dict]:
    """The thick anatomical scans of a BIDS dataset."""
    if output_dir.resolve() == root.resolve():
        raise InputError(
            f"output_dir {output_dir} is the dataset itself: expected a folder of its own. Choose one such as "
            f"{root / 'derivatives' / 'drift'}."
        )
    items = []
    for path in bids.anatomical_scans(root):
        try:
            edges = nib.load(path).header.get_zooms()[:3]  # type: ignore[attr-defined]  # nibabel declares a base type
            thin = max(edges) <= THIN
        except Exception:  # told when its turn comes
            thin = False
        if thin:
            logger.info(f"{path} is skipped: no voxel edge is longer than {THIN} mm.")
            continue
        folder = output_dir / path.parent.relative_to(root)
        items.append({**_volume(path, folder / bids.derivative_name(path.name)), "dataset": str(root.absolute())})
    return items


def scans(source: str | os.PathLike | Sequence[str] | None, output_dir: str | os.PathLike) -> list[dict]:
    """Thick-slice scans to rebuild.

    Args:
        source: a scan, NIfTI, MGZ, NRRD or MetaImage; a folder of scans and DICOM series, searched at any depth,
            results of earlier runs (`*_sr`) left out; a BIDS dataset, of which the thick anatomical scans are taken; a
            list of scans or of DICOM files; or null for the built-in sample, which is written to `output_dir` first.
        output_dir: where results will go.

    Returns:
        Items with `image`, the path or the `dicom.Series`; `name`, for people; `sources`, all its files; `result`, the
        path of the result without its ending; for the sample `truth`, the path of the sharp volume; and for a BIDS
        dataset `dataset`, its root.

    Raises:
        InputError: if there is no such file or folder, no scan in it, or two scans have one result.
    """
    folder = Path(output_dir)
    if source is None:
        return [built_in_sample(output_dir)]
    given = [Path(s) for s in source] if isinstance(source, (list, tuple)) else [Path(str(source))]
    items: list[dict] = []
    files: list[Path] = []
    for path in given:
        if path.is_dir():
            read = _dataset if bids.DESCRIPTION in _names(path) else _folder
            items += read(path, folder)
        elif not path.is_file():
            raise InputError(f"{path} does not exist. Set --input to a scan, a folder, or a list of them.")
        elif path.name.endswith(VOLUMES):
            items.append(_volume(path, folder / f"{stem(path.name)}_sr"))
        elif dicom.is_dicom(path):
            files.append(path)
        else:
            raise InputError(
                f"{path} is no scan that can be read: expected a name ending in {', '.join(VOLUMES)}, or DICOM. Unpack "
                "or convert it first."
            )
    items += _dicom(files, folder) if files else []
    if not items:
        raise InputError(
            f"{source}: no thick-slice scan was found. Expected files ending in {', '.join(VOLUMES)}, or DICOM series."
        )
    by_result: dict[str, str] = {}
    for item in items:
        other = by_result.setdefault(item["result"], item["name"])
        if other != item["name"]:
            raise InputError(f"{other} and {item['name']} would have one result, {item['result']}. Rename one of them.")
    return items


def built_in_sample(output_dir: str | os.PathLike, slice_thickness: float = 5.0) -> dict:
    """Real anatomy that needs no download: the 1 mm ICBM152 T1 template in nilearn's wheel, as an axial thick scan.

    Fonov et al., NeuroImage 54:313-327 (2011).

    Args:
        output_dir: where `icbm152_truth.nii.gz` and `icbm152.nii.gz`, the thick scan, are written.
        slice_thickness: of the axial slices, without gap, in mm.

    Returns:
        An item of `scans`.
    """
    from nilearn.datasets import load_mni152_template  # here, because it takes seconds and only the sample needs it

    template = load_mni152_template(resolution=1)
    data = np.asarray(template.dataobj, dtype=np.float32)
    inside = np.argwhere(data > 0)
    low, high = np.maximum(inside.min(0) - 2, 0), np.minimum(inside.max(0) + 3, data.shape)
    high[2] -= (high[2] - low[2]) % int(slice_thickness)  # whole thick slices: truth and result share one grid
    truth = template.slicer[tuple(slice(a, b) for a, b in zip(low, high))]
    sharp = np.asarray(truth.dataobj, dtype=np.float32)
    thick = acquire(torch.from_numpy(sharp), 2, 1.0, slice_thickness, slice_thickness).numpy()
    affine = fine_affine(truth.affine, 2, sharp.shape[2], thick.shape[2], slice_thickness)
    paths = {
        "truth": Path(output_dir) / "icbm152_truth.nii.gz",
        "image": Path(output_dir) / "icbm152.nii.gz",
    }
    for key, image in {"truth": (sharp, truth.affine), "image": (thick, affine)}.items():
        with whole_file(paths[key]) as partial:
            nib.save(nib.Nifti1Image(*image), partial)
    item = _volume(paths["image"], Path(output_dir) / "icbm152_sr")
    return {**item, "truth": str(paths["truth"])}
