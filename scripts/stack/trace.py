"""The trace that measured slices leave in a rebuilt volume: steps at their borders, and streaks across them."""

import numpy as np
import torch
from torch import Tensor

from .acquisition import Acquisition


def step_ratio(volume: Tensor, acquisition: Acquisition, flat: Tensor) -> float:
    """How much of the measured slices still shows: neighbouring planes differ more across their borders than inside.

    Args:
        volume: `(X, Y, Z)` on the fine grid.
        acquisition: of the slices.
        flat: `(X, Y, Z)` bool, of `flat_tissue`; a difference counts where both its voxels lie there.

    Returns:
        Mean absolute difference of neighbouring planes on either side of a border of measured slices, over that of
        planes in one slice. 1 shows no trace; infinite for stair steps; NaN where there is nothing to compare.
    """
    a = acquisition
    border = torch.from_numpy(np.diff(a.nearest_slices) != 0)
    differences = volume.movedim(a.slice_axis, -1).diff(dim=-1).abs()
    inside = flat.movedim(a.slice_axis, -1)
    both = inside[..., 1:] & inside[..., :-1]
    across, within = (differences[..., there][both[..., there]].double().mean() for there in (border, ~border))
    return (across / within).item()


def streak(volume: Tensor, slice_axis: int, flat: Tensor) -> tuple[float, float]:
    """How far flat tissue is drawn out along the slice axis, as where a pixel's noise fills the slice's thickness.

    Args:
        volume: `(X, Y, Z)` of cubes, or nearly.
        flat: `(X, Y, Z)` bool, of `flat_tissue`; a difference counts where all its voxels lie there.

    Returns:
        The root mean square of steps between neighbours within the slices over that of steps across them, which is 0.8
        to 1.1 in true isotropic scans; and the steps within the slices, in the units of the volume. NaN where there is
        nothing to compare.
    """
    array, inside = (one.movedim(slice_axis, -1)[:-1, :-1, :-1] for one in (volume, flat))
    whole = volume.movedim(slice_axis, -1)
    steps = [whole.diff(dim=dim) for dim in range(3)]
    common = tuple(slice(count) for count in array.shape)
    sizes = [one[common][inside].double().square().mean() for one in steps]
    within = (sizes[0].sqrt() + sizes[1].sqrt()) / 2
    return (within / sizes[2].sqrt()).item(), within.item()
