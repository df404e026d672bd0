"""Laws of error maps, on real tiny networks."""

import copy

import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.method.calibration import LEVELS, Calibration
from scripts.method.networks import add_error_network
from scripts.rebuild.error_map import error_map, expected_error, own_planes, own_scale
from scripts.rebuild.inferer import DriftInferer, rebuild
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.intensity import intensity_range
from tests.conftest import random_network, untrained
from tests.method.test_networks import perturb
from tests.volumes import scan_of, smooth_head

CALIBRATION = Calibration([3.0, 5.0], *[{"a": [list(LEVELS), list(LEVELS)]}] * 2, (30.0, 0.4, 1.0))
SHAPE = (52, 56, 50)


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


def mapped(scan, result, drift, inferer, confidence=0.9):
    return error_map(scan, result, drift, inferer, "cpu", CALIBRATION, confidence)


@pytest.fixture(scope="module")
def found(scan, result, drift, inferer):
    return mapped(scan, result, drift, inferer)


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
    assert found[0].shape == result.shape and (found[0] > 0).all()
    torch.testing.assert_close(found[0].affine, result.affine)


def test_the_result_is_bit_for_bit_that_of_a_network_without_it(scan, result, drift, inferer):
    assert torch.equal(rebuild(scan, random_network(), inferer, "cpu"), result)
    before = result.clone()
    settings = vars(inferer).copy()
    mapped(scan, result, drift, inferer)
    assert torch.equal(result, before) and vars(inferer) == settings


def test_more_confidence_is_a_wider_interval_everywhere(scan, result, drift, inferer, found):
    wide = mapped(scan, result, drift, inferer, 0.95)[0]
    torch.testing.assert_close(wide.as_tensor(), found[0].as_tensor() * (0.95 / 0.9), rtol=1e-5, atol=0)


def test_the_map_has_the_scans_units(scan, result, drift, inferer, found):
    brighter, rebuilt = scan.clone(), result.clone()
    brighter *= 7.0
    rebuilt *= 7.0
    torch.testing.assert_close(
        mapped(brighter, rebuilt, drift, inferer)[0].as_tensor(), 7 * found[0].as_tensor(), rtol=0.01, atol=0
    )


@pytest.mark.parametrize(("axes", "flipped"), [((2, 0, 1), ()), ((0, 1, 2), (0, 2)), ((1, 2, 0), (1,))])
def test_how_a_scan_is_stored_does_not_matter(axes, flipped, scan, result, drift, inferer, found):
    again = mapped(moved(scan, axes, flipped), moved(result, axes, flipped), drift, inferer)[0]
    torch.testing.assert_close(
        again.as_tensor(), found[0].as_tensor()[0].permute(axes).flip(flipped)[None], rtol=1e-3, atol=0
    )


def test_where_both_families_of_planes_agree_less_it_says_something_else(scan, result, drift, inferer, found):
    other = result.clone()
    other.meta["spread"] = 3 * result.meta["spread"]
    assert not torch.allclose(mapped(scan, other, drift, inferer)[0].as_tensor(), found[0].as_tensor(), rtol=1e-4)


def test_a_scan_at_its_target_has_no_error_map_to_speak_of(drift, inferer):
    thin = scan_of(smooth_head((20, 22, 24)), thickness=1.0)
    width, scale = mapped(thin, thin, drift, inferer)
    assert not width.any() and scale.source == "none: nothing was rebuilt"


# The scan's own scale


def own(scan, drift, inferer):
    spacing = voxel_spacing(scan.affine)
    return own_scale(scan.as_tensor()[0], Acquisition.of(scan), spacing, drift, inferer, "cpu")


def test_the_scale_is_the_ratio_of_true_to_expected_error_in_the_scans_own_slices(scan, drift, inferer):
    """By hand: the planes are degraded, rebuilt in one family, and compared with what was measured."""
    planes, acquisition, pixel = own_planes(scan.as_tensor()[0], Acquisition.of(scan), voxel_spacing(scan.affine))
    truth = MetaTensor(planes.permute(0, 2, 1).contiguous()[None], affine=torch.eye(4, dtype=torch.float64))
    assert pixel == 1.0 and planes.shape[1] == max(SHAPE[:2])
    assert acquisition.slice_thickness == 5.0 and acquisition.target_spacing == 1.0
    thick = scan_of(truth[0].as_tensor())
    alone = DriftInferer(64, steps=1, consistency="measure")
    rebuilt = rebuild(thick, drift, alone, "cpu")
    expected = expected_error(thick.as_tensor()[0], rebuilt.as_tensor()[0], None, Acquisition.of(thick), drift, "cpu")
    scores = (rebuilt.as_tensor()[0] - truth.as_tensor()[0]).abs() / expected
    inside = truth.as_tensor()[0] > 0.3 * truth.max()
    value, is_own, source = own(scan, drift, inferer)
    assert is_own and "own slices" in source
    assert value == pytest.approx(float(scores[inside].median()) ** 0.5, rel=0.05)


def test_errors_four_times_as_large_as_expected_double_the_scale(scan, drift, inferer):
    """A quarter of what the error network says, by its last bias, is four times the ratio."""
    doubting = copy.deepcopy(drift)
    doubting.error.layers[-1].bias.data -= np.log(4)
    assert own(scan, doubting, inferer).value == pytest.approx(2 * own(scan, drift, inferer).value, rel=1e-4)


def test_a_scale_of_its_own_takes_half_of_the_networks_factor_out_of_the_map(scan, result, drift, inferer, found):
    doubting = copy.deepcopy(drift)
    doubting.error.layers[-1].bias.data -= np.log(4)
    again = mapped(scan, result, doubting, inferer)[0]
    torch.testing.assert_close(again.as_tensor(), found[0].as_tensor() / 2, rtol=1e-3, atol=0)


@pytest.mark.parametrize(("shape", "thickness"), [((40, 60, 40), 5.0), ((52, 56, 50), 1.6)])
def test_small_or_thin_slices_tell_no_scale_and_calibration_stands_in(shape, thickness, drift, inferer):
    value, is_own, source = own(scan_of(smooth_head(shape), thickness=thickness), drift, inferer)
    assert (value, is_own) == (1.0, False) and "calibration alone" in source


def test_of_two_pixel_axes_the_sharper_one_is_taken():
    volume = smooth_head(SHAPE)
    blurred = torch.nn.functional.avg_pool3d(volume[None], (1, 5, 1), 1, (0, 2, 0))[0]
    scan = scan_of(blurred)
    planes, _, _ = own_planes(scan.as_tensor()[0], Acquisition.of(scan), voxel_spacing(scan.affine))
    assert planes.shape[1:] == SHAPE[:2]
    sharp = scan_of(volume)
    assert own_planes(sharp.as_tensor()[0], Acquisition.of(sharp), voxel_spacing(sharp.affine))[0].shape[1:] == (56, 52)


def test_the_error_network_sees_unit_intensities(scan, result, drift):
    """A factor and an offset of a scan change what it says by the factor alone."""
    thick, rebuilt = scan.as_tensor()[0], result.as_tensor()[0]
    assert intensity_range(thick).low == 0
    a = expected_error(thick, rebuilt, None, Acquisition.of(scan), drift, "cpu")
    b = expected_error(3 * thick, 3 * rebuilt, None, Acquisition.of(scan), drift, "cpu")
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
