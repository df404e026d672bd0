"""Several stacks of one head become one volume: each has measured detail that another lost along its slices.

Each stack is `y = A S (x / g) + noise` of one volume `x`: `S` places the volume where the head lay, `g` is the stack's
gain, `A` its slice model. The prior is the networks' result of each stack.

    one head and contrast (`fitting`, before networks run) -> motion (`registration.register`) -> gain
    (`gain.gain_field`) -> prior (`trusted`) -> measured slices (`reconciled`)
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from monai.data import MetaTensor
from scipy.fft import next_fast_len
from torch import Tensor
from torch.nn.functional import pad

from ..stack.acquisition import Acquisition
from ..stack.grid import meta_without_affine, voxel_spacing
from ..stack.profile import profile_kernel
from ..stack.slices import Slices
from ..stack.tissue import ramp
from .consistency import difference, reconcile, relative_rmse, rmse
from .disputes import disputes
from .gain import gain_field, relation
from .registration import ALIKE, WHOLE, likeness, placed, register, resolution
from .stacks import Part, Stack

FLOOR = 0.02  # of the power of detail; the error that noise and networks leave in measured detail
LITTLE = 1e-3  # how much the filled place of a missing slice counts beside another stack that measured it
KNOWN = 0.1  # signal over error of detail that a stack did not measure: the networks' guess of it is much alike in all
MOST = 0.9  # of the tissue; the place of a hot spot, or of a lesion that one stack alone shows, is less than the rest
OUTLIER = 3.0  # times the median of a stack's slices; a slice that disagrees more has moved
RESAMPLED = 0.03  # of the signal: what registration and resampling leave; stacks made of one volume differ by 2 %
WORSE = 0.05  # of the signal; a stack that takes the result farther off the first one's slices is left out
TIMES = 2.0  # a stack's own disagreement; a result farther off its slices has another reason


def fitting(each: Sequence[Slices]) -> list[Part]:
    """Which stacks show the first one's head in its contrast, before any is rebuilt: a part for each (`Part.belongs`).

    Cubic splines of the slices are registered and compared. They tell heads apart as sharp volumes do, and most
    contrasts. A contrast agent may lie in finer detail, so `together` compares contrasts again.
    """
    first, *others = (Stack.splined(one).tissue.above_floor for one in each)
    return [matched(first, first), *(matched(first, one) for one in others)]


def together(stacks: Sequence[Stack], fits: Sequence[Part | None] = ()) -> tuple[MetaTensor, list[Part]]:
    """A single volume of several stacks, on the grid, in the place and in the units of the first.

    A stack takes no part that does not show the first one's head (`registration.likeness` below `ALIKE`), shows it in
    another contrast (`gain.relation` below `ONE_CONTRAST`), or takes the result off the first one's slices (`_spoilt`).

    All of that looks at tissue alone. Voxels beyond it, such as hot spots, are laid on as the first stack has them.

    Args:
        stacks: one or more, of one contrast; not constant. Any angle may lie between them.
        fits: of `fitting`, for each of them; without them the rebuilt volumes say whether heads are alike.

    Returns:
        `(X', Y', Z')`, and a part for each stack. Where the first alone is left, the volume is its own.
    """
    first, level = stacks[0].rebuilt, [stack.tissue.above_floor for stack in stacks]
    found = [matched(level[0], stack, fit) for stack, fit in zip(level, fits or [None] * len(level))]
    inside = [index for index, part in enumerate(found) if part.belongs]

    @cache
    def joined(*which: int) -> tuple[Tensor, list[float], list[tuple[int, ...]]]:
        """The volume of some stacks, above the floor; their shares; the slices of each that moved."""
        taken, parts = [level[index] for index in which], [found[index] for index in which]
        views = [placed(stack.rebuilt, first, part.motion)[0] * part.gain for stack, part in zip(taken, parts)]
        prior, shares = trusted(views, taken, parts, first)
        volume, moved = reconciled(prior, taken, parts, first)
        return volume.clamp(min=0), shares, moved  # undershoot

    for index in inside[1:]:  # each beside the first one alone: among many, one that is wrong would hide
        far = _disagreement(joined(0, index)[0], level[0])
        if _spoilt(far, level[0]):
            found[index] = replace(found[index], spoils=far)
    inside = [index for index in inside if not found[index].spoils]
    if len(inside) == 1:
        return first, [replace(one, share=float(index == 0)) for index, one in enumerate(found)]
    taken, parts = [level[index] for index in inside], [found[index] for index in inside]
    (volume, shares, moved), odd = joined(*inside), disputes(taken, parts)
    beyond = [stack.rebuilt.as_tensor() - stack.tissue.rebuilt.as_tensor() + stack.floor for stack in stacks]
    result = MetaTensor(volume + beyond[0], affine=first.affine, meta=meta_without_affine(first))
    for index, stack, part, share, off, places in zip(inside, taken, parts, shares, moved, odd):
        there = _acquirable(volume, stack, part, first)
        lies = MetaTensor(there + beyond[index], affine=stack.rebuilt.affine)
        found[index] = replace(part, share=share, placed=lies, moved_slices=off, disputes=places)
    return result, found


def _disagreement(volume: Tensor, stack: Stack) -> float:
    """How far a volume on a stack's fine grid is from its slices, as a share of their signal."""
    slices, missing = stack.measured, torch.tensor(list(stack.missing), dtype=torch.long)
    return relative_rmse(difference(volume, slices).index_fill(slices.acquisition.slice_axis, missing, 0), slices)


