"""The tables of the paired evaluation: one row for each case, mean and spread for each group of cases."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ..files import whole_file

EN_DASH = "\N{EN DASH}"  # where a table has no number

# key of a metric -> its heading and printed decimals
METRICS = {
    "psnr": ("PSNR (dB)", 2),
    "psnr_head": ("PSNR in head (dB)", 2),
    "ssim": ("SSIM", 4),
    "hf_psnr": ("HF-PSNR (dB)", 2),
    "grad_rmse": ("Grad-RMSE", 4),
    "power_low": ("power 1/2T to 1/T (dB)", 1),
    "power_middle": ("power 1/T to half Nyquist (dB)", 1),
    "power_high": ("power half Nyquist to Nyquist (dB)", 1),
    "step_ratio": ("step ratio", 2),
    "lesions": ("lesion contrast kept", 2),
    "small_lesions": ("of small lesions", 2),
    "sharpness": ("sharpness", 3),
    "st_lpips": ("ST-LPIPS", 4),
    "lpips": ("LPIPS", 4),
    "brisque": ("BRISQUE", 1),
    "niqe": ("NIQE", 2),
    "dice": ("Dice", 3),
    "seconds": ("seconds", 1),
    "minutes": ("training (min)", 1),  # these three of variants alone, in experiments
    "parameters": ("parameters (M)", 2),
    "multiply_adds": ("multiply-adds per voxel (M)", 2),
}
CASE = {  # what a row is about -> its heading
    "volume": "volume",
    "subject": "subject",
    "contrast": "contrast",
    "slice_axis": "axis",
    "slice_thickness": "T (mm)",
    "slice_spacing": "spacing (mm)",
    "target_thickness": "target (mm)",
    "method": "method",
    "steps": "steps",
}
GROUP = ["slice_thickness", "slice_spacing", "contrast", "method"]


def measured(table: pd.DataFrame) -> list[str]:
    """Keys of `METRICS` that rows or their summary hold: not every evaluation measures all."""
    return [key for key in METRICS if key in table]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation of each metric, for each thickness, contrast and method, in order of appearance.

    Args:
        rows: what `evaluate` returns.

    Returns:
        Indexed by `GROUP`; columns are pairs of a metric and `mean`, `sd` (the sample's, with `n - 1` in the
        denominator; NaN for one row) or `n`, which counts the rows where the metric exists (a band can be empty on one
        grid and not on another). A PSNR always exists.
    """
    statistics = rows.groupby(GROUP, sort=False)[measured(rows)].agg(["mean", "std", "count"])
    return statistics.rename(columns={"std": "sd", "count": "n"}, level=1)


def _number(value: float, decimals: int) -> str:
    return EN_DASH if math.isnan(value) else f"{value:.{decimals}f}"


def _mean_sd(mean: float, sd: float, n: int, decimals: int, of: int) -> str:
    if not n:
        return EN_DASH
    text = f"{_number(mean, decimals)} ± {_number(sd, decimals)}"
    return text if n == of else f"{text} (N = {n})"


def markdown(table: Mapping[str, Sequence[str]]) -> str:
    """A table of heading -> column, without the columns that hold no number at all."""
    columns = {heading: texts for heading, texts in table.items() if any(text != EN_DASH for text in texts)}
    lines = [columns, ["---"] * len(columns), *zip(*columns.values())]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def summary_table(summary: pd.DataFrame) -> str:
    """Mean ± standard deviation as a Markdown table; an en dash where there is no number."""
    keys, count = summary.index.to_frame(), summary["psnr"]["n"]
    table = {CASE[key]: [f"{value:g}" if isinstance(value, float) else value for value in keys[key]] for key in GROUP}
    table["N"] = [str(n) for n in count]
    for key in measured(summary):
        heading, decimals = METRICS[key]
        lines = zip(*(summary[key][statistic] for statistic in ("mean", "sd", "n")), count)
        table[heading] = [_mean_sd(mean, sd, n, decimals, of) for mean, sd, n, of in lines]
    return markdown(table)


def _case_table(rows: pd.DataFrame) -> str:
    def text(value: object) -> str:
        return EN_DASH if pd.isna(value) else f"{value:.4g}" if isinstance(value, float) else str(value)

    table = {heading: [text(value) for value in rows[key]] for key, heading in CASE.items() if key != "subject"}
    for key in measured(rows):
        heading, decimals = METRICS[key]
        table[heading] = [_number(value, decimals) for value in rows[key]]
    return markdown(table)


def _csv(rows: pd.DataFrame, summary: pd.DataFrame) -> str:
    """One line for each case and, told apart by `statistic`, a mean and an SD for each group."""
    statistics = summary.drop(columns="n", level=1).stack(level=1, future_stack=True)
    statistics = statistics.rename_axis([*GROUP, "statistic"]).reset_index()
    statistics["n"] = np.repeat(summary["psnr"]["n"].to_numpy(), 2)
    lines = pd.concat([rows.assign(statistic="value", n=1), statistics])
    return lines.to_csv(columns=["statistic", "n", *CASE, *measured(rows)], index=False, lineterminator="\n")


def _json(settings: Mapping, rows: pd.DataFrame, summary: pd.DataFrame) -> str:
    """`settings`, `rows` and `summary`; null for NaN and infinity, which JSON cannot say."""
    groups = pd.DataFrame({key: summary[key].to_dict("records") for key in measured(summary)}, index=summary.index)
    groups.insert(0, "n", summary["psnr"]["n"])
    content = {
        "settings": settings,
        "rows": rows.to_dict("records"),
        "summary": groups.reset_index().to_dict("records"),
    }
    return pd.Series(content).to_json(indent=1, double_precision=15) + "\n"


def write_tables(output_dir: str | os.PathLike, settings: Mapping, rows: pd.DataFrame) -> None:
    """Writes `evaluation.csv`, `evaluation.json` and `evaluation.md`: settings, cases, and mean ± SD.

    Args:
        output_dir: folder, made if missing.
        settings: of the evaluation.
        rows: what `evaluate` returns.
    """
    summary = summarise(rows)
    about = "\n".join(f"- {key}: {value}" for key, value in settings.items())
    markdown = (
        f"# Paired evaluation\n\n{about}\n\n## Mean ± SD\n\n{summary_table(summary)}\n"
        f"N counts pairs of a volume and a slice axis. {EN_DASH}: no such frequency on the grid, or one pair alone.\n\n"
        f"## Each volume\n\n{_case_table(rows)}"
    )
    tables = {"csv": _csv(rows, summary), "json": _json(settings, rows, summary), "md": markdown}
    for ending, text in tables.items():
        with whole_file(Path(output_dir) / f"evaluation.{ending}") as partial:
            partial.write_text(text, encoding="utf-8")
