"""Where a volume shows tissue: the head, its edges, and tissue without edges."""

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from .intensity import IntensityRange, data_range, intensity_range

TISSUE = 0.1  # of the range of intensities of tissue; darker voxels are air
FLAT_SCALE = 2.0  # voxels; standard deviation of the Gaussian that gradients are taken with


def head_mask(volume: Tensor, tissue_range: IntensityRange | None = None) -> Tensor:
    """Voxels of the head.

    1. A voxel is inside if it is brighter than a tenth of the range of tissue (`intensity.intensity_range`).
    2. Holes of the slices of each of three directions are filled. A sinus that reaches the border of the field of view
       is open in 3-D, and closed in most slices. No direction is filled before another: storage changes nothing.
    3. The largest connected part is the head.

    The volume is `(X, Y, Z)`, not constant; `tissue_range` is its range, where that is known.
    """
    data_range(volume)
    known = intensity_range(volume) if tissue_range is None else tissue_range
    bright = volume.cpu().numpy() > known.low + TISSUE * known.extent
    inside, cross = bright.copy(), ndimage.generate_binary_structure(3, 1)
    for normal in range(3):
        in_slice = cross.copy()
        in_slice.swapaxes(0, normal)[[0, 2]] = False
        inside |= ndimage.binary_fill_holes(bright, in_slice)
    parts, _ = ndimage.label(inside)
    largest = np.bincount(parts.ravel())[1:].argmax() + 1
    return torch.from_numpy(parts == largest).to(volume.device)


def depth(inside: np.ndarray, edges: np.ndarray | float) -> np.ndarray:
    """How deep in a mask each voxel lies, in mm, by voxel edges in mm; beyond the field of view is outside."""
    return ndimage.distance_transform_edt(np.pad(inside, 1), edges)[1:-1, 1:-1, 1:-1]


def ramp(inside: Tensor, edges: np.ndarray, width: float) -> Tensor:
    """1 within a mask and 0 outside, with a slope of `width` mm within its border, if it has one."""
    if inside.all():
        return torch.ones(inside.shape)
    return torch.from_numpy(ndimage.distance_transform_edt(inside.numpy(), edges) / width).float().clamp(max=1)


def edge_strength(reference: Tensor, head: Tensor) -> Tensor:
    """Magnitude of the intensity's gradient, over its median in the head: `(X, Y, Z)` float32.

    The head is `(X, Y, Z)` bool, one voxel or more.
    """
    unit = reference.float() / reference.abs().max()  # squares neither overflow nor vanish
    gradient = torch.from_numpy(ndimage.gaussian_gradient_magnitude(unit.cpu().numpy(), FLAT_SCALE))
    gradient = gradient.to(head.device)
    return gradient / gradient[head].median().clamp(min=torch.finfo(gradient.dtype).tiny)


def flat_tissue(reference: Tensor) -> Tensor:
    """The half of the head where intensity changes least, by its gradient's magnitude. Edges would hide a step.

    The reference is the truth or, where there is none, a volume without steps, such as the cubic spline's without its
    undershoot.
    """
    head = head_mask(reference)
    return head & (edge_strength(reference, head) <= 1)
