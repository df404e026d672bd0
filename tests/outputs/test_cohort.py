"""Many scans: none stops another, each is told of, and other people's files are left alone."""

import gzip
import logging

import nibabel as nib
import numpy as np
import pydicom
import pytest

from scripts.files import sha256
from scripts.outputs.summary import COLUMNS
from scripts.stack.noise import Noise, band_limited, with_noise
from tests.cohort_files import AXIAL, inputs, nan_scan, outcomes, record, results, summary, texture
from tests.dicom_files import images_of
from tests.stack.test_noise import drawn, tissue


def test_the_record_says_what_was_done_with_what(scan, bundle):
    scan.with_name("scan.json").write_text('{"SliceThickness": 3}')
    bundle(scan, target_thickness=0.8)
    content = record(bundle.out)
    assert content["Sources"] == ["../scan.nii.gz", "../scan.json"], "relative to the record"
    assert content["InputSHA256"] == sha256([bundle.out / path for path in content["Sources"]])
    assert content["WeightsSHA256"] == sha256([bundle.weights])
    assert content["SliceThickness"] == content["SpacingBetweenSlices"] == pytest.approx(0.8)
    facts = content["Facts"]
    assert facts["slice thickness"] == ["3 mm", "the sidecar scan.json"]
    assert facts["slice spacing"] == ["4 mm", "the affine"] and facts["gap"][0] == "1 mm"
    assert facts["slice axis"] == ["2, axial slices", "the largest spacing"]
    assert facts["target thickness"] == ["0.8 mm", "given"]
    assert facts["steps"] == ["1", "AIS, PAD = 0.733"]  # round(2 x 0.733): the test's n_max is 2
    assert "estimated, not measured" in content["Description"]


@pytest.mark.parametrize("widths", [(1.6, 1.0), (1.4, 1.2)])
def test_a_scan_with_an_empty_part_of_k_space_says_so(widths, write_nifti, bundle):
    truth, _ = tissue((96, 110, 5))
    noise = Noise(20.0, widths)
    slices = with_noise(band_limited(truth, (0, 1), noise), (0, 1), noise, drawn(truth.shape))
    bundle(write_nifti(slices.numpy(), AXIAL))
    content = record(bundle.out)
    said, why = content["Facts"].get("acquired pixels", ("", ""))
    if widths[0] < 1.5:
        assert said == ""
    else:
        first, second = (float(one) for one in said.removesuffix(" of the image's").split(" x "))
        assert (first, second) == pytest.approx(content["Noise"]["Widths"], abs=0.06)
        assert (first, second) == pytest.approx(widths, abs=0.2) and why.endswith("k-space was filled with zeros")


def test_a_gap_that_is_rounding_is_none(write_nifti, bundle):
    path = write_nifti(texture(), np.diag([1.0, 1.0, 3.999996, 1.0]))
    path.with_name("scan.json").write_text('{"SliceThickness": 4}')
    bundle(path)
    assert record(bundle.out)["Facts"]["gap"][0] == "0 mm"


def test_the_summary_has_a_row_for_each_scan_and_a_column_for_each_fact(write_nifti, bundle):
    good = write_nifti(texture(), AXIAL, "scans/a, b.nii.gz")  # a comma in its name
    good.with_name("a, b.json").write_text('{"SliceThickness": 4}')
    bad = write_nifti(nan_scan(), AXIAL, "scans/c.nii.gz")
    warned = write_nifti(texture((5, 6, 7)), np.diag([8.5, 1.0, 1.0, 1.0]), "scans/d\u00e9.nii")
    with pytest.raises(SystemExit):
        bundle(good.parent)
    first, second, third = summary(bundle.out)
    assert list(first) == COLUMNS
    expected = "input result outcome slice_axis slice_thickness slice_spacing target_thickness steps seconds"
    looks = "agreement step_ratio streak streak_steps noise error_bar gain guide warnings"
    assert set(f"{expected} {looks}".split()) == set(COLUMNS)
    assert inputs(bundle.out) == [str(good), str(bad), str(warned)] and first["result"] == "a, b_sr.nii.gz"
    assert [first[k] for k in ("slice_axis", "slice_thickness", "slice_spacing", "target_thickness", "steps")] == [
        *("2", "4.0", "4.0", "1.0", "2")
    ]
    assert float(first["seconds"]) >= 0 and 0 < float(first["agreement"]) < 1 and first["warnings"] == ""
    assert second["outcome"] == "failed" and "has 1 NaN" in second["warnings"]
    assert all(second[k] == "" for k in COLUMNS if k not in ("input", "outcome", "warnings"))
    assert third["slice_axis"] == "0" and "thicker than" in third["warnings"]


