"""The trace that measured slices leave in a rebuilt volume: steps at their borders, and streaks across them."""

import numpy as np
import torch
from torch import Tensor

from .acquisition import Acquisition

ROUNDED = 0.1  # planes; spacings of headers are rounded, and a border drifts through the planes of a stack


def step_ratio(volume: Tensor, acquisition: Acquisition, flat: Tensor) -> float:
    """How much of the measured slices still shows: neighbouring planes differ more across their borders than inside.

    A border need not lie between two planes of the fine grid. It may lie within one, which then shows a mean of two
    slices: half of the step stands on either side of that plane. So both pairs count as across.

    Args:
        volume: `(X, Y, Z)` on the fine grid.
        acquisition: of the slices.
        flat: `(X, Y, Z)` bool, of `flat_tissue`; a difference counts where both its voxels lie there.

    Returns:
        Mean absolute difference of neighbouring planes of which either holds a border of measured slices, or between
        which one lies, over that of planes in one slice. 1 shows no trace; infinite for stair steps; NaN where there
        is nothing to compare.
    """
    across, within = (one.abs().double().mean() for one in steps(volume, acquisition, flat))
    return (across / within).item()


def steps(volume: Tensor, acquisition: Acquisition, flat: Tensor) -> tuple[Tensor, Tensor]:
    """Differences of neighbouring planes in flat tissue: across borders of measured slices, and within slices."""
    axis, border = acquisition.slice_axis, torch.from_numpy(borders(acquisition))
    differences, inside = volume.movedim(axis, -1).diff(dim=-1), flat.movedim(axis, -1)
    both = inside[..., 1:] & inside[..., :-1]
    across, within = (differences[..., there][both[..., there]] for there in (border, ~border))
    return across, within


def borders(acquisition: Acquisition) -> np.ndarray:
    """`(fine_count - 1,)` bool: which neighbouring planes of the fine grid are not both within one slice.

    Slices thinner than two planes hold no pair: the pairs farthest from borders then count as within.
    """
    distance = border_distance(acquisition)
    return distance < min(1.0, distance.max(initial=0.0)) - ROUNDED


def border_distance(acquisition: Acquisition) -> np.ndarray:
    """`(fine_count - 1,)`: how far the middle of neighbouring planes lies from a border of two slices, in planes.

    A step of stairs is seen by the pairs that are nearer than 1. Infinite for a single slice.
    """
    a = acquisition
    middles = (a.fine_rows[1:] + a.fine_rows[:-1]) / 2 + 0.5  # in slices, from the beginning of the first
    apart = np.abs(middles[:, None] - np.arange(1, a.slice_count))
    return apart.min(1, initial=np.inf) * a.slice_spacing / a.target_spacing


def streak(volume: Tensor, slice_axis: int, flat: Tensor) -> tuple[float, float]:
    """How far flat tissue is drawn out along the slice axis, as where a pixel's noise fills the slice's thickness.

    Args:
        volume: `(X, Y, Z)` of cubes, or nearly.
        flat: `(X, Y, Z)` bool, of `flat_tissue`; the steps from a voxel count where it lies there.

    Returns:
        The root mean square of steps between neighbours within the slices over that of steps across them, which is 0.7
        to 1.2 in true isotropic scans; and the steps within the slices, in the units of the volume. NaN where there is
        nothing to compare.
    """
    array, inside = (one.movedim(slice_axis, -1)[:-1, :-1, :-1] for one in (volume, flat))
    whole = volume.movedim(slice_axis, -1)
    steps = [whole.diff(dim=dim) for dim in range(3)]
    common = tuple(slice(count) for count in array.shape)
    sizes = [one[common][inside].double().square().mean() for one in steps]
    within = (sizes[0].sqrt() + sizes[1].sqrt()) / 2
    return (within / sizes[2].sqrt()).item(), within.item()
