"""A result on disk: its voxels, the record that says how they were made, and whether both are whole."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch
from monai.data import MetaTensor, NibabelReader, PydicomReader

from ..errors import InputError
from ..files import sha256, whole_file
from ..inputs import bids, dicom
from ..pages.index import glance
from ..stack.acquisition import Acquisition
from ..stack.interpolation import interpolate
from ..stack.tissue import flat_tissue
from ..stack.trace import step_ratio
from .dicom import check_series_folder

DTYPES = ("float32", "int16")  # of NIfTI voxels
LARGEST_STEP_RATIO = 1000.0  # stands for infinity, which JSON does not know


def beside(stem: Path, ending: str) -> Path:
    """A file of the result `stem`, which is a path without its ending."""
    return stem.with_name(stem.name + ending)


def state(path: Path) -> dict[str, Any]:
    """Size in bytes and hash of a file, or of a folder's DICOM files in the order of their names; empty if missing."""
    files = sorted(path.glob("*.dcm")) if path.is_dir() else [path]
    if not path.exists():
        return {}
    return {"Bytes": sum(file.stat().st_size for file in files), "SHA256": sha256(files)}


def complete(stem: Path, key: Mapping[str, Any], anonymous: bool = False) -> dict | None:
    """The record of a result that needs no second run: same input, settings and weights, and its voxels unharmed.

    Its page may be missing, harmed, or say more or less of the scan than it is to; then it is not in the record.

    Args:
        stem: path of the result without its ending.
        key: what the record must say.
        anonymous: whether the page leaves out what names the scan.
    """
    try:
        record = json.loads(beside(stem, ".json").read_text(encoding="utf-8"))
        same = all(record[name] == value for name, value in key.items())
        (result, *page) = record["Results"].items()
    except (OSError, ValueError, TypeError, KeyError, AttributeError):  # none yet, or not one of ours
        return None
    fit = (result, *page) if record.get("Anonymous", False) == anonymous else (result,)
    whole = [(name, was) for name, was in fit if state(stem.parent / name) == was]
    return {**record, "Results": dict(whole)} if same and result in whole else None


def check_place(stem: Path, item: Mapping, as_dicom: bool) -> None:
    """That a new result takes the place of none but this scan's, before hours of work and before anything is lost.

    Args:
        stem: path of the result without its ending.
        item: of `scans.scans`.
        as_dicom: whether the result is a folder.

    Raises:
        InputError: if it would replace the result of another scan that is still there, or a folder of other files.
    """
    if as_dicom:
        check_series_folder(stem)
    try:
        earlier = Path(json.loads(beside(stem, ".json").read_text(encoding="utf-8"))["Sources"][0])
        other = earlier.is_file() and earlier.resolve() != Path(item["sources"][0]).resolve()
    except (OSError, ValueError, TypeError, LookupError):  # none yet, or not one of ours
        return
    if other:
        raise InputError(
            f"{stem} holds the result of {earlier}, which that of {item['name']} would replace. Set another "
            "--output_dir for each, or give the folder that holds both."
        )


def write_nifti(path: Path, result: MetaTensor, header: Mapping[str, Any], dtype: str = "float32") -> None:
    """Writes a rebuilt volume.

    Args:
        path: file to write.
        result: `(X, Y, Z)` with its affine.
        header: fields of the scan's own header that hold for the result as well, see `readers`; empty if it has none.
        dtype: of the voxels, one of `DTYPES`; integers are scaled, and right to half a step.
    """
    image = nib.Nifti1Image(np.asarray(result.as_tensor(), dtype=np.float32), np.asarray(result.affine))
    image.set_data_dtype(dtype)
    codes = [int(header.get(name, 0)) for name in ("sform_code", "qform_code")]
    default = max(codes) or int(image.header["sform_code"])
    image.set_sform(image.affine, codes[0] or default)
    image.set_qform(image.affine, codes[1] or default)
    for name in ("dim_info", "xyzt_units"):
        image.header[name] = header.get(name, 0)
    length, duration = image.header.get_xyzt_units()
    image.header.set_xyzt_units("mm", duration if length == "mm" else "sec")
    with whole_file(path) as partial:
        nib.save(image, partial)


def read(path: Path) -> MetaTensor:
    """The `(X, Y, Z)` volume of a result: a NIfTI file, or a folder with a DICOM series."""
    reader = PydicomReader() if path.is_dir() else NibabelReader()
    array, meta = reader.get_data(reader.read(path))
    return MetaTensor(torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)), affine=meta["affine"])


