"""Many scans, one after the other: what is told of each, the summary, the log.

Several runs may share a folder. Each takes the next scan that no other run is at.
"""

from __future__ import annotations

import logging
import math
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from filelock import Timeout
from torch import nn
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..errors import InputError, flag, printable
from ..rebuild.inferer import StackInferer
from . import bids
from .processes import in_processes
from .scan import Output, rebuild_scan
from .summary import add_rows

logger = logging.getLogger("drift")

LOG = "drift.log"
INDEX_PAUSE = 10.0  # seconds between two writings of the index, which is megabytes where scans are many


@contextmanager
def _kept_log(folder: Path, version: str) -> Iterator[None]:
    """Adds the command, and what the logger says within the block, to `drift.log` of a folder."""
    handler = logging.FileHandler(folder / LOG, encoding="utf-8", errors="backslashreplace", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.handleError = lambda record: None  # type: ignore[method-assign]  # a full disk is told by what needs it
    begin = {"levelname": "INFO", "msg": printable(f"DRIFT {version}: {shlex.join(sys.argv)}")}
    try:
        handler.handle(logging.makeLogRecord(begin))
        logger.addHandler(handler)
    except OSError as error:  # another user's file
        logger.warning(f"{folder / LOG} cannot be written ({error}): this run keeps no log.")
    try:
        yield
    finally:
        logger.removeHandler(handler)
        with suppress(OSError):  # again: what could not be written is still in its buffer
            handler.close()


def keep_summary(
    rows: Iterable[tuple[int, Mapping]],
    items: Sequence[Mapping],
    output: Output,
    skipped: Sequence[tuple[str, str]] = (),
    allow_failures: bool = False,
) -> None:
    """Writes `summary.csv` and `index.html` as the work goes on, in the order of the items, and tells of each scan.

    What is told goes into `drift.log`, too.

    Args:
        rows: (index of the item, row of `rebuild_scan`), in the order in which scans are done.
        items: of `scans.scans`.
        output: what is written.
        skipped: other scans that are not rebuilt, each with the reason: `Selection.skipped`.
        allow_failures: whether the exit code is 0 in any case.

    Raises:
        InputError: if the folder cannot be written.
        SystemExit: with exit code 1, at the end, if a scan failed or all were skipped.
    """
    allowed = flag("allow_failures", allow_failures)
    left_out = [{"input": name, "outcome": "skipped", "warnings": why} for name, why in skipped]
    summary = Path(output.folder) / "summary.csv"
    done: dict[int, Mapping] = {}
    written = -math.inf
    try:  # before hours of work, not after
        add_rows(summary, [], index=False)
        for root in sorted({str(item["dataset"]) for item in items if "dataset" in item}):
            bids.write_description(output.folder, Path(root), output.version)
    except OSError as error:
        raise InputError(f"output_dir {output.folder} cannot be written ({error}). Choose another one.") from error
    with _kept_log(Path(output.folder), output.version):
        for index, row in rows:
            done[index] = row
            if "result" in row:
                steps = f"{row['steps']} step{'s' * (row['steps'] != 1)}"
                logger.info(
                    f"{len(done)} of {len(items)}: {row['input']} {row['outcome']}, {steps}, {row['seconds']:g} s: "
                    f"{row['result']}"
                )
            now = time.monotonic()
            due = len(done) == len(items) or now - written >= INDEX_PAUSE
            written = now if due else written
            try:
                add_rows(summary, [*(done[index] for index in sorted(done)), *left_out], due)
            except (OSError, InputError) as error:
                logger.warning(f"{summary} cannot be written ({error}).")
    failed, others = (sum(row["outcome"] == outcome for row in done.values()) for outcome in ("failed", "skipped"))
    why = f"{failed} of {len(done)} scans failed." if failed else ""
    if others == len(done) > 0:
        why = f"No scan came as DICOM: {others} of {len(done)} were skipped. Set --output_format auto for both kinds."
    if why and not allowed:
        raise SystemExit(why)
    if why:
        logger.warning(why)


def rebuild_scans(
    preprocessing: Callable,
    network: nn.Module,
    inferer: StackInferer,
    device: torch.device,
    output: Output,
    items: Sequence[Mapping],
    skipped: Sequence[tuple[str, str]] = (),
    allow_failures: bool = False,
    jobs: int = 1,
) -> None:
    """Rebuilds scan by scan. One that fails is named and stops no other. One that is complete is left alone.

    A scan that another run is at is passed over. Its turn comes again at the end; there the other run is waited for.

    Args:
        preprocessing, network, inferer, device, output: see `rebuild_scan`.
        items: of `scans.scans`.
        skipped, allow_failures: see `keep_summary`.
        jobs: scans at once, each in a process of its own; the threads of a CPU are shared out.

    Raises:
        InputError: if the output folder cannot be written, or `jobs` is no positive number.
        SystemExit: with exit code 1, at the end, if a scan failed or all were skipped.
    """
    parts = (preprocessing, network, inferer, device, output)
    if type(jobs) is not int or jobs < 1:
        raise InputError(f"jobs is {jobs!r}: expected a whole number from 1 on. Set it as in --jobs 2.")
    jobs = min(jobs, len(items))
    hidden = None if len(items) > 1 else True  # null hides it where there is no terminal
    with logging_redirect_tqdm(), tqdm(total=len(items), desc="scans", unit="scan", disable=hidden) as bar:

        def rows() -> Iterator[tuple[int, dict]]:
            for index, row in in_processes(rebuild_scan, parts, items, jobs) if jobs > 1 else one_by_one():
                bar.update()
                yield index, row

        def one_by_one() -> Iterator[tuple[int, dict]]:
            passed_over = []
            for index, item in enumerate(items):
                bar.set_postfix_str(printable(Path(str(item["name"])).name))
                try:
                    row = rebuild_scan(item, *parts, wait=False)
                except Timeout:
                    logger.info(f"{item['name']}: another run is at it. Its turn comes again at the end.")
                    passed_over.append(index)
                else:
                    yield index, row
            for index in passed_over:
                yield index, rebuild_scan(items[index], *parts)

        keep_summary(rows(), items, output, skipped, allow_failures)
