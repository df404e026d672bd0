"""Laws of error maps, on real tiny networks."""

import copy

import pytest
import torch
from monai.data import MetaTensor

from scripts.method.calibration import LEVELS, Calibration, scan_scale
from scripts.method.networks import add_error_network
from scripts.rebuild.error_map import error_map, expected_error, noise_share
from scripts.rebuild.inferer import DriftInferer, rebuild
from scripts.stack.acquisition import Acquisition
from scripts.stack.intensity import intensity_range
from tests.conftest import random_network, untrained
from tests.method.test_networks import perturb
from tests.volumes import scan_of, smooth_head

CALIBRATION = Calibration([3.0, 5.0], {"a": [list(LEVELS), list(LEVELS)]}, (0.7, 0.1), (30.0, 0.4, 1.0))
SHAPE = (52, 56, 50)
DIGITS = 2**-7  # relative; twice what rounding to the numbers of bfloat16 changes


@pytest.fixture(scope="module")
def drift():
    """A network with an error network, both with weights of chance."""
    network = random_network()
    add_error_network(network, copy.deepcopy(network))
    perturb(network.error)
    return network.eval()


@pytest.fixture(scope="module")
def inferer():
    return DriftInferer(64, both_planes=True, spread=True, steps=1, deblocked=True)


@pytest.fixture(scope="module")
def scan():
    return scan_of(smooth_head(SHAPE))


@pytest.fixture(scope="module")
def result(scan, drift, inferer):
    return rebuild(scan, drift, inferer, "cpu")


def mapped(scan, result, drift, confidence=0.9):
    return error_map(scan, result, drift, "cpu", CALIBRATION, confidence)


@pytest.fixture(scope="module")
def found(scan, result, drift):
    return mapped(scan, result, drift)


def moved(scan, axes, flipped):
    """The same scan with its array transposed and flipped."""
    affine = scan.affine.numpy()[:, [*axes, 3]]
    volume = scan.as_tensor()[0].permute(axes)
    for axis in flipped:
        affine[:3, 3] += affine[:3, axis] * (volume.shape[axis] - 1)
        affine[:3, axis] *= -1
    other = MetaTensor(volume.flip(flipped)[None], affine=torch.from_numpy(affine))
    Acquisition.of(scan).moved(axes, flipped).attach(other)
    if "spread" in scan.meta:
        other.meta["spread"] = scan.meta["spread"].permute(axes).flip(flipped)
    return other


def test_the_map_lies_on_the_results_grid_and_is_positive(found, result):
    assert found.shape == result.shape and (found > 0).all()
    torch.testing.assert_close(found.affine, result.affine)


def test_the_result_is_bit_for_bit_that_of_a_network_without_it(scan, result, drift, inferer):
    assert torch.equal(rebuild(scan, random_network(), inferer, "cpu"), result)
    before = result.clone()
    mapped(scan, result, drift)
    assert torch.equal(result, before)


def test_more_confidence_is_a_wider_interval_everywhere(scan, result, drift, found):
    wide = mapped(scan, result, drift, 0.95)
    torch.testing.assert_close(wide.as_tensor(), found.as_tensor() * (0.95 / 0.9), rtol=DIGITS, atol=0)


def test_the_map_has_the_scans_units(scan, result, drift, found):
    brighter, rebuilt = scan.clone(), result.clone()
    brighter *= 7.0
    rebuilt *= 7.0
    torch.testing.assert_close(mapped(brighter, rebuilt, drift).as_tensor(), 7 * found.as_tensor(), rtol=0.01, atol=0)


@pytest.mark.parametrize(("axes", "flipped"), [((2, 0, 1), ()), ((0, 1, 2), (0, 2)), ((1, 2, 0), (1,))])
def test_how_a_scan_is_stored_does_not_matter(axes, flipped, scan, result, drift, found):
    again = mapped(moved(scan, axes, flipped), moved(result, axes, flipped), drift)
    torch.testing.assert_close(
        again.as_tensor(), found.as_tensor()[0].permute(axes).flip(flipped)[None], rtol=1e-3, atol=0
    )


def test_where_both_families_of_planes_agree_less_it_says_something_else(scan, result, drift, found):
    other = result.clone()
    other.meta["spread"] = 3 * result.meta["spread"]
    assert not torch.allclose(mapped(scan, other, drift).as_tensor(), found.as_tensor(), rtol=1e-4)


