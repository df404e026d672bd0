"""A woven texture: threads along both axes, which a mean of stacks along different axes may leave."""

from collections.abc import Sequence

import torch
from torch import Tensor


def weave(volume: Tensor, axes: tuple[int, int], spacings: Sequence[float], slice_spacing: float) -> float:
    """Power near two axes over power between them: large for a woven texture, of threads along both.

    The power is the mean density of the spectrum in the plane of the axes, from the frequency that slices of either
    stack hold up to the grid's Nyquist frequency: within 15 degrees of an axis, over within 15 degrees of a diagonal.

    Args:
        volume: `(X, Y, Z)`.
        axes: slice axes of the two stacks that the volume is made of.
        spacings: of the three axes, in mm.
        slice_spacing: of the stacks, in mm.
    """
    planes = volume.double().movedim(axes, (-2, -1))
    planes = planes - planes.mean((-2, -1), keepdim=True)
    counts = planes.shape[-2:]
    first, second = (torch.hann_window(count, periodic=False, dtype=planes.dtype) for count in counts)
    power = torch.fft.rfft2(planes * first[:, None] * second).abs().square().mean(0)
    down = torch.fft.fftfreq(counts[0], spacings[axes[0]], dtype=planes.dtype)[:, None]
    along = torch.fft.rfftfreq(counts[1], spacings[axes[1]], dtype=planes.dtype)
    inside = torch.hypot(down, along)
    inside = (inside > 1 / (2 * slice_spacing)) & (inside < 1 / (2 * max(spacings[a] for a in axes)))
    off = (torch.rad2deg(torch.atan2(down.abs(), along)) - 45).abs()  # degrees from the diagonal
    return (power[inside & (off > 30)].mean() / power[inside & (off < 15)].mean()).item()
