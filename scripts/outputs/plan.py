"""The dry run: what a run would do with each scan, and how long it would take. Nothing is written."""

from __future__ import annotations

import copy
import json
import logging
import math
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from monai.data import MetaTensor
from torch import nn
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..errors import flag, input_error, printable
from ..rebuild.inferer import StackInferer, rebuild
from ..rebuild.windows import signal_box
from ..stack.acquisition import Acquisition
from ..stack.grid import plane_name
from ..stack.intensity import intensity_range
from ..stack.interpolation import interpolate
from .error_maps import asked
from .record import beside, complete
from .scan import Output, came_as_dicom, check_scan

logger = logging.getLogger("drift")

COLUMNS = "what slices spacing thickness target steps time scan".split()  # the last may be of any length
LENGTHS = {"spacing": "slice_spacing", "thickness": "slice_thickness", "target": "target_spacing"}  # mm
SOURCES = {"slices": "slice_axis", "thickness": "slice_thickness", "target": "target_spacing"}
WIDTH = 100  # columns of the table
SLAB = 4  # planes of a head that are rebuilt to time the networks


def _fine_head(measured: MetaTensor) -> torch.Tensor:
    """The part of the fine grid that the networks see, `(X', Y', Z')` in [-1, 1]."""
    array = measured.as_tensor()[0]
    volume = interpolate(intensity_range(array).to_unit(array), Acquisition.of(measured), "nearest")
    return volume[signal_box(volume)]


