"""Many scans: none stops another, none is done twice, and nothing partial is ever taken for complete."""

import csv
import json
import logging
import math
import multiprocessing
import os
import signal
import time
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch

from scripts.cohort import SUMMARY, Output, complete, sha256
from scripts.consistency import reconcile
from scripts.errors import InputError, input_error
from tests.dicom_files import images_of, mr_slices, save

AXIAL = np.diag([1.0, 1.0, 4.0, 1.0])


def texture(shape=(6, 7, 5), seed=0):
    return (1000 * np.random.default_rng(seed).random(shape)).astype(np.float32)


def nan_scan():
    bad = texture()
    bad[0, 0, 0] = np.nan
    return bad


def results(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.nii.gz"))


def hidden(folder):
    return [p.name for p in folder.rglob(".*")]


def summary(folder):
    with open(folder / "summary.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def outcomes(folder):
    return [row["outcome"] for row in summary(folder)]


def record(folder, name="scan"):
    return json.loads((folder / f"{name}_sr.json").read_text(encoding="utf-8"))


@pytest.fixture
def scan(write_nifti):
    return write_nifti(texture(), AXIAL)


@pytest.fixture
def folder(write_nifti):
    """Three good scans."""
    for seed, name in enumerate("abc"):
        path = write_nifti(texture(seed=seed), AXIAL, f"scans/{name}.nii.gz")
    return path.parent


# --- what is written ---


def test_a_scan_leaves_its_result_its_record_and_a_summary(scan, bundle):
    bundle(scan)
    assert {p.name for p in bundle.out.iterdir()} == {"scan_sr.nii.gz", "scan_sr.json", "summary.csv"}
    bundle(scan, report=True)
    names = {"scan_sr.nii.gz", "scan_sr.json", "scan_sr.html", "summary.csv"}
    assert {p.name for p in bundle.out.iterdir()} == names
    assert record(bundle.out)["Results"] == ["scan_sr.nii.gz", "scan_sr.html"]


def test_the_record_says_what_was_done_with_what(scan, bundle):
    scan.with_name("scan.json").write_text('{"SliceThickness": 3}')
    bundle(scan, target_thickness=0.8)
    content = record(bundle.out)
    assert content["Sources"] == [str(scan), str(scan.with_name("scan.json"))]
    assert content["InputSHA256"] == sha256(content["Sources"]) and content["WeightsSHA256"] == sha256([bundle.weights])
    assert content["SliceThickness"] == content["SpacingBetweenSlices"] == pytest.approx(0.8)
    facts = content["Facts"]
    assert facts["slice thickness"] == ["3 mm", f"the sidecar {scan.with_name('scan.json')}"]
    assert facts["slice spacing"] == ["4 mm", "the affine"] and facts["gap"][0] == "1 mm"
    assert facts["slice axis"] == ["2", "the largest spacing"] and facts["target thickness"] == ["0.8 mm", "given"]
    assert facts["Euler steps N"] == ["1", "AIS, PAD = 0.733"]  # round(2 x 0.733): the test's n_max is 2
    assert "estimated, not measured" in content["Description"]


def test_the_summary_has_a_row_for_each_scan_and_a_column_for_each_fact(write_nifti, bundle):
    good = write_nifti(texture(), AXIAL, "scans/a, b.nii.gz")  # a comma in its name
    bad = write_nifti(nan_scan(), AXIAL, "scans/c.nii.gz")
    warned = write_nifti(texture((5, 6, 7)), np.diag([8.5, 1.0, 1.0, 1.0]), "scans/d\u00e9.nii")
    with pytest.raises(SystemExit):
        bundle(good.parent)
    first, second, third = summary(bundle.out)
    assert list(first) == SUMMARY
    expected = "input result outcome slice_axis slice_thickness slice_spacing target_thickness steps seconds"
    assert set(f"{expected} consistency warnings".split()) == set(SUMMARY)
    assert first["input"] == str(good) and first["result"] == str(bundle.out / "a, b_sr.nii.gz")
    assert [first[k] for k in ("slice_axis", "slice_thickness", "slice_spacing", "target_thickness", "steps")] == [
        *("2", "4.0", "4.0", "1.0", "2")
    ]
    assert float(first["seconds"]) >= 0 and 0 < float(first["consistency"]) < 1 and first["warnings"] == ""
    assert second["input"] == str(bad) and second["outcome"] == "failed" and "has 1 NaN" in second["warnings"]
    assert all(second[k] == "" for k in SUMMARY if k not in ("input", "outcome", "warnings"))
    assert third["input"] == str(warned) and third["slice_axis"] == "0" and "thicker than" in third["warnings"]


def test_every_warning_is_kept(scan, bundle):
    scan.with_name("scan.json").write_text('{"SliceThickness": 4}')
    bundle(scan, slice_thickness=8, target_thickness=1.4)
    (row,) = summary(bundle.out)
    assert len(row["warnings"].split(" | ")) == 3
    for words in ("1.4 mm is outside", "is given and used", "thicker than"):
        assert words in row["warnings"]


@pytest.mark.parametrize("axis", [0, 1, 2])
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


# --- failures ---


@pytest.mark.parametrize("bad", ["a", "b", "c", "ab"])
def test_every_good_scan_is_rebuilt_wherever_the_bad_ones_stand(bad, bundle, write_nifti):
    for name in "abcd":
        path = write_nifti(nan_scan() if name in bad else texture(), AXIAL, f"scans/{name}.nii.gz")
    with pytest.raises(SystemExit, match=f"{len(bad)} of 4 scans failed"):  # Python prints it and exits with 1
        bundle(path.parent)
    assert results(bundle.out) == [f"{name}_sr.nii.gz" for name in "abcd" if name not in bad]
    assert outcomes(bundle.out) == ["failed" if name in bad else "rebuilt" for name in "abcd"]


def test_a_mistake_is_told_once_in_one_line(bundle, write_nifti, log, capfd):
    """Not one for each engine and transform that it went through."""
    path = write_nifti(nan_scan(), AXIAL)
    with pytest.raises(SystemExit, match="1 of 1 scans failed"):
        bundle(path)
    (error,) = [r for r in log.records if r.levelno >= logging.ERROR]
    assert error.message.startswith(f"error: {path} has 1 NaN")
    assert error.exc_info is None and "\n" not in error.message
    assert "Traceback" not in log.text + "".join(capfd.readouterr())
    assert results(bundle.out) == [] and not list(bundle.out.glob("*.json"))


def test_a_truncated_scan_does_not_stop_the_rest(bundle, write_nifti):
    path = write_nifti(texture((30, 30, 5)), AXIAL, "scans/a.nii.gz")
    path.write_bytes(path.read_bytes()[:-2000])
    write_nifti(texture(), AXIAL, "scans/b.nii.gz")
    with pytest.raises(SystemExit, match="1 of 2"):
        bundle(path.parent)
    assert results(bundle.out) == ["b_sr.nii.gz"]


def assert_told_without_a_trace(log, *words):
    (error,) = [r for r in log.records if r.levelno >= logging.ERROR]
    assert error.exc_info is None and "\n" not in error.message
    for word in words:
        assert word in error.message


def test_a_result_that_cannot_be_written_leaves_no_half_and_is_told_in_one_line(bundle, folder, log):
    (bundle.out / "b_sr.nii.gz").mkdir(parents=True)  # the name is taken by a folder
    with pytest.raises(SystemExit, match="1 of 3"):
        bundle(folder)
    assert hidden(bundle.out) == [] and not (bundle.out / "b_sr.json").exists()
    assert outcomes(bundle.out) == ["rebuilt", "failed", "rebuilt"]
    assert_told_without_a_trace(log, "b_sr.nii.gz")


def test_a_scan_that_is_not_there_is_told_by_name(bundle, folder, log):
    """A link to nothing, such as a file of git-annex that was not fetched."""
    (folder / "b.nii.gz").unlink()
    (folder / "b.nii.gz").symlink_to("nowhere.nii.gz")
    with pytest.raises(SystemExit, match="1 of 3"):
        bundle(folder)
    assert_told_without_a_trace(log, "b.nii.gz")
    assert outcomes(bundle.out) == ["rebuilt", "failed", "rebuilt"]


@pytest.mark.parametrize("taken", ["out", "out/summary.csv"])
def test_an_output_folder_that_cannot_be_written_to_is_told_in_one_line(taken, bundle, scan, log):
    """A file where the folder should be, and a folder where the summary should be."""
    if taken == "out":
        bundle.out.write_text("mine")
    else:
        (bundle.out.parent / taken).mkdir(parents=True)
    with pytest.raises(BaseException) as ended:
        bundle(scan)
    mistake = input_error(ended.value)
    assert mistake is not None or isinstance(ended.value, SystemExit)
    assert taken in str(mistake) + log.text
    assert all(r.exc_info is None for r in log.records)


def test_dicom_cannot_be_written_of_a_scan_that_came_as_nifti(scan, bundle, log):
    with pytest.raises(SystemExit, match="1 of 1"):
        bundle(scan, output_format="dicom")
    assert_told_without_a_trace(log, "scan.nii.gz is not DICOM", "--output_format")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_format": "nrrd"}, "format is 'nrrd': expected nifti or dicom"),
        ({"consistency": "off"}, "consistency is 'off': expected measure or project"),
        ({"report": "maybe"}, "report is 'maybe': expected true or false"),
        ({"profile": "box"}, "slice profile is 'box'"),
        ({"profile": 1}, "slice profile is 1"),
        ({"profile": True}, "slice profile is True"),
    ],
)
def test_an_option_that_is_none_is_refused_before_anything_is_written(options, message, scan, bundle):
    with pytest.raises(Exception) as caught:
        bundle(scan, **options)
    assert message in str(input_error(caught.value)) and "\n" not in str(input_error(caught.value))
    assert not bundle.out.exists()


