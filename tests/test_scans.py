"""Which scans are taken to be rebuilt, from files, folders and lists, and where their results go."""

from pathlib import Path

import pytest

from scripts.errors import InputError
from scripts.scans import scans

THIN = 1.3  # mm


def touch(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


@pytest.mark.parametrize("name", ["a.nii.gz", "b.nii", "c.mgz", "d.nrrd", "e.mha", "f.x.nii.gz"])
def test_a_file_is_its_own_scan_with_its_result_in_the_output_folder(name, tmp_path):
    path = str(touch(tmp_path, name) / name)
    (item,) = scans(path, tmp_path / "out", THIN)
    stem = {"f.x.nii.gz": "f.x"}.get(name, name[0])
    result = str(tmp_path / "out" / f"{stem}_sr")
    assert item == {"image": path, "name": path, "sources": [path], "result": result}
    assert not (tmp_path / "out").exists()


def test_the_sources_of_a_scan_are_all_its_files(tmp_path):
    """What a second run must find unchanged: the voxels, and what says how thick the slices are."""
    touch(tmp_path, "a.nii.gz", "a.json", "b.json", "c.nhdr", "c.raw.gz", "d.mhd", "d.raw", "voxels of d.raw")
    (tmp_path / "c.nhdr").write_text("NRRD0004\ndata file: ./c.raw.gz\n")
    (tmp_path / "d.mhd").write_text("NDims = 3\nElementDataFile = voxels of d.raw\n")
    found = {scan: scans(tmp_path / scan, tmp_path, THIN)[0]["sources"] for scan in ("a.nii.gz", "c.nhdr", "d.mhd")}
    assert {scan: [Path(p).name for p in paths] for scan, paths in found.items()} == {
        "a.nii.gz": ["a.nii.gz", "a.json"],
        "c.nhdr": ["c.nhdr", "c.raw.gz"],
        "d.mhd": ["d.mhd", "voxels of d.raw"],
    }


def test_a_single_file_may_be_a_result(tmp_path):
    touch(tmp_path, "a_sr.nii.gz")
    assert len(scans(tmp_path / "a_sr.nii.gz", tmp_path, THIN)) == 1


def test_a_folder_is_searched_at_any_depth_without_results_and_hidden_files(tmp_path):
    found = ["a.nii.gz", "deep/er/b.nii", "deep/a.nii.gz", "sr/c.nii.gz", "d_sr_2.nii.gz", "sr.nii.gz"]
    touch(tmp_path, *found, "a_sr.nii.gz", "deep/b_sr.nii", ".123-a.nii.gz", "a.json", "x.dcm", "a.nii.gz.part")
    items = scans(tmp_path, tmp_path, THIN)
    assert {item["image"] for item in items} == {str(tmp_path / name) for name in found}
    assert all("truth" not in item and "dataset" not in item for item in items)
    assert items == scans(str(tmp_path), tmp_path, THIN)


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
        scans(tmp_path / source, tmp_path / "out", THIN)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_results_lie_as_the_scans_of_a_folder_do(tmp_path):
    touch(tmp_path, "in/a.nii.gz", "in/sub-1/a.nii.gz", "in/sub-1/deep/b.mgz")
    results = {item["result"] for item in scans(tmp_path / "in", tmp_path / "out", THIN)}
    assert results == {str(tmp_path / "out" / name) for name in ("a_sr", "sub-1/a_sr", "sub-1/deep/b_sr")}


def test_a_list_holds_files_and_folders(tmp_path):
    touch(tmp_path, "a.nii.gz", "in/b.nii", "in/deep/c.nii.gz")
    items = scans([str(tmp_path / "a.nii.gz"), str(tmp_path / "in")], tmp_path / "out", THIN)
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
        scans(given, tmp_path / "out", THIN)
    assert all(name in str(caught.value) for name in names) and "Rename" in str(caught.value)


def test_one_scan_given_twice_is_one_result(tmp_path):
    path = str(touch(tmp_path, "a.nii.gz") / "a.nii.gz")
    assert {item["result"] for item in scans([path, path], tmp_path / "out", THIN)} == {str(tmp_path / "out" / "a_sr")}
