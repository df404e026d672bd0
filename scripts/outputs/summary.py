"""`summary.csv`: a row for each scan of this and earlier runs.

Its paths are relative to its folder, so that results may be moved, and passed on, with their sources.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ..errors import InputError
from ..files import check_ours, whole_file
from ..pages.index import without_folders, write_index
from .lock import alone

COLUMNS = (
    "input result outcome slice_axis slice_thickness slice_spacing target_thickness steps seconds agreement "
    "step_ratio streak streak_steps noise gain error_bar guide warnings"
).split()


def read_rows(path: Path) -> list[dict]:
    """Rows of earlier runs: column -> text; none if there is no file yet. A file of another program is refused."""
    if not path.exists():
        return []
    try:  # names need not be UTF-8
        table = pd.read_csv(path, dtype=object, keep_default_na=False, encoding_errors="surrogateescape")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}). Move it, or choose another output_dir.") from error
    check_ours(path, list(table) == COLUMNS)
    return table.to_dict("records")


def _names(row: Mapping) -> set[str]:
    """Input and result of a row."""
    return {row[column] for column in ("input", "result") if row.get(column)}


def _from(folder: Path, row: Mapping) -> dict:
    """A row whose paths lead from a folder, and whose warnings name files without their folders.

    A DICOM series keeps its name. The paths of several stacks stand in one text.
    """
    moved, folders = dict(row), list[str]()
    for column in ("input", "result", "guide"):
        for path in (row.get(column) or "").split(" + "):
            folders.append(os.path.dirname(path))
            if os.path.isabs(path) or os.path.exists(path):
                moved[column] = moved[column].replace(path, Path(os.path.relpath(path, folder)).as_posix())
    return {**moved, "warnings": without_folders(str(row.get("warnings") or ""), [*folders, str(folder.absolute())])}


def add_rows(path: Path, rows: Sequence[Mapping], index: bool) -> None:
    """Writes rows below those of earlier runs, and with `index` the page `index.html` beside the file.

    An earlier row of the same input or result is replaced. But a scan that is skipped this time keeps the row of its
    result.
    """
    with alone(path):
        earlier, rows = read_rows(path), [_from(path.parent, row) for row in rows]
        has_result = set().union(*(_names(row) for row in earlier if row["result"]))
        rows = [row for row in rows if row["outcome"] != "skipped" or not has_result & _names(row)]
        new = set().union(*map(_names, rows))
        earlier = [row for row in earlier if not new & _names(row)]
        table = pd.DataFrame([*earlier, *rows], columns=COLUMNS, dtype=object)
        with whole_file(path) as partial:
            table.to_csv(partial, index=False, errors="surrogateescape")
        if index:
            write_index(path.parent, [*earlier, *rows])