def test_a_summary_names_no_folder_of_this_machine_and_moves_with_its_scans(scan, bundle, tmp_path, write_nifti):
    write_nifti(nan_scan(), AXIAL, "broken/b.nii.gz")
    with pytest.raises(SystemExit):
        bundle([scan, tmp_path / "broken"])
    for file in ("summary.csv", "scan_sr.json", "index.html"):
        assert str(tmp_path) not in (bundle.out / file).read_text()
    assert [row["input"] for row in summary(bundle.out)] == [f"../{scan.name}", "../broken/b.nii.gz"]
    bundle(scan)
    assert outcomes(bundle.out) == ["failed", "complete already"]
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for one in (scan, bundle.out):
        one.rename(moved / one.name)
    bundle(moved / scan.name, output_dir=str(moved / bundle.out.name))
    assert outcomes(moved / bundle.out.name) == ["failed", "complete already"]


def test_every_warning_is_kept(scan, bundle):
    scan.with_name("scan.json").write_text('{"SliceThickness": 4}')
    bundle(scan, slice_thickness=8, target_thickness=1.4)
    (row,) = summary(bundle.out)
    assert len(row["warnings"].split(" | ")) == 4
    for words in ("1.4 mm is outside", "is given and used", "thicker than", "times their thickness"):
        assert words in row["warnings"]


def test_every_good_scan_is_rebuilt_wherever_the_bad_ones_stand_and_the_log_keeps_every_run(
    folder, bundle, write_nifti
):
    for name in "ac":
        write_nifti(nan_scan(), AXIAL, f"scans/{name}.nii.gz")
    for outcome in ("rebuilt", "complete already"):
        with pytest.raises(SystemExit, match="2 of 3 scans failed"):  # Python prints it and exits with 1
            bundle(folder)
        assert results(bundle.out) == ["b_sr.nii.gz"] and outcomes(bundle.out) == ["failed", outcome, "failed"]
    told = (bundle.out / "drift.log").read_text()
    assert told.count("INFO DRIFT ") == told.count("a.nii.gz has 1 NaN") == 2 and told.count("ERROR error: ") == 4
    bundle(folder, allow_failures="true")


def assert_told_without_a_trace(log, *words):
    (error,) = [r for r in log.records if r.levelno >= logging.ERROR]
    assert error.exc_info is None and "\n" not in error.message
    for word in words:
        assert word in error.message


def test_results_are_what_their_scans_were_where_that_is_asked_for(scan, series, bundle):
    """And a second run knows both kinds for complete, whatever the option that names their kind."""
    bundle([scan, series], output_format="auto")
    assert outcomes(bundle.out) == ["rebuilt", "rebuilt"] and results(bundle.out) == ["scan_sr.nii.gz"]
    assert len([path for path in bundle.out.iterdir() if path.is_dir()]) == 1
    bundle([scan, series], output_format="auto")
    bundle(series, output_format="dicom")
    assert outcomes(bundle.out) == ["complete already", "complete already"]
    bundle(series)
    assert outcomes(bundle.out) == ["complete already", "rebuilt"], "as NIfTI"


def test_of_a_series_that_lacks_a_slice_the_longest_part_may_be_rebuilt_and_the_record_says_so(series, bundle):
    sorted(series.iterdir())[1].unlink()
    with pytest.raises(SystemExit):
        bundle(series)
    bundle(series, missing_slices="longest")
    (path,) = bundle.out.glob("*_sr.json")
    (told,) = record(bundle.out, path.name.removesuffix("_sr.json"))["Warnings"]
    assert told.startswith("1 of 6 slices are missing: 4 slices, the longest unbroken part")


