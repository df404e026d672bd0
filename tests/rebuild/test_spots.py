"""Laws of the spots that are drawn into slices."""

import numpy as np
import pytest

from scripts.rebuild.acquired_again import AcquiredAgain, below_border
from scripts.rebuild.spots import SIZES, places_of_spots, spot
from tests.rebuild.test_reduced_resolution import quiet, scan_of
from tests.volumes import smooth_head


def test_spots_are_balls_far_apart_in_flat_tissue():
    scan = quiet(scan_of(smooth_head((120, 120, 12))))
    again = AcquiredAgain.of(scan, below_border(scan), 6, 0)
    places = np.array(list(places_of_spots(again, scan.tissue_range.extent)))
    apart = np.linalg.norm(places[:, None] - places, axis=2)[~np.eye(len(places), dtype=bool)]
    assert len(places) > 3 and apart.min() > max(SIZES) + 10 and again.head[tuple(places.T)].all()
    volume = float(spot(again, tuple(places[0]), 5.0).sum())
    assert volume == pytest.approx(np.pi * 5**3 / 6 * 1.0, rel=0.1)
