"""The door: a scan through the deployed preprocessing stays in place, in its units, or is refused in one line."""

import itertools
import json
import logging
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from scipy.spatial.transform import Rotation

from scripts.consistency import reconcile
from scripts.errors import InputError, input_error
from scripts.transforms import (
    NormalizeIntensityRanged,
    ReconcileSlicesd,
    RestoreIntensityRanged,
    sidecar_thickness,
)

CONFIG = Path(__file__).parents[1] / "configs" / "inference.yaml"
LOW, HIGH = 0.7, 1.3  # mm; trained_target
AXIAL = np.diag([1.0, 1.0, 5.0, 1.0])
ORDERS = list(itertools.permutations(range(3)))
# (slices, slice spacing in mm, in-plane spacing in mm)
STACKS = [(6, 5.0, 1.0), (7, 5.5, 0.9), (8, 3.3, 0.6), (9, 2.0, 1.0)]


def door_for(image, **given):
    """The preprocessing of configs/inference.yaml, as `monai.bundle run` builds it, on one image."""
    parser = ConfigParser()
    parser.read_config(str(CONFIG))
    parser.update(given)
    return parser.get_parsed_content("preprocessing")({"image": image})["image"]


def door(path, **given):
    """The same on one file."""
    return door_for(str(path), **given)


def refusal(function, *args, **kwargs) -> str:
    """The one line that a call ends with; any other exception fails the test."""
    with pytest.raises(Exception) as caught:
        function(*args, **kwargs)
    mistake = input_error(caught.value)
    if mistake is None:
        raise AssertionError("expected an InputError in the chain of exceptions") from caught.value
    assert "\n" not in str(mistake)
    return str(mistake)


def facts(volume):
    return {k: volume.meta[k] for k in ("slice_axis", "slice_spacing", "slice_thickness", "target_thickness")}


def texture(shape, seed=0):
    return np.random.default_rng(seed).random(shape).astype(np.float32)


def in_units(volume) -> np.ndarray:
    """Output of the door in the scan's own units, `(X, Y, Z)`."""
    return RestoreIntensityRanged("image")({"image": volume})["image"].numpy()[0]


def random_affine(spacing, seed):
    """Rotated, mirrored and far from the scanner's centre."""
    rng = np.random.default_rng(seed)
    affine = np.eye(4)
    affine[:3, :3] = Rotation.random(random_state=seed).as_matrix() @ np.diag(rng.choice([-1, 1], 3) * spacing)
    affine[:3, 3] = rng.uniform(-150, 150, 3)
    return affine


def place(affine, index) -> np.ndarray:
    """World coordinates in mm of indices `(n, 3)`."""
    return np.asarray(index) @ affine[:3, :3].T + affine[:3, 3]


def indices(shape) -> np.ndarray:
    return np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1).reshape(-1, 3)


def assert_in_place(thick, affine, axis, fine, fine_affine, target):
    """Every slice of `thick`, which holds distinct textures, lies in `fine` where it lay before."""
    spacing = np.linalg.norm(affine[:3, axis])
    others = [a for a in range(3) if a != axis]
    assert [fine.shape[a] for a in others] == [thick.shape[a] for a in others]
    np.testing.assert_allclose(np.linalg.norm(fine_affine[:3, axis]), target, atol=1e-6)
    centre, fine_centre = ((np.array(v.shape) - 1) / 2 for v in (thick, fine))
    assert np.linalg.norm(place(affine, centre) - place(fine_affine, fine_centre)) < 0.01

    back = np.linalg.inv(affine)
    copies = {i: [] for i in range(thick.shape[axis])}
    for j in range(fine.shape[axis]):
        corners = indices((2, 2, 2)) * (np.array(fine.shape) - 1)
        corners[:, axis] = j
        world = place(fine_affine, corners)
        there = place(back, world)  # indices of the thick grid
        assert np.abs((there - corners)[:, others] * np.linalg.norm(affine[:3, others], axis=0)).max() < 0.01
        difference = np.abs(thick - np.expand_dims(fine.take(j, axis), axis)).max(axis=tuple(others))
        source = int(difference.argmin())
        assert difference[source] < 1e-4 * thick.max()
        assert np.abs(there[:, axis] - source).max() * spacing <= spacing / 2 + target / 2 + 0.01
        copies[source].append(there[0, axis])
    for source, places in copies.items():  # a slice's copies are centred on it, as far as the fine grid allows
        whole_ratio = abs(spacing / target - round(spacing / target)) < 1e-4
        allowed = 0.01 if whole_ratio else target / 2 + 0.01
        inner = 0 < source < thick.shape[axis] - 1  # the fine grid's ends may reach past the stack's
        assert abs(np.mean(places) - source) * spacing <= allowed + (0 if inner else target / 2)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("stack", STACKS)
