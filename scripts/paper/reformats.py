"""The planes that image metrics measure: some that contain the slice axis, cropped to the head, as gray images."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..stack.intensity import intensity_range
from ..stack.tissue import head_mask
from ..train.simulation import normal_axis

MOST_PLANES = 48  # evenly spaced; neighbours say nearly the same
LEAST_HEAD = 0.5  # of the area of the plane that shows most of it


@dataclass(frozen=True)
class Reformats:
    """The planes of a volume that are measured, and the intensities that are black and white: the same for all methods.

    Attributes:
        slice_axis: of the thick slices.
        normal: array axis across the planes.
        indices: of the planes, along the normal.
        rows: those of the head in any of the planes, along the first of the other axes.
        columns: the same along the second.
        head: `(planes, H, W)` bool, within rows and columns.
        low: intensity that is black.
        high: intensity that is white.
    """

    slice_axis: int
    normal: int
    indices: Tensor
    rows: slice
    columns: slice
    head: Tensor
    low: float
    high: float

    @classmethod
    def of(cls, reference: Tensor, slice_axis: int) -> "Reformats":
        """Chosen by one volume of the case: the truth, or the cubic spline's where there is no truth.

        The planes across `normal_axis` are taken that show at least half as much of the head as the one that shows
        most, at most 48, evenly spaced. Black and white are the ends of the range of tissue.

        Args:
            reference: `(X, Y, Z)`.
            slice_axis: of the thick slices.
        """
        normal = normal_axis(slice_axis)
        head = head_mask(reference).movedim(normal, 0)
        area = head.sum((1, 2))
        shown = torch.nonzero(area >= LEAST_HEAD * area.max())[:, 0]
        chosen = torch.linspace(0, len(shown) - 1, min(len(shown), MOST_PLANES)).round().long()
        indices = shown[chosen.to(shown.device)]
        head = head[indices]
        rows, columns = (_extent(head.any(0).any(axis)) for axis in (1, 0))
        low, high, _ = intensity_range(reference)
        return cls(slice_axis, normal, indices, rows, columns, head[:, rows, columns], low, high)

    def gray(self, volume: Tensor) -> Tensor:
        """The planes of a volume on the reference's grid, `(planes, H, W)` float32, clipped to black 0 and white 1.

        Args:
            volume: `(X, Y, Z)`.
        """
        images = volume.movedim(self.normal, 0)[self.indices][:, self.rows, self.columns].double()
        return ((images - self.low) / (self.high - self.low)).clamp(0, 1).float()


def _extent(inside: Tensor) -> slice:
    """From the first to the last true of a vector."""
    places = torch.nonzero(inside)[:, 0].tolist()
    return slice(places[0], places[-1] + 1)
