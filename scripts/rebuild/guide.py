"""A guide, a scan of another contrast of the same head, in the place of the scan that it guides.

A guide is registered, and interpolated once, onto the fine grid of the scan. There stage 1 sees it beside its own thick
slices, by the slice model of the scan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from monai.data import MetaTensor
from scipy import ndimage
from torch import Tensor

from ..stack import grid
from ..stack.acquisition import Acquisition
from ..stack.intensity import above_floor, intensity_range
from ..stack.interpolation import interpolate
from ..stack.profile import acquire
from ..stack.tissue import head_mask, ramp
from .gain import relation
from .registration import ALIKE, angle_and_shift, placed, registered, resolution

COPY = 0.95  # of the scan's variance, explained by a rising curve of a guide: a copy (docs/benchmarks_appendix.md)
PRECISE = 0.13  # mm and degrees; registration is off by so much itself (docs/benchmarks.md): a smaller motion is none
BORDER = 8.0  # mm; over it a guide's effect fades in, from the border of its field of view


@dataclass(frozen=True)
class Guide:
    """A guide as a method gets it, in RAS+ order.

    Attributes:
        fine: `(X', Y', Z')` on the fine grid, tissue in [-1, 1]; -1 where it saw nothing.
        slices: `(X, Y, Z)`, its thick slices by the slice model of the scan.
        share: `(X', Y', Z')`, how far it counts: 0 beyond its field of view, 1 from `BORDER` within it on.
    """

    fine: Tensor
    slices: Tensor
    share: Tensor

    @classmethod
    def of(cls, fine: Tensor, acquisition: Acquisition, spacing: np.ndarray) -> Guide:
        """A guide on the fine grid of a scan.

        Args:
            fine: `(X', Y', Z')`, see `on_grid`.
            acquisition: of the scan.
            spacing: `(3,)`, edges of the voxels of the scan, in mm.
        """
        seen, edges = fine.isfinite(), spacing.copy()
        edges[acquisition.slice_axis] = acquisition.target_spacing
        known = fine.where(seen, -1.0)
        return cls(known, acquire(known, acquisition), ramp(seen, edges, BORDER))


@dataclass(frozen=True)
class Placed:
    """A guide beside the scan that it guides.

    Attributes:
        volume: `(1, X', Y', Z')`, of `on_grid`.
        motion: `(4, 4)`, from the world of the scan to that of the guide, in mm.
        likeness: of `registration.likeness`.
        relation: of `gain.relation`.
        degrees, millimetres: how far the head turned between the two, and how far its middle moved.
        name: of its file, for people.
    """

    volume: MetaTensor
    motion: np.ndarray
    likeness: float
    relation: float
    degrees: float
    millimetres: float
    name: str

    @property
    def fits(self) -> bool:
        """Whether both show one head."""
        return self.likeness >= ALIKE

    @property
    def copies(self) -> bool:
        """Whether it shows the contrast of the scan, as a copy of it does: then it brings nothing."""
        return self.relation >= COPY


def place(guide: MetaTensor, measured: MetaTensor, stack: MetaTensor | None = None) -> Placed:
    """Registers a guide with a scan, and puts it beside it. A guide that lies in its place stays there.

    Args:
        guide: `(1, X, Y, Z)`, sharp or rebuilt, with its affine.
        measured: see `on_grid`.
        stack: `(1, X, Y, Z)`, the slices that a rebuilt guide was made of.
    """
    a = Acquisition.of(measured)
    affine = torch.from_numpy(fine_affine_of(measured))
    spline = interpolate(above_floor(measured.as_tensor()[0].float()), a, "cubic").clamp(min=0)  # undershoot
    fine = MetaTensor(spline, affine=affine)
    moving = MetaTensor(above_floor(guide.as_tensor()[0].float()).clamp(min=0), affine=guide.affine)
    stacks = [volume[0] for volume in (measured, stack) if volume is not None]
    apart = resolution(fine, stacks)  # type: ignore[arg-type]  # torch: Tensor
    head = head_mask(spline)
    motion, alike = registered(fine, moving, head, apart)
    name = grid.name_of(guide if stack is None else stack, "the guide")
    moved = angle_and_shift(motion, grid.centre(affine, fine.shape))
    if max(moved) <= PRECISE:
        motion, moved = np.eye(4), (0.0, 0.0)
    volume = on_grid(guide, measured, motion)
    seen = volume.as_tensor()[0].isfinite()
    shown = volume.as_tensor()[0].nan_to_num(-1.0)
    return Placed(volume, motion, alike, relation(fine, head, shown, seen.float(), a.slice_spacing), *moved, name)


def fine_affine_of(measured: MetaTensor) -> np.ndarray:
    """`(4, 4)`, of the fine grid of measured slices."""
    a = Acquisition.of(measured)
    return grid.respaced_affine(
        np.asarray(measured.affine, dtype=float), a.slice_axis, a.slice_count, a.fine_count, a.target_spacing
    )


def on_grid(guide: MetaTensor, measured: MetaTensor, motion: np.ndarray) -> MetaTensor:
    """A guide on the fine grid of a scan, interpolated once by a cubic spline.

    A guide of finer voxels is smoothed first, as the voxels of the grid average over it: along each of its axes by the
    variance that a voxel of the grid has along that axis and one of its own lacks.

    Args:
        guide: `(1, X, Y, Z)` in its own units, with its affine.
        measured: `(1, X', Y', Z')`, the slices of the scan, with affine and acquisition.
        motion: `(4, 4)`, from the world of the scan to that of the guide (`registration.register`).

    Returns:
        `(1, X'', Y'', Z'')` on the fine grid, its tissue in [-1, 1]; NaN beyond its field of view.
    """
    a, affine = Acquisition.of(measured), fine_affine_of(measured)
    shape = [a.fine_count if axis == a.slice_axis else n for axis, n in enumerate(measured.shape[1:])]
    scale = intensity_range(guide)
    unit = scale.to_unit(scale.tissue(guide.as_tensor()[0].float()))
    # columns: the edges of a voxel of the grid along the guide's axes, in voxels of the guide
    voxel = np.linalg.inv(np.asarray(guide.affine, dtype=float)[:3, :3]) @ motion[:3, :3] @ affine[:3, :3]
    sigma = np.sqrt(np.maximum((voxel**2).sum(1) - 1, 0) / 12)  # of boxes
    smooth = torch.from_numpy(ndimage.gaussian_filter(unit.numpy(), sigma, mode="nearest"))
    place = MetaTensor(torch.empty(shape), affine=torch.from_numpy(affine))
    values, seen = placed(MetaTensor(smooth, affine=guide.affine), place, motion)
    return MetaTensor(values.clamp(min=-1).where(seen > 0.5, torch.nan)[None], affine=place.affine)
