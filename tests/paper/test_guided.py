"""The evaluation of guides: what is drawn, what the methods without a network know, and what is refused."""

from functools import partial

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.method.networks import Drift, VelocityNetwork
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.paper.guided import evaluate_guided, guided_filter, local_regression
from scripts.rebuild.guide import PlacedGuide
from scripts.rebuild.inferer import DriftInferer
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from scripts.train.simulation import simulate
from tests.stacks import AFFINE, person

METHODS = {"cubic spline": partial(interpolate, method="cubic")}


@pytest.fixture(scope="module")
def rebuilder():
    """Networks that change nothing."""
    network = Drift(SliceProjectionNetwork((4,), (1,), 2, 2), VelocityNetwork((4, 8), width=8)).eval()
    return Rebuilder(network, DriftInferer(steps=0, progress=False), "cpu", guide_share=0.7)


def head(tmp_path):
    """Two contrasts of one head: the second is a curve of the first."""
    volume = person()
    for name, one in {"T2w": volume, "T1w": volume.sqrt()}.items():
        nib.save(nib.Nifti1Image(one.numpy(), AFFINE), tmp_path / f"{name}.nii.gz")
    paths = {name: str(tmp_path / f"{name}.nii.gz") for name in ("T2w", "T1w")}
    common = {"sharp_axes": (0, 1), "subject": "one"}
    return [
        {"label": paths["T2w"], "contrast": "T2w", "guides": [paths["T1w"]], **common},
        {"label": paths["T1w"], "contrast": "T1w", **common},
    ]


@pytest.mark.parametrize("method", [guided_filter, local_regression])
def test_a_guide_of_the_same_contrast_in_place_brings_detail_back(method):
    truth = MetaTensor(person()[None], affine=torch.from_numpy(AFFINE))
    thick = simulate(truth, Acquisition.of_truth(0, truth.shape[1], edge=AFFINE[0, 0], thickness=6.0))
    cubic = interpolate(thick.as_tensor(), Acquisition.of(thick), "cubic")
    fine = MetaTensor(2 * truth.as_tensor() / truth.max() - 1, affine=truth.affine)
    found = method(Slices.of(thick), PlacedGuide(fine, np.eye(4), 1.0, 0.0, 0.0, 0.0, "guide"))
    assert found.shape == truth.shape
    assert (found - truth).square().mean() < 0.4 * (cubic - truth).square().mean()


@pytest.mark.slow
def test_each_method_has_a_row_with_each_guide(rebuilder, tmp_path, refusal):
    volumes = head(tmp_path)
    by = {"local regression": local_regression, "DRIFT": rebuilder}
    given = (METHODS, by, rebuilder, tmp_path / "out", [6.0])
    table = evaluate_guided(volumes, *given, largest_motion=(3.0, 3.0), guide_noise=0.0).set_index("method")[
        "psnr_head"
    ]
    assert list(table.index) == ["cubic spline", "local regression, by T1w", "DRIFT, by T1w"]
    assert table["local regression, by T1w"] > table["cubic spline"] + 0.5
    assert "no volume has guides" in refusal(evaluate_guided, volumes[1:], *given)
    nib.save(nib.Nifti1Image(np.ones((4, 4, 4), np.float32), AFFINE), volumes[0]["guides"][0])
    assert "not on the grid" in refusal(evaluate_guided, volumes, *given)
