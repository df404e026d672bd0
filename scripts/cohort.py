"""Many scans, one after the other: what is done already, what failed, and a record beside every result.

A record is written last. It names the scan, the settings and the weights by hash, and the size and hash of what was
written: a result counts as complete only if all of them are what they were.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from monai.data import MetaTensor
from torch import Tensor

from . import bids, dicom, overview, results
from .acquisition import Acquisition
from .consistency import difference, relative_rmse
from .errors import InputError, flag, input_error
from .files import sha256, whole_file
from .inference import DriftInferer, rebuild
from .networks import Drift
from .report import write_page
from .results import beside, state

logger = logging.getLogger("drift")

SUMMARY = (
    "input result outcome slice_axis slice_thickness slice_spacing target_thickness steps seconds consistency "
    "step_ratio warnings"
).split()
INDEX_PAUSE = 10.0  # seconds between two writings of the index, which is megabytes where scans are many


@dataclass
class Output:
    """What a run writes.

    Attributes:
        folder: where `summary.csv` goes; results go where the items say.
        format: `"nifti"`, or `"dicom"`; scans that did not come as DICOM are skipped then.
        report, anonymous: whether each scan gets a page, and whether it leaves out what names the scan.
        settings: what changes results, as the user gave it: name -> plain value.
        weights: file that the network was loaded from.
        version: of the bundle.

    Raises:
        InputError: if an option is none, or files in the folder are other people's and would be lost.
    """

    folder: str
    format: str
    report: bool
    anonymous: bool
    settings: Mapping[str, Any]
    weights: str
    version: str

    def __post_init__(self) -> None:
        if self.format not in ("nifti", "dicom"):
            raise InputError(f"format is {self.format!r}: expected nifti or dicom.")
        self.report, self.anonymous = flag("report", self.report), flag("anonymous", self.anonymous)
        bids.check_folder(self.folder)
        _read_summary(Path(self.folder) / "summary.csv")
        overview.check_folder(self.folder)

    @cached_property
    def key(self) -> dict[str, Any]:
        """What the record of a complete result says of how it was made, whatever machine made it.

        Of the version it holds the first two numbers: the third changes no result. What a setting that was left open
        becomes on a machine, such as bfloat16, is not in it.
        """
        release = ".".join(self.version.split(".")[:2])
        settings = {**self.settings, "format": self.format}
        return {"WeightsSHA256": sha256([self.weights]), "Release": release, "Settings": settings}


@contextmanager
def _alone(path: Path, name: str = "") -> Iterator[None]:
    """While no other process has it: of two runs into a folder, the second finds done what the first has done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(blocking=not name)
    except Timeout:
        logger.info(f"{name}: another run is at it; waiting for its end.")
        lock.acquire()
    try:
        yield
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)  # whoever waits for it sees that and makes another
        lock.release()


def _share(gap: Tensor, measured: MetaTensor) -> float | None:
    """`consistency.relative_rmse`; None for a constant scan, which has no head."""
    try:
        number = relative_rmse(gap, measured.as_tensor())
    except ValueError:
        return None
    return None if math.isnan(number) else round(number, 5)


def _read_summary(path: Path) -> list[dict]:
    """Rows of earlier runs.

    Raises:
        InputError: if the file is another program's, or cannot be read.
    """
    if not path.exists():
        return []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{path} cannot be read ({error}). Move it, or choose another output_dir.") from error
    earlier = [name for name in SUMMARY if name != "step_ratio"]  # 0.5
    if reader.fieldnames not in (None, SUMMARY, earlier):
        raise InputError(f"{path} is none that DRIFT wrote, and would be lost. Move it, or choose another output_dir.")
    return rows


def _add_to_summary(path: Path, rows: Sequence[Mapping], index: bool) -> None:
    """Writes the rows, and the index if asked, below those of earlier runs, unless input or result is the same."""
    with _alone(path):
        names, paths = {row["input"] for row in rows}, {row["result"] for row in rows if "result" in row}
        earlier = [row for row in _read_summary(path) if row["input"] not in names and row["result"] not in paths]
        text = io.StringIO()
        writer = csv.DictWriter(text, SUMMARY, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*earlier, *rows])
        with whole_file(path) as partial:
            partial.write_text(text.getvalue(), encoding="utf-8")
        if index:
            overview.write_index(path.parent, [*earlier, *rows])


def _write(item: Mapping, result: MetaTensor, header: Mapping, output: Output, key: Mapping) -> Path:
    """Writes the result; returns its path."""
    stem = Path(item["result"])
    if output.format == "nifti":
        path = beside(stem, ".nii.gz")
        results.write_nifti(path, result, header)
        return path
    array, affine = result.as_tensor().numpy(), np.asarray(result.affine)
    source = dicom.read_series(item["image"]).header
    dicom.write_series(stem, array, affine, source, output.version, json.dumps(key, sort_keys=True))
    return stem


