"""The figures of the experiments, by matplotlib."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .comparison import HEADINGS, compare
from .files import whole_file
from .tables import METRICS


def save(figure: Figure, path: str | os.PathLike) -> None:
    """Writes `path.png` and `path.svg`."""
    FigureCanvasAgg(figure)
    for ending in ("png", "svg"):
        with whole_file(f"{path}.{ending}") as partial:
            figure.savefig(partial, dpi=120)


def curves(
    rows: pd.DataFrame, x: str, columns: Sequence[str], lines: str | None = None, labels: Sequence[str] | None = None
) -> Figure:
    """A panel for each metric: its mean against a column of the rows; bars are the SD over seeds, where there are some.

    Args:
        rows: of an experiment.
        x: column along the horizontal axis; numbers, or names, which stand side by side.
        columns: metrics; those that the rows do not have are left out.
        lines: column of which each value has a line of its own; null for one line.
        labels: rows that are shown; null for all.
    """
    rows = rows if labels is None else rows[rows["label"].isin(labels)]
    rows = rows[rows[x].notna()]
    columns = [name for name in columns if name in rows and rows[name].notna().any()]
    by = [x] if lines is None else [lines, x]
    summary = compare(rows, by, columns)
    figure = Figure(figsize=(4.2 * len(columns), 3.6), layout="constrained")
    for name, panel in zip(columns, figure.subplots(1, len(columns), squeeze=False)[0]):
        for value, part in [("", summary)] if lines is None else summary.groupby(level=lines, sort=False):
            points = part[name].reset_index(x)
            at = points[x] if pd.api.types.is_numeric_dtype(points[x]) else points[x].astype(str)
            panel.errorbar(
                at,
                points["mean"],
                points["seeds"].fillna(0),
                fmt="o-",
                ms=4,
                capsize=3,
                label=f"{value:g}" if isinstance(value, float) else value,
            )
        panel.set(title=METRICS.get(name, (name,))[0], xlabel=HEADINGS.get(x, x))
        if not pd.api.types.is_numeric_dtype(rows[x]):
            panel.tick_params("x", rotation=30)
    if lines is not None:
        panel.legend(title=HEADINGS.get(lines, lines), fontsize=8)
    return figure
