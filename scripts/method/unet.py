"""The U-Net of both stages (Sec. S4.1). A conditioning vector scales and shifts its group norms."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from monai.networks.nets.diffusion_model_unet import zero_module
from torch import Tensor, nn


def group_count(channels: int, most: int = 32) -> int:
    """Largest number of groups, at most `most`, that divides `channels`.

    >>> group_count(96), group_count(40)
    (32, 20)
    """
    return max(n for n in range(1, most + 1) if channels % n == 0)


class AdaGN(nn.Module):
    """Adaptive group norm `GN(h) * (1 + scale(c)) + shift(c)` (Eq. 3). Its map starts at zero: it is a plain GN.

    The modulation, one vector, holds scale and shift of all norms of a U-Net. It is computed once, because it is the
    same for all windows of a volume.

    Args:
        norm: false for scale and shift alone. A group norm depends on how much air is in a window.
    """

    def __init__(self, channels: int, condition_dim: int, norm: bool = True):
        super().__init__()
        self.groups = group_count(channels) if norm else 0
        self.first, self.size = 0, 2 * channels  # its share of the modulation; `UNet` sets the first index
        self.project = nn.Sequential(nn.SiLU(), zero_module(nn.Linear(condition_dim, self.size)))

    def forward(self, h: Tensor, modulation: Tensor) -> Tensor:
        """`h` is `(B, C, H, W)`; `modulation`, by `UNet.modulation`, has a row for each image or one for all."""
        scale, shift = modulation[:, self.first : self.first + self.size].chunk(2, dim=1)  # each (B or 1, C)
        if self.groups == 0:
            return torch.addcmul(shift[:, :, None, None], h, 1 + scale[:, :, None, None])
        if modulation.shape[0] == 1:  # one thickness for all windows: the norm's own affine map saves a pass over `h`
            return torch.group_norm(h, self.groups, 1 + scale[0], shift[0])
        return torch.addcmul(shift[:, :, None, None], torch.group_norm(h, self.groups), 1 + scale[:, :, None, None])


class ResidualBlock(nn.Module):
    """Twice AdaGN, SiLU and 3 x 3 convolution, beside a shortcut. A new channel count makes the shortcut 1 x 1."""

    def __init__(self, in_channels: int, out_channels: int, condition_dim: int, norm: bool = True):
        super().__init__()
        self.norm1 = AdaGN(in_channels, condition_dim, norm)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.norm2 = AdaGN(out_channels, condition_dim, norm)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1)
        self.shortcut = nn.Identity() if in_channels == out_channels else nn.Conv2d(in_channels, out_channels, 1)
        self.act = nn.SiLU()

    def modulation(self, condition: Tensor) -> Tensor:
        """Scale and shift of both norms, a part of `UNet.modulation`."""
        return torch.cat([self.norm1.project(condition), self.norm2.project(condition)], dim=1)

    def forward(self, x: Tensor, modulation: Tensor) -> Tensor:
        """`x` is `(B, in_channels, H, W)`; returns `(B, out_channels, H, W)`."""
        h = self.conv1(self.act(self.norm1(x, modulation)))
        h = self.conv2(self.act(self.norm2(h, modulation)))
        return h + self.shortcut(x)


class DownBlock(nn.Module):
    """An encoder level: two residual blocks, then a strided convolution (none at the coarsest level)."""

    def __init__(self, in_channels: int, out_channels: int, condition_dim: int, downsample: bool, norm: bool):
        super().__init__()
        widths = (in_channels, out_channels)
        self.res_blocks = nn.ModuleList([ResidualBlock(c, out_channels, condition_dim, norm) for c in widths])
        self.downsample = nn.Conv2d(out_channels, out_channels, 3, 2, 1) if downsample else nn.Identity()

    def forward(self, h: Tensor, modulation: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the next level's input, and the skip connection from before downsampling."""
        for block in self.res_blocks:
            h = block(h, modulation)
        return self.downsample(h), h


