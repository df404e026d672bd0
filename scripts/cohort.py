"""Many scans, one after the other: what is done already, what failed, and a record beside every result.

A record is written last. It names the scan, the settings and the weights by hash, so that a result counts as complete
only if all three are what they were.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from ignite.engine import Events
from monai.data import DataLoader, Dataset, MetaTensor
from monai.engines import SupervisedEvaluator

from . import bids, dicom
from .consistency import difference, relative_rmse
from .errors import InputError, flag, input_error
from .files import sha256, whole_file
from .grid import voxel_spacing
from .report import write_page
from .schedule import pad
from .slice_profile import Profile, slice_profile

logger = logging.getLogger("drift")

SUMMARY = (
    "input result outcome slice_axis slice_thickness slice_spacing target_thickness steps seconds consistency warnings"
).split()


@dataclass
class Output:
    """What a run writes.

    Attributes:
        folder: where `summary.csv` goes; results go where the items say.
        format: `"nifti"`, or `"dicom"` for scans that came as DICOM.
        profile: of the measured slices, for the agreement with them.
        report: whether each scan gets a page.
        settings: what else changes results: name -> plain value.
        weights: file that the network was loaded from.
        version: of the bundle.
    """

    folder: str
    format: str
    profile: Profile
    report: bool
    settings: Mapping[str, Any]
    weights: str
    version: str

    def __post_init__(self) -> None:
        if self.format not in ("nifti", "dicom"):
            raise InputError(f"format is {self.format!r}: expected nifti or dicom.")
        self.report = flag("report", self.report)
        slice_profile(self.profile)

    @cached_property
    def key(self) -> dict[str, Any]:
        """What the record of a complete result says of how it was made."""
        own = {name: getattr(self, name) for name in ("format", "profile", "report")}
        settings = {**self.settings, **own}
        return {"WeightsSHA256": sha256([self.weights]), "Version": self.version, "Settings": settings}


def _record_path(stem: Path) -> Path:
    return stem.with_name(stem.name + ".json")


def complete(stem: Path, key: Mapping[str, Any]) -> dict | None:
    """The record of a result that needs no second run: same input, settings, weights and version, and all files there.

    Args:
        stem: path of the result without its ending.
        key: what the record must say.
    """
    try:
        record = json.loads(_record_path(stem).read_text(encoding="utf-8"))
        same = all(record[name] == value for name, value in key.items())
        return record if same and all((stem.parent / name).exists() for name in record["Results"]) else None
    except (OSError, ValueError, TypeError, KeyError):  # none yet, or not one of ours
        return None


def _write_nifti(path: Path, result: MetaTensor) -> None:
    image = nib.Nifti1Image(np.asarray(result.as_tensor(), dtype=np.float32), np.asarray(result.affine))
    image.header.set_xyzt_units("mm", "sec")
    image.set_qform(image.affine, int(image.header["sform_code"]))
    with whole_file(path) as partial:
        nib.save(image, partial)


def _source(item: Mapping, path: str) -> str:
    """A source's path; within a BIDS dataset its URI, whose `raw` is in the derivative's description."""
    return f"bids:raw:{Path(path).absolute().relative_to(item['dataset']).as_posix()}" if "dataset" in item else path


def _facts(meta: Mapping[str, Any], steps: int, profile: Profile) -> list[tuple[str, str, str]]:
    """What was taken for the acquisition: name, value, and where it came from."""
    spacing, thickness, target = (meta[name] for name in ("slice_spacing", "slice_thickness", "target_thickness"))
    shape = f"{profile}" if isinstance(profile, str) else f"SLR pulse, time-bandwidth product {profile:g}"
    return [
        ("slice axis", str(meta["slice_axis"]), meta["assumed"]["slice_axis"]),
        ("slice spacing", f"{spacing:.4g} mm", "the affine"),
        ("slice thickness", f"{thickness:.4g} mm", meta["assumed"]["slice_thickness"]),
        ("gap", f"{spacing - thickness:.4g} mm", "spacing less thickness; negative for overlap"),
        ("target thickness", f"{target:.4g} mm", meta["assumed"]["target_thickness"]),
        ("Euler steps N", str(steps), f"AIS, PAD = {pad(thickness, target):.3f}"),
        ("slice profile", shape, "the option profile"),
    ]


def _rebuild(item: Mapping, dataset: Dataset, evaluator: SupervisedEvaluator) -> tuple[MetaTensor, ...]:
    """The measured slices and the rebuilt volume, each `(X, Y, Z)`, of one scan."""
    evaluator.interrupt_resume_enabled = False  # else ignite skips the scan after a failed one
    evaluator.logger.setLevel(logging.CRITICAL)  # a failure is told once, by `rebuild_scan`
    evaluator.data_loader = DataLoader(Dataset([item], dataset.transform), batch_size=1)
    evaluator.state.epoch_length = 1
    kept: dict[str, MetaTensor] = {}

    def keep(engine: SupervisedEvaluator) -> None:
        kept["measured"], kept["pred"] = engine.state.batch[0]["measured"][0], engine.state.output[0]["pred"][0]

    with evaluator.add_event_handler(Events.ITERATION_COMPLETED, keep):
        evaluator.run()
    return kept["measured"], kept["pred"]


def _write(item: Mapping, measured: MetaTensor, result: MetaTensor, output: Output, key: Mapping, start: float) -> dict:
    """Writes the result, its page and, last, its record; returns the record."""
    stem, meta = Path(item["result"]), measured.meta
    axis, spacing, thickness = (meta[name] for name in ("slice_axis", "slice_spacing", "slice_thickness"))
    target, warnings = round(float(voxel_spacing(result.affine)[axis]), 6), list(meta["warnings"] or [])
    slices = (axis, target, thickness, spacing, output.profile)
    steps = int(result.meta["steps"])
    gap = difference(result.as_tensor(), measured.as_tensor(), *slices)
    try:
        number = relative_rmse(gap, measured.as_tensor())
    except ValueError:  # no head: the scan is constant
        number = math.nan
    if output.format == "dicom":
        header, settings = dicom.read_series(item["image"]).header, json.dumps(key, sort_keys=True, default=str)
        dicom.write_series(
            stem, result.as_tensor().numpy(), np.asarray(result.affine), header, output.version, settings
        )
        written = [stem.name]
    else:
        written = [stem.name + ".nii.gz"]
        _write_nifti(stem.with_name(written[0]), result)
    facts = _facts(meta, steps, output.profile)
    record = {
        "Description": "Super-resolved along the slice axis by DRIFT: detail is estimated, not measured.",
        "Sources": [_source(item, path) for path in item["sources"]],
        "SliceThickness": target,
        "SpacingBetweenSlices": target,
        **({"SkullStripped": False} if "dataset" in item else {}),
        "Results": written,
        **key,
        "Facts": {name: [value, source] for name, value, source in facts},
        "Summary": {
            "input": str(item["name"]),
            "result": str(stem.with_name(written[0])),
            "slice_axis": axis,
            "slice_thickness": round(thickness, 6),
            "slice_spacing": round(spacing, 6),
            "target_thickness": target,
            "steps": steps,
            "seconds": round(time.perf_counter() - start, 1),
            "consistency": None if math.isnan(number) else round(number, 5),
            "warnings": " | ".join(warnings),
        },
    }
    if output.report:
        provenance = {"scan": item["name"], "weights": key["WeightsSHA256"], "version": output.version}
        provenance |= {name: str(value) for name, value in key["Settings"].items()}
        page = stem.with_name(stem.name + ".html")
        write_page(page, measured, result, axis, facts, (number, gap), warnings, provenance)
        record["Results"] = [*written, page.name]
    with whole_file(_record_path(stem)) as partial:
        partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


def _write_summary(path: Path, rows: Sequence[Mapping]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, SUMMARY, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with whole_file(path) as partial:
        partial.write_text(text.getvalue(), encoding="utf-8")


def rebuild_scan(item: Mapping, dataset: Dataset, evaluator: SupervisedEvaluator, output: Output) -> dict:
    """Rebuilds a scan, unless it is complete. Writes the result, if asked its page, and last its record.

    Args:
        item: of `scans.scans`.
        dataset: with the deployed preprocessing.
        evaluator: with the deployed inferer and postprocessing.
        output: what is written.

    Returns:
        The scan's row of `summary.csv`; a scan that fails is told of and has a row that says why.
    """
    start, stem = time.perf_counter(), Path(item["result"])
    try:
        key = {**output.key, "InputSHA256": sha256(item["sources"])}
        if output.format == "dicom" and not isinstance(item["image"], dicom.Series):
            raise InputError(f"{item['name']} is not DICOM. Leave out --output_format dicom for it.")
        record, outcome = complete(stem, key), "complete already"
        if record is None:
            outcome = "rebuilt"
            _record_path(stem).unlink(missing_ok=True)  # from here on the old result does not count
            measured, result = _rebuild(item, dataset, evaluator)
            record = _write(item, measured, result, output, key, start)
        return {**record["Summary"], "outcome": outcome}
    except Exception as error:
        mistake = input_error(error)
        if isinstance(error, OSError):  # a full disk, a folder without rights
            mistake = InputError(f"{item['name']}: {error}. Check the disk and the rights to the folders.")
        logger.error(f"error: {mistake or error}", exc_info=error if mistake is None else None)
        return {"input": item["name"], "outcome": "failed", "warnings": str(mistake or error)}


def summarise(rows: Iterable[tuple[int, Mapping]], items: Sequence[Mapping], output: Output) -> None:
    """Writes `summary.csv`, in the order of the items and anew after each scan, and tells how the work goes on.

    Args:
        rows: (index of the item, row of `rebuild_scan`), in the order in which scans are done.
        items: of `scans.scans`.
        output: what is written.

    Raises:
        InputError: if the folder cannot be written.
        SystemExit: with exit code 1, at the end, if a scan failed.
    """
    summary = Path(output.folder) / "summary.csv"
    done: dict[int, Mapping] = {}
    try:  # before hours of work, not after
        _write_summary(summary, [])
        for root in {item["dataset"] for item in items if "dataset" in item}:
            bids.write_description(output.folder, Path(root), output.version)
    except OSError as error:
        raise InputError(f"output_dir {output.folder} cannot be written ({error}). Choose another one.") from error
    for index, row in rows:
        done[index] = row
        if row["outcome"] != "failed":
            logger.info(
                f"{len(done)} of {len(items)}: {row['input']} {row['outcome']}, {row['steps']} Euler steps, "
                f"{row['seconds']:g} s: {row['result']}"
            )
        try:
            _write_summary(summary, [done[index] for index in sorted(done)])
        except OSError as error:
            logger.warning(f"{summary} cannot be written ({error}).")
    failed = sum(row["outcome"] == "failed" for row in done.values())
    if failed:
        raise SystemExit(f"{failed} of {len(done)} scans failed.")


def rebuild_scans(evaluator: SupervisedEvaluator, dataset: Dataset, output: Output) -> None:
    """Rebuilds scan by scan; one that fails is named and does not stop the rest, one that is complete is left alone.

    Args:
        evaluator: with the deployed inferer and postprocessing.
        dataset: of the items of `scans.scans`, with the deployed preprocessing.
        output: what is written.

    Raises:
        InputError: if the output folder cannot be written.
        SystemExit: with exit code 1, at the end, if a scan failed.
    """
    rows = ((index, rebuild_scan(item, dataset, evaluator, output)) for index, item in enumerate(dataset.data))
    summarise(rows, dataset.data, output)
