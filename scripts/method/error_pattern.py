"""The third network, not of the paper: where in a rebuilt volume errors are large, and where they are small.

It sees the result, its measured part, and how far its two families of planes are apart. Its convolutions are
dilated and have no norms: a voxel's number does not depend on how much air is around the head. The module compiles with
`torch.jit.script`.
"""

from __future__ import annotations

import math

import torch
from monai.networks.nets.diffusion_model_unet import zero_module
from torch import Tensor, nn

from .slice_projection import noise_level

WIDTH = 24  # features
DILATIONS = (1, 1, 2, 4, 8, 1)  # pixels; a pixel's number comes from 17 around it on each side
SHOWN = 5  # channels that they become
TYPICAL = 0.05  # error in [-1, 1], where training starts
FACTS = 6  # numbers for each row: its place in the slice, and the lengths


class ErrorPatternNetwork(nn.Module):
    """Rebuilt planes, and their slices -> the logarithm of the error's size in each pixel.

    It starts at one number everywhere. Its numbers are right up to a factor for each scan, which calibration finds.
    """

    def __init__(self) -> None:
        super().__init__()
        widths = [SHOWN + FACTS, *(WIDTH for _ in DILATIONS)]
        layers: list[nn.Module] = []
        for before, after, dilation in zip(widths, widths[1:], DILATIONS):
            layers += [nn.Conv2d(before, after, 3, padding=dilation, dilation=dilation), nn.ReLU()]
        self.layers = nn.Sequential(*layers, zero_module(nn.Conv2d(WIDTH, 1, 1)))
        nn.init.constant_(self.layers[-1].bias, math.log(TYPICAL))  # type: ignore[arg-type]  # torch: or a module

    def forward(self, planes: Tensor, rows: Tensor, lengths: Tensor) -> Tensor:
        """The logarithm of the mean absolute error, `(B, 1, H, W)`, in units of `planes`.

        Args:
            planes: `(B, 3, H, W)` in [-1, 1], the slice axis third: the rebuilt planes; the measured slices, linear
                between their centres; and half the distance between both families of planes, NaN where one was made.
            rows: `(H,)`, where the rows lie, in slices from the centre of the first one.
            lengths: `(4,)`: thickness of the slices, target, and spacing of the slices in mm; and the noise of the
                slices, as a share of the range.
        """
        result, slices, spread = planes.split(1, dim=1)
        known = spread.isfinite()
        apart = torch.where(known, spread, torch.zeros_like(spread))
        seen = torch.cat([result + 1, 4 * (result - slices), 8 * apart, (1 + 300 * apart).log()], dim=1)  # air is at 0
        place = 2 * (rows - rows.round()).abs()  # 0 in the middle of a slice, 1 between two
        inside = torch.stack([place, place.square()])
        ratios = torch.stack([lengths[0] / lengths[1], lengths[2] / lengths[0], lengths[1]]).log()
        known_facts = torch.cat([ratios, noise_level(lengths[3:])])
        facts = torch.cat([inside, known_facts[:, None].expand(4, rows.shape[0])]).to(planes.dtype)
        facts = facts[None, :, :, None].expand(planes.shape[0], -1, -1, planes.shape[3])
        return self.layers(torch.cat([seen, known.to(planes.dtype), facts], dim=1))
