"""Laws of the test on a scan's own slices; methods are splines, whose errors are known without it."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from scripts.method.calibration import Foretelling
from scripts.rebuild.acquired_again import below_border, middle_slices
from scripts.rebuild.reduced_resolution import NO_GAIN, check
from scripts.rebuild.spots import CONTRASTS, SIZES
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from scripts.stack.noise import Noise
from scripts.stack.profile import acquire
from scripts.stack.slices import Slices
from tests.volumes import smooth_head

SHAPE = (64, 72, 12)


def scan_of(array, thickness=5.0, edges=(1.0, 1.0), target=1.0):
    acquisition = Acquisition.stack(2, array.shape[2], spacing=thickness, thickness=thickness, target=target)
    return Slices(array, acquisition, torch.diag(torch.tensor([*edges, thickness, 1.0], dtype=torch.float64)))


def quiet(scan):
    """The slices without noise, in pixels that were acquired."""
    return scan.like(scan.array, tissue_range=scan.tissue_range, head=scan.head, missing={}, noise=Noise(0.0))


def by(method):
    return lambda slices: interpolate(slices.array, slices.acquisition, method)


@pytest.fixture(scope="module")
def scan():
    return scan_of(smooth_head(SHAPE))


def test_the_spline_gains_nothing_over_itself_and_linear_interpolation_loses(scan):
    alike, worse = check(scan, by("cubic")), check(scan, by("linear"))
    assert alike.gain == pytest.approx(0, abs=1e-6) and worse.gain < -0.1
    assert all(one.kept == pytest.approx(one.spline, abs=1e-4) for one in alike.spots)
    assert np.mean([one.kept for one in worse.spots]) < np.mean([one.spline for one in worse.spots]) - 0.02


def test_its_error_is_that_of_the_slices_acquired_again(scan):
    """Without noise, along both axes, by the slice model itself."""
    still = quiet(scan)
    errors = []
    for axis, index in itertools.product((0, 1), middle_slices(scan, 2)):
        one = Acquisition.of_truth(axis, SHAPE[axis], edge=1.0, thickness=5.0)
        plane, deep = scan.array[..., index, None], below_border(scan)
        errors.append(
            (interpolate(acquire(plane, one), one, "cubic") - plane)[deep[..., index, None]].double().square()
        )
    expected = 10 * np.log10(scan.tissue_range.extent**2 / torch.cat(errors).mean())
    assert check(still, by("linear")).spline == pytest.approx(float(expected), abs=0.01)


@pytest.mark.parametrize("turned", ["flipped", "transposed"])
def test_storage_changes_nothing(scan, turned):
    first = check(scan, by("linear"))
    assert list(first.slices) == middle_slices(scan, 2)
    affine = scan.affine.clone()
    if turned == "flipped":
        affine[:, 3] += affine[:, 2] * (SHAPE[2] - 1)
        affine[:, 2] *= -1
        other = check(replace(scan, array=scan.array.flip(2), affine=affine), by("linear"))
        assert other.slices == tuple(SHAPE[2] - 1 - k for k in reversed(first.slices))
    else:
        a = replace(scan.acquisition, slice_axis=0)
        other = check(Slices(scan.array.permute(2, 0, 1), a, affine[:, [2, 0, 1, 3]]), by("linear"))
        assert other.slices == first.slices
    assert (other.spline, other.rebuilt) == pytest.approx((first.spline, first.rebuilt), abs=1e-5)


def test_what_cannot_be_tested_has_no_test(scan):
    assert check(scan_of(torch.ones(20, 20, 8)), by("cubic")) is None
    assert check(scan_of(smooth_head((14, 14, 8))), by("cubic")) is None
    assert check(scan_of(smooth_head((40, 40, 40)), thickness=1.0), by("cubic")) is None


def test_it_foretells_and_says_when_nothing_is_gained(scan):
    line = Foretelling(2.5, 2.0, -1.5, 0.25, 0.3)
    found = check(scan, by("linear"), line)
    thickness = scan.acquisition.slice_thickness / scan.acquisition.target_spacing
    assert found.foretold == pytest.approx((2.75 + 2 * found.gain - 1.5 * np.log(thickness), 0.3))
    assert NO_GAIN in str(found) and f"foretold through its slices {found.foretold[0]:.1f} ± 0.3 dB" in str(found)
    gains = replace(found, rebuilt=found.spline + 0.7)
    for one, is_worth in ((gains, found.foretold[0] >= 0.5), (replace(gains, foretold=None), True)):
        assert (NO_GAIN not in str(one)) == is_worth
    assert NO_GAIN in str(replace(gains, foretold=(0.4, 0.3))) and NO_GAIN not in str(
        replace(gains, foretold=(0.6, 0.3))
    )
    assert NO_GAIN in str(replace(found, foretold=(0.6, 0.3))), "a loss within the slices, whatever is foretold"
    turned, affine = scan.array.permute(2, 0, 1), np.asarray(scan.affine)[:, [2, 0, 1, 3]]
    upright = replace(scan.acquisition, slice_axis=0)
    coronal = affine[[0, 2, 1, 3]]  # another direction of the same slices
    stored, tilted = (check(Slices(turned, upright, one), by("linear"), line, spots=False) for one in (affine, coronal))
    assert stored.foretold == pytest.approx(found.foretold, abs=1e-4), "however it is stored"
    assert tilted.foretold[0] - 2 * tilted.gain == pytest.approx(found.foretold[0] - 2 * found.gain - 0.25, abs=1e-4)


def test_larger_spots_keep_more():
    scan = quiet(scan_of(smooth_head((120, 120, 12))))
    found = check(scan, by("cubic")).spots
    assert {one.contrast for one in found} == set(CONTRASTS)
    small, large = (np.mean([one.spline for one in found if one.size == size]) for size in (min(SIZES), max(SIZES)))
    assert 0 < small < 0.5 < large < 1.1