def test_slices_stay_in_place_in_any_axis_order(stack, order, write_nifti):
    """Axial, coronal and sagittal stacks with the array's axes in each of six orders, mirrored along one."""
    count, slice_spacing, in_plane = stack
    axis = order.index(2)
    shape, spacing = np.full(3, 5) + [0, 1, 2], np.full(3, in_plane)
    shape[axis], spacing[axis] = count, slice_spacing
    affine = np.diag([0.0, 0.0, 0.0, 1.0])
    affine[list(order), range(3)] = spacing * [-1, 1, 1]
    affine[:3, 3] = 91.3, -120.7, 33.1
    thick = texture(shape)
    result = door(write_nifti(thick, affine))
    assert result.meta["slice_axis"] == axis
    target = np.clip(in_plane, LOW, HIGH)
    assert_in_place(thick, affine, axis, in_units(result), result.affine.numpy(), target)


@pytest.mark.parametrize("seed", range(18))
def test_slices_stay_in_place_in_oblique_stacks(seed, write_nifti):
    rng = np.random.default_rng(seed)
    axis = seed % 3
    shape, spacing = rng.integers(4, 8, 3), rng.uniform(0.5, 1.6, 3).round(3)
    shape[axis], spacing[axis] = rng.integers(3, 12), round(rng.uniform(2.0, 7.0), 3)
    affine = random_affine(spacing, seed)
    thick = texture(shape, seed)
    result = door(write_nifti(thick, affine))
    assert result.meta["slice_axis"] == axis
    target = np.clip(np.delete(spacing, axis).min(), LOW, HIGH)
    assert_in_place(thick, affine, axis, in_units(result), result.affine.numpy(), target)


@pytest.mark.parametrize("target", [0.7, 0.8, 1.0, 1.3])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_slices_stay_in_place_at_a_target_of_the_users(axis, target, write_nifti):
    spacing, shape = np.full(3, 1.0), np.full(3, 6)
    spacing[axis], shape[axis] = 4.4, 7
    affine = random_affine(spacing, 5)
    thick = texture(shape)
    result = door(write_nifti(thick, affine), target_thickness=target)
    assert_in_place(thick, affine, axis, in_units(result), result.affine.numpy(), target)


def test_slices_stay_in_place_along_an_axis_of_the_users(write_nifti):
    thick, affine = texture((8, 7, 6)), random_affine(np.array([3.0, 1.0, 3.0]), 1)
    path = write_nifti(thick, affine)
    assert door(path).meta["slice_axis"] == 2  # the last of equals
    result = door(path, slice_axis=0)
    assert result.meta["slice_axis"] == 0
    assert_in_place(thick, affine, 0, in_units(result), result.affine.numpy(), 1.0)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("seed", range(3))
def test_a_blob_keeps_its_centre_of_mass(seed, stack, write_nifti):
    _, slice_spacing, in_plane = stack
    axis = seed
    spacing, shape = np.full(3, in_plane), np.full(3, 20)
    spacing[axis], shape[axis] = slice_spacing, 11
    affine = random_affine(spacing, 10 + seed)
    centre = (shape - 1) / 2 + [0.3, -1.2, 0.4]
    width = np.full(3, 2.0)
    width[axis] = 1.2
    blob = 500 * np.exp(-0.5 * (((indices(shape) - centre) / width) ** 2).sum(1)).reshape(shape)
    result = door(write_nifti(blob.astype(np.float32), affine))
    fine = in_units(result)
    before = (place(affine, indices(shape)) * blob.reshape(-1, 1)).sum(0) / blob.sum()
    after = (place(result.affine.numpy(), indices(fine.shape)) * fine.reshape(-1, 1)).sum(0) / fine.sum()
    along = affine[:3, axis] / slice_spacing
    shift = after - before
    assert np.linalg.norm(shift - along * (shift @ along)) < 0.01
    assert abs(shift @ along) < 0.05 * slice_spacing


