"""The page of a folder of results: `index.html`, a row for each scan of `summary.csv`."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from monai.data import MetaTensor
from PIL import Image
from scipy.stats import median_abs_deviation

from ..errors import InputError
from ..files import stem, whole_file
from ..stack.acquisition import Acquisition
from ..stack.grid import canonical, voxel_spacing
from . import planes
from .templates import TEMPLATES

NAME = "index.html"
MARK = '<meta name="generator" content="DRIFT">'  # in the files that may be replaced
SIDE = 120  # pixels of a thumbnail's longer side: an index of 500 scans is smaller than 15 MB
GREYS = 64  # of a thumbnail; more are noise that does not compress
FAR = 3.5  # standard deviations from the median; an outlier is farther away
MIN_COHORT = 5  # scans; among fewer there is no outlier
ABSOLUTE = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:[\\/]|/)(?:[^\s\\/:'\"|]+[\\/])+")  # folders that begin at a root


def _thumbnail(volume: MetaTensor, axis: int, normal: int, low: float, high: float) -> str:
    """A plane beside the midline as a small picture, in true proportions.

    Args:
        volume: `(X, Y, Z)`.
        axis: slice axis in RAS+ order; along it, voxels larger than a pixel are drawn as blocks.
        normal: axis across the plane, in RAS+ order.
        low: intensity that is black.
        high: intensity that is white.

    Returns:
        A data URL.
    """
    array, affine = planes.ras(volume)
    plane = planes.shades(planes.cut(array, normal, planes.beside_midline(array.shape[normal])), low, high)
    up, across = plane.shape * np.delete(voxel_spacing(affine), normal)[::-1]  # mm
    scale = SIDE / max(up, across)
    width, height = (max(1, round(length * scale)) for length in (across, up))
    picture = Image.fromarray(np.ascontiguousarray(plane, dtype=np.float32))
    vertical = axis == max(a for a in range(3) if a != normal)
    within = (width, picture.height) if vertical else (picture.width, height)
    picture = picture.resize(within, Image.Resampling.BILINEAR)  # averages where it shrinks
    pixels = height / picture.height if vertical else width / picture.width
    picture = picture.resize((width, height), Image.Resampling.NEAREST if pixels > 1 else Image.Resampling.BILINEAR)
    return planes.png(np.rint(np.asarray(picture) * (GREYS - 1)) / (GREYS - 1))


def glance(measured: MetaTensor, result: MetaTensor) -> dict[str, Any]:
    """What a record keeps for the index: the index reads no volume.

    Args:
        measured: `(X, Y, Z)` slices with their acquisition.
        result: `(X, Y, Z)` on the fine grid.

    Returns:
        `voxels` of the result. `plane`: name of a plane that contains the slice axis. `before` and `after`: that plane
        of both volumes at one window, as data URLs.
    """
    axis = canonical(measured.affine)[0].index(Acquisition.of(measured).slice_axis)
    normal = 0 if axis == 1 else 1
    low, high = planes.window(measured)
    before, after = (_thumbnail(volume, axis, normal, low, high) for volume in (measured, result))
    (name,) = (view for view, n, *_ in planes.VIEWS if n == normal)
    return {"voxels": list(result.shape), "plane": name, "before": before, "after": after}


def outliers(values: Sequence[float | None]) -> tuple[float, list[bool]]:
    """Which numbers lie far from the others: more than 3.5 standard deviations from the median.

    The standard deviation is estimated as 1.4826 times the median absolute deviation. Iglewicz and Hoaglin, How to
    Detect and Handle Outliers (1993).

    Args:
        values: None where there is no number; fewer than five numbers have no outlier.

    Returns:
        The median, NaN without a number; and for each value, whether it is an outlier.
    """
    numbers = [value for value in values if value is not None]
    if not numbers:
        return math.nan, [False] * len(values)
    median = float(np.median(numbers))
    limit = FAR * float(median_abs_deviation(numbers, scale="normal"))
    enough = len(numbers) >= MIN_COHORT
    return median, [enough and value is not None and abs(value - median) > limit for value in values]


def check_foreign_index(folder: str | os.PathLike) -> None:
    """Makes sure that a folder has no `index.html` of another program.

    Raises:
        InputError: if it has one.
    """
    path = Path(folder, NAME)
    if path.is_file() and MARK not in path.read_bytes()[:1000].decode("utf-8", "replace"):
        raise InputError(f"{path} is none that DRIFT wrote, and would be lost. Move it, or choose another output_dir.")


def _below(folder: Path, result: str) -> Path | None:
    """A result's path from the folder, which may have moved since; None for a result that is gone."""
    parts = Path(result).parts
    paths = [Path(os.path.relpath(result, folder)), *(Path(*parts[k:]) for k in range(len(parts)))]
    inside = (path for path in paths if not path.is_absolute() and path.parts[0] != "..")
    return next((path for path in inside if (folder / path).exists()), None)


