"""The trace that measured slices leave in a rebuilt volume: steps at their borders."""

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
