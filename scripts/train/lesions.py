"""Lesions and vessels drawn into sharp planes, which training would otherwise hardly show."""

from collections.abc import Hashable, Mapping
from dataclasses import InitVar, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform, RandomizableTransform
from monai.utils import convert_to_tensor
from torch import Tensor

from ..stack.tissue import TISSUE

HARMONICS = 4  # of an outline
POINTS = 12  # of a vessel's centre line


@dataclass(eq=False)
class RandLesiond(RandomizableTransform, MapTransform):
    """Draws lesions into a plane, single and in groups, and a vessel now and then, before the plane is degraded.

    A lesion is a blob with an irregular edge, brighter or darker than the tissue there, in part or in whole. A vessel
    is a thin bent tube, bright or dark. A plane shows the section of a solid, so that drawings in the plane serve for
    solids: slices cut them everywhere. `KEY_lesions` in the data is the share of each pixel that lesions cover.

    Args:
        keys: one key, a `(1, H, W)` plane in [0, 1]; `spacing` in the data, in mm.
        prob: share of the planes with lesions, and again with a vessel.
        most: lesions in a plane at most.
        diameters: of lesions, in mm; logarithms are uniform.
        contrasts: of lesions, either way, as a share of the intensity range.
        widths: of vessels, in mm.
        spread: standard deviation of the places of a group, in mm.
    """

    keys: InitVar[KeysCollection]
    prob: InitVar[float]
    most: int = 6
    diameters: tuple[float, float] = (2.0, 12.0)
    contrasts: tuple[float, float] = (0.08, 0.5)
    widths: tuple[float, float] = (0.8, 2.5)
    spread: float = 12.0
    allow_missing_keys: InitVar[bool] = False

    def __post_init__(self, keys: KeysCollection, prob: float, allow_missing_keys: bool) -> None:
        MapTransform.__init__(self, keys, allow_missing_keys)
        RandomizableTransform.__init__(self, prob=prob)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        result, spacing = dict(data), np.array(data["spacing"])
        for key in self.key_iterator(result):
            plane: Tensor = convert_to_tensor(data[key], track_meta=False).clone()
            covered = data.get(f"{key}_lesions", torch.zeros_like(plane)).clone()
            tissue = np.argwhere(plane[0].numpy() > TISSUE)
            if len(tissue):
                if self.R.random_sample() < self.prob:
                    self._draw_lesions(plane[0].numpy(), covered[0].numpy(), spacing, tissue)
                if self.R.random_sample() < self.prob:
                    self._draw_vessel(plane[0].numpy(), spacing, tissue)
            result.update({key: plane, f"{key}_lesions": covered})
        return result

    def _centre(self, spacing: np.ndarray, tissue: np.ndarray) -> np.ndarray:
        """A place in the tissue and between pixels, in mm from the first pixel."""
        return (tissue[self.R.randint(len(tissue))] + self.R.uniform(-0.5, 0.5, 2)) * spacing

    def _draw_lesions(self, plane: np.ndarray, covered: np.ndarray, spacing: np.ndarray, tissue: np.ndarray) -> None:
        sign = 1 if self.R.random_sample() < 0.7 else -1  # most are bright
        first = self._centre(spacing, tissue)
        grouped = self.R.random_sample() < 0.5
        for _ in range(self.R.randint(1, self.most + 1)):
            centre = first + self.R.normal(0, self.spread, 2) if grouped else self._centre(spacing, tissue)
            diameter = np.exp(self.R.uniform(*np.log(self.diameters)))
            contrast = sign * self.R.uniform(*self.contrasts)
            box, y, x = self._around(plane, spacing, centre, diameter)
            if not plane[box].size:  # of a group, beyond the plane
                continue
            weight = self._outline(y, x, diameter / 2, spacing.mean())
            held = plane[box][weight > 0]
            if held.size and np.median(held) > TISSUE:  # a group may reach into the air
                level = np.clip(np.median(held) + contrast, 0, 1)
                weight *= self.R.uniform(0.5, 1)  # the tissue behind shines through
                plane[box] += weight * (level - plane[box])
                covered[box] = np.maximum(covered[box], weight)

    def _outline(self, y: np.ndarray, x: np.ndarray, radius: float, edge: float) -> np.ndarray:
        """1 inside of a blob around the origin, 0 outside, and in between where its edge cuts a pixel."""
        angle, distance = np.arctan2(y, x), np.hypot(y, x)
        turn, stretch = self.R.uniform(0, np.pi), self.R.uniform(0.5, 1)
        around = angle - turn
        limit = radius / np.hypot(np.cos(around), np.sin(around) / stretch)
        for k in range(2, 2 + HARMONICS):
            limit = limit * (1 + self.R.normal(0, 0.3 / k) * np.cos(k * around + self.R.uniform(0, 2 * np.pi)))
        softness = edge * self.R.uniform(1, 3)
        return np.clip((limit - distance) / softness + 0.5, 0, 1)

    def _draw_vessel(self, plane: np.ndarray, spacing: np.ndarray, tissue: np.ndarray) -> None:
        length = self.R.uniform(1, 40)  # mm; a short one is a vessel that crosses the plane
        centre, width = self._centre(spacing, tissue), self.R.uniform(*self.widths)
        box, y, x = self._around(plane, spacing, centre, length + 2 * width)
        along, bend = self.R.uniform(0, 2 * np.pi), self.R.normal(0, 0.3) * length
        s = np.linspace(-0.5, 0.5, POINTS)
        line = np.stack([s * length, bend * s**2])
        turned = np.array([[np.cos(along), -np.sin(along)], [np.sin(along), np.cos(along)]]) @ line
        distance = np.sqrt(_squared_distance(y, x, turned.T))
        weight = np.clip((width / 2 - distance) / spacing.mean() + 0.5, 0, 1)
        level = self.R.uniform(0.6, 1) if self.R.random_sample() < 0.7 else self.R.uniform(0, 0.1)
        plane[box] += weight * (level - plane[box])

    def _around(
        self, plane: np.ndarray, spacing: np.ndarray, centre: np.ndarray, extent: float
    ) -> tuple[tuple[slice, slice], np.ndarray, np.ndarray]:
        """The pixels within `extent` mm of the centre, and how far they lie from it along either axis, in mm."""
        low = np.clip(np.floor((centre - extent) / spacing), 0, plane.shape).astype(int)
        high = np.clip(np.ceil((centre + extent) / spacing) + 1, 0, plane.shape).astype(int)
        y, x = np.ogrid[low[0] : high[0], low[1] : high[1]]
        return (slice(low[0], high[0]), slice(low[1], high[1])), y * spacing[0] - centre[0], x * spacing[1] - centre[1]


def _squared_distance(y: np.ndarray, x: np.ndarray, line: np.ndarray) -> np.ndarray:
    """The squared distance of each pixel from a chain of straight pieces, `(n, 2)`."""
    nearest = np.full(np.broadcast_shapes(y.shape, x.shape), np.inf)
    for (y0, x0), (y1, x1) in pairwise(line):
        dy, dx = y1 - y0, x1 - x0
        share = np.clip(((y - y0) * dy + (x - x0) * dx) / max(dy**2 + dx**2, 1e-12), 0, 1)
        nearest = np.minimum(nearest, (y - y0 - share * dy) ** 2 + (x - x0 - share * dx) ** 2)
    return nearest
