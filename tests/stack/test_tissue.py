"""Laws of the head's mask, of edges and of flat tissue."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from scripts.stack.tissue import edge_strength, flat_tissue, head_mask
from tests.volumes import smooth_head


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_an_edge_is_as_wide_as_a_gaussian_of_two_voxels(axis):
    """The gradient of a step is the kernel: `exp(-d^2 / 8)` at a distance of `d` voxels."""
    step = torch.zeros(24, 24, 24)
    step.movedim(axis, 0)[12:] = 100.0
    strength = edge_strength(step, torch.ones_like(step, dtype=torch.bool)).movedim(axis, 0)[:, 12, 12]
    distance = torch.arange(24) - 11.5
    near = distance.abs() < 5
    expected = torch.exp(-(distance**2) / 8)
    torch.testing.assert_close((strength / strength.max())[near], (expected / expected.max())[near], rtol=0, atol=0.02)


def test_air_does_not_move_the_head():
    volume = smooth_head()
    for margin in (4, 12):
        wide = torch.nn.functional.pad(volume, [margin] * 6)
        inner = (slice(margin, -margin),) * 3
        assert torch.equal(head_mask(wide)[inner], head_mask(volume))
        assert head_mask(wide).sum() == head_mask(volume).sum()


def test_head_mask_is_the_filled_head():
    grid = torch.stack(torch.meshgrid(*(torch.arange(n) - (n - 1) / 2 for n in (32, 36, 40)), indexing="ij"))
    radius = grid.square().sum(0).sqrt()
    truth = torch.where(radius < 14, 100.0 + radius / 100, 1.0)  # tissue is never of one value
    truth[radius < 9] = 0.0  # a dark inside
    truth[0, 0, 0] = 100.0  # a bright speck in the air
    assert torch.equal(head_mask(truth), radius < 14)
    assert torch.equal(head_mask(truth * 7 + 50), radius < 14)


def test_the_head_begins_at_a_tenth_of_its_range():
    truth = torch.zeros(20, 20, 20)
    tissue_there = 100.0 + torch.linspace(0, 1, 500).reshape(10, 10, 5)
    truth[5:15, 5:15, 5:10], truth[5:15, 5:15, 10:12], truth[5:15, 5:15, 3:5] = tissue_there, 11.0, 9.0
    assert torch.equal(head_mask(truth), truth > 10.1)


def test_head_mask_fills_what_is_open_at_the_border():
    grid = torch.stack(torch.meshgrid(*(torch.arange(32) - 15.5 for _ in range(3)), indexing="ij"))
    radius = grid[:2].square().sum(0).sqrt()  # a tube along the last axis, open at both ends
    assert torch.equal(head_mask(((radius < 12) & (radius > 8)).float()), radius < 12)


@pytest.mark.parametrize("order", [(1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_the_head_is_the_same_however_the_array_is_stored(order):
    """Holes of one direction that are filled first close those of the next."""
    noise = ndimage.gaussian_filter(np.random.default_rng(0).normal(size=(24, 28, 32)), 1.5)
    volume = torch.from_numpy(np.where(noise > 0, 500 + 100 * noise, 0)).float()
    head = head_mask(volume)
    assert head.float().mean() > (volume > 0).float().mean() + 0.05
    assert torch.equal(head_mask(volume.permute(order)), head.permute(order))
    assert torch.equal(head_mask(volume.flip(0, 2)), head.flip(0, 2))


def test_flat_tissue_is_the_half_of_the_head_without_edges():
    place = torch.stack(torch.meshgrid(*(torch.arange(n) - (n - 1) / 2 for n in (32, 36, 40)), indexing="ij"))
    head, left = place.square().sum(0).sqrt() < 14, place[0] < -3
    texture = 60 * torch.rand(head.shape, generator=torch.Generator().manual_seed(0))
    truth = torch.where(head, 100.0 + texture * (place[0] > 0), 0.0)
    flat = flat_tissue(truth)
    assert flat.sum().item() == pytest.approx(head.sum().item() / 2, rel=0.01) and not (flat & ~head).any()
    assert flat[left & (place.square().sum(0).sqrt() < 7)].all()
    assert (flat_tissue(3 * truth + 20) != flat).float().mean() < 1e-3  # but for ties at the median
