"""Where the stacks of one head show different things, such as a lesion that one alone shows."""

from collections.abc import Sequence

import numpy as np
from scipy import ndimage
from scipy.stats import median_abs_deviation

from ..stack.grid import voxel_spacing
from ..stack.tissue import depth
from .gain import coarse, smoothing
from .registration import WHOLE, placed
from .stacks import Dispute, Part, Stack

ODD, AMISS, CLUSTER = 5.0, 0.5, 100.0  # standard deviations, mm, mm^3; see `disputes`


def disputes(stacks: Sequence[Stack], parts: Sequence[Part]) -> list[tuple[Dispute, ...]]:
    """The places where stacks disagree: the result has a mean of both.

    Volumes are smoothed to the detail that all stacks measured (`gain.coarse`). A stack's difference is
    the one from the median of three or more, or from the other one of two. Its standard deviation at a place is the
    root of two squares' sum: of its spread in the head, and of the change that a shift by `AMISS` makes there. A
    dispute is a connected place of `CLUSTER` or more, deeper in the head than a slice spacing, where the difference is
    more than `ODD` standard deviations. Between two stacks it is the second's.

    The stacks are two or more, above their floors, the reference first; each has its own disputes.
    """
    first, slice_spacing = stacks[0].rebuilt, max(stack.measured.acquisition.slice_spacing for stack in stacks)
    edges = voxel_spacing(first.affine)
    step = np.maximum(1, smoothing(slice_spacing, edges).astype(int))
    every, affine = tuple(slice(None, None, one) for one in step), np.asarray(first.affine) @ np.diag([*step, 1])
    views, depths = [], []
    for stack, part in zip(stacks, parts):
        inside = (stacks[0].head & (part.seen > WHOLE)).numpy()
        view = placed(stack.rebuilt, first, part.motion, order=1)[0] * part.gain
        views.append(np.where(inside, coarse(view, inside, slice_spacing, edges), np.nan)[every])
        depths.append(depth(inside, edges)[every])
    found: list[tuple[Dispute, ...]] = [()] if len(stacks) == 2 else []
    for index in range(len(found), len(stacks)):
        others = [k for k in range(len(stacks)) if k != index]
        deep = (depths[index] > slice_spacing) & (np.max([depths[k] for k in others], axis=0) > slice_spacing)
        if not deep.any():
            found.append(())
            continue
        shown = np.stack(views)[:, deep]
        mean = np.nanmean(shown[others], axis=0)
        rest = np.where(np.isfinite(shown).sum(0) > 2, np.nanmedian(shown, axis=0), mean)
        difference, field = np.zeros(deep.shape), np.zeros(deep.shape)
        difference[deep], field[deep] = shown[index] - rest, (shown[index] + mean) / 2
        slope = np.sqrt(sum((one / edge) ** 2 for one, edge in zip(np.gradient(field), step * edges)))
        spread = np.hypot(median_abs_deviation(shown[index] - mean, scale="normal"), AMISS * slope)
        labels, count = ndimage.label(np.abs(difference) > ODD * spread)
        sizes = ndimage.sum_labels(labels > 0, labels, range(1, count + 1)) * (step * edges).prod()
        odd = []
        for label in 1 + np.flatnonzero(sizes >= CLUSTER):
            x, y, z, _ = affine @ [*ndimage.center_of_mass(labels == label), 1]
            most = max(difference[labels == label], key=abs) / np.median(rest)
            odd.append(Dispute((float(x), float(y), float(z)), float(sizes[label - 1]), float(most)))
        found.append(tuple(odd))
    return found
