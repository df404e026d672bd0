"""AFCM: its parameters, and slices that come from the four around them."""

import pytest
import torch
from monai.networks.nets import PatchDiscriminator

from scripts.paper.baselines.afcm import Afcm, AfcmInferer, Generator
from scripts.stack.acquisition import Acquisition
from scripts.stack.slices import Slices
from tests.config_files import parser


def tiny(seed=0):
    torch.manual_seed(seed)
    discriminator = PatchDiscriminator(spatial_dims=2, channels=4, in_channels=6, num_layers_d=1, norm="INSTANCE")
    return Afcm(Generator((4, 8), 8, 8), discriminator).eval()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_each_slice_comes_from_the_four_around_it_and_the_outermost_stands_for_those_missing(axis):
    network, thick = tiny(), torch.rand(3, 8, 9) * 2 - 1
    acquisition = Acquisition.stack(axis, 3, spacing=4.0, thickness=4.0, target=1.0)
    slices = Slices(thick.movedim(0, axis), acquisition)
    result = AfcmInferer(seed=3).fine(slices, network, None)[0]
    z = torch.randn(12, 8, generator=torch.Generator().manual_seed(3))
    for k, position in enumerate(acquisition.fine_rows.clip(0, 2)):
        around = [thick[min(max(n, 0), 2)] for n in range(int(position) - 1, int(position) + 3)]
        with torch.no_grad():
            expected = network(torch.stack(around)[None], torch.tensor([position % 1]).float(), z[k : k + 1])[0, 0]
        torch.testing.assert_close(result.movedim(axis, 0)[k], expected)


def test_parameters():
    with torch.device("meta"):
        small = parser("train.yaml", "paper/baselines/afcm.yaml").get_parsed_content("network_def")
    assert sum(p.numel() for p in small.generator.parameters()) == 661_425
    assert sum(p.numel() for p in small.discriminator.parameters()) == 175_633
