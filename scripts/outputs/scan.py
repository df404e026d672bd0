"""One scan: whether its result is complete already, what would be lost, and what is written of it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import Timeout
from monai.data import MetaTensor
from torch import nn

from ..errors import InputError, flag, input_error
from ..files import remove_partials, sha256
from ..inputs import dicom
from ..pages.index import check_foreign_index
from ..pages.page import write_page
from ..rebuild.consistency import difference
from ..rebuild.error_map import ErrorMaps, error_map
from ..rebuild.inferer import DriftInferer, StackInferer, rebuild
from ..rebuild.registration import simple_itk
from ..rebuild.together import Stack
from ..stack.acquisition import Acquisition
from ..stack.grid import fine_affine
from . import bids, results
from .dicom import write_series
from .error_maps import (
    REGIONS,
    asked,
    clear_error_map,
    describe_error_map,
    error_stem,
    read_error_map,
    regions_on,
    write_regions,
)
from .lock import alone
from .record import agreement, beside, check_place, complete, describe, finish, made_with, said, state, write_json
from .stacks import make_together
from .summary import read_rows

logger = logging.getLogger("drift")

CALIBRATED = "calibrated on people that no network has seen"  # source of an error map's numbers


@dataclass
class Output:
    """What a run writes.

    Attributes:
        folder: where `summary.csv` goes. Results go where the items say.
        format: `"nifti"`; `"dicom"`, by which scans that did not come as DICOM are skipped; or `"auto"`, by which each
            result is what its scan was.
        dtype: of NIfTI voxels: `"float32"`, or `"int16"`, which is scaled and takes half the space.
        report: whether each scan gets a page.
        anonymous: whether the page leaves out what names the scan. Record, summary and index name it in any case.
        settings: options that change results: name -> plain value.
        inferer: its `settings` change results, too.
        error_maps: whether results get one; they change no result.
        weights: file that the network was loaded from.
        version: of the bundle.

    Raises:
        InputError: if an option has a value that it does not take, or files of other programs would be lost.
    """

    folder: str
    format: str
    dtype: str
    report: bool
    anonymous: bool
    settings: Mapping[str, Any]
    inferer: DriftInferer
    error_maps: ErrorMaps
    weights: str
    version: str

    def __post_init__(self) -> None:
        if self.format not in ("nifti", "dicom", "auto"):
            raise InputError(f"format is {self.format!r}: expected nifti, dicom or auto. Set --output_format.")
        if self.dtype not in results.DTYPES:
            raise InputError(f"dtype is {self.dtype!r}: expected {' or '.join(results.DTYPES)}. Set --dtype.")
        if self.format == "dicom" and self.dtype != "float32":
            raise InputError(f"dtype is {self.dtype}, of NIfTI: DICOM has integers of its own. Leave out --dtype.")
        self.report, self.anonymous = flag("report", self.report), flag("anonymous", self.anonymous)
        switches = {k: flag(k, v) for k, v in self.settings.items() if str(v).lower() in ("true", "false")}
        self.settings = {**self.settings, **switches}  # the text true, of a command line, is True
        bids.check_derivative_folder(self.folder)
        read_rows(Path(self.folder) / "summary.csv")
        check_foreign_index(self.folder)

    @cached_property
    def made(self) -> dict[str, Any]:
        """`record.made_with` for this run."""
        return made_with(self.weights, self.version, {**self.settings, **self.inferer.settings, "dtype": self.dtype})

    def as_dicom(self, item: Mapping) -> bool:
        """Whether a scan's result is a DICOM series.

        Args:
            item: of `scans.scans`.
        """
        return self.format == "dicom" or (self.format == "auto" and came_as_dicom(item))

    def made_from(self, item: Mapping) -> dict[str, Any]:
        """What the record of a scan's result says where that is complete.

        Args:
            item: of `scans.scans`.
        """
        settings = {**self.made["Settings"], "format": "dicom" if self.as_dicom(item) else "nifti"}
        return {**self.made, "Settings": settings, "InputSHA256": sha256(item["sources"])}


def _write(
    item: Mapping,
    stem: Path,
    volume: MetaTensor,
    header: Mapping,
    output: Output,
    made: Mapping,
    what: str = "",
    others: Sequence[Mapping] = (),
) -> Path:
    """Writes the result, or another volume `what` of it; returns its path. It is made of the item and `others`."""
    if not output.as_dicom(item):
        path = beside(stem, ".nii.gz")
        results.write_nifti(path, volume, header, output.dtype)
        return path
    array, affine = volume.as_tensor().numpy(), np.asarray(volume.affine)
    key, further = json.dumps(made, sort_keys=True), [one["image"] for one in others]
    write_series(stem, array, affine, item["image"], output.version, key, what, further)
    return stem


def check_scan(item: Mapping, stacks: Sequence[MetaTensor], output: Output) -> None:
    """Refuses a scan whose result could not be written, before the networks run and before anything is lost.

    Args:
        item: of `scans.scans`.
        stacks: `(1, X, Y, Z)` slices with their acquisition, of the item.
        output: what is to be written.

    Raises:
        InputError: if the result would replace another scan's, an error map is asked for several stacks or SimpleITK is
            missing for them, or no region is where the scan is.
    """
    check_place(Path(item["result"]), item, output.as_dicom(item))
    maps = output.error_maps
    if len(stacks) > 1:
        if maps.wanted:
            raise InputError("--error_map is of one stack, not of several. Leave out --error_map or --together.")
        simple_itk()
    if maps.regions is not None:
        slices, a = stacks[0], Acquisition.of(stacks[0])
        shape = [a.fine_count if axis == a.slice_axis else slices.shape[1 + axis] for axis in range(3)]
        grid = fine_affine(np.asarray(slices.affine), a.slice_axis, a.slice_count, a.fine_count, a.target_spacing)
        regions_on(maps.regions, shape, torch.from_numpy(grid))


def _with_error_map(
    record: dict,
    item: Mapping,
    measured: MetaTensor,
    result: MetaTensor,
    width: MetaTensor,
    output: Output,
) -> dict:
    """Writes the error map, and the regions' table if asked; the record with what it says of them."""
    stem, maps = error_stem(Path(item["result"])), output.error_maps
    facts = describe_error_map(measured[0], result, width, maps)  # type: ignore[arg-type]  # of one, one
    what = f"error bar: the truth of {maps.confidence:.0%} of voxels is within this much of the rebuilt series"
    made = {**output.made_from(item), "error map": maps.confidence}
    written = [_write(item, stem, width, measured.meta.get("header", {}), output, made, what)]
    if "dataset" in item and not output.as_dicom(item):  # BIDS wants one beside each derivative
        written.append(beside(stem, ".json"))
        write_json(written[-1], {"Description": facts["Description"], **said(item["image"])})
    if maps.regions is not None:
        written.append(beside(stem, REGIONS))
        write_regions(written[-1], result, width, maps, Acquisition.of(measured[0]).slice_thickness)
    return {
        **record,
        "ErrorMap": facts,
        "Facts": {**record["Facts"], "error map": (f"median ±{facts['Median']:.4g} in the head", CALIBRATED)},
        "Summary": {**record["Summary"], "error_bar": facts["MedianOfRange"]},
        "Results": {**record["Results"], **{path.name: state(path) for path in written}},
    }


