"""Laws of the head's mask, of edges and of flat tissue."""

import pytest
import torch

from scripts.stack.tissue import edge_strength, flat_tissue, head_mask
from tests.volumes import smooth_head


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1e20])
def test_units_change_nothing(scale):
    volume = smooth_head()
    assert torch.equal(head_mask(scale * volume), head_mask(volume))
    assert (flat_tissue(scale * volume) != flat_tissue(volume)).float().mean() < 1e-3
    head = head_mask(volume)
    torch.testing.assert_close(edge_strength(scale * volume, head), edge_strength(volume, head), rtol=1e-3, atol=1e-5)


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
    for margin in (4, 40):
        wide = torch.nn.functional.pad(volume, [margin] * 6)
        inner = (slice(margin, -margin),) * 3
        assert torch.equal(head_mask(wide)[inner], head_mask(volume))
        assert head_mask(wide).sum() == head_mask(volume).sum()
