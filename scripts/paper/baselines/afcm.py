"""AFCM: each slice synthesised from the four measured ones around it, by an alias-free co-modulated generator.

Song et al., IEEE Trans. Med. Imaging 2023; the layers are in `alias_free`. The generator's style is made of a random
code and of the image, as in Zhao et al., ICLR 2021. Left out: the blur of early training, and the projection by which
the discriminator gets the position as a channel of its input; the discriminator is MONAI's.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from monai.engines import PrepareBatch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import adaptive_avg_pool2d, l1_loss, leaky_relu, pad, softplus

from ...stack.acquisition import Acquisition
from .alias_free import GAIN, SLOPE, Convolution, Dense, Layer
from .stacks import HeadInferer


class Generator(nn.Module):
    """Four measured slices, the position between them and a random code -> the slice there.

    Args:
        channels: of the levels, from the finest; each has two layers in the encoder and two in the decoder.
        latent: length of the random code and of the mapped code; 512 in the paper.
        image_code: length of the style's part from the encoder's end; 1024 in the paper.
        mapping: layers, 8 in the paper.
    """

    def __init__(self, channels: Sequence[int], latent: int, image_code: int, mapping: int = 8):
        super().__init__()
        channels = list(channels)
        self.latent = latent
        self.stride = 2 ** (len(channels) - 1)  # height and width are filled up to multiples of it
        self.embed_position = Dense(1, latent)
        widths = [2 * latent] + [latent] * mapping
        self.mapping = nn.ModuleList(Dense(a, b, rate=0.01) for a, b in pairwise(widths))
        self.conv_in = Convolution(4, channels[0], 1)
        style = latent + image_code
        pairs = list(pairwise(channels))
        self.keeps = nn.ModuleList(Layer(a, a) for a, _ in pairs)
        self.shrinks = nn.ModuleList(Layer(a, b, down=4) for a, b in pairs)
        last = channels[-1]
        self.middle = nn.ModuleList([Layer(last, last), Layer(last, last, style=style)])
        self.encode = nn.Sequential(Dense(16 * last, image_code), nn.LeakyReLU(SLOPE), nn.Dropout(0.5))
        self.grows = nn.ModuleList(Layer(b, a, up=4, style=style) for a, b in pairs[::-1])
        self.joins = nn.ModuleList(Layer(a, a, style=style) for a, _ in pairs[::-1])
        self.conv_out = Convolution(channels[0], 1, 1, style, demodulated=False)

    def forward(self, thick: Tensor, position: Tensor, z: Tensor) -> Tensor:
        """The slices in between.

        Args:
            thick: `(B, 4, H, W)` in [-1, 1], measured slices at -1, 0, 1 and 2.
            position: `(B,)` in [0, 1), in slice spacings from the one at 0.
            z: `(B, latent)`, standard normal.

        Returns:
            `(B, 1, H, W)`.
        """
        height, width = thick.shape[2:]
        w = torch.cat([unit(z), self.embed_position(position[:, None])], dim=1)
        for dense in self.mapping:
            w = leaky_relu(dense(w), SLOPE) * GAIN
        h = self.conv_in(pad(thick, (0, -width % self.stride, 0, -height % self.stride), mode="replicate"))
        skips = []
        for keep, shrink in zip(self.keeps, self.shrinks):
            skips.append(keep(h))
            h = shrink(skips[-1])
        h = self.middle[0](h)
        style = torch.cat([w, self.encode(adaptive_avg_pool2d(h, 4).flatten(1))], dim=1)
        h = self.middle[1](h, style)
        for grow, join in zip(self.grows, self.joins):
            h = join(grow(h, style) + skips.pop(), style)
        return self.conv_out(h, style)[:, :, :height, :width] / 4


def unit(x: Tensor) -> Tensor:
    """Vectors `(B, N)` with a mean square of 1."""
    return x * (x.square().mean(1, keepdim=True) + 1e-8).rsqrt()


class Conditioned(NamedTuple):
    """The slices that a synthesised slice is compared with.

    Attributes:
        sharp: `(B, 1, H, W)`, the true slices.
        thick, position: see `Generator.forward`.
    """

    sharp: Tensor
    thick: Tensor
    position: Tensor


class Afcm(nn.Module):
    """Generator and discriminator; one optimiser steps both, each along its own loss (`AfcmLoss`).

    Args:
        generator: see `Generator`.
        discriminator: `(B, 6, H, W)`, image, measured slices and position, to feature maps of which the last holds the
            logits, as MONAI's `PatchDiscriminator`.
    """

    def __init__(self, generator: Generator, discriminator: nn.Module):
        super().__init__()
        self.generator = generator
        self.discriminator = discriminator

    def forward(self, thick: Tensor, position: Tensor, z: Tensor) -> Tensor:
        """As `Generator.forward`."""
        return self.generator(thick, position, z)


class AfcmLoss(nn.Module):
    """Logistic adversarial loss of both networks and the distance to the truth.

    Args:
        discriminator: whose gradients come from its own terms alone.
        distance_weight: of the mean absolute error, 100 in the paper.
        gradient_weight: of the penalty on the discriminator's gradient at true slices (R1), 10 in the paper.
    """

    def __init__(self, discriminator: nn.Module, distance_weight: float = 100.0, gradient_weight: float = 10.0):
        super().__init__()
        self.discriminator = discriminator
        self.distance_weight = distance_weight
        self.gradient_weight = gradient_weight

    def forward(self, fake: Tensor, target: Conditioned) -> Tensor:
        """`fake` is `(B, 1, H, W)`; returns a scalar."""
        frozen = {name: value.detach() for name, value in self.discriminator.named_parameters()}

        def seen(image: Tensor) -> Tensor:
            position = target.position[:, None, None, None].expand_as(image)
            return torch.cat([image, target.thick, position], dim=1)

        generator = softplus(-functional_call(self.discriminator, frozen, seen(fake))[-1]).mean()
        real = target.sharp.detach().requires_grad_()
        logits = self.discriminator(seen(real))[-1]
        discriminator = softplus(self.discriminator(seen(fake.detach()))[-1]).mean() + softplus(-logits).mean()
        if logits.requires_grad:
            (gradient,) = torch.autograd.grad(logits.sum(), real, create_graph=True)
            discriminator = discriminator + self.gradient_weight / 2 * gradient.square().sum((1, 2, 3)).mean()
        return generator + self.distance_weight * l1_loss(fake, target.sharp) + discriminator


class AfcmBatch(PrepareBatch):
    """Four measured slices, where between the middle two a slice is wanted, and a random code in; that slice out.

    Args:
        latent: length of the code.
    """

    def __init__(self, latent: int):
        self.latent = latent

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(thick, Conditioned, (position, z), {})` on the device."""
        image, label, position = (
            batchdata[key].to(device, non_blocking=non_blocking) for key in ("image", "label", "position")
        )
        thick, sharp, position = image[:, 0].movedim(-1, 1), label[..., 0], position[:, 0] - 1
        z = torch.randn(len(thick), self.latent, device=thick.device)
        return thick, Conditioned(sharp, thick, position), (position, z), {}


