"""Spots that are drawn into a measured slice: how much of their contrast a rebuild keeps."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from .acquired_again import PLANES, AcquiredAgain

SIZES = (2.0, 3.0, 5.0, 8.0)  # mm; diameters of the spots
CONTRASTS = (0.1, 0.2, 0.4)  # of the range of tissue
SIGNED = tuple(sign * share for sign in (1, -1) for share in CONTRASTS)
RING = 2.0  # pixels; width of the surroundings that a spot is compared with
FLAT = 3.0  # mm over which tissue is flat
ALIKE = 0.1  # of the range; tissue whose intensity differs by less is one


@dataclass(frozen=True)
class Spot:
    """Spots of one size and contrast, brighter and darker ones: the share of their contrast that is kept.

    Attributes:
        size: diameter, in mm.
        contrast: share of the range of tissue.
        kept, spline: means over the spots, of the method and of the cubic spline.
        count: of spots.
    """

    size: float
    contrast: float
    kept: float
    spline: float
    count: int


def places_of_spots(again: AcquiredAgain, extent: float) -> Iterator[tuple[int, int]]:
    """Places in the largest flat tissue of a slice, which is white matter in heads: the flattest first, far apart.

    Args:
        extent: of the range of tissue.
    """
    truth, head, edges = again.truth.double().numpy(), again.head.numpy(), np.array(again.edges)
    mean = ndimage.gaussian_filter(truth, FLAT / edges)
    rough = np.sqrt(ndimage.gaussian_filter((truth - mean) ** 2, FLAT / edges))
    inside = ndimage.distance_transform_edt(np.pad(head, 1), edges)[1:-1, 1:-1] > max(SIZES) / 2
    if not inside.any():
        return
    flat = inside & (rough <= np.quantile(rough[inside], 0.3))
    levels, borders = np.histogram(
        mean[flat], bins=np.arange(mean[flat].min(), mean[flat].max() + extent, ALIKE * extent)
    )
    commonest = levels.argmax()
    tissue = borders[commonest] + ALIKE * extent / 2
    free = flat & (np.abs(mean - tissue) <= ALIKE * extent)
    apart = max(SIZES) + 2 * again.acquisition.slice_spacing
    rows, columns = np.indices(truth.shape)
    while free.any():
        row, column = np.unravel_index(np.where(free, rough, np.inf).argmin(), truth.shape)
        yield int(row), int(column)
        free &= np.hypot((rows - row) * edges[0], (columns - column) * edges[1]) > apart


def spot(again: AcquiredAgain, place: tuple[int, int], size: float) -> Tensor:
    """A ball of 1 around a place of the middle plane, `(U, V, PLANES)`; voxels at its border are partly in it."""
    steps = [np.arange(count) - middle for count, middle in zip((*again.truth.shape, PLANES), (*place, PLANES // 2))]
    edges = (*again.edges, again.edges[0])
    distance = np.sqrt(sum(np.square(step * edge) for step, edge in zip(np.ix_(*steps), edges)))
    return torch.from_numpy((0.5 + (size / 2 - distance) / again.edges[0]).clip(0, 1)).float()


def contrast(plane: Tensor, drawn: Tensor) -> float:
    """The mean within a spot less that of the ring around it, by its own middle plane; both `(U, V)`."""
    inside = (drawn > 0.5).numpy() | (drawn == drawn.max()).numpy()
    ring = ndimage.binary_dilation(inside, iterations=round(RING)) & ~inside
    return float(plane[torch.from_numpy(inside)].mean() - plane[torch.from_numpy(ring)].mean())


def mean_spots(measured: Iterable[tuple[float, float, float, float]]) -> tuple[Spot, ...]:
    """Spots by size and contrast, of (size, contrast, kept by the method, kept by the spline) of each."""
    kept: dict[tuple[float, float], list[tuple[float, float]]] = {}
    for size, share, *pair in measured:
        kept.setdefault((size, share), []).append((pair[0], pair[1]))
    found = list[Spot]()
    for (size, share), pairs in sorted(kept.items()):
        rebuilt, spline = np.mean(pairs, axis=0).tolist()
        found.append(Spot(size, share, rebuilt, spline, len(pairs)))
    return tuple(found)