def explained(stack: Stack) -> float:
    """How far a result of several stacks may be from a stack's slices, of their signal, while the head lay still.

    The truth is off its slices by their noise, and a result beside it by what registration and resampling leave. A
    stack's own result is off its slices, too.
    """
    own, noise = _own_and_noise(stack)
    return max(math.hypot(noise, RESAMPLED), TIMES * own)


def _spoilt(far: float, reference: Stack) -> bool:
    """Whether a result is too far from the reference's slices: farther than its own result and noise explain."""
    return far > max(WORSE, TIMES * max(_own_and_noise(reference)))


def _own_and_noise(stack: Stack) -> tuple[float, float]:
    """How far a stack's own result is off its slices, and their noise, both of their signal."""
    slices = stack.measured
    signal = rmse(slices.above_floor, slices)
    return _disagreement(stack.rebuilt.as_tensor(), stack), slices.noise.deviation / signal


def matched(reference: Stack, stack: Stack, fit: Part | None = None) -> Part:
    """Motion, likeness and gain of a stack. A stack that is not alike keeps a gain of 1, and is not seen.

    `fit`, of their splines, has its likeness, and the motion and the gain from which precise ones are found: so each
    stack is searched for once.
    """
    first = reference.rebuilt
    slice_spacing = max(one.measured.acquisition.slice_spacing for one in (reference, stack))
    if stack is reference:
        ones = torch.ones(first.shape)
        return Part(np.eye(4), 1.0, 1.0, ones, _weight(stack, ones, slice_spacing, np.eye(4), first), 1.0)
    if fit is None:
        motion = register(first, stack.rebuilt, reference.head)
        alike = likeness(first, stack.rebuilt, motion, resolution(first, [reference.measured, stack.measured]))
        if alike < ALIKE:
            return Part(motion, alike, 0.0, torch.ones(first.shape), torch.zeros(first.shape))
        values, seen = placed(stack.rebuilt, first, motion, order=1)  # a gain is fitted to what is much smoother
        field = gain_field(first, reference.head, values, seen, slice_spacing)
    else:
        motion, alike, field = fit.motion, fit.likeness, fit.gain
    gain = MetaTensor(field, affine=first.affine)
    evened = stack.rebuilt.as_tensor() * placed(gain, stack.rebuilt, np.linalg.inv(motion), order=1)[0]
    motion = register(first, MetaTensor(evened, affine=stack.rebuilt.affine), reference.head, motion)
    values, seen = placed(stack.rebuilt, first, motion, order=1)
    field = gain_field(first, reference.head, values, seen, slice_spacing)
    close = relation(first, reference.head, values * field, seen, slice_spacing)
    return Part(motion, alike, close, field, _weight(stack, seen, slice_spacing, motion, first))


