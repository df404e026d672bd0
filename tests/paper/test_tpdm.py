"""TPDM: samples under priors that are known exactly, and its parameters."""

import pytest
import torch
from torch import nn

from scripts.paper.baselines.tpdm import (
    LARGEST_SD,
    Tpdm,
    TpdmInferer,
    noise_level,
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


def test_parameters():
    with torch.device("meta"):
        small = parser("train.yaml", "paper/baselines/tpdm.yaml").get_parsed_content("network_def")
    assert sum(p.numel() for p in small.parameters()) == 2 * 2_160_769