def _source(item: Mapping, path: str) -> str:
    """A source's path; within a BIDS dataset its URI, whose `raw` is in the derivative's description."""
    return f"bids:raw:{Path(path).absolute().relative_to(item['dataset']).as_posix()}" if "dataset" in item else path


def _facts(acquisition: Acquisition, steps: tuple[str, str]) -> dict[str, tuple[str, str]]:
    """What was taken for the acquisition: name -> value, and where it came from."""
    a = acquisition
    shape = a.profile if isinstance(a.profile, str) else f"SLR pulse, time-bandwidth product {a.profile:g}"
    return {
        "slice axis": (str(a.slice_axis), a.sources["slice_axis"]),
        "slice spacing": (f"{a.slice_spacing:.4g} mm", a.sources["slice_spacing"]),
        "slice thickness": (f"{a.slice_thickness:.4g} mm", a.sources["slice_thickness"]),
        "gap": (f"{a.gap:.4g} mm", "spacing less thickness; negative for overlap"),
        "target thickness": (f"{a.target_spacing:.4g} mm", a.sources["target_spacing"]),
        "steps": steps,
        "slice profile": (shape, "the option profile"),
        **({"pixels": (f"{a.target_spacing:.4g} mm", a.sources["pixels"])} if "pixels" in a.sources else {}),
    }


def _step_ratio(measured: MetaTensor, result: MetaTensor) -> float | None:
    """`trace.step_ratio` of the middle third, in flat tissue of the cubic spline; None where it has no number."""
    acquisition = Acquisition.of(measured)
    across = (acquisition.slice_axis + 1) % 3
    count = result.shape[across]
    third = [volume.as_tensor().narrow(across, count // 3, -(-count // 3)) for volume in (measured, result)]
    try:
        flat = flat_tissue(interpolate(third[0], acquisition, "cubic"))
    except ValueError:  # constant
        return None
    number = step_ratio(third[1], acquisition, flat)
    return None if math.isnan(number) else round(min(number, LARGEST_STEP_RATIO), 4)


def _said(image: str | dicom.Series) -> dict[str, Any]:
    """What sidecars say that holds for the result too; nothing where one is broken, which the user knew better than."""
    if isinstance(image, dicom.Series):
        return {}
    try:
        stripped = bids.skull_stripped(image)
        return {**({} if stripped is None else {"SkullStripped": stripped}), **bids.scanner(image)}
    except InputError:
        return {}


def rounding(path: Path) -> dict[str, tuple[str, str]]:
    """What the record says of a result of integers: that it is rounded; nothing of others."""
    image: Any = None if path.is_dir() else nib.load(path)
    if image is None or image.get_data_dtype().kind == "f":
        return {}
    step = float(image.dataobj.slope)
    return {"voxels": (str(image.get_data_dtype()), f"the option dtype; intensities are right to {step / 2:.3g}")}


def describe(item: Mapping, measured: MetaTensor, result: MetaTensor, agreement: float | None) -> dict[str, Any]:
    """What the record says of a result: what it is, what it was made from, and what was taken for the acquisition.

    Args:
        item: of `scans.scans`.
        measured: `(X, Y, Z)` slices with their acquisition.
        result: of `inference.rebuild`.
        agreement: `consistency.relative_rmse`; None for a constant scan.
    """
    acquisition, steps = Acquisition.of(measured), int(result.meta["steps"])
    target = round(acquisition.target_spacing, 6)
    what = "Super-resolved along the slice axis by DRIFT: detail is estimated, not measured."
    if acquisition.at_target:
        what = "Not rebuilt: the slices are at the target of DRIFT already."
    return {
        "Description": what,
        "Sources": [_source(item, source) for source in item["sources"]],
        "SliceThickness": target,
        "SpacingBetweenSlices": target,
        **_said(item["image"]),
        "Facts": _facts(acquisition, (str(steps), result.meta["steps_source"])),
        "Warnings": acquisition.warnings,
        "Agreement": agreement,
        "Overview": glance(measured, result),
        "Summary": {
            "slice_axis": acquisition.slice_axis,
            "slice_thickness": round(acquisition.slice_thickness, 6),
            "slice_spacing": round(acquisition.slice_spacing, 6),
            "target_thickness": target,
            "steps": steps,
            "consistency": agreement,
            "step_ratio": _step_ratio(measured, result),
            "warnings": " | ".join(acquisition.warnings),
        },
    }
