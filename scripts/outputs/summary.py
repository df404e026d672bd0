"""`summary.csv`: a row for each scan of this and earlier runs."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import InputError
from ..files import whole_file
from ..pages.index import write_index
from .lock import alone

COLUMNS = (
    "input result outcome slice_axis slice_thickness slice_spacing target_thickness steps seconds consistency "
    "step_ratio warnings"
).split()


def read_rows(path: Path) -> list[dict]:
    """Rows of earlier runs.

    Raises:
        InputError: if the file is another program's, or cannot be read.
    """
    if not path.exists():
        return []
    try:
        with open(path, newline="", encoding="utf-8", errors="surrogateescape") as file:  # names need not be UTF-8
            reader = csv.DictReader(file)
            rows = list(reader)
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{path} cannot be read ({error}). Move it, or choose another output_dir.") from error
    earlier = [name for name in COLUMNS if name != "step_ratio"]  # 0.5
    if reader.fieldnames not in (None, COLUMNS, earlier):
        raise InputError(f"{path} is none that DRIFT wrote, and would be lost. Move it, or choose another output_dir.")
    return rows


def _names(row: Mapping) -> set[str]:
    """Input and result of a row, as they are spelt and as paths."""
    names = {row[column] for column in ("input", "result") if row.get(column)}
    return names | {os.path.abspath(name) for name in names}


def add_rows(path: Path, rows: Sequence[Mapping], index: bool) -> None:
    """Writes the rows, and the index if asked, below those of earlier runs, unless input or result is the same."""
    with alone(path):
        new = set().union(*map(_names, rows))
        earlier = [row for row in read_rows(path) if not new & _names(row)]
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*earlier, *rows])
        with whole_file(path) as partial:
            partial.write_text(text.getvalue(), encoding="utf-8", errors="surrogateescape")
        if index:
            write_index(path.parent, [*earlier, *rows])
