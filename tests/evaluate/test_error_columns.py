"""Columns of the paired evaluation that say whether error maps keep their word."""

from functools import partial

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.coverage import draw as coverage_picture
from scripts.evaluate.metrics import covered, width_and_rank
from scripts.evaluate.paired import NOMINAL, by_networks, evaluate
from scripts.rebuild.error_map import ErrorMaps
from scripts.rebuild.inferer import DriftInferer
from tests.evaluate.test_paired import CUBIC, write_phantom
from tests.method.test_error_pattern import CALIBRATION, with_error

HEAD = torch.ones(20, 20, 20, dtype=torch.bool)


def errors(seed=0):
    """Errors of a known size, which varies from voxel to voxel, and that size."""
    chance = torch.Generator().manual_seed(seed)
    size = torch.rand(20, 20, 20, generator=chance).exp() ** 2
    return size * torch.randn(20, 20, 20, generator=chance).abs(), size


def test_the_right_sizes_cover_what_they_should_are_narrower_and_in_order():
    error, size = errors()
    assert covered(error, 1.645 * size, HEAD) == pytest.approx(0.9, abs=0.01)
    found = width_and_rank(error, 1.645 * size, HEAD)
    assert found["error_width"] < 0.95 and found["error_rank"] > 0.35


def test_a_constant_gains_nothing_whatever_it_is():
    error, _ = errors()
    constant = torch.full_like(error, 4.0) + 1e-6 * torch.rand(error.shape)
    assert width_and_rank(error, constant, HEAD)["error_width"] == pytest.approx(1, abs=0.02)
    assert covered(error, constant, torch.zeros_like(HEAD)) != covered(error, constant, torch.zeros_like(HEAD))  # NaN


def table(tmp_path, calibration, lesions=True):
    write_phantom(tmp_path / "a.nii.gz", 0)
    mask = np.zeros((30, 26, 24), np.float32)
    mask[14:17, 12:15, 11:14] = 1
    nib.save(nib.Nifti1Image(mask, nib.load(tmp_path / "a.nii.gz").affine), tmp_path / "lesions.nii.gz")
    item = {"label": str(tmp_path / "a.nii.gz"), "sharp_axes": (1, 2), "subject": "a", "contrast": "T1w"}
    item |= {"lesions": str(tmp_path / "lesions.nii.gz")} if lesions else {}
    parts = {"network": with_error(), "inferer": DriftInferer(32, steps=1), "device": "cpu"}
    maps = ErrorMaps(True, 0.9, calibration)
    methods = {**CUBIC, "plain": partial(by_networks, **parts), "DRIFT": partial(by_networks, **parts, maps=maps)}
    return evaluate([item], methods, tmp_path / "out", [5.0]).set_index("method")


def test_the_columns_are_the_methods_with_a_map_alone_and_change_nothing_else(tmp_path):
    rows = table(tmp_path, CALIBRATION)
    own = [f"coverage_{100 * level:.0f}" for level in NOMINAL]
    own += ["lesion_coverage", "error_width", "error_rank"]
    assert rows.loc["DRIFT", own].notna().all() and rows.loc[["plain", "cubic spline"], own].isna().all(axis=None)
    assert rows.loc["DRIFT", "psnr"] == rows.loc["plain", "psnr"]
    coverage = rows.loc["DRIFT", own[:5]].to_numpy(float)
    assert (np.diff(coverage) >= 0).all()
    assert "coverage at 90 %" in (tmp_path / "out" / "evaluation.md").read_text()
    coverage_picture(pd.read_csv(tmp_path / "out" / "evaluation.csv"), tmp_path / "coverage.png")
    assert (tmp_path / "coverage.png").stat().st_size > 1000
