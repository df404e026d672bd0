"""SAINT: new slices are filtered features of the nearest measured ones; the parameters are the published ones."""

import torch
from torch import nn

from scripts.paper.baselines.saint import Saint, places, slabs
from tests.config_files import parser


def tiny(seed=0):
    torch.manual_seed(seed)
    return Saint(8, (1, 2, 4), (1, 2, 4)).eval()


def where(slices, factor, spacing=(4.0,)):
    """Places of `slices * factor` new slices, of which the first lies on a measured one."""
    spacing = torch.tensor(spacing)
    position = (torch.arange(slices * factor) / factor).expand(len(spacing), -1)
    return *places(position, slices, spacing), spacing


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
