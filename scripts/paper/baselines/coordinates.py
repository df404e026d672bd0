"""Shared by methods that predict intensities at coordinates among the thick slices: queries in training and scans.

Pixels of the slices keep their places, so that a query lies at a pixel of the slices and anywhere between two of them.
Its `row` counts slices, 0 at the centre of the first. Both grids have one centre, whatever their ratio (`grid`).
"""

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.engines import PrepareBatch
from monai.transforms import MapTransform, RandomizableTransform
from monai.utils import convert_to_tensor
from torch import Tensor, nn
from torch.nn.functional import pad
from tqdm.auto import tqdm

from ...errors import InputError, flag
from ...rebuild.inferer import longer_first
from ...stack.acquisition import Acquisition
from ...train.random_acquisitions import RandAcquired
from .stacks import HeadInferer


def neighbours(rows: Tensor, count: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The slices below and above each query: index, distance of the query from it in slices, and linear weight.

    Beyond the outermost centres both are the outermost slice.

    Args:
        rows: of the queries, of any shape.
        count: of slices.
    """
    below = rows.floor()
    for slice_ in (below, below + 1):
        index = slice_.clamp(0, count - 1)
        yield index.long(), rows - index, 1 - (rows - slice_).abs()


def at(features: Tensor, slices: Tensor, pixels: Tensor) -> Tensor:
    """Features of voxels.

    Args:
        features: `(B, N, S, W, C)`: planes, slices, columns, channels.
        slices: `(B, Q)`.
        pixels: `(B, Q, 2)`, plane and column.

    Returns:
        `(B, Q, C)`.
    """
    batch = torch.arange(len(features), device=features.device)[:, None]
    return features[batch, pixels[..., 0], slices, pixels[..., 1]]


def between_slices(features: Tensor, rows: Tensor, pixels: Tensor) -> Tensor:
    """Features interpolated linearly between slices; arguments and result as `at`, with rows `(B, Q)` for slices."""
    around = neighbours(rows, features.shape[2])
    values = [weight[..., None] * at(features, index, pixels) for index, _, weight in around]
    return values[0] + values[1]


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers with a ReLU between each two."""
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class CoordinateNetwork(nn.Module):
    """A network that encodes thick slices once and answers any number of queries."""

    @abstractmethod
    def encode(self, image: Tensor) -> Any:
        """Thick slices `(B, N, S, W)` in [-1, 1] to what `decode` needs of them."""

    @abstractmethod
    def decode(self, code: Any, image: Tensor, rows: Tensor, pixels: Tensor, ratio: Tensor) -> Tensor:
        """Intensities at the queries, `(B, Q)`; see `RandQueried` for rows, pixels and ratio."""

    def forward(self, image: Tensor, rows: Tensor, pixels: Tensor, ratio: Tensor) -> Tensor:
        """See `encode` and `decode`."""
        return self.decode(self.encode(image), image, rows, pixels, ratio)


class RandQueried(RandomizableTransform, MapTransform):
    """Draws an acquisition, a patch of its thick slices, and sharp voxels within the patch to be predicted.

    Adds `image`, `(N, S, W)`; `rows`, `(Q,)`, and `pixels`, `(Q, 2)`, plane and column of the voxels in the patch;
    `ratio`, target spacing over slice spacing. Patches have one shape whatever the thickness; stacks that are smaller
    are continued by their edges, where nothing is asked for.

    Args:
        keys: one key, `(N, H, W)` planes in [0, 1] whose slice axis is the second; it becomes `(Q,)`, the voxels.
        acquired: draws the acquisition.
        patch_size: slices and columns.
        queries: voxels of a patch.

    Raises:
        InputError: if the patch has no two sizes.
    """

    def __init__(self, keys: KeysCollection, acquired: RandAcquired, patch_size: Sequence[int], queries: int):
        MapTransform.__init__(self, keys)
        RandomizableTransform.__init__(self, prob=1.0)
        sizes = patch_size if isinstance(patch_size, Sequence) else ()
        if len(sizes) != 2 or not all(isinstance(size, int) and size > 0 for size in sizes):
            raise InputError(
                f"patch_size is {patch_size!r}: expected slices and columns. Set it as in --patch_size [16,48]."
            )
        self.acquired = acquired
        self.sizes = sizes
        self.queries = queries

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        (key,) = self.keys
        label: Tensor = convert_to_tensor(data[key], track_meta=False)
        self.acquired.set_random_state(state=self.R)
        label, [(thick, acquisition), *_] = self.acquired.stacks(label, data["spacing"])
        first, left = (int(self.R.randint(max(n - size, 0) + 1)) for n, size in zip(thick.shape[1:], self.sizes))
        patch = thick[:, first : first + self.sizes[0], left : left + self.sizes[1]]
        rows = acquisition.fine_rows - first
        inside = np.flatnonzero((rows >= -0.5) & (rows < patch.shape[1] - 0.5))
        row = inside[self.R.randint(len(inside), size=self.queries)]
        plane, column = (self.R.randint(n, size=self.queries) for n in (patch.shape[0], patch.shape[2]))
        missing = [size - n for n, size in zip(patch.shape[1:], self.sizes)]
        return {
            "image": pad(patch, (0, missing[1], 0, missing[0]), mode="replicate"),
            key: label[plane, row, left + column],
            "rows": torch.from_numpy(rows[row]).float(),
            "pixels": torch.from_numpy(np.stack([plane, column], 1)),
            "ratio": torch.tensor(acquisition.target_spacing / acquisition.slice_spacing),
        }


class QueryBatch(PrepareBatch):
    """Patches of thick slices in, intensities at the queries out."""

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(image, label, (rows, pixels, ratio), {})` on the device."""
        image, label, *queries = (
            batchdata[key].to(device, non_blocking=non_blocking)
            for key in ("image", "label", "rows", "pixels", "ratio")
        )
        return image, label, tuple(queries), {}


class CoordinateInferer(HeadInferer):
    """Asks a network for every voxel of the fine grid, in the planes that contain the slice axis, one by one.

    Args:
        both_planes: see `PlaneInferer`.
        queries: at most in a call, which bounds the memory.
        others: see `StackInferer`.
    """

    def __init__(self, both_planes: bool = False, queries: int = 65536, **others: Any):
        super().__init__(**others)
        self.both_planes = flag("both_planes", both_planes)
        self.queries = queries
        self.settings |= {"both_planes": self.both_planes}

    def images(self, planes: Tensor, fine_count: int) -> Sequence[Tensor]:
        """Planes `(P, S, W)` as the network takes them, `(B, N, S, W)`: as many images as a call has queries for."""
        return planes[:, None].split(max(self.queries // (fine_count * planes.shape[2]), 1))

    def head(self, stack: Tensor, acquisition: Acquisition, network: CoordinateNetwork) -> Tensor:
        """See `HeadInferer.head`."""
        rows = torch.from_numpy(acquisition.fine_rows).to(stack.device, torch.float32)
        ratio = acquisition.target_spacing / acquisition.slice_spacing
        others = longer_first(stack.shape, 2)[: 1 + self.both_planes]
        mean = stack.new_zeros(*stack.shape[:2], len(rows))
        hidden = None if self.progress else True  # null hides it where there is no terminal
        with tqdm(total=mean.numel() * len(others), desc="voxels", leave=False, disable=hidden, unit_scale=True) as bar:
            for other in others:
                planes = stack.movedim((2, other), (1, 2))  # (P, S, W)
                sharp = [self._answers(image, rows, ratio, network, bar) for image in self.images(planes, len(rows))]
                mean += torch.cat(sharp).movedim((1, 2), (2, other)) / len(others)
        return mean

    def _answers(self, image: Tensor, rows: Tensor, ratio: float, network: CoordinateNetwork, bar: tqdm) -> Tensor:
        """`(B, N, S, W)` -> `(B N, R, W)`, all planes at all rows."""
        count, planes, _, width = image.shape
        ratios = image.new_full((count,), ratio)
        answers = []
        with torch.autocast(image.device.type, torch.bfloat16, enabled=self.bfloat16):
            code = network.encode(image)
            queries = torch.arange(planes * len(rows) * width, device=image.device)
            for part in queries.split(max(self.queries // count, 1)):
                plane, row = part // (len(rows) * width), part // width % len(rows)
                pixels = torch.stack([plane, part % width], 1).expand(count, -1, 2)
                answers.append(network.decode(code, image, rows[row].expand(count, -1), pixels, ratios).float())
                bar.update(answers[-1].numel())
        return torch.cat(answers, 1).reshape(count * planes, len(rows), width)


class VolumeCoordinateInferer(CoordinateInferer):
    """As `CoordinateInferer`, for a network of three dimensions: all planes are one image, along the longer axis."""

    def images(self, planes: Tensor, fine_count: int) -> Sequence[Tensor]:
        """See `CoordinateInferer.images`; one."""
        return [planes[None]]
