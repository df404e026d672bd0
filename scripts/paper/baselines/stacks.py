"""Shared by methods that take the measured slices as they are, not on the fine grid."""

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.transforms import Compose, MapTransform, RandFlipd, RandomizableTransform, ScaleIntensityRanged
from torch import Tensor, nn
from torch.nn.functional import pad
from tqdm.auto import tqdm

from ...rebuild.device import device_of
from ...rebuild.guide import NetworkGuide
from ...rebuild.stack_inferer import StackInferer
from ...rebuild.windows import PIXELS_PER_CALL, signal_box
from ...stack.acquisition import Acquisition
from ...stack.interpolation import interpolate
from ...stack.slices import Slices
from ...train.random_acquisitions import RandAcquired


class HeadInferer(StackInferer):
    """Rebuilds the box around the head: in plane, with all its slices. The air outside keeps its input.

    Args:
        others: see `StackInferer`.
    """

    @abstractmethod
    def head(self, stack: Tensor, acquisition: Acquisition, network: Any) -> Tensor:
        """The method.

        Args:
            stack: `(X, Y, Z)` in [-1, 1], measured slices along the last axis, on the network's device.
            acquisition: of the slices, whose axis it names differently.
            network: in evaluation mode.

        Returns:
            `(X, Y, Z')`.
        """

    def fine(self, slices: Slices, network: nn.Module, guide: NetworkGuide | None) -> tuple[Tensor, Tensor | None]:
        """See `StackInferer.fine`."""
        a = slices.acquisition
        volume = interpolate(slices.array, a, "nearest")
        box = tuple(slice(None) if axis == a.slice_axis else part for axis, part in enumerate(signal_box(volume)))
        if volume[box].numel():
            stack = slices.array[box].movedim(a.slice_axis, -1).to(device_of(network))
            volume[box] = self.head(stack, a, network).movedim(-1, a.slice_axis).cpu()
        return volume, None

    def parts(self, count: int, pixels: int, name: str) -> Iterable[Tensor]:
        """Indices of `count` images of so many pixels, call by call, behind a progress bar."""
        calls = torch.arange(count).split(max(1, PIXELS_PER_CALL // pixels))
        return tqdm(calls, desc=name, leave=False, disable=None if self.progress else True)  # null: as the terminal


def augmented(draw: MapTransform) -> Compose:
    """Planes that are mirrored at random and varied by a method, with intensities in [-1, 1].

    Args:
        draw: makes `image` and `label` of planes called `label`, as `RandStackd` does.
    """
    flips = [RandFlipd("label", prob=0.5, spatial_axis=axis) for axis in (0, 1)]
    return Compose([*flips, draw, ScaleIntensityRanged(["image", "label"], a_min=0, a_max=1, b_min=-1, b_max=1)])


class RandStackd(RandomizableTransform, MapTransform):
    """Draws an acquisition, simulates it on neighbouring planes, and cuts out a few measured slices.

    Replaces the planes by `image`, `(1, P, W, Z)`, the measured slices; `label`, `(1, P, W, K)`, sharp slices at random
    places of the fine grid among them; `position`, `(K,)`, these places in slice spacings from the first of the `Z`;
    `slice_spacing` and `target_spacing`, in mm. Where the stack has fewer slices than `Z`, its last one is repeated.

    Args:
        keys: one key, `(P, H, W)` planes in [0, 1], whose second axis is the slice axis; `spacing` in the data, in mm.
        acquired: draws the acquisition.
        slices: `Z`.
        targets: `K`.
        width: `W`, in pixels, cut out at random; planes that are less wide are filled up with their edge.
        margin: in slice spacings, how far from the outermost of the `Z` slices' outer faces the sharp ones stay.
    """

    def __init__(
        self,
        keys: KeysCollection,
        acquired: RandAcquired,
        slices: int,
        targets: int,
        width: int,
        margin: float = 0.0,
    ):
        MapTransform.__init__(self, keys)
        RandomizableTransform.__init__(self, prob=1.0)
        self.acquired = acquired
        self.slices = slices
        self.targets = targets
        self.width = width
        self.margin = margin

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        (key,) = self.keys
        target = data["spacing"][0]
        planes = pad(data[key], (0, max(self.width - data[key].shape[2], 0)), mode="replicate")
        left = int(self.R.randint(planes.shape[2] - self.width + 1))
        planes = planes[:, :, left : left + self.width]
        self.acquired.set_random_state(state=self.R)
        planes, [(thick, acquisition), *_] = self.acquired.stacks(planes, data["spacing"])
        first = int(self.R.randint(max(acquisition.slice_count - self.slices, 0) + 1))
        chosen = torch.arange(first, first + self.slices).clamp(max=acquisition.slice_count - 1)
        position = acquisition.fine_rows - first
        last = min(self.slices, acquisition.slice_count) - 0.5 - self.margin
        inside = np.flatnonzero((position >= self.margin - 0.5) & (position <= last))
        if not len(inside):
            inside = np.array([np.abs(position - (self.slices - 1) / 2).argmin()])
        fine = self.R.choice(inside, self.targets, replace=len(inside) < self.targets)
        return {
            "image": thick[:, chosen].transpose(1, 2)[None],
            key: planes[:, fine].transpose(1, 2)[None],
            "position": torch.from_numpy(position[fine]).float(),
            "slice_spacing": torch.tensor(acquisition.slice_spacing, dtype=torch.float32),
            "target_spacing": torch.tensor(target, dtype=torch.float32),
        }
