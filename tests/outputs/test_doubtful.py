"""A doubtful scan: the command rebuilds and marks it; guides and training leave it alone, as does the node."""

import html
import json

import pytest

from scripts.errors import InputError
from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from scripts.train.datasets import sharp_volumes
from tests.cohort_files import record, summary
from tests.corpus.situations import CUBE, nifti, statistic


def test_a_doubtful_scan_is_rebuilt_and_marked_and_guides_none(bundle, tmp_path, log):
    nifti(tmp_path / "scans", "T1_mask", CUBE)
    nifti(tmp_path / "scans", "FLAIR_mask")
    bundle(tmp_path / "scans", guide="auto")
    mark = "it may be no scan of a head: its name says 'mask'"
    assert mark in record(bundle.out, "FLAIR_mask")["Warnings"]
    row = next(row for row in summary(bundle.out) if row["input"].endswith("FLAIR_mask.nii.gz"))
    assert mark in row["warnings"] and row["outcome"] == "rebuilt"
    assert mark in html.unescape((bundle.out / "index.html").read_text())
    assert f"FLAIR_mask.nii.gz: {mark}" in log.text and "has no guide. T1_mask.nii.gz: its name says 'mask'" in log.text


def test_a_statistic_with_nan_within_is_none(tmp_path):
    """It would fail, and end the run with exit code 1."""
    nifti(tmp_path, "T2")
    scores = statistic()
    scores[scores < 0] = float("nan")
    nifti(tmp_path, "con_0001", values=scores)
    selection = Selection(1.3)
    assert [scan.path.name for scan in scans(tmp_path, tmp_path / "out", selection)] == ["T2.nii.gz"]
    ((_, why),) = selection.skipped
    assert why.startswith("its name says 'con', and it has NaN voxels within")


def test_training_takes_a_doubtful_volume_where_a_datalist_names_it(tmp_path, log):
    folder = nifti(tmp_path / "scans", "sub-1_T1w_mask", CUBE).parent
    nifti(folder, "sub-2_result", CUBE, statistic((32, 32, 32)))
    with pytest.raises(InputError, match="is no sure scan: its name says 'mask'"):
        sharp_volumes(folder, None)
    assert "sub-2_result.nii.gz is no sure scan: its values lie on both sides" in log.text
    names = [path.name for path in folder.iterdir()]
    (folder / "list.json").write_text(json.dumps({"training": [], "validation": names}))
    assert len(sharp_volumes(folder / "list.json", "validation")) == 2
    assert "sub-2_result.nii.gz: it may be no scan of a head: its values" in log.text