def test_a_worked_scan(write_nifti, log):
    thick = np.arange(2 * 2 * 4, dtype=np.float32).reshape(2, 2, 4)
    affine = np.diag([1.2, 1.2, 3.6, 1.0])
    affine[:3, 3] = -10, -20, -30
    result = door(write_nifti(thick, affine))
    # four slices of 3.6 mm from z = -31.8 mm: twelve of 1.2 mm, the first one centred on -31.2 mm
    expected = np.diag([1.2, 1.2, 1.2, 1.0])
    expected[:3, 3] = -10, -20, -31.2
    np.testing.assert_allclose(result.affine.numpy(), expected, atol=1e-4)
    np.testing.assert_allclose(in_units(result), thick.repeat(3, axis=2), atol=1e-4)
    assert facts(result) == pytest.approx(
        {"slice_axis": 2, "slice_spacing": 3.6, "slice_thickness": 3.6, "target_thickness": 1.2}
    )
    (line,) = log.messages
    assert "axis 2" in line and "3.6 mm (from the slice spacing" in line and "target 1.2 mm" in line


# --- acquisition facts ---


@pytest.fixture
def scan(write_nifti):
    """Five millimetres apart, one millimetre in plane."""
    return write_nifti(texture((6, 7, 5)), AXIAL)


def add_sidecar(path, text):
    sidecar = path.with_name(path.name.split(".")[0] + ".json")
    sidecar.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


@pytest.mark.parametrize(
    ("given", "sidecar", "thickness", "source"),
    [
        (3, 4, 3, "given"),
        (3, None, 3, "given"),
        ("3.5", 4, 3.5, "given"),
        (None, 4, 4, "the sidecar"),
        (None, 4.25, 4.25, "the sidecar"),
        (None, None, 5, "the slice spacing"),
    ],
)
def test_thickness_is_the_users_else_the_sidecars_else_the_spacing(given, sidecar, thickness, source, scan, log):
    if sidecar is not None:
        add_sidecar(scan, {"SliceThickness": sidecar, "EchoTime": 0.1})
    result = door(scan, slice_thickness=given)
    assert result.meta["slice_thickness"] == pytest.approx(thickness)
    assert result.meta["slice_spacing"] == pytest.approx(5)  # three numbers: spacing is no thickness
    line = log.messages[-1]
    assert f"thickness {thickness:.3g} mm (from {source}" in line and str(scan) in line
    assert result.meta["assumed"]["slice_thickness"].startswith(source)


@pytest.mark.parametrize(("given", "warns"), [(3, True), (4.0, False), (4.01, False), (4.1, True), (6, True)])
def test_a_thickness_that_contradicts_the_sidecar_warns_and_wins(given, warns, scan, log):
    result = door(add_sidecar(scan, {"SliceThickness": 4}), slice_thickness=given)
    assert result.meta["slice_thickness"] == pytest.approx(given)
    said = [r.message for r in log.records if r.levelno == logging.WARNING]
    assert len(said) == len(result.meta["warnings"]) == warns
    for line, kept in zip(said, result.meta["warnings"]):
        assert line == f"{scan}: {kept}"
        assert f"{given:g} mm is given and used" in line and "scan.json says 4 mm" in line


def test_the_thickness_of_a_dicom_header_is_used_and_named(log):
    facts = {"filename_or_obj": "series", "stated": {"slice_thickness": [4.0, "the DICOM header"]}}
    volume = MetaTensor(torch.rand(1, 6, 7, 5), affine=torch.from_numpy(AXIAL), meta=facts)
    result = door_for(volume)
    assert result.meta["slice_thickness"] == 4.0 and result.meta["slice_spacing"] == 5.0
    assert result.meta["assumed"]["slice_thickness"] == "the DICOM header"
    assert "thickness 4 mm (from the DICOM header)" in log.messages[-1]


def test_a_dicom_header_without_thickness_leaves_the_spacing():
    facts = {"filename_or_obj": "series", "stated": {}}
    volume = MetaTensor(torch.rand(1, 6, 7, 5), affine=torch.from_numpy(AXIAL), meta=facts)
    assert door_for(volume).meta["slice_thickness"] == pytest.approx(5)


