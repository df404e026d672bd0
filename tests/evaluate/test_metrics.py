"""Laws and hand-computed values of the image quality metrics."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from scripts.evaluate import metrics
from scripts.stack import spectra, tissue, trace
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate

SHAPE = (16, 20, 24)


def phantom(seed=0, shape=SHAPE):
    """Smooth noise in [0, 1], with both ends reached."""
    volume = ndimage.gaussian_filter(np.random.default_rng(seed).standard_normal(shape), 1.5)
    return torch.from_numpy((volume - volume.min()) / np.ptp(volume)).float()


def all_metrics(prediction, truth):
    bands = spectra.through_plane_bands(5.0, 1.0)
    return [
        metrics.psnr(prediction, truth),
        metrics.psnr(prediction, truth, tissue.head_mask(truth)),
        metrics.ssim(prediction, truth),
        metrics.hf_psnr(prediction, truth),
        metrics.gradient_rmse(prediction, truth, 2),
        *spectra.power_ratios(prediction, truth, 2, 1.0, bands),
    ]


def test_truth_is_perfect():
    truth = phantom()
    assert all_metrics(truth, truth) == [math.inf, math.inf, 1.0, math.inf, 0.0, 0.0, 0.0, 0.0]


def test_psnr_of_a_known_offset():
    truth = 50.0 * phantom()
    assert metrics.psnr(truth + 5.0, truth) == pytest.approx(20.0, abs=1e-3)  # a tenth of the range
    prediction = truth + 5.0
    prediction[0, 0, 0] += 50_000  # would raise the peak of a method that sets its own
    assert metrics.psnr(prediction, truth) < 0


def test_psnr_counts_masked_voxels_alone_and_keeps_the_peak():
    truth = phantom()
    mask = torch.zeros(SHAPE, dtype=torch.bool)
    mask[3:6, 4:8, 5:9] = True
    prediction = truth + torch.where(mask, 0.01, 0.5)
    assert metrics.psnr(prediction, truth, mask) == pytest.approx(40.0, abs=1e-3)


def test_ssim_of_constant_slices():
    """One value a slice leaves the luminance term alone: (2 a b + c) / (a^2 + b^2 + c) with c = 0.01^2."""
    truth = torch.tensor([0.0, 1.0]).repeat(4)[:, None, None].expand(8, 16, 16).clone()  # only direction 0 is 11 wide
    luminance = (2 * 1.0 * 0.5 + 1e-4) / (1.0 + 0.25 + 1e-4)
    assert metrics.ssim(truth / 2, truth) == pytest.approx((1 + luminance) / 2, abs=1e-5)


def test_ssim_averages_the_three_directions():
    truth = phantom()
    prediction = truth + 0.1 * phantom(1)
    single = []
    for axis in range(3):
        moved = [v.movedim(axis, 0) for v in (prediction, truth)]
        slices = [metrics.SSIMMetric(2)(p[None, None], t[None, None]).item() for p, t in zip(*moved)]
        single.append(np.mean(slices))
    assert metrics.ssim(prediction, truth) == pytest.approx(np.mean(single), abs=1e-6)
    small = phantom(0, (10, 10, 30)), phantom(1, (10, 10, 30))
    assert math.isnan(metrics.ssim(*small)), "no direction has slices as large as the window"


def test_laplacian_agrees_with_scipy():
    volume = phantom().double()
    oracle = ndimage.laplace(volume.numpy(), mode="nearest")
    assert np.allclose(metrics.laplacian(volume).numpy(), oracle, atol=1e-12)


def test_hf_psnr_of_a_single_voxel():
    """Its Laplacian is -6 there and 1 at six neighbours: 42 e^2 / n voxels of squared error."""
    truth = phantom()
    prediction = truth.clone()
    prediction[8, 9, 10] += 0.5
    expected = -10 * math.log10(42 * 0.25 / truth.numel())
    assert metrics.hf_psnr(prediction, truth) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gradient_rmse_of_a_ramp(axis):
    """A slope of 3 too much on a range of 10, along the slice axis; any slope across it goes unseen."""
    truth = 10.0 * phantom()
    ramp = torch.arange(SHAPE[axis], dtype=torch.float32).expand(*(n for a, n in enumerate(SHAPE) if a != axis), -1)
    prediction = truth + 3.0 * ramp.movedim(2, axis)
    assert metrics.gradient_rmse(prediction, truth, axis) == pytest.approx(0.3, abs=1e-5)
    assert metrics.gradient_rmse(prediction, truth, (axis + 1) % 3) == pytest.approx(0.0, abs=1e-5)


def test_refusals():
    truth = phantom()
    with pytest.raises(ValueError, match="one shape"):
        metrics.psnr(truth[1:], truth)
    with pytest.raises(ValueError, match="intensity range of 0"):
        metrics.ssim(truth, torch.zeros(SHAPE))
    with pytest.raises(ValueError, match="holds no voxel"):
        metrics.psnr(truth, truth, torch.zeros(SHAPE, dtype=torch.bool))


# The trace of the slices


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_step_ratio_by_hand(axis):
    """Three slices of four planes: planes differ by 1 inside and by 3 across, but for a part that is not flat."""
    acquisition = Acquisition.stack(axis, 3, spacing=4.0, thickness=4.0, target=1.0)
    planes = torch.tensor([0, 1, 2, 3, 6, 7, 8, 9, 12, 13, 14, 15.0])
    volume = planes.expand(5, 6, 12).clone()
    volume[0] *= -40 * torch.rand(6, 12, generator=torch.Generator().manual_seed(0))
    flat = torch.ones(5, 6, 12, dtype=torch.bool)
    flat[0] = False
    assert trace.step_ratio(volume.movedim(2, axis), acquisition, flat.movedim(2, axis)) == pytest.approx(3)


def test_step_ratio_of_ramps_stair_steps_and_nothing():
    acquisition = Acquisition.stack(2, 4, spacing=5.0, thickness=5.0, target=1.0, shift=2.0)
    ramp, everywhere = torch.arange(20.0).expand(3, 4, 20), torch.ones(3, 4, 20, dtype=torch.bool)
    assert trace.step_ratio(ramp, acquisition, everywhere) == 1
    steps = interpolate(torch.arange(4.0).expand(3, 4, 4), acquisition, "nearest")
    assert trace.step_ratio(steps, acquisition, everywhere) == math.inf
    assert math.isnan(trace.step_ratio(ramp, acquisition, ~everywhere))


@pytest.mark.parametrize(("spacing", "shift"), [(4.0, 0.5), (4.0, 0.15), (4.0, -0.35), (3.5, 0.0), (2.5, 0.0)])
def test_a_border_within_a_plane_makes_a_step_on_either_side_of_it(spacing, shift):
    """Planes that show a mean of two slices differ from both: within a slice nothing changes."""
    a = Acquisition.stack(2, 8, spacing=spacing, thickness=spacing, target=1.0, shift=shift)
    centres = (a.fine_rows + 0.5)[:, None] * spacing  # in planes, from the beginning of the first slice
    begin = np.arange(8) * spacing
    inside = (np.minimum(centres + 0.5, begin + spacing) - np.maximum(centres - 0.5, begin)).clip(0)
    planes = torch.from_numpy(inside / inside.sum(1, keepdims=True)) @ torch.arange(8.0, dtype=torch.float64)
    volume = planes.expand(3, 4, -1)
    assert trace.step_ratio(volume, a, torch.ones(volume.shape, dtype=torch.bool)) > 1e9


def test_rounded_spacings_make_no_other_borders():
    """Along 80 planes a voxel of 0.998 mm in place of 1 mm moves the borders by up to 0.08 planes."""
    planes = (1 + 2 * (torch.arange(80) % 4 == 0)).cumsum(0).double()  # by 3 across borders, by 1 within slices
    everywhere = torch.ones(3, 4, 80, dtype=torch.bool)
    for target in (1.0, 0.998):
        a = Acquisition.stack(2, 20, spacing=4.0, thickness=4.0, target=target)
        assert trace.step_ratio(planes.expand(3, 4, 80), a, everywhere) == pytest.approx(3)


def test_borders_lie_in_planes_whatever_these_measure():
    found = [
        trace.borders(Acquisition.stack(2, 6, spacing=3.5 * edge, thickness=3.5 * edge, target=edge))
        for edge in (1.0, 0.5, 2.0)
    ]
    assert found[0].any() and not found[0].all()
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()


def test_thin_slices_are_compared_where_they_have_the_fewest_borders():
    a = Acquisition.stack(2, 40, spacing=1.6, thickness=1.6, target=1.0)
    assert 0.1 < trace.borders(a).mean() < 0.9
    assert not trace.borders(Acquisition.stack(2, 1, spacing=5.0, thickness=5.0, target=1.0)).any()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_streak_by_hand(axis):
    """Steps of 4 and 2 within slices, of 1 across them, but for a part that is not flat."""
    x, y, z = (torch.arange(float(count)) % 2 for count in (5, 6, 7))
    volume = 4 * x[:, None, None] + 2 * y[:, None] + z
    flat = torch.ones(5, 6, 7, dtype=torch.bool)
    volume[4], flat[3:] = 90.0, False
    ratio, steps = trace.streak(volume.movedim(2, axis), axis, flat.movedim(2, axis))
    assert (ratio, steps) == pytest.approx((3, 3))
    assert math.isnan(trace.streak(volume, 2, ~flat & False)[0])


# Lesions

SMALL, LARGE = (slice(3, 6),) * 3, (slice(7, 11), slice(2, 6), slice(2, 6))  # one voxel apart: 27 and 64 voxels


def lesions(small, large, ground=100.0):
    """A volume with the two lesions."""
    volume = torch.full((16, 14, 12), ground)
    volume[SMALL], volume[LARGE] = small, large
    return volume


def test_lesions_that_touch_at_a_corner_are_one():
    mask = torch.zeros(6, 6, 6)
    mask[0, 0, 0] = mask[1, 1, 1] = mask[1, 1, 2] = mask[4, 4, 4] = 1
    sizes = metrics.lesion_sizes(mask)
    assert sizes[0, 0, 0] == sizes[1, 1, 2] == 3 and sizes[4, 4, 4] == 1 and sizes.sum() == 3 * 3 + 1


def test_lesion_contrast_by_hand():
    """Of 50 and 40 over the ground, 20 and 30 are kept, whatever the sizes; the neighbour is no part of the ring."""
    sizes = metrics.lesion_sizes(lesions(1.0, 1.0, 0.0))
    assert sizes.unique().tolist() == [0, 27, 64]
    truth, prediction = lesions(150.0, 140.0), lesions(120.0, 130.0)
    kept = metrics.lesion_contrast_kept
    assert kept(prediction, truth, sizes) == pytest.approx((20 + 30) / (50 + 40))
    assert kept(prediction, truth, sizes, below=60) == pytest.approx(20 / 50)
    assert kept(prediction, truth, sizes, least=60) == pytest.approx(30 / 40)
    assert kept(prediction, truth, sizes, least=27) == kept(prediction, truth, sizes)
    assert kept(3 * prediction + 7, 3 * truth - 5, sizes, below=60) == pytest.approx(20 / 50)
    assert kept(truth, truth, sizes) == 1 and math.isnan(kept(truth, truth, sizes, below=27))


def test_a_bright_and_a_dark_lesion_do_not_cancel():
    """Their mean contrast over both, 27 x 64 - 64 x 27 = 0, would say nothing; each for itself keeps a half."""
    sizes, kept = metrics.lesion_sizes(lesions(1.0, 1.0, 0.0)), metrics.lesion_contrast_kept
    truth = lesions(164.0, 73.0)
    assert kept(truth, truth, sizes) == 1
    assert kept((truth + 100) / 2, truth, sizes) == pytest.approx(0.5)
    assert kept(lesions(164.0, 100.0), truth, sizes) == pytest.approx(64 / 91), "the dark one is gone"
    assert kept(lesions(164.0, 127.0), truth, sizes) == pytest.approx((64 - 27) / 91), "the dark one is bright"
    assert kept(lesions(164.0, 50.0), lesions(164.0, 100.0), sizes) == 1, "what has no contrast does not count"
    assert math.isnan(kept(truth, lesions(100.0, 100.0), sizes))


def test_the_ring_is_two_voxels_wide():
    sizes = metrics.lesion_sizes(lesions(1.0, 0.0, 0.0))
    truth = lesions(150.0, 100.0)
    far, near = truth.clone(), truth.clone()
    far[8:, 4, 4], near[7, 4, 4] = 0.0, 0.0  # the lesion ends at 5
    assert metrics.lesion_contrast_kept(far, truth, sizes) == 1 < metrics.lesion_contrast_kept(near, truth, sizes)
