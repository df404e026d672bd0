"""Laws of simulated slices, and of the paired input of validation."""

import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.stack import grid
from scripts.stack.acquisition import Acquisition
from scripts.stack.intensity import intensity_range
from scripts.stack.profile import acquire
from scripts.train.simulation import Simulated, UnitIntensityd, simulate
from tests.volumes import head, random_affine


@pytest.mark.parametrize(
    ("axis", "facts"), [(0, {}), *((k, {"spacing": 5.0, "profile": "gaussian", "shift": 0.3}) for k in (1, 2))]
)
def test_simulated_slices_are_the_volumes_and_lie_where_its_tissue_lies(axis, facts):
    affine = random_affine(np.array([0.8, 0.9, 1.1]), 5)
    truth = MetaTensor(head((22, 24, 20))[None], affine=torch.from_numpy(affine))
    acquisition = Acquisition.of_truth(axis, truth.shape[1 + axis], edge=(0.8, 0.9, 1.1)[axis], thickness=4.0, **facts)
    before = truth.clone()
    thick = simulate(truth, acquisition)
    torch.testing.assert_close(thick.as_tensor(), acquire(truth.as_tensor(), acquisition))
    assert torch.equal(truth, before), "the truth is left alone"
    assert Acquisition.of(thick) == acquisition
    shape = thick.shape[1:]
    a = acquisition
    fine = grid.respaced_affine(thick.affine.numpy(), axis, shape[axis], a.fine_count, a.target_spacing)
    np.testing.assert_allclose(fine, affine, atol=1e-9)  # the result of these slices lies on the truth's own grid
    assert grid.voxel_spacing(thick.affine)[axis] == pytest.approx(acquisition.slice_spacing)


def test_the_validation_input_is_the_volume_degraded_along_its_sharp_axis():
    truth = MetaTensor(head((22, 24, 20))[None], affine=torch.diag(torch.tensor([0.8, 0.9, 1.1, 1.0]).double()))
    item = Simulated("label", 4.0)({"label": truth, "sharp_axes": (2,), "subject": "s1"})
    acquisition = Acquisition.of_truth(2, truth.shape[3], edge=1.1, thickness=4.0)
    assert Acquisition.of(item["image"]).target_spacing == pytest.approx(1.1)
    assert item["label"] is truth and item["subject"] == "s1"
    torch.testing.assert_close(item["image"].as_tensor(), acquire(truth.as_tensor(), acquisition))


def test_training_sees_the_range_of_tissue_from_zero_to_one():
    """As the inferer does: neither padding nor hot spots change it, and neither is left."""
    clean = head((24, 26, 28))
    stray = clean.clone()
    stray[0, 0, 0], stray[1, 1, 1], stray[12, 13, 14] = -1000.0, -0.1, 25 * clean.max()
    expected, result = (UnitIntensityd("label")({"label": volume[None]})["label"] for volume in (clean, stray))
    assert expected.min() == 0 and intensity_range(expected)[:2] == pytest.approx((0, 1), abs=1e-3)
    changed = torch.zeros_like(stray, dtype=torch.bool)
    changed[12, 13, 14] = True
    torch.testing.assert_close(result[0][~changed], expected[0][~changed], atol=1e-3, rtol=0)
    assert 0 < result[0, 12, 13, 14] < 1
