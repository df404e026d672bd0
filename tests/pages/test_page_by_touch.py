"""The page on a telephone, under fingers that chromium takes for real ones."""

import re

import numpy as np
import pytest

from tests.browser import Browser, needs_chromium
from tests.pages.test_page import page, slices_and_truth

pytestmark = [needs_chromium, pytest.mark.slow]
READY = "document.getElementById('viewer')?.dataset.ready"


@pytest.fixture(scope="module")
def telephone(phantom, tmp_path_factory):
    """A narrow screen with the page, at its first canvas, and what a person sees of it."""
    folder = tmp_path_factory.mktemp("touch")
    page(folder / "a.html", *slices_and_truth(phantom))
    with Browser(folder, 400, 800, ratio=2, touch=True) as browser:
        browser.open(folder / "a.html", READY)
        yield browser


@pytest.fixture
def canvas(telephone):
    """Left, top, width and height of the first canvas, in the middle of the screen, after a reset."""
    at_rest(telephone)
    return telephone.evaluate(
        "(() => { const canvas = document.querySelector('.panels canvas');"
        "document.querySelector('[name=reset]').click(); canvas.scrollIntoView({block: 'center'});"
        "const box = canvas.getBoundingClientRect(); return [box.left, box.top, box.width, box.height]; })()"
    )


def at_rest(telephone):
    """How far down the page is, once it glides no more: a tap on a page that glides stops it, and does nothing else."""
    return telephone.evaluate(
        "new Promise(done => { let top; const look = () =>"
        "{ if (top === scrollY) done(top); else { top = scrollY; setTimeout(look, 500); } }; look(); })"
    )


def place(telephone):
    """Where the crosshair is, mm in RAS."""
    text = telephone.evaluate("document.querySelector('.place').textContent").split(" mm:")[0]
    return np.array([float(mm) * (1 if side in "RAS" else -1) for side, mm in re.findall(r"(\w) ([\d.]+)", text)])


def tapped(telephone, x, y):
    telephone.tap(x, y)
    return place(telephone)


def at(canvas, across, down):
    left, top, width, height = canvas
    return left + across * width, top + down * height


def test_a_sideways_swipe_scrolls_the_planes_and_an_upward_one_the_page(telephone, canvas):
    middle, before = at(canvas, 0.5, 0.5), place(telephone)
    telephone.drag((middle, at(canvas, 0.9, 0.5)))
    np.testing.assert_array_equal((place(telephone) - before) > 0, [False, False, True])
    telephone.drag((middle, at(canvas, 0.1, 0.5)))
    np.testing.assert_array_equal(place(telephone), before)
    top = telephone.evaluate("scrollY")
    telephone.drag((middle, at(canvas, 0.5, 0.1)))
    assert at_rest(telephone) > top + 20
    np.testing.assert_array_equal(place(telephone), before)


def test_a_tap_sets_the_crosshair(telephone, canvas):
    before = place(telephone)
    moved = tapped(telephone, *at(canvas, 0.3, 0.4)) - before  # to the patient's right and to the front
    assert moved[0] > 5 and moved[1] > 2 and moved[2] == 0


@pytest.mark.parametrize("upright", [False, True])
def test_two_fingers_enlarge_what_is_between_them(telephone, canvas, upright):
    """Along a line or across it; what lies in their middle stays there, and what lies elsewhere moves away from it."""
    x, y = at(canvas, 0.4, 0.45)
    there, aside = tapped(telephone, x, y), tapped(telephone, x + 60, y)

    def apart(by):
        return [(x, y - by), (x, y + by)] if upright else [(x - by, y), (x + by, y)]

    telephone.drag(*zip(apart(20), apart(60)))
    np.testing.assert_allclose(tapped(telephone, x, y), there, atol=1.01)
    ratio = (tapped(telephone, x + 60, y) - there)[0] / (aside - there)[0]
    assert ratio == pytest.approx(1 / 3, abs=0.1) and telephone.evaluate("visualViewport.scale") == 1
    telephone.drag(*zip(apart(60), apart(20)))
    np.testing.assert_allclose(tapped(telephone, x + 60, y), aside, atol=1.01)
