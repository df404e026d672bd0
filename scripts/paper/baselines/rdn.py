"""Residual dense network: dense blocks whose outputs are gathered; the features of SAINT and ArSSR.

Zhang et al., CVPR 2018.
"""

import torch
from monai.networks.layers import Conv
from torch import Tensor, nn


class DenseBlock(nn.Module):
    """Convolutions of which each sees all before it, fused by a 1 x 1 convolution, around a shortcut.

    Args:
        dims: spatial dimensions, 2 or 3.
        channels: of input and output, `G0`.
        layers: of convolutions, `C`.
        growth: channels that each adds, `G`.
    """

    def __init__(self, dims: int, channels: int, layers: int, growth: int):
        super().__init__()
        conv = Conv[Conv.CONV, dims]
        self.convs = nn.ModuleList([conv(channels + k * growth, growth, 3, padding=1) for k in range(layers)])
        self.fuse = conv(channels + layers * growth, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, channels, ...)` to the same."""
        h = x
        for conv in self.convs:
            h = torch.cat([h, conv(h).relu()], dim=1)
        return x + self.fuse(h)


class ResidualDenseNetwork(nn.Module):
    """An image to features on its own grid.

    Args:
        dims: spatial dimensions, 2 or 3.
        in_channels: of the image.
        channels: of the features, `G0`.
        blocks: dense blocks, `D`.
        layers: see `DenseBlock`.
        growth: see `DenseBlock`.
    """

    def __init__(self, dims: int, in_channels: int, channels: int, blocks: int, layers: int, growth: int):
        super().__init__()
        conv = Conv[Conv.CONV, dims]
        self.channels = channels
        self.first = conv(in_channels, channels, 3, padding=1)
        self.second = conv(channels, channels, 3, padding=1)
        self.blocks = nn.ModuleList([DenseBlock(dims, channels, layers, growth) for _ in range(blocks)])
        self.fuse = nn.Sequential(conv(blocks * channels, channels, 1), conv(channels, channels, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """`(B, in_channels, ...)` to `(B, channels, ...)`."""
        shallow = self.first(x)
        h, gathered = self.second(shallow), []
        for block in self.blocks:
            h = block(h)
            gathered.append(h)
        return shallow + self.fuse(torch.cat(gathered, dim=1))