def test_scans_of_one_name_in_different_folders_do_not_overwrite_each_other(bundle, write_nifti):
    """A data set with a folder for each subject: as many results as scans."""
    for seed, subject in enumerate(("sub-1", "sub-2")):
        path = write_nifti(texture(seed=seed), AXIAL, f"scans/{subject}/T1w.nii.gz")
    bundle(path.parents[1])
    first, second = (nib.load(bundle.out / name).get_fdata() for name in results(bundle.out))
    assert np.abs(first - second).max() > 1


# --- second runs ---


def test_a_second_run_skips_what_is_complete(folder, bundle):
    bundle(folder)
    before = {p: p.stat().st_mtime_ns for p in bundle.out.rglob("*_sr.*")}
    first = summary(bundle.out)
    bundle(folder)
    assert {p: p.stat().st_mtime_ns for p in bundle.out.rglob("*_sr.*")} == before
    assert outcomes(bundle.out) == ["complete already"] * 3
    assert [{**row, "outcome": "rebuilt"} for row in summary(bundle.out)] == first


def test_a_second_run_does_only_what_is_new_and_what_failed(folder, bundle, write_nifti):
    write_nifti(nan_scan(), AXIAL, "scans/b.nii.gz")
    with pytest.raises(SystemExit):
        bundle(folder)
    write_nifti(texture(), AXIAL, "scans/b.nii.gz")
    write_nifti(texture(), AXIAL, "scans/d.nii.gz")
    bundle(folder)
    assert outcomes(bundle.out) == ["complete already", "rebuilt", "complete already", "rebuilt"]


