"""Laws of the rectified flow: path, Euler's method through `Drift`, and the distribution of training times."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from scripts.method import flow, networks, schedule


class Identity(nn.Module):
    """A stage 1 that returns its image."""

    def forward(self, image, thickness, rows, guide, guide_slices, guide_share):
        return image


class Field(nn.Module):
    """A velocity that is a given function of state and time."""

    def __init__(self, velocity):
        super().__init__()
        self.velocity = velocity

    def modulation(self, thickness, t):
        return t[:, None]

    def at(self, xt, modulation):
        return self.velocity(xt, modulation[:, 0])


def constant(v):
    return Field(lambda xt, t: v)


decay = Field(lambda xt, t: -xt)  # its flow ends at x / e


def images(count=2, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 1, 4, 6, generator=generator, dtype=dtype)


def integrate(velocity, x, times, **given):
    return networks.Drift(Identity(), velocity)(x, torch.ones(1, 2, dtype=x.dtype), times.to(x), **given)


def distribution(t, alpha):
    """Integral of the density `alpha |2t - 1|^(alpha - 1)` from 0 to `t`."""
    return 0.5 + 0.5 * torch.sign(t - 0.5) * (2 * t - 1).abs() ** alpha


def test_path_starts_at_x0_and_ends_at_x1():
    """Each sample at a time of its own."""
    x0, x1 = images(3, seed=1), images(3, seed=2)
    xt = flow.state_at(x0, x1, torch.tensor([0.0, 0.25, 1.0], dtype=x0.dtype))
    assert torch.equal(xt[0], x0[0]) and torch.equal(xt[2], x1[2])
    torch.testing.assert_close(xt[1], 0.75 * x0[1] + 0.25 * x1[1])


def test_target_velocity_is_the_paths_derivative_at_all_times():
    x0, x1 = images(seed=1), images(seed=2)
    for value in (0.0, 0.3, 0.9):
        before, after = (flow.state_at(x0, x1, torch.full((2,), t, dtype=x0.dtype)) for t in (value, value + 0.1))
        torch.testing.assert_close((after - before) / 0.1, flow.target_velocity(x0, x1))


def test_target_velocity_ends_at_x1():
    x0, x1 = images(seed=1), images(seed=2)
    torch.testing.assert_close(flow.endpoint(x0, flow.target_velocity(x0, x1)), x1)


def test_one_euler_step_over_the_whole_interval_is_the_endpoint():
    x0, v = images(seed=1), images(seed=2)
    torch.testing.assert_close(flow.euler_step(x0, v, torch.zeros(()), torch.ones(())), flow.endpoint(x0, v))


@pytest.mark.parametrize("steps", [1, 2, 3, 8, 13, 15])
def test_euler_is_exact_on_constant_fields(steps):
    x, v = images(seed=1), images(seed=2)
    torch.testing.assert_close(integrate(constant(v), x, schedule.euler_times(steps)), x + v, rtol=0, atol=1e-6)


def test_euler_converges_with_first_order():
    x = images()
    exact = x * math.exp(-1)
    counts = (10, 20, 40, 80, 160)
    times = [torch.linspace(0, 1, count + 1, dtype=torch.float64) for count in counts]
    errors = [(integrate(decay, x, t) - exact).abs().max().item() for t in times]
    for coarse, fine in pairwise(errors):
        assert coarse / fine == pytest.approx(2, rel=0.06)


def test_a_factor_on_the_velocity_leads_as_far_as_a_longer_time():
    """A field that knows no time: three times the velocity to 1 is the velocity to 3."""
    x, times = images(), schedule.euler_times(7)
    faster = integrate(decay, x, times, factor=3.0)
    torch.testing.assert_close(faster, integrate(decay, x, 3 * times))
    torch.testing.assert_close(integrate(decay, x, times, factor=1.0), integrate(decay, x, times), rtol=0, atol=0)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5, 2.0, 3.0])
def test_times_have_the_density_of_eq_10(alpha):
    count = 20_000
    r = torch.rand(count, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    t = flow.endpoint_biased(r, alpha).sort().values
    assert 0 <= t[0] and t[-1] <= 1
    ranks = torch.arange(count + 1, dtype=torch.float64) / count
    expected = distribution(t, alpha)
    distance = torch.maximum((expected - ranks[:-1]).abs(), (expected - ranks[1:]).abs()).max().item()
    assert distance < 1.63 / math.sqrt(count)  # Kolmogorov-Smirnov, 1 %


def test_alpha_one_is_uniform():
    r = torch.rand(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(flow.endpoint_biased(r, 1.0), 1 - r)


@pytest.mark.parametrize(
    ("r", "t"), [(0.0, 1.0), (1.0, 0.0), (0.5, 0.5), (0.32, 0.8), (0.68, 0.2), (0.02, 0.5 + 0.5 * math.sqrt(0.96))]
)
def test_worked_times_at_alpha_two(r, t):
    value = flow.endpoint_biased(torch.tensor([r], dtype=torch.float64), 2.0)
    assert value.item() == pytest.approx(t, abs=1e-12)


@pytest.mark.parametrize("alpha", [0.0, -2.0, math.nan])
def test_impossible_alpha_is_named(alpha):
    with pytest.raises(ValueError, match=f"alpha is {alpha}"):
        flow.endpoint_biased(torch.rand(3), alpha)
