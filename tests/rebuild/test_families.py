"""Laws of the weights that make one volume of two families of planes."""

import math

import numpy as np
import pytest
import torch

from scripts.rebuild.families import weigh_families
from tests.loops import weighed_by_loop

SHAPE = (12, 15, 6)
SPACING = np.array([0.8, 1.2, 1.0])  # mm


def noise(count, shape=SHAPE, seed=0):
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def weighed(first, second, axes=(0, 1), slice_spacing=5.0):
    return weigh_families((first, second), axes, SPACING[list(axes)], slice_spacing)


@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (0, 2), (2, 1)])
def test_agreement_with_a_plain_sum_of_cosines(axes):
    first, second = noise(2)
    expected = weighed_by_loop([first, second], axes, SPACING[list(axes)], 5.0)
    torch.testing.assert_close(weighed(first, second, axes), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("frequency", "weight"), [(0.2, 0.9), (0.02, 0.519), (0.0, 0.5)])
def test_a_family_gives_most_of_what_varies_along_its_planes(frequency, weight):
    """The example of the docstring: cosines of a whole number of half waves, 1 mm apart."""
    count = 200
    line = torch.cos(2 * math.pi * frequency * (torch.arange(count) + 0.5))
    pattern, nothing = line[:, None, None].expand(count, 5, 4), torch.zeros(count, 5, 4)
    along, across = (weigh_families(pair, (0, 1), np.ones(2), 5.0) for pair in ((pattern, nothing), (nothing, pattern)))
    torch.testing.assert_close(along, weight * pattern, rtol=0, atol=1e-3)
    torch.testing.assert_close(across, (1 - weight) * pattern, rtol=0, atol=1e-3)


@pytest.mark.parametrize("shape", [(1, 1, 5), (1, 9, 5), (7, 1, 5)])
def test_single_lines_of_voxels_are_volumes_too(shape):
    first, second = noise(2, shape)
    result = weighed(first, second)
    assert result.shape == first.shape and np.isfinite(result.numpy()).all()
