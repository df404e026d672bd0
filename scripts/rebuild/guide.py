"""A guide, a scan of another contrast of the same head, in the place of the scan that it guides.

    a scan, sharp or rebuilt (`GuideScan`) -> registered (`PlacedGuide`) -> for stage 1 (`NetworkGuide`)

A guide is interpolated once, onto the fine grid of the scan. There stage 1 sees it beside its own thick slices, by the
slice model of the scan. Which scans are candidates, `inputs.examination` says.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from monai.data import MetaTensor
from scipy import ndimage
from torch import Tensor

from ..errors import InputError, logger, printable
from ..stack import grid
from ..stack.interpolation import interpolate
from ..stack.profile import acquire
from ..stack.slices import Slices
from ..stack.tissue import head_mask, ramp
from .coverage import WHOLE, Coverage
from .gain import relation
from .registration import ALIKE, angle_and_shift, placed, registered, resolution

COPY = 0.95  # of the scan's variance, explained by a rising curve of a guide: a copy (docs/benchmarks_appendix.md)
PRECISE = 0.13  # mm and degrees; registration is off by so much itself (docs/benchmarks.md): a smaller motion is none
BORDER = 8.0  # mm; over it a guide's effect fades in, from the border of its field of view


class GuideScan(NamedTuple):
    """A scan that is to guide others, sharp or rebuilt.

    Attributes:
        sharp: the scan.
        stack: the slices that it was rebuilt of; None for none.
    """

    sharp: Slices
    stack: Slices | None = None

    def place(self, slices: Slices) -> "PlacedGuide":
        """The guide, registered with a scan. A guide that lies in its place stays there."""
        a, affine = slices.acquisition, slices.fine_affine
        spline = interpolate(slices.signal, a, "cubic").clamp(min=0)  # undershoot
        fine = MetaTensor(spline, affine=affine)
        moving = MetaTensor(self.sharp.signal, affine=self.sharp.affine)
        apart = resolution(fine, [one for one in (slices, self.stack) if one is not None])
        head = head_mask(spline)
        motion, alike = registered(fine, moving, head, apart)
        name = grid.name_of(self.sharp if self.stack is None else self.stack, "the guide")
        moved = angle_and_shift(motion, grid.centre(affine, fine.shape))
        if max(moved) <= PRECISE:
            motion, moved = np.eye(4), (0.0, 0.0)
        volume = on_grid(self.sharp, slices, motion)
        seen = volume.as_tensor()[0].isfinite()
        shown = volume.as_tensor()[0].nan_to_num(-1.0)
        explained = relation(fine, head, shown, seen.float(), a.slice_spacing)
        return PlacedGuide(volume, motion, alike, explained, *moved, name, Coverage.of(head, seen, affine))


@dataclass(frozen=True)
class PlacedGuide:
    """A guide scan beside the scan that it guides.

    Attributes:
        volume: `(1, X', Y', Z')`, of `on_grid`.
        motion: `(4, 4)`, from the scan's world to the guide's, in mm.
        likeness: of `registration.likeness`.
        relation: of `gain.relation`.
        degrees, millimetres: how far the head turned between the two, and how far its middle moved.
        name: of its file, for people.
        coverage: the part of the head that it saw.
    """

    volume: MetaTensor
    motion: np.ndarray
    likeness: float
    relation: float
    degrees: float
    millimetres: float
    name: str
    coverage: Coverage = WHOLE

    @property
    def fits(self) -> bool:
        """Whether both show one head."""
        return self.likeness >= ALIKE

    @property
    def copies(self) -> bool:
        """Whether it shows the contrast of the scan, as a copy of it does: then it brings nothing."""
        return self.relation >= COPY

    def check(self, slices: Slices) -> None:
        """Refuses a guide that brings nothing to the scan of these slices: of another head, or of their contrast."""
        scan = grid.name_of(slices, "the scan")
        if not self.fits:
            raise InputError(
                f"{self.name} does not fit {scan}: their likeness is {self.likeness:.2f}, and from {ALIKE} on they "
                "show one head. The guide may be of another person or region, or damaged. Leave it out, or give "
                "another one."
            )
        if self.copies:
            raise InputError(
                f"{self.name} has the contrast of {scan}: a rising curve explains {self.relation:.0%} of the scan by "
                "it. A copy of the scan brings nothing. Leave it out, or give a scan of another contrast."
            )
        if saw_little := self.coverage.warning(printable(self.name)):
            logger.warning(f"{printable(scan)}: {saw_little}")


@dataclass(frozen=True)
class NetworkGuide:
    """A placed guide as a method gets it, in RAS+ order.

    Attributes:
        fine: `(X', Y', Z')` on the fine grid, tissue in [-1, 1]; -1 where it saw nothing.
        slices: `(X, Y, Z)`, its thick slices by the slice model of the scan.
        share: `(X', Y', Z')`, how far it counts: 0 beyond its field of view, 1 from `BORDER` within it on.
    """

    fine: Tensor
    slices: Tensor
    share: Tensor

    @classmethod
    def of(cls, fine: Tensor, slices: Slices) -> "NetworkGuide":
        """A placed guide's volume, `(X', Y', Z')`, beside the slices of the scan."""
        acquisition = slices.acquisition
        seen, edges = fine.isfinite(), slices.edges
        edges[acquisition.slice_axis] = acquisition.target_spacing
        known = fine.where(seen, -1.0)
        return cls(known, acquire(known, acquisition), ramp(seen, edges, BORDER))


def on_grid(guide: Slices, slices: Slices, motion: np.ndarray) -> MetaTensor:
    """A guide on the fine grid of a scan, interpolated once by a cubic spline.

    A guide of finer voxels is smoothed first, as the voxels of the grid average over it: along each of its axes by the
    variance that a voxel of the grid has along that axis and one of its own lacks.

    Args:
        guide: in its own units.
        motion: `(4, 4)`, from the scan's world to the guide's (`registration.register`).

    Returns:
        `(1, X'', Y'', Z'')` on the fine grid, its tissue in [-1, 1]; NaN beyond its field of view.
    """
    affine, tissue_range = slices.fine_affine, guide.tissue_range
    unit = tissue_range.to_unit(guide.tissue.array)
    # columns: the edges of a voxel of the grid along the guide's axes, in voxels of the guide
    voxel = np.linalg.inv(guide.affine.numpy()[:3, :3]) @ motion[:3, :3] @ affine.numpy()[:3, :3]
    sigma = np.sqrt(np.maximum((voxel**2).sum(1) - 1, 0) / 12)  # of boxes
    smooth = torch.from_numpy(ndimage.gaussian_filter(unit.numpy(), sigma, mode="nearest"))
    place = MetaTensor(torch.empty(slices.fine_shape), affine=affine)
    values, seen = placed(MetaTensor(smooth, affine=guide.affine), place, motion)
    return MetaTensor(values.clamp(min=-1).where(seen > 0.5, torch.nan)[None], affine=place.affine)
