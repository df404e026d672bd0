"""Where a long rebuild is: a bar in a terminal, a line a minute in a file or a log."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

logger = logging.getLogger("drift")

PAUSE = 60.0  # seconds between two lines, whatever the parts
_told = time.monotonic()  # when the last line was written


@contextmanager
def part(name: str, total: int | None = None, wanted: bool = True) -> Iterator[Callable[[int], object]]:
    """A part of a rebuild, while the block runs.

    Args:
        name: for people, such as `registering`.
        total: how much there is to do; None where nothing is counted.
        wanted: whether anything is shown.

    Yields:
        A function that is told how much more is done.
    """
    terminal = sys.stderr.isatty()
    form = None if total else "{desc}: {elapsed}"
    with tqdm(total=total, desc=name, leave=False, bar_format=form, disable=not (wanted and terminal)) as bar:
        if terminal or not wanted:
            yield bar.update
        else:
            with _lines(name, total) as count:
                yield count


@contextmanager
def _lines(name: str, total: int | None) -> Iterator[Callable[[int], object]]:
    done, start, ended = [0], time.monotonic(), threading.Event()

    def tell() -> None:
        global _told
        while not ended.wait(max(PAUSE / 60, _told + PAUSE - time.monotonic())):
            _told = time.monotonic()
            logger.info(f"{name}{f': {done[0]} of {total}' if total else ''}, for {_told - start:.0f} s.")

    def count(more: int) -> None:
        done[0] += more

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield count
    finally:
        ended.set()
        thread.join()
