"""Laws of the drawn planes and of the voxel sizes that they are resampled to."""

import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.train.random_planes import RandPlaned, RandResampled

SHAPE = (10, 12, 14)
SPACING = (0.8, 0.9, 1.1)


def coded(shape=SHAPE, spacing=SPACING):
    """A volume whose value at (i, j, k) is 10000 i + 100 j + k, so that each value tells its place."""
    i, j, k = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij")
    volume = torch.from_numpy((10000 * i + 100 * j + k)[None].astype(np.float32))
    return MetaTensor(volume, affine=torch.from_numpy(np.diag([*spacing, 1.0])))


def place(plane):
    """The index (i, j, k) of each pixel of a coded plane, `(3, H, W)`."""
    code = plane[0].numpy().astype(int)
    return np.stack([code // 10000, code // 100 % 100, code % 100])


def axis_of(places, direction):
    """The one array axis along which a coded plane moves in this direction, 0 for rows and 1 for columns."""
    step = np.take(places, 1, axis=1 + direction) - np.take(places, 0, axis=1 + direction)
    (axis,) = np.flatnonzero(step[:, 0])
    assert (step[axis] == 1).all(), "one voxel at a time, in the volume's own direction"
    return int(axis)


def planes(sharp_axes, count=60, seed=0):
    transform = RandPlaned("label")
    transform.set_random_state(seed)
    return [transform({"label": coded(), "sharp_axes": sharp_axes}) for _ in range(count)]


# Planes


@pytest.mark.parametrize("sharp_axes", [(0, 1, 2), (0, 1), (2, 0), (1, 2)])
def test_planes_are_those_of_sharp_axes_whose_rows_are_the_slice_axis_and_whose_spacing_follows_them(sharp_axes):
    volume = coded().as_tensor()[0].numpy()
    for item in planes(sharp_axes):
        places = place(item["label"])
        axis, other = axis_of(places, 0), axis_of(places, 1)
        assert axis != other and {axis, other} <= set(sharp_axes)
        assert item["label"].shape == (1, SHAPE[axis], SHAPE[other])
        np.testing.assert_array_equal(volume[tuple(places)], item["label"][0].numpy())
        assert len(np.unique(places[3 - axis - other])) == 1
        assert item["spacing"] == pytest.approx((SPACING[axis], SPACING[other]), abs=1e-6)
        assert item["plane_spacing"] == pytest.approx(SPACING[3 - axis - other], abs=1e-6)


def test_neighbouring_planes_come_in_order_and_the_last_is_repeated_where_there_are_fewer():
    for count in (3, 9):
        transform, orders = RandPlaned("label", planes=count).set_random_state(0), set()
        for item in (transform({"label": coded(), "sharp_axes": (0, 1, 2)}) for _ in range(30)):
            places = [place(plane[None]) for plane in item["label"]]
            axis, other = axis_of(places[0], 0), axis_of(places[0], 1)
            normal = 3 - axis - other
            index = sorted(drawn := [int(p[normal, 0, 0]) for p in places])
            assert drawn in (index, index[::-1])
            orders.add(drawn[0] <= drawn[-1])
            first = index[0]
            assert len(index) == count and index == [min(first + k, SHAPE[normal] - 1) for k in range(count)]
            assert first <= max(SHAPE[normal] - count, 0)
        assert len(orders) == 2


def test_every_axis_every_plane_and_every_index_is_drawn():
    drawn = [place(item["label"]) for item in planes((0, 1, 2), count=600)]
    orders = {(axis_of(p, 0), axis_of(p, 1)) for p in drawn}
    assert orders == {(a, b) for a in range(3) for b in range(3) if a != b}
    for normal, length in enumerate(SHAPE):
        seen = {int(p[normal, 0, 0]) for p in drawn if {axis_of(p, 0), axis_of(p, 1)} == {0, 1, 2} - {normal}}
        assert seen == set(range(length))


# Voxel sizes


def texture(shape=(40, 36), seed=0):
    """A `(1, H, W)` plane of noise in [0, 1]."""
    return torch.rand(1, *shape, generator=torch.Generator().manual_seed(seed))


RANGES = {"target_range": (0.7, 1.3), "pixel_range": (0.5, 1.3), "size_range": (0.85, 1.15)}


def resampled(count=60, seed=0, spacing=(0.7, 0.7), plane=None, **ranges):
    transform = RandResampled("label", **{**RANGES, **ranges})
    transform.set_random_state(seed)
    plane = texture() if plane is None else plane
    return [transform({"label": plane, "spacing": spacing, "plane_spacing": 1.0}) for _ in range(count)]


@pytest.mark.parametrize("spacing", [(0.7, 0.7), (1.2, 0.6), (1.6, 1.0)])
def test_the_new_spacing_is_that_of_the_new_size(spacing):
    """Size times spacing is the head's extent, to half a pixel."""
    for item in resampled(spacing=spacing, size_range=(1.0, 1.0)):
        for direction in (0, 1):
            new, before = item["spacing"][direction], texture().shape[1 + direction] * spacing[direction]
            assert abs(item["label"].shape[1 + direction] * new - before) <= new / 2 + 1e-6


def test_planes_lie_farther_apart_in_a_larger_head():
    (item,) = resampled(1, size_range=(1.1, 1.1))
    assert item["plane_spacing"] == pytest.approx(1.1)


def test_the_head_grows_by_one_factor_in_both_directions_within_its_range():
    plane, spacing = texture((200, 160)), (0.7, 0.9)
    factors = []
    for item in resampled(spacing=spacing, plane=plane):
        sizes = zip(item["label"].shape[1:], item["spacing"], plane.shape[1:], spacing)
        rows, columns = (new * edge / (old * before) for new, edge, old, before in sizes)
        assert rows == pytest.approx(columns, abs=0.012)  # half a pixel each
        factors.append(rows)
    low, high = RANGES["size_range"]
    assert low - 0.006 <= min(factors) < low + 0.03
    assert high - 0.03 < max(factors) <= high + 0.006


@pytest.mark.parametrize("target_range", [(0.7, 1.3), (0.9, 0.9)])
@pytest.mark.parametrize("native", [0.5, 1.25, 1.6])
@pytest.mark.parametrize("size_range", [(1.0, 1.0), (0.85, 1.15)])
def test_the_target_is_never_finer_than_the_plane(native, target_range, size_range):
    plane = texture((64, 48))
    low, high = target_range
    for item in resampled(spacing=(native, 0.7), target_range=target_range, size_range=size_range, plane=plane):
        target = item["spacing"][0]
        assert item["label"].shape[1] <= plane.shape[1]
        assert target >= max(low, native * size_range[0]) - 1e-6
        assert target <= max(high, native * size_range[1]) + 1e-6


def test_targets_fill_the_range_evenly():
    draws = resampled(600, plane=texture((8, 8)), size_range=(1.0, 1.0))
    targets = torch.tensor([item["spacing"][0] for item in draws])
    counts = torch.histogram(targets, torch.linspace(0.7, 1.3, 5)).hist / len(targets)
    torch.testing.assert_close(counts, torch.full((4,), 0.25), atol=0.06, rtol=0)


def test_half_of_the_pixels_are_square_and_the_others_fill_their_range():
    edges = np.array([item["spacing"] for item in resampled(600, plane=texture((8, 8)))])
    square = edges[:, 0] == edges[:, 1]
    assert square.mean() == pytest.approx(0.5, abs=0.07)
    counts, _ = np.histogram(edges[~square, 1], 4, RANGES["pixel_range"])
    np.testing.assert_allclose(counts / (~square).sum(), 0.25, atol=0.08)


def test_tissue_stays_in_its_place():
    """A plane that holds its pixels' distance from the middle, in mm, holds it on the new grid as well."""
    rows, columns = (torch.arange(n) - (n - 1) / 2 for n in (60, 50))
    plane = 100 + 0.8 * rows[:, None] + 0.6 * columns  # planes are not negative
    for item in resampled(20, spacing=(0.8, 0.6), plane=plane[None], size_range=(1.0, 1.0)):
        height, width = item["label"].shape[1:]
        y, x = (np.arange(n) - (n - 1) / 2 for n in (height, width))
        expected = 100 + item["spacing"][0] * y[:, None] + item["spacing"][1] * x
        inside = np.s_[5:-5, 5:-5]  # bicubic weights reach over the border
        half_a_pixel_each = sum(item["spacing"]) / 2
        assert np.abs(item["label"][0].numpy() - expected)[inside].max() <= half_a_pixel_each


def test_the_edge_of_a_masked_head_stays_hard():
    """No pixel of a new size lies between the brain's intensity and the empty ones around it."""
    brain = torch.zeros(1, 60, 50)
    brain[:, 15:45, 10:40] = 0.5
    for item in resampled(40, plane=brain):
        label = item["label"]
        assert torch.equal(label > 0, label > 0.45)
        assert label.max() < 0.6  # a filter's overshoot at most
        height, width = ((label[0] > 0).any(side).sum().item() for side in (1, 0))
        assert abs(height - 0.5 * label.shape[1]) <= 1 and abs(width - 0.6 * label.shape[2]) <= 1