def _rebuild_or_complete(
    item: Mapping, preprocessing: Callable, network: Drift, inferer: DriftInferer, device: torch.device, output: Output
) -> dict:
    """What `rebuild_scan` does with a scan that can be read and written."""
    start, stem = time.perf_counter(), Path(item["result"])
    key = {**output.key, "InputSHA256": sha256(item["sources"])}
    page = beside(stem, ".html")
    record = results.complete(stem, key, output.anonymous)
    outcome = "rebuilt" if record is None else "page written"
    if record is not None and (page.name in record["Results"] or not output.report):
        return _row(item, record, "complete already")
    if record is None:
        for path in (beside(stem, ".json"), page):  # from here on the old result does not count
            path.unlink(missing_ok=True)
    measured = preprocessing(item)["image"]
    scan = measured[0]
    if record is None:
        result: MetaTensor = rebuild(measured, network, inferer, device)[0]  # type: ignore[assignment]  # of one, one
    else:
        result = results.read(stem.parent / next(iter(record["Results"])))
    gap = difference(result.as_tensor(), scan.as_tensor(), Acquisition.of(scan))
    if record is None:
        path = _write(item, result, measured.meta.get("header", {}), output, key)
        record = results.describe(item, scan, result, _share(gap, scan))
        record |= {**key, "Version": output.version, "Device": str(device), "Bfloat16": inferer.bfloat16}
        record["Results"] = {path.name: state(path)}
        record["Summary"]["seconds"] = round(time.perf_counter() - start, 1)
    if output.report:
        write_page(page, scan, result, gap, record, output.anonymous)
        record |= {"Anonymous": output.anonymous, "Results": {**record["Results"], page.name: state(page)}}
    with whole_file(beside(stem, ".json")) as partial:
        partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return _row(item, record, outcome)


def _row(item: Mapping, record: Mapping, outcome: str) -> dict:
    """Of `summary.csv`, with today's names: folders may have moved since the record was written."""
    result = Path(item["result"]).parent / next(iter(record["Results"]))
    return {"input": str(item["name"]), "result": str(result), **record["Summary"], "outcome": outcome}


def rebuild_scan(
    item: Mapping, preprocessing: Callable, network: Drift, inferer: DriftInferer, device: torch.device, output: Output
) -> dict:
    """Rebuilds a scan, unless it is complete. Writes the result, if asked its page, and last its record.

    A page that is missing is written from a result that is complete. A scan that another run is at is waited for.

    Args:
        item: of `scans.scans`.
        preprocessing: the deployed one.
        network: on the device.
        inferer: the deployed one.
        device: of the network.
        output: what is written.

    Returns:
        The scan's row of `summary.csv`; a scan that fails or is skipped is told of and has a row that says why.
    """
    name = str(item["name"])
    if output.format == "dicom" and not isinstance(item["image"], dicom.Series):
        logger.warning(f"{name} is skipped: it is not DICOM. Leave out --output_format dicom for it.")
        return {"input": name, "outcome": "skipped", "warnings": "not DICOM"}
    try:
        with _alone(Path(item["result"]), name):
            return _rebuild_or_complete(item, preprocessing, network, inferer, device, output)
    except Exception as error:
        mistake = input_error(error)
        if isinstance(error, OSError):  # a full disk, a folder without rights
            mistake = InputError(f"{name}: {error}. Check the disk and the rights to the folders.")
        logger.error(f"error: {mistake or error}", exc_info=error if mistake is None else None)
        return {"input": name, "outcome": "failed", "warnings": str(mistake or error)}


def summarise(rows: Iterable[tuple[int, Mapping]], items: Sequence[Mapping], output: Output) -> None:
    """Keeps `summary.csv` and `index.html`, in the order of the items, and tells how the work goes on.

    Args:
        rows: (index of the item, row of `rebuild_scan`), in the order in which scans are done.
        items: of `scans.scans`.
        output: what is written.

    Raises:
        InputError: if the folder cannot be written.
        SystemExit: with exit code 1, at the end, if a scan failed or all were skipped.
    """
    summary = Path(output.folder) / "summary.csv"
    done: dict[int, Mapping] = {}
    written = -math.inf
    try:  # before hours of work, not after
        _add_to_summary(summary, [], index=False)
        for root in {item["dataset"] for item in items if "dataset" in item}:
            bids.write_description(output.folder, Path(root), output.version)
    except OSError as error:
        raise InputError(f"output_dir {output.folder} cannot be written ({error}). Choose another one.") from error
    for index, row in rows:
        done[index] = row
        if "result" in row:
            logger.info(
                f"{len(done)} of {len(items)}: {row['input']} {row['outcome']}, {row['steps']} Euler steps, "
                f"{row['seconds']:g} s: {row['result']}"
            )
        now = time.monotonic()
        due = len(done) == len(items) or now - written >= INDEX_PAUSE
        written = now if due else written
        try:
            _add_to_summary(summary, [done[index] for index in sorted(done)], due)
        except (OSError, InputError) as error:
            logger.warning(f"{summary} cannot be written ({error}).")
    failed, skipped = (sum(row["outcome"] == outcome for row in done.values()) for outcome in ("failed", "skipped"))
    if failed:
        raise SystemExit(f"{failed} of {len(done)} scans failed.")
    if skipped == len(done) > 0:
        raise SystemExit(f"No scan came as DICOM: {skipped} of {len(done)} were skipped. Leave out --output_format.")


def rebuild_scans(
    preprocessing: Callable,
    network: Drift,
    inferer: DriftInferer,
    device: torch.device,
    output: Output,
    items: Sequence[Mapping],
) -> None:
    """Rebuilds scan by scan; one that fails is named and does not stop the rest, one that is complete is left alone.

    Args:
        preprocessing, network, inferer, device, output: see `rebuild_scan`.
        items: of `scans.scans`.

    Raises:
        InputError: if the output folder cannot be written.
        SystemExit: with exit code 1, at the end, if a scan failed or all were skipped.
    """
    rows = (rebuild_scan(item, preprocessing, network, inferer, device, output) for item in items)
    summarise(enumerate(rows), items, output)
