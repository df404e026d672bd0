"""Laws of deblocking: as much of each step becomes a ramp as shows as one, edges stay, and nothing is invented."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from scripts.rebuild.deblocking import deblock
from scripts.stack import tissue, trace
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from scripts.stack.profile import acquire
from scripts.stack.slices import Slices
from tests.volumes import head

FINE = 60
PLACES = [(2, 3.3), (1, 4.0), (0, 5.0)]  # slice axis, slice spacing in mm


def steps(axis=2, spacing=5.0, gain=0.02):
    """A head as the nearest of its slices shows it, whose brightness differs from slice to slice; and the slices."""
    truth = head((40, 44, FINE)).movedim(2, axis)
    acquisition = Acquisition.of_truth(axis, FINE, edge=1.0, thickness=spacing)
    slices = acquire(truth, acquisition).movedim(axis, 2)
    gains = 1 + gain * torch.randn(slices.shape[2], generator=torch.Generator().manual_seed(0))
    shown = (slices * gains).movedim(2, axis)
    return interpolate(shown, acquisition, "nearest"), Slices(shown, acquisition)


@pytest.mark.parametrize(("axis", "spacing"), PLACES)
def test_planes_differ_across_borders_as_within_slices(axis, spacing):
    result, slices = steps(axis, spacing)
    flat = tissue.flat_tissue(interpolate(slices.array, slices.acquisition, "cubic"))
    assert trace.step_ratio(result, slices.acquisition, flat) == math.inf
    assert trace.step_ratio(deblock(result, slices), slices.acquisition, flat) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_a_result_without_steps_keeps_its_texture(seed):
    _, slices = steps(spacing=3.0, gain=0.0)
    disturbance = 5 * torch.randn(slices.shape, generator=torch.Generator().manual_seed(seed))
    noisy = replace(slices, array=slices.array + disturbance)
    course = interpolate(noisy.array, noisy.acquisition, "linear")
    assert trace.step_ratio(course, noisy.acquisition, tissue.flat_tissue(course)) == pytest.approx(1, abs=0.02)
    assert (deblock(course, noisy) - course).abs().max() < 0.01 * 5
    smooth = interpolate(noisy.array, noisy.acquisition, "nearest").mean(2, keepdim=True).expand(course.shape)
    assert torch.equal(deblock(smooth, noisy), smooth)


def test_a_step_becomes_a_ramp_that_its_slices_do_not_see():
    """It rises over the border more gently, alike on both sides; the slices of the result stay as they were."""
    acquisition = Acquisition.stack(2, 12, spacing=5.0, thickness=5.0, target=1.0)
    block = torch.zeros(40, 40, 12)
    block[8:32, 8:32] = torch.where(torch.arange(12) < 6, 500.0, 505.0)
    stairs = interpolate(block, acquisition, "nearest")
    changed = deblock(stairs, Slices(block, acquisition))
    across = changed[20, 20]
    torch.testing.assert_close(across + across.flip(0), torch.full((60,), 1005.0), rtol=0, atol=1e-3)
    rises = across.diff()
    assert rises[29] < 0.5 * 5 and (rises[27:32] > 0.1 * 5).all()
    seen = (acquire(changed, acquisition) - acquire(stairs, acquisition))[20, 20]
    assert seen.abs().max() < 0.01 * 5 and (acquire(changed - stairs, acquisition)).abs().max() < 0.05 * 5


@pytest.mark.parametrize("spacing", [2.7, 3.3, 4.5])
def test_steps_at_borders_within_planes_are_taken_too(spacing):
    """There a plane shows the mean of two slices, and half of each step stands on either side of it."""
    _, slices = steps(spacing=spacing)
    a = slices.acquisition
    flat = tissue.flat_tissue(interpolate(slices.array, a, "cubic"))
    ends = np.arange(a.slice_count + 1)
    begin = np.clip(a.fine_rows + 0.5 - a.target_spacing / a.slice_spacing / 2, 0, a.slice_count)[:, None]
    end = np.clip(a.fine_rows + 0.5 + a.target_spacing / a.slice_spacing / 2, 0, a.slice_count)[:, None]
    shares = (np.minimum(end, ends[1:]) - np.maximum(begin, ends[:-1])).clip(0) / (end - begin)
    result = slices.array @ torch.from_numpy(shares).float().T
    assert trace.step_ratio(result, a, flat) > 10
    assert trace.step_ratio(deblock(result, slices), a, flat) == pytest.approx(1, abs=0.1)


def test_a_mask_around_the_head_switches_nothing_off():
    """Beside a masked head the cubic spline of the slices undershoots. That is neither air nor tissue."""
    result, slices = steps()
    inside, masked = tissue.flat_tissue(result), slices.array
    assert (interpolate(masked, slices.acquisition, "cubic") < 0).float().mean() > 0.05  # of all voxels
    air = 100 * torch.rand(masked.shape, generator=torch.Generator().manual_seed(0)) * (masked == 0)
    both = slices, replace(slices, array=masked + air)
    moved = [(deblock(result, one) - result)[inside].abs().mean() for one in both]
    assert float(moved[0]) == pytest.approx(float(moved[1]), rel=0.1)


def test_edges_stay():
    """Where the gradient is 2.5 times the head's median or more the change is below 1 % of the average's."""
    result, slices = steps()
    spline = interpolate(slices.array, slices.acquisition, "cubic")
    inside = interpolate(slices.head.float(), slices.acquisition, "nearest") > 0.5
    edges = tissue.edge_strength(spline, inside) > 2.5
    moved = (deblock(result, slices) - result)[edges].abs().max()
    everywhere = (result.unfold(2, 5, 1).mean(-1) - result[..., 2:-2])[edges[..., 2:-2]].abs().max()
    assert edges.any() and 0 < moved < 0.01 * everywhere
