"""Which volumes are learnt from, how subjects are split, and how often each contrast is drawn."""

import gzip
import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from scripts.errors import InputError
from scripts.train.datasets import contrast_weights, label_maps, sharp_volumes

SECTIONS = ("training", "validation")


def scan(path, array, spacing=(1.0, 1.0, 1.0)):
    nib.save(nib.Nifti1Image(array, np.diag([*spacing, 1.0])), path)


def make(root, *names):
    """Tiny volumes, and empty files of other names."""
    plain = nib.Nifti1Image(np.arange(24.0, dtype=np.float32).reshape(2, 3, 4) / 7, np.eye(4)).to_bytes()
    volumes = {".nii": plain, ".gz": gzip.compress(plain)}
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(volumes[path.suffix] if name.endswith((".nii", ".nii.gz")) and path.name[0] != "." else b"")
    return root


def bids(root, subjects, sessions=("ses-1", "ses-2")):
    return make(root, *(f"sub-{s}/{t}/anat/sub-{s}_{t}_T1w.nii.gz" for s in subjects for t in sessions))


def labels(root, section):
    return {item["label"] for item in sharp_volumes(root, section)}


def subjects(root, section):
    return {item["subject"] for item in sharp_volumes(root, section)}


def named(content):
    """The images that a datalist names."""
    if isinstance(content, dict):
        content = [name for section in content.values() if isinstance(section, list) for name in named(section)]
    images = [entry.get("image") if isinstance(entry, dict) else entry for entry in content]
    return [image for image in images if isinstance(image, str)]


def datalist(tmp_path, content):
    """A datalist, and the volumes that it names."""
    path = tmp_path / "list.json"
    if not isinstance(content, str):
        make(tmp_path, *(name for name in named(content) if not (tmp_path / name).exists()))
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# --- a tree of files ---


def test_every_volume_of_a_tree_is_in_exactly_one_section_sharp_along_all_axes_and_in_a_fixed_order(tmp_path):
    bids(tmp_path, range(20))
    items, held_out = sharp_volumes(tmp_path, "training"), labels(tmp_path, "validation")
    training = [item["label"] for item in items]
    assert {*training} | held_out == {str(p) for p in tmp_path.rglob("*.nii.gz")} and not {*training} & held_out
    assert {item["sharp_axes"] for item in items} == {(0, 1, 2)} and training == sorted(training)


def test_the_folder_above_the_tree_does_not_name_subjects(tmp_path):
    """A data set that lies under a folder sub-9 is still split by its own subjects."""
    here = make(tmp_path / "sub-9", *(f"p{s}.nii.gz" for s in range(60)))
    there = make(tmp_path / "elsewhere", *(f"p{s}.nii.gz" for s in range(60)))
    for section in SECTIONS:
        assert subjects(here, section) == subjects(there, section)
        assert len(subjects(here, section)) > 1


@pytest.mark.parametrize("axes", [None, [], [3], [0, 0], [0.0, 1.0], [False, True]])
def test_sharp_axes_that_are_none_are_refused(axes, tmp_path):
    content = {"training": [{"image": "a.nii.gz", "sharp_axes": axes}], "validation": ["b.nii.gz"]}
    with pytest.raises(InputError, match=r"has no sharp axes: expected some of 0, 1 and 2"):
        sharp_volumes(datalist(tmp_path, content), "training")


@pytest.mark.parametrize(("name", "value"), [("lesions", 3), ("contrast", None), ("guides", "b.nii"), ("guides", [1])])
def test_what_an_entry_says_in_other_than_text_is_refused_by_name(name, value, tmp_path):
    """Tables would leave out the rows of a contrast that is null."""
    content = {"training": [{"image": "a.nii.gz", name: value}], "validation": ["b.nii.gz"]}
    with pytest.raises(InputError, match=rf"list.json: entry .*'a.nii.gz'.* {name} that (is|are) no .*Mend it"):
        sharp_volumes(datalist(tmp_path, content), "training")


def test_one_sharp_axis_serves_evaluation_and_not_training(tmp_path):
    entry = {"image": "a.nii.gz", "sharp_axes": [2]}
    path = datalist(tmp_path, {"training": [entry], "validation": [{**entry, "image": "b.nii.gz"}]})
    assert sharp_volumes(path, "validation")[0]["sharp_axes"] == (2,)
    with pytest.raises(InputError, match=r"a.nii.gz has one sharp axis"):
        sharp_volumes(path, "training")


def test_new_volumes_never_move_old_ones(tmp_path):
    bids(tmp_path, range(15))
    before = [labels(tmp_path, s) for s in SECTIONS]
    bids(tmp_path, range(15, 30), sessions=("ses-1",))
    bids(tmp_path, range(15), sessions=("ses-3",))
    for old, section in zip(before, SECTIONS):
        assert old <= labels(tmp_path, section)


