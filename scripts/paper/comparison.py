"""The tables of an experiment: means, their spread over volumes and seeds, and differences within pairs."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from ..errors import InputError
from ..evaluate.tables import CASE, EN_DASH, METRICS, markdown

PAIR = ["subject", "volume", "slice_axis"]  # two rows that agree in these make a pair
OF_LABEL = ("label", "value", "coverage", "sees")  # columns of the label: all of its rows agree in them
COSTS = ("seconds", "minutes", "parameters", "multiply_adds")  # no quality: their differences stay out of the tables
HEADINGS = {**CASE, "label": "variant", "value": "weight"}


def compare(
    rows: pd.DataFrame,
    by: Sequence[str] = ("label",),
    columns: Sequence[str] = ("psnr_head",),
    against: str | Mapping[str, str] | None = None,
    labels: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Means of an experiment's rows, a row for each group.

    Args:
        rows: of `paired.evaluate`. `label` names the variant or method, `seed` its training.
        by: columns that make the groups.
        columns: metrics. Those that the rows do not have are left out.
        against: with which label the others are compared, pair by pair. A mapping compares only its keys, each with
            its value. Null compares none.
        labels: of the rows that count; null for all.

    Returns:
        Groups are in order of appearance. Columns are pairs of a metric and one of these:

        - `mean`; `sd`, over volumes; `seeds`, the SD over seeds of the mean; `n`, number of volumes and slice axes;
          `trainings`, number of seeds.
        - `difference` from `against`, the mean over people, each counted once; `difference_low` and `difference_high`,
          the ends of its 95 % interval over people and seeds. With one seed on both sides it is over people alone,
          with one person over seeds alone, with one each it is NaN.

    Raises:
        InputError: if no row has the label to compare with.
    """
    rows = rows if labels is None else rows[rows["label"].isin(labels)]
    by, columns = list(by), [name for name in columns if name in rows and rows[name].notna().any()]
    known = list(rows["label"].unique())
    if isinstance(against, str):
        against = {name: against for name in known if name != against} or {against: against}
    references = dict(against or {})
    for name in {*references, *references.values()}:
        if name not in known:
            raise InputError(f"nothing is called {name!r}: expected one of {sorted(known)}. Mend the table.")
    cases = rows.groupby([*by, "seed", *PAIR], sort=False)[columns].mean()
    parts = {"": cases}
    if references:
        label = cases.index.get_level_values("label")
        differences = [
            _less(cases[label == name], cases.xs(other, level="label")) for name, other in references.items()
        ]
        parts["difference"] = pd.concat(differences)
    order, summary = rows.groupby(by, sort=False).size().index, {}
    for part, values in parts.items():
        if part:
            values = values.groupby([*by, "seed", "subject"], sort=False).mean()
            sources = [
                values.groupby([*by, of], sort=False).mean().groupby(by, sort=False) for of in ("subject", "seed")
            ]
            mean, half = sources[0].mean(), _half_width(sources)
            statistics = {"": mean, "low": mean - half, "high": mean + half}
        else:
            volumes = values.groupby([*by, *PAIR], sort=False).mean().groupby(by, sort=False)
            seeds = values.groupby([*by, "seed"], sort=False).mean().groupby(by, sort=False)
            statistics = {"": volumes.mean(), "sd": volumes.std(), "seeds": seeds.std(), "n": volumes.count()}
            statistics["trainings"] = seeds.count()
        for statistic, table in statistics.items():
            for name in columns:
                summary[name, f"{part}_{statistic}".strip("_") or "mean"] = table[name].reindex(order)
    return pd.DataFrame(summary)[columns]


def _half_width(sources: Sequence[pd.api.typing.DataFrameGroupBy]) -> pd.DataFrame:
    """The half-width of the 95 % interval of a mean that varies by several sources, each with the means of its levels.

    The variances add; the degrees of freedom are Satterthwaite's. A source of one level tells nothing.
    """
    freedom = [groups.count() - 1.0 for groups in sources]
    variances = [groups.var() / groups.count() for groups in sources]
    whole = sum(variance.fillna(0) for variance in variances)
    shares = sum((variance**2 / n).fillna(0) for variance, n in zip(variances, freedom))
    return np.sqrt(whole) * stats.t.ppf(0.975, whole**2 / shares)


def _less(cases: pd.DataFrame, reference: pd.DataFrame) -> pd.DataFrame:
    """Cases of one label minus those of another, pair by pair; one result stands for all seeds of the other."""
    others = [level for level in cases.index.names if level not in OF_LABEL]
    reference = reference.droplevel([level for level in reference.index.names if level in OF_LABEL])
    first, second = (table.index.get_level_values("seed").unique() for table in (cases, reference))
    if len(first) == 1:
        alone = cases.droplevel("seed")
        cases = pd.concat({seed: alone for seed in second}, names=["seed"]).reorder_levels(cases.index.names)
    elif len(second) == 1:
        others.remove("seed")
        reference = reference.groupby(level=others).mean()
    keys = cases.reset_index()[others]
    return cases - reference.reindex(pd.MultiIndex.from_frame(keys) if len(others) > 1 else keys[others[0]]).to_numpy()


def comparison_table(summary: pd.DataFrame) -> str:
    """Markdown of `compare`: means ± SD over volumes [SD over seeds]. Below them: differences (95 % interval)."""
    parts = [""] + ["difference"] * ("difference" in summary.columns.get_level_values(1))
    return "\n".join(_table(summary, part) for part in parts)


def _table(summary: pd.DataFrame, part: str) -> str:
    summary = summary[summary.xs(part or "mean", axis=1, level=1).notna().any(axis=1)]
    keys = summary.index.to_frame(index=False)
    table = {HEADINGS.get(key, key): [_text(value) for value in keys[key]] for key in keys}
    for name in summary.columns.get_level_values(0).unique():
        if part and name in COSTS:
            continue
        heading, decimals = METRICS.get(name, (name, 3))
        if part:
            values = (summary[name, f"{part}{end}"] for end in ("", "_low", "_high"))
            table[f"{heading}, {part}"] = [_difference(*cell) for cell in zip(*values, [decimals + 1] * len(keys))]
        else:
            values = (summary[name, statistic] for statistic in ("mean", "sd", "seeds"))
            table[heading] = [_spread(*cell) for cell in zip(*values, [decimals] * len(keys))]
    counts = {"N": "n", "seeds": "trainings"}
    table |= {name: [str(n) for n in summary.xs(of, axis=1, level=1).max(axis=1)] for name, of in counts.items()}
    return markdown(table)


def plain_table(table: pd.DataFrame) -> str:
    """Markdown of a table of numbers and texts."""
    return markdown({METRICS.get(str(name), (str(name),))[0]: [_text(v) for v in table[name]] for name in table})


def _text(value: object) -> str:
    if isinstance(value, float):
        return EN_DASH if math.isnan(value) else f"{value:.4g}"
    return str(value)


def _spread(mean: float, sd: float, seeds: float, decimals: int) -> str:
    if math.isnan(mean):
        return EN_DASH
    text = f"{mean:.{decimals}f}" + (f" ± {sd:.{decimals}f}" if sd > 1e-9 else "")
    return text if math.isnan(seeds) else f"{text} [{seeds:.{decimals + 1}f}]"


def _difference(mean: float, low: float, high: float, decimals: int) -> str:
    if math.isnan(mean):
        return EN_DASH
    text = f"{mean:+.{decimals}f}"
    return text if math.isnan(low) else f"{text} ({low:+.{decimals}f} to {high:+.{decimals}f})"
