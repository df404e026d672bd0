"""ResShift: its schedule to the printed digits, the marginals of its chain, and what an oracle makes of it."""

import pytest
import torch
from monai.networks.nets import DiffusionModelUNet
from torch import nn

from scripts.paper.baselines.resshift import ResShift, ResShiftBatch, shifts
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


def test_the_chain_begins_at_the_sharp_image_and_has_its_marginals():
    chain, (x0, y) = ResShift(nn.Identity()), torch.randn(2, 20000, 1, 1, 1)
    same = torch.zeros(20000, dtype=torch.long)
    torch.testing.assert_close(chain.shift(x0, y, same, torch.randn_like(x0)), x0)
    x0, y = torch.full_like(x0, 0.3), torch.full_like(x0, -0.5)
    for t in (1, 8, 15):
        x = chain.shift(x0, y, same + t, torch.randn_like(x0))
        eta = chain.eta[t].item()
        assert x.mean().item() == pytest.approx(0.3 - 0.8 * eta, abs=4 * 2 * eta**0.5 / 20000**0.5)
        assert x.std().item() == pytest.approx(2 * eta**0.5, rel=0.03)


def test_a_step_back_from_one_marginal_ends_in_the_next():
    """The posterior agrees with the forward chain (Eqs. 2 and 7)."""
    chain, x0, y = ResShift(nn.Identity()), torch.full((20000, 1, 1, 1), 0.3), torch.full((20000, 1, 1, 1), -0.5)
    t = torch.full((20000,), 9)
    x = chain.reverse(chain.shift(x0, y, t, torch.randn_like(x0)), x0, t, torch.randn_like(x0))
    eta = chain.eta[8].item()
    assert x.mean().item() == pytest.approx(0.3 - 0.8 * eta, abs=4 * 2 * eta**0.5 / 20000**0.5)
    assert x.std().item() == pytest.approx(2 * eta**0.5, rel=0.03)


def test_with_an_oracle_the_chain_returns_the_sharp_image_exactly():
    sharp, y = torch.rand(1, 1, 8, 8) * 2.5 - 1, torch.rand(3, 1, 8, 8)
    chain = ResShift(Oracle(sharp))
    torch.testing.assert_close(
        chain.sample(y, torch.randn(15, 3, 1, 8, 8)), sharp.expand(3, -1, -1, -1), atol=0, rtol=0
    )


def test_a_batch_holds_states_of_the_chain_and_the_sharp_planes():
    chain = ResShift(nn.Identity())
    batch = {"image": torch.rand(6, 1, 8, 8), "label": torch.rand(6, 1, 8, 8)}
    torch.manual_seed(0)
    xt, target, (y, t), _ = ResShiftBatch(chain)(batch)
    assert torch.equal(target, batch["label"]) and torch.equal(y, batch["image"])
    assert 1 <= t.min() and t.max() <= 15
    noise = (xt - chain.shift(target, y, t, torch.zeros_like(y))) / (2 * chain.eta[t].sqrt().view(-1, 1, 1, 1))
    assert abs(noise.mean().item()) < 0.2 and noise.std().item() == pytest.approx(1, abs=0.1)


def test_parameters():
    """Of the small network, and of MONAI's nearest to the published one (118.6 M)."""
    with torch.device("meta"):
        small = parser("train.yaml", "paper/baselines/resshift.yaml").get_parsed_content("network_def")
        large = DiffusionModelUNet(
            2, 2, 1, channels=(160, 320, 320, 640), attention_levels=(False, False, True, True), num_head_channels=32
        )
    assert sum(p.numel() for p in small.parameters()) == 4_561_121
    assert sum(p.numel() for p in large.parameters()) == 115_671_521
