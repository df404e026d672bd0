"""SAINT: filters come from distances alone, slices from the planes around; the parameters are the published ones."""

import numpy as np
import pytest
import torch
from torch import nn

from scripts.paper.baselines.saint import FilterNetwork, Saint, SaintInferer, places, slabs
from scripts.stack.acquisition import Acquisition
from tests.config_files import parser


def tiny(seed=0):
    torch.manual_seed(seed)
    return Saint(8, (1, 2, 4), (1, 2, 4)).eval()


def where(slices, factor, spacing=(4.0,)):
    """Places of `slices * factor` new slices, of which the first lies on a measured one."""
    spacing = torch.tensor(spacing)
    position = (torch.arange(slices * factor) / factor).expand(len(spacing), -1)
    return *places(position, slices, spacing), spacing


class Distance(nn.Module):
    """The distances themselves, as filters of one feature."""

    def forward(self, distance):
        return distance


def test_filters_see_distances_in_mm():
    filters = FilterNetwork(1)
    filters.layers = Distance()
    seen = filters(torch.tensor([[0.0, 1.5]]), torch.tensor([4.0]), torch.tensor([0.8]))[0, :, 0]
    for offset, distances in zip((0.0, 1.5), seen):
        for i in range(3):
            for j in range(3):
                expected = ((offset - (i - 1) * 4.0) ** 2 + ((j - 1) * 0.8) ** 2) ** 0.5
                assert abs(distances[i, j].item() - expected) < 1e-5


def test_places_are_counted_from_the_nearest_measured_slice_and_beyond_the_outermost():
    nearest, offset = places(torch.tensor([[-0.75, 0.0, 0.5, 1.25, 3.5]]), 4, torch.tensor([4.0]))
    assert nearest.tolist() == [[0, 0, 1, 1, 3]]
    torch.testing.assert_close(offset, torch.tensor([[-3.0, 0.0, -2.0, 1.0, 2.0]]))


def test_new_slices_are_filtered_features_of_the_nearest_measured_ones():
    """Against plain loops."""
    network, thick = tiny(), torch.rand(1, 5, 6, 4)
    nearest, offset, spacing = where(4, 3)
    pixel = torch.tensor([1.0])
    with torch.no_grad():
        result = network.marginal(slabs(thick), nearest, offset, spacing, pixel)
        filters = network.filters(offset, spacing, pixel)[0]
        for plane in range(5):
            slab = thick[:, [max(plane - 1, 0), plane, min(plane + 1, 4)]]
            features = nn.functional.pad(network.trunk(slab), (1, 1, 1, 1))[0]
            for k in range(12):
                m = nearest[0, k].item()
                for w in range(6):
                    window = features[:, w : w + 3, m : m + 3].transpose(1, 2)
                    torch.testing.assert_close(result[0, plane, w, k], (filters[k] * window).sum())


def test_both_families_are_one_network_and_commute_with_transposing():
    network, thick = tiny(), torch.rand(2, 1, 6, 5, 4)
    arguments = *where(4, 2, (4.0, 5.0)), torch.tensor([1.0, 0.7])
    with torch.no_grad():
        views = network(thick, *arguments)
        swapped = network(thick.transpose(2, 3), *arguments)
    assert views.shape == (2, 3, 6, 5, 8)
    torch.testing.assert_close(views[:, 0], swapped[:, 1].transpose(1, 2))
    torch.testing.assert_close(views[:, 1], swapped[:, 0].transpose(1, 2))


def test_fusion_starts_from_the_mean_and_sends_no_gradient_to_the_planes():
    network, thick = tiny(), torch.rand(1, 1, 6, 6, 4)
    views = network(thick, *where(4, 2), torch.ones(1))
    views[:, 2].sum().backward()
    assert not any(p.grad.any() for part in (network.trunk, network.filters) for p in part.parameters())
    for parameter in network.fusion[-1].parameters():
        nn.init.zeros_(parameter)
    slices = torch.rand(3, 2, 6, 6)
    torch.testing.assert_close(network.fuse(slices), slices.mean(1, keepdim=True))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_stack_is_rebuilt_as_training_sees_it_whatever_its_axis_and_however_many_planes_a_call_takes(
    axis, monkeypatch
):
    network, thick = tiny(), torch.rand(6, 5, 4) * 2 - 1
    acquisition = Acquisition.stack(axis, 4, 4.0, 4.0, 1.0)
    position = torch.from_numpy(acquisition.fine_rows).float()[None]
    spacing = torch.tensor([4.0])
    with torch.no_grad():
        expected = network(thick[None, None], *places(position, 4, spacing), spacing, torch.ones(1))[0, 2]
        stack = thick.movedim(-1, axis)
        for pixels in (10**6, 1):
            monkeypatch.setattr("scripts.paper.baselines.stacks.PIXELS_PER_CALL", pixels)
            result = SaintInferer().fine(stack, acquisition, np.ones(3), network, torch.device("cpu"))[0]
            torch.testing.assert_close(result.movedim(axis, -1), expected)


def test_parameters():
    def count(*parts):
        return sum(p.numel() for part in parts for p in part.parameters())

    with torch.device("meta"):
        published = Saint(64, (6, 8, 32), (4, 6, 12))
        nearest = Saint(64, (10, 8, 32), (4, 6, 12))
        small = parser("train.yaml", "paper/baselines/saint.yaml").get_parsed_content("network_def")
    assert [count(p) for p in (published.trunk, published.filters, published.fusion)] == [2_658_112, 129_600, 371_105]
    assert count(nearest.trunk, nearest.filters) == 4_509_312  # the paper's table: 4.5 M
    assert count(small) == 451_425
