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
    at_rest(telephone)
    telephone.tap(x, y)
    return place(telephone)


def test_a_swipe_scrolls_planes_or_the_page_a_tap_sets_the_crosshair_and_two_fingers_enlarge(telephone):
    """What lies in the middle of two fingers stays there, and what lies elsewhere moves away from it."""
    left, top, width, height = telephone.evaluate(
        "(() => { const canvas = document.querySelector('.panels canvas'); canvas.scrollIntoView({block: 'center'});"
        "const box = canvas.getBoundingClientRect(); return [box.left, box.top, box.width, box.height]; })()"
    )
    middle, before = (left + 0.5 * width, top + 0.5 * height), place(telephone)
    telephone.drag((middle, (left + 0.9 * width, middle[1])))
    np.testing.assert_array_equal((place(telephone) - before) > 0, [False, False, True])
    telephone.drag((middle, (left + 0.1 * width, middle[1])))
    np.testing.assert_array_equal(place(telephone), before)
    x, y = left + 0.4 * width, top + 0.45 * height
    there = tapped(telephone, x, y)
    assert (there - before)[0] > 2 and (there - before)[1] > 1 and (there - before)[2] == 0, (
        "to the right and the front"
    )
    aside = tapped(telephone, x + 60, y)
    apart = [[(x - by, y), (x + by, y)] for by in (20, 60)]
    telephone.drag(*zip(*apart))
    np.testing.assert_allclose(tapped(telephone, x, y), there, atol=1.01)
    ratio = (tapped(telephone, x + 60, y) - there)[0] / (aside - there)[0]
    assert ratio == pytest.approx(1 / 3, abs=0.1) and telephone.evaluate("visualViewport.scale") == 1
    scrolled = telephone.evaluate("scrollY")
    telephone.evaluate("document.querySelector('[name=reset]').click()")
    telephone.drag((middle, (middle[0], top + 0.1 * height)))
    assert at_rest(telephone) > scrolled + 20, "upwards"
