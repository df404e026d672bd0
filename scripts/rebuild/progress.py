"""Where a long rebuild is: a bar in a terminal, a line a minute in a file or a log.

A scan is rebuilt in passes, such as a draft that motion is looked for in. Each has the same parts.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

from ..errors import logger

PAUSE = 60.0  # seconds between two lines, whatever the parts
watchers: list[Callable[[str, float], object]] = []  # hosts: get a part's name, and the share of it that is done
_told = time.monotonic()  # when the last line was written
_passes: list[str] = []  # that are at work, one within the other


@contextmanager
def passing(name: str) -> Iterator[None]:
    """A pass, while the block runs: its name stands before those of its parts."""
    _passes.append(name)
    try:
        yield
    finally:
        _passes.pop()


@contextmanager
def part(name: str, total: int | None = None, wanted: bool = True) -> Iterator[Callable[[int], object]]:
    """A part of a rebuild, while the block runs: yields a function that takes the newly done amount of the total."""
    terminal, start, done = sys.stderr.isatty(), time.monotonic(), 0
    name, form = ", ".join([*_passes, name]), None if total else "{desc}: {elapsed}"

    def watched() -> None:
        for one in watchers:
            one(name, done / total if total else 0.0)

    watched()
    with tqdm(total=total, desc=name, leave=False, bar_format=form, disable=not (wanted and terminal)) as bar:

        def count(more: int) -> None:
            global _told
            nonlocal done
            bar.update(more)
            done += more
            watched()
            if wanted and not terminal and (now := time.monotonic()) >= _told + PAUSE:
                _told = now
                logger.info(f"{name}: {done} of {total}, for {now - start:.0f} s.")

        yield count