def test_what_is_skipped_has_a_row_with_the_reason_and_keeps_an_earlier_result(folder, write_nifti, bundle):
    thin = write_nifti(texture((12, 12, 12)), np.eye(4), "scans/d.nii.gz")
    a, b, c = (folder / f"{name}.nii.gz" for name in "abc")
    bundle([a, b])
    bundle(c, slice_thickness=3)
    assert inputs(bundle.out) == [str(a), str(b), str(c)], "of earlier runs, too"
    assert [row["slice_thickness"] for row in summary(bundle.out)] == ["4.0", "4.0", "3.0"]
    bundle(folder)
    assert outcomes(bundle.out) == ["complete already"] * 2 + ["rebuilt", "skipped"]
    row = summary(bundle.out)[-1]
    assert (
        inputs(bundle.out)[-1] == str(thin) and row["result"] == "" and "thin or isotropic already" in row["warnings"]
    )
    assert "thin or isotropic already" in (bundle.out / "index.html").read_text()
    bundle(thin)  # given by name
    bundle(folder)
    assert sorted(outcomes(bundle.out)) == ["complete already"] * 3 + ["rebuilt"], "its result is there"


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_log_that_is_no_file_is_not_written_through_and_stops_no_run(kind, scan, bundle, tmp_path, log):
    (tmp_path / "precious").write_text("mine")
    path = bundle.out / "drift.log"
    bundle.out.mkdir()
    path.mkdir() if kind == "folder" else path.symlink_to(tmp_path / "precious")
    bundle(scan)
    assert (tmp_path / "precious").read_text() == "mine" and outcomes(bundle.out) == ["rebuilt"]
    assert any("this run keeps no log" in message for message in log.messages)


def test_a_series_that_came_another_way_gets_the_same_uids(series, bundle, tmp_path):
    """From a disk, or packed: its images have their UIDs."""
    packed = tmp_path / "packed"
    packed.mkdir()
    for path in series.iterdir():
        (packed / f"{path.name}.dcm.gz").write_bytes(gzip.compress(path.read_bytes()))
    uids = []
    for source in (series, packed):
        bundle(source, output_format="dicom", output_dir=str(tmp_path / source.name / "out"))
        found = [pydicom.dcmread(path) for path in sorted((tmp_path / source.name / "out").rglob("*.dcm"))]
        uids.append([(image.SeriesInstanceUID, image.SOPInstanceUID) for image in found])
    assert uids[0] == uids[1] and len(uids[0]) > 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_format": "nrrd"}, "format is 'nrrd': expected nifti, dicom or auto"),
        ({"consistency": "off"}, "consistency is 'off': expected measure or project"),
        ({"report": "maybe"}, "report is 'maybe': expected true or false"),
        ({"profile": "box"}, "slice profile is 'box'"),
    ],
)
def test_an_option_that_is_none_is_refused_before_anything_is_written(options, message, scan, bundle, refusal):
    assert message in refusal(bundle, scan, **options)
    assert not bundle.out.exists()


def test_dicom_comes_back_as_dicom_or_as_nifti_in_one_place(series, bundle):
    bundle(series)
    (name,) = results(bundle.out)
    nifti = nib.load(bundle.out / name)
    bundle(series, output_format="dicom", output_dir=str(bundle.out.parent / "dicom_out"))
    (folder,) = (p for p in (bundle.out.parent / "dicom_out").iterdir() if p.is_dir())
    images = images_of(folder)
    assert len(images) == nifti.shape[2] and images[0].ImageType[0] == "DERIVED"
    for k in (0, len(images) - 1):
        there = np.array(images[k].ImagePositionPatient, float) * [-1, -1, 1]
        np.testing.assert_allclose(there, nifti.affine[:3] @ [0, 0, k, 1], atol=0.01)
    middle = images[len(images) // 2]
    np.testing.assert_allclose(middle.pixel_array.T, nifti.get_fdata()[:, :, len(images) // 2], atol=1)
    row = summary(bundle.out.parent / "dicom_out")[0]
    assert row["slice_thickness"] == "4.0" and float(row["slice_spacing"]) == pytest.approx(4.8)


# --- other people's files ---


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("summary.csv", "subject,age\n01,44\n"),
        ("summary.csv", "\udcff"),
        ("dataset_description.json", '{"Name": "mine", "BIDSVersion": "1.9.0"}'),
        (".bidsignore", "mine/\n"),
    ],
)
def test_a_folder_that_holds_other_peoples_files_is_refused_and_left_as_it_is(name, content, bundle, refusal):
    """Also where the built-in sample would be written to it first."""
    bundle.out.mkdir()
    (bundle.out / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    before = (bundle.out / name).read_bytes()
    told = refusal(bundle, None)
    assert str(bundle.out) in told and "another" in told
    assert [p.name for p in bundle.out.iterdir()] == [name] and (bundle.out / name).read_bytes() == before
