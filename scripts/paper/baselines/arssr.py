"""ArSSR: intensities from features of a 3-D residual dense network and absolute coordinates.

Wu et al., IEEE J. Biomed. Health Inform. 27:1004-1015 (2023).
"""

import torch
from torch import Tensor, nn

from .coordinates import CoordinateNetwork, between_slices
from .rdn import ResidualDenseNetwork


class ArSSR(CoordinateNetwork):
    """Trilinear features and the coordinate in the volume, through seven layers with a ReLU each and a linear one.

    The published last layer has a ReLU too. A start that lies below it everywhere has no gradient and never learns.

    Args:
        features: channels of the encoder; the compared one has 64.
        blocks: dense blocks of it; compared: 8.
        layers: of each; compared: 3.
        out_features: of the encoder; compared: 128.
        hidden: width of the decoder; compared: 256.
    """

    def __init__(self, features: int, blocks: int, layers: int, out_features: int, hidden: int):
        super().__init__()
        self.encoder = nn.Sequential(
            ResidualDenseNetwork(3, 1, features, blocks, layers, growth=features),
            nn.Conv3d(features, out_features, 3, padding=1),
        )
        width = out_features + 3
        ends = [(width, hidden), (hidden, hidden), (hidden, hidden)]
        first = [nn.Sequential(nn.Linear(*pair), nn.ReLU()) for pair in (*ends, (hidden, width))]
        second = [nn.Sequential(nn.Linear(*pair), nn.ReLU()) for pair in ends]
        self.first, self.second = nn.Sequential(*first), nn.Sequential(*second)
        self.last = nn.Linear(hidden, 1)

    def encode(self, image: Tensor) -> Tensor:
        """Thick slices `(B, N, S, W)` to features `(B, N, S, W, C)`."""
        return self.encoder(image[:, None]).movedim(1, -1)

    def decode(self, code: Tensor, image: Tensor, rows: Tensor, pixels: Tensor, ratio: Tensor) -> Tensor:
        """Intensities at the queries, `(B, Q)`; see `coordinates.RandQueried` for rows and pixels."""
        index = torch.stack([pixels[..., 0], rows, pixels[..., 1]], -1)
        place = (2 * index + 1) / index.new_tensor(image.shape[1:]) - 1  # -1 to 1 from edge to edge
        x = torch.cat([between_slices(code, rows, pixels), place], -1)
        return self.last(self.second(x + self.first(x)))[..., 0]
