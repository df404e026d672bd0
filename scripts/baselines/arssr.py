"""ArSSR: intensities from features of a 3-D residual dense network and absolute coordinates (Wu et al., 2023).

Wu et al., IEEE J. Biomed. Health Inform. 27:1004-1015 (2023); residual dense network: Zhang et al., CVPR 2018.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .coordinates import between_slices


class DenseBlock(nn.Module):
    """Convolutions that each see all before them, a 1 x 1 x 1 fusion, and a skip.

    Args:
        features: channels in and out.
        layers: convolutions, of `features` channels each.
    """

    def __init__(self, features: int, layers: int):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv3d((1 + k) * features, features, 3, padding=1) for k in range(layers))
        self.fusion = nn.Conv3d((1 + layers) * features, features, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape in and out."""
        h = x
        for conv in self.convs:
            h = torch.cat([h, conv(h).relu()], 1)
        return x + self.fusion(h)


class ResidualDenseNetwork(nn.Module):
    """One channel to `out_features`, on the grid of the input.

    Args:
        features: channels within.
        blocks: dense blocks.
        layers: of each.
        out_features: channels of the result.
    """

    def __init__(self, features: int, blocks: int, layers: int, out_features: int):
        super().__init__()
        self.conv_in = nn.Conv3d(1, features, 3, padding=1)
        self.conv_second = nn.Conv3d(features, features, 3, padding=1)
        self.blocks = nn.ModuleList(DenseBlock(features, layers) for _ in range(blocks))
        self.fusion = nn.Sequential(
            nn.Conv3d(blocks * features, features, 1), nn.Conv3d(features, features, 3, padding=1)
        )
        self.conv_out = nn.Conv3d(features, out_features, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """Args: `(B, 1, X, Y, Z)`. Returns `(B, out_features, X, Y, Z)`."""
        shallow = self.conv_in(image)
        h, found = self.conv_second(shallow), []
        for block in self.blocks:
            h = block(h)
            found.append(h)
        return self.conv_out(shallow + self.fusion(torch.cat(found, 1)))


class ArSSR(nn.Module):
    """Trilinear features and the coordinate in the volume, through eight layers with a ReLU each.

    Args:
        features: channels of the encoder; the compared one has 64.
        blocks: dense blocks of it; compared: 8.
        layers: of each; compared: 3.
        out_features: of the encoder; compared: 128.
        hidden: width of the decoder; compared: 256.
        last_relu: end in a ReLU, as published, which begins at the darkest tissue, -1. A start below it everywhere has
            no gradient and does not learn; without it there is no such start.
    """

    def __init__(
        self, features: int, blocks: int, layers: int, out_features: int, hidden: int, last_relu: bool = False
    ):
        super().__init__()
        self.encoder = ResidualDenseNetwork(features, blocks, layers, out_features)
        width = out_features + 3
        ends = [(width, hidden), (hidden, hidden), (hidden, hidden)]
        first = [nn.Sequential(nn.Linear(*pair), nn.ReLU()) for pair in (*ends, (hidden, width))]
        second = [nn.Sequential(nn.Linear(*pair), nn.ReLU()) for pair in ends]
        self.first, self.second = nn.Sequential(*first), nn.Sequential(*second)
        self.last = nn.Linear(hidden, 1)
        self.last_relu = last_relu

    def encode(self, image: Tensor) -> Tensor:
        """Thick slices `(B, N, S, W)` to features `(B, N, S, W, C)`."""
        return self.encoder(image[:, None]).movedim(1, -1)

    def decode(self, code: Tensor, image: Tensor, rows: Tensor, pixels: Tensor, ratio: Tensor) -> Tensor:
        """Intensities at the queries, `(B, Q)`; see `coordinates.RandQueried` for rows and pixels."""
        index = torch.stack([pixels[..., 0], rows, pixels[..., 1]], -1)
        place = (2 * index + 1) / index.new_tensor(image.shape[1:]) - 1  # -1 to 1 from edge to edge
        x = torch.cat([between_slices(code, rows, pixels), place], -1)
        intensity = self.last(self.second(x + self.first(x)))[..., 0]
        return intensity.relu() - 1 if self.last_relu else intensity

    def forward(self, image: Tensor, rows: Tensor, pixels: Tensor, ratio: Tensor) -> Tensor:
        """See `encode` and `decode`."""
        return self.decode(self.encode(image), image, rows, pixels, ratio)
