"""Random planes of sharp volumes, of which training pairs are made (Secs. 3.1, S1)."""

from collections.abc import Hashable, Mapping
from dataclasses import InitVar, dataclass
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform, RandomizableTransform
from monai.utils import convert_to_tensor
from torch.nn.functional import interpolate as resize

from ..stack import grid


class RandPlaned(RandomizableTransform, MapTransform):
    """Draws a slice axis and a plane that contains it. The slice axis becomes the plane's first axis.

    A plane across the slice axis would show no stair steps (Sec. S1). Both axes of the plane are sharp. `spacing` in
    the result holds the plane's two voxel edges, `plane_spacing` that of the third axis, in mm.

    Args:
        keys: `(1, X, Y, Z)` volumes on one grid, the first with an affine; all get the same plane. `sharp_axes` in the
            data names the axes to choose from.
        planes: how many neighbouring planes make the first axis of the result. A volume with fewer repeats its last.
            Half of the time they come in reverse order.
        allow_missing_keys: keys but for the first may be missing.
    """

    def __init__(self, keys: KeysCollection, planes: int = 1, allow_missing_keys: bool = False):
        MapTransform.__init__(self, keys, allow_missing_keys)
        RandomizableTransform.__init__(self, prob=1.0)
        self.planes = planes

    # MONAI declares one argument
    def randomize(self, shape: tuple[int, ...], sharp_axes: tuple[int, ...]) -> None:  # type: ignore[override]
        """Draws the slice axis, the plane's other axis and its index."""
        self._axis, self._other = (int(a) for a in self.R.permutation(sharp_axes)[:2])
        self._normal = 3 - self._axis - self._other
        self._index = int(self.R.randint(max(shape[self._normal] - self.planes, 0) + 1))
        self._reversed = self.planes > 1 and bool(self.R.random_sample() < 0.5)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        volume = data[self.keys[0]]
        self.randomize(volume.shape[1:], data["sharp_axes"])
        spacing = grid.voxel_spacing(volume.affine)
        index = torch.arange(self._index, self._index + self.planes).clamp(max=volume.shape[1 + self._normal] - 1)
        index = index.flip(0) if self._reversed else index
        edges = spacing[[self._axis, self._other, self._normal]].tolist()
        result: dict[Hashable, Any] = {"spacing": tuple(edges[:2]), "plane_spacing": edges[2]}
        for key in self.key_iterator(dict(data)):
            planes = convert_to_tensor(data[key], track_meta=False)[0].index_select(self._normal, index).float()
            result[key] = planes.permute(self._normal, self._axis, self._other)
        return result


@dataclass(eq=False)
class RandResampled(RandomizableTransform, MapTransform):
    """Draws a voxel size and resamples a plane to it: target thickness, pixel size and head size vary.

    Pixels may become finer than they were, because scans are often interpolated in plane. The target thickness may
    not: the plane is the truth along that axis. Empty pixels stay empty, and do not darken their neighbours. `spacing`
    in the data is updated, and `plane_spacing` by the head's size.

    Args:
        keys: `(N, H, W)` planes whose second axis is the slice axis. They are 0 where they are empty, and nowhere
            negative. `spacing` and `plane_spacing` are in the data, in mm.
        target_range: `T_hr` is uniform in this range, in mm, but never finer than the plane.
        pixel_range: in mm. For half of the planes the other edge is uniform in this range. For the others it is
            `T_hr`. Null makes it `T_hr` for all.
        size_range: the spacing is first multiplied by a factor, uniform in this range. The head becomes larger or
            smaller by it.
    """

    keys: InitVar[KeysCollection]
    target_range: tuple[float, float]
    pixel_range: tuple[float, float] | None
    size_range: tuple[float, float]
    allow_missing_keys: InitVar[bool] = False

    def __post_init__(self, keys: KeysCollection, allow_missing_keys: bool) -> None:
        MapTransform.__init__(self, keys, allow_missing_keys)
        RandomizableTransform.__init__(self, prob=1.0)

    def randomize(self, spacing: tuple[float, float, float]) -> None:  # type: ignore[override]  # MONAI declares Any
        """Draws the head's size and both edges of the new pixels."""
        self._native = np.array(spacing) * self.R.uniform(*self.size_range)
        low, high = self.target_range
        target = max(self._native[0], self.R.uniform(min(max(low, self._native[0]), high), high))
        low, high = self.pixel_range or (target, target)
        pixel = self.R.uniform(low, high) if self.R.random_sample() < 0.5 else target
        self._spacing = (float(target), float(pixel))

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        self.randomize((*data["spacing"], data["plane_spacing"]))
        result = {**data, "spacing": self._spacing, "plane_spacing": float(self._native[2])}
        for key in self.key_iterator(result):
            plane = result[key]
            size = [max(1, round(n * s / new)) for n, s, new in zip(plane.shape[1:], self._native, self._spacing)]
            filled = (plane > 0).to(plane)  # a scan without skull ends at a hard edge; the filter would soften it
            values, coverage = resize(torch.stack([plane, filled]), size=size, mode="bicubic", antialias=True)
            # bicubic undershoots beside bright edges
            result[key] = (values / coverage.clamp(min=0.5)).clamp(min=0) * (coverage >= 0.5)
        return result
