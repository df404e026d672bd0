"""Stage 1 on the measured slices, not of the paper: features on their grid, mixed for every row of the fine grid.

A U-Net on planes that nearest neighbour has put on the fine grid first has to find where slices end. Here a convolution
spans three slices whatever their thickness, and the trunk costs the less, the thicker they are. The row's place and the
geometry say how the features of two slices make a row of the finer grid between them, as in Meta-SR (Hu et al., CVPR
2019). There are no norms, so that a scan's result does not depend on how much air is around the head. Neighbouring
planes stand beside each plane: their anatomy is nearly its own, their noise is not.

A guide, a sharp scan of another contrast of the same head, shows where edges are. Its own thick slices, by the slice
model of the scan, stand beside the measured ones: from them the trunk learns how the two contrasts relate at a place.
The module compiles with `torch.jit.script`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from monai.networks.nets.diffusion_model_unet import zero_module
from torch import Tensor, nn
from torch.nn.functional import pad

CONDITION = 32  # numbers that the blocks get of the geometry
HIDDEN = 64  # of the perceptron of a row's place
LENGTHS = 5  # thickness, target, spacing, pixel, noise


def noise_level(noise: Tensor) -> Tensor:
    """The noise of slices, as networks get it: 0 for 2 % of the range, -1.2 for none, 0.7 for 8 %."""
    return (noise.clamp(min=0.002) / 0.02).log() / 2


class GeometryBlock(nn.Module):
    """3 x 3 convolution, ReLU, 3 x 3 convolution, around a skip; the geometry scales and shifts what lies between."""

    def __init__(self, channels: int, hidden: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, hidden, 3, padding=1)
        self.conv2 = nn.Conv2d(hidden, channels, 3, padding=1)
        self.project = zero_module(nn.Linear(CONDITION, 2 * hidden))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """`x` is `(B, C, S, W)`, `condition` is `(B or 1, CONDITION)`; returns `(B, C, S, W)`."""
        scale, shift = self.project(condition)[:, :, None, None].chunk(2, dim=1)
        return x + self.conv2(torch.relu(torch.addcmul(shift, self.conv1(x), 1 + scale)))


class Level(nn.Module):
    """A layer that leads to a grid, and blocks on it."""

    def __init__(self, enter: nn.Module, channels: int, hidden: int, count: int):
        super().__init__()
        self.enter = enter
        self.blocks = nn.ModuleList([GeometryBlock(channels, hidden) for _ in range(count)])

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """`x` is `(B, C', S, W')`, `condition` as in `GeometryBlock`; returns `(B, C, S, W)`."""
        x = self.enter(x)
        for block in self.blocks:
            x = block(x, condition)
        return x


class SliceTrunk(nn.Module):
    """Features of thick planes: residual blocks on all columns, then on a half, a quarter and so on, and back.

    The slices keep their number.

    Args:
        channels: of each level, the finest first.
        hidden: channels within the blocks, for each level on the way down, then for each on the way up.
        blocks: of each level. Every level but the coarsest has them on the way down and again on the way up.
        planes: of the scan.
    """

    def __init__(self, channels: Sequence[int], hidden: Sequence[int], blocks: Sequence[int], planes: int):
        super().__init__()
        pairs = list(pairwise(channels))
        self.stride = 2 ** len(pairs)  # the width must be a multiple of it
        enters = [
            nn.Conv2d(planes + 1, channels[0], 3, padding=1),
            *(nn.Conv2d(a, b, (1, 2), (1, 2)) for a, b in pairs),
        ]
        self.down = nn.ModuleList([Level(*level) for level in zip(enters, channels, hidden, blocks)])
        ways = list(zip(pairs[::-1], hidden[len(channels) :], blocks[-2::-1]))
        self.up = nn.ModuleList([nn.ConvTranspose2d(b, a, (1, 2), (1, 2)) for (a, b), _, _ in ways])
        self.after = nn.ModuleList([Level(nn.Identity(), a, inside, count) for (a, _), inside, count in ways])

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """`x` is `(B, planes + 1, S, W)`, a scan's slices and last a guide's; returns `(B, C, S, W)`."""
        skips: list[Tensor] = []
        for down in self.down:
            x = down(x, condition)
            skips.append(x)
        skips.pop()
        for up, after in zip(self.up, self.after):
            x = after(up(x) + skips.pop(), condition)
        return x


class RowMixer(nn.Module):
    """The matrices that turn the features of the two slices around a fine row into the channels of that row.

    Args:
        features: of a slice's pixel.
        channels: of a fine pixel.
    """

    def __init__(self, features: int, channels: int):
        super().__init__()
        self.shape = [2 * features, channels]
        last = nn.Linear(HIDDEN, 2 * features * channels)
        nn.init.normal_(last.weight, std=(2 * features * HIDDEN) ** -0.5)  # channels as large as features
        nn.init.normal_(last.bias, std=(2 * features) ** -0.5)
        first, second = nn.Linear(6 + LENGTHS, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.perceptron = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)

    def forward(self, offset: Tensor, geometry: Tensor) -> Tensor:
        """The matrices of rows, `(B or 1, R, 2 features, channels)`.

        Args:
            offset: `(B or 1, R)`, of each row from the lower slice's centre, in slice spacings; in [0, 1] between the
                two, and beyond it outside of all centres.
            geometry: `(B or 1, LENGTHS)`, see `SliceProjectionNetwork.geometry`.
        """
        place = offset.clamp(0, 1)
        wave = 2 * math.pi * place
        outside = offset - place  # in slice spacings, its sign says on which side
        places = [2 * place - 1, outside, wave.sin(), wave.cos(), (2 * wave).sin(), (2 * wave).cos()]
        rows = torch.stack(places, dim=-1)
        count = max(rows.shape[0], geometry.shape[0])
        facts = geometry[:, None].expand(count, rows.shape[1], geometry.shape[1])
        matrix = self.perceptron(torch.cat([rows.expand(count, -1, -1), facts], dim=-1))
        return matrix.unflatten(-1, self.shape)


def mixed(around: list[Tensor], matrix: Tensor) -> Tensor:
    """Features of the two slices around each fine row, `(B, R, W, C)` each, by a `RowMixer`: `(B, channels, R, W)`."""
    lower, upper = matrix.to(around[0].dtype).chunk(2, dim=2)
    return (around[0] @ lower + around[1] @ upper).permute(0, 3, 1, 2)


class GuideCorrection(nn.Module):
    """The detail of a guide that slices lose, as far as the scan is likely to have it too.

    The features of the scan give a gate for each feature of the guide. The correction begins at 0.

    Args:
        features: of a slice's pixel.
        fine_channels: of the scan, on the fine grid.
        channels: of the guide, on the fine grid.
    """

    def __init__(self, features: int, fine_channels: int, channels: int):
        super().__init__()
        self.mixer = RowMixer(features, channels)
        self.enter1 = nn.Conv2d(2, 3 * channels // 2, 3, padding=1)
        self.enter2 = nn.Conv2d(3 * channels // 2, channels, 3, padding=1)
        self.fine1 = nn.Conv2d(fine_channels + 2 * channels, 2 * channels, 3, padding=1)
        self.fine2 = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1)
        self.fine3 = zero_module(nn.Conv2d(2 * channels, 1, 3, padding=1))

    def forward(self, scan: Tensor, gates: Tensor, guide: Tensor, lost: Tensor) -> Tensor:
        """The correction of a plane, `(B, 1, R, W)`.

        Args:
            scan: `(B, fine_channels, R, W)`.
            gates: `(B, channels, R, W)`, of `mixer`.
            guide: `(B, 1, R, W)`, air at 0.
            lost: `(B, 1, R, W)`, the guide less its own thick slices, linear between them.
        """
        features = self.enter2(torch.relu(self.enter1(torch.cat([guide, lost], dim=1))))
        x = self.fine1(torch.relu(torch.cat([scan, gates * features, features], dim=1)))
        x = x + self.fine2(torch.relu(x))
        return self.fine3(torch.relu(x))


def neighbours(planes: int, count: int) -> Tensor:
    """Places of each of a volume's planes and of its `count - 1` nearest neighbours, in order: `(planes, count)`.

    The first and the last plane stand for those beyond them.

    Example:
        >>> neighbours(3, 3).tolist()
        [[0, 0, 1], [0, 1, 2], [1, 2, 2]]
    """
    places = torch.arange(planes)[:, None] + torch.arange(count) - count // 2
    return places.clamp(0, planes - 1)


class SliceProjectionNetwork(nn.Module):
    """Stage 1 on the measured slices: thick planes -> sharp planes on the fine grid, by all that is known of both.

    It starts as linear interpolation between the slices' centres, and learns a correction. The same weights serve
    with and without a guide.

    Args:
        fine_channels: on the fine grid, one of which is the linear interpolation.
        planes: how many neighbouring planes of the scan it sees, an odd number; the middle one is made sharp.
        hidden: channels within the trunk's blocks, for each level on the way down, the finest first, then for each on
            the way up; None for as many as `channels`.
    """

    def __init__(
        self,
        channels: Sequence[int],
        blocks: Sequence[int],
        fine_channels: int,
        guide_channels: int,
        planes: int = 1,
        hidden: Sequence[int] | None = None,
    ):
        super().__init__()
        self.lengths = LENGTHS  # how many condition the network
        self.planes = planes
        width = fine_channels
        self.embedding = nn.Sequential(
            nn.Linear(LENGTHS, CONDITION), nn.ReLU(), nn.Linear(CONDITION, CONDITION), nn.ReLU()
        )
        self.trunk = SliceTrunk(channels, [*channels, *channels[-2::-1]] if hidden is None else hidden, blocks, planes)
        self.mixer = RowMixer(channels[0], width - 1)
        self.fine1 = nn.Conv2d(width, width, 3, padding=1)
        self.fine2 = nn.Conv2d(width, width, 3, padding=1)
        self.fine3 = zero_module(nn.Conv2d(width, 1, 3, padding=1))
        self.guide = GuideCorrection(channels[0], width, guide_channels)
        # a training step takes a sixth less on a CPU; torch does not declare the argument
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def geometry(self, lengths: Tensor) -> Tensor:
        """`lengths` as in `forward` -> `(B or 1, LENGTHS)`: logarithms of thickness, target and pixel over spacing; of
        spacing; and `noise_level`.
        """
        spacing, pixel, noise = lengths[:, 2:3], lengths[:, 3:4], lengths[:, 4:]
        ratios = torch.cat([lengths[:, :2] / spacing, pixel / spacing, spacing], dim=1).log()
        return torch.cat([ratios, noise_level(noise)], dim=1)

    def forward(
        self,
        image: Tensor,
        lengths: Tensor,
        rows: Tensor | None = None,
        guide: Tensor | None = None,
        guide_slices: Tensor | None = None,
        guide_share: Tensor | None = None,
    ) -> Tensor:
        """Sharp planes of measured ones, `(B, 1, R, W)`.

        Args:
            image: `(B, planes, S, W)` in [-1, 1], measured slices along the third axis; neighbouring planes along the
                second, one pixel from each other (`neighbours`).
            lengths: `(B or 1, 5)`: thickness of the slices, target, spacing of the slices and pixel within them, in mm;
                the standard deviation of the slices' noise, as a share of the range of their tissue.
            rows: `(B or 1, R)`, where the rows of the result lie, in slices from the centre of the first one, in
                ascending order and one target from each other. Without them they are where the slices are.
            guide: `(B, 1, R, W)` in [-1, 1], a scan of another contrast on the fine grid; -1 where it saw nothing.
            guide_slices: `(B, 1, S, W)`, its thick slices (`profile.acquire`), as the measured ones.
            guide_share: `(B, 1, R, W)` in [0, 1], how far the guide counts. Without it a guide counts wholly, but for
                planes of which it saw nothing.
        """
        batch, slices, columns = image.shape[0], image.shape[2], image.shape[3]
        if rows is None:
            rows = torch.arange(slices, device=image.device, dtype=image.dtype)[None]
        if guide is not None and guide_slices is None:
            raise ValueError("a guide has no slices: expected guide_slices beside guide.")
        geometry = self.geometry(lengths)
        around = image + 1  # so that beyond the edges nothing is seen, as in air
        seen = around[:, self.planes // 2, None]
        guide_seen = torch.zeros_like(seen) if guide_slices is None else guide_slices + 1
        both = pad(torch.cat([around, guide_seen], dim=1), [0, -columns % self.trunk.stride])  # (B, planes + 1, S, W')
        features = self.trunk(both, self.embedding(geometry)).permute(0, 2, 3, 1)[:, :, :columns]  # (B, S, W, C)
        lower = rows.floor().clamp(0, max(slices - 2, 0))
        offset = rows - lower
        first = lower.long() + slices * torch.arange(batch, device=image.device)[:, None]  # (B, R), of all slices
        second = first + min(slices - 1, 1)
        shape = [batch, first.shape[1], columns, -1]  # fine rows
        flat = features.reshape(batch * slices, -1)
        ends = [flat.index_select(0, index.flatten()).reshape(shape) for index in (first, second)]
        share = offset.clamp(0, 1)[:, :, None]
        between: list[Tensor] = []  # the slices of scan and guide, linear
        for image_seen in (seen, guide_seen):
            flat = image_seen.reshape(batch * slices, columns)
            next_to = [flat.index_select(0, index.flatten()).reshape(shape[:3]) for index in (first, second)]
            between.append(torch.lerp(next_to[0], next_to[1], share.expand_as(next_to[0]))[:, None])
        linear = between[0]
        channels = mixed(ends, self.mixer(offset, geometry))  # (B, fine_channels - 1, R, W)
        scan = torch.cat([linear.to(channels.dtype), channels], dim=1)
        x = self.fine1(torch.relu(scan))
        x = x + self.fine2(torch.relu(x))
        result = linear - 1 + self.fine3(torch.relu(x))
        if guide is not None:
            gates = mixed(ends, self.guide.mixer(offset, geometry))
            correction = self.guide(scan, gates, guide + 1, guide + 1 - between[1])
            if guide_share is None:
                guide_share = (guide.amax(dim=[1, 2, 3], keepdim=True) > -1).to(guide.dtype)
            result = result + correction * guide_share
        return result
