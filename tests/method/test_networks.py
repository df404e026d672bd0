"""Laws and sizes of the networks; test_convert.py holds them against a forward pass written out from the paper."""

import pytest
import torch
from torch.nn import functional as F

from scripts.method import networks, schedule
from scripts.method.unet import AdaGN, UNet, group_count
from tests import paper_values as paper

CHANNELS = (34, 68)  # 17 groups of 2 and of 4 channels; stride 2


def perturb(network, seed=0, scale=0.05):
    """Moves all parameters off their initial values, zeros above all."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += scale * torch.randn(parameter.shape, generator=generator)
    return network


def drift(channels=CHANNELS, seed=0, residual=False):
    torch.manual_seed(seed)
    apn = networks.AnatomicalProjectionNetwork(channels, residual)
    return perturb(networks.Drift(apn, networks.VelocityNetwork(channels))).eval()


def image(batch=2, height=8, width=12, seed=1):
    return torch.rand(batch, 1, height, width, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def thickness(*rows):
    return torch.tensor(rows)


def parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


def empty(channels):
    """Both stages without memory for their weights."""
    with torch.device("meta"):
        return networks.Drift(networks.AnatomicalProjectionNetwork(channels), networks.VelocityNetwork(channels))


# Sizes


def test_large_has_the_papers_parameters():
    network = empty(paper.CHANNELS_LARGE)
    assert parameters(network.apn) == paper.PARAMETERS_LARGE_APN
    assert parameters(network.velocity) == paper.PARAMETERS_LARGE_VELOCITY


def test_small_has_the_papers_parameters():
    assert parameters(empty(paper.CHANNELS_SMALL)) == paper.PARAMETERS_SMALL


def test_conditions_have_the_papers_lengths():
    assert networks.ThicknessEmbedding().dim == paper.THICKNESS_CONDITION_DIM
    assert networks.TimeThicknessEmbedding().dim == paper.TIME_CONDITION_DIM
    assert len(networks.TimeThicknessEmbedding().frequencies) * 2 == paper.TIME_EMBEDDING_DIM
    assert UNet((1, 1, 1, 1), 1).stride == 2 ** (paper.LEVELS - 1)


# Norms


@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (31, 31), (34, 17), (37, 1), (768, 32)])
def test_groups_are_the_most_that_divide_the_channels(channels, groups):
    assert group_count(channels, paper.GROUPS) == groups


def test_zero_initialised_adagn_is_plain_group_norm():
    norm = AdaGN(34, 5)
    h = torch.randn(3, 34, 4, 6, generator=torch.Generator().manual_seed(0))
    condition = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(norm(h, norm.project(condition)), F.group_norm(h, 17))


def test_adagn_scales_and_shifts_each_channel():
    norm = perturb(AdaGN(4, 5), scale=1.0)
    h = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    condition = torch.randn(2, 5, generator=torch.Generator().manual_seed(1))
    weight, bias = norm.project[1].weight, norm.project[1].bias
    result = norm(h, norm.project(condition))
    for b in range(2):
        for c in range(4):  # four groups of one channel
            centred = h[b, c] - h[b, c].mean()
            plain = centred / torch.sqrt((centred**2).mean() + 1e-5)
            scale, shift = ((weight[k] * F.silu(condition[b])).sum() + bias[k] for k in (c, 4 + c))
            torch.testing.assert_close(result[b, c], plain * (1 + scale) + shift, rtol=1e-4, atol=1e-5)


def test_the_modulation_holds_each_norms_scale_and_shift_where_the_norm_looks():
    unet = perturb(UNet((8, 16, 24), 5))
    condition = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    modulation = unet.modulation(condition)
    norms = [module for module in unet.modules() if isinstance(module, AdaGN)]
    assert modulation.shape == (2, sum(norm.project[1].out_features for norm in norms))
    for norm in norms:
        torch.testing.assert_close(modulation[:, norm.first : norm.first + norm.size], norm.project(condition))


@pytest.mark.parametrize(("steps", "rows"), [(0, 3), (1, 1), (3, 3)])
def test_modulations_of_a_volume_serve_its_windows(steps, rows):
    network, x, times = drift(), image(3), schedule.euler_times(steps)
    c = thickness([4.0, 1.0], [2.0, 0.7], [5.0, 1.0])[:rows]
    velocity = network.modulations(c, times)
    assert velocity.shape[:2] == (steps, rows)
    for n in range(steps):
        torch.testing.assert_close(velocity[n], network.velocity.modulation(c, times[n].expand(rows)))
    torch.testing.assert_close(network.refine(network.apn(x, c), velocity, times), network(x, c, times))


# Shapes


@pytest.mark.parametrize(("channels", "height", "width"), [((8,), 5, 7), ((8, 64), 6, 10), ((8, 16, 32, 64), 8, 40)])
def test_shape_is_kept(channels, height, width):
    network = drift(channels)
    x = image(2, height, width)
    assert network(x).shape == x.shape
    assert network(x[:1], thickness([4.0, 1.0]), schedule.euler_times(2)).shape == x[:1].shape


@pytest.mark.parametrize(("height", "width"), [(8, 7), (9, 8), (4, 8)])
def test_other_sizes_are_named(height, width):
    network = drift((8, 16, 32, 64))
    with pytest.raises(ValueError, match=rf"{height} x {width}.*multiples of 8"):
        network(image(1, height, width))


# What the output depends on


def test_every_parameter_gets_gradient():
    network = drift()
    x = image(2)
    network(x, thickness([4.0, 1.0]), torch.tensor([0.0, 0.3, 1.0])).square().mean().backward()
    lacking = [name for name, p in network.named_parameters() if p.grad is None or p.grad.abs().max() < 1e-9]
    assert lacking == []


@pytest.mark.parametrize("other", [(5.0, 1.0), (4.0, 0.7)])
def test_output_depends_on_either_thickness_in_either_stage(other):
    network = drift()
    x, t = image(), torch.tensor([0.5])
    a, b = thickness([4.0, 1.0]), thickness(other)
    assert (network.apn(x, a) - network.apn(x, b)).abs().max() > 1e-4
    assert (network.velocity(x, a, t) - network.velocity(x, b, t)).abs().max() > 1e-4


def test_output_depends_on_time():
    network = drift()
    x, c = image(), thickness([4.0, 1.0])
    values = [network.velocity(x, c, torch.tensor([t])) for t in (0.0, 0.5, 1.0)]
    assert (values[0] - values[1]).abs().max() > 1e-4
    assert (values[1] - values[2]).abs().max() > 1e-4


def test_blocks_of_pixels_are_channels_at_the_finest_level():
    """A shift by a block shifts the result; one by a pixel changes it. Sides are multiples of block and levels."""
    torch.manual_seed(0)
    net = UNet((8, 16), 4, norm=False, block=2).eval()
    x, modulation = image(1, 8, 64), net.modulation(torch.ones(1, 4))
    results = [net(x.roll(shift, 3), modulation).roll(-shift, 3) for shift in (0, 4, 1)]
    torch.testing.assert_close(results[1][..., 28:36], results[0][..., 28:36])
    assert net(x, modulation).shape == x.shape and (results[2] - results[0]).abs().max() > 1e-4
    with pytest.raises(ValueError, match="multiples of 4"):
        net(image(1, 6, 8), modulation)


def test_a_velocity_has_its_unit():
    x, thickness, t = image(1, 8, 8), torch.tensor([[5.0, 1.0]]), torch.tensor([0.5])
    network = perturb(networks.VelocityNetwork((8, 8), 8, norm=False, unit=0.1)).eval()
    torch.testing.assert_close(network(x, thickness, t), 0.1 * network.unet(x, network.modulation(thickness, t)))


def test_a_thickness_is_told_as_its_inverse_and_a_time_as_waves():
    """No thickness is less than the least; wavelengths of time grow from 2 pi to 10000 times that."""
    embedding, told = networks.TimeThicknessEmbedding(), []
    parts = embedding.embed_thickness
    for part in (parts.embed_input, parts.embed_target, embedding.embed_time):
        part.register_forward_pre_hook(lambda _, given: told.append(given[0]))
    t = torch.tensor([0.3, 1.0])
    embedding(thickness([4.0, 0.5], [2.0, 0.0]), t)
    time, first, second = told
    torch.testing.assert_close(
        torch.cat([first, second], 1), torch.tensor([[0.25, 2.0], [0.5, 1 / paper.MIN_THICKNESS]])
    )
    angles = t[:, None] * 10000.0 ** (-torch.arange(128) / 127)
    torch.testing.assert_close(time, torch.cat([angles.sin(), angles.cos()], 1))


@pytest.mark.parametrize("steps", [None, 2])
def test_each_sample_may_have_its_own_thickness(steps):
    network = drift()
    x, c = image(2), thickness([4.0, 1.0], [2.0, 0.7])
    times = None if steps is None else schedule.euler_times(steps)
    whole = network(x, c, times)
    for k in range(2):
        torch.testing.assert_close(whole[k], network(x[k : k + 1], c[k : k + 1], times)[0], rtol=1e-4, atol=1e-5)
