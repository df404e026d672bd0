"""What an experiment's table says: pairs, spread, intervals."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from scripts.paper.comparison import compare, comparison_table


def test_differences_are_taken_within_pairs_and_seeds_are_told_apart_from_volumes():
    table = [
        {
            "coverage": shift,
            "label": label,
            "seed": seed,
            "volume": volume,
            "subject": volume,
            "slice_axis": 0,
            "psnr": 10.0 * volume + shift + seed * tilt,
        }
        for label, shift, tilt in (("a", 0.0, 0.0), ("b", 1.0, 2.0))
        for seed in (0, 1)
        for volume in (1, 2, 3)
    ]
    summary = compare(pd.DataFrame(table), ["label", "coverage"], ["psnr"], against="a")["psnr"].loc["b", 1.0]
    assert summary["mean"] == pytest.approx(22.0) and summary["n"] == 3
    assert summary["sd"] == pytest.approx(10.0), "over volumes, of the mean over seeds"
    assert summary["seeds"] == pytest.approx(np.std([1, 3], ddof=1))
    assert summary["difference"] == pytest.approx(2.0)
    half = np.ptp([1, 3]) / 2 * stats.t.ppf(0.975, 1)
    told = (summary["difference_low"], summary["difference_high"])
    assert told == pytest.approx((2 - half, 2 + half)), "people are alike, so that it is over seeds"
    text = comparison_table(compare(pd.DataFrame(table), columns=["psnr"], against="a"))
    assert f"+2.000 (-{half - 2:.3f} to +{2 + half:.3f})" in text


def test_an_interval_holds_what_it_says_where_people_and_seeds_both_matter():
    """Of many comparisons of seven people and three trainings, the truth lies in 95 of 100, and not in 100 of 100."""
    rng, held = np.random.default_rng(0), []
    for people, seeds in ((1.0, 1.0), (1.0, 0.2), (0.2, 1.0)):
        for _ in range(100):
            who, luck = people * rng.standard_normal(7), seeds * rng.standard_normal(3)
            own = 0.2 * rng.standard_normal((7, 3))
            table = [
                {"label": label, "seed": s, "volume": p, "subject": p, "slice_axis": 0, "psnr": gain}
                for p in range(7)
                for s in range(3)
                for label, gain in (("a", 0.0), ("b", who[p] + luck[s] + own[p, s]))
            ]
            summary = compare(pd.DataFrame(table), columns=["psnr"], against="a")["psnr"].loc["b"]
            held.append(summary["difference_low"] < 0 < summary["difference_high"])
    assert 0.93 <= np.mean(held) < 0.995


def test_each_variant_may_have_a_reference_of_its_own(refusal):
    levels = {"base": 0.0, "first": 1.0, "second": 4.0}
    cases = [(label, 0, volume, "A", 0, level + volume) for label, level in levels.items() for volume in (1, 2)]
    table = pd.DataFrame(cases, columns=["label", "seed", "volume", "subject", "slice_axis", "psnr"])
    summary = compare(table, columns=["psnr"], against={"first": "base", "second": "first"})
    assert list(summary["psnr", "difference"].fillna(-1)) == [-1, 1, 3]
    differences = comparison_table(summary).split("\n\n")[-1]
    assert "first" in differences and "base" not in differences, "what is compared with nothing has no row"
    assert "nothing is called 'third'" in refusal(compare, table, columns=["psnr"], against={"first": "third"})
