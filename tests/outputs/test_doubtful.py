"""A doubtful scan: the command rebuilds and marks it; guides and training leave it alone, as does the node."""

import html
import json
from pathlib import Path

from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from scripts.train.datasets import sharp_volumes
from tests.cohort_files import record, summary
from tests.corpus.situations import CUBE, nifti, statistic


def test_a_doubtful_scan_is_rebuilt_and_marked_and_guides_none(bundle, tmp_path, log):
    nifti(tmp_path / "scans", "x_1", CUBE, statistic((32, 32, 32)))
    nifti(tmp_path / "scans", "x_2", values=statistic())
    bundle(tmp_path / "scans", guide="auto")
    mark = "it may be no scan of a head: its values lie on both sides of the background's, as those of a statistic"
    assert mark in record(bundle.out, "x_2")["Warnings"]
    row = next(row for row in summary(bundle.out) if row["input"].endswith("x_2.nii.gz"))
    assert mark in row["warnings"] and row["outcome"] == "rebuilt"
    assert mark in html.unescape((bundle.out / "index.html").read_text())
    assert f"x_2.nii.gz: {mark}" in log.text and "has no guide. x_1.nii.gz: its values lie on both" in log.text


def test_a_remark_on_a_name_stands_in_row_record_and_index_and_has_no_consequence(bundle, tmp_path, log):
    nifti(tmp_path / "scans", "T1_mask", CUBE)
    nifti(tmp_path / "scans", "T2_spine")
    found = scans(tmp_path / "scans", tmp_path / "out", Selection(1.3), guide="auto")
    assert [one.scan.path.name for scan in found for one in scan.guides] == ["T1_mask.nii.gz"]
    assert "T1_mask.nii.gz" in {Path(one["label"]).name for one in sharp_volumes(tmp_path / "scans", "all")}
    bundle(tmp_path / "scans")
    remark = "its name says SPINE; the networks know heads alone"
    assert remark in record(bundle.out, "T2_spine")["Warnings"] and remark in summary(bundle.out)[0]["warnings"]
    assert remark in html.unescape((bundle.out / "index.html").read_text())
    assert f"T2_spine.nii.gz: {remark}" in log.text


def test_training_takes_a_doubtful_volume_where_a_datalist_names_it(tmp_path, log):
    folder = nifti(tmp_path / "scans", "sub-1_T1w_mask", CUBE).parent
    nifti(folder, "sub-2_result", CUBE, statistic((32, 32, 32)))
    assert len(sharp_volumes(folder, None)) == 1
    assert "sub-2_result.nii.gz is no sure scan: its values lie on both sides" in log.text
    names = [path.name for path in folder.iterdir()]
    (folder / "list.json").write_text(json.dumps({"training": [], "validation": names}))
    assert len(sharp_volumes(folder / "list.json", "validation")) == 2
    assert "sub-2_result.nii.gz: it may be no scan of a head: its values" in log.text
