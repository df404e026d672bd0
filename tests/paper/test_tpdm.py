"""TPDM: the measurement, the priors' loss, and samples under priors that are known exactly."""

import pytest
import torch
from monai.networks.nets import DiffusionModelUNet
from torch import nn

from scripts.paper.baselines.tpdm import (
    LARGEST_SD,
    Tpdm,
    TpdmBatch,
    TpdmInferer,
    corrected,
    noise_level,
    predicted,
)
from tests.config_files import parser


class Gaussian(nn.Module):
    """The noise in planes whose pixels are independent, N(mean, sd^2), less what the prior guesses."""

    def __init__(self, mean, sd):
        super().__init__()
        self.mean, self.sd = mean, sd

    def forward(self, x, timesteps):
        level = noise_level(timesteps / 1000).view(-1, 1, 1, 1)
        planes = (x + 1) / 2
        return level * (planes - self.mean) / (level**2 + self.sd**2) - planes * level / (level**2 + LARGEST_SD**2)


def exact(mean=0.5, sd=0.2):
    return Tpdm(Gaussian(mean, sd), Gaussian(mean, sd))


def block_means(factor, count):
    """The paper's measurement, means of adjacent slices: `(count // factor, count)`."""
    return torch.eye(count // factor).repeat_interleave(factor, dim=1) / factor


def test_noise_grows_geometrically_between_the_published_levels():
    levels = noise_level(torch.linspace(0, 1, 5))
    torch.testing.assert_close(levels[[0, -1]], torch.tensor([0.01, 378.0]))
    torch.testing.assert_close(levels[1:] / levels[:-1], torch.full((4,), 37800**0.25))


def test_the_batch_is_noise_of_all_levels():
    sharp = torch.rand(64, 1, 8, 8) * 2 - 1
    torch.manual_seed(0)
    x, noise, (t,), _ = TpdmBatch()({"label": sharp})
    torch.testing.assert_close(x - noise_level(t).view(-1, 1, 1, 1) * noise, (sharp + 1) / 2, atol=1e-4, rtol=0)
    assert 0 <= t.min() < 0.1 and 0.9 < t.max() <= 1


def test_training_halves_the_batch_between_the_priors():
    network, x, t = Tpdm(Gaussian(0.1, 0.1), Gaussian(0.9, 0.1)), torch.rand(5, 1, 8, 8), torch.rand(5)
    noise = network(x, t)
    torch.testing.assert_close(noise[:3], network.primary(x[:3], t[:3]))
    torch.testing.assert_close(noise[3:], network.auxiliary(x[3:], t[3:]))
    assert not torch.allclose(noise[3:], network.primary(x[3:], t[3:]))


def test_the_last_prediction_takes_all_noise_away():
    x0, noise = torch.rand(2, 1, 4, 4), torch.randn(2, 1, 4, 4)
    torch.testing.assert_close(predicted(x0 + 0.3 * noise, -noise / 0.3, 0.3, 0.0), x0)


def test_a_prior_that_has_learned_nothing_moves_planes_by_a_bounded_step():
    """Its score is nearly 0, to whose inverse the corrector's step is proportional."""
    noise, level = torch.randn(2, 1, 8, 8), 0.3
    right, none = (corrected(torch.zeros_like(noise), share * noise / level, noise, level) for share in (1.0, 1e-6))
    assert right.norm() < none.norm() < 1.01 * 2 * 0.16 * (level**2 + 0.25) ** 0.5 * noise.norm()


def test_priors_that_have_learned_nothing_make_volumes_of_the_size_of_images():
    """MONAI's U-Net begins with zeros; its noise grows to 378."""
    small = DiffusionModelUNet(
        2, 1, 1, channels=(8, 8), num_res_blocks=1, attention_levels=(False, False), norm_num_groups=4
    )
    matrix = block_means(4, 32)
    y = torch.rand(8, 24, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        volume = TpdmInferer(steps=10, strength=20.0).sample(Tpdm(small, small), y, matrix)
    assert volume.abs().max() < 3


def test_without_guidance_samples_are_of_the_prior():
    x = TpdmInferer(steps=300, strength=0.0).sample(exact(), torch.zeros(16, 16, 4), block_means(4, 16))
    assert x.mean().item() == pytest.approx(0.5, abs=0.03)
    assert x.std().item() == pytest.approx(0.2, abs=0.02)


def test_guidance_reproduces_the_measurement_and_keeps_the_prior():
    torch.manual_seed(0)
    y, matrix = 0.5 + 0.1 * torch.randn(12, 16, 4), block_means(4, 16)

    def sample(strength):
        return TpdmInferer(steps=100, strength=strength).sample(exact(), y, matrix)

    def rmse(x):
        return (x @ matrix.T - y).square().mean().sqrt().item()

    guided = sample(20.0)
    assert rmse(guided) < 0.35 * rmse(sample(0.0))
    assert guided.std().item() == pytest.approx(0.2, abs=0.02)


def test_the_seed_decides_and_the_number_of_planes_in_a_call_does_not(monkeypatch):
    y, matrix = torch.rand(6, 8, 3), block_means(3, 9)

    def sample(seed):
        return TpdmInferer(steps=6, seed=seed).sample(exact(), y, matrix)

    first = sample(1)
    assert torch.equal(first, sample(1)) and not torch.allclose(first, sample(2))
    monkeypatch.setattr("scripts.paper.baselines.tpdm.PIXELS_PER_CALL", 1)
    torch.testing.assert_close(sample(1), first)


def test_parameters():
    """Of the small priors, and of MONAI's nearest to the published one (61.4 M; the paper's table: 44.1 M)."""
    with torch.device("meta"):
        small = parser("train.yaml", "paper/baselines/tpdm.yaml").get_parsed_content("network_def")
        large = DiffusionModelUNet(
            2,
            1,
            1,
            channels=(128, 256, 256, 256),
            num_res_blocks=3,
            attention_levels=(False,) * 4,
            num_head_channels=64,
        )
    assert sum(p.numel() for p in small.parameters()) == 2 * 2_160_769
    assert sum(p.numel() for p in large.parameters()) == 45_366_657
