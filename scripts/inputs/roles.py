"""The part that a scan has beside another of the same head: it joins, it guides, or it is left alone."""

from typing import Literal, NamedTuple

import numpy as np

from .identity import Identity

PARALLEL = 0.9  # cosine of the angle between slices; series of one direction are repeats, or of another contrast
ISOTROPIC = 1.3  # the longest edge of a voxel over the shortest
THINNER = 0.6  # most of the spacing of the slices that a scan along them guides
BEST = ("T1w", "T2w", "FLAIR", "PDw", "T2*w")  # guides, by their gain (docs/benchmarks.md)


class Role(NamedTuple):
    """A scan's part beside another, and why; the guide of the least rank is the best."""

    what: Literal["joins", "guides", "is left alone"]
    why: str
    rank: tuple[int, ...] = ()


def role(own: Identity, theirs: Identity) -> Role:
    """The role of a scan beside one of thick slices.

    A scan of another contrast that is sharp along the slices guides them: best a 3-D one, then a stack of another
    direction, then a stack of the same direction whose slices are at most `THINNER` as far apart. Then come scans
    that a number in their names alone tells apart: their likeness says whether they show one head. Scans of other
    sessions come last, the nearest in time first.
    """
    sessions = theirs.session.startswith("ses-")  # of BIDS; studies of DICOM may be of anybody
    numbered = theirs.person != own.person and theirs.perhaps == own.perhaps
    if theirs.person != own.person and theirs.person[0] == own.person[0] and not numbered:
        words, others = (" ".join(filter(None, one.person[1:])) or "nobody" for one in (theirs, own))
        return Role("is left alone", f"its name is of another person: {words}, not {others}")
    if (theirs.person != own.person and not numbered) or (theirs.session != own.session and not sessions):
        return Role("is left alone", "it is of another person, session or study")
    if theirs.broken:
        return Role("is left alone", f"it cannot be read ({theirs.broken})")
    why, edges, spacing = own.other_contrast(theirs), theirs.edges, float(own.edges[own.slice_axis])
    turned = abs(float(own.normal @ theirs.normal)) < PARALLEL
    if why is None and not (own.weighting and theirs.weighting):
        return Role("is left alone", "neither its name nor its header says that it is of another contrast")
    if why is None and turned and own.session == theirs.session and not numbered:
        return Role("joins", "it has the same contrast and another direction")
    if why is None:
        return Role("is left alone", "it has the same contrast" + " and the same direction" * (not turned))
    thick = float(edges[theirs.slice_axis])
    if edges.max() <= ISOTROPIC * edges.min() and edges.max() <= THINNER * spacing:
        kind, sharp = 0, f"its voxels of {edges.max():.2g} mm are isotropic"
    elif turned and edges[int(np.abs(own.normal @ theirs.axes).argmax())] <= THINNER * spacing:
        kind, sharp = 1, "its slices lie in another direction"
    elif not turned and thick <= THINNER * spacing:
        kind, sharp = 2, f"its slices are {thick:.2g} mm apart, not {spacing:.2g} mm"
    else:
        return Role("is left alone", f"it is not sharp across the slices: {thick:.2g} mm apart")
    rank = kind, BEST.index(theirs.weighting) if theirs.weighting in BEST else len(BEST), bool(theirs.agent)
    if own.session == theirs.session:
        return Role("guides", f"{why}; {sharp}" + "; its number may be of a series" * numbered, (0, numbered, *rank))
    away = abs((theirs.date - own.date).days) if theirs.date and own.date else 10**9
    other = f"session {theirs.session.removeprefix('ses-')}" + f" of {theirs.date}" * bool(theirs.date)
    return Role("guides", f"{why}; {sharp}; it is of {other}", (1, away, *rank))