def test_a_scan_at_its_target_has_no_error_map_to_speak_of(drift):
    thin = scan_of(smooth_head((20, 22, 24)), thickness=1.0)
    assert not mapped(thin, thin, drift).any()


def test_it_is_the_networks_number_times_scale_and_factor(scan, result, drift, found):
    a, thick = Acquisition.of(scan), scan.as_tensor()[0]
    expected = expected_error(thick, result.as_tensor()[0], result.meta["spread"], a, drift, "cpu")
    scale = scan_scale(CALIBRATION.exponents, a.slice_spacing / a.slice_thickness, noise_share(thick, a))
    torch.testing.assert_close(found[0].as_tensor(), expected * (0.9 * scale), rtol=DIGITS, atol=0)


def test_convolutions_in_bfloat16_change_it_by_few_percent(scan, result, drift, found):
    half = error_map(scan, result, drift, "cpu", CALIBRATION, 0.9, bfloat16=True).as_tensor()
    assert half.dtype == torch.float32 and not torch.equal(half, found.as_tensor())
    torch.testing.assert_close(half, found.as_tensor(), rtol=0.05, atol=0)


def test_the_noise_of_slices_is_found_as_a_share_of_their_range(scan):
    thick, a = scan.as_tensor()[0], Acquisition.of(scan)
    scale = intensity_range(thick)
    noise = 0.03 * (scale.high - scale.low) * torch.randn(thick.shape, generator=torch.Generator().manual_seed(0))
    assert noise_share(thick, a) < 0.01
    assert noise_share(thick + noise, a) == pytest.approx(0.03, rel=0.15)
    assert noise_share(5 * (thick + noise), a) == pytest.approx(noise_share(thick + noise, a), rel=1e-4)


@pytest.mark.parametrize("offset", [-2000.0, 700.0])
def test_the_noise_of_slices_does_not_depend_on_their_floor(scan, offset):
    thick, a = scan.as_tensor()[0], Acquisition.of(scan)
    noisy = thick + 20 * torch.rand(thick.shape, generator=torch.Generator().manual_seed(0))
    assert noise_share(noisy + offset, a) == pytest.approx(noise_share(noisy, a), rel=0.05)


@pytest.mark.parametrize("bright", [1, 2])
def test_a_scan_of_air_but_for_a_few_voxels_has_a_map(bright, scan, drift, inferer):
    empty = copy.deepcopy(scan)
    empty.as_tensor()[:] = 0
    empty.as_tensor()[0, 20 : 20 + bright, 20 : 20 + bright, 4] = 800
    found = mapped(empty, rebuild(empty, drift, inferer, "cpu"), drift)
    assert found.shape[1:] == SHAPE and found.isfinite().all()


def test_the_error_network_sees_unit_intensities(scan, result, drift):
    """A factor and an offset of a scan change what it says by the factor alone."""
    thick, rebuilt = scan.as_tensor()[0], result.as_tensor()[0]
    assert intensity_range(thick).low == 0
    a = expected_error(thick, rebuilt, None, Acquisition.of(scan), drift, "cpu")
    b = expected_error(3 * thick + 500, 3 * rebuilt + 500, None, Acquisition.of(scan), drift, "cpu")
    assert intensity_range(3 * thick + 500).low == 500
    torch.testing.assert_close(b, 3 * a, rtol=1e-3, atol=0)


def test_much_air_around_a_head_changes_nothing_in_it_and_is_as_sure_as_the_surest_voxel(scan, result, drift):
    margin, a = 40, Acquisition.of(scan)
    thick, rebuilt = (v.as_tensor()[0] for v in (scan, result))
    alone = expected_error(thick, rebuilt, None, a, drift, "cpu")
    wide = [torch.nn.functional.pad(v, [0, 0, margin, margin, margin, margin]) for v in (thick, rebuilt)]
    told = expected_error(*wide, None, a, drift, "cpu")
    inside = told[margin:-margin, margin:-margin]
    torch.testing.assert_close(inside[17:-17, 17:-17], alone[17:-17, 17:-17], rtol=0.01, atol=0)
    assert (told[0] == told.min()).all()


def test_without_an_error_network_it_is_a_mistake_of_the_caller(scan, result):
    with pytest.raises(ValueError, match="no error network"):
        expected_error(scan.as_tensor()[0], result.as_tensor()[0], None, Acquisition.of(scan), untrained(), "cpu")
