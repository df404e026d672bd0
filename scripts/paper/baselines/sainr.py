"""SA-INR: intensities from local attention among the voxels of two slices (Wang et al., 2022).

Wang et al., Spatial attention-based implicit neural representation for arbitrary reduction of MRI slice spacing,
arXiv:2205.11346.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .coordinates import CoordinateNetwork, at, between_slices, perceptron
from .edsr import EDSR


class Code(NamedTuple):
    """Thick slices, each `(B, N, S, W, C)`, as features before and after attention."""

    features: Tensor
    keys: Tensor
    values: Tensor


class SAINR(CoordinateNetwork):
    """A perceptron on the trilinear feature and its attention to a window of two slices; the input is added.

    Args:
        features: channels of the encoder, `edsr.EDSR` in three dimensions; the compared one has 64.
        blocks: of the encoder; compared: 12.
        hidden: width of the perceptron; compared: 256.
        layers: hidden layers of it; compared: 4.
        window: edge of the attention's window in plane, odd, in voxels; compared: 7.
        dilation: of the window.
    """

    def __init__(self, features: int, blocks: int, hidden: int, layers: int = 4, window: int = 7, dilation: int = 2):
        super().__init__()
        self.encoder = EDSR(3, features, blocks)
        self.query, self.key, self.value = (nn.Linear(features, features) for _ in range(3))
        self.perceptron = perceptron(features, *[hidden] * layers, 1)
        self.reach = [dilation * (k - window // 2) for k in range(window)]

    def encode(self, image: Tensor) -> Code:
        """Thick slices `(B, N, S, W)` to their code."""
        features = self.encoder(image[:, None]).movedim(1, -1)
        return Code(features, self.key(features), self.value(features))

    def decode(self, code: Code, image: Tensor, rows: Tensor, pixels: Tensor, ratio: Tensor) -> Tensor:
        """Intensities at the queries, `(B, Q)`; see `coordinates.RandQueried` for rows and pixels."""
        feature = between_slices(code.features, rows, pixels)
        slices, window = self._window(rows, pixels, image.shape[1:])
        keys, values = (at(part, slices.flatten(1), window.flatten(1, 2)) for part in code[1:])
        keys, values = (part.unflatten(1, slices.shape[1:]) for part in (keys, values))  # (B, Q, K, C)
        attention = torch.einsum("bqc,bqkc->bqk", self.query(feature), keys).softmax(-1)
        found = feature + torch.einsum("bqk,bqkc->bqc", attention, values)
        measured = between_slices(image[..., None], rows, pixels)[..., 0]
        return measured + self.perceptron(found)[..., 0]

    def _window(self, rows: Tensor, pixels: Tensor, shape: torch.Size) -> tuple[Tensor, Tensor]:
        """Slices `(B, Q, K)` and pixels `(B, Q, K, 2)` that a query attends to, within the image."""
        reach = torch.tensor(self.reach, device=rows.device)
        step = torch.cartesian_prod(torch.arange(2, device=rows.device), reach, reach)  # (K, 3)
        slices = (rows.floor().long()[..., None] + step[:, 0]).clamp(0, shape[1] - 1)
        planes = (pixels[..., :1] + step[:, 1]).clamp(0, shape[0] - 1)
        columns = (pixels[..., 1:] + step[:, 2]).clamp(0, shape[2] - 1)
        return slices, torch.stack([planes, columns], -1)
