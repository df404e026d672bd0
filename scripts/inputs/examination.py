"""The scans of an examination beside each other: which join in one volume, which guide another, and why."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import InputError, few, logger
from .dicom import stacks
from .exclusion import guides_not
from .heads import Head, heads
from .roles import PARALLEL, Role, role
from .scan import Candidate, Scan
from .selection import matches

MOST_GUIDES = 3  # candidates that are registered, should the better ones not fit
UNASKED = (
    "With --guide the result comes nearer to the truth, by 0.4 to 1.3 dB for slices of 3 mm and 1.1 to 2.2 dB for 5 mm "
    "(docs/stacks.md)."
)


def with_candidates(scans: Sequence[Scan], others: Sequence[Scan]) -> list[Scan]:
    """Scans, each with the first candidates of its head, also among `others`, if any. The log says which, and why."""
    beside, result = _beside(scans, others), []
    for scan in scans:
        guides, reasons = _candidates(scan, beside(scan), MOST_GUIDES)
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
    beside = _beside(scans, others)
    for scan in scans:
        for guide in _candidates(scan, beside(scan), 1)[0]:
            logger.info(f"{guide.scan.name} could guide {scan.name}: {guide.why}. {UNASKED}")
            return


def _candidates(scan: Scan, others: Sequence[Scan], most: int) -> tuple[list[Candidate], list[str]]:
    """The first scans that may guide one, and why others do not."""
    guides, refused, left = list[Candidate](), list[str](), list[str]()
    for other, part in roles(scan, others):
        if part.what != "guides":
            left.append(f"{other.name}: {part.why}")
        elif len(guides) < most and (why := guides_not(other, scan.identity)):
            refused.append(f"{other.name}: {why}")
        elif len(guides) < most:
            guides.append(Candidate(other, part.why))
    return guides, refused + left


def _beside(scans: Sequence[Scan], others: Sequence[Scan]) -> Callable[[Scan], list[Scan]]:
    """A function that gives all stacks and other scans of a scan's head."""
    every = [*(stack for scan in scans for stack in scan.each), *others]
    of, found = heads(every), defaultdict[Head, list[Scan]](list)
    for one in every:
        found[of[one.source]].append(one)
    return lambda scan: found[of[scan.each[0].source]]


def roles(scan: Scan, others: Sequence[Scan]) -> list[tuple[Scan, Role]]:
    """Other scans and their roles beside a thick one, guides first and the best of them at the head."""
    each = [one.source for one in scan.each]
    if scan.identity.broken:  # which is said again when it is rebuilt
        return [(scan, Role("is left alone", scan.identity.broken))]
    found = [(other, role(scan.identity, other.identity)) for other in others if other.source not in each]
    return sorted(found, key=lambda one: (one[1].what != "guides", one[1].rank))


def grouped(scans: Sequence[Scan], named: Sequence[Scan], reference: str | None = None) -> list[Scan]:
    """Scans, of which those of one head and contrast are joined. The log says why one is left alone beside others.

    Standards call them one contrast: suffix and entities of BIDS, or one study, times, fat saturation and agent.
    Loose files are joined where the user names them. Their images decide, when they are registered.

    Args:
        scans: each of one stack.
        named: those of them that were given by name, where several were: they belong together, unless a standard
            says that one is of another contrast than the first.
        reference: a shell pattern on paths and series' names. In each group the first scan that it matches gives grid,
            place and units, else the first scan.
    """
    if reference is not None and not any(_matches(scan, reference) for scan in scans):
        names = few([scan.name for scan in scans])
        raise InputError(f"--reference {reference} matches no scan: expected one of {names}.")
    of, wanted = heads(scans), [scan for scan in named if reference is not None and _matches(scan, reference)]
    first = [*wanted, *named, *scans][0]
    denied = {one.source: why for one in named if (why := first.identity.other_contrast(one.identity))}
    together = [scan for scan in named if scan.source not in denied]
    rest = [scan for scan in scans if scan not in named]
    groups = [together] if together else []
    groups += stacks.grouped(rest, lambda scan, group: not any(_not_joined(scan, other, of) for other in group))
    single = list[str]()  # of their head and contrast
    for scan in (scan for group in groups if len(group) == 1 for scan in group):
        head = [one for one in scans if one is not scan and one not in named and of[one.source] == of[scan.source]]
        own = scan.identity
        same = [one for one in head if not own.other_contrast(one.identity) and own.contrast == one.identity.contrast]
        if same:
            reasons = few([f"not with {one.name}, for {_not_joined(scan, one, of)}" for one in same])
            logger.info(f"{scan.name} is left alone: {reasons}.")
        else:
            single.append(scan.name)
    if single:
        logger.info(f"no other stack of their head and contrast is there: {few(single)}.")
    for scan in (scan for scan in named if scan.source in denied):
        logger.warning(f"{scan.name} is rebuilt alone, not with {first.name}: {denied[scan.source]}.")
        groups.append([scan])
    return [group[0] if len(group) == 1 else _one(group, reference) for group in groups]


def _not_joined(scan: Scan, other: Scan, of: Mapping[Any, Head]) -> str | None:
    """Why two scans do not join in one volume; None where they do."""
    one, two = scan.identity, other.identity
    if of[scan.source] != of[other.source] or one.session != two.session or one.frame != two.frame:
        return "it is of another head, session, study or frame of reference"
    if why := one.other_contrast(two):
        return why
    if not one.one_contrast(two):
        join = f"drift-mri {scan.name} {other.name} --together"
        return f"no standard says that both are of one contrast. To join them: {join}"
    both_dicom = scan.is_dicom and other.is_dicom  # files of one direction are runs
    parallel = both_dicom and abs(float(one.normal @ two.normal)) >= PARALLEL
    return "its slices lie in the same direction" if parallel else None


def _matches(scan: Scan, pattern: str) -> bool:
    names = [scan.name] if scan.path is None else [str(scan.path), scan.path.name]
    return any(matches(name, [pattern]) for name in names)


def _one(group: Sequence[Scan], reference: str | None) -> Scan:
    first = next((scan for scan in group if reference is not None and _matches(scan, reference)), group[0])
    each = (first, *(scan for scan in group if scan is not first))
    logger.info(f"{len(each)} stacks go together: " + ", ".join(scan.name for scan in each) + ".")
    if first.dataset is not None:
        *entities, suffix = first.result.name.split("_")
        every = [scan.result.name.split("_") for scan in each if scan.dataset is not None]
        *kept, label = [
            one for one in entities if all(one in other for other in every)
        ]  # of `derivative_name`: desc-sr
        result = "_".join([*kept, f"{label.removesuffix('sr')}together", suffix])
    else:
        result = f"{first.result.name.removesuffix('_sr')}_together_sr"
    return replace(
        first,
        name=" + ".join(scan.name for scan in each),
        files=tuple(file for scan in each for file in scan.files),
        result=first.result.with_name(result),
        stacks=each,
    )
