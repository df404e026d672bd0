"""Which volumes are found, how subjects are split, and what the built-in sample is."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch

from scripts.datasets import built_in_sample, contrast_weights, label_maps, scans, sharp_volumes
from scripts.errors import InputError
from scripts.slice_profile import acquire

SECTIONS = ("training", "validation")


def touch(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def bids(root, subjects, sessions=("ses-1", "ses-2")):
    return touch(root, *(f"sub-{s}/{t}/anat/sub-{s}_{t}_T1w.nii.gz" for s in subjects for t in sessions))


def labels(root, section):
    return {item["label"] for item in sharp_volumes(root, section)}


def subjects(root, section):
    return {item["subject"] for item in sharp_volumes(root, section)}


def datalist(tmp_path, content):
    path = tmp_path / "list.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# --- a tree of files ---


def test_every_volume_of_a_tree_is_in_exactly_one_section(tmp_path):
    bids(tmp_path, range(60))
    training, validation = (labels(tmp_path, s) for s in SECTIONS)
    assert training | validation == {str(p) for p in tmp_path.rglob("*.nii.gz")}
    assert not training & validation


def test_no_subject_of_a_tree_is_in_both_sections(tmp_path):
    bids(tmp_path, range(60), sessions=("ses-1", "ses-2", "ses-3"))
    training, validation = (subjects(tmp_path, s) for s in SECTIONS)
    assert not training & validation
    assert training | validation == {f"sub-{s}" for s in range(60)}


def test_subjects_without_bids_names_are_the_start_of_the_file_name(tmp_path):
    touch(tmp_path, *(f"{c}/p{s}_{c}.nii.gz" for s in range(60) for c in ("T1w", "T2w")))
    training, validation = (subjects(tmp_path, s) for s in SECTIONS)
    assert not training & validation
    assert training | validation == {f"p{s}" for s in range(60)}


def test_the_folder_above_the_tree_does_not_name_subjects(tmp_path):
    """A data set that lies under a folder sub-9 is still split by its own subjects."""
    here = touch(tmp_path / "sub-9", *(f"p{s}.nii.gz" for s in range(60)))
    there = touch(tmp_path / "elsewhere", *(f"p{s}.nii.gz" for s in range(60)))
    for section in SECTIONS:
        assert subjects(here, section) == subjects(there, section)
        assert len(subjects(here, section)) > 1


def test_new_volumes_never_move_old_ones(tmp_path):
    bids(tmp_path, range(40))
    before = [labels(tmp_path, s) for s in SECTIONS]
    bids(tmp_path, range(40, 90), sessions=("ses-1",))
    bids(tmp_path, range(40), sessions=("ses-3",))
    for old, section in zip(before, SECTIONS):
        assert old <= labels(tmp_path, section)


def test_a_seventh_of_many_subjects_is_held_out(tmp_path):
    bids(tmp_path, range(400), sessions=("ses-1",))
    assert 0.10 < len(subjects(tmp_path, "validation")) / 400 < 0.20  # 15 % by name; four standard deviations are 7 %


def test_a_tree_is_searched_at_any_depth_for_nifti_alone(tmp_path):
    touch(tmp_path, *(f"a/b/c/p{s}.nii" for s in range(60)), "p1.json", "notes.txt", "p2.mgz", "p3.nii.gz.bak")
    assert set.union(*(labels(tmp_path, s) for s in SECTIONS)) == {str(p) for p in tmp_path.rglob("*.nii")}


def test_volumes_of_a_tree_are_sharp_along_all_axes_and_in_a_fixed_order(tmp_path):
    bids(tmp_path, range(20))
    items = sharp_volumes(tmp_path, "training")
    assert {item["sharp_axes"] for item in items} == {(0, 1, 2)}
    assert [item["label"] for item in items] == sorted(item["label"] for item in items)
    assert items == sharp_volumes(str(tmp_path), "training")


# --- datalists ---

ENTRIES = {
    "training": [
        {"image": "a/x.nii.gz", "sharp_axes": [0, 2], "subject": "s1", "contrast": "T1w"},
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
    assert first == {
        "label": str(tmp_path / "a/x.nii.gz"),
        "sharp_axes": (0, 2),
        "subject": "s1",
        "contrast": "T1w",
    }
    assert second == {
        "label": str(tmp_path / "a/y.nii.gz"),
        "sharp_axes": (0, 1, 2),
        "subject": "s2",
        "contrast": "unknown",
    }
    (third,) = sharp_volumes(path, "validation")
    assert (third["label"], third["sharp_axes"]) == (str(tmp_path / "z.nii.gz"), (1, 2))


def test_a_decathlon_list_of_names_alone(tmp_path):
    path = datalist(tmp_path, {"training": ["a.nii.gz", "b.nii.gz"], "validation": [{"image": "c.nii.gz"}]})
    assert labels(path, "training") == {str(tmp_path / "a.nii.gz"), str(tmp_path / "b.nii.gz")}
    assert {i["subject"] for i in sharp_volumes(path, "training")} == {"unknown"}  # no overlap with validation's


def test_the_label_of_a_segmentation_is_not_the_volume(tmp_path):
    entry = {"image": "imagesTr/a.nii.gz", "label": "labelsTr/a.nii.gz"}
    path = datalist(tmp_path, {"training": [entry], "validation": [{"image": "b.nii.gz"}]})
    assert labels(path, "training") == {str(tmp_path / "imagesTr/a.nii.gz")}


def test_absolute_paths_stay(tmp_path):
    path = datalist(tmp_path / ".", {"training": ["/data/a.nii.gz"], "validation": []})
    assert labels(path, "training") == {"/data/a.nii.gz"}


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


# --- errors ---


@pytest.mark.parametrize("section", ["train", "val", "test", ""])
def test_an_unknown_section_is_refused(section, tmp_path):
    with pytest.raises(InputError, match=f"section is '{section}'.*'training' or 'validation'"):
        sharp_volumes(tmp_path, section)


def test_a_missing_data_set_is_refused(tmp_path):
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
    touch(tmp_path / "maps", "b.nii.gz", "deep/a.nii", "deep/.hidden.nii", "names.json")
    items = label_maps(tmp_path / "maps")
    assert {item["label"] for item in items} == {str(tmp_path / "maps" / name) for name in ("b.nii.gz", "deep/a.nii")}
    assert {(item["contrast"], item["sharp_axes"]) for item in items} == {("synthetic", (0, 1, 2))}
    assert items == label_maps(str(tmp_path / "maps"))
    (volume, *_) = sharp_volumes(tmp_path / "scans", "training")
    assert all(item.keys() == volume.keys() for item in items)


def test_label_maps_are_optional():
    assert label_maps(None) == []


@pytest.mark.parametrize("folder", [".", "nowhere"])
def test_a_folder_without_label_maps_is_refused_by_name(folder, tmp_path):
    touch(tmp_path, "map.mgz")
    with pytest.raises(InputError, match=r"label_dir .*: no .nii or .nii.gz file there.*label maps"):
        label_maps(tmp_path / folder)


def test_a_contrast_is_drawn_as_often_as_the_root_of_its_number():
    """Four times as many volumes of a contrast are drawn twice as often together, and each half as often."""
    contrasts = ["T1w"] * 16 + ["FLAIR"] * 4 + ["T2w"]
    weights = np.array(contrast_weights([{"contrast": contrast} for contrast in contrasts], []))
    np.testing.assert_allclose(weights[[0, 16, 20]], [1 / 4, 1 / 2, 1])
    assert [weights[np.array(contrasts) == c].sum() for c in ("T1w", "FLAIR", "T2w")] == pytest.approx([4, 2, 1])
    shuffled = np.random.default_rng(0).permutation(len(contrasts))
    again = contrast_weights([{"contrast": contrasts[k]} for k in shuffled], [])
    np.testing.assert_array_equal(again, weights[shuffled])


def test_one_contrast_is_drawn_evenly():
    assert len(set(contrast_weights([{"contrast": "unknown"}] * 7, []))) == 1
    assert contrast_weights([], []) == []


# --- scans ---


@pytest.mark.parametrize("name", ["a.nii.gz", "b.nii", "c.mgz", "d.nrrd", "e.mha", "f.x.nii.gz"])
def test_a_file_is_its_own_scan_with_its_result_in_the_output_folder(name, tmp_path):
    path = str(touch(tmp_path, name) / name)
    (item,) = scans(path, tmp_path / "out")
    stem = {"f.x.nii.gz": "f.x"}.get(name, name[0])
    result = str(tmp_path / "out" / f"{stem}_sr")
    assert item == {"image": path, "name": path, "sources": [path], "result": result}
    assert not (tmp_path / "out").exists()


def test_the_sources_of_a_scan_are_all_its_files(tmp_path):
    """What a second run must find unchanged: the voxels, and what says how thick the slices are."""
    touch(tmp_path, "a.nii.gz", "a.json", "b.json", "c.nhdr", "c.raw.gz", "d.mhd", "d.raw", "other.raw")
    sources = {scan: scans(tmp_path / scan, tmp_path)[0]["sources"] for scan in ("a.nii.gz", "c.nhdr", "d.mhd")}
    names = {scan: [Path(p).name for p in paths] for scan, paths in sources.items()}
    assert names == {
        "a.nii.gz": ["a.nii.gz", "a.json"],
        "c.nhdr": ["c.nhdr", "c.raw.gz"],
        "d.mhd": ["d.mhd", "d.raw"],
    }


def test_a_single_file_may_be_a_result(tmp_path):
    touch(tmp_path, "a_sr.nii.gz")
    assert len(scans(tmp_path / "a_sr.nii.gz", tmp_path)) == 1


def test_a_folder_is_searched_at_any_depth_without_results_and_hidden_files(tmp_path):
    found = ["a.nii.gz", "deep/er/b.nii", "deep/a.nii.gz", "sr/c.nii.gz", "d_sr_2.nii.gz", "sr.nii.gz"]
    touch(tmp_path, *found, "a_sr.nii.gz", "deep/b_sr.nii", ".123-a.nii.gz", "a.json", "x.dcm", "a.nii.gz.part")
    items = scans(tmp_path, tmp_path)
    assert {item["image"] for item in items} == {str(tmp_path / name) for name in found}
    assert all("truth" not in item and "dataset" not in item for item in items)
    assert items == scans(str(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("files", "source", "message"),
    [
        ([], "nowhere.nii.gz", r"nowhere.nii.gz does not exist.*--input"),
        ([], ".", r"no thick-slice scan was found\..*\.nii\.gz.*DICOM"),
        (["x.dcm", "a_sr.nii.gz"], ".", r"no thick-slice scan was found"),
        (["scan.dcm"], "scan.dcm", r"scan.dcm is no scan that can be read.*DICOM.*convert"),
        (["scan.nii.zip"], "scan.nii.zip", r"scan.nii.zip is no scan.*Unpack"),
        (["nii"], "nii", r"nii is no scan that can be read"),
    ],
)
def test_what_is_no_scan_is_refused(files, source, message, tmp_path):
    touch(tmp_path, *files)
    with pytest.raises(InputError, match=message) as caught:
        scans(tmp_path / source, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


# --- the built-in sample ---


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample") / "new" / "out"
    (item,) = scans(None, folder)
    return folder, item, nib.load(item["truth"]), nib.load(item["image"])


def test_the_sample_is_one_scan_with_its_truth(sample):
    folder, item, _, _ = sample
    image = str(folder / "icbm152.nii.gz")
    assert item == {
        "truth": str(folder / "icbm152_truth.nii.gz"),
        "image": image,
        "name": image,
        "sources": [image],
        "result": str(folder / "icbm152_sr"),
    }
    assert sorted(p.name for p in folder.iterdir()) == ["icbm152.nii.gz", "icbm152_truth.nii.gz"]


def test_the_sample_is_five_millimetres_thick_and_axial(sample):
    _, _, truth, thick = sample
    np.testing.assert_allclose(truth.header.get_zooms(), (1, 1, 1), atol=1e-6)
    np.testing.assert_allclose(thick.header.get_zooms(), (1, 1, 5), atol=1e-6)
    assert nib.aff2axcodes(thick.affine) == ("R", "A", "S")
    assert truth.shape == (*thick.shape[:2], 5 * thick.shape[2])  # one grid with the result


def test_sample_and_truth_share_their_centre(sample):
    _, _, truth, thick = sample
    centres = [nib.affines.apply_affine(v.affine, (np.array(v.shape) - 1) / 2) for v in (truth, thick)]
    np.testing.assert_allclose(*centres, atol=1e-4)


def test_the_sample_is_the_truth_acquired_in_thick_slices(sample):
    _, _, truth, thick = sample
    sharp = torch.from_numpy(truth.get_fdata(dtype=np.float32))
    expected = acquire(sharp, 2, 1.0, 5.0, 5.0).numpy()
    np.testing.assert_allclose(thick.get_fdata(dtype=np.float32), expected, atol=1e-5 * float(sharp.max()))


def test_the_sample_holds_the_whole_head(sample):
    _, _, truth, thick = sample
    data = truth.get_fdata(dtype=np.float32)
    assert data.dtype == thick.get_fdata(dtype=np.float32).dtype and np.isfinite(data).all()
    occupied = np.argwhere(data > 0)
    assert (occupied.min(0)[:2] == 2).all()  # a margin of two voxels, so that nothing is cut
    assert (np.array(data.shape)[:2] - occupied.max(0)[:2] == 3).all()
    assert 1.2e6 < (data > 0.2 * data.max()).sum() < 2.5e6  # mm^3 of brain: an adult's


def test_the_sample_takes_another_thickness(tmp_path):
    item = built_in_sample(tmp_path, slice_thickness=3.0)
    truth, thick = nib.load(item["truth"]), nib.load(item["image"])
    assert thick.header.get_zooms()[2] == pytest.approx(3)
    assert truth.shape[2] == 3 * thick.shape[2]


def test_results_lie_as_the_scans_of_a_folder_do(tmp_path):
    touch(tmp_path, "in/a.nii.gz", "in/sub-1/a.nii.gz", "in/sub-1/deep/b.mgz")
    results = {item["result"] for item in scans(tmp_path / "in", tmp_path / "out")}
    assert results == {str(tmp_path / "out" / name) for name in ("a_sr", "sub-1/a_sr", "sub-1/deep/b_sr")}


def test_a_list_holds_files_and_folders(tmp_path):
    touch(tmp_path, "a.nii.gz", "in/b.nii", "in/deep/c.nii.gz")
    items = scans([str(tmp_path / "a.nii.gz"), str(tmp_path / "in")], tmp_path / "out")
    assert [Path(item["image"]).name for item in items] == ["a.nii.gz", "b.nii", "c.nii.gz"]
    assert [Path(item["result"]).relative_to(tmp_path / "out").as_posix() for item in items] == [
        "a_sr",
        "b_sr",
        "deep/c_sr",
    ]


@pytest.mark.parametrize(
    ("names", "source"),
    [(["a.nii", "a.nii.gz"], "."), (["a.nii.gz", "a.mgz"], "."), (["x/a.nii.gz", "y/a.nii.gz"], None)],
)
def test_two_scans_with_one_result_are_refused_by_name(names, source, tmp_path):
    touch(tmp_path / "in", *names)
    given = tmp_path / "in" / source if source else [str(tmp_path / "in" / name) for name in names]
    with pytest.raises(InputError, match="would have one result") as caught:
        scans(given, tmp_path / "out")
    assert all(name in str(caught.value) for name in names) and "Rename" in str(caught.value)


def test_one_scan_given_twice_is_one_result(tmp_path):
    path = str(touch(tmp_path, "a.nii.gz") / "a.nii.gz")
    assert {item["result"] for item in scans([path, path], tmp_path / "out")} == {str(tmp_path / "out" / "a_sr")}


def test_a_few_subjects_are_enough_to_train_and_validate(tmp_path):
    bids(tmp_path, ["a", "b"])
    assert len(subjects(tmp_path, "training")) == len(subjects(tmp_path, "validation")) == 1
