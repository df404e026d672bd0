"""LTE: intensities from local amplitudes, frequencies and a phase of the cell (Lee and Jin, CVPR 2022)."""

import math

import torch
from torch import Tensor, nn

from .coordinates import CoordinateNetwork, at, between_slices, neighbours, perceptron
from .edsr import EDSR


class LTE(CoordinateNetwork):
    """A perceptron on waves at each query, blended by area, and the input between its slices (Eqs. 4 to 8).

    Args:
        features: channels of the encoder, `edsr.EDSR`; the compared one has 64.
        blocks: of the encoder; compared: 16.
        hidden: amplitudes, of half as many frequencies, and width of the perceptron; compared: 256.
        layers: hidden layers of it; compared: 3.
    """

    def __init__(self, features: int, blocks: int, hidden: int, layers: int = 3):
        super().__init__()
        self.encoder = EDSR(2, features, blocks)
        self.amplitudes = nn.Conv2d(features, hidden, 3, padding=1)
        self.frequencies = nn.Conv2d(features, hidden, 3, padding=1)
        self.phase = nn.Linear(2, hidden // 2, bias=False)
        self.perceptron = perceptron(hidden, *[hidden] * layers, 1)

    def encode(self, image: Tensor) -> Tensor:
        """Thick planes `(B, 1, S, W)` to amplitudes and frequencies `(B, 1, S, W, 2 C)`."""
        features = self.encoder(image)
        waves = torch.cat([self.amplitudes(features), self.frequencies(features)], 1)
        return waves.movedim(1, -1)[:, None]

    def decode(self, code: Tensor, image: Tensor, rows: Tensor, pixels: Tensor, ratio: Tensor) -> Tensor:
        """Intensities at the queries, `(B, Q)`; see `coordinates.RandQueried` for rows, pixels and ratio."""
        phase = self.phase(2 * torch.stack([ratio, torch.ones_like(ratio)], 1))[:, None]  # (B, 1, C / 2)
        answers = []
        for index, distance, weight in neighbours(rows, code.shape[2]):
            amplitudes, frequencies = at(code, index, pixels).chunk(2, -1)
            way = 2 * torch.stack([distance, torch.zeros_like(distance)], -1)[..., None, :]  # across slices, in plane
            angles = math.pi * ((frequencies.unflatten(-1, (-1, 2)) * way).sum(-1) + phase)
            waves = amplitudes * torch.cat([angles.cos(), angles.sin()], -1)
            answers.append(weight * self.perceptron(waves)[..., 0])
        measured = between_slices(image[..., None], rows, pixels)[..., 0]
        return measured + answers[0] + answers[1]
