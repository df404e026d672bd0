"""The networks plane by plane, window by window, step by step: the plain oracle of `DriftInferer`."""

import torch
from monai.data.utils import compute_importance_map

from scripts.stack.intensity import intensity_range
from tests.stack.test_grid import nearest_by_loop


def window_starts(size, roi, overlap):
    """First pixels of windows at a fixed distance, the last one moved back to end with the image."""
    if size == roi:
        return [0]
    step, starts = int(roi * (1 - overlap)), [0]
    while starts[-1] + roi < size:
        starts.append(min(starts[-1] + step, size - roi))
    return starts


@torch.no_grad()
def plane_by_loop(plane, drift, thickness, roi, overlap, steps, factor):
    """`(H, W)` in and out, the slice axis first."""
    height, width = plane.shape
    tall, wide = (min(roi, max(16, -(-n // 8) * 8)) for n in (height, width))  # of shorter sides: multiples of 8
    top, left = max(tall - height, 0) // 2, max(wide - width, 0) // 2
    rows = (torch.arange(max(height, tall)) - top).clamp(0, height - 1)
    columns = (torch.arange(max(width, wide)) - left).clamp(0, width - 1)
    padded = plane[rows][:, columns]
    total, weight = torch.zeros_like(padded), torch.zeros_like(padded)
    weights = compute_importance_map((tall, wide), mode="gaussian", sigma_scale=0.125)
    for i in window_starts(padded.shape[0], tall, overlap):
        for j in window_starts(padded.shape[1], wide, overlap):
            x = drift.apn(padded[i : i + tall, j : j + wide][None, None], thickness)
            for n in range(steps):
                x = x + factor * drift.velocity(x, thickness, torch.tensor([n / steps])) / steps
            total[i : i + tall, j : j + wide] += weights * x[0, 0]
            weight[i : i + tall, j : j + wide] += weights
    return (total / weight)[top : top + height, left : left + width]


def sharpened_by_loop(image, acquisition, drift, other, roi, overlap, steps, factor):
    """`(X, Y, Z)` on the fine grid in [-1, 1], in the planes along the slice axis and another one."""
    a = acquisition
    thickness, normal = torch.tensor([[a.slice_thickness, a.target_spacing]]), 3 - a.slice_axis - other
    result = torch.zeros_like(image)
    margin = 16 if (image < -0.9).float().mean() < 0.05 else 0  # pixels of air beside planes that have none
    for k in range(image.shape[normal]):
        plane = image.select(normal, k)
        turned = a.slice_axis > other
        plane = plane.T if turned else plane
        air = torch.full((len(plane), margin), -1.0)
        sharp = plane_by_loop(torch.cat([air, plane, air], 1), drift, thickness, roi, overlap, steps, factor)
        sharp = sharp[:, margin : margin + plane.shape[1]]
        result.select(normal, k).copy_(sharp.T if turned else sharp)
    return result


def in_unit(measured, acquisition):
    """Slices without air in [-1, 1] on the fine grid, and their range."""
    a = acquisition
    index = nearest_by_loop(a.fine_count, a.target_spacing, a.slice_count, a.slice_spacing, a.shift)
    low, high, _ = intensity_range(measured)
    fine = measured.index_select(a.slice_axis, torch.from_numpy(index))
    return 2 * (fine - low) / (high - low) - 1, low, high


def weighed_by_loop(families, axes, spacing, slice_spacing):
    """Two estimates of a volume, weighed frequency by frequency; cosines from their definition."""
    apart, bases, squares = (families[0] - families[1]).double(), [], []
    for axis, edge in zip(axes, spacing):
        n = apart.shape[axis]
        k, x = torch.arange(n).double(), torch.arange(n).double() + 0.5
        basis = torch.cos(torch.pi * k[:, None] * x / n) * (2 / n) ** 0.5
        basis[0] /= 2**0.5
        bases.append(basis)
        squares.append((k / (2 * n * edge)) ** 2)
        apart = torch.tensordot(basis, apart, ([1], [axis])).movedim(0, axis)
    for i in range(apart.shape[axes[0]]):
        for j in range(apart.shape[axes[1]]):
            f, g, h = squares[0][i], squares[1][j], 1 / (2 * slice_spacing) ** 2
            apart.select(axes[0], i).select(axes[1] - (axes[1] > axes[0]), j).mul_((f - g) / 2 / (f + g + h))
    for axis, basis in zip(axes, bases):
        apart = torch.tensordot(basis.T, apart, ([1], [axis])).movedim(0, axis)
    return ((families[0] + families[1]) / 2 + apart).float()


def rebuilt_by_loop(measured, acquisition, drift, others, roi=16, overlap=0.25, steps=2, factor=1.0):
    """`(X, Y, Z)` slices of noise without air in RAS+ order -> the networks' own result, in the scan's units."""
    unit, low, high = in_unit(measured, acquisition)
    planes = [sharpened_by_loop(unit, acquisition, drift, other, roi, overlap, steps, factor) for other in others]
    if len(planes) == 2:
        planes = [weighed_by_loop(planes, others, (1.0, 1.0), acquisition.slice_spacing)]
    return ((planes[0] + 1) / 2 * (high - low) + low).clamp(min=0)
