"""The part that a scan has beside another of the same head: it joins, it guides, or it is left alone."""

from typing import Literal, NamedTuple

import numpy as np

from .identity import Identity
from .names import alike

PARALLEL = 0.9  # cosine of the angle between slices; series of one direction are repeats, or of another contrast
ISOTROPIC = 1.3  # the longest edge of a voxel over the shortest
THINNER = 0.6  # most of the spacing of the slices that a scan along them guides
BEST = ("T1w", "T2w", "FLAIR", "PDw", "T2*w")  # guides, by their gain (docs/benchmarks.md)
OPEN = "no standard says its contrast: its image will"


class Role(NamedTuple):
    """A scan's part beside another, and why; the guide of the least rank is tried first."""

    what: Literal["joins", "guides", "is left alone"]
    why: str
    rank: tuple[int, ...] = ()


def role(own: Identity, theirs: Identity) -> Role:
    """The role of a scan beside one of thick slices, both of one head by `heads`.

    A scan that is sharp along the slices may guide them, unless standards call both one contrast. Its image decides,
    when both are registered. First come scans whose names begin or end alike, then those of another contrast by their
    names, then a 3-D one before a stack of another direction and one of the same direction. Scans of other sessions
    come last, the nearest in time first.
    """
    if theirs.broken:
        return Role("is left alone", f"it cannot be read ({theirs.broken})")
    turned, same = abs(float(own.normal @ theirs.normal)) < PARALLEL, own.session == theirs.session
    said = [(own.shows[k], theirs.shows[k]) for k in (0, 3)]  # as shown, and by names alone
    differ = next((f"one is {one}, the other {other}" for one, other in said if one and other and one != other), "")
    other = theirs.shows.contrast
    if own.one_contrast(theirs) and not differ:
        if turned and same:
            return Role("joins", "it has the same contrast and another direction")
        return Role("is left alone", "it has the same contrast" + " and the same direction" * (not turned))
    edges, spacing = theirs.edges, float(own.edges[own.slice_axis])
    thick = float(edges[theirs.slice_axis])
    if edges.max() <= ISOTROPIC * edges.min() and edges.max() <= THINNER * spacing:
        kind, sharp = 0, f"its voxels of {edges.max():.2g} mm are isotropic"
    elif turned and edges[int(np.abs(own.normal @ theirs.axes).argmax())] <= THINNER * spacing:
        kind, sharp = 1, "its slices lie in another direction"
    elif not turned and thick <= THINNER * spacing:
        kind, sharp = 2, f"its slices are {thick:.2g} mm apart, not {spacing:.2g} mm"
    else:
        return Role("is left alone", f"it is not sharp across the slices: {thick:.2g} mm apart")
    why = f"{differ or own.other_contrast(theirs) or OPEN}; {sharp}"
    order = own.folder != theirs.folder, -alike([*own.words], [*theirs.words]), not differ
    rank = *map(int, order), kind, BEST.index(other) if other in BEST else len(BEST), int(theirs.agent)
    if same:
        return Role("guides", why, (0, *rank))
    away = abs((theirs.date - own.date).days) if theirs.date and own.date else 10**9
    other = f"session {theirs.session.removeprefix('ses-')}" + f" of {theirs.date}" * bool(theirs.date)
    return Role("guides", f"{why}; it is of {other}", (1, away, *rank))
