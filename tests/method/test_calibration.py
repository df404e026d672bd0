"""Laws of the calibration of error maps."""

from dataclasses import replace

import numpy as np
import pytest

from scripts.errors import InputError
from scripts.method.calibration import (
    QUIET,
    TYPICAL,
    Calibration,
    confidence_level,
    over_people,
    quantiles,
    scan_scale,
)


def people(*scales, count=4000):
    """Absolute normal scores of people, times their scales, at one thickness each way."""
    rng = np.random.default_rng(0)
    return [[quantiles(np.abs(rng.normal(size=count)) * s)] * 2 for s in scales]


def calibration(*scales):
    return Calibration([3.0, 5.0], people(*scales), (0.7, 0.1))


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_the_factor_covers_what_it_says_of_a_person_alike(confidence):
    factor = calibration(1.0, 1.0, 1.0).factor(4.0, confidence)
    fresh = np.abs(np.random.default_rng(9).normal(size=100_000))
    assert np.mean(fresh <= factor) == pytest.approx(confidence, abs=0.015)


def test_intervals_hold_their_word_in_nine_of_ten_further_people():
    """Whose errors differ by a factor; of few people the largest counts, of many nearly the 90th of a hundred."""
    chance, held = np.random.default_rng(0), []
    for _ in range(400):
        scales = np.exp(0.3 * chance.normal(size=20))
        held.append(scales[19] <= over_people(scales[:19]))
    assert np.mean(held) == pytest.approx(0.9, abs=0.04)
    assert calibration(1.0, 3.0, 2.0).factor(3.0, 0.9) == pytest.approx(calibration(3.0).factor(3.0, 0.9), rel=0.05)


@pytest.mark.parametrize(("count", "chosen"), [(7, 7), (10, 10), (20, 19)])
def test_of_people_in_order_the_one_of_split_conformal_calibration_counts(count, chosen):
    assert over_people(range(1, count + 1)) == chosen


def test_a_guide_makes_intervals_narrower_by_what_was_measured_at_most():
    found = replace(calibration(1.0), guided=(0.8, 0.6))
    narrowest = [found.narrowest(mm) for mm in (2.0, 3.0, 15**0.5, 5.0, 9.0)]
    assert narrowest == pytest.approx([0.8, 0.8, 0.48**0.5, 0.6, 0.6])
    assert calibration(1.0).narrowest(4.0) == 1, "a card without guides"
    with pytest.raises(InputError, match="guided is"):
        replace(found, guided=(0.8,))


def test_thicknesses_beyond_the_calibrated_ones_are_named():
    found = Calibration([3.0, 4.0, 5.0], [3 * people(1.0)[0][:1]], (0.7, 0.1))
    assert [bool(found.outside(mm)) for mm in (2.5, 2.8, 4.0, 5.4, 5.6)] == [True, False, False, False, True]
    assert "slices of 7 mm are beyond the 3 to 5 mm" in found.outside(7.0)


def test_gaps_and_noise_make_a_scan_less_sure():
    exponents = (0.7, 0.1)
    assert scan_scale(exponents, 1.0, TYPICAL) == 1.0
    assert scan_scale(exponents, 1.25, TYPICAL) == pytest.approx(1.25**0.7)
    assert scan_scale(exponents, 1.0, 4 * TYPICAL) == pytest.approx(4**0.1)
    assert scan_scale(exponents, 1.0, 0.0) == scan_scale(exponents, 1.0, QUIET) == 1, "quiet slices are typical ones"
    assert scan_scale(exponents, 1.0, 2 * QUIET) == pytest.approx(2**0.1), "more than that counts"


@pytest.mark.parametrize("value", [0.4, 0.999, "much", True, float("nan")])
def test_confidence_that_is_none(value):
    with pytest.raises(InputError, match=r"confidence is .*: expected a number from 0\.5 to 0\.99\. Set --confidence"):
        confidence_level(value)


def test_broken_tables_are_refused():
    with pytest.raises(InputError, match=r"thicknesses \[5.0, 3.0\] do not ascend"):
        Calibration([5.0, 3.0], people(1.0), (0.7, 0.1))
    with pytest.raises(InputError, match="quantiles of person 1 are not 1 x 12"):
        Calibration([3.0], [[[1.0, 2.0]]], (0.7, 0.1))
    with pytest.raises(InputError, match="no person"):
        Calibration([3.0], [], (0.7, 0.1))
