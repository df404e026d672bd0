"""A dry run: it says of each scan what a run then does, and leaves no trace."""

import json
import os

import numpy as np
import pytest

from tests.cohort_files import AXIAL, nan_scan, outcomes, summary, texture


def tree(folder):
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


@pytest.fixture
def dry_run(bundle, capsys, tmp_path):
    """What `--dry_run json` lists; nothing may change."""

    def run(source, **given):
        before = tree(tmp_path)
        with pytest.raises(SystemExit) as stop:
            bundle(source, **{"dry_run": "json", **given})
        assert tree(tmp_path) == before
        told, fails = capsys.readouterr().out, "1 of 3 scans will fail."
        assert stop.value.code == (0 if "will fail" not in told or given.get("allow_failures") else fails)
        if given.get("dry_run", "json") != "json":
            return told.splitlines()
        rows = json.loads(told)
        assert len({tuple(row) for row in rows}) == 1, "all have the same keys"
        return rows

    return run


@pytest.fixture
def mixed(write_nifti):
    """Slices of the last axis with a sidecar, of the first without, and a broken scan."""
    write_nifti(texture((12, 10, 6)), AXIAL, "scans/a.nii.gz").with_name("a.json").write_text('{"SliceThickness": 3}')
    write_nifti(texture((6, 10, 12)), np.diag([5.0, 1.0, 1.0, 1.0]), "scans/b.nii.gz")
    return write_nifti(nan_scan(), AXIAL, "scans/c.nii.gz").parent


def test_each_scan_has_its_facts_and_where_they_came_from(dry_run, mixed):
    a, b, c = dry_run(mixed)
    assert (a["what"], a["slices"], a["spacing"], a["thickness"], a["target"], a["steps"]) == (
        *("will rebuild", "axial", 4, 3, 1, 1),
    )
    assert (a["slice_count"], b["slice_count"], c["slice_count"]) == (6, 6, None)
    assert a["scan"] == str(mixed / "a.nii.gz")
    assert "thickness: the sidecar a.json; target: the finer in-plane spacing" in a["why"]
    assert (b["slices"], b["spacing"], b["thickness"], b["steps"]) == ("sagittal", 5, 5, 2)
    assert "slices: the largest spacing; thickness: the slice spacing, for want of better" in b["why"]
    assert c["what"] == "will fail" and "has 1 NaN" in c["why"] and c["steps"] is None


def test_the_table_says_the_same_in_a_hundred_columns(dry_run, mixed):
    lines = dry_run(mixed, dry_run=True)
    head, *table, last = lines
    assert head.split() == "what head contrast slices spacing thickness target steps scan".split()
    told = [line for line in table if not line.startswith(" ")]
    assert [line.split()[:4] for line in told[:2]] == [
        ["will", "rebuild", "1", "axial"],
        ["will", "rebuild", "1", "sagittal"],
    ]
    assert told[0].endswith(str(mixed / "a.nii.gz")) and "3 mm" in told[0] and told[2].startswith("will fail")
    assert all(len(line) <= 100 for line in lines if not line.endswith(".nii.gz")), "but for long names"
    assert "for want of better" in " ".join(" ".join(table).split())
    assert last == "3 scans. Nothing was written."


def test_what_is_skipped_is_listed_too(dry_run, write_nifti, mixed):
    thin = write_nifti(texture((12, 12, 12)), np.eye(4), "scans/thin.nii.gz")
    *_, skipped = dry_run(mixed)
    assert (skipped["what"], skipped["scan"]) == ("will skip", str(thin)) and "isotropic already" in skipped["why"]


def test_where_all_is_skipped_a_line_says_why_of_each(bundle, refusal, write_nifti, log):
    for name in "ab":
        thin = write_nifti(texture((12, 12, 12)), np.eye(4), f"thin/{name}.nii.gz")
    assert "no thick-slice scan was found" in refusal(bundle, thin.parent, dry_run=True)
    assert all(f"{name}.nii.gz is skipped: thin or isotropic already" in log.text for name in "ab")


def test_a_run_does_what_the_dry_run_says(dry_run, mixed, bundle):
    said = dry_run(mixed)
    with pytest.raises(SystemExit):
        bundle(mixed)
    assert outcomes(bundle.out) == ["rebuilt", "rebuilt", "failed"]
    for row, done in zip(said[:2], summary(bundle.out)):
        assert row["steps"] == int(done["steps"]) and row["thickness"] == float(done["slice_thickness"])
        assert os.path.relpath(row["result"], bundle.out) == done["result"]
    assert [row["what"] for row in dry_run(mixed)] == ["is complete", "is complete", "will fail"]
    assert [row["what"] for row in dry_run(mixed, report=True)] == ["will write page", "will write page", "will fail"]
    again = dry_run(mixed, target_thickness=0.9, allow_failures=True)
    assert [row["what"] for row in again] == ["will rebuild", "will rebuild", "will fail"]


def test_what_did_not_come_as_dicom_is_skipped_where_dicom_is_asked_for(dry_run, mixed, series):
    nifti, dicom = dry_run([mixed / "a.nii.gz", series], output_format="dicom")
    assert (nifti["what"], nifti["why"], dicom["what"]) == ("will skip", "not DICOM", "will rebuild")


def test_thin_and_constant_scans_are_copied_as_then_in_the_run(dry_run, write_nifti, bundle):
    for array, affine in ((texture((12, 12, 12)), np.eye(4)), (np.full((12, 12, 5), 300, np.int16), AXIAL)):
        scan = write_nifti(array, affine)
        (row,) = dry_run(scan)
        assert (row["what"], row["steps"]) == ("will copy", 0)
    bundle(scan)
    assert summary(bundle.out)[0]["steps"] == "0"


def test_the_sample_is_not_written(bundle, refusal, tmp_path):
    before = tree(tmp_path)
    assert "--dry_run lists the scans of --input, and there is none" in refusal(bundle, None, dry_run=True)
    assert tree(tmp_path) == before
