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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..method.calibration import Foretelling
from ..stack.interpolation import interpolate
from ..stack.slices import Slices
from .acquired_again import PLANES, AcquiredAgain, below_border, middle_slices
from .spots import SIGNED, SIZES, Spot, contrast, mean_spots, places_of_spots, spot

WORTH = 0.5  # dB; a gain of less is none
NO_GAIN = "no better than interpolation on this scan: do not use it"
# Sentences that the page has, too
SAID = "on this scan's own slices {by} {gains} the cubic spline ({spline:.1f} to {rebuilt:.1f})"
GAINS, LOSES = "gains {:.1f} dB over", "loses {:.1f} dB to"
FORETOLD = ", foretold through its slices {:.1f} ± {:.1f} dB"
PART = 30  # fine slices for each slice that is tested: a third of a rebuild's planes or less
LEAST, MOST = 2, 8  # slices that are tested
AXIAL = 2  # the axis across axial slices, in RAS+ order
HIDDEN = 0.1  # of a squared error is left at least when the noise of the measured slice is taken off


def expected_gain(gain: float, foretold: float | None) -> float:
    """Gain to be expected through the slices, in dB: the foretold one, where there is one.

    A loss within the slices counts as it is, whatever a line foretells: no scan that it was fitted on has one.
    """
    return gain if foretold is None or gain < 0 else foretold


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
        """`expected_gain` of this test, in dB."""
        return expected_gain(self.gain, None if self.foretold is None else self.foretold[0])

    def __str__(self) -> str:
        """In words, for people."""
        gains = (GAINS if self.gain >= 0 else LOSES).format(abs(self.gain))
        text = SAID.format(by=self.by, gains=gains, spline=self.spline, rebuilt=self.rebuilt)
        if self.foretold is not None:
            text += FORETOLD.format(*self.foretold)
        return text if self.expected >= WORTH else f"{text}: {NO_GAIN}"


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
    again: AcquiredAgain,
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
        again = AcquiredAgain.of(scan, inside, index, axis)
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
        foretold=None
        if foretelling is None
        else foretelling.through(rebuilt - spline, thickness, a.slice_axis == AXIAL),
        spots=mean_spots(pair for one in trials.values() for pair in one.spots),
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
