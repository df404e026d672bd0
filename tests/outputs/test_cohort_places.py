"""Many scans and one folder: other scans' results, odd names, other spellings, other programs' files."""

import os

import pytest

from scripts.outputs.summary import add_rows
from tests.bids_files import add_scan, write
from tests.cohort_files import AXIAL, outcomes, record, summary, texture
from tests.outputs.test_cohort import assert_told_without_a_trace


def test_the_result_of_another_scan_is_not_replaced(bundle, write_nifti, log):
    """A command for each subject, all into one folder."""
    first, second = (write_nifti(texture(seed=k), AXIAL, f"sub-{k}/T2w.nii.gz") for k in range(2))
    bundle(first)
    made = (bundle.out / "T2w_sr.nii.gz").read_bytes()
    with pytest.raises(SystemExit, match="1 of 1"):
        bundle(second)
    assert (bundle.out / "T2w_sr.nii.gz").read_bytes() == made and outcomes(bundle.out) == ["rebuilt", "failed"]
    assert_told_without_a_trace(log, f"holds the result of {first}", "--output_dir")
    write_nifti(texture(seed=2), AXIAL, "sub-0/T2w.nii.gz")  # the same scan, mended
    bundle(first)
    assert (bundle.out / "T2w_sr.nii.gz").read_bytes() != made
    first.rename(first.with_name("moved.nii.gz"))  # what nobody has any more is in nobody's way
    bundle(second)
    assert record(bundle.out, "T2w")["Sources"] == ["../sub-1/T2w.nii.gz"]


def test_nor_is_it_after_all_has_moved_or_through_links(bundle, write_nifti, log, tmp_path):
    """A record names its sources relative to itself."""
    for k in range(2):
        write_nifti(texture(seed=k), AXIAL, f"study/scans/sub-{k}/T2w.nii.gz")
    (tmp_path / "elsewhere" / "results").mkdir(parents=True)
    (tmp_path / "study" / "out").symlink_to("../elsewhere/results")
    bundle("study/scans/sub-0/T2w.nii.gz", output_dir="study/out")
    made = (tmp_path / "study/out/T2w_sr.nii.gz").read_bytes()
    (tmp_path / "new").mkdir()
    for name in ("study", "elsewhere"):
        (tmp_path / name).rename(tmp_path / "new" / name)
    with pytest.raises(SystemExit, match="1 of 1"):
        bundle(tmp_path / "new/study/scans/sub-1/T2w.nii.gz", output_dir=str(tmp_path / "new/elsewhere/results"))
    assert (tmp_path / "new/elsewhere/results/T2w_sr.nii.gz").read_bytes() == made
    assert_told_without_a_trace(log, f"holds the result of {tmp_path / 'new/study/scans/sub-0/T2w.nii.gz'}")


def test_nor_is_that_of_another_scan_of_a_bids_dataset(bundle, tmp_path, log):
    """Two files whose derivatives have one name."""
    root = write(tmp_path / "ds")
    for ending in ("nii", "nii.gz"):
        add_scan(root, f"sub-01/anat/sub-01_T2w.{ending}")
    bundle(root, include="*.gz")
    made = {path: path.read_bytes() for path in bundle.out.rglob("*_T2w.nii.gz")}
    with pytest.raises(SystemExit, match="1 of 1"):
        bundle(root, include="*.nii")
    assert len(made) == 1 and {path: path.read_bytes() for path in made} == made
    assert_told_without_a_trace(log, "holds the result of sub-01/anat/sub-01_T2w.nii.gz")


def test_a_name_that_is_not_utf_8_stops_nothing(bundle, write_nifti, capsys):
    """Old exports hold such names; Python gives them surrogates."""
    write_nifti(texture(), AXIAL, "scans/b.nii.gz")
    path = write_nifti(texture(), AXIAL, "scans/a.nii.gz")
    odd = path.rename(path.with_name(os.fsdecode(b"M\xfcller.nii.gz")))
    for outcome in ("rebuilt", "complete already"):
        bundle(odd.parent, report=True)
        assert outcomes(bundle.out) == [outcome] * 2
    assert (bundle.out / os.fsdecode(b"M\xfcller_sr.nii.gz")).is_file()
    with pytest.raises(SystemExit):
        bundle(odd.parent, dry_run=True)
    assert "ller.nii.gz" in capsys.readouterr().out


def test_one_scan_has_one_row_however_its_path_is_spelt(scan, bundle):
    for source in (scan, os.path.relpath(scan)):
        bundle(source)
        assert len(summary(bundle.out)) == 1
    assert outcomes(bundle.out) == ["complete already"]


def test_true_is_true_however_a_command_spells_it(scan, bundle):
    for isotropic, outcome in ((True, "rebuilt"), ("true", "complete already")):
        bundle(scan, isotropic=isotropic)
        assert outcomes(bundle.out) == [outcome]


def test_a_file_of_a_viewer_among_the_images_harms_no_result(series, bundle, log):
    bundle(series, output_format="dicom")
    (folder,) = (p for p in bundle.out.iterdir() if p.is_dir())
    (folder / ".DS_Store").touch()
    (folder / "thumbs").mkdir()
    bundle(series, output_format="dicom")
    assert outcomes(bundle.out) == ["complete already"]
    before = {p.name for p in bundle.out.iterdir()}
    with pytest.raises(SystemExit, match="1 of 1"):  # another result, for which the folder would be cleared
        bundle(series, output_format="dicom", target_thickness=1.2)
    assert_told_without_a_trace(log, "was not written by DRIFT")
    assert {p.name for p in bundle.out.iterdir()} == before and (folder / ".DS_Store").exists()


def test_paths_that_are_relative_to_the_working_directory_become_relative_to_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    for name in ("a.nii", "b.nii"):
        (tmp_path / name).touch()
    names = ["a.nii + b.nii", str(tmp_path / "b.nii"), "007-t2_tse-955821"]
    for _ in range(2):  # the same scans again
        rows = [{"input": one, "outcome": "failed", "warnings": f"{tmp_path}/b.nii is broken"} for one in names]
        add_rows(tmp_path / "out" / "summary.csv", rows, index=False)
    found = summary(tmp_path / "out")
    assert [row["input"] for row in found] == ["../a.nii + ../b.nii", "../b.nii", "007-t2_tse-955821"]
    assert {row["warnings"] for row in found} == {"b.nii is broken"}