def test_a_failure_that_is_not_mended_fails_again(folder, bundle, write_nifti):
    write_nifti(nan_scan(), AXIAL, "scans/b.nii.gz")
    for _ in range(2):
        with pytest.raises(SystemExit, match="1 of 3"):
            bundle(folder)
    assert outcomes(bundle.out) == ["complete already", "failed", "complete already"]


@pytest.mark.parametrize(
    "changed",
    [
        {"slice_thickness": 3},
        {"target_thickness": 0.9},
        {"slice_axis": 2},
        {"both_planes": False},
        {"consistency": "measure"},
        {"profile": "gaussian"},
        {"report": True},
        {"trained_target": [1.2, 1.3]},
        {"inferer::steps": 1},
        {"inferer::roi_size": 32},
        {"inferer::overlap": 0.5},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_changed_setting_redoes(changed, scan, bundle):
    bundle(scan)
    bundle(scan, **changed)
    assert outcomes(bundle.out) == ["rebuilt"]
    bundle(scan, **changed)
    assert outcomes(bundle.out) == ["complete already"]


def test_a_setting_that_changes_no_result_redoes_nothing(scan, bundle):
    bundle(scan)
    bundle(scan, **{"inferer::progress": True, "inferer::sw_batch_size": 2})
    assert outcomes(bundle.out) == ["complete already"]


def test_changed_weights_redo(scan, bundle):
    bundle(scan)
    weights = torch.load(bundle.weights, weights_only=True)
    weights["apn.unet.conv_out.bias"] += 0.5
    torch.save(weights, bundle.weights)
    bundle(scan)
    assert outcomes(bundle.out) == ["rebuilt"]


def test_the_same_weights_elsewhere_redo_nothing(scan, bundle):
    bundle(scan)
    bundle.weights.rename(bundle.weights.with_name("moved.pt"))
    bundle(scan, ckpt_path=str(bundle.weights.with_name("moved.pt")))
    assert outcomes(bundle.out) == ["complete already"]


def test_a_changed_input_redoes_whatever_its_time_says(scan, bundle, write_nifti):
    bundle(scan)
    times = scan.stat()
    write_nifti(texture(seed=1), AXIAL)
    os.utime(scan, ns=(times.st_atime_ns, times.st_mtime_ns))
    bundle(scan)
    assert outcomes(bundle.out) == ["rebuilt"]
    scan.touch()
    bundle(scan)
    assert outcomes(bundle.out) == ["complete already"], "a new time alone is no change"


def test_a_changed_sidecar_redoes(scan, bundle):
    sidecar = scan.with_name("scan.json")
    bundle(scan)
    for content in ('{"SliceThickness": 3}', '{"SliceThickness": 3.5}', None):
        if content is None:
            sidecar.unlink()
        else:
            sidecar.write_text(content)
        bundle(scan)
        assert outcomes(bundle.out) == ["rebuilt"]
    bundle(scan)
    assert outcomes(bundle.out) == ["complete already"]


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b"{}", b"[]", b"null", b"\xff\xfe", 0.5, 0.99], ids=lambda c: str(c)
)
def test_a_missing_or_broken_record_redoes(content, scan, bundle):
    bundle(scan)
    path = bundle.out / "scan_sr.json"
    good = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content if isinstance(content, bytes) else good[: int(content * len(good))])
    bundle(scan)
    assert outcomes(bundle.out) == ["rebuilt"]
    assert json.loads(path.read_text())["Results"] == ["scan_sr.nii.gz"]


