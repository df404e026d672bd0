"""The tables of the evaluation: numpy's mean and spread, and three files that say the same."""

import csv
import json
import math

import numpy as np
import pandas as pd
import pytest

from scripts.evaluate.tables import CASE, GROUP, METRICS, group_means, means_table, write_tables

VALUES = {"A": [1.0, 2.0, 4.0], "B": [5.0]}  # by contrast


def row(contrast, value, **others):
    case = dict.fromkeys(CASE, "x") | {"slice_axis": 1, "slice_thickness": 3.0, "slice_spacing": 3.6}
    case |= {"contrast": contrast, "target_thickness": 0.9, "steps": None, "method": "linear"}
    return case | dict.fromkeys(METRICS, value) | others


@pytest.fixture
def rows():
    """A metric that lacks the smallest value, one that is nowhere, one that is infinite, and a method with steps."""
    lines = [row(c, v, power_middle=math.nan if v < 3 else v) for c, values in VALUES.items() for v in values]
    lines.append(row("B", math.inf, method="DRIFT", steps=3))
    table = pd.DataFrame(lines).assign(power_low=math.nan)
    return table.astype({"slice_axis": "Int64", "steps": "Int64"})


def test_summary_is_numpys_and_counts_what_exists(rows):
    summary = group_means(rows)
    assert list(summary.index) == [(3.0, 3.6, "A", "linear"), (3.0, 3.6, "B", "linear"), (3.0, 3.6, "B", "DRIFT")]
    first, second, third = (summary.iloc[i] for i in range(3))
    assert tuple(first["psnr"]) == (np.mean(VALUES["A"]), np.std(VALUES["A"], ddof=1), 3)
    assert first["power_middle", "n"] == 1 and first["power_middle", "mean"] == 4.0
    assert second["psnr", "mean"] == 5.0 and math.isnan(second["psnr", "sd"]) and third["psnr", "mean"] == math.inf


def test_the_table_says_what_is_missing(rows):
    table = means_table(group_means(rows))
    head, _, *lines = table.splitlines()
    assert head.startswith("| T (mm) | spacing (mm) | contrast | method | N | PSNR (dB)")
    assert METRICS["power_low"][0] not in head and METRICS["power_middle"][0] in head  # no number at all
    assert lines[0].startswith("| 3 | 3.6 | A | linear | 3 | 2.33 ± 1.53 |")
    assert "| 4.0 ± \N{EN DASH} (N = 1) |" in lines[0] and "nan" not in table and len(lines) == 3


def test_the_three_files_say_the_same_and_nothing_else_is_written(rows, tmp_path):
    write_tables(tmp_path / "out", {"slab": 24}, rows)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [f"evaluation.{e}" for e in ("csv", "json", "md")]

    stored = json.loads((tmp_path / "out" / "evaluation.json").read_text(), parse_constant=pytest.fail)
    assert stored["options"] == {"slab": 24}
    assert [line["psnr"] for line in stored["rows"]] == [1, 2, 4, 5, None]
    assert [line["steps"] for line in stored["rows"]] == [None, None, None, None, 3]
    first = stored["means"][0]
    assert [first[key] for key in GROUP] == [3.0, 3.6, "A", "linear"] and first["n"] == 3
    assert first["psnr"] == {"mean": pytest.approx(7 / 3), "sd": pytest.approx(np.std(VALUES["A"], ddof=1)), "n": 3}
    assert first["power_low"] == {"mean": None, "sd": None, "n": 0}

    with open(tmp_path / "out" / "evaluation.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert list(table[0]) == ["statistic", "n", *CASE, *METRICS]
    assert [line["statistic"] for line in table] == ["value"] * 4 + ["value"] + ["mean", "sd"] * 3
    assert [line["n"] for line in table] == ["1"] * 5 + ["3", "3", "1", "1", "1", "1"]
    assert table[0]["slice_axis"] == "1" and [line["steps"] for line in table[3:5]] == ["", "3"]
    mean, sd = table[5:7]
    assert float(mean["psnr"]) == pytest.approx(7 / 3) and float(sd["psnr"]) == pytest.approx(1.5275, abs=1e-4)
    assert mean["contrast"] == sd["contrast"] == "A" and mean["volume"] == mean["power_low"] == ""

    markdown = (tmp_path / "out" / "evaluation.md").read_text(encoding="utf-8")
    assert "- slab: 24" in markdown and "2.33 ± 1.53" in markdown and "nan" not in markdown
    assert (
        "| x | A | 1 | 3 | 3.6 | 0.9 | linear | \N{EN DASH} | 1.00 |" in markdown and "| DRIFT | 3 | inf |" in markdown
    )
