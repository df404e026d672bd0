"""What an experiment's rows say: means, their spread over volumes and seeds, and differences within pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from .errors import InputError
from .tables import CASE, METRICS, markdown

PAIR = ["volume", "slice_axis"]  # one of these under two labels makes a pair
HEADINGS = {**CASE, "label": "variant", "value": "value"}


def compare(
    rows: pd.DataFrame, by: Sequence[str] = ("label",), columns: Sequence[str] = ("psnr_head",), against: str | None = None
) -> pd.DataFrame:
    """Means of an experiment, over what the table does not tell apart.

    Args:
        rows: of `evaluation.evaluate`, with `label`, which variant or method, and `seed`.
        by: what the table tells apart.
        columns: metrics; those that the rows do not have are left out.
        against: label that the others are compared with, pair by pair; null for none.

    Returns:
        A row for each group in order of appearance, columns are pairs of a metric and: `mean`; `sd`, over volumes;
        `seeds`, SD over seeds of the mean; `n`, number of volumes (and axes); `difference` from `against` with its `difference_sd`
        over volumes and `difference_seeds` over seeds. NaN where there is but one.

    Raises:
        InputError: if no row has the label to compare with.
    """
    by, columns = list(by), [name for name in columns if name in rows and rows[name].notna().any()]
    if against is not None and against not in set(rows["label"]):
        raise InputError(f"nothing is called {against!r}: expected one of {sorted(set(rows['label']))}. Mend the table.")
    cases = rows.groupby([*by, "seed", *PAIR], sort=False)[columns].mean()
    parts = {"": cases}
    if against is not None:
        others = [level for level in cases.index.names if level != "label"]
        reference = cases.xs(against, level="label")
        if reference.index.get_level_values("seed").nunique() == 1:  # one result, the same for all seeds
            others.remove("seed")
            reference = reference.droplevel("seed")
        keys = cases.reset_index()[others]
        paired = reference.reindex(pd.MultiIndex.from_frame(keys) if len(others) > 1 else keys[others[0]])
        parts["difference"] = cases - paired.to_numpy()
    summary = {}
    order = rows.groupby(by, sort=False).size().index
    for part, values in parts.items():
        volumes = values.groupby([*by, *PAIR], sort=False).mean().groupby(by, sort=False)
        seeds = values.groupby([*by, "seed"], sort=False).mean().groupby(by, sort=False)
        statistics = {"": volumes.mean(), "sd": volumes.std(), "seeds": seeds.std()}
        if not part:
            statistics["n"] = volumes.count()
        for statistic, table in statistics.items():
            for name in columns:
                summary[name, "_".join(filter(None, (part, statistic))) or "mean"] = table[name].reindex(order)
    return pd.DataFrame(summary)[columns]


def comparison_table(summary: pd.DataFrame, headings: Mapping[str, str] | None = None) -> str:
    """Markdown of `compare`: mean ± SD over volumes, and below it the difference ± SD over volumes (± SD over seeds)."""
    keys = summary.index.to_frame(index=False)
    names = {**HEADINGS, **(headings or {})}
    table = {names.get(key, key): [_text(value) for value in keys[key]] for key in keys}
    for name in summary.columns.get_level_values(0).unique():
        heading, decimals = METRICS.get(name, (name, 3))
        part = summary[name]
        table[heading] = [_spread(m, sd, decimals) for m, sd in zip(part["mean"], part["sd"])]
        if part["seeds"].notna().any():
            table[f"{heading}, SD of seeds"] = [_spread(sd, math.nan, decimals + 1) for sd in part["seeds"]]
        if "difference" in part:
            table[f"{heading}, difference"] = [
                _spread(m, sd, decimals + 1, "+") for m, sd in zip(part["difference"], part["difference_sd"])
            ]
        if "difference_seeds" in part and part["difference_seeds"].notna().any():
            table[f"{heading}, difference, SD of seeds"] = [
                _spread(sd, math.nan, decimals + 1) for sd in part["difference_seeds"]
            ]
    first = summary.columns.get_level_values(0)[0]
    table["N"] = [_text(n) for n in summary[first]["n"]]
    return markdown(table)


def plain_table(table: pd.DataFrame) -> str:
    """Markdown of a table of numbers and texts."""
    return markdown({str(name): [_text(value) for value in table[name]] for name in table})


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _spread(mean: float, sd: float, decimals: int, sign: str = "") -> str:
    if math.isnan(mean):
        return "\N{EN DASH}"
    text = f"{mean:{sign}.{decimals}f}"
    return text if math.isnan(sd) else f"{text} ± {sd:.{decimals}f}"
