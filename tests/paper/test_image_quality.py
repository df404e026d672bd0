"""Which planes are looked at, and what configs/paper/image_quality.yaml adds to the evaluation."""

import json
import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from scripts.evaluate.paired import evaluate
from scripts.paper import no_reference, st_lpips
from scripts.paper.image_quality import ImageQuality
from scripts.paper.reformats import Reformats
from scripts.stack.interpolation import interpolate
from scripts.stack.tissue import head_mask
from tests.volumes import head


@pytest.mark.parametrize(("axis", "normal"), [(0, 2), (1, 2), (2, 1)])
def test_planes_contain_the_slice_axis_and_the_head(axis, normal):
    volume = head((50, 60, 70))
    reformats = Reformats.of(volume, axis)
    gray = reformats.gray(volume)
    assert reformats.normal == normal != axis and gray.shape == reformats.head.shape
    planes = volume.movedim(normal, 0)[reformats.indices][:, reformats.rows, reformats.columns]
    assert torch.equal(planes > planes.median(), gray > gray.median()) and gray.min() == 0 and gray.max() == 1
    mask = head_mask(volume).movedim(normal, 0)
    assert torch.equal(reformats.head, mask[reformats.indices][:, reformats.rows, reformats.columns])
    assert reformats.head.sum() == mask[reformats.indices].sum()  # nothing is cut off
    assert mask[reformats.indices].sum((1, 2)).min() >= mask.sum((1, 2)).max() / 2


def test_what_is_not_installed_is_left_out_with_a_line_that_says_how_to_get_it(monkeypatch, log, tmp_path):
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    for module, name in ((no_reference, "BRISQUE_MODEL"), (no_reference, "NIQE_MODEL"), (st_lpips, "PARAMETERS")):
        monkeypatch.setattr(module, name, ("no-such-package", "parameters"))
    quality = ImageQuality.installed()
    assert quality == ImageQuality() and len(log.messages) == 4
    assert log.messages[0].startswith("BRISQUE is left out: its parameters are not installed. To have it: pip install")
    assert set(quality(head(), 2)(head())) == {"sharpness"}


@pytest.fixture
def rows(write_nifti, tmp_path):
    """A head of 1 mm, degraded to 5 mm."""
    item = {
        "label": str(write_nifti(head((124, 122, 20)).numpy())),
        "sharp_axes": (0,),
        "subject": "a",
        "contrast": "T1w",
    }
    methods = {name: partial(interpolate, method=name) for name in ("nearest", "cubic")}
    return evaluate([item], methods, tmp_path / "out", [5.0], slab=4, metrics=ImageQuality.installed()).set_index(
        "method"
    )


def test_all_that_is_installed_is_a_column_and_the_truth_a_row(rows, tmp_path):
    quality = ImageQuality.installed()
    expected = {"sharpness"} | {name for name in ("brisque", "niqe", "st_lpips", "lpips") if getattr(quality, name)}
    found = expected | {"brisque", "niqe", "st_lpips", "lpips"} & set(rows)
    assert found == expected and np.isfinite(rows[sorted(expected)]).all(None)
    assert list(rows.index) == ["nearest", "cubic", "truth"]
    assert rows.loc["truth", "psnr"] == math.inf and rows.loc["truth", "ssim"] == 1
    assert rows.loc["cubic", "sharpness"] < rows.loc["truth", "sharpness"]
    if quality.st_lpips:
        assert rows.loc["truth", "st_lpips"] == 0 < rows.loc["nearest", "st_lpips"]
    stored = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    first, *_, last = stored["rows"]
    assert last["psnr"] is None and first["sharpness"] == pytest.approx(rows["sharpness"].iloc[0])
    assert expected <= set(pd.read_csv(tmp_path / "out" / "evaluation.csv"))
