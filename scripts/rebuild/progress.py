"""Where a long rebuild is: a bar in a terminal, a line a minute in a file or a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

from ..errors import logger

PAUSE = 60.0  # seconds between two lines, whatever the parts
_told = time.monotonic()  # when the last line was written


@contextmanager
def part(name: str, total: int | None = None, wanted: bool = True) -> Iterator[Callable[[int], object]]:
    """A part of a rebuild, while the block runs: yields a function that takes the newly done amount of the total."""
    terminal, start, done = sys.stderr.isatty(), time.monotonic(), 0
    form = None if total else "{desc}: {elapsed}"
    with tqdm(total=total, desc=name, leave=False, bar_format=form, disable=not (wanted and terminal)) as bar:

        def count(more: int) -> None:
            global _told
            nonlocal done
            bar.update(more)
            done += more
            if wanted and not terminal and (now := time.monotonic()) >= _told + PAUSE:
                _told = now
                logger.info(f"{name}: {done} of {total}, for {now - start:.0f} s.")

        yield count
