"""Laws of stage 1 on the measured slices."""

import io

import pytest
import torch

from scripts.method.networks import Drift, VelocityNetwork
from scripts.method.schedule import euler_times
from scripts.method.slice_projection import GeometryBlock, SliceProjectionNetwork, neighbours
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from tests.method.test_networks import image, perturb

LENGTHS = (4.0, 1.0, 5.0, 0.8, 0.02)  # thickness, target, spacing, pixel in mm; noise


def fresh(channels=(6, 8, 10), blocks=(1, 1, 2), planes=1, hidden=None):
    torch.manual_seed(0)
    return SliceProjectionNetwork(channels, blocks, 4, 4, planes, hidden).eval()


def network(**sizes):
    return perturb(fresh(**sizes))


def lengths(*values):
    return torch.tensor(values or [LENGTHS])


def rows(count, step=0.2, first=-0.4):
    return first + step * torch.arange(count, dtype=torch.float32)[None]


def guide(count=20, slices=6, width=9, batch=2):
    """A guide and slices of it, unrelated to the scan."""
    torch.manual_seed(7)
    return torch.rand(batch, 1, count, width) * 2 - 1, torch.rand(batch, 1, slices, width) * 2 - 1


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


def test_channels_within_blocks_that_the_next_convolution_ignores_may_be_left_out():
    whole, narrow = network(), fresh(hidden=(3, 4, 5, 6, 2))
    state = whole.state_dict()  # shares its memory
    for name, block in narrow.trunk.named_modules():
        if isinstance(block, GeometryBlock):
            kept = block.conv1.out_channels
            parts = {part: f"trunk.{name}.{part}" for part in block.state_dict()}
            state[parts["conv2.weight"]][:, kept:] = 0
            state[parts["conv2.weight"]] = state[parts["conv2.weight"]][:, :kept]
            for part in ("conv1.weight", "conv1.bias"):
                state[parts[part]] = state[parts[part]][:kept]
            for part in ("project.weight", "project.bias"):
                state[parts[part]] = torch.cat([one[:kept] for one in state[parts[part]].chunk(2)])
    narrow.load_state_dict(state)
    close(narrow(image(1, 6, 9), lengths(), rows(20)), whole(image(1, 6, 9), lengths(), rows(20)))
    for one, widths in ((whole, [[6], [8], [10, 10], [8], [6]]), (narrow, [[3], [4], [5, 5], [6], [2]])):
        levels = (*one.trunk.down, *one.trunk.after)
        assert [[block.conv1.out_channels for block in level.blocks] for level in levels] == widths


# Neighbouring planes


def test_a_plane_stands_among_its_neighbours_and_the_outermost_stand_for_those_beyond():
    assert neighbours(4, 5).tolist() == [[0, 0, 0, 1, 2], [0, 0, 1, 2, 3], [0, 1, 2, 3, 3], [1, 2, 3, 3, 3]]
    assert neighbours(3, 1).tolist() == [[0], [1], [2]]


def test_every_neighbour_matters_and_the_middle_one_is_interpolated():
    image = torch.rand(1, 3, 6, 9, generator=torch.Generator().manual_seed(0)) * 2 - 1
    start = fresh(planes=3)(image, lengths(), rows(20))
    close(start, fresh()(image[:, 1:2], lengths(), rows(20)))
    close(start, fresh(planes=3)(image[:, [0, 1, 1]], lengths(), rows(20)))
    trained = network(planes=3)
    for order in ([1, 1, 2], [0, 1, 1], [2, 1, 0]):
        assert (trained(image[:, order], lengths(), rows(20)) - trained(image, lengths(), rows(20))).abs().max() > 1e-3


# At the start


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_at_the_start_it_interpolates_linearly(shift):
    acquisition = Acquisition.stack(1, 6, spacing=5.0, thickness=4.0, target=0.9, shift=shift)
    x = image(2, 6, 9)  # (B, 1, S, W) as (X, Y, Z)
    expected = interpolate(x[:, 0], acquisition, "linear")[:, None]
    close(fresh()(x, lengths(), torch.from_numpy(acquisition.fine_rows)[None].float()), expected)


# What it knows


@pytest.mark.parametrize("changed", range(5))
def test_each_length_matters(changed):
    net, x, other = network(), image(2, 6, 9), lengths()
    other[0, changed] *= 1.3
    assert (net(x, lengths(), rows(20)) - net(x, other, rows(20))).abs().max() > 1e-4


def test_noise_of_a_fifth_of_a_percent_of_the_range_is_none_and_half_as_much_again_is_some():
    net, x = network(), image(2, 6, 9)
    none, least, some = (net(x, lengths((*LENGTHS[:4], share)), rows(20)) for share in (0.0, 0.002, 0.003))
    close(least, none, 0)
    assert (some - none).abs().max() > 1e-4