class Stopwatch:
    """Expects how long scans take.

    The seconds per voxel are measured on a slab of the first scan with a given number of steps. They count for all
    scans with that number of steps.

    Args:
        network, inferer, device: see `inferer.rebuild`.
    """

    def __init__(self, network: nn.Module, inferer: StackInferer, device: torch.device):
        self.parts = network, inferer, device
        self.rates: dict[int, float] = {}  # steps -> seconds per voxel of a family of planes

    def seconds(self, measured: MetaTensor) -> float:
        """Expected for a scan.

        Args:
            measured: `(1, X, Y, Z)`, what the preprocessing gives.
        """
        acquisition = Acquisition.of(measured)
        voxels = _fine_head(measured).numel()
        steps = self.parts[1].step_count(acquisition)
        if voxels and steps not in self.rates:
            self.rates[steps] = self._rate(measured, acquisition)
        return voxels * self.rates[steps] * (1 + self.parts[1].both_planes) if voxels else 0.0

    def _rate(self, measured: MetaTensor, acquisition: Acquisition) -> float:
        array = measured.as_tensor()
        in_plane = [a for a in (1, 2, 3) if a != acquisition.slice_axis + 1]
        across = min(in_plane, key=lambda a: array.shape[a])  # the planes along the longer axis stay whole
        width = min(SLAB, array.shape[across])
        slab = array.narrow(across, (array.shape[across] - width) // 2, width).clone()
        meta = {name: value for name, value in measured.meta.items() if name != "affine"}
        part = MetaTensor(slab, affine=measured.affine, meta=meta)
        network, inferer, device = self.parts
        inferer = copy.copy(inferer)
        inferer.both_planes = False
        for _ in range(2):  # the first call of a network is slower than all others
            start = time.perf_counter()
            rebuild(part, network, inferer, device)
            seconds = time.perf_counter() - start
        return seconds / max(_fine_head(part).numel(), 1)


def _row(item: Mapping, preprocessing: Callable, stopwatch: Stopwatch, output: Output) -> dict[str, Any]:
    """What a run would do with a scan, and why: plain values, lengths in mm and times in seconds."""
    row = {"scan": str(item["name"])}
    if output.format == "dicom" and not came_as_dicom(item):
        return row | {"what": "will skip", "why": "not DICOM"}
    try:
        done = complete(Path(item["result"]), output.made_from(item), output.anonymous, asked(output.error_maps))
        stacks = [preprocessing(one)["image"] for one in item.get("stacks", [item])]
        if done is None:
            check_scan(item, stacks, output)
        measured, a = stacks[0], Acquisition.of(stacks[0])
        idle = len(stacks) == 1 and (a.at_target or bool(measured.min() == measured.max()))
        seconds = (
            0.0 if done or idle else sum(stopwatch.seconds(one) for one in stacks if not Acquisition.of(one).at_target)
        )
    except Exception as error:  # noqa: BLE001  # a row that says so
        return row | {"what": "will fail", "why": str(input_error(error) or error)}
    page = beside(Path(item["result"]), ".html").name
    kept = "will write page" if output.report and done and page not in done["Results"] else "is complete"
    return row | {
        "what": kept if done else "will copy" if idle else "will rebuild" if len(stacks) == 1 else "will join",
        "result": str(item["result"]),
        "slices": plane_name(measured.affine, a.slice_axis),
        **{name: round(getattr(a, attribute), 4) for name, attribute in LENGTHS.items()},
        "steps": 0 if idle else stopwatch.parts[1].step_count(a),
        "seconds": None if done else round(seconds, 1),
        "why": "; ".join(f"{name}: {a.sources[key]}" for name, key in SOURCES.items()),
    }


def duration(seconds: float) -> str:
    """A time for people: minutes are rounded up."""
    minutes = math.ceil(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 100 else f"{minutes} min" if minutes < 100 else f"{seconds / 3600:.1f} h"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Aligned columns, the scan's name last, and below it why, in `WIDTH` columns."""
    cells = [COLUMNS]
    for row in rows:
        lengths = {name: f"{row[name]:.3g} mm" for name in LENGTHS if name in row}
        took = "" if row.get("seconds") is None else duration(row["seconds"])
        cells.append([printable(str({**row, **lengths, "time": took}.get(name, ""))) for name in COLUMNS])
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    reasons = ["", *(printable(row["why"]) for row in rows)]
    fold = textwrap.TextWrapper(WIDTH, initial_indent="    ", subsequent_indent="    ").wrap
    return "".join(f"{line}\n" for told, why in zip(lines, reasons) for line in [told, *fold(why)])


def list_scans(
    dry_run: bool | str,
    preprocessing: Callable,
    network: nn.Module,
    inferer: StackInferer,
    device: torch.device,
    output: Output,
    items: Sequence[Mapping],
    skipped: Sequence[tuple[str, str]] = (),
) -> None:
    """Lists on stdout what a run would do, and ends the program, if a dry run is asked for.

    The times are estimates.

    Args:
        dry_run: true for a table, "json" for a list of objects. If false, nothing happens. The table leaves out what is
            skipped, which `scans.scans` has told before.
        preprocessing, network, inferer, device, output: see `scan.rebuild_scan`.
        items: of `scans.scans`.
        skipped: other scans, which are not rebuilt, each with the reason.

    Raises:
        SystemExit: with exit code 0, after the list.
    """
    as_json = dry_run == "json"
    if not (as_json or flag("dry_run", dry_run)):
        return
    level, stopwatch, rows = logger.level, Stopwatch(network, inferer, device), []
    logger.setLevel(logging.WARNING)  # the table says what the lines of the preprocessing do
    try:
        with logging_redirect_tqdm():
            for item in tqdm(items, desc="scans", unit="scan", leave=False, disable=None):
                rows.append(_row(item, preprocessing, stopwatch, output))
    finally:
        logger.setLevel(level)
    if as_json:
        rows += [{"scan": name, "what": "will skip", "why": why} for name, why in skipped]
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
    else:
        count = f"{len(rows)} scan{'s' * (len(rows) != 1)}"
        total = duration(sum(row.get("seconds") or 0.0 for row in rows))
        told = f"{count}, about {total} in all; the times are estimates. Nothing was written.\n"
        sys.stdout.write(_table(rows) + told)
    raise SystemExit(0)