@pytest.mark.parametrize("name", ["scan_sr.nii.gz", "scan_sr.html"])
def test_a_missing_result_redoes(name, scan, bundle):
    bundle(scan, report=True)
    (bundle.out / name).unlink()
    bundle(scan, report=True)
    assert outcomes(bundle.out) == ["rebuilt"] and (bundle.out / name).is_file()


def test_a_result_without_a_record_is_replaced(scan, bundle):
    bundle.out.mkdir()
    (bundle.out / "scan_sr.nii.gz").write_bytes(b"old")
    bundle(scan)
    assert outcomes(bundle.out) == ["rebuilt"]
    assert nib.load(bundle.out / "scan_sr.nii.gz").shape == (6, 7, 20)


def test_an_old_record_does_not_outlive_a_failure(scan, bundle, write_nifti):
    """Else a result of other voxels would count once the old ones are back."""
    bundle(scan)
    write_nifti(nan_scan(), AXIAL)
    with pytest.raises(SystemExit):
        bundle(scan)
    assert not (bundle.out / "scan_sr.json").exists()


def test_complete_asks_for_every_key_and_every_file(tmp_path):
    stem = tmp_path / "a_sr"
    assert complete(stem, {}) is None
    (tmp_path / "a_sr.json").write_text('{"InputSHA256": "x", "Results": ["a_sr.nii.gz"]}')
    assert complete(stem, {"InputSHA256": "x"}) is None
    (tmp_path / "a_sr.nii.gz").touch()
    assert complete(stem, {"InputSHA256": "x"})["Results"] == ["a_sr.nii.gz"]
    assert complete(stem, {"InputSHA256": "y"}) is None
    assert complete(stem, {"InputSHA256": "x", "Version": "1"}) is None


