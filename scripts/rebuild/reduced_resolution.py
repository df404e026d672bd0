"""A scan's own slices as truth: they are acquired again along an axis within them, rebuilt, and compared.

A 2-D scan is sharp within its slices. So the same physics, turned by 90 degrees, makes a trial whose truth is known, of
the scan's own contrast, noise and anatomy. Remote sensing calls it the assessment at reduced resolution: Wald et al.,
Photogramm. Eng. Remote Sens. 63:691-699 (1997).

    measured slice -> acquired again along x, or y -> rebuilt, and the cubic spline -> compared with the measured slice

The planes beside a plane lie a slice's distance away, and not a pixel's as the networks know it. So each slice stands
beside itself, with the noise of the scan drawn anew: the networks tell noise from anatomy by it. Only a single family
of planes can be rebuilt. `Foretelling` corrects what both cost, by simulated scans whose gain through the slices is
known (`benchmarks.check`).
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from scipy import fft, ndimage
from torch import Tensor

from ..method.calibration import Foretelling
from ..stack.acquisition import Acquisition
from ..stack.interpolation import at_spacing, interpolate, resample
from ..stack.noise import MANY, Noise, cosine_frequencies, with_noise
from ..stack.profile import acquire, slice_matrix
from ..stack.slices import Slices
from ..stack.tissue import depth

WORTH = 0.5  # dB; a gain of less is none
NO_GAIN = "no better than interpolation on this scan: do not use it"
PLANES = 5  # that networks see at once
WIDE = 17  # planes of noise, from whose middle these are taken: it may be wider than a pixel
PART = 30  # fine slices for each slice that is tested: a third of a rebuild's planes or less
LEAST, MOST = 2, 8  # slices that are tested
FULL = 0.5  # of the largest head in a slice: slices of less are beside its middle
BORDER = 4.0  # mm below the head's border, within which nothing counts: a mask's edge would outweigh all tissue
THICKEST = 7.0  # mm; slices of interpolated pixels are acquired again no thicker, for networks know none
NEAR = 1.2  # pixels whose edges differ by less are one
FEWEST_PIXELS, FEWEST_SLICES = 200, 5  # of the head in a slice; of slices that are acquired again
HIDDEN = 0.1  # of a squared error is left at least when the noise of the measured slice is taken off
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


@dataclass(frozen=True)
class Check:
    """How well a scan's own slices come back.

    Attributes:
        slices: which were tested, from 0 in the scan's order.
        directions: along which they were acquired again.
        spline, rebuilt: PSNR in the head without its border, in dB; the peak is the range of tissue. The noise of the
            measured slices is no error.
        foretold: gain through the slices that this foretells, and its standard error, in dB; None where nothing
            calibrates it.
        spots: what becomes of small things.
        pictures: of one slice, `(across, up)` in RAS+ order, in the units of the scan: name -> plane.
        by: the network that rebuilt, for people.
    """

    slices: tuple[int, ...]
    directions: int
    spline: float
    rebuilt: float
    foretold: tuple[float, float] | None = None
    spots: tuple[Spot, ...] = ()
    pictures: Mapping[str, Tensor] = field(default_factory=dict)
    by: str = "DRIFT"

    @property
    def gain(self) -> float:
        """Over the cubic spline within the slices, in dB."""
        return self.rebuilt - self.spline

    @property
    def expected(self) -> float:
        """Gain to be expected through the slices, in dB: the foretold one, where there is one."""
        return self.gain if self.foretold is None else self.foretold[0]

    def __str__(self) -> str:
        """In words, for people."""
        gains = f"gains {self.gain:.1f} dB over" if self.gain >= 0 else f"loses {-self.gain:.1f} dB to"
        text = f"on this scan's own slices {self.by} {gains} the cubic spline ({self.spline:.1f} to {self.rebuilt:.1f})"
        if self.foretold is not None:
            text += ", foretold through its slices {:.1f} ± {:.1f} dB".format(*self.foretold)
        return text if self.expected >= WORTH else f"{text}: {NO_GAIN}"


class Again(NamedTuple):
    """A measured slice that is acquired again along one of its axes.

    Attributes:
        truth: `(U, V)`, the slice, that axis first.
        head: `(U, V)` bool, without its border.
        edges: of its pixels, in mm.
        acquisition: of the slices made of it.
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
    def of(cls, scan: Slices, inside: Tensor, index: int, axis: int) -> "Again | None":
        """Slice `index` along `axis`, of a scan in RAS+ order; None where there is too little of it `inside`.

        The pixel is the target, and the new slices are as many times thicker, and farther apart, as the scan's are.
        A slice is no sharper than the pixels that were acquired, and pixels finer than the target say more than a
        result can (`as_acquired`).
        """
        a, tissue = scan.acquisition, scan.tissue.array
        other = 3 - a.slice_axis - axis
        truth, head = (
            one.select(a.slice_axis, index).movedim(axis - (axis > a.slice_axis), 0) for one in (tissue, inside)
        )
        along, across = scan.noise.widths if axis < other else scan.noise.widths[::-1]
        edge, acquired = float(scan.edges[axis]), min(along, max(1.0, THICKEST / a.slice_thickness))
        (truth, target), (share, _), (unit, _) = (
            as_acquired(one, edge, acquired, a.target_spacing) for one in (truth, head.float(), torch.eye(len(truth)))
        )
        head, integrate = share > 0.5, unit.double().numpy()
        again = Acquisition.of_truth(
            0,
            len(truth),
            edge=target,
            thickness=target * a.slice_thickness / a.target_spacing,
            spacing=target * a.slice_spacing / a.target_spacing,
            profile=a.profile,
        )
        if again.slice_count < FEWEST_SLICES or head.sum() < FEWEST_PIXELS:
            return None
        whole, thick, both = _noise_through(integrate, again, replace(scan.noise, widths=(along, across)))
        noise = replace(scan.noise, widths=(across, max(1.0, along * edge / target)))
        drawn, hidden = noise.deviation * math.sqrt(max(1 - thick, 0)), noise.deviation**2 * (whole - 2 * both)
        return cls(truth, head, (target, float(scan.edges[other])), again, noise, drawn, hidden)

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
        edges = [self.acquisition.slice_spacing, self.edges[1], self.edges[0], 1.0]
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
    full = [k for k in range(len(areas)) if areas[k] >= FULL * areas.max() and k not in scan.missing]
    places = (np.arange(count) + 0.5) * len(full) / count
    return sorted({full[int(place)] for place in places})


