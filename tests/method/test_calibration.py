"""Laws of the calibration of error maps."""

import numpy as np
import pytest

from scripts.errors import InputError
from scripts.method.calibration import LEVELS, Calibration, confidence_level, person, quantiles


def people(*scales, count=4000):
    """Absolute normal scores of people, times their scales, at one thickness each way."""
    rng = np.random.default_rng(0)
    return {person(f"person {k}"): [quantiles(np.abs(rng.normal(size=count)) * s)] * 2 for k, s in enumerate(scales)}


def calibration(*scales):
    table = people(*scales)
    return Calibration([3.0, 5.0], table, table, (30.0, 0.4, 1.0))


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_the_factor_covers_what_it_says_of_a_person_alike(confidence):
    factor = calibration(1.0, 1.0, 1.0).factor(4.0, confidence, own=True)
    fresh = np.abs(np.random.default_rng(9).normal(size=100_000))
    assert np.mean(fresh <= factor) == pytest.approx(confidence, abs=0.015)


def test_each_person_counts_the_same():
    factor = calibration(1.0, 3.0).factor(3.0, 0.9, own=True)
    inside = [np.mean(np.abs(np.random.default_rng(5).normal(size=100_000)) * s <= factor) for s in (1.0, 3.0)]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.01)


def test_a_person_left_out_does_not_count():
    both = calibration(1.0, 3.0)
    assert both.factor(3.0, 0.9, True, without="person 1") == pytest.approx(calibration(1.0).factor(3.0, 0.9, True))


def test_wider_for_more_confidence_and_between_two_thicknesses():
    table = {"a": [[level for level in LEVELS], [2 * level for level in LEVELS]]}
    found = Calibration([3.0, 5.0], table, table, (30.0, 0.4, 1.0))
    factors = [found.factor(4.0, confidence, own=False) for confidence in (0.5, 0.7, 0.9, 0.99)]
    assert factors == sorted(factors)
    assert found.factor(2.0, 0.9, True) == pytest.approx(0.9)
    assert 0.9 < found.factor(4.0, 0.9, True) < 1.8 == pytest.approx(found.factor(9.0, 0.9, True))


def test_a_large_regions_mean_is_surer_than_a_voxel_but_less_sure_than_white_noise_would_be():
    regions = calibration(1.0)
    assert 1.0 > regions.region_factor(100.0) > regions.region_factor(10_000.0) > 10_000.0**-0.5


@pytest.mark.parametrize("value", [0, 0.4, 0.999, 1, 90, "much", None, True, float("nan")])
def test_confidence_that_is_none(value):
    with pytest.raises(InputError, match=r"confidence is .*: expected a number from 0\.5 to 0\.99\. Set --confidence"):
        confidence_level(value)


def test_broken_tables_are_refused():
    with pytest.raises(InputError, match="quantiles of a are not 1 x 12"):
        Calibration([3.0], {"a": [[1.0, 2.0]]}, {"a": [[1.0, 2.0]]}, (1.0, 0.4, 1.0))
    with pytest.raises(InputError, match="no person"):
        Calibration([3.0], {}, {}, (1.0, 0.4, 1.0))