# --- interrupted, and two at once ---


@pytest.fixture
def many(write_nifti):
    """Eight scans, each of them some windows long."""
    for k in range(8):
        path = write_nifti(texture((20, 20, 6), seed=k), AXIAL, f"scans/{k}.nii.gz")
    return path.parent


@pytest.fixture
def expected(many, bundle):
    """The results of a run that nobody disturbs: name -> voxels."""
    bundle(many, output_dir=str(bundle.out.parent / "undisturbed"))
    return voxels(bundle.out.parent / "undisturbed")


def voxels(folder):
    names = [name for name in results(folder) if not name.startswith(".")]
    return {name: np.asarray(nib.load(folder / name).dataobj) for name in names}


def start(function, *args, **kwargs):
    """In a process of its own, forked: it needs no second start of Python."""
    process = multiprocessing.get_context("fork").Process(target=function, args=args, kwargs=kwargs)
    process.start()
    return process


def assert_same(found, expected):
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name])


def recorded(folder):
    return [path.name.removesuffix(".json") for path in folder.glob("[!.]*_sr.json")]


def test_nothing_partial_is_taken_for_complete_after_kill_9(many, expected, bundle):
    """Killed again and again, each time a little later in a scan: what has a record is whole, and nothing is lost."""
    killed = done = 0
    for delay in (0, 10, 20, 30, 40, 50, 60):  # ms after the next record
        process = start(bundle, many)
        while process.is_alive() and len(recorded(bundle.out)) <= done:
            time.sleep(0.001)
        time.sleep(delay / 1000)
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
        names = recorded(bundle.out)
        assert len(names) >= done, "what is done stays done"
        done = len(names)
        for name in names:
            array = np.asarray(nib.load(bundle.out / f"{name}.nii.gz").dataobj)
            np.testing.assert_array_equal(array, expected[f"{name}.nii.gz"])
        if (bundle.out / "summary.csv").is_file():
            assert set(outcomes(bundle.out)) <= {"rebuilt", "complete already"}
    assert killed >= 3
    bundle(many)
    assert len(summary(bundle.out)) == 8 and "failed" not in outcomes(bundle.out)
    assert outcomes(bundle.out).count("complete already") == done
    found = voxels(bundle.out)
    assert found.keys() == expected.keys()
    assert_same(found, expected)


def test_two_runs_at_once_on_one_folder_leave_every_scan_complete(many, expected, bundle):
    runs = [start(bundle, many), start(bundle, many)]
    for process in runs:
        process.join(120)
    assert [process.exitcode for process in runs] == [0, 0]
    found = voxels(bundle.out)
    assert found.keys() == expected.keys() and hidden(bundle.out) == []
    assert_same(found, expected)
    assert len(summary(bundle.out)) == 8
    bundle(many)
    assert outcomes(bundle.out) == ["complete already"] * 8


# --- agreement with the measurement, pages ---


def number(folder):
    return record(folder)["Summary"]["consistency"]