def _rebuild_or_complete(
    item: Mapping,
    preprocessing: Callable,
    network: nn.Module,
    inferer: StackInferer,
    device: torch.device,
    output: Output,
) -> dict:
    """What `rebuild_scan` does with a scan that can be read and written."""
    start, stem = time.perf_counter(), Path(item["result"])
    made = output.made_from(item)
    page = beside(stem, ".html")
    record = complete(stem, made, output.anonymous, asked(output.error_maps))
    outcome = "rebuilt" if record is None else "page written"
    if record is not None and (page.name in record["Results"] or not output.report):
        return _row(item, record, "complete already")
    remove_partials(stem)
    remove_partials(error_stem(stem))
    stacks = [preprocessing(one)["image"] for one in item.get("stacks", [item])]
    scan, *others = (measured[0] for measured in stacks)
    told: list[dict] = []
    if record is None:
        check_scan(item, stacks, output)
        for path in (beside(stem, ".json"), page):  # from here on the old result does not count
            path.unlink(missing_ok=True)
        clear_error_map(stem)
        rebuilt: list[Any] = [rebuild(measured, network, inferer, device)[0] for measured in stacks]  # of one, one
        result: MetaTensor = rebuilt[0]
        if others:
            result, told = make_together(item["stacks"], [Stack(*pair) for pair in zip((scan, *others), rebuilt)])
    else:
        result = results.read(stem.parent / next(iter(record["Results"])))
    gap = difference(result.as_tensor(), scan.as_tensor(), Acquisition.of(scan))
    if record is None:
        taken = [one for one, fact in zip(item.get("stacks", []), told) if fact["Share"]][1:]
        path = _write(item, stem, result, scan.meta.get("header", {}), output, made, others=taken)
        record = describe(item, scan, result, agreement(gap, scan), told)
        record = finish(record, path, made, output.version, device, inferer.bfloat16)
        maps = output.error_maps
        if maps.wanted and maps.calibration is not None:
            by = (network, device, maps.calibration, maps.confidence)
            width: Any = error_map(stacks[0], result[None], *by, bfloat16=inferer.bfloat16)  # type: ignore[arg-type]
            half: MetaTensor = width[0]
            record = _with_error_map(record, item, stacks[0], result, half, output)
        record["Summary"]["seconds"] = round(time.perf_counter() - start, 1)
    if output.report:
        error = read_error_map(stem, record)
        write_page(page, scan, result, gap, record, output.anonymous, error, others)
        record |= {"Anonymous": output.anonymous, "Results": {**record["Results"], page.name: state(page)}}
    write_json(beside(stem, ".json"), record)
    return _row(item, record, outcome)


