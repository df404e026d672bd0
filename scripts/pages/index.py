"""The page of a folder of results: `index.html`, a row for each scan of `summary.csv`."""

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

from ..files import check_ours, stem, whole_file
from ..inputs.bids import reports
from ..rebuild.coverage import ENOUGH
from ..rebuild.reduced_resolution import NO_GAIN, WORTH
from ..stack.grid import plane_name, voxel_spacing
from ..stack.slices import Slices
from . import planes
from .templates import TEMPLATES

NAME = "index.html"
MARK = '<meta name="generator" content="DRIFT">'  # in the files that may be replaced
SIDE = 120  # pixels of a thumbnail's longer side: an index of 500 scans is smaller than 15 MB
GREYS = 64  # of a thumbnail; more are noise that does not compress
FAR = 3.5  # standard deviations from the median; an outlier is farther away
MIN_COHORT = 5  # scans; among fewer there is no outlier
LIMITS = {  # column of summary.csv -> number above which a result is marked, whatever the others are; and in words
    "agreement": (0.05, "the result differs from the measured slices"),
    "step_ratio": (1.25, "slices can be seen in the result"),
    "streak": (1.75, "flat tissue is drawn out along the slice axis"),
}
FAINT = 0.05  # of the range: where steps within the slices are smaller, nobody sees a streak
ABSOLUTE = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:[\\/]|/)(?:[^\s\\/:'\"|]+[\\/])+")  # folders that begin at a root


def _thumbnail(volume: MetaTensor, axis: int, normal: int, low: float, high: float) -> str:
    """The plane across `normal` beside the midline as a small picture, in true proportions, as a data URL.

    Along the slice `axis`, voxels larger than a pixel are drawn as blocks. Both axes are in RAS+ order.
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


def glance(slices: Slices, result: MetaTensor) -> dict[str, Any]:
    """A record's entries for the index, which reads no volume.

    Args:
        result: `(X, Y, Z)` on the fine grid.

    Returns:
        `voxels` of the result. `slices`: what they are called, such as axial. `plane`: name of a plane that contains
        the slice axis. `before` and `after`: that plane of both volumes at one window, as data URLs.
    """
    stored = slices.acquisition.slice_axis
    axis = slices.turn.axes.index(stored)
    normal = 0 if axis == 1 else 1
    low, high = planes.window(slices.array, slices.tissue_range)
    before, after = (
        _thumbnail(volume, axis, normal, low, high)
        for volume in (MetaTensor(slices.array, affine=slices.affine), result)
    )
    (name,) = (view for view, n, *_ in planes.VIEWS if n == normal)
    called = plane_name(slices.affine, stored)
    return {"voxels": list(result.shape), "slices": called, "plane": name, "before": before, "after": after}


def outliers(values: Sequence[float | None]) -> tuple[float, list[bool]]:
    """The median of numbers, NaN without any, and which of them are far above it: none among fewer than five.

    The standard deviation is estimated as 1.4826 times the median absolute deviation. Iglewicz and Hoaglin, How to
    Detect and Handle Outliers (1993).
    """
    numbers = [value for value in values if value is not None]
    if not numbers:
        return math.nan, [False] * len(values)
    median = float(np.median(numbers))
    limit = FAR * float(median_abs_deviation(numbers, scale="normal"))
    enough = len(numbers) >= MIN_COHORT
    return median, [enough and value is not None and value - median > limit for value in values]


def check_foreign_index(folder: str | os.PathLike) -> None:
    """Refuses a folder with an `index.html` of another program."""
    path = Path(folder, NAME)
    check_ours(path, not path.is_file() or MARK in path.read_bytes()[:1000].decode("utf-8", "replace"))


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


def _record(path: Path) -> Mapping[str, Any]:
    """Entries of a record that the index shows; empty if it cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {
            **{name: content["Overview"][name] for name in ("voxels", "slices", "plane", "before", "after")},
            "version": content["Version"],
            "network": content.get("Network", {}).get("Description"),
            "ours": content.get("Network", {}).get("Class", "").startswith("scripts.method."),
            "noise": content.get("Noise", {}).get("Share"),
            "guided": "Guide" in content,
            "sharp": "Sharp" in content,
            "guide_share": content.get("Guide", {}).get("Share", 1.0),
            "reconciled": content["Settings"]["consistency"] == "project",
            "rebuilt": not content["Description"].startswith("Not rebuilt"),
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def without_folders(text: str, folders: Sequence[str]) -> str:
    """A text that names files without these folders before them, nor any that begin at a root."""
    for known in folders:
        text = text.replace(known + os.sep, "") if known not in ("", ".", os.sep) else text
    return ABSOLUTE.sub("", text)


def _row(row: Mapping, root: Path, folder: Path, common: str) -> dict[str, Any]:
    """A scan as the template shows it: its name, links from the folder, numbers, and warnings without folders.

    Results lie below `root`.
    """

    def link(path: Path) -> str | None:
        there = Path(os.path.relpath(root / path, folder)).as_posix()
        return quote(there, errors="surrogateescape") if (root / path).exists() else None

    own = str(Path(row["input"]).parent)
    reason = without_folders(str(row.get("warnings") or ""), [own, common, str(root), str(root.absolute())])
    result = _below(root, row["result"]) if row.get("result") else None
    beside = None if result is None else result.with_name(stem(result.name))
    record = _record(root / beside.with_name(beside.name + ".json")) if beside else {}
    page = beside and beside.with_name(beside.name + ".html")
    share = record.get("guide_share", 1.0)
    lengths = "slice_thickness slice_spacing target_thickness".split()
    names = [*lengths, *"steps seconds gain error_bar streak_steps".split(), *LIMITS]
    gain = _number(row.get("gain"))
    return {
        "name": row["input"].replace(os.path.join(common, ""), "") if common.strip(os.sep) else row["input"],
        "outcome": row["outcome"],
        "reasons": [one for one in reason.split(" | ") if one],
        "result": result and link(result),
        "page": page and (link(folder.relative_to(root) / page) or link(page)),
        "record": record,
        "marks": {
            **({"guide": f"the guide saw {share:.0%} of the head"} if share < ENOUGH else {}),
            **({"gain": f"{NO_GAIN}: gain {gain:.1f} dB"} if gain is not None and gain < WORTH else {}),
        },
        **{name: _number(row.get(name)) for name in names},
    }


def _shown(column: str, value: float) -> str:
    """A number of a column for people: a ratio, or a share."""
    return f"{100 * value:.2f} %" if column == "agreement" else f"{value:.2f}"


def _mark(row: Mapping[str, Any], column: str, median: float | None) -> str:
    """Why a scan is marked for its number in a column of `LIMITS`; empty where it is not.

    A streak counts where it can be seen: its ratio says nothing of its size.

    Args:
        median: of the column, for an outlier; else None.
    """
    value, (limit, words) = row[column], LIMITS[column]
    if value is None:
        return ""
    shown = f"{column.replace('_', ' ')} {_shown(column, value)}"
    visible = column != "streak" or (row["streak_steps"] or 0.0) > FAINT
    away = [] if median is None else [f"outlier: {shown}, median {_shown(column, median)}"]
    above = [f"{words}: {shown}, above {_shown(column, limit)}"] if value > limit and visible else []
    return "; ".join(away + above)


def _span(numbers: Sequence[float]) -> str:
    """The range of some numbers, in words."""
    low, high = (f"{one:.3g}" for one in (min(numbers), max(numbers)))
    return low if low == high else f"{low} to {high}"


def _methods(rows: Sequence[Mapping]) -> dict[str, Any]:
    """The facts of a methods section on the scans that were rebuilt and have a record; empty if none has.

    The text says what ran: the networks and weights that the records name, Euler steps, whether detail is drawn,
    guides, noise.
    """
    rebuilt = [row for row in rows if row["record"].get("rebuilt")]
    records = [row["record"] for row in rebuilt]
    lengths = ("slice_spacing", "slice_thickness", "target_thickness")
    if not rebuilt or any(row[name] is None for row in rebuilt for name in lengths):
        return {}
    if not all(record["network"] for record in records):  # of an earlier release
        return {}
    steps = [row["steps"] for row in rebuilt if row["steps"] is not None]
    ours = any(record["ours"] for record in records)
    noise = [100 * record["noise"] for record in records if record["noise"] is not None]
    return {
        "count": len(rebuilt),
        "guided": sum(record["guided"] for record in records),
        "sharp": sum(record["sharp"] for record in records),
        "reconciled": all(record["reconciled"] for record in records),
        **{name: _span([row[name] for row in rebuilt]) for name in lengths},
        "versions": sorted({record["version"] for record in records}),
        "networks": sorted({record["network"] for record in records}),
        "ours": ours,
        "steps": _span(steps) if steps and max(steps) and ours else "",
        "noise": _span(noise) if noise else "",
    }


def _begin(name: str) -> str:
    """The beginning of a path, `/` or `..`; empty for others, and for names of DICOM series, which are none."""
    path = Path(name)
    return path.anchor or (".." if path.parts[:1] == ("..",) else "")


def write_index(folder: str | os.PathLike, scans: Sequence[Mapping]) -> None:
    """Writes `index.html`, one self-contained file that needs no network; its links are relative.

    The folder, of `summary.csv`, lies above the results and their records, or is a dataset's `REPORTS`. Values of its
    rows may be text.
    """
    folder = Path(folder)
    parents: dict[str, list[str]] = {}
    for row in scans:
        first = row["input"].partition(" + ")[0]  # of several stacks
        parents.setdefault(_begin(first), []).append(os.path.dirname(first))
    common = {begin: os.path.commonpath(found) for begin, found in parents.items()}
    root = folder.parent if reports(folder.parent) == folder else folder
    rows = [_row(row, root, folder, common[_begin(row["input"])]) for row in scans]
    medians = {}
    for name in LIMITS:
        median, far = outliers([row[name] for row in rows])
        if not math.isnan(median):
            medians[name.replace("_", " ")] = _shown(name, median)
        for row, away in zip(rows, far):
            text = _mark(row, name, median if away else None)
            row["marks"] |= {name: text} if text else {}
    content = TEMPLATES.get_template("index.html").render(
        mark=MARK,
        rows=rows,
        counts=Counter(row["outcome"] for row in rows),
        medians=medians,
        marked=sum(bool(row["marks"]) for row in rows),
        limits=LIMITS,
        faint=FAINT,
        enough=ENOUGH,
        worth=WORTH,
        far=FAR,
        min_cohort=MIN_COHORT,
        methods=_methods(rows),
    )
    with whole_file(folder / NAME) as partial:
        partial.write_text(content, encoding="utf-8", errors="backslashreplace")  # names need not be UTF-8
