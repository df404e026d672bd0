"""Laws of truths without noise: noise goes, edges and a mask's zeros stay, and quiet volumes are left alone."""

import pytest
import torch
from monai.data import MetaTensor

from scripts.train.denoising import Denoised, denoised


def noisy(deviation, seed=0):
    """A cube of tissue with a brighter half, in air that a mask made 0, and where both halves are flat."""
    clean = torch.zeros(64, 64, 30)
    clean[6:58, 6:58] = 500.0
    clean[32:58, 6:58] = 800.0
    noise = deviation * torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed)) * (clean > 0)
    return clean, MetaTensor((clean + noise)[None])


@pytest.mark.parametrize("deviation", [20.0, 40.0])
def test_noise_goes_and_edges_stay(deviation):
    clean, volume = noisy(deviation)
    result = denoised(volume, (0, 1, 2)).as_tensor()[0]
    inside = clean > 0
    assert (result - clean)[inside].std() < 0.6 * deviation
    step = result[33:36, 10:54].mean() - result[28:31, 10:54].mean()
    assert step.item() == pytest.approx(300, rel=0.03)
    assert (result[~inside] == 0).all()


@pytest.mark.parametrize("deviation", [20.0, 40.0])
def test_four_fifths_of_the_noise_go_and_over_half_of_a_thin_sheet_that_is_hardly_brighter_stays(deviation):
    """Sheets of two voxels, as much brighter as twice the noise."""
    clean, volume = noisy(deviation)
    inside, sheets = clean > 0, torch.zeros_like(clean)
    for start in range(12, 52, 10):
        sheets[14:26, start : start + 2] = 2 * deviation
    left = denoised(volume, (0, 1, 2)).as_tensor()[0] - clean
    assert left[inside].std() < 0.2 * deviation
    shown = denoised(MetaTensor(volume + sheets), (0, 1, 2)).as_tensor()[0] - clean
    beside = sheets.roll(5, 1) > 0
    assert shown[sheets > 0].mean() - shown[beside].mean() > 0.5 * 2 * deviation


@pytest.mark.parametrize("axis", range(3))
def test_the_noise_of_a_volume_with_one_sharp_axis_is_seen_in_planes_that_hold_it(axis):
    clean, volume = noisy(30.0)
    result = denoised(volume, (axis,)).as_tensor()[0]
    assert (result - clean)[clean > 0].std() < 18


def test_a_quiet_volume_and_a_constant_one_are_left_alone():
    _, quiet = noisy(0.2)
    assert denoised(quiet, (0, 1, 2)) is quiet
    constant = MetaTensor(torch.ones(1, 9, 9, 9))
    assert denoised(constant, (0, 1)) is constant


def test_the_transform_takes_planes_of_the_sharp_axes():
    _, volume = noisy(30.0)
    turned = MetaTensor(volume.as_tensor().movedim(3, 1).contiguous())
    given = Denoised("label")({"label": turned, "sharp_axes": (1, 2)})["label"].as_tensor().movedim(1, 3)
    torch.testing.assert_close(given, denoised(volume, (0, 1)).as_tensor(), rtol=0, atol=1e-2)
