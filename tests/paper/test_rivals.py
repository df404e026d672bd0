"""Laws of single rivals against plain loops, oracles and exact priors, and the published counts of parameters."""

import pytest
import torch
from monai.networks.nets import PatchDiscriminator
from torch import nn

from scripts.paper.baselines.afcm import Afcm, AfcmInferer, Generator
from scripts.paper.baselines.arssr import ArSSR
from scripts.paper.baselines.liif import LIIF
from scripts.paper.baselines.lte import LTE
from scripts.paper.baselines.resshift import ResShift, shifts
from scripts.paper.baselines.sainr import SAINR
from scripts.paper.baselines.saint import Saint, places, slabs
from scripts.paper.baselines.swinir import SwinIR
from scripts.paper.baselines.tpdm import LARGEST_SD, Tpdm, TpdmInferer, noise_level
from scripts.stack.acquisition import Acquisition
from scripts.stack.slices import Slices
from tests.config_files import parser


def of(name):
    return parser("train.yaml", f"paper/baselines/{name}.yaml").get_parsed_content("network_def")


PARAMETERS = {  # parts of a network without memory: the published counts, or those of the compared size
    "LIIF": (lambda: [LIIF(64, 16, 256)], [1_499_841]),
    "LTE": (lambda: [LTE(64, 16, 256)], [1_712_577]),
    "ArSSR": (lambda: [ArSSR(64, 8, 3, 128, 256)], [6_283_460]),
    "SA-INR": (lambda: [SAINR(64, 12, 256)], [2_994_945]),
    "SwinIR": (lambda: [SwinIR(96, (6, 6, 6, 6), 6)], [3_133_969]),
    "ResShift": (lambda: [of("resshift")], [4_561_121]),
    "TPDM": (lambda: [of("tpdm")], [2 * 2_160_769]),
    "AFCM": (lambda: [(n := of("afcm")).generator, n.discriminator], [661_425, 175_633]),
    "SAINT": (
        lambda: [(n := Saint(64, (6, 8, 32), (4, 6, 12))).trunk, n.filters, n.fusion, of("saint")],
        [2_658_112, 129_600, 371_105, 451_425],
    ),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_compared_sizes_have_the_published_parameters(name):
    make, expected = PARAMETERS[name]
    with torch.device("meta"):
        assert [sum(p.numel() for p in part.parameters()) for part in make()] == expected


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_slice_of_afcm_comes_from_the_four_around_it_and_the_outermost_stands_for_those_missing(axis):
    torch.manual_seed(0)
    discriminator = PatchDiscriminator(spatial_dims=2, channels=4, in_channels=6, num_layers_d=1, norm="INSTANCE")
    network, thick = Afcm(Generator((4, 8), 8, 8), discriminator).eval(), torch.rand(3, 8, 9) * 2 - 1
    acquisition = Acquisition.stack(axis, 3, spacing=4.0, thickness=4.0, target=1.0)
    result = AfcmInferer(seed=3).fine(Slices(thick.movedim(0, axis), acquisition), network, None)[0]
    z = torch.randn(12, 8, generator=torch.Generator().manual_seed(3))
    for k, position in enumerate(acquisition.fine_rows.clip(0, 2)):
        around = [thick[min(max(n, 0), 2)] for n in range(int(position) - 1, int(position) + 3)]
        with torch.no_grad():
            expected = network(torch.stack(around)[None], torch.tensor([position % 1]).float(), z[k : k + 1])[0, 0]
        torch.testing.assert_close(result.movedim(axis, 0)[k], expected)


ROOTS = {  # sqrt(eta) as published: steps, least noise -> values
    (15, 0.04): ".0200 .1172 .1763 .2336 .2916 .3510 .4124 .4759 .5417 .6099 .6807 .7540 .8300 .9086 .9900",
    (4, 0.2): ".1000 .5201 .7614 .9900",
}


@pytest.mark.parametrize("steps, least", ROOTS)
def test_the_schedule_of_resshift_is_the_published_one(steps, least):
    eta, roots = shifts(steps, kappa=2.0, least=least), ROOTS[steps, least].split()
    assert eta[0] == 0
    torch.testing.assert_close(eta[1:].sqrt(), torch.tensor([float(v) for v in roots]), atol=5e-5, rtol=0)


class Oracle(nn.Module):
    """Knows the sharp image, whatever it is shown."""

    def __init__(self, sharp):
        super().__init__()
        self.sharp = sharp

    def forward(self, x, timesteps):
        return self.sharp.expand(len(x), -1, -1, -1)


def test_with_an_oracle_the_chain_of_resshift_returns_the_sharp_image_exactly():
    sharp, y = torch.rand(1, 1, 8, 8) * 2.5 - 1, torch.rand(3, 1, 8, 8)
    found = ResShift(Oracle(sharp)).sample(y, torch.randn(15, 3, 1, 8, 8))
    torch.testing.assert_close(found, sharp.expand(3, -1, -1, -1), atol=0, rtol=0)


def test_new_slices_of_saint_are_filtered_features_of_the_nearest_measured_ones():
    """Twelve new slices of four, of which the first lies on a measured one, against plain loops."""
    torch.manual_seed(0)
    network, thick, spacing = Saint(8, (1, 2, 4), (1, 2, 4)).eval(), torch.rand(1, 5, 6, 4), torch.tensor([4.0])
    nearest, offset = places((torch.arange(12) / 3)[None], 4, spacing)
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


def test_swinir_adds_to_its_input_what_it_sees_within_reach_of_its_windows():
    torch.manual_seed(0)
    network = SwinIR(8, (2,), 2).eval()
    image = torch.randn(1, 1, 64, 64)
    changed = image.clone()
    changed[0, 0, 32, 32] += 1
    with torch.no_grad():
        difference = (network(changed) - network(image))[0, 0].abs()
        torch.nn.init.zeros_(network.conv_out.weight)
        torch.nn.init.zeros_(network.conv_out.bias)
        assert torch.equal(network(image), image)
    assert difference[32, 32] > 0.1
    assert difference[:8].max() == difference[:, -8:].max() == 0


class Gaussian(nn.Module):
    """The noise in planes whose pixels are independent, N(mean, sd^2), less what the prior guesses."""

    def __init__(self, mean, sd):
        super().__init__()
        self.mean, self.sd = mean, sd

    def forward(self, x, timesteps):
        level = noise_level(timesteps / 1000).view(-1, 1, 1, 1)
        planes = (x + 1) / 2
        return level * (planes - self.mean) / (level**2 + self.sd**2) - planes * level / (level**2 + LARGEST_SD**2)


def test_guidance_of_tpdm_reproduces_the_measurement_and_keeps_a_prior_that_is_known():
    """The paper's measurement: means of adjacent slices."""
    torch.manual_seed(0)
    y, matrix = 0.5 + 0.1 * torch.randn(12, 16, 4), torch.eye(4).repeat_interleave(4, dim=1) / 4
    exact = Tpdm(Gaussian(0.5, 0.2), Gaussian(0.5, 0.2))
    guided, alone = (TpdmInferer(steps=100, strength=strength).sample(exact, y, matrix) for strength in (20.0, 0.0))
    rmse, unguided = ((x @ matrix.T - y).square().mean().sqrt().item() for x in (guided, alone))
    assert rmse < 0.35 * unguided and guided.std().item() == pytest.approx(0.2, abs=0.02)
