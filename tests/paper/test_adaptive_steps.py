"""PAD against the image: the score of a known velocity, correlations and schedules of rows whose answer is known."""

import numpy as np
import pandas as pd
import pytest
import torch
from monai.data import MetaTensor

from scripts.method.schedule import ais_steps, pad
from scripts.paper.adaptive_steps import SCORES, correlation, scheduling, scored
from scripts.rebuild.inferer import DriftInferer
from scripts.stack.acquisition import Acquisition
from scripts.train.simulation import simulate
from tests.fixtures import untrained

THICK = [1.5, 2.0, 3.0, 6.0]


def test_the_score_of_a_constant_velocity_is_that_velocity(phantom):
    network = untrained()
    torch.nn.init.constant_(network.velocity.unet.conv_out.bias, 0.13)
    truth = MetaTensor(torch.from_numpy(phantom[:16, :16, :24].copy())[None], affine=torch.eye(4, dtype=torch.float64))
    acquisition = Acquisition.of_truth(2, 24, edge=1.0, thickness=4.0)
    inferer = DriftInferer(roi_size=16, consistency="measure", steps=3)
    result = scored(simulate(truth, acquisition), acquisition, network, inferer, "cpu")
    told = result.scores
    assert set(told) == set(SCORES)
    assert told["speed"] == pytest.approx(0.13, rel=1e-4)
    assert told["unevenness"] == pytest.approx(0, abs=1e-5) and told["entropy"] == pytest.approx(0, abs=1e-6)
    assert result.steps == 1 and inferer.steps == 3, "the inferer is left as it is"


def sweep(steps, quality, subjects=("a", "b")):
    """Rows of a sweep: `quality(subject, thickness, steps)` is every metric."""
    rows = []
    for number, subject in enumerate(subjects):
        for thickness in THICK:
            case = {"volume": subject, "subject": subject, "slice_axis": 2, "slice_thickness": thickness}
            case["target_thickness"] = 1.0
            scores = {"speed": thickness, "entropy": -thickness, "unevenness": float(number)}
            rows.append({**case, "label": "image scores", "steps": 1, "psnr_head": np.nan, "hf_psnr": np.nan, **scores})
            for n in steps:
                value = quality(subject, thickness, n)
                rows.append({**case, "label": f"N = {n}", "steps": n, "psnr_head": value, "hf_psnr": value})
    return pd.DataFrame(rows)


def test_correlation_with_pad_is_found_among_means_and_within_volumes():
    rows = sweep([8], lambda subject, thickness, n: (10 if subject == "a" else 20) - 3 * pad(thickness, 1.0))
    table = correlation(rows).set_index("correlation")
    for name, count in (("of means", 1), ("within a volume", 2)):
        assert table.loc[name, "pearson"] == pytest.approx(-1) and table.loc[name, "spearman"] == pytest.approx(-1)
        assert table.loc[name, "n"] == count
    assert np.isnan(table.loc["of means", "pearson_sd"])


def test_each_cue_takes_the_steps_that_it_says():
    rows = sweep(range(16), lambda subject, thickness, n: float(n))
    table = scheduling(rows).set_index("cue")
    expected = np.mean([ais_steps(thickness, 1.0, 15) for thickness in THICK])
    assert table.loc["PAD", "psnr_head"] == table.loc["PAD", "steps"] == table.loc["PAD", "evaluations"] == expected
    ranks = np.arange(4) / 4  # of a thickness among the other subject's four
    assert table.loc["image: mean velocity", "steps"] == np.mean(np.round(15 * ranks))
    assert table.loc["image: entropy of the velocity", "steps"] == np.mean(np.round(15 * ranks)), "the other way round"
    assert table.loc["image: mean velocity", "evaluations"] == table.loc["image: mean velocity", "steps"] + 1
    hybrid = [round(15 * (rank + pad(t, 1.0)) / 2) for rank, t in zip(ranks, THICK)]
    assert table.loc["hybrid: mean velocity", "steps"] == np.mean(hybrid)
