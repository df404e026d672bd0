"""Laws of the test on a scan's own slices; methods are splines, whose errors are known without it."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import ndimage

from scripts.method.calibration import Foretelling
from scripts.rebuild.reduced_resolution import (
    CONTRASTS,
    NO_GAIN,
    PLANES,
    SIZES,
    Again,
    as_acquired,
    below_border,
    check,
    middle_slices,
    places_of_spots,
    spot,
)
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from scripts.stack.noise import Noise, with_noise
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


@pytest.mark.parametrize("width", [1.0, 1.6])
def test_the_noise_of_the_measured_slice_is_no_error(width):
    """The error against the noisy slice, less its noise, is that against the slice without noise."""
    clean = scan_of(smooth_head((112, 120, 12)))
    noise = Noise(0.04 * clean.tissue_range.extent, (width, width))
    drawn = torch.randn((2, *clean.shape), generator=torch.Generator().manual_seed(7))  # the head has seed 0
    array = with_noise(clean.array, (0, 1), noise, drawn)
    noisy = clean.like(array, tissue_range=clean.tissue_range, head=clean.head, missing={}, noise=noise)
    told, true, hidden = [], [], []
    for axis, index in itertools.product((0, 1), range(4, 9)):
        again = Again.of(noisy, below_border(noisy), index, axis)
        plane, _ = as_acquired(clean.array[..., index].movedim(axis, 0), 1.0, min(width, 1.4), 1.0)
        thick = again.slices(noisy, torch.zeros(*again.truth.shape, PLANES), index + 100 * axis)
        found = interpolate(thick.array, thick.acquisition, "cubic")[..., PLANES // 2]
        deep = ndimage.binary_erosion(again.head.numpy(), iterations=8)  # noise raises what is dark
        told.append(float((found - again.truth)[deep].square().mean()) - again.hidden)
        true.append(float((found - plane)[deep].square().mean()))
        hidden.append(again.hidden)
    assert np.mean(told) == pytest.approx(np.mean(true), abs=0.08 * np.mean(hidden))


def test_slices_acquired_again_have_the_noise_of_the_scan_and_its_thickness():
    flat = torch.full((128, 120, 3), 500.0)
    noise = Noise(20.0)
    drawn = torch.randn((2, *flat.shape), generator=torch.Generator().manual_seed(1))
    scan = scan_of(with_noise(flat, (0, 1), noise, drawn))
    scan = scan.like(scan.array, tissue_range=scan.tissue_range, head=torch.ones(flat.shape).bool(), missing={})
    vars(scan).update(noise=noise)
    again = Again.of(scan, below_border(scan), 1, 1)
    made = again.slices(scan, torch.zeros(*again.truth.shape, PLANES), 3)
    assert made.array.shape == (24, 128, PLANES) and made.acquisition.slice_thickness == 5.0
    assert float(made.array.std()) == pytest.approx(20, rel=0.05)
    both = made.array - made.array.mean()
    shared = float((both[..., 0] * both[..., 2]).mean() / both.square().mean())
    assert 0.15 < shared < 0.4, "planes beside each other share the slice's own noise, and no more"


def test_pixels_finer_than_the_target_are_integrated_to_it():
    scan = quiet(scan_of(smooth_head((128, 144, 6)), edges=(0.5, 0.5)))
    again = Again.of(scan, below_border(scan), 3, 0)
    assert again.truth.shape == (64, 144) and again.edges == (1.0, 0.5)
    assert again.acquisition.slice_thickness == 5.0 and again.acquisition.slice_count == 13


def test_interpolated_pixels_become_those_that_were_acquired():
    scan = scan_of(smooth_head((128, 144, 6)), thickness=4.0)
    wide = scan.like(
        scan.array, tissue_range=scan.tissue_range, head=scan.head, missing={}, noise=Noise(9.0, (1.6, 1.1))
    )
    first, second = (Again.of(wide, below_border(wide), 3, axis) for axis in (0, 1))
    assert first.truth.shape == (80, 144) and first.edges == (1.6, 1.0) and second.truth.shape == (144, 128)
    assert first.acquisition.slice_thickness == pytest.approx(6.4) and first.noise.widths == (1.1, 1.0)


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


def test_spots_are_far_apart_in_flat_tissue_and_larger_ones_keep_more():
    scan = quiet(scan_of(smooth_head((120, 120, 12))))
    again = Again.of(scan, below_border(scan), 6, 0)
    places = np.array(list(places_of_spots(again, scan.tissue_range.extent)))
    apart = np.linalg.norm(places[:, None] - places, axis=2)[~np.eye(len(places), dtype=bool)]
    assert len(places) > 3 and apart.min() > max(SIZES) + 10 and again.head[tuple(places.T)].all()
    volume = float(spot(again, tuple(places[0]), 5.0).sum())
    assert volume == pytest.approx(np.pi * 5**3 / 6 * 1.0, rel=0.1)
    found = check(scan, by("cubic")).spots
    assert {one.contrast for one in found} == set(CONTRASTS)
    small, large = (np.mean([one.spline for one in found if one.size == size]) for size in (min(SIZES), max(SIZES)))
    assert 0 < small < 0.5 < large < 1.1


def test_a_missing_slice_is_none_of_those_tested(scan):
    array = scan.array.clone()
    (middle,) = middle_slices(scan, 1)
    array[..., middle] = 0
    assert middle not in middle_slices(replace(scan, array=array), 12)
    assert middle in middle_slices(scan, 12)


def test_what_cannot_be_tested_has_no_test(scan):
    assert check(scan_of(torch.ones(20, 20, 8)), by("cubic")) is None
    assert check(scan_of(smooth_head((14, 14, 8))), by("cubic")) is None
    assert check(scan_of(smooth_head((40, 40, 40)), thickness=1.0), by("cubic")) is None


def test_it_foretells_and_says_when_nothing_is_gained(scan):
    found = check(scan, by("linear"), Foretelling(0.5, 2.0, -0.1, 0.3))
    assert found.foretold == pytest.approx((0.5 + 2 * found.gain - 0.1 * np.log2(5), 0.3))
    assert NO_GAIN in str(found) and f"foretold through its slices {found.foretold[0]:.1f} ± 0.3 dB" in str(found)
    assert NO_GAIN not in str(replace(found, foretold=(0.6, 0.3)))
    assert NO_GAIN in str(replace(found, foretold=None))
