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
    is a thin bent tube, bright or dark. Both reach into neighbouring planes: a blob as an ellipsoid does, a tube along
    its way. `KEY_lesions` in the data is the weight of each pixel of the middle plane: the
    share that lesions cover, times the root of the largest diameter over theirs. Small lesions have few pixels.

    Args:
        keys: one key, `(N, H, W)`, an odd number of neighbouring planes in [0, 1]; `spacing` and `plane_spacing` in the
            data, in mm.
        prob: share of the planes with lesions, and again with a vessel.
        most: lesions in a plane at most.
        diameters: of lesions, in mm; logarithms are uniform.
        contrasts: of lesions, either way, as a share of the intensity range.
        widths: of vessels, in mm.
        tilt: of vessels out of the plane, standard deviation in radians.
        spread: standard deviation of the places of a group, in mm.
    """

    keys: InitVar[KeysCollection]
    prob: InitVar[float]
    most: int = 6
    diameters: tuple[float, float] = (2.0, 12.0)
    contrasts: tuple[float, float] = (0.08, 0.5)
    widths: tuple[float, float] = (0.8, 2.5)
    tilt: float = 0.2
    spread: float = 12.0
    allow_missing_keys: InitVar[bool] = False

    def __post_init__(self, keys: KeysCollection, prob: float, allow_missing_keys: bool) -> None:
        MapTransform.__init__(self, keys, allow_missing_keys)
        RandomizableTransform.__init__(self, prob=prob)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        result, spacing = dict(data), np.array([data["plane_spacing"], *data["spacing"]])
        for key in self.key_iterator(result):
            planes: Tensor = convert_to_tensor(data[key], track_meta=False).clone()
            middle = len(planes) // 2
            covered = data.get(f"{key}_lesions", torch.zeros_like(planes[:1])).clone()
            tissue = np.argwhere(planes[middle].numpy() > TISSUE)
            if len(tissue):
                if self.R.random_sample() < self.prob:
                    self._draw_lesions(planes.numpy(), covered[0].numpy(), spacing, tissue)
                if self.R.random_sample() < self.prob:
                    self._draw_vessel(planes.numpy(), spacing, tissue)
            result.update({key: planes, f"{key}_lesions": covered})
        return result

    def _centre(self, spacing: np.ndarray, tissue: np.ndarray) -> np.ndarray:
        """A place in the tissue and between pixels, in mm from the first pixel."""
        return (tissue[self.R.randint(len(tissue))] + self.R.uniform(-0.5, 0.5, 2)) * spacing[1:]

    def _draw_lesions(self, planes: np.ndarray, covered: np.ndarray, spacing: np.ndarray, tissue: np.ndarray) -> None:
        sign = 1 if self.R.random_sample() < 0.7 else -1  # most are bright
        first = self._centre(spacing, tissue)
        grouped = self.R.random_sample() < 0.5
        for _ in range(self.R.randint(1, self.most + 1)):
            centre = first + self.R.normal(0, self.spread, 2) if grouped else self._centre(spacing, tissue)
            diameter = np.exp(self.R.uniform(*np.log(self.diameters)))
            contrast = sign * self.R.uniform(*self.contrasts)
            box, z, y, x = self._around(planes, spacing, centre, diameter)
            if not planes[box].size:  # of a group, beyond the plane
                continue
            weight = self._outline(z, y, x, diameter / 2, spacing[1:].mean())
            middle = len(planes) // 2
            held = planes[box][middle][weight[middle] > 0]
            if held.size and np.median(held) > TISSUE:  # a group may reach into the air
                level = np.clip(np.median(held) + contrast, 0, 1)
                weight *= self.R.uniform(0.5, 1)  # the tissue behind shines through
                planes[box] += weight * (level - planes[box])
                weight *= np.sqrt(self.diameters[1] / diameter)
                covered[box[1:]] = np.maximum(covered[box[1:]], weight[middle])

    def _outline(self, z: np.ndarray, y: np.ndarray, x: np.ndarray, radius: float, edge: float) -> np.ndarray:
        """1 inside of a blob around the origin, 0 outside, and in between where its edge cuts a pixel."""
        angle, distance = np.arctan2(y, x), np.sqrt(z**2 + y**2 + x**2)
        turn, stretch = self.R.uniform(0, np.pi), self.R.uniform(0.5, 1)
        around = angle - turn
        limit = radius / np.hypot(np.cos(around), np.sin(around) / stretch)
        for k in range(2, 2 + HARMONICS):
            limit = limit * (1 + self.R.normal(0, 0.3 / k) * np.cos(k * around + self.R.uniform(0, 2 * np.pi)))
        softness = edge * self.R.uniform(1, 3)
        return np.clip((limit - distance) / softness + 0.5, 0, 1)

    def _draw_vessel(self, planes: np.ndarray, spacing: np.ndarray, tissue: np.ndarray) -> None:
        length = self.R.uniform(1, 40)  # mm; a short one is a vessel that crosses the plane
        centre, width = self._centre(spacing, tissue), self.R.uniform(*self.widths)
        box, z, y, x = self._around(planes, spacing, centre, length + 2 * width)
        along, bend = self.R.uniform(0, 2 * np.pi), self.R.normal(0, 0.3) * length
        s = np.linspace(-0.5, 0.5, POINTS)
        line = np.stack([s * length, bend * s**2])
        turned = np.array([[np.cos(along), -np.sin(along)], [np.sin(along), np.cos(along)]]) @ line
        slope = np.tan(np.clip(self.R.normal(0, self.tilt), -1.2, 1.2))
        line = np.concatenate([slope * length * s[None], turned])
        distance = np.sqrt(_squared_distance((z, y, x), line.T))
        weight = np.clip((width / 2 - distance) / spacing[1:].mean() + 0.5, 0, 1)
        level = self.R.uniform(0.6, 1) if self.R.random_sample() < 0.7 else self.R.uniform(0, 0.1)
        planes[box] += weight * (level - planes[box])

    def _around(
        self, planes: np.ndarray, spacing: np.ndarray, centre: np.ndarray, extent: float
    ) -> tuple[tuple[slice, slice, slice], np.ndarray, np.ndarray, np.ndarray]:
        """The pixels within `extent` mm of the centre, and how far they lie from it along all axes, in mm."""
        shape, edges = planes.shape[1:], spacing[1:]
        low = np.clip(np.floor((centre - extent) / edges), 0, shape).astype(int)
        high = np.clip(np.ceil((centre + extent) / edges) + 1, 0, shape).astype(int)
        z, y, x = np.ogrid[: len(planes), low[0] : high[0], low[1] : high[1]]
        box = (slice(None), slice(low[0], high[0]), slice(low[1], high[1]))
        return box, (z - len(planes) // 2) * spacing[0], y * edges[0] - centre[0], x * edges[1] - centre[1]


def _squared_distance(place: tuple[np.ndarray, ...], line: np.ndarray) -> np.ndarray:
    """The squared distance of each pixel, whose `place` along each axis is given, from straight pieces, `(n, axes)`."""
    nearest = np.full(np.broadcast_shapes(*(p.shape for p in place)), np.inf)
    for start, end in pairwise(line):
        away, step = [p - p0 for p, p0 in zip(place, start)], end - start
        share = np.clip(sum(a * s for a, s in zip(away, step)) / max(step @ step, 1e-12), 0, 1)
        nearest = np.minimum(nearest, sum((a - share * s) ** 2 for a, s in zip(away, step)))
    return nearest
