"""Dictionary transforms: files and volumes to network inputs and back, on top of `slice_profile` and `grid`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np
import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform, RandomizableTransform
from torch import Tensor
from torch.nn.functional import interpolate

from . import grid
from .slice_profile import TIME_BANDWIDTH, degrade


class NormalizeIntensityRanged(MapTransform):
    """Maps a volume's own intensity range linearly to [-1, 1], without clipping; one map for all its slices.

    The range is the minimum and the 99.9th percentile; brighter voxels exceed 1. `intensity_range` in the meta data
    keeps it for `RestoreIntensityRanged`. A constant volume becomes -1.
    """

    upper_percentile = 99.9

    def __call__(self, data: Mapping[Hashable, Tensor]) -> dict[Hashable, Tensor]:
        result = dict(data)
        for key in self.key_iterator(result):
            volume = result[key]
            values = np.asarray(volume)
            low, high = float(values.min()), float(np.percentile(values, self.upper_percentile))
            if high <= low:
                high = max(float(values.max()), low + 1)
            result[key] = (volume - low) * (2 / (high - low)) - 1
            result[key].meta["intensity_range"] = (low, high)
        return result


class RandPlaned(RandomizableTransform, MapTransform):
    """Draws a slice axis and a plane that contains it, both sharp; the slice axis becomes the plane's first axis.

    A plane orthogonal to the slice axis would show no stair steps (Sec. S1). `spacing` in the result holds the plane's
    two voxel edges, in mm.

    Args:
        keys: one key, a `(1, X, Y, Z)` volume with an affine; `sharp_axes` in the data names the axes to choose from.
    """

    def __init__(self, keys: KeysCollection):
        MapTransform.__init__(self, keys)
        RandomizableTransform.__init__(self, prob=1.0)

    def randomize(self, shape: tuple[int, ...], sharp_axes: tuple[int, ...]) -> None:
        """Draws the slice axis, the plane's other axis and its index."""
        self._axis, self._other = (int(a) for a in self.R.permutation(sharp_axes)[:2])
        self._normal = 3 - self._axis - self._other
        self._index = int(self.R.randint(shape[self._normal]))

    def __call__(self, data: Mapping[Hashable, Tensor]) -> dict[Hashable, Tensor]:
        (key,) = self.keys
        volume = data[key]
        self.randomize(volume.shape[1:], data["sharp_axes"])
        spacing = grid.voxel_spacing(volume.affine)
        plane = volume.as_tensor().select(1 + self._normal, self._index)  # (1, two axes in array order)
        if self._axis > self._other:
            plane = plane.transpose(1, 2)
        return {key: plane, "spacing": (float(spacing[self._axis]), float(spacing[self._other]))}


class RandAcquired(RandomizableTransform, MapTransform):
    """Draws an acquisition and simulates it on a sharp plane: the training pair of both stages (Sec. 3.1).

    Adds `image`, the degraded plane; `thickness`, `[T_i, T_hr]` in mm; `proximal` and `proximal_thickness`, the same
    plane at `T_j = T_i - gap`, for CETA. Where `T_j` would not exceed `T_hr`, `proximal` repeats `image` at `T_i`,
    which tells `FlowBatch` to leave the pair out.

    Args:
        keys: one key, a `(1, H, W)` plane whose first axis is the slice axis; `spacing` in the data, in mm.
        max_thickness: `T_i` is uniform in `(T_hr, max_thickness]` mm.
        target_range: the plane is resampled to a `T_hr` uniform in this range, in mm, never finer than it is;
            null keeps the plane as it is, `T_hr` its native spacing (the paper's setting).
        size_range: the spacing is first multiplied by a factor uniform in this range, as if the head were
            larger or smaller; (1, 1) for none.
        gap: `Delta T` of CETA in mm.
        time_bandwidth: of the slice profile.
    """

    def __init__(
        self,
        keys: KeysCollection,
        max_thickness: float,
        target_range: tuple[float, float] | None = None,
        size_range: tuple[float, float] = (1.0, 1.0),
        gap: float = 1.0,
        time_bandwidth: float = TIME_BANDWIDTH,
    ):
        MapTransform.__init__(self, keys)
        RandomizableTransform.__init__(self, prob=1.0)
        self.max_thickness = max_thickness
        self.target_range = target_range
        self.size_range = size_range
        self.gap = gap
        self.time_bandwidth = time_bandwidth

    def randomize(self, spacing: tuple[float, float]) -> None:
        """Draws head size, target thickness and input thickness."""
        self._size = float(self.R.uniform(*self.size_range))
        native = spacing[0] * self._size
        if self.target_range is None:
            self._target = native
        else:
            low, high = self.target_range
            self._target = max(native, float(self.R.uniform(min(max(low, native), high), high)))
        # uniform on the half-open interval (T_hr, max]: 1 - [0, 1) is (0, 1]
        self._thickness = self._target + (1 - float(self.R.random_sample())) * (self.max_thickness - self._target)

    def __call__(self, data: Mapping[Hashable, Tensor]) -> dict[Hashable, Tensor]:
        (key,) = self.keys
        spacing = data["spacing"]
        self.randomize(spacing)
        label = data[key]
        if self.target_range is not None:
            size = [max(1, round(n * s * self._size / self._target)) for n, s in zip(label.shape[1:], spacing)]
            label = interpolate(label[None], size=size, mode="bicubic", antialias=True)[0]
        target, thick = self._target, self._thickness
        image = self._degrade(label, thick)
        proximal_thick = thick - self.gap
        proximal = image
        if proximal_thick > target:
            proximal = self._degrade(label, proximal_thick)
        else:
            proximal_thick = thick
        return {
            key: label,
            "image": image,
            "thickness": torch.tensor([thick, target]),
            "proximal": proximal,
            "proximal_thickness": torch.tensor([proximal_thick, target]),
        }

    def _degrade(self, plane: Tensor, thickness: float) -> Tensor:
        return degrade(plane, 1, self._target, thickness, thickness, self.time_bandwidth)


class Acquired(MapTransform):
    """Simulates one acquisition of a sharp volume, back on its own grid: the paired input of validation.

    Adds `image` with `slice_axis`, `slice_thickness` and `target_thickness` in its meta data.

    Args:
        keys: one key, a `(1, X, Y, Z)` volume with an affine.
        slice_thickness: in mm.
        axis: index into the item's `sharp_axes`, which is the slice axis.
        slice_spacing: in mm; null for no gap.
        time_bandwidth: of the slice profile.
    """

    def __init__(
        self,
        keys: KeysCollection,
        slice_thickness: float,
        axis: int = 0,
        slice_spacing: float | None = None,
        time_bandwidth: float = TIME_BANDWIDTH,
    ):
        super().__init__(keys)
        self.slice_thickness = slice_thickness
        self.axis = axis
        self.slice_spacing = slice_thickness if slice_spacing is None else slice_spacing
        self.time_bandwidth = time_bandwidth

    def __call__(self, data: Mapping[Hashable, Tensor]) -> dict[Hashable, Tensor]:
        (key,) = self.keys
        volume = data[key]
        axis = data["sharp_axes"][self.axis]
        target = float(grid.voxel_spacing(volume.affine)[axis])
        image = volume.clone()
        image.set_(
            degrade(
                volume.as_tensor(),
                1 + axis,
                target,
                self.slice_thickness,
                self.slice_spacing,
                self.time_bandwidth,
            ).contiguous()
        )
        image.meta.update(slice_axis=axis, slice_thickness=self.slice_thickness, target_thickness=target)
        return {**data, "image": image}
