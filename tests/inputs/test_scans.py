"""Which scans are taken to be rebuilt, from files, folders and lists, and where their results go."""

import json
import re
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from scripts.errors import InputError
from scripts.inputs.scan import Scan
from scripts.inputs.scans import scan_named, scans
from scripts.inputs.selection import Selection
from tests.bids_files import write
from tests.cohort_files import add
from tests.dicom_files import THIN


def names(source, out="nowhere", thin=THIN):
    """Of the scans that are taken."""
    return [item.source.name for item in scans(source, out, Selection(thin))]


def touch(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


@pytest.mark.parametrize("name", ["a.nii.gz", "d.nrrd", "f.x.nii.gz"])
def test_a_file_is_its_own_scan_with_its_result_in_the_output_folder(name, tmp_path):
    path = touch(tmp_path, name) / name
    (item,) = scans(path, tmp_path / "out", Selection(THIN))
    stem = {"f.x.nii.gz": "f.x"}.get(name, name[0])
    assert item == Scan(str(path), path, (path,), tmp_path / "out" / f"{stem}_sr")
    assert not (tmp_path / "out").exists()


def test_the_sources_of_a_scan_are_all_its_files(tmp_path):
    """What a second run must find unchanged: the voxels, and what says how thick the slices are."""
    touch(tmp_path, "a.nii.gz", "a.json", "b.json", "c.nhdr", "c.raw.gz", "d.mhd", "d.raw", "voxels of d.raw")
    (tmp_path / "c.nhdr").write_text("NRRD0004\ndata file: ./c.raw.gz\n")
    (tmp_path / "d.mhd").write_text("NDims = 3\nElementDataFile = voxels of d.raw\n")
    names = ("a.nii.gz", "c.nhdr", "d.mhd")
    found = {name: scans(tmp_path / name, tmp_path, Selection(THIN))[0].files for name in names}
    assert {scan: [path.name for path in paths] for scan, paths in found.items()} == {
        "a.nii.gz": ["a.nii.gz", "a.json"],
        "c.nhdr": ["c.nhdr", "c.raw.gz"],
        "d.mhd": ["d.mhd", "voxels of d.raw"],
    }


def test_a_folder_is_searched_at_any_depth_without_results_which_are_named_and_hidden_files(tmp_path, log):
    found = ["a.nii.gz", "deep/er/b.nii", "deep/a.nii.gz", "sr/c.nii.gz", "d_sr_2.nii.gz", "sr.nii.gz"]
    made = ["a_sr.nii.gz", "a_sr_error.nii.gz", "deep/b_sr.nii"]
    touch(tmp_path, *found, *made, ".123-a.nii.gz", "a.json", "x.dcm", "a.nii.gz.part")
    items = scans(tmp_path, tmp_path, Selection(THIN))
    assert {item.source for item in items} == {tmp_path / name for name in found}
    assert all(item.truth is None and item.dataset is None for item in items)
    assert {f"{name} is skipped: its name ends in _sr, as those of results do." for name in made} < {*log.messages}
    assert items == scans(str(tmp_path), tmp_path, Selection(THIN))


@pytest.mark.parametrize(
    ("files", "given", "results"),
    [
        ("in/a.nii.gz in/sub-1/a.nii.gz in/sub-1/deep/b.mgz", "in", "a_sr sub-1/a_sr sub-1/deep/b_sr"),
        ("a.nii.gz in/b.nii in/deep/c.nii.gz", "a.nii.gz in", "a_sr b_sr deep/c_sr"),
        ("x/a.nii.gz y/a.nii.gz", "x/a.nii.gz y/a.nii.gz", "x/a_sr y/a_sr"),  # drift-mri */a.nii.gz
        ("x/a.nii.gz y/b.nii.gz", "x/a.nii.gz y/b.nii.gz", "a_sr b_sr"),
        ("s/x/a.nii s/y/a.nii s/y/b.nii", "s/x/a.nii s/y/a.nii s/y/b.nii", "x/a_sr y/a_sr y/b_sr"),
        ("x/a.nii x/deep/b.nii y/a.nii", "x y", "x/a_sr x/deep/b_sr y/a_sr"),
        ("a.nii in/a.nii", "a.nii in", "a_sr in/a_sr"),
        ("in/a.nii in/a.nii.gz in/a.mgz in/b.nii", "in", "a.mgz_sr a.nii_sr a.nii.gz_sr b_sr"),
        ("x/a.nii x/a.NII y/a.nii", "x/a.nii x/a.NII y/a.nii", "x/a.nii_sr x/a.NII_sr y/a_sr"),
    ],
)
def test_results_lie_as_scans_do_or_keep_the_names_of_their_folders(files, given, results, tmp_path, monkeypatch):
    touch(tmp_path, *files.split())
    monkeypatch.chdir(tmp_path)
    for before in (Path(), tmp_path):
        items = scans([str(before / name) for name in given.split()], tmp_path / "out", Selection(THIN))
        found = [item.result.relative_to(tmp_path / "out").as_posix() for item in items]
        assert found == results.split()
    (tmp_path / "out").mkdir()
    for name in found:  # as a run writes them beside the scans
        touch(tmp_path, f"{name}.nii.gz")
    again = scans([str(tmp_path / name) for name in given.split()], tmp_path / "out", Selection(THIN))
    assert [item.result for item in again] == [item.result for item in items]


@pytest.mark.parametrize("given", ["a.nii.gz a.nii.gz", "a.nii.gz ./a.nii.gz", ". a.nii.gz", "a.nii.gz ."])
def test_one_scan_given_twice_is_one_scan(given, tmp_path, monkeypatch):
    touch(tmp_path, "a.nii.gz")
    monkeypatch.chdir(tmp_path)
    assert [item.result for item in scans(given.split(), "out", Selection(THIN))] == [Path("out/a_sr")]


# --- no scan is left out without a word ---


@pytest.mark.parametrize(
    ("shape", "dtype", "why"),
    [
        ((8, 9, 6, 2), "<i2", r"has shape \(8, 9, 6, 2\): expected a 3-D volume"),
        ((8, 9, 6), "<c8", "holds complex64 voxels: expected one real number each"),
        ((8, 9, 6), [("R", "u1"), ("G", "u1"), ("B", "u1")], "holds .* voxels: expected one real"),
    ],
)
@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_series_and_colours_of_a_folder_are_skipped_by_their_headers(shape, dtype, why, ending, tmp_path, log):
    """A study folder holds them beside its scans: they are no failures, and their voxels are never read."""
    add(tmp_path / "scan.nii.gz")
    path = tmp_path / f"a{ending}"
    nib.save(nib.Nifti1Image(np.zeros(shape, dtype), np.diag([1.0, 1.0, 5.0, 1.0])), path)
    if ending == ".nii":
        path.write_bytes(path.read_bytes()[:352])  # the header alone
    assert names(tmp_path) == ["scan.nii.gz"]
    assert re.search(f"{path.name} is skipped: it {why}", log.text)
    assert names(path) == [path.name], "by name it is taken, so that its turn comes to tell"


# --- which volumes of a folder are scans to rebuild: one rule ---


@pytest.mark.parametrize("name", ["scan", "sub-1/anat/sub-1_T2w"])
@pytest.mark.parametrize(
    ("spacing", "thickness", "taken"),
    [
        ((1, 1, 1.3), None, False),
        ((1, 1, 1.35), None, True),
        ((3, 2, 3), None, False),  # isotropic, if coarse
        ((3, 3, 3), 5.0, True),  # overlapping slices are thick
        ((1, 1, 5), 1.0, True),  # thin slices far apart
        ((1, 1, 1), "broken", True),  # told when its turn comes
    ],
)
def test_thick_is_one_rule_of_spacing_and_known_thickness(spacing, thickness, taken, name, tmp_path, log):
    root = write(tmp_path) if name.startswith("sub-") else tmp_path
    path = add(root / f"{name}.nii.gz", spacing)
    add(path.with_name("sub-1_acq-x_T2w.nii.gz"))
    if thickness is not None:
        path.with_name(path.name.replace(".nii.gz", ".json")).write_text(f'{{"SliceThickness": "{thickness}"}}')
    assert (path.name in names(root)) == taken
    assert any(f"{path.name} is skipped: thin or isotropic already: slices" in m for m in log.messages) != taken
    assert names(path) == [path.name], "a scan given by name is taken"


def test_spacing_is_that_of_the_affine(tmp_path):
    """`pixdim` says 1 mm where the affine says 5."""
    path = add(tmp_path / "scan.nii")
    content = bytearray(path.read_bytes())
    content[80:92] = np.ones(3, "<f4").tobytes()  # pixdim[1] to [3]
    path.write_bytes(content)
    assert nib.load(path).header.get_zooms() == (1, 1, 1) and names(tmp_path) == [path.name]


def test_what_is_thin_is_what_the_weights_were_trained_for(tmp_path):
    add(tmp_path / "a.nii.gz", (1, 1, 1.8))
    assert names(tmp_path, thin=1.7) == ["a.nii.gz"]
    with pytest.raises(InputError, match=rf"^{re.escape(str(tmp_path))}: no thick-slice scan"):
        scans([tmp_path], tmp_path / "out", Selection(2.0))


@pytest.mark.parametrize(
    ("fields", "reason", "ending"),
    [
        ({"Modality": "CT"}, "its sidecar says: not MR: the modality is CT", ".mgz"),
        (None, "a diffusion series, whose b-values lie beside it", ".nii.gz"),
    ],
)
def test_what_its_sidecar_says_is_no_head_is_skipped_unless_it_is_asked_for(fields, reason, ending, tmp_path, log):
    add(tmp_path / "in/scan.nii.gz")
    path = add(tmp_path / f"in/a/4_x{ending}")
    beside = path.with_name("4_x.bval" if fields is None else "4_x.json")
    beside.write_text("0 1000" if fields is None else json.dumps(fields))
    assert names(tmp_path / "in") == ["scan.nii.gz"]
    (told,) = [m for m in log.messages if m.startswith(f"a/{path.name} is skipped: {reason}")]
    name = re.search("--include (.*) takes it nevertheless", told)[1]
    (item,) = scans(tmp_path / "in", tmp_path / "out", Selection(THIN, include=name))
    assert item.source == path
    assert names(path) == [path.name]


@pytest.mark.parametrize("tool", ["DRIFT", "another"])
def test_datasets_that_drift_wrote_are_left_out_and_named(tool, tmp_path, log):
    add(tmp_path / "scan.nii.gz")
    add(tmp_path / "derivatives/sr/sub-1/anat/sub-1_desc-sr_T2w.nii.gz")
    description = f'{{"Name": "x", "GeneratedBy": [{{"Name": "{tool}"}}]}}'
    (tmp_path / "derivatives/sr/dataset_description.json").write_text(description)
    assert names(tmp_path) == ["scan.nii.gz"] + ["sub-1_desc-sr_T2w.nii.gz"] * (tool != "DRIFT")
    told = "derivatives/sr is skipped: it is a dataset of results that DRIFT wrote."
    assert (told in log.messages) == (tool == "DRIFT")


# A guide


def test_a_named_guide_guides_all_but_itself(tmp_path):
    paths = [add(tmp_path / f"{name}.nii.gz") for name in ("a", "b", "guide")]
    found = scans(paths, tmp_path / "out", Selection(THIN), guide=paths[2])
    assert [[guide.scan.source for guide in one.guides] for one in found] == [[paths[2]], [paths[2]], []]
    assert found[0].guides[0].scan.files == (paths[2],)


def test_a_guide_that_is_not_there_is_refused(tmp_path):
    for path in (tmp_path / "absent.nii.gz", tmp_path):
        with pytest.raises(InputError, match="--guide"):
            scan_named(path, "--guide")


HEAD = np.random.default_rng(1).integers(0, 1000, (20, 20, 20)).astype(np.int16)


def guides(source, selection=None, guide="auto"):
    """The names of scans that are rebuilt and those of their guides."""
    found = scans(source, "nowhere", selection or Selection(THIN), guide=guide)
    return {Path(one.name).name: Path(one.guides[0].scan.name).name if one.guides else None for one in found}


def examination(folder):
    add(folder / "FLAIR.nii.gz")
    add(folder / "T1w.nii.gz", (1, 1, 1), HEAD)
    add(folder / "T2w.nii.gz", (1, 1, 1), HEAD)


def test_the_best_scan_beside_a_thick_one_guides_it_also_one_that_is_not_included(tmp_path):
    examination(tmp_path)
    for guide, include in (("auto", None), (True, None), ("auto", "FLAIR*")):
        found = guides(tmp_path, Selection(THIN, include=include), guide)
        assert found == {"FLAIR.nii.gz": "T1w.nii.gz"}


def test_a_mask_a_result_and_what_is_shut_out_guide_nothing(tmp_path):
    examination(tmp_path)
    add(tmp_path / "T1w.nii.gz", (1, 1, 1), (HEAD > 500).astype(np.int16))
    (tmp_path / "T2w.nii.gz").rename(tmp_path / "T2w_sr.nii.gz")
    assert guides(tmp_path) == {"FLAIR.nii.gz": None}
    examination(tmp_path)
    assert guides(tmp_path, Selection(THIN, exclude="T1*")) == {"FLAIR.nii.gz": "T2w.nii.gz"}
