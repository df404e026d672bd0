"""Many scans, one after the other: their results, the summary, the log.

Several runs may share a folder. Each takes the next scan that no other run is at.
"""

import logging
import math
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from io import TextIOWrapper
from pathlib import Path

from filelock import Timeout
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..errors import InputError, flag, logger, printable
from ..files import stem
from ..inputs.bids import REPORTS, reports
from ..inputs.scan import Scan
from ..pages.index import check_foreign_index
from ..rebuild.rebuilder import Rebuilder
from . import bids
from .jobs import JOB, end_with_the_other, started_again
from .lock import alone
from .one_scan import check_stacks, rebuild_scan
from .provenance import file_of
from .results import Output
from .summary import add_rows

LOG = "drift.log"
INDEX_PAUSE = 10.0  # seconds between two writings of the index, which is megabytes where scans are many


class _LogFile(logging.FileHandler):
    """A log that is never written through a link: whoever may write to the folder could have it change other files."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        return open(os.open(self.baseFilename, flags, 0o666), "a", encoding="utf-8", errors="backslashreplace")


@contextmanager
def _kept_log(folder: Path, version: str) -> Iterator[None]:
    """Adds the command, and the lines that are logged within the block, to `drift.log` of a folder."""
    handler = _LogFile(folder / LOG, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.handleError = lambda record: None  # type: ignore[method-assign]  # a full disk is reported by what needs it
    begin = {"levelname": "INFO", "msg": printable(f"DRIFT {version}, in {os.getcwd()}: {shlex.join(sys.argv)}")}
    try:
        handler.handle(logging.makeLogRecord(begin))
        logger.addHandler(handler)
    except OSError as error:  # another user's file
        logger.warning(f"{folder / LOG} cannot be written ({error}): this run keeps no log.")
    try:
        yield
    finally:
        logger.removeHandler(handler)
        with suppress(OSError):  # again: lines that could not be written are still in its buffer
            handler.close()


def _reports(output: Output, scans: Sequence[Scan]) -> Path:
    """The folder of the log, the summary and the index of a run."""
    return reports(Path(output.folder), any(scan.dataset is not None for scan in scans))


def failure(outcomes: Sequence[str], verb: str) -> str:
    """Why a run, or its dry run, does not end with exit code 0: a scan failed, or all were skipped; empty otherwise."""
    failed, skipped = (sum(word in one for one in outcomes) for word in ("fail", "skip"))
    if skipped == len(outcomes) > 0:
        return f"No scan came as DICOM: {skipped} of {skipped} are skipped. Set --output_format auto for both kinds."
    return f"{failed} of {len(outcomes)} scans {verb}." if failed else ""


def keep_summary(
    rows: Iterable[tuple[int, Sequence[Mapping]]],
    scans: Sequence[Scan],
    output: Output,
    skipped: Sequence[tuple[str, str]] = (),
    allow_failures: bool = False,
) -> None:
    """Writes `summary.csv` and `index.html` as the work goes on, in the order of the scans, and logs each scan.

    Args:
        rows: (index of the scan, rows of `rebuild_scan`), in the order in which scans are done.
        skipped: `Selection.skipped`.
        allow_failures: whether the exit code is 0 in any case, and not 1 if a scan failed or all were skipped.
    """
    allowed = flag("allow_failures", allow_failures)
    left_out = [{"input": name, "outcome": "skipped", "warnings": why} for name, why in skipped]
    folder = _reports(output, scans)
    summary = folder / "summary.csv"
    done: dict[int, Sequence[Mapping]] = {}
    written = -math.inf
    try:  # before hours of work, not after
        check_foreign_index(folder)
        add_rows(summary, [], index=False)
        for root in sorted({scan.dataset for scan in scans if scan.dataset is not None}):
            bids.write_description(output.folder, root, output.version, output.origin.said(output.version))
    except OSError as error:
        raise InputError(f"output_dir {output.folder} cannot be written ({error}). Choose another one.") from error
    with _kept_log(folder, output.version):
        logger.info(f"Results go to {output.folder}" + f", their index to {folder}" * (folder.name == REPORTS) + ".")
        for index, own in rows:
            done[index] = own
            for row in (one for one in own if one["outcome"] not in ("failed", "skipped")):
                steps = "" if row["steps"] is None else f", {row['steps']} step{'s' * (row['steps'] != 1)}"
                took = f"{steps}, {row['seconds']:g} s" if row["outcome"] == "rebuilt" else ""
                result = os.path.relpath(row["result"], output.folder)
                logger.info(f"{len(done)} of {len(scans)}: {row['input']} {row['outcome']}{took}: {printable(result)}")
            now = time.monotonic()
            due = len(done) == len(scans) or now - written >= INDEX_PAUSE
            written = now if due else written
            try:
                add_rows(summary, [*(row for index in sorted(done) for row in done[index]), *left_out], due)
            except (OSError, InputError) as error:
                logger.warning(f"{summary} cannot be written ({error}).")
    why = failure([row["outcome"] for own in done.values() for row in own], "failed")
    if why and not allowed:
        raise SystemExit(why)
    if why:
        logger.warning(why)


def rebuild_scans(
    rebuilder: Rebuilder,
    output: Output,
    scans: Sequence[Scan],
    skipped: Sequence[tuple[str, str]] = (),
    allow_failures: bool = False,
    jobs: int = 1,
) -> None:
    """Rebuilds scan by scan. A scan that fails is named and stops no other; a complete one is left alone.

    A scan that another run is at is passed over. Its turn comes again at the end; there the other run is waited for.

    Args:
        jobs: how many of this command run at once (`jobs.started_again`).
    """
    if type(jobs) is not int or jobs < 1:
        raise InputError(f"jobs is {jobs!r}: expected a whole number from 1 on. Set it as in --jobs 2.")
    for scan in scans:  # before hours of work on the others
        check_stacks(scan, rebuilder)
    if JOB in os.environ:
        end_with_the_other()
        with _kept_log(_reports(output, scans), output.version):
            for scan in scans:
                with suppress(Timeout):
                    rebuild_scan(scan, rebuilder, output, wait=False)
        return
    others, begin = max(0, min(jobs, len(scans)) - 1), time.time()
    if others:
        with suppress(OSError), alone(_reports(output, scans) / "summary.csv") as locked:  # `keep_summary` says others
            if not locked:
                raise InputError(f"jobs is {jobs}, but {output.folder} takes no locks: expected 1. Leave out --jobs.")
    with started_again(others) if others else nullcontext(), logging_redirect_tqdm():
        rows = _each(rebuilder, output, scans, begin if others else None)
        keep_summary(rows, scans, output, skipped, allow_failures)


def _each(
    rebuilder: Rebuilder, output: Output, scans: Sequence[Scan], begin: float | None
) -> Iterator[tuple[int, list[dict]]]:
    """Index and rows of each scan as it is done. With jobs, `begin` is the time from which on a result is theirs."""
    left = dict(enumerate(scans))
    hidden = None if len(scans) > 1 else True  # null hides it where there is no terminal
    with tqdm(total=len(scans), desc="scans", unit="scan", disable=hidden) as bar:
        for wait in (False, True):
            for index, scan in list(left.items()):
                bar.set_postfix_str(printable(Path(scan.name).name))
                try:
                    rows = rebuild_scan(scan, rebuilder, output, wait)
                except Timeout:
                    if begin is None:
                        logger.info(f"{scan.name}: another run is at it. Its turn comes again at the end.")
                    continue
                for row in (one for one in rows if one["outcome"] == "complete already"):
                    result = Path(row["result"])
                    written = file_of(result.with_name(stem(result.name)), ".json").stat().st_mtime
                    row["outcome"] = "rebuilt" if begin is not None and written >= begin else row["outcome"]
                bar.update()
                del left[index]
                yield index, rows
