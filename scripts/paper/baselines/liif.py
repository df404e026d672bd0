"""LIIF: intensities from the features of the nearest voxels and the way to them (Chen et al., CVPR 2021)."""

import torch
from torch import Tensor
from torch.nn.functional import unfold

from .coordinates import CoordinateNetwork, at, neighbours, perceptron
from .edsr import EDSR


class LIIF(CoordinateNetwork):
    """A perceptron at each query, on features of 3 x 3 voxels, relative coordinate and cell; blended by area.

    Coordinates are relative to the planes' voxels, whose edge is 2, as in the publication (Eqs. 2 to 6). Pixels keep
    their places, so that two of the four members of its ensemble have no area; the other two are asked.

    Args:
        features: channels of the encoder, `edsr.EDSR`; the compared one has 64.
        blocks: of the encoder; compared: 16.
        hidden: width of the perceptron; compared: 256.
        layers: hidden layers of it; compared: 3.
    """

    def __init__(self, features: int, blocks: int, hidden: int, layers: int = 3):
        super().__init__()
        self.encoder = EDSR(2, features, blocks)
        self.perceptron = perceptron(9 * features + 4, *[hidden] * layers, 1)

    def encode(self, image: Tensor) -> Tensor:
        """Thick planes `(B, 1, S, W)` to features `(B, 1, S, W, C)`."""
        unfolded = unfold(self.encoder(image), 3, padding=1)  # (B, C, S W)
        return unfolded.unflatten(2, image.shape[2:]).movedim(1, -1)[:, None]

    def decode(self, code: Tensor, image: Tensor, rows: Tensor, pixels: Tensor, ratio: Tensor) -> Tensor:
        """Intensities at the queries, `(B, Q)`; see `coordinates.RandQueried` for rows, pixels and ratio."""
        cell = 2 * ratio[:, None].expand_as(rows)
        answers = []
        for index, distance, weight in neighbours(rows, code.shape[2]):
            place = torch.stack([2 * distance, 0 * distance, cell, torch.full_like(cell, 2)], -1)
            answers.append(weight * self.perceptron(torch.cat([at(code, index, pixels), place], -1))[..., 0])
        return answers[0] + answers[1]
