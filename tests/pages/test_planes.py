"""Planes hang as radiologists hang them, whatever the storage order, at one window."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from scripts.pages import planes
from scripts.stack.grid import voxel_spacing
from tests.pages.test_page import AXES
from tests.pages.test_viewer import scan, turned


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        ((0, 0, 0), [("L", "R"), ("P", "A"), ("I", "S")]),
        ((0, 0, 10), [("L", "R"), ("P", "A"), ("I", "S")]),
        ((0, 0, 30), [("LP", "RA"), ("PR", "AL"), ("I", "S")]),
        ((-30, 0, 0), [("L", "R"), ("PS", "AI"), ("IP", "SA")]),
    ],
)
def test_sides_are_those_of_the_patient_with_more_letters_where_oblique(degrees, expected):
    measured, _ = scan(turned(np.eye(4), *degrees))
    assert planes.sides(measured.affine.numpy()) == expected


@pytest.mark.parametrize("axes", AXES[::5])
def test_ras_keeps_every_voxel_where_it_is(axes):
    measured, _ = scan(turned(axes, 12, -20, 30))
    array, affine = planes.ras(measured)
    columns = affine[:3, :3] / voxel_spacing(affine)
    assert (columns.diagonal() > 0.7).all()
    for index in np.random.default_rng(0).integers(0, array.shape, (20, 3)):
        place = np.linalg.inv(measured.affine.numpy()) @ affine @ [*index, 1]
        assert array[tuple(index)] == measured[tuple(np.rint(place[:3]).astype(int))]


@pytest.mark.parametrize(("name", "normal", "across", "up"), planes.VIEWS)
def test_the_right_or_front_hangs_on_the_left_and_the_head_on_top(name, normal, across, up):
    """A ramp along each axis: in RAS+ order numbers grow to the right, the front and the top."""
    volume = np.stack(np.meshgrid(np.arange(4), np.arange(5), np.arange(6), indexing="ij"))
    columns, rows = (planes.cut(volume[axis], normal, 2) for axis in (across, up))
    assert (np.diff(columns, axis=1) == -1).all() and (np.diff(rows, axis=0) == -1).all()
    assert (planes.cut(volume[normal], normal, 2) == 2).all()
    assert np.array_equal(planes.cut(torch.from_numpy(volume[across]), normal, 2), columns), "tensors as well"


def test_hot_spots_do_not_darken_the_window():
    volume = torch.from_numpy(np.random.default_rng(0).uniform(0, 1000, (20, 20, 20)).astype(np.float32))
    low, high = planes.window(volume)
    volume[10, 10, 10] = 1e6
    assert planes.window(volume) == pytest.approx((low, high), rel=0.01) and 0 <= low < 10 and 980 < high < 1000


def test_shades_are_clipped_and_kept_by_a_picture():
    shades = planes.shades(np.array([[-5.0, 0.0, 50.0], [100.0, 200.0, 25.0]]), 0, 100)
    assert shades.tolist() == [[0, 0, 0.5], [1, 1, 0.25]]
    content = base64.b64decode(planes.png(shades).removeprefix("data:image/png;base64,"))
    assert np.asarray(Image.open(io.BytesIO(content))).tolist() == [[0, 0, 128], [255, 255, 64]]
    assert not planes.shades(np.zeros((2, 2)), 7, 7).any(), "a constant scan has no window"