@pytest.mark.parametrize("name", ["a.nii.gz", "a.nii", "sub-01_acq-x.y_T2w.nii.gz"])
def test_a_sidecar_has_the_name_of_its_scan(name, tmp_path):
    path = tmp_path / name
    assert sidecar_thickness(path) == (None, "")
    stem = name.removesuffix(".gz").removesuffix(".nii")
    (tmp_path / f"{stem}.json").write_text('{"SliceThickness": 4.5}')
    (tmp_path / "b.json").write_text('{"SliceThickness": 9}')
    assert sidecar_thickness(path) == (4.5, f"the sidecar {tmp_path / stem}.json")


@pytest.mark.parametrize("ending", ["mgz", "nrrd", "mha"])
def test_scans_of_other_formats_have_sidecars_as_well(ending, tmp_path):
    """dcm2niix writes one beside NRRD files too."""
    (tmp_path / "a.json").write_text('{"SliceThickness": 4.5}')
    assert sidecar_thickness(tmp_path / f"a.{ending}")[0] == 4.5


def test_a_sidecar_without_thickness_leaves_the_spacing(scan, log):
    result = door(add_sidecar(scan, {"EchoTime": 0.1}))
    assert result.meta["slice_thickness"] == pytest.approx(5)
    assert "from the slice spacing" in log.text


@pytest.mark.parametrize(
    ("spacing", "target"),
    [
        ((1.0, 1.1, 5.0), 1.0),
        ((1.2, 0.9, 5.0), 0.9),
        ((0.4, 0.5, 5.0), LOW),
        ((2.0, 2.0, 5.0), HIGH),
        ((LOW, LOW, 4.0), LOW),
    ],
)
def test_target_is_the_finer_in_plane_spacing_within_the_trained_range(spacing, target, write_nifti, log):
    result = door(write_nifti(texture((5, 5, 5)), np.diag([*spacing, 1.0])))
    assert result.meta["target_thickness"] == pytest.approx(target, abs=1e-6)
    assert not [r for r in log.records if r.levelno >= logging.WARNING]  # a default never warns
    assert f"target {target:.3g} mm" in log.text


@pytest.mark.parametrize("target", [0.5, 0.69, 1.31, 3.0])
def test_a_target_outside_the_trained_range_warns_and_is_used(target, scan, log):
    result = door(scan, target_thickness=target)
    assert result.meta["target_thickness"] == pytest.approx(target)
    (warning,) = [r.message for r in log.records if r.levelno == logging.WARNING]
    assert f"{target:g} mm" in warning and "0.7 to 1.3 mm" in warning and "expect" in warning and str(scan) in warning


@pytest.mark.parametrize("target", [0.7, 1.0, 1.3])
def test_a_target_inside_the_trained_range_is_used_without_warning(target, scan, log):
    assert door(scan, target_thickness=target).meta["target_thickness"] == pytest.approx(target)
    assert [r.levelno for r in log.records] == [logging.INFO]


@pytest.mark.parametrize(("thickness", "warns"), [(6.9, False), (7.0, False), (7.5, True), (10.0, True)])
def test_slices_thicker_than_trained_warn(thickness, warns, scan, log):
    assert door(scan, slice_thickness=thickness).meta["slice_thickness"] == thickness
    warnings = [r.message for r in log.records if r.levelno == logging.WARNING]
    assert len(warnings) == warns
    for warning in warnings:
        assert f"{thickness:g} mm" in warning and "7 mm" in warning and "expect" in warning


@pytest.mark.parametrize(("thickness", "what"), [(7.0, "overlap"), (5.0, "contiguous"), (3.0, "gap")])
def test_overlap_and_gap_change_the_thickness_alone(thickness, what, scan):
    result, contiguous = door(scan, slice_thickness=thickness), door(scan)
    assert facts(result) == {**facts(contiguous), "slice_thickness": thickness}
    np.testing.assert_array_equal(result.numpy(), contiguous.numpy())
    np.testing.assert_array_equal(result.affine, contiguous.affine)


def test_overlapping_slices_at_the_target_spacing_are_not_sharp_yet(write_nifti, log):
    """1 mm apart but 4 mm thick: the grid stays, and the network is asked for the sharpness."""
    thick = texture((6, 7, 12))
    result = door(write_nifti(thick, np.eye(4)), slice_thickness=4)
    assert facts(result) == pytest.approx(
        {"slice_axis": 2, "slice_spacing": 1, "slice_thickness": 4, "target_thickness": 1}
    )
    np.testing.assert_allclose(in_units(result), thick, atol=1e-5)
    assert "copied" not in log.text


