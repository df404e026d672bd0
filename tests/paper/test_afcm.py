"""AFCM: layers that commute with shifts below a sample, styles, and losses that leave each other's network alone."""

import numpy as np
import pytest
import torch
from monai.networks.nets import PatchDiscriminator
from torch.nn.functional import interpolate, leaky_relu, softplus

from scripts.paper.baselines.afcm import Afcm, AfcmBatch, AfcmInferer, AfcmLoss, Conditioned, Generator
from scripts.paper.baselines.alias_free import AliasFreeActivation, Convolution, low_pass
from scripts.stack.acquisition import Acquisition
from tests.config_files import parser


def tiny(seed=0):
    torch.manual_seed(seed)
    discriminator = PatchDiscriminator(spatial_dims=2, channels=4, in_channels=6, num_layers_d=1, norm="INSTANCE")
    return Afcm(Generator((4, 8), 8, 8), discriminator).eval()


def wave(shift, size=64, cycles=(9, 5)):
    """A plane wave well below the Nyquist frequency, moved by a part of a sample along both axes."""
    x = (torch.arange(size) + 0.5 - shift) / size * 2 * torch.pi
    return torch.cos(cycles[0] * x[:, None] + cycles[1] * x[None])[None, None]


@pytest.mark.parametrize("factor", [2, 4])
def test_the_filter_passes_the_lower_rates_band_and_stops_its_images(factor):
    taps = low_pass(factor)
    spectrum = torch.fft.rfft(taps, 512).abs()
    assert taps.sum() == pytest.approx(1) and torch.allclose(taps, taps.flip(0))
    edge = 256 // factor  # of the lower rate's band
    assert (spectrum[: int(0.5 * edge)] > 0.9).all() and (spectrum[int(1.6 * edge) :] < 0.05).all()


@pytest.mark.parametrize("up, down", [(2, 2), (2, 4), (4, 2)])
def test_grids_are_cell_centred(up, down):
    """Of a smooth positive image, which the leaky ReLU only scales."""
    image = 2 + wave(0.0, 32, (1, 1))
    result = AliasFreeActivation(up, down)(image)
    expected = interpolate(image, size=result.shape[2:], mode="bicubic", antialias=True, align_corners=False) * 2**0.5
    inside = slice(6, -6)
    torch.testing.assert_close(result[..., inside, inside], expected[..., inside, inside], atol=0.03, rtol=0)


def test_the_activation_commutes_with_shifts_below_a_sample():
    """A plain one does not: its harmonics fold back."""

    def error(activation):
        still, moved = activation(wave(0.0)), activation(wave(0.5))
        spectrum = torch.fft.fft2(still) * shift_by_half(still.shape[-1])
        expected = torch.fft.ifft2(spectrum).real
        inside = slice(12, -12)
        return (moved - expected)[..., inside, inside].square().mean().sqrt().item()

    assert error(AliasFreeActivation(2, 2)) < 0.4 * error(lambda x: leaky_relu(x, 0.2) * 2**0.5)


def shift_by_half(size):
    frequency = torch.fft.fftfreq(size)
    return torch.exp(-2j * torch.pi * 0.5 * (frequency[:, None] + frequency[None]))


def test_a_style_scales_input_channels_and_demodulation_takes_their_common_scale_away():
    torch.manual_seed(0)
    conv = Convolution(3, 4, 3, style=2)
    x, style = torch.randn(2, 3, 8, 8), torch.randn(2, 2)
    scales = conv.scales(style)
    for b in range(2):
        weight = conv.weight * scales[b][:, None, None]
        weight = weight / weight.flatten(1).norm(dim=1)[:, None, None, None]
        expected = torch.nn.functional.conv2d(x[b : b + 1], weight, padding=1)
        torch.testing.assert_close(conv(x, style)[b : b + 1], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("shape", [(16, 16), (13, 10)])
def test_the_generator_keeps_the_shape_and_sees_slices_position_and_code(shape):
    network = tiny()
    thick, position, z = torch.randn(2, 4, *shape), torch.rand(2), torch.randn(2, 8)
    with torch.no_grad():
        still = network(thick, position, z)
        assert still.shape == (2, 1, *shape)
        for changed in ((thick.flip(1), position, z), (thick, 1 - position, z), (thick, position, -z)):
            assert not torch.allclose(network(*changed), still)


def test_each_network_follows_its_own_terms():
    """The discriminator's gradient is that of its two logistic terms and the penalty; the generator's has neither."""
    network = tiny()
    thick, position, z = torch.randn(3, 4, 8, 8), torch.rand(3), torch.randn(3, 8)
    target = Conditioned(torch.randn(3, 1, 8, 8), thick, position)
    fake = network(thick, position, z)
    AfcmLoss(network.discriminator, distance_weight=7.0, gradient_weight=0.0)(fake, target).backward(retain_graph=True)
    own = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}

    def logits(image):
        return network.discriminator(torch.cat([image, thick, position[:, None, None, None].expand_as(image)], 1))[-1]

    network.zero_grad()
    (softplus(-logits(fake)).mean() + 7 * (fake - target.sharp).abs().mean()).backward()
    for name, p in network.generator.named_parameters():
        torch.testing.assert_close(own[f"generator.{name}"], p.grad, msg=name)
    network.zero_grad()
    (softplus(logits(fake.detach())).mean() + softplus(-logits(target.sharp)).mean()).backward()
    for name, p in network.discriminator.named_parameters():
        torch.testing.assert_close(own[f"discriminator.{name}"], p.grad, msg=name)
    assert AfcmLoss(network.discriminator)(fake, target) > AfcmLoss(network.discriminator, gradient_weight=0)(
        fake, target
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_each_slice_comes_from_the_four_around_it_and_the_outermost_stands_for_those_missing(axis):
    network, thick = tiny(), torch.rand(3, 8, 9) * 2 - 1
    acquisition = Acquisition.stack(axis, 3, 4.0, 4.0, 1.0)
    result = AfcmInferer(seed=3).fine(thick.movedim(0, axis), acquisition, np.ones(3), network, torch.device("cpu"))[0]
    z = torch.randn(12, 8, generator=torch.Generator().manual_seed(3))
    for k, position in enumerate(acquisition.fine_rows.clip(0, 2)):
        around = [thick[min(max(n, 0), 2)] for n in range(int(position) - 1, int(position) + 3)]
        with torch.no_grad():
            expected = network(torch.stack(around)[None], torch.tensor([position % 1]).float(), z[k : k + 1])[0, 0]
        torch.testing.assert_close(result.movedim(axis, 0)[k], expected)


def test_a_batch_holds_four_slices_and_the_place_between_the_middle_two():
    batch = {
        "image": torch.rand(2, 1, 6, 5, 4),
        "label": torch.rand(2, 1, 6, 5, 1),
        "position": torch.tensor([[1.25], [2.0]]),
    }
    thick, target, (position, z), _ = AfcmBatch(latent=8)(batch)
    assert thick.shape == (2, 4, 6, 5) and torch.equal(thick[1, 2], batch["image"][1, 0, :, :, 2])
    assert target.sharp.shape == (2, 1, 6, 5) and torch.equal(target.thick, thick)
    assert position.tolist() == [0.25, 1.0] and z.shape == (2, 8)


def test_parameters():
    with torch.device("meta"):
        small = parser("train.yaml", "paper/baselines/afcm.yaml").get_parsed_content("network_def")
    assert sum(p.numel() for p in small.generator.parameters()) == 661_425
    assert sum(p.numel() for p in small.discriminator.parameters()) == 175_633
