"""What is learnt from is sharp: thick scans, series, constants, label maps and broken files are told, not taken."""

import json

import numpy as np
import pytest

from scripts.errors import InputError
from scripts.train.datasets import label_maps, sharp_volumes
from scripts.train.truth import check_truth
from tests.dicom_files import SHAPE
from tests.train.test_datasets import scan

SHARP = np.random.default_rng(0).random(SHAPE).astype(np.float32)


def thick(path):
    scan(path, SHARP, (0.9, 0.9, 4.0))


def overlapping(path):
    scan(path, SHARP)
    path.with_name("sub-x_T1w.json").write_text(json.dumps({"SliceThickness": 5}))


def series(path):
    scan(path, np.stack([SHARP, SHARP], axis=-1), (1, 1, 1))


def constant(path):
    scan(path, np.full_like(SHARP, 7.3))


def labels(path):
    scan(path, (4 * SHARP).astype(np.int16))


def nan(path):
    scan(path, np.where(SHARP > 0.9, np.nan, SHARP))


def empty(path):
    path.touch()


def truncated(path):
    scan(path, SHARP)
    path.write_bytes(path.read_bytes()[:-100])


BAD = {
    thick: "slices 4 mm apart: expected 1.5 mm at most",
    overlapping: "1 mm apart and 5 mm thick",
    series: "expected a 3-D volume",
    constant: "is constant, 7.3 everywhere",
    labels: "holds 4 values",
    nan: "NaN or infinite voxels",
    empty: "cannot be read",
    truncated: "cannot be read",
}
EACH = pytest.mark.parametrize(("write", "why"), BAD.items(), ids=lambda value: getattr(value, "__name__", ""))


@pytest.fixture
def folder(tmp_path):
    """Four good subjects and a place for a bad one."""
    for name in "abcd":
        scan(tmp_path / f"sub-{name}_T1w.nii.gz", SHARP)
    return tmp_path


@EACH
def test_in_a_folder_it_is_skipped_with_a_line_that_says_why(write, why, folder, log):
    good = {item["label"] for item in sharp_volumes(folder, "all")}
    path = folder / "sub-x_T1w.nii.gz"
    write(path)
    assert {item["label"] for item in sharp_volumes(folder, "all")} == good
    (line,) = [record.message for record in log.records if record.message.startswith("Skipped")]
    assert str(path) in line and why in line


@EACH
def test_in_a_datalist_it_is_refused_by_name(write, why, folder, refusal):
    write(folder / "sub-x_T1w.nii.gz")
    content = {"training": ["sub-a_T1w.nii.gz", "sub-x_T1w.nii.gz"], "validation": ["sub-b_T1w.nii.gz"]}
    (folder / "list.json").write_text(json.dumps(content))
    message = refusal(sharp_volumes, folder / "list.json", "training")
    assert "sub-x_T1w.nii.gz" in message and why in message
    assert len(sharp_volumes(folder / "list.json", "validation")) == 1


def test_a_missing_file_of_a_datalist_is_refused_by_name(folder, refusal):
    (folder / "list.json").write_text(json.dumps({"training": ["none.nii.gz"], "validation": ["sub-b_T1w.nii.gz"]}))
    assert "none.nii.gz" in refusal(sharp_volumes, folder / "list.json", "training")


def test_masks_and_maps_of_a_folder_are_known_by_their_voxels_and_not_by_their_names(folder, log):
    count = len(sharp_volumes(folder, "all"))
    labels(folder / "sub-a_T2w.nii.gz")
    scan(folder / "sub-a_desc-brain_mask.nii.gz", SHARP)
    assert len(sharp_volumes(folder, "all")) == count + 1
    assert "sub-a_T2w.nii.gz" in log.text


def test_planes_of_thick_slices_are_learnt_from_where_a_datalist_says_that_they_alone_are_sharp(tmp_path):
    thick(tmp_path / "a.nii.gz")
    check_truth(str(tmp_path / "a.nii.gz"), (0, 1))
    with pytest.raises(InputError, match=r"sharp along the array axes \(1, 2\)"):
        check_truth(str(tmp_path / "a.nii.gz"), (1, 2))


def test_where_nothing_is_fit_one_error_says_so(tmp_path, refusal):
    for name in "abc":
        thick(tmp_path / f"sub-{name}_T1w.nii.gz")
    message = refusal(sharp_volumes, tmp_path, "all")
    assert "none of 3 volumes is fit" in message and "slices 4 mm apart" in message


def test_a_file_that_has_changed_is_looked_at_again(tmp_path):
    path = tmp_path / "a.nii.gz"
    scan(path, SHARP)
    check_truth(str(path), (0, 1, 2))
    thick(path)
    with pytest.raises(InputError, match="4 mm apart"):
        check_truth(str(path), (0, 1, 2))


def test_label_maps_hold_whole_numbers(tmp_path, log, refusal):
    labels(tmp_path / "good.nii.gz")
    scan(tmp_path / "scan.nii.gz", SHARP)
    truncated(tmp_path / "broken.nii.gz")
    for name, label in (("unknown", -1), ("atlas", 40_000)):
        scan(tmp_path / f"{name}.nii.gz", np.where(SHARP > 0.9, label, 2).astype(np.int32))
    (item,) = label_maps(tmp_path)
    assert item["subject"] == "good.nii.gz"
    assert "scan.nii.gz holds other than whole numbers" in log.text and "broken.nii.gz cannot be read" in log.text
    for said in ("unknown.nii.gz has labels from -1 to 2:", "atlas.nii.gz has labels from 2 to 40000:"):
        assert said in log.text
    (tmp_path / "good.nii.gz").unlink()
    assert "none of 4 volumes is fit" in refusal(label_maps, tmp_path)
