"""A result on disk: what its header, its record and its page say."""

import json
import math
from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.inputs.scan import Scan
from scripts.method.origin import Origin
from scripts.outputs import bids
from scripts.outputs.record import describe
from scripts.outputs.results import nifti_image
from scripts.rebuild.consistency import reconcile
from scripts.rebuild.error_map import ErrorMaps
from scripts.rebuild.rebuilt import Rebuilt
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from tests.cohort_files import AXIAL, outcomes, record, summary, texture
from tests.dicom_files import images_of
from tests.volumes import scan_of, smooth_head


@pytest.mark.parametrize("axis", [0, 2])
def test_the_results_header_agrees_with_itself(axis, bundle, write_nifti):
    """Two affines and the zooms say one thing, wherever another program looks."""
    affine = np.diag([-1.0, 1.0, 1.0, 1.0])[[1, 2, 0, 3]]
    affine[:3, axis] *= 4
    affine[:3, 3] = 11.5, -7.25, 30
    shape = np.array([6, 7, 8])
    shape[axis] = 5
    bundle(write_nifti(texture(shape), affine))
    image = nib.load(bundle.out / "scan_sr.nii.gz")
    (sform, sform_code), (qform, qform_code) = image.get_sform(coded=True), image.get_qform(coded=True)
    assert sform_code > 0 and qform_code > 0
    np.testing.assert_allclose(sform, qform, atol=1e-4)
    np.testing.assert_allclose(image.header.get_zooms(), 1, atol=1e-5)
    middle, fine_middle = ((np.array(n) - 1) / 2 for n in (shape, image.shape))
    np.testing.assert_allclose(
        *(nib.affines.apply_affine(a, m) for a, m in ((affine, middle), (sform, fine_middle))), atol=1e-3
    )


@pytest.mark.parametrize(("sform", "qform"), [(0, 1), (2, 1), (0, 0)])
def test_codes_units_and_dimensions_of_the_header_survive(sform, qform, tmp_path, bundle):
    image = nib.Nifti1Image(texture(), AXIAL)
    image.set_sform(AXIAL, sform)
    image.set_qform(AXIAL, qform)
    image.header.set_dim_info(freq=1, phase=0, slice=2)
    image.header.set_xyzt_units("mm", "msec")
    nib.save(image, tmp_path / "scan.nii.gz")
    bundle(tmp_path / "scan.nii.gz")
    header = nib.load(bundle.out / "scan_sr.nii.gz").header
    default = max(sform, qform)  # a scan without a form gains no side
    assert (int(header["sform_code"]), int(header["qform_code"])) == (sform or default, qform or default)
    assert header.get_dim_info() == (1, 0, 2) and header.get_xyzt_units() == ("mm", "msec")


@pytest.mark.parametrize(("units", "expected"), [(("mm", "msec"), "msec"), ((None, "msec"), "sec")])
def test_a_unit_of_time_counts_where_the_header_has_one_of_length(units, expected):
    """A header without a unit of length is one that nobody filled in."""
    scan = nib.Nifti1Image(np.zeros((2, 2, 2)), np.eye(4))
    scan.header.set_xyzt_units(*units)
    result = MetaTensor(torch.zeros(2, 2, 2), affine=torch.eye(4))
    written = nifti_image(result, {"xyzt_units": int(scan.header["xyzt_units"])})
    assert written.header.get_xyzt_units() == ("mm", expected)


@pytest.mark.parametrize(
    ("kind", "sidecar", "stripped", "guessed"),
    [
        ('"raw"', {}, False, True),
        ('"derivative"', {}, None, False),
        ("null", {}, None, False),
        ('"raw"', {"SkullStripped": True}, True, False),
    ],
)
def test_a_record_says_of_the_skull_what_the_sidecar_says_else_that_a_raw_dataset_holds_what_was_scanned(
    kind, sidecar, stripped, guessed, tmp_path
):
    (tmp_path / "dataset_description.json").write_text(f'{{"Name": "x", "DatasetType": {kind}}}')
    (tmp_path / "sub-1_T2w.json").write_text(json.dumps(sidecar))
    (path := tmp_path / "sub-1_T2w.nii.gz").touch()
    fields, guess = bids.kept(path)
    assert fields.get("SkullStripped") is stripped and guess is guessed


def number(folder):
    return record(folder)["Summary"]["agreement"]


def test_projection_is_the_default_and_brings_the_result_nearer_to_the_measurement(write_nifti, bundle):
    ramps = 3000 + np.arange(20.0)[:, None, None] * [[-9, 90, 40, -20, 80]] * np.ones((1, 18, 1))  # no noise in a slice
    scan = write_nifti(ramps.astype(np.float32), AXIAL)
    bundle(scan, consistency="measure", deblocked="false")
    measured, before = number(bundle.out), nib.load(bundle.out / "scan_sr.nii.gz").get_fdata()
    bundle(scan, deblocked="false")
    after = nib.load(bundle.out / "scan_sr.nii.gz")
    assert number(bundle.out) < measured
    assert after.shape == before.shape and np.abs(after.get_fdata() - before).max() > 1
    acquisition = Acquisition.stack(2, 5, spacing=4.0, thickness=4.0, target=1.0)
    expected = reconcile(torch.from_numpy(before), Slices(torch.from_numpy(ramps), acquisition))
    np.testing.assert_allclose(after.get_fdata(), expected, atol=0.05)