def unmeasured(frequency: Tensor, acquisition: Acquisition) -> Tensor:
    """Share of a detail's power that a stack does not measure, by its frequency along the slice axis.

    Slices of spacing `d` cannot tell a frequency from its aliases, which lie `1/d` apart. With `H` the slice profile's
    transfer function and detail of equal power at all of them, the best linear estimate leaves
    `1 - |H(k)|^2 / sum_m |H(k + m/d)|^2`.

    Args:
        frequency: in cycles/mm, of any shape.

    Returns:
        From `FLOOR` to 1, of the shape of `frequency`.
    """
    a = acquisition
    kernel = profile_kernel(a.slice_thickness, a.target_spacing, a.profile)
    place = (np.arange(len(kernel)) - len(kernel) // 2) * a.target_spacing
    nyquist = 0.5 / a.target_spacing
    table = np.linspace(0, 2 * nyquist, 1025)  # and symmetric

    def power(k: np.ndarray) -> np.ndarray:
        transfer = np.cos(2 * np.pi * k[..., None] * place) @ kernel
        return np.where(np.abs(k) <= nyquist, transfer**2, 0.0)

    reach = math.ceil(a.slice_spacing / a.target_spacing)  # of aliases; no frequency of the table is negative
    aliases = sum(power(table + order / a.slice_spacing) for order in range(-reach, reach))
    left = 1 - power(table) / np.maximum(aliases, 1e-12)
    left = np.clip(left, 0, 1) * (1 - FLOOR) + FLOOR
    return torch.from_numpy(np.interp(frequency.abs().numpy(), table, left).astype(np.float32))


def trusted(
    views: Sequence[Tensor], stacks: Sequence[Stack], parts: Sequence[Part], first: MetaTensor
) -> tuple[Tensor, list[float]]:
    """The mean of the rebuilt stacks in which each counts for the detail that it measured.

    In Fourier space the weight of a stack is the power that it measured over the power that it lacks (`unmeasured`),
    and `KNOWN`, by which stacks count alike for detail that none measured. Where a stack saw nothing, the others count.

    Args:
        views: `(X, Y, Z)`, the rebuilt stacks on the grid of `first`, in its units.
        first: `(X, Y, Z)` with its affine.

    Returns:
        `(X, Y, Z)`, and the share of each stack in it.
    """
    edges = voxel_spacing(first.affine)
    spacings = [stack.measured.acquisition.slice_spacing for stack in stacks]
    padding = [math.ceil(max(spacings) / edge) for edge in edges]  # where opposite borders meet
    sizes = [next_fast_len(n + 2 * p, real=True) for n, p in zip(first.shape, padding)]
    frequencies = [torch.fft.fftfreq(n, edge) for n, edge in zip(sizes[:2], edges)]
    frequencies += [torch.fft.rfftfreq(sizes[2], edges[2])]
    axes = np.asarray(first.affine)[:3, :3] / edges
    trust = []
    for stack, part in zip(stacks, parts):
        acquisition = stack.measured.acquisition
        normal = np.asarray(stack.measured.affine)[:3, acquisition.slice_axis] / acquisition.slice_spacing
        x, y, z = axes.T @ part.motion[:3, :3].T @ normal
        along = x * frequencies[0][:, None, None] + y * frequencies[1][:, None] + z * frequencies[2]
        trust.append(1 / unmeasured(along, acquisition) - 1 + KNOWN)
    total = torch.stack(trust).sum(0)
    seen = torch.stack([part.seen for part in parts])
    mean = (torch.stack(list(views)) * seen).sum(0) / seen.sum(0)
    detail, shares = torch.zeros(total.shape, dtype=torch.complex64), []
    ends = [end for p, n, size in reversed(list(zip(padding, first.shape, sizes))) for end in (p, size - n - p)]
    for view, part, one in zip(views, parts, trust):
        wide = pad((part.seen * (view - mean))[None, None], ends, mode="replicate")[0, 0]
        detail += one / total * torch.fft.rfftn(wide)
        shares.append(float((one / total).mean() * part.seen.mean()))
    change = torch.fft.irfftn(detail, s=sizes)[tuple(slice(p, p + n) for p, n in zip(padding, first.shape))]
    return mean + _several(seen) * change, [share / sum(shares) for share in shares]


def reconciled(
    volume: Tensor, stacks: Sequence[Stack], parts: Sequence[Part], first: MetaTensor
) -> tuple[Tensor, list[tuple[int, ...]]]:
    """The volume moved onto the measured slices of all stacks, as far as their noise allows.

    Stacks take turns: each moves the volume (`consistency.reconcile`) where the head lay in it, but not onto slices
    that moved. A stack with which the volume agrees to within the noise moves nothing: it would only bring that noise.

    The volume, `(X, Y, Z)`, lies on the grid of `first` and has its units.

    Returns:
        `(X, Y, Z)`, and for each stack the indices of its slices that moved.
    """
    seen, moved = torch.stack([part.seen for part in parts]), []
    for stack, part in zip(stacks, parts):
        there, slices = _acquirable(volume, stack, part, first), stack.measured
        left = difference(there, slices)
        moved.append(_moved_slices(left, stack))
        if left[slices.head].square().mean().sqrt() > slices.noise.deviation:
            change = MetaTensor(reconcile(there, slices, moved[-1]) - there, affine=stack.rebuilt.affine)
            volume = volume + _several(seen) * part.seen * part.gain * placed(change, first, part.motion)[0]
    return volume, moved


def _several(seen: Tensor) -> Tensor:
    """1 where two stacks or more see a voxel, 0 where one does: there it is that stack's."""
    return (seen.sum(0) - 1).clamp(0, 1)


def _acquirable(volume: Tensor, stack: Stack, part: Part, first: MetaTensor) -> Tensor:
    """A volume of the grid of `first` on a stack's fine grid, in the stack's units; beyond it the stack's own."""
    grid, back = stack.rebuilt, np.linalg.inv(part.motion)
    values, seen = placed(MetaTensor(volume, affine=first.affine), grid, back)
    gain, _ = placed(MetaTensor(part.gain, affine=first.affine), grid, back, order=1)
    return seen * (values / gain) + (1 - seen) * grid.as_tensor()


def _weight(stack: Stack, seen: Tensor, slice_spacing: float, motion: np.ndarray, first: MetaTensor) -> Tensor:
    """How much a stack counts, on the grid of `first`: next to nothing in the place of its missing slices.

    The border of its field of view is a ramp of a slice spacing.
    """
    soft = ramp(seen > WHOLE, voxel_spacing(first.affine), slice_spacing)
    if not stack.missing:
        return soft
    known = placed(MetaTensor(stack.known, affine=stack.rebuilt.affine), first, motion, order=1)[0]
    return torch.maximum(soft * known, LITTLE * (seen > WHOLE))


def _moved_slices(left: Tensor, stack: Stack) -> tuple[int, ...]:
    """Measured slices with much tissue whose difference from the volume, `left`, is an outlier in their stack.

    A slice that moved differs in many places. So the difference is one that most of its tissue does not reach.
    """
    axis = stack.measured.acquisition.slice_axis
    head = stack.measured.head.movedim(axis, 0).flatten(1)
    away = left.movedim(axis, 0).flatten(1).abs().where(head, torch.nan)
    error = away.nanquantile(MOST, dim=1)
    much = head.sum(1) > 0.25 * head.sum(1).max()
    much[[0, -1, *stack.missing]] = False  # tissue beyond the outermost slices is not known
    return tuple(torch.nonzero(much & (error > OUTLIER * error[much].median())).flatten().tolist())