def assert_copied(path, thick, affine, log, **given):
    """The facts say, as the inferer reads them, that there is nothing to do; the grid is the scan's own."""
    result = door(path, **given)
    assert "copied" in log.text and str(path) in log.text
    assert max(result.meta["slice_spacing"], result.meta["slice_thickness"]) <= result.meta["target_thickness"]
    assert result.shape == (1, *thick.shape)
    np.testing.assert_allclose(result.affine, affine, atol=1e-5)
    np.testing.assert_allclose(in_units(result), thick, atol=1e-5)


@pytest.mark.parametrize("spacing", [0.5, 0.7, 0.9, 1.0, 1.1, 1.3])
def test_an_isotropic_scan_is_copied_with_a_note(spacing, write_nifti, log):
    thick, affine = texture((6, 7, 8)), random_affine(np.full(3, spacing), 3)
    assert_copied(write_nifti(thick, affine), thick, affine, log)


@pytest.mark.parametrize("spacing", [0.7, 0.9, 1.0, 1.1, 1.2])
@pytest.mark.parametrize("source", ["given", "sidecar"])
def test_an_isotropic_scan_of_known_thickness_is_copied_with_a_note(source, spacing, write_nifti, log):
    """1.1 mm in the float32 of a header is a little more than the 1.1 mm of a sidecar."""
    thick, affine = texture((6, 7, 8)), np.diag([spacing, spacing, spacing, 1.0])
    path = write_nifti(thick, affine)
    if source == "sidecar":
        assert_copied(add_sidecar(path, {"SliceThickness": spacing}), thick, affine, log)
    else:
        assert_copied(path, thick, affine, log, slice_thickness=spacing)


@pytest.mark.parametrize(("spacing", "thickness"), [(1.0, 1.005), (0.5, 0.7)])
def test_a_scan_said_to_be_copied_is_copied(spacing, thickness, write_nifti, log):
    """A rounded thickness, and overlapping slices as thin as the target: what the log says is what the facts say."""
    thick, affine = texture((6, 7, 8)), np.diag([spacing, spacing, spacing, 1.0])
    assert_copied(write_nifti(thick, affine), thick, affine, log, slice_thickness=thickness)


@pytest.mark.parametrize("spacing", [0.7, 0.9, 1.1, 1.2])
@pytest.mark.parametrize("source", ["given", "sidecar"])
def test_thin_slices_far_apart_are_rebuilt(source, spacing, write_nifti, log):
    """As thin as the pixels, whatever the last bit of the header's float32 says, with gaps: stage 1 alone."""
    path = write_nifti(texture((6, 7, 5)), np.diag([spacing, spacing, 5.0, 1.0]))
    if source == "sidecar":
        add_sidecar(path, {"SliceThickness": spacing})
    result = door(path, **({"slice_thickness": spacing} if source == "given" else {}))
    assert result.meta["target_thickness"] == pytest.approx(spacing)
    assert result.meta["slice_thickness"] >= result.meta["target_thickness"]
    assert result.shape[3] == round(25 / spacing)
    assert "copied" not in log.text


# --- intensities ---


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.float32, np.float64])
def test_intensities_return_to_the_scans_units(dtype, write_nifti):
    top = min(np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else 4000, 4000)
    thick = (top * texture((6, 7, 5))).astype(dtype)
    result = door(write_nifti(thick, AXIAL))
    assert result.dtype == torch.float32
    np.testing.assert_allclose(in_units(result), thick.astype(float).repeat(5, axis=2), atol=1e-5 * top)


def test_scaling_in_the_header_is_applied(tmp_path):
    thick = (100 * texture((6, 7, 5))).astype(np.int16)
    image = nib.Nifti1Image(thick, AXIAL)
    image.header.set_slope_inter(0.5, -7)
    nib.save(image, tmp_path / "scan.nii.gz")
    expected = nib.load(tmp_path / "scan.nii.gz").get_fdata()
    np.testing.assert_allclose(in_units(door(tmp_path / "scan.nii.gz")), expected.repeat(5, axis=2), atol=1e-3)


@pytest.mark.parametrize(("factor", "offset"), [(1.0, 0.0), (1e-3, 0.0), (5000.0, 200.0), (3.0, -1000.0)])
def test_the_network_sees_one_range_whatever_the_units(factor, offset, write_nifti):
    thick = texture((6, 7, 5))
    expected = door(write_nifti(thick, AXIAL)).numpy()
    result = door(write_nifti(thick * factor + offset, AXIAL)).numpy()
    np.testing.assert_allclose(result, expected, atol=2e-3)  # float32 of an offset image