class UpBlock(nn.Module):
    """A decoder level: bilinear x2 and convolution (none at the coarsest level), the skip, three residual blocks."""

    def __init__(
        self, in_channels: int, skip_channels: int, out_channels: int, condition_dim: int, upsample: bool, norm: bool
    ):
        super().__init__()
        self.upsample = nn.Sequential()
        if upsample:
            self.upsample.append(nn.Upsample(scale_factor=2.0, mode="bilinear"))
            self.upsample.append(nn.Conv2d(in_channels, in_channels, 3, 1, 1))
        widths = (in_channels + skip_channels, out_channels, out_channels)
        self.res_blocks = nn.ModuleList([ResidualBlock(c, out_channels, condition_dim, norm) for c in widths])

    def forward(self, h: Tensor, skip: Tensor, modulation: Tensor) -> Tensor:
        """`h` comes from the coarser level, `skip` from the encoder's same level."""
        h = torch.cat([self.upsample(h), skip], dim=1)
        for block in self.res_blocks:
            h = block(h, modulation)
        return h


class UNet(nn.Module):
    """2-D U-Net of AdaGN residual blocks; the output is one image of the input's height and width (Sec. S4.1).

    Args:
        channels: feature channels from the finest level to the coarsest, such as (96, 192, 384, 768).
        block: edge of the blocks of pixels that the finest level takes for one, their pixels as channels (Shi et al.,
            *Real-Time Single Image and Video Super-Resolution*, CVPR 2016); 1 in the paper. 2 leaves a quarter of the
            places, so that four times the channels cost no more.
    """

    def __init__(self, channels: Sequence[int], condition_dim: int, norm: bool = True, block: int = 1):
        super().__init__()
        channels = list(channels)
        last = len(channels) - 1
        self.stride = block * 2**last  # height and width must be multiples of it
        self.split, self.join = nn.PixelUnshuffle(block), nn.PixelShuffle(block)
        self.conv_in = nn.Conv2d(block**2, channels[0], 3, padding=1)
        downs = [DownBlock(channels[max(k - 1, 0)], c, condition_dim, k < last, norm) for k, c in enumerate(channels)]
        self.down_blocks = nn.ModuleList(downs)
        self.mid_block1 = ResidualBlock(channels[-1], channels[-1], condition_dim, norm)
        self.mid_block2 = ResidualBlock(channels[-1], channels[-1], condition_dim, norm)
        ups = [UpBlock(channels[min(k + 1, last)], c, c, condition_dim, k < last, norm) for k, c in enumerate(channels)]
        self.up_blocks = nn.ModuleList(ups[::-1])
        self.norm_out = nn.GroupNorm(group_count(channels[0]), channels[0]) if norm else nn.Identity()
        self.conv_out = nn.Conv2d(channels[0], block**2, 3, padding=1)
        self.act = nn.SiLU()
        first = 0
        for module in self.modules():
            if isinstance(module, AdaGN):
                module.first, first = first, first + module.size

    def modulation(self, condition: Tensor) -> Tensor:
        """Scale and shift of every norm, in order of use. `(B or 1, condition_dim)` becomes `(B or 1, M)`."""
        shares: list[Tensor] = []
        for down in self.down_blocks:
            for block in down.res_blocks:
                shares.append(block.modulation(condition))
        shares += [self.mid_block1.modulation(condition), self.mid_block2.modulation(condition)]
        for up in self.up_blocks:
            for block in up.res_blocks:
                shares.append(block.modulation(condition))
        return torch.cat(shares, dim=1)

    def forward(self, x: Tensor, modulation: Tensor) -> Tensor:
        """Args: `x`, `(B, 1, H, W)`; `modulation`, `(B or 1, M)`. Returns `(B, 1, H, W)`."""
        if x.shape[2] % self.stride != 0 or x.shape[3] % self.stride != 0:
            raise ValueError(f"image is {x.shape[2]} x {x.shape[3]}: pad it to multiples of {self.stride}.")
        h = self.conv_in(self.split(x))
        skips: list[Tensor] = []
        for down in self.down_blocks:
            h, skip = down(h, modulation)
            skips.append(skip)
        h = self.mid_block2(self.mid_block1(h, modulation), modulation)
        for up in self.up_blocks:
            h = up(h, skips.pop(), modulation)
        return self.join(self.conv_out(self.act(self.norm_out(h))))
