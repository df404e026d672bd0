"""Laws of the objectives, one worked value each, and an SSIM written out as oracle."""

import math

import pytest
import torch

from scripts.method import flow, losses
from tests import paper_values as paper

EPSILON = 1e-3  # of the Charbonnier penalty


def images(count=1, size=4, seed=0, scale=0.3):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(count, 1, size, size, generator=generator, dtype=torch.float64)


def path(x0, x1, partner=()):
    """A path sample whose state and times play no part in the losses."""
    return flow.PathSample(x0, x0, x1, torch.zeros(len(x0)), torch.tensor(partner, dtype=torch.long))


def ssim_loss_by_loop(x, y, data_range=2.0, size=11, sigma=1.5):
    """1 - SSIM (Wang et al. 2004) of two `(H, W)` images, window by window."""
    line = torch.exp(-((torch.arange(size, dtype=torch.float64) - size // 2) ** 2) / (2 * sigma**2))
    window = line[:, None] * line[None, :]
    window = window / window.sum()
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    values = []
    for i in range(x.shape[0] - size + 1):
        for j in range(x.shape[1] - size + 1):
            a, b = x[i : i + size, j : j + size], y[i : i + size, j : j + size]
            mean_a, mean_b = (window * a).sum(), (window * b).sum()
            var_a, var_b = (window * (a - mean_a) ** 2).sum(), (window * (b - mean_b) ** 2).sum()
            cov = (window * (a - mean_a) * (b - mean_b)).sum()
            luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
            values.append(luminance * (2 * cov + c2) / (var_a + var_b + c2))
    return 1 - torch.stack(values).mean()


def test_charbonnier_worked_value():
    target = torch.zeros(2, dtype=torch.float64)
    prediction = torch.tensor([EPSILON * math.sqrt(3), 0.0], dtype=torch.float64)  # sqrt(3 + 1) - 1 = 1, and 0
    assert losses.charbonnier(prediction, target, EPSILON).item() == pytest.approx(0.5e-3, rel=1e-9)


def test_reconstruction_worked_value():
    x, y = torch.ones(1, 1, 12, 12), torch.zeros(1, 1, 12, 12)
    c1 = (0.01 * 2) ** 2
    expected = (math.sqrt(1 + EPSILON**2) - EPSILON) + 0.5 * (1 - (4 + c1) / (5 + c1))  # means 2 and 1 when shifted
    assert losses.ReconstructionLoss(0.5)(x, y).item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("level", [0.6, -0.7])
def test_ssim_agrees_with_a_plain_loop(level):
    x, y = level + images(1, 14, seed=1, scale=0.1), level + images(1, 14, seed=2, scale=0.1)
    value = losses.ReconstructionLoss(1.0)(x, y) - losses.charbonnier(x, y)
    expected = ssim_loss_by_loop(1 + x[0, 0], 1 + y[0, 0])
    assert value.item() == pytest.approx(expected.item(), abs=1e-4)


def test_flow_loss_is_zero_at_the_truth():
    x0, x1 = images(3, seed=1), images(3, seed=2)
    loss = losses.FlowLoss(paper.HUBER_DELTA, paper.CETA_WEIGHT)
    assert loss(x1 - x0, path(x0, x1)) == 0
    pair0, pair1 = torch.cat([x0, images(1, seed=3)]), torch.cat([x1, x1[1:2]])  # the pair shares its target
    assert loss(pair1 - pair0, path(pair0, pair1, [1])) == pytest.approx(0, abs=1e-30)
    assert loss(x0, path(x0, x1)) > 0


def test_flow_loss_worked_value():
    x0 = torch.zeros(2, 1, 1, 1, dtype=torch.float64)
    x1 = torch.ones(2, 1, 1, 1, dtype=torch.float64)
    v = torch.tensor([1.05, 1.5], dtype=torch.float64).view(2, 1, 1, 1)  # off by 0.05 < delta and by 0.5 > delta
    huber = (0.05**2 / 2 + 0.1 * (0.5 - 0.05)) / 2  # = 0.023125
    assert losses.FlowLoss(0.1, 1.0)(v, path(x0, x1)).item() == pytest.approx(0.023125, rel=1e-9)
    pair = (1.5 - 1.05) ** 2  # = 0.2025
    assert losses.FlowLoss(0.1, 2.0)(v, path(x0, x1, [0])).item() == pytest.approx(huber + 2 * pair, rel=1e-9)


def test_huber_is_quadratic_near_and_absolute_far():
    def value(difference, delta):
        zero = torch.zeros(1, 1, 1, 1, dtype=torch.float64)
        return losses.FlowLoss(delta, 1.0)(zero + difference, path(zero, zero)).item()

    assert value(0.01, 0.1) == pytest.approx(0.01**2 / 2, rel=1e-9)
    assert value(-50.0, 0.1) == pytest.approx(0.1 * 50, rel=2e-3)
    assert value(-50.0, 1e6) == pytest.approx(50**2 / 2, rel=1e-9)


def test_ceta_worked_value():
    x0 = torch.tensor([0.1, 9.0, 0.4], dtype=torch.float64).view(3, 1, 1, 1)  # the last is the partner of the first
    v = torch.tensor([0.5, 9.0, 0.0], dtype=torch.float64).view(3, 1, 1, 1)  # ends at 0.6 and 0.4
    assert losses.ceta(v, path(x0, x0, [0])).item() == pytest.approx(0.04, rel=1e-9)


def test_ceta_gradient_flows_to_both_members_and_no_other():
    x0, v = images(4, seed=1), images(4, seed=2).requires_grad_()
    losses.ceta(v, path(x0, x0, [1])).backward()
    torch.testing.assert_close(v.grad[1], -v.grad[3])
    assert v.grad[1].abs().min() > 0
    assert torch.equal(v.grad[[0, 2]], torch.zeros_like(v.grad[[0, 2]]))


def test_ceta_without_pairs_is_a_zero_that_can_be_differentiated():
    x0, v = images(2, seed=1), images(2, seed=2).requires_grad_()
    value = losses.ceta(v, path(x0, x0))
    assert value == 0
    value.backward()
    assert torch.equal(v.grad, torch.zeros_like(v))
