"""BIDS: which sidecar says what, and which scans are taken."""

from datetime import date

import numpy as np
import pytest

from scripts.errors import InputError
from scripts.inputs import bids
from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from tests.bids_files import add_scan, write
from tests.dicom_files import THIN

SCAN = "sub-01/ses-a/anat/sub-01_ses-a_acq-tse_T2w.nii.gz"


# --- inheritance ---


# (sidecar, whether it speaks of SCAN), from the nearest to the farthest
SIDECARS = [
    ("sub-01/ses-a/anat/sub-01_ses-a_acq-tse_T2w.json", True),
    ("sub-01/ses-a/sub-01_ses-a_T2w.json", True),
    ("sub-01/sub-01_T2w.json", True),
    ("T2w.json", True),
    ("sub-01/ses-a/anat/sub-01_ses-a_acq-tse_run-1_T2w.json", False),
    ("acq-flair_T2w.json", False),
    ("T1w.json", False),
    ("xT2w.json", False),
    ("derivatives/T2w.json", False),
]


@pytest.mark.parametrize(("name", "speaks"), SIDECARS)
def test_a_sidecar_speaks_of_scans_below_it_that_have_its_suffix_and_its_entities(name, speaks, tmp_path, monkeypatch):
    root = write(tmp_path, **{name: {"SliceThickness": 4}})
    expected = (4, root / name) if speaks else (None, None)
    assert bids.sidecar_value(root / SCAN, "SliceThickness") == expected
    assert bids.sidecars(root / SCAN) == [root / name] * speaks
    monkeypatch.chdir(root)
    assert bids.sidecar_value(SCAN, "SliceThickness")[0] == expected[0], "a relative path inherits as an absolute one"


def test_the_nearest_sidecar_that_knows_a_value_wins(tmp_path):
    """One in each folder: BIDS allows no more. The nearest of all does not know."""
    near, *speaking = [name for name, speaks in SIDECARS if speaks]
    root = write(tmp_path, **{near: {"EchoTime": 0.1}}, **{n: {"SliceThickness": k} for k, n in enumerate(speaking)})
    assert bids.sidecars(root / SCAN) == [root / near, *(root / name for name in speaking)]
    for nearest, name in enumerate(speaking):
        assert bids.sidecar_value(root / SCAN, "SliceThickness") == (nearest, root / name)
        (root / name).unlink()


@pytest.mark.parametrize("content", ["{", "[4]"])
def test_a_broken_inherited_sidecar_is_named(content, tmp_path):
    root = write(tmp_path, **{"T2w.json": content})
    with pytest.raises(InputError, match=r"T2w\.json cannot be read.*remove it"):
        bids.sidecar_value(root / SCAN, "SliceThickness")


TABLES = {
    "sub-01/ses-a/sub-01_ses-a_scans.tsv": "filename\tacq_time\nanat/x.nii\t2019-01-01\n{}\t2020-03-02T10:00:00\n",
    "sub-01/sub-01_scans.tsv": "filename\tacq_time\nses-a/{}\t2020-03-02\n",
    "sub-01/sub-01_sessions.tsv": "session_id\tacq_time\nses-b\t2019-01-01\nses-a\t2020-03-02\n",
}


@pytest.mark.parametrize("table", TABLES)
def test_tables_of_a_subject_say_when_a_session_was(table, tmp_path):
    root = write(tmp_path)
    add_scan(root, SCAN)
    (root / table).write_text(TABLES[table].format("/".join(SCAN.split("/")[2:])))
    assert bids.session_date(root / SCAN) == date(2020, 3, 2)
    assert bids.session_date(root / SCAN.replace("ses-a", "ses-c")) is None


# --- which scans ---


