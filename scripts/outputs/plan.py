"""The dry run: the part of each scan in a run. Nothing is written."""

import json
import logging
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..errors import few, flag, input_error, only, printable
from ..inputs.scan import Scan, heads
from ..rebuild.rebuilder import Rebuilder
from ..stack.grid import plane_name
from .cohort import failure
from .error_maps import asked
from .one_scan import check_scan
from .provenance import complete, file_of, name_from
from .record import asked_check, sharp_said
from .results import Output

COLUMNS = "what head contrast slices spacing thickness target steps scan".split()  # the last: of any length
LENGTHS = {"spacing": "slice_spacing", "thickness": "slice_thickness", "target": "target_spacing"}  # mm
SOURCES = {"slices": "slice_axis", "thickness": "slice_thickness", "target": "target_spacing"}
KEYS = "scan what head contrast result slices slice_count spacing thickness target steps guide why".split()  # of a row
WIDTH = 100  # columns of the table
CHECKED = "check: its own slices are rebuilt as well, which takes up to a third longer"


class Heads:
    """Numbers of heads, in the order of their scans: those of one examination have one."""

    def __init__(self, scans: Sequence[Scan]):
        self.of_source, self.numbers = heads(one for scan in scans for one in scan.each), dict[tuple[str, ...], int]()

    def of(self, scan: Scan) -> dict[str, Any]:
        """The fields of a row that say whose head a scan shows, and by which contrast."""
        head = (*self.of_source[scan.each[0].source], scan.identity.session)
        return {
            "head": self.numbers.setdefault(head, len(self.numbers) + 1),
            "contrast": scan.identity.contrast or None,
        }


def _row(scan: Scan, rebuilder: Rebuilder, output: Output, numbers: Heads) -> dict[str, Any]:
    """A scan's row: its part in a run, and why; lengths in mm."""
    row = dict.fromkeys(KEYS) | {"scan": scan.name, **numbers.of(scan)}
    if output.format == "dicom" and not scan.is_dicom:
        return row | {"what": "will skip", "why": "not DICOM"}
    try:
        maps = rebuilder.error_maps
        done = complete(scan.result, output.made_from(scan), asked(maps), asked_check(rebuilder))
        stacks = [rebuilder.measure(one.source) for one in scan.each]
        if done is None:
            check_scan(scan, stacks, rebuilder, output)
        measured, a = stacks[0], stacks[0].acquisition
        idle = len(stacks) == 1 and (a.at_target or measured.constant)
    except Exception as error:  # noqa: BLE001  # a row that says so
        return row | {"what": "will fail", "why": str(input_error(error) or error)}
    page = name_from(scan.result, file_of(scan.page, ".html"))
    kept = "will write page" if output.report and done and page not in done["Results"] else "is complete"
    why = [f"{name}: {a.sources[key]}" for name, key in SOURCES.items()]
    why += [f"contrast: {scan.identity.shows.source}"] if scan.identity.shows.source else []
    why += [one for one in (scan.mark, scan.remark) if one]
    why += [f"guide: {one.scan.name}, if it fits" + f", for {one.why}" * bool(one.why) for one in scan.guides]
    steps = 0 if idle else rebuilder.inferer.steps_for(a)[0]
    why += [f"sharp: {sharp_said(steps)}"] if rebuilder.inferer.sharp and steps else []
    why += [CHECKED] if rebuilder.check and not (done or idle) else []
    return row | {
        "what": kept if done else "will copy" if idle else "will rebuild" if len(stacks) == 1 else "will join",
        "result": str(scan.result if output.as_dicom(scan) else file_of(scan.result, ".nii.gz")),
        "slices": plane_name(measured.affine, a.slice_axis),
        "slice_count": a.slice_count,
        **{name: round(getattr(a, attribute), 4) for name, attribute in LENGTHS.items()},
        "steps": steps,
        "guide": scan.guides[0].scan.name if scan.guides else None,
        "why": "; ".join(why),
    }


def _others(
    scans: Sequence[Scan], skipped: Sequence[tuple[str, str]], candidates: Sequence[Scan], numbers: Heads
) -> list[dict[str, Any]]:
    """Rows of scans that are not rebuilt: those that guide, and those that are skipped."""
    reasons = dict(skipped)
    known = {printable(scan.name): scan for scan in candidates}
    guided: dict[str, list[str]] = {}
    for scan in scans:
        for one in scan.guides[:1]:
            guided.setdefault(printable(one.scan.name), []).append(scan.name)
            known.setdefault(printable(one.scan.name), one.scan)
    rebuilt = {printable(one.name) for scan in scans for one in scan.each}
    rows = []
    for name in dict.fromkeys([*guided, *reasons]):
        if name not in rebuilt:
            why = [f"guides {few(guided[name])}, if it fits"] if name in guided else []
            why += [reasons[name]] if name in reasons else []
            what = "will guide" if name in guided else "will skip"
            row = dict.fromkeys(KEYS) | {"scan": name, "what": what, "why": "; ".join(why)}
            rows.append(row | (numbers.of(known[name]) if name in known else {}))
    return rows


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Aligned columns, the scan's name last, and below it why, in `WIDTH` columns."""
    cells = [COLUMNS]
    for row in rows:
        lengths = {name: f"{row[name]:.3g} mm" for name in LENGTHS if row[name] is not None}
        known = {name: value for name, value in row.items() if value is not None}
        cells.append([printable(str({**known, **lengths}.get(name, ""))) for name in COLUMNS])
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    reasons = ["", *(printable(row["why"]) for row in rows)]
    fold = textwrap.TextWrapper(WIDTH, initial_indent="    ", subsequent_indent="    ").wrap
    return "".join(f"{line}\n" for row, why in zip(lines, reasons) for line in [row, *fold(why)])


def list_scans(
    dry_run: bool | str,
    rebuilder: Rebuilder,
    output: Output,
    scans: Sequence[Scan],
    skipped: Sequence[tuple[str, str]] = (),
    candidates: Sequence[Scan] = (),
    allow_failures: bool = False,
) -> None:
    """Lists the work of a run on stdout, and ends the program with its exit code, if a dry run is asked for.

    Args:
        dry_run: true for a table, "json" for a list of objects. If false, nothing happens.
        skipped: see `cohort.keep_summary`.
        candidates: scans that may guide others, of `Selection.candidates`.
    """
    as_json = dry_run == "json"
    if not (as_json or flag("dry_run", dry_run)):
        return
    guides = [one.scan for scan in scans for one in scan.guides]
    numbers, rows = Heads([*scans, *candidates, *guides]), list[dict[str, Any]]()
    with only(logging.WARNING), logging_redirect_tqdm():  # the table has the facts that the preprocessing logs
        for scan in tqdm(scans, desc="scans", unit="scan", leave=False, disable=None):
            rows.append(_row(scan, rebuilder, output, numbers))
    others = _others(scans, skipped, candidates, numbers)
    if as_json:
        sys.stdout.write(json.dumps([*rows, *others], indent=1) + "\n")
    else:
        count = f"{len(rows)} scan{'s' * (len(rows) != 1)}"
        sys.stdout.write(f"{_table([*rows, *others])}{count}. Nothing was written.\n")
    why = failure([row["what"] for row in rows], "will fail")
    raise SystemExit(why if why and not flag("allow_failures", allow_failures) else 0)