def test_minimum_and_upper_percentile_become_minus_one_and_one():
    values = np.arange(10001, dtype=np.float32)
    volume = MetaTensor(torch.from_numpy(values).reshape(1, 73, 137, 1))
    result = NormalizeIntensityRanged("image")({"image": volume})["image"]
    assert result.meta["intensity_range"] == pytest.approx((0.0, 9990.0))  # the 99.9th percentile of 0 to 10000
    flat = result.numpy().ravel()
    assert flat[0] == -1 and flat[9990] == pytest.approx(1, abs=1e-6)
    assert flat[10000] == pytest.approx(2 * 10000 / 9990 - 1, abs=1e-6)  # brighter voxels are not clipped
    np.testing.assert_allclose(np.diff(flat), 2 / 9990, atol=1e-6)  # linear


def test_one_bright_voxel_does_not_darken_the_rest(write_nifti):
    thick = texture((20, 20, 5))
    expected = door(write_nifti(thick, AXIAL)).numpy()
    thick[3, 3, 2] = 1e4
    result = door(write_nifti(thick, AXIAL))
    mask = result.numpy() < 2
    np.testing.assert_allclose(result.numpy()[mask], expected[mask], atol=0.01)
    assert in_units(result).max() == pytest.approx(1e4, rel=1e-5)


def test_a_volume_that_is_background_but_for_a_few_voxels_keeps_them(write_nifti):
    """The 99.9th percentile is the background here, and no range."""
    thick = np.zeros((20, 20, 5), np.float32)
    thick[3, 3, 2] = 700
    result = door(write_nifti(thick, AXIAL))
    assert result.min() == -1 and result.max() == pytest.approx(1)
    np.testing.assert_allclose(in_units(result), thick.repeat(5, axis=2), atol=1e-3)


@pytest.mark.parametrize("value", [0, 7, -300, 1e6])
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_a_constant_volume_passes_through(dtype, value, write_nifti):
    thick = np.full((6, 7, 5), value, dtype)
    result = door(write_nifti(thick, AXIAL))
    assert (result == -1).all()
    np.testing.assert_array_equal(in_units(result), thick.repeat(5, axis=2))


def test_normalisation_is_of_the_thick_scan_not_of_its_copies(write_nifti):
    """A ratio that is no integer repeats some slices more often; the range must not depend on that."""
    thick = texture((6, 7, 5)) * np.array([1, 9, 2, 3, 4], np.float32)
    low, high = door(write_nifti(thick, np.diag([0.9, 0.9, 5.5, 1.0]))).meta["intensity_range"]
    assert (low, high) == pytest.approx((thick.min(), np.percentile(thick, 99.9)))


# --- reconciling with the slices ---


def door_and_back(path, **given):
    """What the deployed steps make of a file, without the network: the re-gridded slices, moved onto the slices."""
    parser = ConfigParser()
    parser.read_config(str(CONFIG))
    parser.update(given)
    data = parser.get_parsed_content("preprocessing")({"image": str(path)})
    data["pred"] = data["image"]
    return data, parser.get_parsed_content("postprocessing")(data)["pred"]


@pytest.mark.parametrize("order", ORDERS)
def test_the_deployed_steps_end_with_reconciling(order, write_nifti):
    edges = np.array([1.0, 1.0, 5.0])[list(order)]
    ramps = 100 + np.arange(20.0)[:, None, None] * [[-3, 9, 4, -5, 8, -1]] * np.ones((1, 18, 1))  # no noise in a slice
    path = write_nifti(ramps.astype(np.float32).transpose(order), np.diag([*edges, 1.0]))
    data, result = door_and_back(path)
    nearest, axis = in_units(data["image"]), order.index(2)
    expected = reconcile(torch.from_numpy(nearest), data["measured"].as_tensor()[0], axis, 1.0, 5.0, 5.0)
    torch.testing.assert_close(result.as_tensor()[0], expected, rtol=1e-5, atol=1e-3)
    assert np.abs(expected.numpy() - nearest).max() > 1
    assert result.meta["slice_axis"] == axis
    np.testing.assert_allclose(result.affine, data["image"].affine)


def test_without_the_projection_the_volume_stays_as_it_is(write_nifti):
    data, result = door_and_back(write_nifti(texture((20, 18, 6)), AXIAL), consistency="measure")
    np.testing.assert_allclose(result.numpy()[0], in_units(data["image"]), rtol=1e-6)


