"""A single scan: whether its result is complete already, the results that would be lost, and its files."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from filelock import Timeout

from ..errors import InputError, few, input_error, logger, printable
from ..files import remove_partials
from ..inputs.scan import Candidate, Scan
from ..pages.page import write_page
from ..rebuild.guide import PlacedGuide
from ..rebuild.rebuilder import Rebuilder
from ..rebuild.rebuilt import Rebuilt
from ..rebuild.reduced_resolution import WORTH
from ..stack.slices import Slices
from . import results
from .dicom import check_series_folder
from .entries import Record
from .error_maps import Regions, asked, clear_error_map, error_stem, read_error_map, regions_of, write_error_map
from .lock import alone
from .provenance import complete, file_of, name_from, other_source, state, write_json
from .record import asked_check, describe, describe_check, named, warnings_of
from .results import Output
from .stack_facts import check_fits, make_together


def check_stacks(scan: Scan, rebuilder: Rebuilder) -> None:
    """Refuses an error map or a test of several stacks."""
    for option, wanted in (("--error_map", rebuilder.error_maps.wanted), ("--check", rebuilder.check)):
        if len(scan.each) > 1 and wanted:
            names = few([one.name for one in scan.each])
            raise InputError(
                f"{option} is of one stack, and {names} become one volume. Leave out {option} or --together."
            )


def check_scan(scan: Scan, stacks: Sequence[Slices], rebuilder: Rebuilder, output: Output) -> None:
    """Refuses a scan whose result could not be written, before anything is lost."""
    maps = rebuilder.error_maps
    if output.as_dicom(scan):
        check_series_folder(scan.result)
    for one in (scan, *scan.stacks):  # of which each may be rebuilt alone
        if (earlier := other_source(one)) is not None:
            raise InputError(
                f"{one.result} holds the result of {earlier.resolve()}, which that of {one.name} would replace. Set "
                "another --output_dir for each, or give the folder that holds both."
            )
    check_stacks(scan, rebuilder)
    if scan.guides:
        rebuilder.check_guides()
    if maps.regions is not None:
        Regions.on(maps.regions, stacks[0].fine_shape, stacks[0].fine_affine)


def _placed(
    scan: Scan, stacks: Sequence[Slices], rebuilder: Rebuilder
) -> tuple[Candidate | None, list[PlacedGuide | None], list[str]]:
    """The first guide that fits, beside each stack where it does; and warnings why others are left out."""
    thick = [one for one in stacks if not (one.acquisition.at_target or one.constant)]
    warnings = list[str]()
    for guide in scan.guides if thick else ():
        placed, misfits = list[PlacedGuide | None](), dict[str, None]()
        read = cache(partial(rebuilder.read_guide, guide.scan.source))  # once for all stacks
        for measured in stacks:
            placed.append(None)
            if any(measured is one for one in thick):
                try:
                    beside = rebuilder.place(read(), measured)
                    beside.check(measured)
                    placed[-1] = beside
                except Exception as error:
                    mistake = input_error(error)
                    if mistake is None or not guide.why:
                        raise
                    misfits[f"rebuilt without the guide {printable(guide.scan.name)}: {mistake}"] = None
        for misfit in misfits:
            logger.warning(f"{scan.name}: {misfit}")
        warnings += misfits
        if any(placed):
            return guide, placed, warnings
    return None, [None] * len(stacks), warnings


def _forget(scan: Scan) -> None:
    """From here on an old result does not count."""
    for path in (file_of(scan.result, ".json"), file_of(scan.page, ".html")):
        path.unlink(missing_ok=True)
    clear_error_map(scan)


def _alone(scan: Scan) -> Scan:
    """The first of several stacks, with which no other goes: its result has its own name."""
    first = scan.each[0]
    return replace(scan, name=first.name, files=first.files, result=first.result)


def _rebuild_and_write(
    scan: Scan, stacks: Sequence[Slices], rebuilder: Rebuilder, output: Output, made: Mapping, begin: float
) -> tuple[Scan, Rebuilt, Record]:
    """The scan as it was rebuilt, and its record; the result and its error map are written."""
    maps, marks = rebuilder.error_maps, [one for one in (scan.mark, scan.remark) if one]
    for mark in marks:
        logger.warning(f"{scan.name}: {mark}")
    names, several = [one.name for one in scan.stacks], len(stacks) > 1
    fits = check_fits(names, stacks) if several else []
    inside = [one for one, fit in zip(stacks, fits) if fit.belongs] if several else stacks
    guide, guides, warnings = _placed(scan, inside, rebuilder)  # one that does not fit loses no old result
    check = rebuilder.checked(stacks[0]) if rebuilder.check else None
    _forget(scan)
    each = rebuilder.each(inside, guides)
    rebuilt, facts, others = each[0], list[dict](), list[Scan]()
    if several:
        rebuilt, facts = make_together(names, stacks, fits, each)
        others = [one for one, fact in zip(scan.stacks, facts) if fact["Share"]][1:]
        if not others:
            _forget(scan := _alone(scan))
    header, guided_by = rebuilt.slices.meta.get("header", {}), None if guide is None else guide.scan
    if check is not None:
        logger.log(logging.INFO if check.expected >= WORTH else logging.WARNING, f"{scan.name}: {check}.")
    regions, cut = regions_of(rebuilt, maps)
    for warning in cut:
        logger.warning(f"{scan.name}: {warning}")
    warnings = [*marks, *warnings, *cut]
    derivation: dict[str, Any] = {
        "others": others,
        "guide": guided_by,
        "warnings": warnings_of(scan, rebuilt, warnings, facts, guide),
        "test": "" if check is None else str(check),
        "sharp": rebuilt.sharp,
    }
    path = results.write(scan, scan.result, rebuilt.volume, header, output, made, **derivation)
    if rebuilt.motion_said:
        logger.warning(f"{scan.name}: {rebuilt.motion_said}")
    beside = write_error_map(scan, rebuilt, maps, output, made, regions, **derivation)
    record = describe(
        *(scan, rebuilt, maps, output.origin),
        stacks=facts,
        warnings=warnings,
        used=guide,
        check=describe_check(check, stacks[0], asked_check(rebuilder)) if rebuilder.check else None,
        files=[path, *beside],
        seconds=round(time.perf_counter() - begin, 1),
        **{**made, "Version": output.version, "Device": str(rebuilder.device), "Bfloat16": rebuilder.inferer.bfloat16},
    )
    return scan, rebuilt, record


def _rebuild_or_complete(scan: Scan, rebuilder: Rebuilder, output: Output) -> tuple[dict, list[Scan]]:
    """Rebuilds a scan, or writes its missing page; its row, and the stacks that were left out of it."""
    begin, maps, made = time.perf_counter(), rebuilder.error_maps, output.made_from(scan)
    record = complete(scan.result, made, asked(maps), asked_check(rebuilder))
    if record is None and scan.stacks:
        record = complete(scan.stacks[0].result, made, asked(maps), asked_check(rebuilder))
        scan = scan if record is None else _alone(scan)
    outcome = "rebuilt" if record is None else "page written"
    page_name = name_from(scan.result, file_of(scan.page, ".html"))
    if record is not None and (page_name in record["Results"] or not output.report):
        return _row(scan, record, "complete already"), _left_out(scan, record)
    for one in {scan.result, scan.page}:
        remove_partials(one)
        remove_partials(error_stem(one))
    stacks = [rebuilder.measure(one.source) for one in scan.each]
    if record is None:
        check_scan(scan, stacks, rebuilder, output)
        scan, rebuilt, record = _rebuild_and_write(scan, stacks, rebuilder, output, made, begin)
    else:
        rebuilt = Rebuilt(stacks[0], results.read(scan.result.parent / next(iter(record["Results"]))))
    if output.report:
        page, others = file_of(scan.page, ".html"), zip(stacks[1:], record.get("Stacks", ())[1:])
        write_page(
            page, rebuilt, record, read_error_map(scan.result, record), [one for one, how in others if how["Share"]]
        )
        record = record.replaced(Results={**record["Results"], name_from(scan.result, page): state(page)})
    write_json(file_of(scan.result, ".json"), record)
    return _row(scan, record, outcome), _left_out(scan, record)


def _left_out(scan: Scan, record: Mapping) -> list[Scan]:
    """The stacks that the record of a volume of several leaves out, each a scan of its own."""
    facts = zip(scan.stacks[1:], record.get("Stacks", ())[1:])
    return [replace(one, guides=scan.guides) for one, fact in facts if not fact["Share"]]


def _row(scan: Scan, record: Mapping, outcome: str) -> dict:
    """The row of `summary.csv`, with the names of this run: folders may have moved since the record was written."""
    result = scan.result.parent / next(iter(record["Results"]))
    used = [one.scan.name for one in scan.guides if named(scan, one.scan.name) == record["Summary"].get("guide")]
    guide = {"guide": used[0]} if used else {}
    return {"input": scan.name, "result": str(result), **record["Summary"], **guide, "outcome": outcome}


def rebuild_scan(scan: Scan, rebuilder: Rebuilder, output: Output, wait: bool = True) -> list[dict]:
    """Rebuilds a scan, unless it is complete. Writes the result, its page if asked, and last its record.

    A page that is missing is written from a result that is complete. Another run that is at this scan is waited for, or
    else there is a `filelock.Timeout`.

    Returns:
        The rows of `summary.csv`: the scan's, and those of stacks that were left out of it and rebuilt alone. A scan
        that fails or is skipped is logged, and its row says why.
    """
    name = scan.name
    if output.format == "dicom" and not scan.is_dicom:
        logger.warning(f"{name} is skipped: it is not DICOM. Set --output_format auto for both kinds.")
        return [{"input": name, "outcome": "skipped", "warnings": "not DICOM"}]
    try:
        with alone(scan.result, wait):
            row, left = _rebuild_or_complete(scan, rebuilder, output)
    except Timeout:
        raise
    except Exception as error:
        mistake = input_error(error)
        if isinstance(error, OSError):  # a full disk, a folder without rights
            mistake = InputError(f"{name}: {error}. Check the disk and the rights to the folders.")
        logger.error(f"error: {mistake or error}", exc_info=error if mistake is None else None)
        earlier = None if other_source(scan) is not None else complete(scan.result, {})  # this failure did not cost it
        row = {"input": name} if earlier is None else _row(scan, earlier, "failed")
        return [{**row, "outcome": "failed", "warnings": str(mistake or error)}]
    return [row, *(row for one in left for row in rebuild_scan(one, rebuilder, output))]
