"""Guides of training pairs: another contrast of the same plane, as another scan of the examination would show it."""

from collections.abc import Hashable, Mapping
from dataclasses import InitVar, dataclass
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform, RandomizableTransform
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from ..stack.acquisition import Acquisition
from ..stack.interpolation import interpolate
from ..stack.profile import acquire
from .contrast import RandIntensityCurved

OWN = 0.35  # of the pairs from one scan: the plane gets the new contrast, and the guide keeps the scan's


class RandGuided(RandomizableTransform, MapTransform):
    """Gives a plane a guide, or leaves it without one, so that one set of weights learns both.

    The guide is the other contrast of the head that the data hold. A plane that has none is shown in two contrasts: one
    is its own, the other one is its own under a random curve (`contrast.RandIntensityCurved`).

    Args:
        keys: one key, `(N, H, W)`, an odd number of neighbouring planes in [0, 1], whose middle one gets the guide,
            `(1, H, W)`. `guide` in the data is of the same shape as they, if there is any.
        prob: share of the planes that get a guide.
    """

    def __init__(self, keys: KeysCollection, prob: float):
        MapTransform.__init__(self, keys)
        RandomizableTransform.__init__(self, prob)
        self.curve = RandIntensityCurved("image", prob=1.0)

    def randomize(self, data: Any = None) -> None:
        """Draws whether there is a guide, and which of two contrasts is the plane's."""
        super().randomize(None)
        self._swapped = bool(self.R.random_sample() < OWN)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        (key,) = self.keys
        self.randomize()
        if not self._do_transform:
            return {name: value for name, value in data.items() if name != "guide"}
        middle = slice(len(data[key]) // 2, len(data[key]) // 2 + 1)
        if "guide" in data:
            return {**data, "guide": data["guide"][middle]}
        self.curve.set_random_state(state=self.R)
        pair = [data[key], self.curve({"image": data[key]})["image"]]
        plane, guide = reversed(pair) if self._swapped else pair
        return {**data, key: plane, "guide": guide[middle]}


@dataclass(eq=False)
class RandGuideAcquiredd(RandomizableTransform, MapTransform):
    """Draws how a guide was acquired: slices of its own, motion since, and where its field of view ends.

    A quarter of the guides are thick across the plane's other axis, a tenth along the slice axis of the scan. Two in
    five are misplaced by a little, as registration leaves them. A few are of no use: another part of the head, far off
    or mirrored. The network learns to leave those alone. Where a guide saw nothing, it is 0.

    Args:
        keys: one key, a `(1, H, W)` plane in [0, 1], which may be missing. `spacing` is in the data, in mm.
        across, along: shares of the guides with slices of their own, along either axis.
        across_range, along_range: thickness of these slices, in mm.
        moved: share of the guides that are misplaced by a little.
        shift, turn: standard deviations, in mm and degrees.
        useless: share of the guides that show another part of the head.
        cut: share of the guides whose field of view ends within the plane.
    """

    keys: InitVar[KeysCollection]
    across: float = 0.25
    along: float = 0.1
    across_range: tuple[float, float] = (2.0, 6.0)
    along_range: tuple[float, float] = (1.2, 3.0)
    moved: float = 0.4
    shift: float = 0.4
    turn: float = 0.35
    useless: float = 0.07
    cut: float = 0.2

    def __post_init__(self, keys: KeysCollection) -> None:
        MapTransform.__init__(self, keys, allow_missing_keys=True)
        RandomizableTransform.__init__(self, prob=1.0)

    def randomize(self, shape: tuple[int, ...], spacing: tuple[float, float]) -> None:  # type: ignore[override]
        """Draws slices, motion and field of view for a plane `(H, W)`."""
        across, along = self.R.uniform(*self.across_range), self.R.uniform(*self.along_range)
        kind = self.R.random_sample()
        self._slices = None
        if kind < self.across + self.along:
            self._slices = (1, across) if kind < self.across else (0, along)
        kind, mirrored = self.R.random_sample(), self.R.random_sample() < 0.5
        little, far = self.R.normal(size=3), self.R.uniform(-1, 1, size=3)
        self._motion = None
        if kind < self.moved:
            self._motion = (self.turn * little[0], self.shift * little[1:] / spacing, False)
        elif kind < self.moved + self.useless:
            self._motion = (15 * far[0], 15 * far[1:] / spacing, mirrored)
        self._cut = None
        if self.R.random_sample() < self.cut:
            axis = self.R.randint(2)
            self._cut = (axis, self.R.randint(shape[axis]), self.R.random_sample() < 0.5)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        result = dict(data)
        for key in self.key_iterator(result):
            guide = result[key]
            self.randomize(tuple(guide.shape[1:]), data["spacing"])
            if self._slices is not None:
                guide = _with_slices(guide, *self._slices, data["spacing"])
            if self._motion is not None:
                guide = _moved(guide, *self._motion)
            if self._cut is not None:
                axis, place, below = self._cut
                guide = guide.clone()
                size = guide.shape[1 + axis]
                guide.narrow(1 + axis, *((0, place) if below else (place, size - place))).zero_()
            result[key] = guide
        return result


def _with_slices(plane: Tensor, axis: int, thickness: float, spacing: tuple[float, float]) -> Tensor:
    """A plane `(1, H, W)` as slices along one of its axes show it, by a spline between them."""
    edge = spacing[axis]
    if thickness <= edge or plane.shape[1 + axis] * edge < 3 * thickness:  # it is that thick, or has no such slices
        return plane
    slices = Acquisition.of_truth(1 + axis, plane.shape[1 + axis], edge=edge, thickness=thickness)
    return interpolate(acquire(plane, slices), slices, "cubic").float().clamp(min=0)


def _moved(plane: Tensor, angle: float, shift: np.ndarray, mirrored: bool) -> Tensor:
    """A plane `(1, H, W)` turned by degrees and shifted by pixels along H and W; 0 where it saw nothing."""
    height, width = plane.shape[1:]
    sine, cosine = np.sin(np.radians(angle)), np.cos(np.radians(angle))
    along = -1.0 if mirrored else 1.0
    matrix = [  # of grid_sample, which has the width first, and lengths of half a side
        [cosine, -sine * height / width, 2 * shift[1] / width],
        [along * sine * width / height, along * cosine, 2 * shift[0] / height],
    ]
    grid = affine_grid(torch.tensor([matrix], dtype=torch.float32), [1, 1, height, width], align_corners=False)
    return grid_sample(plane[None], grid, mode="bicubic", align_corners=False)[0].clamp(min=0)
