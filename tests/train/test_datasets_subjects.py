"""Whose volumes those of a folder are: no person is in both sections, whatever the files are called."""

import pytest

from scripts.errors import InputError
from scripts.train.datasets import sharp_volumes
from tests.train.test_datasets import SECTIONS, bids, datalist, make, subjects


@pytest.mark.parametrize(
    "layout",
    ["p{}/T1.nii.gz", "p{}/T1w/brain.nii.gz", "p{}_T1.nii", "p{}-Guys-0828-T1.nii.gz", "x/p{}-FLAIR.nii"],
)
def test_a_person_is_named_by_file_or_folder(layout, tmp_path):
    make(tmp_path, *(layout.format(s) for s in range(20)))
    training, validation = (subjects(tmp_path, s) for s in SECTIONS)
    assert {name.split("-")[0] for name in training | validation} == {f"p{s}" for s in range(20)}
    assert len(training | validation) == 20 and not training & validation


def test_contrasts_of_one_person_stay_together(tmp_path):
    """IXI's names."""
    make(tmp_path, *(f"IXI-{c}/IXI{s:03}-Guys-0{s:03}-{c}.nii.gz" for s in range(20) for c in ("T1", "T2", "PD")))
    training, validation = (subjects(tmp_path, s) for s in SECTIONS)
    assert len(training | validation) == 20 and not training & validation


@pytest.mark.parametrize("layout", ["{p}/{c}.nii.gz", "{c}/{p}.nii.gz", "{p}/mri/{c}.nii.gz"])
def test_where_people_and_contrasts_cannot_be_told_apart_no_split_is_guessed(layout, tmp_path):
    make(tmp_path, *(layout.format(p=f"p{s}", c=c) for s in range(6) for c in ("T1", "T2")))
    with pytest.raises(InputError, match=r"is not known. Name files or folders sub-"):
        sharp_volumes(tmp_path, "training")


def test_hidden_folders_and_folders_with_the_names_of_files_hold_no_volumes(tmp_path):
    """A clone by DataLad has both."""
    make(tmp_path, ".git/annex/objects/MD5E-s1.nii.gz/MD5E-s1.nii.gz", "sub-1/anat/sub-1_T1w.nii.gz", "sub-2/a.nii")
    (tmp_path / "sub-3.nii.gz").mkdir()
    assert subjects(tmp_path, "all") == {"sub-1", "sub-2"}


def test_two_subjects_are_never_both_held_out(tmp_path):
    """By their names both of these were."""
    bids(tmp_path, ["02", "10"])
    assert len(subjects(tmp_path, "training")) == len(subjects(tmp_path, "validation")) == 1


def test_one_subject_is_refused_by_its_name(tmp_path):
    make(tmp_path, "patient_001.nii.gz", "patient_002.nii.gz")
    with pytest.raises(InputError, match=r"two subjects or more.*all are of one, patient"):
        sharp_volumes(tmp_path, "training")


def test_a_file_in_both_sections_is_refused(tmp_path):
    path = datalist(tmp_path, {"training": ["a.nii.gz", "b.nii.gz"], "validation": ["b.nii.gz"]})
    with pytest.raises(InputError, match=r"\['b.nii.gz'\] stand in both training and validation"):
        sharp_volumes(path, "training")
