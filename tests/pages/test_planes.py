"""Planes hang as radiologists hang them, whatever the storage order, at one window."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from scripts.pages import planes
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
