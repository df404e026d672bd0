"""Paths of `summary.csv` lead from its folder, wherever the command ran."""

from scripts.outputs.summary import add_rows
from tests.cohort_files import summary


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