def places_of_spots(again: Again, extent: float) -> Iterator[tuple[int, int]]:
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


def spot(again: Again, place: tuple[int, int], size: float) -> Tensor:
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


class Trial(NamedTuple):
    """A slice that was acquired again and rebuilt.

    Attributes:
        errors: mean squared errors in the head, of the cubic spline and of the method.
        hidden: of both, the measured slice's own noise.
        pixels: of the head.
        spots: (size, contrast, kept by the method, kept by the spline) of each.
        pictures: name -> plane `(U, V)`.
    """

    errors: tuple[float, float]
    hidden: float
    pixels: int
    spots: list[tuple[float, float, float, float]]
    pictures: dict[str, Tensor]


def _rebuilt(slices: Slices, rebuild: Callable[[Slices], Tensor]) -> tuple[Tensor, Tensor]:
    """The middle plane by the cubic spline and by the method, `(U, V)` both."""
    cubic = interpolate(slices.array, slices.acquisition, "cubic")
    return cubic[..., PLANES // 2], rebuild(slices)[..., PLANES // 2]


def trial(
    scan: Slices,
    again: Again,
    rebuild: Callable[[Slices], Tensor],
    kinds: Iterator[tuple[float, float]],
    seed: int,
) -> Trial:
    """Rebuilds a slice as it was measured, and with spots in it; the noise is the same.

    Args:
        kinds: sizes in mm, and contrasts with their signs, of the spots.
    """
    extent = scan.tissue_range.extent
    none = torch.zeros(*again.truth.shape, PLANES)
    plain = again.slices(scan, none, seed)
    planes = _rebuilt(plain, rebuild)
    errors = [float((plane - again.truth)[again.head].double().square().mean()) for plane in planes]
    repeated = interpolate(plain.array, plain.acquisition, "nearest")[..., PLANES // 2]
    pictures = dict(zip(("measured", "acquired again", "cubic", "rebuilt"), (again.truth, repeated, *planes)))
    drawn = [
        (spot(again, place, size), size, share) for place, (size, share) in zip(places_of_spots(again, extent), kinds)
    ]
    spots = []
    if drawn:
        added = sum((ball * (share * extent) for ball, _, share in drawn), none)
        after = _rebuilt(again.slices(scan, added, seed), rebuild)
        changes = [(one - before) / extent for one, before in zip(after, planes)]
        for ball, size, share in drawn:
            middle = ball[..., PLANES // 2]
            spline, kept = (contrast(change, middle) / (share * contrast(middle, middle)) for change in changes)
            spots.append((size, abs(share), kept, spline))
    return Trial((errors[0], errors[1]), again.hidden, int(again.head.sum()), spots, pictures)


def check(
    slices: Slices,
    rebuild: Callable[[Slices], Tensor],
    foretelling: Foretelling | None = None,
    spots: bool = True,
) -> Check | None:
    """Tests a method on the slices of a scan.

    Args:
        slices: as they were measured; none is moved.
        rebuild: slices -> the volume on their fine grid, `(X', Y', Z')`, by the planes along the second axis.
        foretelling: from the gain within slices to that through them.
        spots: whether they are drawn, which takes twice as long.

    Returns:
        None where nothing can be tested: nothing would be rebuilt, or the slices have too few pixels.
    """
    if slices.acquisition.at_target or slices.constant:
        return None
    scan = slices.canonical
    a = scan.acquisition
    kinds = itertools.cycle((size, share) for share in SIGNED for size in SIZES) if spots else iter(())
    in_plane = [axis for axis in range(3) if axis != a.slice_axis]
    chosen = middle_slices(scan, min(max(a.fine_count // PART, LEAST), MOST))
    trials, inside = dict[tuple[int, int], Trial](), below_border(scan)
    for axis, index in itertools.product(in_plane, chosen):
        again = Again.of(scan, inside, index, axis)
        if again is not None:
            trials[axis, index] = trial(scan, again, rebuild, kinds, len(trials))
    if not trials:
        return None
    along, places = ({key[k] for key in trials} for k in (0, 1))
    last = a.slice_count - 1 if a.slice_axis in slices.turn.flipped else None
    spline, rebuilt = _levels(list(trials.values()), scan.tissue_range.extent)
    thickness = a.slice_thickness / a.target_spacing
    shown = [one for (axis, _), one in trials.items() if axis == min(along)]
    return Check(
        slices=tuple(sorted(place if last is None else last - place for place in places)),
        directions=len(along),
        spline=spline,
        rebuilt=rebuilt,
        foretold=None if foretelling is None else foretelling.through(rebuilt - spline, thickness),
        spots=_spots(list(trials.values())),
        pictures={
            name: plane if min(along) == min(in_plane) else plane.T
            for name, plane in shown[len(shown) // 2].pictures.items()
        },
    )


def _levels(trials: Sequence[Trial], extent: float) -> tuple[float, float]:
    """PSNR of the cubic spline and of the method over all trials, in dB, without the noise of the measured slices."""
    weights = [one.pixels for one in trials]
    hidden = np.average([one.hidden for one in trials], weights=weights)
    errors = np.average([one.errors for one in trials], axis=0, weights=weights)
    left = np.maximum(errors - hidden, HIDDEN * errors)
    spline, rebuilt = 10 * np.log10(extent**2 / np.maximum(left, np.finfo(float).tiny))
    return float(spline), float(rebuilt)


def _spots(trials: Sequence[Trial]) -> tuple[Spot, ...]:
    """The spots of all trials, by size and contrast."""
    kept: dict[tuple[float, float], list[tuple[float, float]]] = {}
    for size, share, *pair in (spot for one in trials for spot in one.spots):
        kept.setdefault((size, share), []).append((pair[0], pair[1]))
    found = list[Spot]()
    for (size, share), pairs in sorted(kept.items()):
        rebuilt, spline = np.mean(pairs, axis=0).tolist()
        found.append(Spot(size, share, rebuilt, spline, len(pairs)))
    return tuple(found)
