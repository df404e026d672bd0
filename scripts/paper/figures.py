"""The figures of the experiments, by matplotlib."""

import os
from collections.abc import Sequence
from itertools import cycle
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..evaluate.tables import METRICS
from ..files import whole_file
from .comparison import HEADINGS, PAIR, compare


def save(figure: Figure, path: str | os.PathLike) -> None:
    """Writes `path.png` and `path.svg`."""
    FigureCanvasAgg(figure)
    for ending in ("png", "svg"):
        with whole_file(f"{path}.{ending}") as partial:
            figure.savefig(partial, dpi=120)


def _shown(
    rows: pd.DataFrame, x: str, columns: Sequence[str], labels: Sequence[str] | None
) -> tuple[pd.DataFrame, list]:
    """The rows with a value of `x`, and those of the metrics that they have."""
    rows = rows if labels is None else rows[rows["label"].isin(labels)]
    return rows[rows[x].notna()], [name for name in columns if name in rows and rows[name].notna().any()]


def _name(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _draw(panels: Sequence[Axes], rows: pd.DataFrame, x: str, columns: Sequence[str], lines: str | None) -> None:
    """Draws one metric on each panel: means, and bars of the SD over seeds."""
    summary = compare(rows, [x] if lines is None else [lines, x], columns)
    for name, panel in zip(columns, panels):
        for value, part in [("", summary)] if lines is None else summary.groupby(level=lines, sort=False):
            points = part[name].reset_index(x)
            numbers = pd.api.types.is_numeric_dtype(points[x])  # names have no order: no line joins them
            at, fmt = (points[x], "o-") if numbers else ([fill(str(name), 18) for name in points[x]], "o")
            bars = points["seeds"].fillna(0)
            panel.errorbar(at, points["mean"], bars, fmt=fmt, ms=4, capsize=3, label=_name(value) if lines else None)
        panel.set(title=METRICS.get(name, (name,))[0], xlabel=HEADINGS.get(x, x))
        if not pd.api.types.is_numeric_dtype(rows[x]):
            panel.tick_params("x", rotation=90)
    if lines is not None:
        panels[-1].legend(title=HEADINGS.get(lines, lines), fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def curves(
    rows: pd.DataFrame,
    x: str,
    columns: Sequence[str],
    lines: str | None = None,
    labels: Sequence[str] | None = None,
) -> Figure:
    """A panel for each metric: its mean against a column of the rows. Bars are the SD over seeds.

    Args:
        rows: of an experiment.
        x: column along the horizontal axis. It holds numbers, or names; names stand side by side.
        columns: metrics. Those that the rows do not have are left out.
        lines: each value of this column has its own line; null for one line.
        labels: of the rows that are shown; null for all.
    """
    rows, columns = _shown(rows, x, columns, labels)
    height = 4 if pd.api.types.is_numeric_dtype(rows[x]) else 5
    figure = Figure(figsize=(4.2 * len(columns), height), layout="constrained")
    _draw(figure.subplots(1, len(columns), squeeze=False)[0], rows, x, columns, lines)
    return figure


def densities(rows: pd.DataFrame, columns: Sequence[str]) -> Figure:
    """The densities of the training times, `alpha |2t - 1|^(alpha - 1)`, and the metrics against alpha (Sec. S8).

    Args:
        rows: of an experiment. Their `value` is `alpha`.
        columns: see `curves`.
    """
    rows, columns = _shown(rows, "value", columns, None)
    figure = Figure(figsize=(4.2 * (1 + len(columns)), 4), layout="constrained")
    first, *panels = figure.subplots(1, 1 + len(columns))
    t = np.linspace(0, 1, 201)
    for alpha in sorted(rows["value"].unique()):
        first.plot(t, alpha * np.abs(2 * t - 1) ** (alpha - 1), label=f"{alpha:g}")
    first.set(title="density of the times", xlabel="t")
    first.legend(title="alpha", fontsize=8)
    _draw(panels, rows, "value", columns, "slice_thickness")
    for panel in panels:
        panel.set_xlabel("alpha")
    return figure


def scatter(
    rows: pd.DataFrame,
    x: str | Sequence[str],
    y: str,
    labels: Sequence[str] | None = None,
    joined: Sequence[str] | None = None,
    thicknesses: Sequence[float] | None = None,
) -> Figure:
    """The mean of one column against the mean of others: a marker for each label, a line for each thickness.

    Args:
        rows: of an experiment.
        x: column, or a column for each panel.
        y: column, on a logarithmic axis. Rows without it show the PSNR in the head, or SSIM against that, on a linear
            axis.
        labels: of the rows that are shown; null for all.
        joined: labels that the line joins, in this order; null for all, in the order of `x`.
        thicknesses: of the slices that are shown, mm; null for all.
    """
    columns = [x] if isinstance(x, str) else list(x)
    rows, found = _shown(rows, columns[0], [y], labels)
    rows = rows if thicknesses is None else rows[rows["slice_thickness"].isin(thicknesses)]
    figure = Figure(figsize=(2 + 5 * len(columns), 4.5), layout="constrained")
    markers = dict(zip(rows["label"].unique(), cycle("os^vD<>pPXh*8d")))
    for name, panel in zip(columns, figure.subplots(1, len(columns), squeeze=False)[0]):
        up = found[0] if found else "ssim" if name == "psnr_head" else "psnr_head"
        means = rows.groupby(["slice_thickness", "label"], sort=False)[[name, up]].mean()
        for thickness, part in means.groupby(level=0):
            part = part.droplevel(0).sort_values(name)
            path = part if joined is None else part.reindex(joined)
            (line,) = panel.plot(path[name], path[up], lw=1, label=f"{thickness:g} mm")
            for label, place in zip(part.index, part.to_numpy()):
                panel.plot(*place, markers[label], color=line.get_color(), ms=5)
        for label, marker in markers.items():
            panel.plot([], [], marker, color="grey", ms=5, label=label)
        panel.set(xlabel=METRICS.get(name, (HEADINGS.get(name, name),))[0], ylabel=METRICS.get(up, (up,))[0])
        panel.set_yscale("log" if found else "linear")
    figure.legend(*panel.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure


def difficulty(rows: pd.DataFrame, label: str = "N = 8", column: str = "hf_psnr") -> Figure:
    """A metric against PAD, a line for each volume (Sec. S10).

    Args:
        rows: of a sweep.
        label: of the rows that are shown.
        column: metric.
    """
    rows = rows[rows["label"] == label]
    figure = Figure(figsize=(5, 4), layout="constrained")
    panel = figure.subplots()
    for _, part in rows.groupby(PAIR, sort=False):
        panel.plot(1 - part["target_thickness"] / part["slice_thickness"], part[column], "o-", ms=4)
    panel.set(xlabel="PAD", ylabel=METRICS[column][0], title=label)
    return figure