def test_the_thick_anatomical_scans_of_a_dataset_are_taken(tmp_path, log):
    root, out = write(tmp_path / "ds"), tmp_path / "ds" / "derivatives" / "drift"
    taken = ["sub-01/anat/sub-01_T2w.nii.gz", "sub-02/ses-1/anat/sub-02_ses-1_FLAIR.nii"]
    for name in (
        *taken,
        "sub-01/func/sub-01_task-rest_bold.nii.gz",
        "sub-01/dwi/sub-01_dwi.nii.gz",
        "derivatives/other/sub-01/anat/sub-01_desc-x_T2w.nii.gz",
        "sourcedata/sub-01/anat/sub-01_T2w.nii.gz",
        "code/T2w.nii.gz",
    ):
        add_scan(root, name)
    add_scan(root, "sub-01/anat/sub-01_T1w.nii.gz", np.diag([1.3, 1.0, 1.0, 1.0]))
    (root / "sub-01/anat/sub-01_T2w.json").write_text("{}")
    items = scans(root, out, Selection(THIN))
    assert [item.source for item in items] == [root / name for name in taken]
    assert [item.result.relative_to(out).as_posix() for item in items] == [
        "sub-01/anat/sub-01_desc-sr_T2w",
        "sub-02/ses-1/anat/sub-02_ses-1_desc-sr_FLAIR",
    ]
    assert {item.dataset for item in items} == {root}
    assert items[0].files == (root / taken[0], root / "sub-01/anat/sub-01_T2w.json")
    assert any("sub-01_T1w.nii.gz is skipped" in m and "slices 1.3 mm apart" in m for m in log.messages)


# --- no scan is left out without a word ---


@pytest.mark.parametrize(
    ("lines", "left_out"),
    [
        ("", ""),
        ("# a comment\n\n*_T1w.nii.gz\n", "T1w"),
        ("sub-01/anat/sub-01_FLAIR.nii.gz", "FLAIR"),
        ("anat/sub-01_T1w.nii.gz", ""),  # with a slash within, it begins at the root
    ],
)
def test_what_a_bidsignore_names_is_skipped_with_a_line(lines, left_out, tmp_path, log):
    root = write(tmp_path, **{".bidsignore": lines})
    suffixes = ["FLAIR", "T1w", "T2w"]
    for suffix in suffixes:
        add_scan(root, f"sub-01/anat/sub-01_{suffix}.nii.gz")
    found = [item.source.name for item in scans(root, tmp_path / "out", Selection(THIN))]
    assert found == [f"sub-01_{suffix}.nii.gz" for suffix in suffixes if suffix not in left_out]
    for suffix in suffixes:
        told = f"sub-01/anat/sub-01_{suffix}.nii.gz is skipped: a line of the dataset's .bidsignore names it."
        assert (told in log.messages) == (suffix in left_out)


def test_what_is_no_anatomical_scan_of_a_dataset_is_told(tmp_path, log):
    root = write(tmp_path)
    for name in ("sub-01_T2w", "sub-01_T1map", "sub-01_part-phase_T2w", "sub-01_MP2RAGE", "../func/a_bold", "../dwi/x"):
        add_scan(root, f"sub-01/anat/{name}.nii.gz")
    assert len(scans(root, tmp_path / "out", Selection(THIN))) == 1
    assert "sub-01_part-phase_T2w.nii.gz is skipped: phase, real or imaginary images, not magnitude." in log.text
    assert "sub-01_T1map.nii.gz is skipped: T1map is none of the suffixes that are taken" in log.text
    assert "sub-01_MP2RAGE.nii.gz is skipped: MP2RAGE is none of the suffixes that are taken: FLAIR, " in log.text
    assert "anat folders are taken: sub-01/dwi/x.nii.gz, " in log.text


def test_linked_subjects_are_subjects(tmp_path):
    root = write(tmp_path / "ds")
    add_scan(tmp_path, "elsewhere/anat/sub-01_T2w.nii.gz")
    (root / "sub-01").symlink_to("../elsewhere")
    (item,) = scans(root, tmp_path / "out", Selection(THIN))
    assert item.result == tmp_path / "out/sub-01/anat/sub-01_desc-sr_T2w"
