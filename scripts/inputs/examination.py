"""The scans of an examination beside each other: which join in one volume, which guide another, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..errors import InputError, few, logger
from .dicom import stacks
from .exclusion import looked_at
from .identity import Identity
from .names import alike
from .scan import Candidate, Scan, by_head
from .selection import matches

PARALLEL = 0.9  # cosine of the angle between slices; series of one direction are repeats, or of another contrast
ISOTROPIC = 1.3  # the longest edge of a voxel over the shortest
THINNER = 0.6  # most of the spacing of the slices that a scan along them guides
BEST = ("T1w", "T2w", "FLAIR", "PDw", "T2*w")  # guides, by their gain (docs/benchmarks.md)
OPEN = "no standard says its contrast: its image will"
MOST_GUIDES = 3  # candidates that are registered, should the better ones not fit
UNASKED = (
    "With --guide the result comes nearer to the truth, by 0.4 to 1.3 dB for slices of 3 mm and 1.1 to 2.2 dB for 5 mm "
    "(docs/stacks.md)."
)


class Role(NamedTuple):
    """Why a scan guides another, and its rank, of which the least is tried first; or why not, without a rank."""

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
        return Role(f"it cannot be read ({theirs.broken})")
    turned, same = abs(float(own.normal @ theirs.normal)) < PARALLEL, own.session == theirs.session
    said = [(own.shows[k], theirs.shows[k]) for k in (0, 3)]  # as shown, and by names alone
    differ = next((f"one is {one}, the other {other}" for one, other in said if one and other and one != other), "")
    if own.one_contrast(theirs) and not differ:
        return Role(f"it has the same contrast and {'another' if turned else 'the same'} direction")
    edges, spacing = theirs.edges, float(own.edges[own.slice_axis])
    thick = float(edges[theirs.slice_axis])
    if thick <= ISOTROPIC * edges.min() and thick <= THINNER * spacing:
        kind, sharp = 0, f"its voxels of {thick:.2g} mm are isotropic"
    elif turned and edges[theirs.axis_along(own)] <= THINNER * spacing:
        kind, sharp = 1, "its slices lie in another direction"
    elif not turned and thick <= THINNER * spacing:
        kind, sharp = 2, f"its slices are {thick:.2g} mm apart, not {spacing:.2g} mm"
    else:
        return Role(f"it is not sharp across the slices: {thick:.2g} mm apart")
    why = f"{differ or own.other_contrast(theirs) or OPEN}; {sharp}"
    best = BEST.index(theirs.shows.contrast) if theirs.shows.contrast in BEST else len(BEST)
    rank = (own.folder != theirs.folder, -alike(own.words, theirs.words), not differ, kind, best, theirs.agent)
    if same:
        return Role(why, (0, 0, *map(int, rank)))
    away = abs((theirs.date - own.date).days) if theirs.date and own.date else 10**9
    other = f"session {theirs.session.removeprefix('ses-')}" + f" of {theirs.date}" * bool(theirs.date)
    return Role(f"{why}; it is of {other}", (1, away, *map(int, rank)))


def roles(scan: Scan, others: Sequence[Scan]) -> list[tuple[Scan, Role]]:
    """Other scans and their roles beside a thick one, guides first and the best of them at the head."""
    each = [one.source for one in scan.each]
    if scan.identity.broken:  # which is said again when it is rebuilt
        return [(scan, Role(scan.identity.broken))]
    found = [(other, role(scan.identity, other.identity)) for other in others if other.source not in each]
    return sorted(found, key=lambda one: (not one[1].rank, one[1].rank))


def guides_not(scan: Scan, thick: Identity) -> str | None:
    """Why a scan guides no thick one, by its kind and its sharpness across the thick slices; None if it may."""
    if why := looked_at(scan.source, None).why:
        return why
    if isinstance(scan.samples, str):
        return scan.samples
    across = scan.samples[scan.identity.axis_along(thick)]
    if across <= THINNER * thick.edges[thick.slice_axis]:
        return None
    return f"its slices were interpolated: across the thick slices it shows no more than samples {across:.2g} mm apart"


def with_candidates(scans: Sequence[Scan], others: Sequence[Scan]) -> list[Scan]:
    """Scans, each with the first candidates of its head, also among `others`, if any. The log says which, and why."""
    result = []
    for scan, guides, reasons in _candidates(scans, others, MOST_GUIDES):
        if guides:
            further = [guide.scan.name for guide in guides[1:]]
            then = f" Should it not fit, {few(further)} will be tried." if further else ""
            logger.info(f"{guides[0].scan.name} guides {scan.name}, if it fits: {guides[0].why}.{then}")
        else:
            logger.info(f"{scan.name} has no guide. {few(reasons or ['No other scan of its head is there'])}.")
        result.append(replace(scan, guides=tuple(guides)))
    return result


def say_what_could_guide(scans: Sequence[Scan], others: Sequence[Scan]) -> None:
    """Says of the first scan beside which a guide lies, also among `others`, that nobody asked for it."""
    if len(scans) + len(others) == 1 == len(scans[0].each):  # nothing is read of a scan alone
        return
    for scan, guides, _ in _candidates(scans, others, 1):
        if guides:
            logger.info(f"{guides[0].scan.name} could guide {scan.name}: {guides[0].why}. {UNASKED}")
            return


def _candidates(
    scans: Sequence[Scan], others: Sequence[Scan], most: int
) -> Iterator[tuple[Scan, list[Candidate], list[str]]]:
    """Each scan with the first ones of its head that may guide it, also among `others`, and why the rest does not."""
    heads = by_head([*(stack for scan in scans for stack in scan.each), *others])
    beside = {one.source: head for head in heads for one in head}
    for scan in scans:
        guides, refused, left = list[Candidate](), list[str](), list[str]()
        for other, part in roles(scan, beside[scan.each[0].source]):
            if not part.rank:
                left.append(f"{other.name}: {part.why}")
            elif len(guides) < most:
                if why := guides_not(other, scan.identity):
                    refused.append(f"{other.name}: {why}")
                else:
                    guides.append(Candidate(other, part.why))
        yield scan, guides, refused + left


def grouped(scans: Sequence[Scan], named: bool, reference: str | None = None) -> list[Scan]:
    """Scans, of which those of one head and contrast are joined. The log says why one is left alone beside others.

    Standards call them one contrast: suffix and entities of BIDS, or one study, times, fat saturation and agent.
    Loose files are joined where the user names them. Their images decide, when they are registered.

    Args:
        scans: each of one stack.
        named: whether they are several and each was given by name: they belong together, unless a standard says that
            one is of another contrast than the first.
        reference: a shell pattern on paths and series' names. In each group the first scan that it matches gives grid,
            place and units, else the first scan.
    """

    def is_other(scan: Scan) -> bool:
        names = [scan.name] if scan.path is None else [str(scan.path), scan.path.name]
        return reference is not None and not any(matches(name, [reference]) for name in names)

    if all(map(is_other, scans)):
        names = few([scan.name for scan in scans])
        raise InputError(f"--reference {reference} matches no scan: expected one of {names}.")
    first, *others = sorted(scans, key=is_other)
    denied = {one: why for one in others if named and (why := first.identity.other_contrast(one.identity))}
    groups, single = list[list[Scan]](), list[str]()  # of its head and contrast
    for head in [[first, *others]] if named else by_head(scans):
        if named:
            joined = [[one for one in head if one not in denied]]
        else:
            joined = stacks.grouped(head, lambda one, group: not any(_not_joined(one, other) for other in group))
        for scan in (group[0] for group in joined if len(group) == 1):
            own, rest = scan.identity, [one for one in head if one is not scan]
            like = [one for one in rest if one.identity.contrast == own.contrast]
            same = [one for one in like if not own.other_contrast(one.identity)]
            if same:
                reasons = few([f"not with {one.name}, for {_not_joined(scan, one)}" for one in same])
                logger.info(f"{scan.name} is left alone: {reasons}.")
            else:
                single.append(scan.name)
        groups += joined
    if single:
        logger.info(f"no other stack of their head and contrast is there: {few(single)}.")
    for scan, why in denied.items():
        logger.warning(f"{scan.name} is rebuilt alone, not with {first.name}: {why}.")
        groups.append([scan])
    return [group[0] if len(group) == 1 else _one(sorted(group, key=is_other)) for group in groups]


def _not_joined(scan: Scan, other: Scan) -> str | None:
    """Why two scans of one head do not join in one volume; None where they do."""
    one, two = scan.identity, other.identity
    if one.session != two.session or one.frame != two.frame:
        return "it is of another head, session, study or frame of reference"
    if why := one.other_contrast(two):
        return why
    if not one.one_contrast(two):
        join = f"drift-mri {scan.name} {other.name} --together"
        return f"no standard says that both are of one contrast. To join them: {join}"
    both_dicom = scan.is_dicom and other.is_dicom  # files of one direction are runs
    parallel = both_dicom and abs(float(one.normal @ two.normal)) >= PARALLEL
    return "its slices lie in the same direction" if parallel else None


def _one(each: Sequence[Scan]) -> Scan:
    """Stacks as one scan; the first gives grid, place and units."""
    logger.info(f"{len(each)} stacks go together: " + ", ".join(scan.name for scan in each) + ".")
    first = each[0]
    if first.dataset is None:
        result = f"{first.result.name.removesuffix('_sr')}_together_sr"
    else:  # entities that all of them have; the last one is of `bids.derivative_name`, desc-sr
        *entities, suffix = first.result.name.split("_")
        every = [scan.result.name.split("_") for scan in each if scan.dataset is not None]
        *kept, label = [one for one in entities if all(one in other for other in every)]
        result = "_".join([*kept, f"{label.removesuffix('sr')}together", suffix])
    return replace(
        first,
        name=" + ".join(scan.name for scan in each),
        files=tuple(file for scan in each for file in scan.files),
        result=first.result.with_name(result),
        stacks=tuple(each),
    )