def test_the_profile_is_part_of_the_measurement(scan, bundle):
    bundle(scan)
    first = number(bundle.out)
    bundle(scan, profile="gaussian")
    assert number(bundle.out) != first
    assert "gaussian" in record(bundle.out)["Facts"]["slice profile"][0]


def test_a_constant_scan_has_no_number(write_nifti, bundle):
    bundle(write_nifti(np.full((6, 7, 5), 300, np.int16), AXIAL), report=True)
    assert record(bundle.out)["Summary"]["agreement"] is None
    assert summary(bundle.out)[0]["agreement"] == ""
    assert math.nan not in record(bundle.out)["Summary"].values()
    page = (bundle.out / "scan_sr.html").read_text(encoding="utf-8")
    assert "nan %" not in page and "Agreement with the measurement" in page


def test_the_warnings_of_a_record_reach_the_archive_in_each_image(series, bundle):
    for thickness, warned in ((None, False), (3.0, True)):  # the header says 4 mm
        bundle(series, output_format="dicom", slice_thickness=thickness)
        (path,) = bundle.out.glob("*_sr.json")
        said, images = json.loads(path.read_text())["Warnings"], images_of(path.with_suffix(""))
        assert bool(said) == warned
        told = {str(image.get("ImageComments", "")) for image in images}
        assert told == {" ".join(f"Warning: {one.rstrip('.')}." for one in said)}


def told(measured, result, tmp_path):
    """The step ratio that the record says of a result."""
    path = tmp_path / "scan.nii.gz"
    rebuilt = Rebuilt(Slices.of(measured), MetaTensor(result, affine=measured.affine), 3, "the test")
    return describe(Scan("scan", path, (path,), path), rebuilt, ErrorMaps(), Origin.of(torch.nn.Identity()))["Summary"][
        "step_ratio"
    ]


def test_the_step_ratio_is_that_of_the_middle_third_whatever_the_units(tmp_path):
    measured = scan_of(smooth_head((48, 40, 40)))[0]
    stated = "slice_axis slice_spacing slice_thickness target_spacing".split()
    facts = replace(Acquisition.of(measured), sources=dict.fromkeys(stated, "the test"))
    facts.attach(measured)
    ramps, stairs = (interpolate(measured.as_tensor(), facts, method) for method in ("cubic", "nearest"))
    outer, middle = stairs.clone(), ramps.clone()
    outer[16:32], middle[16:32] = ramps[16:32], stairs[16:32]
    expected = told(measured, ramps, tmp_path)
    assert 0.5 < expected < 1.5 and told(measured, stairs, tmp_path) == 1000, "infinite, which JSON does not know"
    assert told(measured, outer, tmp_path) == expected and told(measured, middle, tmp_path) > 100
    for scale in (1e-20, 1e20):
        scaled = MetaTensor(scale * measured.as_tensor(), affine=measured.affine, meta=dict(measured.meta))
        assert told(scaled, scale * ramps, tmp_path) == pytest.approx(expected, rel=0.01)


def test_steps_that_the_user_gave_are_not_said_to_be_those_of_ais(scan, bundle):
    bundle(scan, **{"inferer::steps": 3})
    assert record(bundle.out)["Facts"]["steps"] == ["3", "the option inferer::steps"]


@pytest.mark.parametrize("offset", [pytest.param(-500, marks=pytest.mark.slow), 30000])
def test_integers_are_right_to_half_a_step_which_the_record_says(offset, write_nifti, bundle):
    scan = write_nifti(texture((8, 9, 6)) + offset, AXIAL)
    bundle(scan)
    exact = nib.load(bundle.out / "scan_sr.nii.gz").get_fdata()
    bundle(scan, dtype="int16")
    image = nib.load(bundle.out / "scan_sr.nii.gz")
    assert image.get_data_dtype() == np.int16 and outcomes(bundle.out) == ["rebuilt"]
    half = float(image.dataobj.slope) / 2
    assert half == pytest.approx(np.ptp(exact) / (2 * 65535), rel=0.01)
    assert np.abs(image.get_fdata() - exact).max() <= half + 1e-6 * np.abs(exact).max()
    kind, said = record(bundle.out)["Facts"]["voxels"]
    assert kind == "int16" and said.endswith(f"right to {half:.3g}")
    bundle(scan)
    assert "voxels" not in record(bundle.out)["Facts"] and outcomes(bundle.out) == ["rebuilt"]


def test_a_type_that_is_none_or_of_dicom_is_refused(scan, bundle, refusal):
    assert "dtype is 'int8': expected float32 or int16" in refusal(bundle, scan, dtype="int8")
    assert "Leave out --dtype" in refusal(bundle, scan, dtype="int16", output_format="dicom")
