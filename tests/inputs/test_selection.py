"""Which scans a user wants: patterns and participants, and what is said where they match nothing."""

import re
from pathlib import Path

import pytest

from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from tests.bids_files import write
from tests.cohort_files import add
from tests.dicom_files import THIN, VOXELS, mr_slices, save


@pytest.fixture
def tree(tmp_path):
    for name in ("a_T1w", "a_T2w", "deep/b_T2w", "deep/er/c_FLAIR"):
        add(tmp_path / "in" / f"{name}.nii.gz")
    return tmp_path / "in"


@pytest.fixture
def dataset(tmp_path):
    root = write(tmp_path / "ds")
    for name in ("sub-01/anat/sub-01_T2w", "sub-01/anat/sub-01_T1w", "sub-02/ses-1/anat/sub-02_ses-1_T2w"):
        add(root / f"{name}.nii.gz")
    return root


def taken(source, **choice):
    found = scans(source, "nowhere", Selection(THIN, **choice))
    return {Path(item.name).name.removesuffix(".nii.gz") for item in found}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({}, "a_T1w a_T2w b_T2w c_FLAIR"),
        ({"include": "*T2w*"}, "a_T2w b_T2w"),
        ({"include": ["*T2w*", "deep/er/*"]}, "a_T2w b_T2w c_FLAIR"),
        ({"include": "?_T[12]w.nii.gz"}, "a_T1w a_T2w"),
        ({"exclude": ("*T2w*", "*T1w*")}, "c_FLAIR"),
        ({"include": "*T2w*", "exclude": "deep/*"}, "a_T2w"),
    ],
)
def test_patterns_choose_by_the_path_within_the_folder(choice, names, tree, log):
    assert taken(tree, **choice) == set(names.split())
    left_out = 4 - len(names.split())
    assert any(f"{left_out} of 4 scans are left out" in line for line in log.messages) is bool(left_out)


def test_dicom_is_chosen_by_the_name_of_its_series(tmp_path, tree):
    save(tree / "dicom", mr_slices(VOXELS))
    (name,) = taken(tree, exclude="*.nii.gz")
    assert taken(tree, include=[name, "*T1w*"]) == {name, "a_T1w"}


@pytest.mark.parametrize("label", ["01", "sub-01", ["01"], ["sub-01", "01"]])
def test_participants_have_sub_or_not(label, dataset):
    assert taken(dataset, participant_label=label) == {"sub-01_T1w", "sub-01_T2w"}
    assert taken(dataset, participant_label=label, include="*T2w*") == {"sub-01_T2w"}
    assert len(taken(dataset, participant_label=["01", "02"])) == 3


@pytest.mark.parametrize("label", ["1", "ses-1", ["1"]])
def test_sessions_have_ses_or_not(label, dataset):
    assert taken(dataset, session_label=label) == {"sub-02_ses-1_T2w"}


OF_TREE = [
    ({"include": "*PD*"}, r"--include \*PD\* matches no scan: expected one of a_T1w.nii.gz, a_T2w.nii.gz"),
    ({"exclude": "T2w"}, r"--exclude T2w matches no scan"),
    ({"include": "a_*", "exclude": "*T?w*"}, r"together leave none of a_T1w.nii.gz, .*deep/er/c_FLAIR"),
    ({"participant_label": "01"}, r"--participant_label sub-01 matches no scan.*a BIDS dataset, which the input is"),
    ({"include": ""}, r"--include is empty: expected a pattern"),
    ({"participant_label": "0*"}, r"--participant_label sub-0\* is none: expected letters and digits"),
]
OF_DATASET = [
    ({"participant_label": ["01", "03"]}, r"sub-03 matches no scan: expected one of sub-01, sub-02\."),
    ({"session_label": "2"}, r"--session_label ses-2 matches no scan: expected one of ses-1\."),
    ({"session_label": "1", "participant_label": "01"}, "together leave none"),
]


@pytest.mark.parametrize(
    ("where", "choice", "told"), [("tree", *one) for one in OF_TREE] + [("dataset", *one) for one in OF_DATASET]
)
def test_what_matches_nothing_is_refused_with_what_is_there(where, choice, told, request, refusal):
    assert re.search(told, refusal(taken, request.getfixturevalue(where), **choice))


def test_what_is_skipped_is_remembered_with_the_reason(tree):
    thin, result = add(tree / "thin.nii.gz", (1, 1, 1)), add(tree / "a_sr.nii.gz")
    scans(tree, "nowhere", selection := Selection(THIN))
    ((name, why),) = selection.skipped
    assert name == str(thin) and "isotropic already" in why and result.exists(), "a result is no scan"