def test_a_seventh_of_many_subjects_is_held_out(tmp_path):
    bids(tmp_path, range(400), sessions=("ses-1",))
    assert 0.10 < len(subjects(tmp_path, "validation")) / 400 < 0.20  # 15 % by name; four standard deviations are 7 %


def test_a_tree_is_searched_at_any_depth_for_nifti_alone(tmp_path):
    make(tmp_path, *(f"a/b/c/p{s}.nii" for s in range(9)), "p1.json", "notes.txt", "p2.mgz", "p3.nii.gz.bak")
    assert set.union(*(labels(tmp_path, s) for s in SECTIONS)) == {str(p) for p in tmp_path.rglob("*.nii")}


def test_a_bids_name_says_its_contrast(tmp_path):
    make(tmp_path, *(f"sub-{s}/anat/sub-{s}_{c}.nii.gz" for s in "ab" for c in ("T2w", "FLAIR", "mine")))
    found = {Path(item["label"]).name[6:-7]: item["contrast"] for item in sharp_volumes(tmp_path, "all")}
    assert found == {"T2w": "T2w", "FLAIR": "FLAIR", "mine": "unknown"}


# --- whose volumes they are: no person is in both sections, whatever the files are called ---


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
    """Names of IXI and of TCGA."""
    for k, layout in enumerate(("IXI-{c}/IXI{s:03}-Guys-0{s:03}-{c}", "TCGA-06-{s:04}-{c}")):
        made = (layout.format(s=s, c=c) for s in range(20) for c in ("T1", "T2", "PD"))
        make(tmp_path / str(k), *(f"{name}.nii.gz" for name in made))
        training, validation = (subjects(tmp_path / str(k), s) for s in SECTIONS)
        assert len(training | validation) == 20 and not training & validation


@pytest.mark.parametrize("layout", ["{p}/{c}.nii.gz", "{c}/{p}.nii.gz", "{p}/mri/{c}.nii.gz", "{c}_x/{p}_y.nii"])
def test_a_contrast_names_nobody(layout, tmp_path):
    make(tmp_path, *(layout.format(p=f"p{s}", c=c) for s in range(6) for c in ("T1", "T2WI")))
    training, validation = (subjects(tmp_path, s) for s in SECTIONS)
    assert training | validation == {f"p{s}" for s in range(6)} and not training & validation


def test_where_people_and_contrasts_cannot_be_told_apart_no_split_is_guessed(tmp_path):
    make(tmp_path, *(f"p{s}/{c}.nii.gz" for s in range(6) for c in ("brain", "other")))
    with pytest.raises(InputError, match=r"is not known. Name files or folders sub-"):
        sharp_volumes(tmp_path, "training")


def test_files_that_say_contrasts_alone_are_of_one_person(tmp_path):
    with pytest.raises(InputError, match="all are of one"):
        sharp_volumes(make(tmp_path, "T1.nii", "FLAIR.nii"), "training")


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


# --- datalists ---

ENTRIES = {
    "training": [
        {"image": "a/x.nii.gz", "label": "mask.nii", "sharp_axes": [0, 2], "subject": "s1", "contrast": "T1w"},
        {"image": "a/y.nii.gz", "subject": "s2"},
    ],
    "validation": [{"image": "./z.nii.gz", "sharp_axes": [1, 2], "subject": "s3", "contrast": "FLAIR"}],
}
KINDS = [
    {**entry, "kind": kind}
    for section, kind in (("training", "train"), ("validation", "val"))
    for entry in ENTRIES[section]
] + [{"image": "thick.nii.gz", "kind": "thick", "subject": "s4"}]


@pytest.mark.parametrize("content", [ENTRIES, KINDS], ids=["decathlon", "kinds"])
def test_both_kinds_of_datalist_say_the_same(content, tmp_path):
    path = datalist(tmp_path, content)
    first, second = sharp_volumes(path, "training")
    named = {"label": str(tmp_path / "a/x.nii.gz"), "subject": "s1", "contrast": "T1w"}
    assert first == {**named, "sharp_axes": (0, 2)}
    named = {"label": str(tmp_path / "a/y.nii.gz"), "subject": "s2", "contrast": "unknown"}
    assert second == {**named, "sharp_axes": (0, 1, 2)}
    (third,) = sharp_volumes(path, "validation")
    assert (third["label"], third["sharp_axes"]) == (str(tmp_path / "z.nii.gz"), (1, 2))


@pytest.mark.parametrize("as_kinds", [False, True])
@pytest.mark.parametrize("section", SECTIONS)
def test_a_subject_in_both_sections_is_refused_by_name(section, as_kinds, tmp_path):
    content = {s: [{"image": f"{s}{i}.nii.gz", "subject": f"p{i}"} for i in (1, 2)] for s in SECTIONS}
    content["validation"][0]["subject"] = "p7"
    if as_kinds:
        kinds = dict(zip(SECTIONS, ("train", "val")))
        content = [{**entry, "kind": kinds[s]} for s in SECTIONS for entry in content[s]]
    with pytest.raises(InputError, match=r"\['p2'\].*both training and validation.*Split by subject"):
        sharp_volumes(datalist(tmp_path, content), section)