def test_a_row_is_told_its_place_and_on_which_side_of_all_centres_it_lies():
    net, told = network(), []
    net.mixer.perceptron.register_forward_pre_hook(lambda _, given: told.append(given[0]))
    net(image(1, 3, 8), lengths(), torch.tensor([[-0.4, 0.0, 0.25, 2.0, 2.4]]))
    close(told[0][0, :, 0], torch.tensor([-1.0, -1.0, -0.5, 1.0, 1.0]))
    close(told[0][0, :, 1], torch.tensor([-0.4, 0.0, 0.0, 0.0, 0.4]))
    turn = 2 * torch.pi * torch.tensor([0.0, 0.0, 0.25, 1.0, 1.0])  # one slice is one turn
    close(told[0][0, :, 2:6], torch.stack([turn.sin(), turn.cos(), (2 * turn).sin(), (2 * turn).cos()], 1))


def test_air_beyond_the_edges_is_as_air():
    """The first layer sees the same, whether air was measured there or nothing was."""
    trunk = network().trunk
    x = torch.zeros(1, 2, 8, 8)
    x[:, :, 2:6, 2:6] = 1 + image(2, 4, 4).movedim(0, 1)
    first = trunk.down[0].enter
    close(first(x)[:, :, 2:6, 2:6], first(x[:, :, 2:6, 2:6]))


def test_every_parameter_gets_a_gradient():
    net = network()
    told = torch.cat([lengths(), 1.2 * lengths() ** 0.9])
    net(image(2, 6, 9), told, rows(20), *guide()).square().mean().backward()
    assert [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()] == []


# A guide


def test_at_the_start_a_guide_changes_nothing():
    x = image(2, 6, 9)
    close(fresh()(x, lengths(), rows(20), *guide()), fresh()(x, lengths(), rows(20)))


def test_a_guide_that_saw_nothing_is_none():
    """In one plane of a batch, beside one that saw something."""
    net, x, (seen, slices) = network(), image(2, 6, 9), guide()
    seen[0] = slices[0] = -1.0
    result = net(x, lengths(), rows(20), seen, slices)
    close(result[:1], net(x[:1], lengths(), rows(20)))
    assert (result[1:] - net(x[1:], lengths(), rows(20))).abs().max() > 1e-3


def test_a_guide_counts_by_its_share():
    net, given = network(), (image(2, 6, 9), lengths(), rows(20), *guide())
    none, half, whole = (net(*given, torch.full((2, 1, 20, 9), share)) for share in (0.0, 0.5, 1.0))
    close(half, (none + whole) / 2)
    close(net(*given), whole)
    assert (whole - none).abs().max() > 1e-3


def test_the_correction_gets_a_guide_whose_air_is_at_0_and_what_its_slices_lost():
    net, (fine, slices), got = network(), guide(), []
    net.guide.register_forward_pre_hook(lambda _, given: got.extend(given))
    net(image(2, 6, 9), lengths(), rows(20), fine, slices)
    lower = rows(20)[0].floor().long().clamp(0, 4)
    share = (rows(20)[0] - lower).clamp(0, 1)[:, None]
    between = slices[:, :, lower] * (1 - share) + slices[:, :, lower + 1] * share
    close(got[2], fine + 1)
    close(got[3], fine - between)


def test_a_guide_without_its_slices_is_refused():
    with pytest.raises(ValueError, match="guide_slices"):
        network()(image(2, 6, 9), lengths(), rows(20), guide()[0])


# As the stage 1 of DRIFT


@pytest.fixture
def drift():
    torch.manual_seed(0)
    return Drift(network(), perturb(VelocityNetwork((4, 8), width=8, noise=True))).eval()


def test_drift_takes_it_and_refines_its_rows(drift):
    x, place = image(2, 4, 8), rows(16)
    estimate = drift.apn(x, lengths(), place)
    close(drift(x, lengths(), None, place), estimate)
    moved = estimate + drift.velocity(estimate, lengths()[:, [0, 1, 4]], torch.zeros(1))
    close(drift(x, lengths(), euler_times(1), place), moved)


@pytest.mark.slow
def test_it_compiles(drift):
    stored = io.BytesIO()
    torch.jit.save(torch.jit.script(drift), stored)
    stored.seek(0)
    compiled, x = torch.jit.load(stored), image(2, 4, 8)
    close(compiled(x, lengths(), euler_times(2), rows(16)), drift(x, lengths(), euler_times(2), rows(16)))
    close(compiled(x), drift(x))
    given = x, lengths(), euler_times(2), rows(16), *guide(16, 4, 8)
    close(compiled(*given), drift(*given))
