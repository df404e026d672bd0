"""ResShift: its schedule to the printed digits, what an oracle makes of it, its parameters."""

import pytest
import torch
from torch import nn

from scripts.paper.baselines.resshift import ResShift, shifts
from tests.config_files import parser

ROOTS = {  # sqrt(eta) as published: steps, least noise -> values
    (15, 0.04): ".0200 .1172 .1763 .2336 .2916 .3510 .4124 .4759 .5417 .6099 .6807 .7540 .8300 .9086 .9900",
    (4, 0.2): ".1000 .5201 .7614 .9900",
}


class Oracle(nn.Module):
    """Knows the sharp image, whatever it is shown."""

    def __init__(self, sharp):
        super().__init__()
        self.sharp = sharp

    def forward(self, x, timesteps):
        return self.sharp.expand(len(x), -1, -1, -1)


@pytest.mark.parametrize("steps, least", ROOTS)
def test_the_schedule_is_the_published_one(steps, least):
    eta = shifts(steps, kappa=2.0, least=least)
    assert eta[0] == 0
    torch.testing.assert_close(
        eta[1:].sqrt(), torch.tensor([float(v) for v in ROOTS[steps, least].split()]), atol=5e-5, rtol=0
    )


def test_with_an_oracle_the_chain_returns_the_sharp_image_exactly():
    sharp, y = torch.rand(1, 1, 8, 8) * 2.5 - 1, torch.rand(3, 1, 8, 8)
    chain = ResShift(Oracle(sharp))
    torch.testing.assert_close(
        chain.sample(y, torch.randn(15, 3, 1, 8, 8)), sharp.expand(3, -1, -1, -1), atol=0, rtol=0
    )


def test_parameters():
    with torch.device("meta"):
        small = parser("train.yaml", "paper/baselines/resshift.yaml").get_parsed_content("network_def")
    assert sum(p.numel() for p in small.parameters()) == 4_561_121
