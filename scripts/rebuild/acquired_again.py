"""A measured slice that is acquired again along one of its axes, by the physics of slices turned by 90 degrees."""

import math
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
import torch
from scipy import fft
from torch import Tensor

from ..stack.acquisition import Acquisition
from ..stack.interpolation import at_spacing, interpolate, resample
from ..stack.noise import MANY, Noise, cosine_frequencies, with_noise
from ..stack.profile import acquire, slice_matrix
from ..stack.slices import Slices
from ..stack.tissue import depth

PLANES = 5  # that networks see at once
WIDE = 17  # planes of noise, from whose middle these are taken: it may be wider than a pixel
FULL = 0.5  # of the largest head in a slice: slices of less are beside its middle
BORDER = 4.0  # mm below the head's border, within which nothing counts: a mask's edge would outweigh all tissue
NEAR = 1.2  # pixels whose edges differ by less are one
FEWEST_PIXELS, FEWEST_SLICES = 200, 5  # of the head in a slice; of slices that are acquired again


class AcquiredAgain(NamedTuple):
    """A measured slice that is acquired again along one of its axes.

    Attributes:
        truth: `(U, V)`, the slice, that axis first.
        head: `(U, V)` bool, without its border.
        edges: of its pixels, in mm.
        acquisition: of the slices made of it, whose target is a pixel. Its lengths are the scan's own, however long a
            pixel is: networks know no others.
        noise: of these, along the slice's other axis and along the one across the planes.
        drawn: its standard deviation that is drawn anew; the rest is the measured slice's.
        hidden: mean squared difference to the measured slice that is its own noise.
    """

    truth: Tensor
    head: Tensor
    edges: tuple[float, float]
    acquisition: Acquisition
    noise: Noise
    drawn: float
    hidden: float

    @classmethod
    def of(cls, scan: Slices, inside: Tensor, index: int, axis: int) -> Self | None:
        """Slice `index` along `axis`, of a scan in RAS+ order; None where there is too little of it `inside`.

        The new slices are as many pixels thick, and apart, as the scan's are targets.
        A slice is no sharper than the pixels that were acquired, and pixels finer than the target say more than a
        result can (`as_acquired`).
        """
        a, tissue = scan.acquisition, scan.tissue.array
        other = 3 - a.slice_axis - axis
        truth, head = (
            one.select(a.slice_axis, index).movedim(axis - (axis > a.slice_axis), 0) for one in (tissue, inside)
        )
        along, across = scan.noise.widths if axis < other else scan.noise.widths[::-1]
        edge = float(scan.edges[axis])
        (truth, pixel), (share, _), (unit, _) = (
            as_acquired(one, edge, along, a.target_spacing) for one in (truth, head.float(), torch.eye(len(truth)))
        )
        head, integrate = share > 0.5, unit.double().numpy()
        again = Acquisition.of_truth(
            0,
            len(truth),
            edge=a.target_spacing,
            thickness=a.slice_thickness,
            spacing=a.slice_spacing,
            profile=a.profile,
        )
        if again.slice_count < FEWEST_SLICES or head.sum() < FEWEST_PIXELS:
            return None
        whole, thick, both = _noise_through(integrate, again, replace(scan.noise, widths=(along, across)))
        noise = replace(scan.noise, widths=(across, max(1.0, along * edge / pixel)))
        drawn, hidden = noise.deviation * math.sqrt(max(1 - thick, 0)), noise.deviation**2 * (whole - 2 * both)
        return cls(truth, head, (pixel, float(scan.edges[other])), again, noise, drawn, hidden)

    def slices(self, scan: Slices, added: Tensor, seed: int) -> Slices:
        """The new slices, `PLANES` beside each other in a volume, with the noise of the scan.

        Args:
            added: `(U, V, PLANES)`, what is drawn into the slice before.
            seed: of the noise.
        """
        low = scan.tissue_range.low
        thick = acquire(self.truth[..., None] + added, self.acquisition) - low
        generator = torch.Generator().manual_seed(seed)
        random = torch.randn((2, *thick.shape[:2], WIDE), generator=generator)
        first = (WIDE - PLANES) // 2
        wide = torch.nn.functional.pad(thick, (first, first))
        noise = replace(self.noise, deviation=self.drawn)
        noisy = with_noise(wide, (1, 2), noise, random)[..., first : first + PLANES]
        edges = [self.acquisition.slice_spacing, self.edges[1], self.acquisition.target_spacing, 1.0]
        affine = torch.diag(torch.tensor(edges, dtype=torch.float64))
        made = Slices((low + noisy).contiguous(), self.acquisition, affine)
        return made.like(made.array, tissue_range=scan.tissue_range, missing={}, noise=self.noise)


def as_acquired(plane: Tensor, edge: float, width: float, target: float) -> tuple[Tensor, float]:
    """A plane, `(U, V)`, with other pixels along its first axis, and their edge in mm.

    Pixels that a scanner interpolated, `width` finer than those that it acquired, become these; finer ones than the
    target are integrated to it. Near enough ones stay. Lengths are in mm.
    """
    if width >= NEAR:
        plane, edge = at_spacing(plane[..., None], 0, edge, edge * width)[..., 0], edge * width
    if target >= NEAR * edge:
        plane, edge = resample(plane[..., None], 0, edge, target)[..., 0], target
    return plane, edge


def _noise_through(integrate: np.ndarray, again: Acquisition, noise: Noise) -> tuple[float, float, float]:
    """The noise of a slice, of variance 1: its variances after `integrate` and acquired again, and a covariance.

    The covariance is that of the integrated slice with its cubic spline after it was acquired again. Networks keep as
    much of the noise that is left there.
    """
    power = noise.power(cosine_frequencies(integrate.shape[1]), cosine_frequencies(MANY)).mean(1)

    def covariance(one: np.ndarray, other: np.ndarray) -> float:
        """Mean covariance of the rows of two matrices that see one noise."""
        spectra = (fft.dct(matrix, axis=1, norm="ortho") for matrix in (one, other))
        return float((next(spectra) * next(spectra) * power).sum(1).mean())

    acquired = slice_matrix(again).double().numpy() @ integrate
    unit = torch.eye(again.slice_count, dtype=torch.float64)[..., None]
    splined = interpolate(unit, again, "cubic")[..., 0].numpy() @ acquired
    return covariance(integrate, integrate), covariance(acquired, acquired), covariance(splined, integrate)


def below_border(scan: Slices) -> Tensor:
    """The head of a scan without its border, `(X, Y, Z)` bool."""
    return torch.from_numpy(depth(scan.head.numpy(), scan.edges) > BORDER)


def middle_slices(scan: Slices, count: int) -> list[int]:
    """So many slices, or fewer: of those that were measured and show most of a head, evenly spread ones."""
    axis = scan.acquisition.slice_axis
    areas = scan.head.movedim(axis, 0).flatten(1).sum(1)
    measured = [k for k in range(len(areas)) if k not in scan.missing]
    most = areas[measured].max()
    full = [k for k in measured if areas[k] >= FULL * most]
    places = (np.arange(count) + 0.5) * len(full) / count
    return sorted({full[int(place)] for place in places})
