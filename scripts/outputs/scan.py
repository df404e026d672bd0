"""A single scan: whether its result is complete already, what would be lost, and what is written of it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from filelock import Timeout
from monai.data import MetaTensor

from ..errors import InputError, flag, input_error, printable
from ..files import remove_partials, sha256, whole_file
from ..inputs.scan import Guiding, Scan
from ..pages.index import check_foreign_index
from ..pages.page import write_page
from ..rebuild.error_map import ErrorMaps
from ..rebuild.guide import Placed
from ..rebuild.rebuilder import Rebuilder
from ..rebuild.rebuilt import ErrorMap, Rebuilt
from ..rebuild.registration import simple_itk
from ..stack.slices import Slices
from ..train.recipe import parser_at_work
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
from .record import (
    check_place,
    complete,
    describe,
    file_of,
    kept,
    made_with,
    named,
    other_source,
    rounding,
    state,
    write_json,
)
from .stacks import StackFacts, make_together
from .summary import read_rows

logger = logging.getLogger("drift")

CALIBRATED = "calibrated on people that no network has seen"  # source of an error map's numbers


@dataclass
class Output:
    """The form of a run's results.

    Attributes:
        folder: where `summary.csv` goes. Results go where the scans say.
        format: `"nifti"`; `"dicom"`, by which scans that did not come as DICOM are skipped; or `"auto"`, by which each
            result is what its scan was.
        dtype: of NIfTI voxels: `"float32"`, or `"int16"`, which is scaled and takes half the space.
        anonymous: whether the page leaves out what names the scan. Record, summary and index name it in any case.
        settings, method: options and settings of the inferer that change results.
        made: `record.made_with` for this run.
    """

    folder: str
    format: str
    dtype: str
    report: bool
    anonymous: bool
    settings: Mapping[str, Any]
    method: Mapping[str, Any]
    weights: str
    version: str
    made: dict[str, Any] = field(init=False)

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
        settings = {**self.settings, **self.method, "dtype": self.dtype}
        self.made = made_with(parser_at_work(), self.weights, self.version, settings)

    def as_dicom(self, scan: Scan) -> bool:
        """Whether a scan's result is a DICOM series."""
        return self.format == "dicom" or (self.format == "auto" and scan.is_dicom)

    def made_from(self, scan: Scan) -> dict[str, Any]:
        """Entries of the record of a scan's result that is complete."""
        settings = {**self.made["Settings"], "format": "dicom" if self.as_dicom(scan) else "nifti"}
        files = [*scan.files, *(file for guide in scan.guides for file in guide.scan.files)]
        return {**self.made, "Settings": settings, "InputSHA256": sha256(files)}


def _write(
    scan: Scan,
    stem: Path,
    volume: MetaTensor,
    header: Mapping,
    output: Output,
    made: Mapping,
    what: str = "",
    others: Sequence[Scan] = (),
) -> Path:
    """Writes the result, or another volume `what` of it; returns its path. It is made of the scan and `others`."""
    if not output.as_dicom(scan):
        path = file_of(stem, ".nii.gz")
        with whole_file(path) as partial:
            nib.save(results.nifti_image(volume, header, output.dtype), partial)
        return path
    array, affine = volume.as_tensor().numpy(), np.asarray(volume.affine)
    named = {name: value for name, value in made.items() if name != "InputSHA256"}  # files differ by how they were sent
    source, *further = (one.source for one in (scan, *others) if not isinstance(one.source, Path))
    write_series(stem, array, affine, source, output.version, json.dumps(named, sort_keys=True), what, further)
    return stem


def check_scan(scan: Scan, stacks: Sequence[Slices], rebuilder: Rebuilder, output: Output) -> None:
    """Refuses a scan whose result could not be written, before anything is lost."""
    maps = rebuilder.error_maps
    check_place(scan, output.as_dicom(scan))
    if len(stacks) > 1 and maps.wanted:
        raise InputError("--error_map is of one stack, not of several. Leave out --error_map or --together.")
    if len(stacks) > 1 or scan.guides:
        simple_itk()
    if scan.guides:
        rebuilder.check_guides()
    if maps.regions is not None:
        regions_on(maps.regions, stacks[0].fine_shape, stacks[0].fine_affine)


