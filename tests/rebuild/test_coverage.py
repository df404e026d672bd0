"""Laws of the part of a head that a guide saw."""

import numpy as np
import pytest
import torch

from scripts.rebuild.coverage import ENOUGH, FEW, Coverage
from tests.rebuild.test_guide import TURNS, centred

SHAPE = (41, 37, 33)


def ball():
    """A head of radius 14 in the middle of a grid."""
    places = np.indices(SHAPE) - (np.array(SHAPE).reshape(3, 1, 1, 1) - 1) / 2
    return torch.from_numpy(np.linalg.norm(places, axis=0) < 14), places


@pytest.mark.parametrize("turn", TURNS.values(), ids=TURNS)
def test_borders_lie_where_the_field_of_view_ends_however_the_grid_is_stored(turn):
    """The grid of a scan has voxels of 2 mm; the guide saw x > -5.3 and z < 8.7 mm."""
    head, places = ball()
    affine = centred(2 * turn, SHAPE)
    world = np.einsum("ij,j...->i...", affine[:3, :3], places)
    seen = torch.from_numpy((world[0] > -5.3) & (world[2] < 8.7))
    found = Coverage.of(head, seen, torch.from_numpy(affine))
    assert found.share == pytest.approx(float((head & seen).sum() / head.sum()))
    assert set(found.borders) == {"L", "S"}
    assert found.borders["L"][0] == pytest.approx(-5, abs=1.1) and found.borders["S"][2] == pytest.approx(9, abs=1.1)
    np.testing.assert_allclose(found.borders["L"][1:], 0, atol=0.1)


def test_a_guide_that_saw_all_of_the_head_has_no_border_and_no_warning():
    """Also if it saw no air beside it, or lacks less than one in fifty of the head."""
    head, places = ball()
    affine = torch.from_numpy(centred(np.eye(3), SHAPE))
    for seen in (torch.ones_like(head), head, torch.from_numpy(places[1] < 12.5)):
        found = Coverage.of(head, seen, affine)
        assert found.share > 1 - FEW and not found.borders and not found.warning("a guide")
    nothing = Coverage.of(head, torch.zeros_like(head), affine)
    assert nothing == Coverage(0.0) and "0%" in nothing.warning("a guide")


@pytest.mark.parametrize(("planes", "beyond"), [(9, False), (11, True)])
def test_a_border_has_more_than_a_fiftieth_of_the_head_beyond_it(planes, beyond):
    """A box of 500 planes, of which a guide lacks 1.8 or 2.2 %."""
    head, affine = torch.ones(500, 4, 4, dtype=torch.bool), torch.from_numpy(centred(np.eye(3), (500, 4, 4)))
    seen = torch.arange(500).reshape(-1, 1, 1).expand(head.shape) >= planes
    assert set(Coverage.of(head, seen, affine).borders) == ({"L"} if beyond else set())


@pytest.mark.parametrize(("share", "said"), [(0.89, True), (0.91, False)])
def test_a_guide_that_saw_less_than_nine_tenths_of_the_head_is_told(share, said):
    assert bool(Coverage(share).warning("a guide")) == said


def test_half_a_head_has_one_border_whatever_lies_across_it():
    """A cut along one axis leaves half of each plane along the others."""
    head, places = ball()
    affine = torch.from_numpy(centred(np.eye(3), SHAPE))
    for edge in (-2.5, 0.5, 3.5):
        for tilt in (0, 0.2):
            seen = torch.from_numpy(places[0] + tilt * places[1] < edge)
            assert set(Coverage.of(head, seen, affine).borders) == {"R"}
    askew = Coverage.of(head, torch.from_numpy(places[0] + places[1] < 0), affine)
    assert 0.45 < askew.share < 0.55 and not askew.borders, "no axis is its border's"


def test_the_warning_says_what_was_seen_and_where_it_ends():
    little = Coverage(0.648, {"L": (-12.3, 1.0, 2.0), "S": (0.0, 0.0, -4.0)})
    assert little.warning("T1w.nii") == (
        "the guide T1w.nii saw 65% of the head: it ends at L 12.3 mm, toward S it ends at I 4.0 mm. The rest is as "
        "sharp as without a guide."
    )
    assert Coverage(0.5).warning("it") == "the guide it saw 50% of the head. The rest is as sharp as without a guide."
    assert not Coverage(ENOUGH).warning("it") and Coverage(ENOUGH - 0.01).warning("it")
