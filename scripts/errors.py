"""A user's mistake in one line, on any console."""

import io
import logging
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

SHOWN = 5  # names in a message
logger = logging.getLogger("drift")  # of all lines for people
INTERRUPTED = "interrupted: what is complete stays; the same command goes on from there."


def printable(text: str) -> str:
    r"""Text in which characters that terminals obey are escaped: file names may hold any.

    >>> printable("a\x1b[2Jb\n.nii")
    'a\\x1b[2Jb\\n.nii'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def few(names: Sequence[object]) -> str:
    """The first names, and how many more there are.

    >>> few("abcdefg"), few([])
    ('a, b, c, d, e and 2 more', 'none')
    """
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (", ".join(map(str, names[:SHOWN])) or "none") + more


class InputError(ValueError):
    """A mistake in the input. Its message has the given value, the allowed ones, and the way to mend it."""

    def __init__(self, message: str):
        super().__init__(printable(message))


class _Shown(logging.Filter):
    """Escapes the codes that terminals obey, and cuts the folder of `name_below` off the paths of a line."""

    begins = re.compile("(?!)")  # no folder yet

    def filter(self, record: logging.LogRecord) -> bool:
        lines = "\n".join(map(printable, record.getMessage().split("\n")))  # tables have lines
        record.msg, record.args = self.begins.sub("", lines), ()
        return True


_shown = _Shown()
logger.addFilter(_shown)


@contextmanager
def only(level: int) -> Iterator[None]:
    """Lines of this level of `logging` and above alone are logged meanwhile; other threads log as before."""
    own = threading.get_ident()

    def heard(line: logging.LogRecord) -> bool:
        return line.thread != own or line.levelno >= level

    logger.addFilter(heard)
    try:
        yield
    finally:
        logger.removeFilter(heard)


def name_below(sources: Sequence[str | os.PathLike]) -> None:
    """Names the folder of the input once in the log. From then on paths in its lines begin below that folder.

    A single file is named as it was given. The next call takes the place of this one.
    """
    _shown.begins = _Shown.begins
    folders = [path if path.is_dir() else path.parent for path in map(Path, map(str, sources))]
    several = len(folders) > 1 or Path(str(sources[0])) == folders[0]
    of_one_kind = len({folder.is_absolute() for folder in folders}) == 1
    folder = os.path.commonpath(folders) if several and of_one_kind else ""
    if folder not in ("", os.sep):
        logger.info(f"Scans are looked for in {folder}.")
        _shown.begins = re.compile(rf"(?<![^\s'\"(]){re.escape(printable(os.path.join(folder, '')))}(?=\S)")


def input_error(error: BaseException | None) -> InputError | None:
    """The `InputError` behind an exception, through the wrappers of transforms and configs; None if there is none."""
    while error is not None and not isinstance(error, InputError):
        error = error.__cause__ or error.__context__
    return error


@contextmanager
def mistakes_alone(said: Callable[[str], str] = str) -> Iterator[None]:
    """Raises the `InputError` behind an exception of the block in its place, in the words of `said`; others stay."""
    try:
        yield
    except Exception as error:
        mistake = input_error(error)
        if mistake is None:
            raise
        raise InputError(said(str(mistake))) from None


def flag(name: str, value: object) -> bool:
    """A switch as a config or, as text, the command line writes it: `True`, `true`, `False` or `false`."""
    text = str(value).lower()
    if text not in ("true", "false"):
        raise InputError(f"{name} is {value!r}: expected true or false. Set it as in --{name} true.")
    return text == "true"


def is_number(value: object, least: float = 0.0) -> bool:
    """Whether a value is a finite number, `least` or more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value < math.inf


def is_whole(value: object, least: int) -> bool:
    """Whether a value is a whole number, `least` or more."""
    return type(value) is int and value >= least


def report_input_errors() -> None:
    """From now on an `InputError` that ends the program prints its message alone, and Ctrl-C prints `INTERRUPTED`."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # standard error does so by itself
        sys.stdout.reconfigure(errors="backslashreplace")

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        mistake = input_error(error)
        if isinstance(error, KeyboardInterrupt):
            print(INTERRUPTED, file=sys.stderr)
            raise SystemExit(130)
        if mistake is None:
            sys.__excepthook__(kind, error, trace)
        else:
            print(f"error: {mistake}", file=sys.stderr)

    sys.excepthook = hook