def test_an_isotropic_scan_is_not_moved(write_nifti):
    data, result = door_and_back(write_nifti(texture((20, 18, 16)), np.eye(4)), slice_axis=2)
    np.testing.assert_allclose(result.numpy()[0], in_units(data["image"]), rtol=1e-6)


def test_consistency_is_one_of_two():
    with pytest.raises(InputError, match="consistency is 'off': expected measure or project"):
        ReconcileSlicesd("pred", "measured", "off", 4.0)


# --- bad input ---


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinite_voxels_are_refused_and_counted(value, write_nifti):
    thick = texture((6, 7, 5))
    thick[2, 3, 1:4] = value
    text = refusal(door, write_nifti(thick, AXIAL))
    assert "scan.nii.gz has 3 NaN or infinite voxels" in text


@pytest.mark.parametrize("value", [0, -1, "-5", "abc", "", float("nan"), "nan", float("inf"), True, [5], {}])
@pytest.mark.parametrize("name", ["slice_thickness", "target_thickness"])
def test_a_length_that_is_none_is_refused(name, value, scan):
    text = refusal(door, scan, **{name: value})
    assert text.startswith(f"{name} is {value!r}") and "positive number of millimetres" in text and f"--{name}" in text


@pytest.mark.parametrize("value", [3, -1, "z", "2", True, 1.5, 1.0, [1]])
def test_an_axis_that_is_none_is_refused(value, scan):
    text = refusal(door, scan, slice_axis=value)
    assert text.startswith(f"slice_axis is {value!r}") and "0, 1 or 2" in text


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_an_axis_is_taken_as_it_is_given(axis, write_nifti):
    path = write_nifti(texture((6, 7, 5)), np.diag([2.0, 2.0, 2.0, 1.0]))
    assert door(path, slice_axis=axis).meta["slice_axis"] == axis


@pytest.mark.parametrize(("thickness", "target"), [(0.5, None), (0.95, 1.0), (2, 3)])
@pytest.mark.parametrize("source", ["given", "sidecar"])
def test_slices_thinner_than_the_target_are_refused(source, thickness, target, scan):
    if source == "sidecar":
        add_sidecar(scan, {"SliceThickness": thickness})
    given = {"slice_thickness": thickness} if source == "given" else {}
    text = refusal(door, scan, target_thickness=target, **given)
    assert str(scan) in text and f"{thickness:g} mm" in text and f"{target or 1:g} mm" in text
    assert source in text and "--slice_thickness" in text and "--target_thickness" in text


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_too_few_slices_are_refused(axis, count, write_nifti):
    shape, spacing = [6, 6, 6], [1.0, 1.0, 1.0]
    shape[axis], spacing[axis] = count, 5.0
    text = refusal(door, write_nifti(texture(shape), np.diag([*spacing, 1.0])))
    assert f"has {count} slices along axis {axis}" in text and "3 or more" in text and "--slice_axis" in text


def test_three_slices_are_enough(write_nifti):
    assert door(write_nifti(texture((6, 6, 3)), AXIAL)).shape == (1, 6, 6, 15)


@pytest.mark.parametrize(
    "content",
    ["{", "[4]", "4", '{"SliceThickness": "thick"}', '{"SliceThickness": [4]}', '{"SliceThickness": {}}', ""],
)
def test_a_broken_sidecar_is_refused(content, scan):
    text = refusal(door, add_sidecar(scan, content))
    assert "scan.json: SliceThickness" in text and "remove it" in text


@pytest.mark.parametrize("value", ["NaN", "Infinity", "true", "0", "-4"])
def test_a_sidecar_thickness_that_is_no_length_is_refused(value, scan):
    """It is the sidecar that is wrong, and the message has to name it."""
    text = refusal(door, add_sidecar(scan, f'{{"SliceThickness": {value}}}'))
    assert "scan.json" in text and "SliceThickness" in text


def test_a_sidecar_of_other_bytes_is_refused(scan):
    scan.with_name("scan.json").write_bytes(b"\xff\xfe\x00")
    assert "scan.json" in refusal(door, scan)


def test_the_users_thickness_makes_a_broken_sidecar_irrelevant(scan):
    assert door(add_sidecar(scan, "{"), slice_thickness=4).meta["slice_thickness"] == 4