def _add_error_map(
    record: dict, scan: Scan, rebuilt: Rebuilt, error_map: ErrorMap, maps: ErrorMaps, output: Output, made: Mapping
) -> None:
    """Writes the error map, and the regions' table if asked, and into the record what it says of them."""
    stem, meta, width = error_stem(scan.result), rebuilt.slices.meta, error_map.half_width(maps.confidence)
    facts = describe_error_map(rebuilt, width, maps)
    what = f"error bar: the truth of {maps.confidence:.0%} of voxels is within this much of the rebuilt series"
    made = {**made, "error map": maps.confidence}
    written = [_write(scan, stem, width, meta.get("header", {}), output, made, what)]
    if scan.dataset is not None and not output.as_dicom(scan):  # BIDS wants one beside each derivative
        written.append(file_of(stem, ".json"))
        write_json(written[-1], {"Description": facts["Description"], **kept(scan)[0]})
    if maps.regions is not None:
        written.append(file_of(stem, REGIONS))
        write_regions(written[-1], rebuilt.volume, width, maps, error_map.thickness)
    if outside := error_map.calibration.outside(error_map.thickness):
        logger.warning(f"{scan.name}: {outside}.")
        record["Warnings"] = (*record["Warnings"], outside)
    record["ErrorMap"] = facts
    record["Facts"]["error map"] = f"median ±{facts['Median']:.4g} in the head", CALIBRATED
    record["Summary"] |= {"error_bar": facts["MedianOfRange"], "warnings": " | ".join(record["Warnings"])}
    record["Results"] |= {path.name: state(path) for path in written}


def _guides(
    scan: Scan, stacks: Sequence[Slices], rebuilder: Rebuilder
) -> tuple[Guiding | None, list[Placed | None], list[str]]:
    """The first guide that fits, beside each stack where it does; and warnings why others are left out."""
    thick = [one for one in stacks if not (one.acquisition.at_target or one.constant)]
    warnings = list[str]()
    for guide in scan.guides if thick else ():
        placed, misfits = list[Placed | None](), dict[str, None]()
        read = cache(partial(rebuilder.read_guide, guide.scan.source))  # once for all stacks
        for measured in stacks:
            placed.append(None)
            if any(measured is one for one in thick):
                try:
                    placed[-1] = rebuilder.guide(read(), measured)
                except Exception as error:
                    mistake = input_error(error)
                    if mistake is None or not guide.why:
                        raise
                    misfits[f"rebuilt without the guide {printable(guide.scan.name)}: {mistake}"] = None
        warnings += misfits
        if any(placed):
            return guide, placed, _said(scan, warnings)
    return None, [None] * len(stacks), _said(scan, warnings)


def _said(scan: Scan, warnings: list[str]) -> list[str]:
    for warning in warnings:
        logger.warning(f"{scan.name}: {warning}")
    return warnings


def _rebuild(
    scan: Scan, stacks: Sequence[Slices], rebuilder: Rebuilder, output: Output, made: Mapping
) -> tuple[Rebuilt, dict]:
    """The rebuilt scan, and its record; the result and its error map are written."""
    stem = scan.result
    guide, guides, warnings = _guides(scan, stacks, rebuilder)  # one that does not fit loses no old result
    for path in (file_of(stem, ".json"), file_of(stem, ".html")):  # from here on the old result does not count
        path.unlink(missing_ok=True)
    clear_error_map(stem)
    each = rebuilder.each(stacks, guides)
    rebuilt, facts, others = each[0], list[StackFacts](), list[Scan]()
    if len(each) > 1:
        rebuilt, facts = make_together([one.name for one in scan.stacks], each)
        others = [one for one, fact in zip(scan.stacks, facts) if fact.share][1:]
    if guide is not None:
        others.append(guide.scan)
    path = _write(scan, stem, rebuilt.volume, rebuilt.slices.meta.get("header", {}), output, made, others=others)
    record = describe(scan, rebuilt, facts, warnings, guide)
    if "Motion" in record:
        logger.warning(f"{scan.name}: {record['Motion']['Description']}")
    record["Facts"] |= rounding(path)
    record |= {
        **made,
        "Version": output.version,
        "Device": str(rebuilder.device),
        "Bfloat16": rebuilder.inferer.bfloat16,
        "Results": {path.name: state(path)},
    }
    if rebuilt.error_map is not None:
        _add_error_map(record, scan, rebuilt, rebuilt.error_map, rebuilder.error_maps, output, made)
    elif rebuilder.error_maps.wanted:
        record["ErrorMap"] = {"Description": "None: nothing was rebuilt.", **asked(rebuilder.error_maps)}
    return rebuilt, record


