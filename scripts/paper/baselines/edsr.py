"""EDSR's residual blocks without batch norm, the encoder of LIIF, LTE and SA-INR (Lim et al., CVPR Workshops 2017)."""

from monai.networks.layers import Conv
from torch import Tensor, nn


class Block(nn.Module):
    """Convolution, ReLU, convolution, around a skip."""

    def __init__(self, dims: int, features: int):
        super().__init__()
        conv = Conv[Conv.CONV, dims]
        self.convs = nn.Sequential(
            conv(features, features, 3, padding=1), nn.ReLU(), conv(features, features, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Same shape in and out."""
        return x + self.convs(x)


class EDSR(nn.Module):
    """A channel to `features`, on the grid of the input.

    Args:
        dims: 2 or 3 spatial dimensions.
        features: channels.
        blocks: residual blocks.
    """

    def __init__(self, dims: int, features: int, blocks: int):
        super().__init__()
        conv = Conv[Conv.CONV, dims]
        self.conv_in = conv(1, features, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(dims, features) for _ in range(blocks)))
        self.conv_out = conv(features, features, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """Args: `(B, 1, ...)`. Returns `(B, features, ...)`."""
        shallow = self.conv_in(image)
        return shallow + self.conv_out(self.blocks(shallow))
