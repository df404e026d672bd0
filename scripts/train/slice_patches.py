"""Training pairs on the measured slices, for both stages: a patch of slices, and the sharp rows that lie in it."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform, RandomizableTransform
from monai.utils import convert_to_tensor
from torch import Tensor
from torch.nn.functional import pad

from ..method.slice_projection import neighbours
from ..stack.acquisition import SLR, Acquisition
from ..stack.profile import acquire
from ..stack.tissue import TISSUE
from .random_acquisitions import RandAcquired

LEAST = 0.05  # of tissue; patches of air alone are drawn as if they held as much


def first_in_tissue(chance: np.random.RandomState, tissue: Tensor, size: int) -> int:
    """The first of `size` neighbours, drawn by their share of `tissue`, `(n,)`; 0 if there are fewer."""
    share = (tissue.double().unfold(0, min(size, len(tissue)), 1).mean(1) + LEAST).numpy()
    return int(chance.choice(len(share), p=share / share.sum()))


def _respaced(planes: Tensor, step: float) -> Tensor:
    """An odd number of planes `(N, H, W)` -> `(M, H, W)`, `step` of them from each other; the middle one stays.

    They are linear between those there are, as many as lie among them, and at most N.
    """
    middle = len(planes) // 2
    reach = min(int(middle / step), middle)
    if not reach:
        return planes[middle, None]
    places = middle + step * torch.arange(-reach, reach + 1)
    lower = places.floor().long().clamp(max=len(planes) - 2)
    return torch.lerp(planes[lower], planes[lower + 1], (places - lower)[:, None, None].to(planes))


class RandSlicePatchd(RandomizableTransform, MapTransform):
    """Draws an acquisition, simulates it on planes, and cuts out a patch of measured slices and its sharp rows.

    Patches are drawn in proportion to the tissue that they hold. Planes become planes one pixel from each other.

    Replaces the planes by `image`, `(planes, slices, columns)`, the measured slices; the middle plane's sharp
    `(1, rows, columns)`, neighbouring rows of the fine grid that lie in the slices, NaN where the plane ends or the
    slices hold fewer; `rows`, `(rows,)`, their places in slices from the centre of the first; and `lengths`, `(5,)`:
    slice thickness, target, slice spacing, pixel in mm, and the noise that an estimate finds, as a share of the range.
    Where the stack has fewer slices, its last one is repeated. `guide` is the guide's part of the sharp rows, and
    `guide_slices` its thick slices by the slice model, `(1, slices, columns)`. Both are 0 where there is no guide.
    `proximal` and `proximal_...` say the same of the slices of CETA's pair, from the one that the first row lies in;
    without a pair they repeat the former. `lesions` is the sharp rows' part of the weights of lesions (`RandLesiond`).

    Args:
        keys: one key, `(N, H, W)`, an odd number of neighbouring planes in [0, 1] whose second axis is the slice axis;
            `spacing` and `plane_spacing` in the data, in mm; if there is one, a `guide` of the middle one, `(1, H, W)`.
        planes: that the network sees.
        slices, columns: of a patch.
        rows: at most.
    """

    def __init__(self, keys: KeysCollection, acquired: RandAcquired, planes: int, slices: int, columns: int, rows: int):
        MapTransform.__init__(self, keys)
        RandomizableTransform.__init__(self, prob=1.0)
        self.acquired = acquired
        self.planes = planes
        self.slices = slices
        self.columns = columns
        self.rows = rows

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        (key,) = self.keys
        label: Tensor = convert_to_tensor(data[key], track_meta=False)
        _, pixel = data["spacing"]
        label = _respaced(label, pixel / data["plane_spacing"])
        middle = len(label) // 2
        left = first_in_tissue(self.R, (label[middle] > TISSUE).float().mean(0), self.columns)
        label = label[:, :, left : left + self.columns]  # before the simulation, whose time grows with the columns
        guide = torch.zeros_like(label[:1])
        if "guide" in data:
            guide = convert_to_tensor(data["guide"], track_meta=False)[:, :, left : left + self.columns]
        lesions = convert_to_tensor(data.get(f"{key}_lesions", torch.zeros(data[key][:1].shape)), track_meta=False)
        lesions = lesions[:, :, left : left + self.columns]
        self.acquired.set_random_state(state=self.R)
        label, stacks = self.acquired.stacks(label, data["spacing"])
        label = label[middle, None]
        thick, acquisition = stacks[0]
        first = first_in_tissue(self.R, (thick[middle] > TISSUE).float().mean(1), self.slices)
        places = acquisition.fine_rows - first
        (inside,) = np.nonzero((places >= -0.5) & (places < min(self.slices, thick.shape[1] - first) - 0.5))
        start = inside[0] + first_in_tissue(self.R, (label[0, inside] > TISSUE).float().mean(1), self.rows)
        rows = slice(start, min(start + self.rows, inside[-1] + 1))
        lacking = [0, self.columns - label.shape[2], 0, self.rows - (rows.stop - rows.start)]
        pair, its = stacks[-1]
        other = first if len(stacks) == 1 else round(np.clip(its.fine_rows[start], 0, pair.shape[1] - 1))
        beside = pad(guide[:, rows], lacking)
        near = self._patch(pair, its, other, start, pixel, guide)
        return {
            **self._patch(thick, acquisition, first, start, pixel, guide),
            "lesions": pad(lesions[:, rows], lacking),
            key: pad(label[:, rows], lacking, value=torch.nan),
            "guide": beside,
            "proximal": near.pop("image"),
            **{f"proximal_{name}": value for name, value in near.items()},
            "proximal_guide": beside,
        }

    def _patch(
        self, thick: Tensor, acquisition: Acquisition, first: int, start: int, pixel: float, guide: Tensor
    ) -> dict[Hashable, Tensor]:
        """The slices of a stack from `first` on, where the fine rows from `start` on lie in them, and the lengths."""
        a = acquisition
        modelled = acquire(guide, replace(a, profile=SLR))  # nobody knows a scan's profile
        rows = a.fine_rows[start] - first + a.target_spacing / a.slice_spacing * np.arange(self.rows)
        lengths = torch.tensor([a.slice_thickness, a.target_spacing, a.slice_spacing, pixel, self.acquired.stated])
        return {
            "image": self._cut(thick, first),
            "rows": torch.from_numpy(rows).float(),
            "lengths": lengths,
            "guide_slices": self._cut(modelled, first)[self.planes // 2, None],
        }

    def _cut(self, slices: Tensor, first: int) -> Tensor:
        around = neighbours(len(slices), self.planes)[len(slices) // 2]
        part = slices[around, first : first + self.slices]
        return pad(part, [0, self.columns - part.shape[2], 0, self.slices - part.shape[1]], mode="replicate")