def _rebuild_or_complete(scan: Scan, rebuilder: Rebuilder, output: Output) -> dict:
    """Rebuilds a scan, or writes its missing page; its row."""
    start, stem, maps = time.perf_counter(), scan.result, rebuilder.error_maps
    page, made = file_of(stem, ".html"), output.made_from(scan)
    record = complete(stem, made, output.anonymous, asked(maps))
    outcome = "rebuilt" if record is None else "page written"
    if record is not None and (page.name in record["Results"] or not output.report):
        return _row(scan, record, "complete already")
    remove_partials(stem)
    remove_partials(error_stem(stem))
    stacks = [rebuilder.measure(one.source) for one in scan.each]
    if record is None:
        check_scan(scan, stacks, rebuilder, output)
        rebuilt, record = _rebuild(scan, stacks, rebuilder, output, made)
        record["Summary"]["seconds"] = round(time.perf_counter() - start, 1)
    else:
        rebuilt = Rebuilt(stacks[0], results.read(stem.parent / next(iter(record["Results"]))))
    if output.report:
        write_page(page, rebuilt, record, output.anonymous, read_error_map(stem, record), stacks[1:])
        record |= {"Anonymous": output.anonymous, "Results": {**record["Results"], page.name: state(page)}}
    write_json(file_of(stem, ".json"), record)
    return _row(scan, record, outcome)


def _row(scan: Scan, record: Mapping, outcome: str) -> dict:
    """The row of `summary.csv`, with the names of this run: folders may have moved since the record was written."""
    result = scan.result.parent / next(iter(record["Results"]))
    used = [one.scan.name for one in scan.guides if named(scan, one.scan.name) == record["Summary"].get("guide")]
    guide = {"guide": used[0]} if used else {}
    return {"input": scan.name, "result": str(result), **record["Summary"], **guide, "outcome": outcome}


def rebuild_scan(scan: Scan, rebuilder: Rebuilder, output: Output, wait: bool = True) -> dict:
    """Rebuilds a scan, unless it is complete. Writes the result, its page if asked, and last its record.

    A page that is missing is written from a result that is complete. Another run that is at this scan is waited for, or
    else there is a `filelock.Timeout`.

    Returns:
        The scan's row of `summary.csv`. A scan that fails or is skipped is logged, and its row says why.
    """
    name = scan.name
    if output.format == "dicom" and not scan.is_dicom:
        logger.warning(f"{name} is skipped: it is not DICOM. Set --output_format auto for both kinds.")
        return {"input": name, "outcome": "skipped", "warnings": "not DICOM"}
    try:
        with alone(scan.result, wait):
            return _rebuild_or_complete(scan, rebuilder, output)
    except Timeout:
        raise
    except Exception as error:
        mistake = input_error(error)
        if isinstance(error, OSError):  # a full disk, a folder without rights
            mistake = InputError(f"{name}: {error}. Check the disk and the rights to the folders.")
        logger.error(f"error: {mistake or error}", exc_info=error if mistake is None else None)
        earlier = None if other_source(scan) is not None else complete(scan.result, {})  # this failure did not cost it
        row = {"input": name} if earlier is None else _row(scan, earlier, "failed")
        return {**row, "outcome": "failed", "warnings": str(mistake or error)}