def test_projection_is_the_default_and_brings_the_result_nearer_to_the_measurement(write_nifti, bundle):
    ramps = 500 + np.arange(20.0)[:, None, None] * [[-9, 90, 40, -20, 80]] * np.ones((1, 18, 1))  # no noise in a slice
    scan = write_nifti(ramps.astype(np.float32), AXIAL)
    bundle(scan, consistency="measure")
    measured, before = number(bundle.out), nib.load(bundle.out / "scan_sr.nii.gz").get_fdata()
    bundle(scan)
    after = nib.load(bundle.out / "scan_sr.nii.gz")
    assert number(bundle.out) < measured
    assert after.shape == before.shape and np.abs(after.get_fdata() - before).max() > 1
    expected = reconcile(torch.from_numpy(before), torch.from_numpy(ramps), 2, 1.0, 4.0, 4.0)
    np.testing.assert_allclose(after.get_fdata(), expected, atol=0.05)


@pytest.mark.parametrize("profile", [2.5, "gaussian", "rectangular"])
def test_the_profile_is_part_of_the_measurement(profile, scan, bundle):
    bundle(scan)
    first = number(bundle.out)
    bundle(scan, profile=profile)
    assert number(bundle.out) != first
    assert str(profile) in record(bundle.out)["Facts"]["slice profile"][0]


def test_a_constant_scan_has_no_number(write_nifti, bundle):
    bundle(write_nifti(np.full((6, 7, 5), 300, np.int16), AXIAL), report=True)
    assert record(bundle.out)["Summary"]["consistency"] is None
    assert summary(bundle.out)[0]["consistency"] == ""
    assert math.nan not in record(bundle.out)["Summary"].values()
    page = (bundle.out / "scan_sr.html").read_text(encoding="utf-8")
    assert "nan %" not in page and "Agreement with the measurement" in page


def test_a_scan_at_the_target_agrees_with_itself(write_nifti, bundle):
    bundle(write_nifti(texture((6, 7, 8)), np.eye(4)), report=True)
    assert number(bundle.out) < 1e-3
    assert record(bundle.out)["Summary"]["steps"] == 0


def test_the_page_says_what_the_record_says(scan, bundle):
    scan.with_name("scan.json").write_text('{"SliceThickness": 3}')
    bundle(scan, report=True, slice_thickness=3.5)
    page, content = (bundle.out / "scan_sr.html").read_text(encoding="utf-8"), record(bundle.out)
    for value, source in content["Facts"].values():
        assert f"<td>{value}</td>" in page and source.split("/")[0] in page
    assert f"{100 * content['Summary']['consistency']:.2f}"[:4] in page
    assert content["WeightsSHA256"] in page and content["Version"] in page
    assert content["Summary"]["warnings"] in page


# --- DICOM ---


@pytest.fixture
def series(tmp_path):
    return save(tmp_path / "dicom", mr_slices((1000 * np.random.default_rng(0).random((12, 10, 6))).astype(np.uint16)))


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


def test_a_second_run_skips_a_complete_series(series, bundle):
    for outcome in ("rebuilt", "complete already"):
        bundle(series, output_format="dicom")
        assert outcomes(bundle.out) == [outcome]
    bundle(series)
    assert outcomes(bundle.out) == ["rebuilt"]


def test_a_folder_may_hold_dicom_and_nifti(series, bundle, write_nifti):
    write_nifti(texture(), AXIAL, "dicom/scan.nii.gz")
    bundle(series)
    assert len(results(bundle.out)) == 2
    with pytest.raises(SystemExit, match="1 of 2"):
        bundle(series, output_format="dicom")
    assert sorted(outcomes(bundle.out)) == ["failed", "rebuilt"]


@pytest.mark.parametrize("name", ["", "in"])
def test_results_beside_the_scans_are_not_scans(name, write_nifti, bundle):
    """The output folder is the input folder, or inside it."""
    path = write_nifti(texture(), AXIAL, "in/scan.nii.gz")
    for outcome in ("rebuilt", "complete already"):
        bundle(path.parent, output_dir=str(path.parent / name / "out") if name else str(path.parent), report=True)
        assert outcomes(next(Path(path.parent).rglob("summary.csv")).parent) == [outcome]


def test_output_knows_what_it_may_be():
    with pytest.raises(InputError, match="format is 'png'"):
        Output("out", "png", 4.0, False, {}, "model.pt", "1")