def test_nothing_said_is_all_of_a_folder_and_what_a_datalist_holds_out(tmp_path):
    root = datalist(tmp_path, ENTRIES)
    assert labels(root, None) == labels(root, "validation")
    assert labels(root.parent, None) == labels(root.parent, "all") > labels(root.parent, "validation")


# --- errors ---


def test_an_unknown_section_and_a_missing_data_set_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"section is 'train'.*training, validation or all"):
        sharp_volumes(tmp_path, "train")
    with pytest.raises(InputError, match=r"nowhere does not exist.*folder of NIfTI volumes or a datalist"):
        sharp_volumes(tmp_path / "nowhere", "training")


@pytest.mark.parametrize("content", [None, {"training": []}, []], ids=["folder", "decathlon", "kinds"])
@pytest.mark.parametrize("section", SECTIONS)
def test_an_empty_data_set_is_refused(section, content, tmp_path):
    path = tmp_path if content is None else datalist(tmp_path, content)
    with pytest.raises(InputError, match=f"no volumes for {section}.*datalist"):
        sharp_volumes(path, section)


@pytest.mark.parametrize(
    "content",
    ["{", "", "3", '"a.nii.gz"', '{"training": [{"label": "a.nii.gz"}]}', '["a.nii.gz"]', '{"training": "a.nii.gz"}'],
)
def test_a_broken_datalist_is_refused_by_name(content, tmp_path):
    with pytest.raises(InputError, match=r"list\.json") as caught:
        sharp_volumes(datalist(tmp_path, content), "training")
    assert "\n" not in str(caught.value)


# --- label maps and how often each contrast is drawn ---


def test_label_maps_are_found_at_any_depth_as_one_contrast_of_their_own(tmp_path):
    bids(tmp_path / "scans", range(20))
    make(tmp_path / "maps", "deep/.hidden.nii", "names.json")
    for name in ("b.nii.gz", "deep/a.nii"):
        scan(tmp_path / "maps" / name, np.arange(24).reshape(2, 3, 4).astype(np.int16))
    items = label_maps(tmp_path / "maps")
    assert {item["label"] for item in items} == {str(tmp_path / "maps" / name) for name in ("b.nii.gz", "deep/a.nii")}
    assert {(item["contrast"], item["sharp_axes"]) for item in items} == {("synthetic", (0, 1, 2))}
    assert items == label_maps(str(tmp_path / "maps"))
    (volume, *_) = sharp_volumes(tmp_path / "scans", "training")
    assert all(item.keys() == volume.keys() for item in items)


@pytest.mark.parametrize("folder", [".", "nowhere"])
def test_a_folder_without_label_maps_is_refused_by_name(folder, tmp_path):
    make(tmp_path, "map.mgz")
    with pytest.raises(InputError, match=r"label_dir .*: no .nii or .nii.gz file there.*label maps"):
        label_maps(tmp_path / folder)


def test_each_contrast_has_its_share_however_many_volumes_show_it():
    contrasts = ["T1w"] * 16 + ["FLAIR"] * 4 + ["T2w"]
    shares = {"T1w": 1, "FLAIR": 3}  # and 1 for T2w, which is not named
    weights = np.array(contrast_weights([{"contrast": contrast} for contrast in contrasts], [], shares))
    assert [weights[np.array(contrasts) == c].sum() for c in ("T1w", "FLAIR", "T2w")] == pytest.approx([1, 3, 1])
    assert len(set(weights[:16])) == 1, "volumes of a contrast are drawn evenly"
    shuffled = np.random.default_rng(0).permutation(len(contrasts))
    again = contrast_weights([{"contrast": contrasts[k]} for k in shuffled], [], shares)
    np.testing.assert_array_equal(again, weights[shuffled])


def test_volumes_of_far_planes_are_left_out_where_solid_pieces_are_asked_for(write_nifti, tmp_path, refusal):
    for name, spacing in (("sub-a", 1.0), ("sub-b", 3.3), ("sub-c", 1.2)):
        array = np.arange(120.0).reshape(4, 5, 6) / 7
        write_nifti(array, np.diag([0.6, 0.6, spacing, 1]), f"data/{name}_T1w.nii.gz")
    thick = {"image": "sub-b_T1w.nii.gz", "sharp_axes": [0, 1]}
    content = {"training": ["sub-a_T1w.nii.gz", thick], "validation": ["sub-c_T1w.nii.gz"]}
    (tmp_path / "data" / "list.json").write_text(json.dumps(content))
    given = tmp_path / "data" / "list.json", "training"
    assert len(sharp_volumes(*given)) == 2
    assert [Path(item["label"]).name for item in sharp_volumes(*given, 1.5)] == ["sub-a_T1w.nii.gz"]
    assert "above largest_spacing, 0.5 mm" in refusal(sharp_volumes, *given, 0.5)
