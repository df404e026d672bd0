"""The dry run: a table of what a run would do with each scan, and how long it would take. Nothing is written."""

from __future__ import annotations

import copy
import logging
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from monai.data import MetaTensor
from torch import nn
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..errors import flag, input_error, printable
from ..inputs import dicom
from ..rebuild.inferer import StackInferer, rebuild
from ..rebuild.windows import signal_box
from ..stack.acquisition import Acquisition
from ..stack.intensity import intensity_range
from ..stack.interpolation import interpolate
from .cohort import Output
from .record import beside, complete

logger = logging.getLogger("drift")

COLUMNS = "what scan axis spacing thickness target steps time why".split()
SOURCES = {"axis": "slice_axis", "thickness": "slice_thickness", "target": "target_spacing"}
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
        voxels = 0 if acquisition.at_target else _fine_head(measured).numel()
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


def _row(item: Mapping, preprocessing: Callable, stopwatch: Stopwatch, output: Output) -> tuple[dict[str, str], float]:
    """A scan's row of the table, and the seconds that it is expected to take."""
    row = {"scan": str(item["name"])}
    if output.format == "dicom" and not isinstance(item["image"], dicom.Series):
        return row | {"what": "skipped", "why": "not DICOM"}, 0.0
    try:
        done = complete(Path(item["result"]), output.made_from(item), output.anonymous)
        measured = preprocessing(item)["image"]
        seconds = 0.0 if done else stopwatch.seconds(measured)
    except Exception as error:  # noqa: BLE001  # a row that says so
        return row | {"what": "fails", "why": str(input_error(error) or error)}, 0.0
    a = Acquisition.of(measured)
    page = beside(Path(item["result"]), ".html").name
    kept = "page alone" if output.report and done and page not in done["Results"] else "complete already"
    row |= {
        "what": kept if done else "copied" if a.at_target else "rebuilt",
        "axis": str(a.slice_axis),
        "spacing": f"{a.slice_spacing:.3g} mm",
        "thickness": f"{a.slice_thickness:.3g} mm",
        "target": f"{a.target_spacing:.3g} mm",
        "steps": str(stopwatch.parts[1].step_count(a)),
        "time": "" if done else _duration(seconds),
        "why": "; ".join(f"{name}: {a.sources[key]}" for name, key in SOURCES.items()),
    }
    return row, seconds


def _duration(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 100 else f"{minutes} min" if minutes < 100 else f"{seconds / 3600:.1f} h"


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    """Aligned columns."""
    lines = [COLUMNS, *([printable(row.get(name, "")) for name in COLUMNS] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "".join("  ".join(map(str.ljust, line, widths)).rstrip() + "\n" for line in lines)


def list_scans(
    dry_run: bool,
    preprocessing: Callable,
    network: nn.Module,
    inferer: StackInferer,
    device: torch.device,
    output: Output,
    items: Sequence[Mapping],
) -> None:
    """Lists on stdout what a run would do, and ends the program, if a dry run is asked for.

    `scans.scans` has told before what is skipped. The times are estimates.

    Args:
        dry_run: whether it is asked for. If not, nothing happens.
        preprocessing, network, inferer, device, output: see `cohort.rebuild_scan`.
        items: of `scans.scans`.

    Raises:
        SystemExit: with exit code 0, after the list.
    """
    if not flag("dry_run", dry_run):
        return
    level, stopwatch, rows, total = logger.level, Stopwatch(network, inferer, device), [], 0.0
    logger.setLevel(logging.WARNING)  # the table says what the lines of the preprocessing do
    try:
        with logging_redirect_tqdm():
            for item in tqdm(items, desc="scans", unit="scan", leave=False, disable=None):
                row, seconds = _row(item, preprocessing, stopwatch, output)
                rows.append(row)
                total += seconds
    finally:
        logger.setLevel(level)
    count = f"{len(rows)} scan{'s' * (len(rows) != 1)}"
    told = f"{count}, about {_duration(total)} in all; the times are estimates. Nothing was written.\n"
    sys.stdout.write(_table(rows) + told)
    raise SystemExit(0)
