"""Laws of error maps, on real tiny networks."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.method.calibration import LEVELS, Calibration, scan_scale
from scripts.method.error_pattern import TYPICAL, ErrorPatternNetwork
from scripts.method.networks import Drift, VelocityNetwork
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.rebuild.error_map import (
    CUBE,
    FAINT,
    ErrorMaps,
    error_map,
    expected_error,
    guided_error,
    network_inputs,
)
from scripts.rebuild.guide import BORDER, PlacedGuide
from scripts.rebuild.inferer import DriftInferer
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack.acquisition import Acquisition
from scripts.stack.intensity import IntensityRange
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from tests.fixtures import random_network
from tests.method.test_networks import perturb
from tests.volumes import scan_of, smooth_head

CALIBRATION = Calibration([3.0, 5.0], [[list(LEVELS), list(LEVELS)]], (0.7, 0.1))
SHAPE = (52, 56, 50)
DIGITS = 2**-7  # relative; twice what rounding to the numbers of bfloat16 changes
WIDTH = 16


@pytest.fixture(scope="module")
def drift():
    """A network with an error network, both with weights of chance."""
    network = random_network(WIDTH)
    network.error = perturb(ErrorPatternNetwork())
    return network.eval()


@pytest.fixture(scope="module")
def inferer():
    return DriftInferer(64, both_planes=True, spread=True, steps=1, deblocked=True)


@pytest.fixture(scope="module")
def scan():
    return scan_of(smooth_head(SHAPE))


@pytest.fixture(scope="module")
def result(scan, drift, inferer):
    return Rebuilder(drift, inferer, "cpu")(Slices.of(scan))


def test_an_untrained_error_network_says_one_error_in_the_units_of_the_scan(scan, drift):
    network = Drift(drift.apn, drift.velocity, ErrorPatternNetwork())
    slices = Slices.of(scan)
    tissue_range, between = slices.tissue_range, interpolate(slices.array, slices.acquisition, "linear")
    shown = expected_error(slices, between, None, network, "cpu")
    torch.testing.assert_close(shown, torch.full_like(shown, TYPICAL * tissue_range.extent / 2))


def mapped(result, drift, confidence=0.9):
    return error_map(result, drift, "cpu", CALIBRATION).half_width(confidence)


@pytest.fixture(scope="module")
def found(result, drift):
    return mapped(result, drift)


def test_the_error_network_is_told_the_spread_and_the_lengths_of_slices_with_gaps(result):
    gapped = Slices.of(scan_of(smooth_head(SHAPE), 4.0, spacing=5.0))
    vars(gapped)["tissue_range"] = IntensityRange(100.0, 600.0, 2e3)
    planes, rows, lengths = network_inputs(gapped, result.volume.as_tensor(), result.spread)
    assert lengths[:3].tolist() == [4, 1, 5] and len(rows) == SHAPE[2]
    assert lengths[3].item() == pytest.approx(gapped.noise_share)
    torch.testing.assert_close(planes[:, 2], (result.spread / 250).movedim((2, 1), (1, 2)), rtol=1e-6, atol=0)


def test_errors_grow_with_gaps_by_the_exponent_of_the_calibration(scan, result, drift):
    gapped = replace(result.slices, acquisition=replace(Acquisition.of(scan), slice_thickness=4.0))
    scales = [error_map(one, drift, "cpu", CALIBRATION).scale for one in (result, replace(result, slices=gapped))]
    assert scales[1] / scales[0] == pytest.approx(1.25**0.7, rel=1e-6)


def test_it_is_the_networks_number_times_scale_and_factor(scan, result, drift, found):
    slices, a = Slices.of(scan), Acquisition.of(scan)
    expected = expected_error(slices, result.volume.as_tensor(), result.spread, drift, "cpu")
    scale = scan_scale(CALIBRATION.exponents, a.slice_spacing / a.slice_thickness, slices.noise_share)
    for confidence, width in ((0.9, found), (0.95, mapped(result, drift, 0.95))):
        torch.testing.assert_close(width.as_tensor(), expected * (confidence * scale), rtol=DIGITS, atol=0)


def test_convolutions_in_bfloat16_change_it_by_few_percent(result, drift, found):
    half = error_map(result, drift, "cpu", CALIBRATION, bfloat16=True).half_width(0.9).as_tensor()
    assert half.dtype == torch.float32 and not torch.equal(half, found.as_tensor())
    torch.testing.assert_close(half, found.as_tensor(), rtol=0.05, atol=0)


def test_the_noise_of_slices_is_a_share_of_their_range_wherever_its_floor_lies(scan):
    slices = Slices.of(scan)
    thick, tissue_range = slices.array, slices.tissue_range
    noise = 0.03 * tissue_range.extent * torch.randn(thick.shape, generator=torch.Generator().manual_seed(0))
    noisy = replace(slices, array=thick + noise).noise_share
    assert slices.noise_share < 0.02 and noisy == pytest.approx(0.03, rel=0.25)
    raised = thick + 20 * torch.rand(thick.shape, generator=torch.Generator().manual_seed(0))
    assert replace(slices, array=raised - 2000).noise_share == pytest.approx(
        replace(slices, array=raised).noise_share, rel=0.05
    )


def test_a_scan_of_air_but_for_a_voxel_has_a_map(scan, drift, inferer):
    empty = copy.deepcopy(scan)
    empty.as_tensor()[:] = 0
    empty.as_tensor()[0, 20, 20, 4] = 800
    found = mapped(Rebuilder(drift, inferer, "cpu")(Slices.of(empty)), drift)
    assert found.shape == SHAPE and found.isfinite().all()


def test_much_air_around_a_head_changes_nothing_in_it_and_is_as_sure_as_the_surest_voxel(scan, result, drift):
    margin, slices, rebuilt = 40, Slices.of(scan), result.volume.as_tensor()
    alone = expected_error(slices, rebuilt, None, drift, "cpu")
    wide = [torch.nn.functional.pad(v, [0, 0, margin, margin, margin, margin]) for v in (slices.array, rebuilt)]
    told = expected_error(replace(slices, array=wide[0]), wide[1], None, drift, "cpu")
    inside = told[margin:-margin, margin:-margin]
    torch.testing.assert_close(inside[17:-17, 17:-17], alone[17:-17, 17:-17], rtol=0.01, atol=0)
    assert (told[0] == told.min()).all()


# With a guide


def textures(*seeds, shape=(60, 40, 50)):
    """Independent textures of one power."""
    return [torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds]


@pytest.fixture(scope="module")
def stack():
    """Slices of 5 mm along the last axis of `textures`."""
    return Acquisition.of_truth(2, 50, edge=1.0, thickness=5.0)


MM = np.ones(3)


@pytest.mark.parametrize("share", [0.5, 1.0, 2.0])
def test_errors_go_as_the_inverse_root_of_the_power_that_a_guides_detail_adds(share, stack):
    plain, brought = textures(0, 1)
    less = guided_error(plain + share * brought, plain, stack, MM)
    assert less.median().item() == pytest.approx((1 + share**2 / (1 + FAINT)) ** -0.5, rel=0.02)
    assert less.std() < 0.05


@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_a_guide_that_only_dampens_or_strengthens_the_results_own_detail_makes_it_less_sure(factor, stack):
    (plain,) = textures(0)
    assert guided_error(factor * plain, plain, stack, MM).median().item() == pytest.approx(
        (1.1 / 0.35) ** 0.5, rel=0.02
    )


def test_what_the_slices_hold_themselves_is_not_brought_by_a_guide(stack):
    (plain,) = textures(0)
    shading = torch.linspace(0, 60, 50) + torch.linspace(0, 9, 40)[:, None]  # a spline between slices follows it
    less = guided_error(plain + shading, plain, stack, MM)[:, :, 13:-13]  # beyond the outermost slices it is flat
    torch.testing.assert_close(less, torch.ones_like(less), rtol=0.02, atol=0)


@pytest.mark.parametrize("edge", [1.0, 2.0])
def test_a_change_counts_within_half_a_cube_alone(edge, stack):
    plain, brought = textures(0, 1)
    brought[30:] = 0
    less = guided_error(plain + brought, plain, stack, np.array([edge, 1.0, 1.0]))
    reach = round(CUBE / 2 / edge)
    assert (less[31 + reach :] == 1).all() and (less[:29] < 0.85).all()
    assert 0.85 < less[30 + reach - 2].mean() < 1, "over no less than that"


def test_air_says_nothing(stack):
    """Whatever a guide does to the faint noise of air."""
    plain, other = textures(0, 1)
    plain[30:], other[30:] = 1e-3 * plain[30:], 3e-3 * other[30:]
    less = guided_error(plain + other, plain, stack, MM)
    torch.testing.assert_close(less[42:], torch.ones_like(less[42:]), rtol=1e-3, atol=0)
    assert (guided_error(torch.zeros(60, 40, 50), torch.zeros(60, 40, 50), stack, MM) == 1).all()


def guided_scan(fine_from):
    """A noisy scan; a guide of independent texture from a plane of its first axis on; and a rebuilder of both."""
    measured = Slices.of(scan_of(smooth_head(SHAPE) + 30 * textures(2, shape=SHAPE)[0]))
    fine = textures(3, shape=SHAPE)[0].clamp(-1, 1)
    fine[:fine_from] = torch.nan
    network = Drift(SliceProjectionNetwork((6, 8), (1, 1), 4, 4), VelocityNetwork((4, 8), 8))
    network.error = ErrorPatternNetwork()
    affine = torch.eye(4, dtype=torch.float64)
    placed = PlacedGuide(MetaTensor(fine[None], affine=affine), np.eye(4), 1.0, 0.0, 0.0, 0.0, "the guide")
    maps = ErrorMaps(True, calibration=replace(CALIBRATION, guided=(0.8, 0.5)))
    by = DriftInferer(steps=0, both_planes=True, spread=True, consistency="measure")  # which changes gains of slices
    return measured, placed, Rebuilder(perturb(network.eval(), scale=0.1), by, "cpu", error_maps=maps, guide_share=1.0)


def test_where_a_guide_saw_nothing_intervals_are_those_without_it():
    measured, placed, rebuilder = guided_scan(26)
    plain, guided = rebuilder(measured), rebuilder(measured, placed)
    assert (guided.volume - plain.volume)[26 + int(BORDER) :].abs().max() > 10
    widths = [one.error_map.half_width(0.9).as_tensor() for one in (plain, guided)]
    far = 26 - 17 - 4  # the error network looks 17 pixels around
    torch.testing.assert_close(widths[1][:far], widths[0][:far], rtol=DIGITS, atol=0)
    assert (widths[1] / widths[0])[26 + int(BORDER) :].std() > 0.01


def test_intervals_are_no_narrower_than_the_card_says():
    measured, placed, rebuilder = guided_scan(0)
    guided, plain = rebuilder(measured, placed), rebuilder(measured)
    maps, volume = rebuilder.error_maps, plain.volume.as_tensor()
    loud = MetaTensor(volume + 10 * volume.std() * textures(4, shape=SHAPE)[0], affine=plain.volume.affine)
    shown = replace(guided, volume=loud)
    alone, beside = (
        error_map(shown, rebuilder.network, "cpu", maps.calibration, plain=one).half_width(0.9).as_tensor()
        for one in (None, plain.volume)
    )
    torch.testing.assert_close(beside, 0.5 * alone, rtol=DIGITS, atol=0)


def test_what_motion_changed_in_slices_adds_in_squares_to_the_errors_that_the_network_knows(result, drift, found):
    slices, axis = result.slices, result.slices.acquisition.slice_axis
    change = torch.linspace(0, 50, slices.shape[axis]).reshape([-1 if one == axis else 1 for one in range(3)])
    signs = torch.tensor([1.0, -1.0]).repeat(99)[: slices.shape[axis]].reshape(change.shape)
    steady = replace(slices, array=slices.array - signs * change)  # which sign a change has does not matter
    wide = error_map(result, drift, "cpu", CALIBRATION, steady=steady).half_width(0.9).as_tensor()
    added = interpolate(change.expand(slices.shape), slices.acquisition, "linear") * CALIBRATION.factor(5.0, 0.9)
    torch.testing.assert_close(wide, (found.as_tensor() ** 2 + added**2).sqrt(), rtol=DIGITS, atol=0)
    same = error_map(result, drift, "cpu", CALIBRATION, steady=slices).half_width(0.9)
    assert torch.equal(same.as_tensor(), found.as_tensor())