class AfcmInferer(HeadInferer):
    """Synthesises each slice of the fine grid from the four measured ones around it; those that are missing are air.

    Args:
        seed: of the random codes, one for each slice.
        others: see `StackInferer`.
    """

    def __init__(self, seed: int = 0, **others: Any):
        super().__init__(**others)
        self.seed = seed
        self.settings |= {"seed": seed}

    def head(self, stack: Tensor, acquisition: Acquisition, network: Afcm) -> Tensor:
        """See `HeadInferer.head`."""
        a = acquisition
        generator = torch.Generator()  # on the CPU: one noise for all devices
        generator.manual_seed(self.seed)
        z = torch.randn(a.fine_count, network.generator.latent, generator=generator).to(stack)
        position = torch.from_numpy(a.fine_rows).to(stack).clamp(0, a.slice_count - 1)
        before = position.floor().long()
        slices = stack.movedim(-1, 0)
        around = (before[:, None] + torch.arange(-1, 3, device=stack.device)).clamp(0, a.slice_count - 1)
        with torch.autocast(stack.device.type, torch.bfloat16, enabled=self.bfloat16):
            calls = self.parts(a.fine_count, slices[0].numel(), "slices")
            result = [network(slices[around[k]], (position - before)[k], z[k])[:, 0].float() for k in calls]
        return torch.cat(result).movedim(0, -1)
