"""The two families of planes of a volume become one volume: each gives most of the detail along its planes.

A plane shows how tissue varies along its in-plane axis, and nothing of how it varies across. So the planes along x
rebuild an edge across x well, one across y as if each plane stood alone. Zhao et al., *SMORE* (IEEE Trans. Med.
Imaging 40:805-817, 2021) weigh rotated estimates by their frequencies, too.
"""

from collections.abc import Sequence

import numpy as np
import torch
from scipy import fft
from torch import Tensor


def weigh_families(
    families: Sequence[Tensor], axes: Sequence[int], spacing: np.ndarray, slice_spacing: float
) -> Tensor:
    """Two estimates of a volume, each by planes along an in-plane axis, weighed by frequency.

    At the frequencies `f` and `g` along the axes the first one's weight is

        1/2 + (f^2 - g^2) / (f^2 + g^2 + h^2) / 2

    and both weights sum to 1. `h` is half of the slices' frequency: both families see alike the patterns that are
    coarser in the plane than slices are. The cosine transform mirrors the volume at its borders.

    Example: slices 5 mm apart, so h = 0.1 per mm. A pattern along the first axis alone, 0.2 times per mm, gets the
    weights 0.9 and 0.1; 0.02 times per mm, 0.52 and 0.48. A pattern that varies alike along both gets 0.5 and 0.5.

    Args:
        families: `(X, Y, Z)` each, on the CPU.
        axes: along which the planes of each run, beside the slice axis.
        spacing: `(2,)`, of the voxels along these axes, in mm.
        slice_spacing: in mm.

    Returns:
        `(X, Y, Z)`.
    """
    first, second = families
    squares = []
    for axis, edge in zip(axes, spacing):
        count = first.shape[axis]
        square = (np.arange(count, dtype=np.float32) / (2 * count * edge)) ** 2
        squares.append(square[:, None] if axis == min(axes) else square)
    share = (squares[0] - squares[1]) / 2 / (squares[0] + squares[1] + 1 / (2 * slice_spacing) ** 2)
    across = 3 - sum(axes)
    result = torch.empty_like(first)
    for one, other, both in zip(*(volume.unbind(across) for volume in (first, second, result))):  # little memory
        apart = fft.dctn((one - other).numpy(), norm="ortho")
        both.copy_((one + other) / 2 + torch.from_numpy(fft.idctn(share * apart, norm="ortho")))
    return result
