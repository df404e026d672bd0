"""Laws of the calibration of error maps."""

import numpy as np
import pytest
import torch

from scripts.errors import InputError
from scripts.method.calibration import (
    LEVELS,
    QUIET,
    TYPICAL,
    Calibration,
    box_means,
    confidence_level,
    person,
    quantiles,
    scan_scale,
)


def people(*scales, count=4000):
    """Absolute normal scores of people, times their scales, at one thickness each way."""
    rng = np.random.default_rng(0)
    return {person(f"person {k}"): [quantiles(np.abs(rng.normal(size=count)) * s)] * 2 for k, s in enumerate(scales)}


def calibration(*scales):
    return Calibration([3.0, 5.0], people(*scales), (0.7, 0.1), (30.0, 0.4, 1.0))


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_the_factor_covers_what_it_says_of_a_person_alike(confidence):
    factor = calibration(1.0, 1.0, 1.0).factor(4.0, confidence)
    fresh = np.abs(np.random.default_rng(9).normal(size=100_000))
    assert np.mean(fresh <= factor) == pytest.approx(confidence, abs=0.015)


def test_each_person_counts_the_same():
    factor = calibration(1.0, 3.0).factor(3.0, 0.9)
    inside = [np.mean(np.abs(np.random.default_rng(5).normal(size=100_000)) * s <= factor) for s in (1.0, 3.0)]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.01)


def test_a_person_left_out_does_not_count():
    both = calibration(1.0, 3.0)
    assert both.factor(3.0, 0.9, without="person 1") == pytest.approx(calibration(1.0).factor(3.0, 0.9))


def test_wider_for_more_confidence_and_between_two_thicknesses():
    table = {"a": [[level for level in LEVELS], [2 * level for level in LEVELS]]}
    found = Calibration([3.0, 5.0], table, (0.7, 0.1), (30.0, 0.4, 1.0))
    factors = [found.factor(4.0, confidence) for confidence in (0.5, 0.7, 0.9, 0.99)]
    assert factors == sorted(factors)
    assert found.factor(2.0, 0.9) == pytest.approx(0.9)
    assert 0.9 < found.factor(4.0, 0.9) < 1.8 == pytest.approx(found.factor(9.0, 0.9))


def test_thicknesses_that_do_not_ascend_are_refused():
    with pytest.raises(InputError, match=r"thicknesses \[5.0, 3.0\] do not ascend"):
        Calibration([5.0, 3.0], people(1.0), (0.7, 0.1), (30.0, 0.4, 1.0))


def test_gaps_and_noise_make_a_scan_less_sure():
    exponents = (0.7, 0.1)
    assert scan_scale(exponents, 1.0, TYPICAL) == 1.0
    assert scan_scale(exponents, 1.25, TYPICAL) == pytest.approx(1.25**0.7)
    assert scan_scale(exponents, 1.0, 4 * TYPICAL) == pytest.approx(4**0.1)
    assert scan_scale(exponents, 1.0, 0.0) == scan_scale(exponents, 1.0, QUIET) < 1


def test_means_over_boxes_of_the_head_alone():
    volume = torch.arange(64.0).reshape(4, 4, 4)
    head = torch.ones(4, 4, 4, dtype=torch.bool)
    head[0, 0, 0] = False
    means = box_means(volume, head, 2)
    assert len(means) == 7 and volume[:2, :2, :2].mean().item() not in means
    assert volume[2:, 2:, 2:].mean().item() in means
    assert len(box_means(volume, head, 8)) == 0


def test_a_large_regions_mean_is_surer_than_a_voxel_but_less_sure_than_white_noise_would_be():
    regions = calibration(1.0)
    assert 1.0 > regions.region_factor(100.0) > regions.region_factor(10_000.0) > 10_000.0**-0.5


@pytest.mark.parametrize("value", [0, 0.4, 0.999, 1, 90, "much", None, True, float("nan")])
def test_confidence_that_is_none(value):
    with pytest.raises(InputError, match=r"confidence is .*: expected a number from 0\.5 to 0\.99\. Set --confidence"):
        confidence_level(value)


def test_broken_tables_are_refused():
    with pytest.raises(InputError, match="quantiles of a are not 1 x 12"):
        Calibration([3.0], {"a": [[1.0, 2.0]]}, (0.7, 0.1), (1.0, 0.4, 1.0))
    with pytest.raises(InputError, match="no person"):
        Calibration([3.0], {}, (0.7, 0.1), (1.0, 0.4, 1.0))
