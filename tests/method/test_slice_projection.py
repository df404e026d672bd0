"""Laws of stage 1 on the measured slices."""

import io

import pytest
import torch

from scripts.method.networks import Drift, VelocityNetwork
from scripts.method.schedule import euler_times
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from tests.method.test_networks import image, perturb

LENGTHS = (4.0, 1.0, 5.0, 0.8)  # mm: thickness, target, spacing, pixel


def fresh(channels=(6, 8, 10), blocks=(1, 1, 2)):
    torch.manual_seed(0)
    return SliceProjectionNetwork(channels, blocks, 4).eval()


def network(**sizes):
    return perturb(fresh(**sizes))


def lengths(*values):
    return torch.tensor(values or [LENGTHS])


def rows(count, step=0.2, first=-0.4):
    return first + step * torch.arange(count, dtype=torch.float32)[None]


def close(a, b, tolerance=1e-5):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=0)


# Shapes


@pytest.mark.parametrize(("slices", "width", "count"), [(1, 1, 1), (2, 3, 9), (7, 13, 40), (5, 8, 2)])
@pytest.mark.parametrize("channels", [(6,), (6, 8, 10)])
def test_the_result_has_the_rows_asked_for_and_the_columns_of_the_slices(slices, width, count, channels):
    result = network(channels=channels, blocks=(1,) * len(channels))(
        image(2, slices, width), lengths(), rows(count, slices / count)
    )
    assert result.shape == (2, 1, count, width)
    assert result.isfinite().all()


def test_without_rows_they_are_the_slices_own():
    net, x = network(), image(2, 6, 9)
    close(net(x, lengths()), net(x, lengths(), torch.arange(6.0)[None]))


def test_lengths_and_rows_of_one_serve_a_batch():
    net, x = network(), image(3, 6, 9)
    one = net(x, lengths(), rows(20))
    close(one, net(x, lengths().expand(3, -1), rows(20).expand(3, -1)))
    close(one, torch.cat([net(part, lengths(), rows(20)) for part in x.split(1)]))


# At the start


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_at_the_start_it_interpolates_linearly(shift):
    acquisition = Acquisition.stack(1, 6, 5.0, 4.0, 0.9, shift=shift)
    x = image(2, 6, 9)  # (B, 1, S, W) as (X, Y, Z)
    expected = interpolate(x[:, 0], acquisition, "linear")[:, None]
    close(fresh()(x, lengths(), torch.from_numpy(acquisition.fine_rows)[None].float()), expected)


def test_at_the_start_constants_and_ramps_stay():
    constant = torch.full((1, 1, 6, 9), -0.3)
    close(fresh()(constant, lengths(), rows(30)), torch.full((1, 1, 30, 9), -0.3))
    ramp = torch.linspace(-1, 1, 6)[None, None, :, None].expand(1, 1, 6, 9)
    place = rows(30).clamp(0, 5)
    close(fresh()(ramp, lengths(), rows(30)), (2 * place / 5 - 1)[:, None, :, None].expand(1, 1, 30, 9))


# What it knows


def test_whole_slices_move_the_result():
    """By a slice the rows among the slices move by five; far from the ends, of which the network knows."""
    net, x = network(), image(1, 40, 8)
    count = 5 * 40
    first, second = net(x, lengths(), rows(count)), net(x.roll(3, 2), lengths(), rows(count))
    close(first[:, :, 80:115], second[:, :, 95:130])
    assert (first - second.roll(-15, 2))[:, :, :5].abs().max() > 1e-3


@pytest.mark.parametrize("changed", range(4))
def test_each_length_matters(changed):
    net, x, other = network(), image(2, 6, 9), lengths()
    other[0, changed] *= 1.3
    assert (net(x, lengths(), rows(20)) - net(x, other, rows(20))).abs().max() > 1e-4


def test_the_phase_matters():
    """A constant has no detail that a shift could move, but the network may tell the rows apart."""
    net, x = network(), torch.zeros(1, 1, 6, 8)
    result = net(x, lengths(), rows(30))
    assert (result[:, :, 10:15] - result[:, :, 11:16]).abs().max() > 1e-4


def test_outside_is_not_between():
    """Rows as far beyond the outermost centre as others are from it on its inner side."""
    net = network()
    offset = torch.tensor([[-0.4, 0.6, 1.4, 0.4]])
    matrix = net.mixer(offset, net.geometry(lengths()))
    assert (matrix[0, 0] - matrix[0, 1]).abs().max() > 1e-3
    assert (matrix[0, 2] - matrix[0, 3]).abs().max() > 1e-3
    assert (matrix[0, 0] - matrix[0, 2]).abs().max() > 1e-3


def test_far_air_changes_nothing():
    """More air around a head, in the plane or beyond the outermost slices, as a larger field of view has."""
    net, x = network(channels=(6, 8), blocks=(1, 1)), torch.full((1, 1, 40, 96), -1.0)
    x[:, :, 12:28, 32:64] = image(1, 16, 32)
    whole = net(x, lengths(), rows(200))
    cut = net(x[:, :, 4:36, 8:88], lengths(), rows(160))
    close(whole[:, :, 60:140, 32:64], cut[:, :, 40:120, 24:56])


def test_air_beyond_the_edges_is_as_air():
    """The first layer sees the same, whether air was measured there or nothing was."""
    trunk = network().trunk
    x = torch.zeros(1, 1, 8, 8)
    x[:, :, 2:6, 2:6] = 1 + image(1, 4, 4)
    first = trunk.down[0].enter
    close(first(x)[:, :, 2:6, 2:6], first(x[:, :, 2:6, 2:6]))


def test_every_parameter_gets_a_gradient():
    net = network()
    net(image(2, 6, 9), torch.cat([lengths(), 1.2 * lengths() ** 0.9]), rows(20)).square().mean().backward()
    assert [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()] == []


# As the stage 1 of DRIFT


@pytest.fixture
def drift():
    torch.manual_seed(0)
    return Drift(network(), perturb(VelocityNetwork((4, 8)))).eval()


def test_drift_takes_it_and_refines_its_rows(drift):
    x, place = image(2, 4, 8), rows(16)
    estimate = drift.apn(x, lengths(), place)
    close(drift(x, lengths(), None, place), estimate)
    moved = estimate + drift.velocity(estimate, lengths()[:, :2], torch.zeros(1))
    close(drift(x, lengths(), euler_times(1), place), moved)


def test_drift_keeps_the_shape_of_an_image_alone(drift):
    assert drift(image(2, 8, 16)).shape == (2, 1, 8, 16)


def test_it_compiles(drift):
    stored = io.BytesIO()
    torch.jit.save(torch.jit.script(drift), stored)
    stored.seek(0)
    compiled, x = torch.jit.load(stored), image(2, 4, 8)
    close(compiled(x, lengths(), euler_times(2), rows(16)), drift(x, lengths(), euler_times(2), rows(16)))
    close(compiled(x), drift(x))