def _row(item: Mapping, record: Mapping, outcome: str) -> dict:
    """The row of `summary.csv`, with the names of this run: folders may have moved since the record was written."""
    result = Path(item["result"]).parent / next(iter(record["Results"]))
    return {"input": str(item["name"]), "result": str(result), **record["Summary"], "outcome": outcome}


def came_as_dicom(item: Mapping) -> bool:
    """Whether a scan, or each stack of a group, is a DICOM series."""
    return all(isinstance(one["image"], dicom.Series) for one in item.get("stacks", [item]))


def rebuild_scan(
    item: Mapping,
    preprocessing: Callable,
    network: nn.Module,
    inferer: StackInferer,
    device: torch.device,
    output: Output,
    wait: bool = True,
) -> dict:
    """Rebuilds a scan, unless it is complete. Writes the result, its page if asked, and last its record.

    A page that is missing is written from a result that is complete.

    Args:
        item: of `scans.scans`.
        preprocessing: the deployed one.
        network: on the device.
        inferer: the deployed one.
        device: of the network.
        output: what is written.
        wait: for another run that is at this scan.

    Returns:
        The scan's row of `summary.csv`. A scan that fails or is skipped is told of, and its row says why.

    Raises:
        filelock.Timeout: if another run is at the scan, and `wait` is false.
    """
    name = str(item["name"])
    if output.format == "dicom" and not came_as_dicom(item):
        logger.warning(f"{name} is skipped: it is not DICOM. Set --output_format auto for both kinds.")
        return {"input": name, "outcome": "skipped", "warnings": "not DICOM"}
    try:
        with alone(Path(item["result"]), wait):
            return _rebuild_or_complete(item, preprocessing, network, inferer, device, output)
    except Timeout:
        raise
    except Exception as error:
        mistake = input_error(error)
        if isinstance(error, OSError):  # a full disk, a folder without rights
            mistake = InputError(f"{name}: {error}. Check the disk and the rights to the folders.")
        logger.error(f"error: {mistake or error}", exc_info=error if mistake is None else None)
        return {"input": name, "outcome": "failed", "warnings": str(mistake or error)}