def _number(text: Any) -> float | None:
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _glance(record: Path) -> Mapping[str, Any]:
    """What `glance` left in a record; empty where that cannot be read."""
    try:
        content = json.loads(record.read_text(encoding="utf-8"))["Overview"]
        return {name: content[name] for name in ("voxels", "plane", "before", "after")}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _row(row: Mapping, folder: Path, common: str) -> dict[str, Any]:
    """What the template shows of a scan: its name, links from the folder, numbers, and warnings without folders."""

    def link(path: Path) -> str | None:
        return quote(path.as_posix(), errors="surrogateescape") if (folder / path).exists() else None

    own = str(Path(row["input"]).parent)
    reason = str(row.get("warnings") or "")
    for known in (own, common, str(folder), str(folder.absolute())):
        reason = reason.replace(known + os.sep, "") if known not in ("", ".", os.sep) else reason
    result = _below(folder, row["result"]) if row.get("result") else None
    beside = None if result is None else result.with_name(stem(result.name))
    names = "slice_thickness slice_spacing target_thickness steps seconds consistency step_ratio".split()
    return {
        "name": os.path.relpath(row["input"], common) if common else row["input"],
        "outcome": row["outcome"],
        "axis": row.get("slice_axis", ""),
        "reasons": [ABSOLUTE.sub("", one) for one in reason.split(" | ") if one],
        "result": result and link(result),
        "page": beside and link(beside.with_name(beside.name + ".html")),
        "glance": _glance(folder / beside.with_name(beside.name + ".json")) if beside else {},
        "far": [],
        **{name: _number(row.get(name)) for name in names},
    }


def write_index(folder: str | os.PathLike, scans: Sequence[Mapping]) -> None:
    """Writes `index.html`, one self-contained file that needs no network; its links are relative.

    Args:
        folder: of `summary.csv`; the results and their records lie below it.
        scans: rows of `summary.csv`; values may be text.
    """
    folder = Path(folder)
    parents: dict[bool, list[str]] = {True: [], False: []}
    for row in scans:
        parents[os.path.isabs(row["input"])].append(os.path.dirname(row["input"]))
    common = {absolute: os.path.commonpath(found) for absolute, found in parents.items() if found}
    rows = [_row(row, folder, common[os.path.isabs(row["input"])]) for row in scans]
    medians = {}
    for name, label, form in (
        ("consistency", "agreement", lambda v: f"{100 * v:.2f} %"),
        ("step_ratio", "step ratio", lambda v: f"{v:.2f}"),
    ):
        median, far = outliers([row[name] for row in rows])
        medians[label] = "" if math.isnan(median) else form(median)
        for row, away in zip(rows, far):
            row["far"] += [(name, f"{label} {form(row[name])}, median {form(median)}")] if away else []
    content = TEMPLATES.get_template("index.html").render(
        mark=MARK,
        rows=rows,
        counts=Counter(row["outcome"] for row in rows),
        medians={label: text for label, text in medians.items() if text},
        outlier_count=sum(bool(row["far"]) for row in rows),
        far=FAR,
        min_cohort=MIN_COHORT,
    )
    with whole_file(folder / NAME) as partial:
        partial.write_text(content, encoding="utf-8", errors="backslashreplace")  # names need not be UTF-8
