"""The tables of the paired evaluation: a row for each case, mean and spread for each group of cases."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import logger
from ..files import whole_file
from ..stack.acquisition import Acquisition

EN_DASH = "\N{EN DASH}"  # where a table has no number

# column -> its heading and printed decimals
METRICS = {
    "psnr": ("PSNR (dB)", 2),
    "psnr_head": ("PSNR in head (dB)", 2),
    "ssim": ("SSIM", 4),
    "hf_psnr": ("HF-PSNR (dB)", 2),
    "grad_rmse": ("Grad-RMSE", 4),
    "power_low": ("power 1/2T to 1/T (dB)", 1),
    "power_middle": ("power 1/T to half Nyquist (dB)", 1),
    "power_high": ("power half Nyquist to Nyquist (dB)", 1),
    "psnr_denoised": ("PSNR in head, truth denoised (dB)", 2),
    "step_ratio": ("step ratio", 2),
    "streak": ("streak", 2),
    "streak_steps": ("steps within slices (% of the range)", 2),
    "lesions": ("lesion contrast kept", 2),
    "small_lesions": ("of small lesions", 2),
    **{f"coverage_{level}": (f"coverage at {level} %", 3) for level in (50, 70, 90, 95, 99)},
    "lesion_coverage": ("coverage at 90 % in lesions", 3),
    "error_width": ("width over constant", 2),
    "error_rank": ("rank correlation with error", 2),
    "sharpness": ("sharpness", 3),
    "st_lpips": ("ST-LPIPS", 4),
    "lpips": ("LPIPS", 4),
    "brisque": ("BRISQUE", 1),
    "niqe": ("NIQE", 2),
    "dice": ("Dice", 3),
    "weave": ("weave over the truth's", 2),
    "turn_error": ("error of the turn (degrees)", 3),
    "shift_error": ("error of the place (mm)", 3),
    "seconds": ("seconds", 1),
    "minutes": ("training (CPU min)", 1),  # this one and the next two: of variants alone, in experiments
    "parameters": ("parameters (M)", 2),
    "multiply_adds": ("multiply-adds per voxel (M)", 2),
}
CASE = {  # columns that tell rows apart -> their headings
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


def case_of(item: Mapping, acquisition: Acquisition) -> dict[str, Any]:
    """The columns of `CASE` for a volume, an item of `datasets.sharp_volumes`, and for its slices."""
    return {
        "volume": Path(item["label"]).name,
        "subject": item["subject"],
        "contrast": item["contrast"],
        "slice_axis": acquisition.slice_axis,
        "slice_thickness": acquisition.slice_thickness,
        "slice_spacing": acquisition.slice_spacing,
        "target_thickness": acquisition.target_spacing,
    }


def measured(table: pd.DataFrame) -> list[str]:
    """Columns of `METRICS` that a table has: not every evaluation measures all."""
    return [column for column in METRICS if column in table]


def group_means(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation of each metric, for each thickness, contrast and method, in order of appearance.

    Returns:
        Indexed by `GROUP`; columns are pairs of a metric and a statistic. `mean`; `sd`, the sample's, with `n - 1` in
        the denominator, NaN for one row; `n`, the rows that have the metric. A band can be empty on one grid and not on
        another; every row has a PSNR.
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
    """A table of heading -> column, without the columns that hold no number at all.

    Own code, for pandas' `to_markdown` needs the package tabulate.
    """
    columns = {heading: texts for heading, texts in table.items() if any(text != EN_DASH for text in texts)}
    lines = [columns, ["---"] * len(columns), *zip(*columns.values())]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def means_table(means: pd.DataFrame) -> str:
    """Mean ± standard deviation as a Markdown table; an en dash where there is no number."""
    groups, count = means.index.to_frame(), means["psnr"]["n"]
    table = {
        CASE[part]: [f"{value:g}" if isinstance(value, float) else value for value in groups[part]] for part in GROUP
    }
    table["N"] = [str(n) for n in count]
    for column in measured(means):
        heading, decimals = METRICS[column]
        lines = zip(*(means[column][statistic] for statistic in ("mean", "sd", "n")), count)
        table[heading] = [_mean_sd(mean, sd, n, decimals, of) for mean, sd, n, of in lines]
    return markdown(table)


def _case_table(rows: pd.DataFrame) -> str:
    def text(value: object) -> str:
        return EN_DASH if pd.isna(value) else f"{value:.4g}" if isinstance(value, float) else str(value)

    table = {heading: [text(value) for value in rows[part]] for part, heading in CASE.items() if part != "subject"}
    for column in measured(rows):
        heading, decimals = METRICS[column]
        table[heading] = [_number(value, decimals) for value in rows[column]]
    return markdown(table)


def _csv(rows: pd.DataFrame, means: pd.DataFrame) -> str:
    """A line for each case, and a mean and an SD for each group; `statistic` tells them apart."""
    statistics = means.drop(columns="n", level=1).stack(level=1, future_stack=True)
    statistics = statistics.rename_axis([*GROUP, "statistic"]).reset_index()
    statistics["n"] = np.repeat(means["psnr"]["n"].to_numpy(), 2)
    lines = pd.concat([rows.assign(statistic="value", n=1), statistics])
    return lines.to_csv(columns=["statistic", "n", *CASE, *measured(rows)], index=False, lineterminator="\n")


def _json(options: Mapping, rows: pd.DataFrame, means: pd.DataFrame) -> str:
    """`options`, `rows` and `means`; null for NaN and infinity, which JSON cannot say."""
    groups = pd.DataFrame({name: means[name].to_dict("records") for name in measured(means)}, index=means.index)
    groups.insert(0, "n", means["psnr"]["n"])
    content = {
        "options": options,
        "rows": rows.to_dict("records"),
        "means": groups.reset_index().to_dict("records"),
    }
    return pd.Series(content).to_json(indent=1, double_precision=15) + "\n"


def write_tables(output_dir: str | os.PathLike, options: Mapping, rows: Sequence[Mapping]) -> pd.DataFrame:
    """Writes `evaluation.csv`, `evaluation.json` and `evaluation.md`: options, cases, and mean ± SD.

    The options say how the evaluation and its methods are set. Returns the rows, of `CASE` and `METRICS`, as
    a table.
    """
    table = pd.DataFrame(rows).astype({"slice_axis": "Int64", "steps": "Int64"})
    means = group_means(table)
    about = "\n".join(f"- {name}: {value}" for name, value in options.items())
    page = (
        f"# Paired evaluation\n\n{about}\n\n## Mean ± SD\n\n{means_table(means)}\n"
        f"N counts pairs of a volume and a slice axis. {EN_DASH}: no such frequency on the grid, or one pair alone.\n\n"
        f"## Each volume\n\n{_case_table(table)}"
    )
    tables = {"csv": _csv(table, means), "json": _json(options, table, means), "md": page}
    for ending, text in tables.items():
        with whole_file(Path(output_dir) / f"evaluation.{ending}") as partial:
            partial.write_text(text, encoding="utf-8")
    return table


def log_means(output_dir: str | os.PathLike, table: pd.DataFrame) -> None:
    """Logs where the tables of `write_tables` lie, and the means."""
    logger.info(f"wrote {Path(output_dir) / 'evaluation'}.csv, .json and .md\n{means_table(group_means(table))}")
