"""The command that fetches the public data, from mirrors on this machine; the table that it reads, beside real data."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from drift_mri import data
from scripts.errors import InputError
from scripts.files import sha256
from scripts.train.datasets import from_datalist, label_maps
from tests.dicom_files import DCM2NIIX, SHAPE, VOXELS, mr_slices, save, through_dcm2niix
from tests.processes import ROOT

SHARED = ROOT.parent / "shared" / "data"
TABLE = json.loads(data.SOURCES.read_text())
AFFINE = np.array([[0, -0.9, 0, 90], [0.8, 0, 0, -126], [0, 0, 1.1, -72], [0, 0, 0, 1]])
CROP = [[2, 14], [1, 17], [3, 9]]
real = pytest.mark.skipif(not SHARED.exists(), reason="the shared data are not here")


def saved(path, voxels, affine=AFFINE):
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(voxels, affine), path)
    return path


class Mirror:
    """A folder of published files, and the table that names them."""

    def __init__(self, folder):
        self.folder, self.rows = folder / "mirror", []
        self.table, self.out = folder / "table.json", folder / "out"
        random = np.random.default_rng(0)
        self.head = random.normal(200, 80, (16, 18, 12)).astype(np.float32)
        self.head[3, 4, 5], self.head[8, 8, 8] = 40000, -30
        for name in ("a_T1w", "a_FLAIR"):
            path = saved(folder / "mirror/who/heads/c0ffee" / f"{name}.nii.gz", self.head)
            recipe = {"crop": CROP, "scaled": True, "wrapped": 32768, "dtype": "int16"}
            other = "a_FLAIR" if name == "a_T1w" else "a_T1w"
            entry = {"lists": ["training"], "subject": "a", "contrast": name[2:], "sharp_axes": [0, 1]}
            self.add(f"heads/{name}.nii.gz", path, recipe, guides=[f"heads/{other}.nii.gz"], **entry)
        path = saved(folder / "mirror/who/heads/c0ffee" / "b.nii", self.head.astype(np.int16))
        entry = {"lists": ["validation", "thick"], "subject": "b", "contrast": "T2w", "sharp_axes": [0, 1, 2]}
        self.add("heads/b_T2w.nii.gz", path, {"dtype": "int16"}, lesions="lesions/b.nii.gz", **entry)
        path = saved(folder / "mirror/who/heads/c0ffee" / "lesions of b.nii.gz", (self.head > 300).astype(np.float32))
        self.add("lesions/b.nii.gz", path, {"crop": CROP, "dtype": "uint8"})
        labels = np.zeros((16, 18, 12), np.float32)
        labels[3:13, 3:15, 2:10] = random.integers(2, 60, (10, 12, 8))
        path = saved(folder / "mirror/who/heads/c0ffee" / "seg.nii.gz", labels)
        self.add("labels/seg.nii.gz", path, {"dtype": "int16"})

    def add(self, image, path, recipe, **entry):
        place = {"repository": "who/heads", "commit": "c0ffee", "path": path.name, "sha256": sha256([path])}
        made = data.prepared(nib.load(path), recipe)
        self.rows.append({"image": image, **entry, "source": place, "recipe": recipe, "voxels": data.fingerprint(made)})

    def write(self):
        here = self.folder.as_uri()
        addresses = {
            "file": f"{here}/{{repository}}/{{commit}}/{{path}}",
            "folder": f"{here}/trees/{{git_object}}",
        }
        self.table.write_text(json.dumps({"addresses": addresses, "files": self.rows}))

    def run(self):
        self.write()
        data.main([str(self.out), "--sources", str(self.table)])

    def images(self):
        return [row["image"] for row in self.rows]

    def files(self):
        return {path.relative_to(self.out).as_posix() for path in self.out.rglob("*") if path.is_file()}


@pytest.fixture
def mirror(tmp_path):
    return Mirror(tmp_path)


def test_all_files_come_and_the_datalist_names_them(mirror):
    mirror.write()
    command = [sys.executable, "-m", "drift_mri.data", "out", "--sources", "table.json"]
    done = subprocess.run(command, cwd=mirror.table.parent, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr
    assert mirror.files() == {*mirror.images(), "datalist.json"}
    training, validation, thick = (from_datalist(mirror.out / "datalist.json", name) for name in data.SECTIONS)
    assert [item["subject"] for item in training] == ["a", "a"] and validation == thick
    assert training[0]["guides"] == [training[1]["label"]] and training[0]["sharp_axes"] == [0, 1]
    assert training[1]["contrast"] == "FLAIR" and Path(validation[0]["lesions"]).is_file()
    assert len(label_maps(mirror.out / "labels")) == 1


def test_a_recipe_crops_scales_and_keeps_the_place(mirror):
    mirror.run()
    first, source = nib.load(mirror.out / "heads/a_T1w.nii.gz"), mirror.head[2:14, 1:17, 3:9].copy()
    source[source > 30000] = 0
    scaled = np.round(source.clip(0) * np.float32(4095 / np.percentile(source.clip(0), 99.99)))
    assert first.get_data_dtype() == np.int16
    np.testing.assert_array_equal(first.dataobj, scaled)
    np.testing.assert_allclose(first.affine @ [0, 0, 0, 1], AFFINE @ [2, 1, 3, 1], atol=1e-5)
    np.testing.assert_array_equal(nib.load(mirror.out / "heads/b_T2w.nii.gz").dataobj, mirror.head.astype(np.int16))


def test_pairs_of_voxels_become_their_mean_in_their_middle():
    voxels = np.arange(4 * 6 * 3, dtype=np.int16).reshape(4, 6, 3)
    made = data.prepared(nib.Nifti1Image(voxels, AFFINE), {"averaged_axes": [0, 1], "dtype": "float32"})
    np.testing.assert_array_equal(made.dataobj, voxels.reshape(2, 2, 3, 2, 3).mean((1, 3)))
    np.testing.assert_allclose(made.affine @ [1, 2, 0, 1], AFFINE @ [2.5, 4.5, 0, 1])


def test_a_missing_file_and_another_one_are_named_and_the_rest_goes_on(mirror, capsys):
    gone, other = (mirror.folder / "who/heads/c0ffee" / name for name in ("a_FLAIR.nii.gz", "lesions of b.nii.gz"))
    gone.unlink()
    other.write_bytes(b"other")
    with pytest.raises(InputError, match="2 files are missing"):
        mirror.run()
    said = capsys.readouterr().err
    assert gone.as_uri() in said
    assert f"{other.as_uri()} has the sha256 {hashlib.sha256(b'other').hexdigest()}" in said
    assert mirror.files() == {f"heads/{name}.nii.gz" for name in ("a_T1w", "b_T2w")} | {
        "labels/seg.nii.gz",
        "datalist.json",
    }
    (item,), (held_out,) = (from_datalist(mirror.out / "datalist.json", name) for name in data.SECTIONS[:2])
    assert "guides" not in item and "lesions" not in held_out, "a datalist names what is there"
    saved(gone, mirror.head)
    mirror.rows[1]["source"]["sha256"] = sha256([gone])
    other.unlink()
    mirror.rows[3]["source"]["also"] = [saved(mirror.folder / "elsewhere.nii.gz", mirror.head).as_uri()]
    mirror.rows[3]["source"]["sha256"] = sha256([mirror.folder / "elsewhere.nii.gz"])
    mirror.rows[3]["voxels"] = data.fingerprint(
        data.prepared(nib.load(mirror.folder / "elsewhere.nii.gz"), mirror.rows[3]["recipe"])
    )
    mirror.run()
    assert "lesions/b.nii.gz" in mirror.files(), "a second address serves"


def test_a_second_run_leaves_what_is_there_and_makes_anew_what_is_harmed(mirror):
    mirror.run()
    times = {name: (mirror.out / name).stat().st_mtime_ns for name in mirror.files()}
    (mirror.folder / "who/heads/c0ffee/b.nii").unlink()  # nobody asks for it
    harmed = mirror.out / "heads/a_T1w.nii.gz"
    harmed.write_bytes(harmed.read_bytes()[:-500])  # as a full disk leaves it
    saved(mirror.out / "heads/a_FLAIR.nii.gz", mirror.head)  # as another release leaves it
    (harmed.parent / ".17-a_T1w.nii.gz").write_bytes(b"half")  # as a killed run leaves it
    mirror.run()
    again = {name: (mirror.out / name).stat().st_mtime_ns for name in mirror.files()}
    assert {name for name in times if times[name] != again.get(name)} == {*mirror.images()[:2], "datalist.json"}
    assert again.keys() == times.keys(), "what a killed run left is gone"


def test_voxels_that_differ_from_the_table_are_no_volume(mirror, capsys):
    mirror.rows[0]["recipe"] = mirror.rows[0]["recipe"] | {"crop": [[2, 14], [1, 17], [2, 8]]}
    with pytest.raises(InputError, match="1 file is missing"):
        mirror.run()
    assert mirror.rows[0]["voxels"] in capsys.readouterr().err
    assert "heads/a_T1w.nii.gz" not in mirror.files()


@pytest.mark.skipif(DCM2NIIX is None, reason="dcm2niix is not installed")
def test_a_folder_of_dicom_files_becomes_a_volume(mirror, capsys):
    mirror.rows.clear()
    folder = mirror.folder / "who/heads/c0ffee/series"
    save(folder, mr_slices(VOXELS), names=[f"{k}.dcm" for k in range(SHAPE[2])])
    names = sorted(path.name for path in folder.iterdir())
    listing = mirror.folder / "trees/facade"
    listing.parent.mkdir()
    listing.write_text(json.dumps({"tree": [{"path": name} for name in [*names, "README.md"]]}))
    lines = "".join(f"{one}\n" for one in sorted(sha256([folder / name]) for name in names))
    place = {"repository": "who/heads", "commit": "c0ffee", "path": "series", "files": len(names)}
    place |= {"git_object": "facade", "sha256": hashlib.sha256(lines.encode()).hexdigest()}
    voxels, affine, _ = through_dcm2niix(folder, mirror.folder / "nifti")
    made = data.fingerprint(nib.Nifti1Image(np.asarray(voxels), affine))
    mirror.rows.append({"image": "c.nii.gz", "source": place, "recipe": {"dtype": "uint16"}, "voxels": made})
    mirror.run()
    assert sorted(nib.load(mirror.out / "c.nii.gz").shape) == sorted(SHAPE)
    (folder / names[0]).write_bytes((folder / names[1]).read_bytes())
    (mirror.out / "c.nii.gz").unlink()
    with pytest.raises(InputError):
        mirror.run()
    assert listing.as_uri() in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "no table", '{"files": []}', "[]"])
def test_a_table_that_is_none_is_refused(tmp_path, content):
    path = tmp_path / "table.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match="table of files"):
        data.main([str(tmp_path / "out"), "--sources", str(path)])
    assert not (tmp_path / "out" / "datalist.json").exists()


def test_the_table_splits_by_subject_and_names_what_it_holds():
    rows = {row["image"]: row for row in TABLE["files"]}
    assert len(rows) == len(TABLE["files"])
    subjects = {
        name: {row["subject"] for row in rows.values() if name in row.get("lists", [])} for name in data.SECTIONS
    }
    assert not subjects["training"] & subjects["validation"]
    for row in rows.values():
        named = [*row.get("guides", []), *([row["lesions"]] if "lesions" in row else [])]
        assert all(name in rows for name in named)
        assert all(rows[name]["subject"] == row["subject"] for name in row.get("guides", []))
        assert row["licence"] and row["dataset"] and len(row["source"]["commit"]) == 40
        assert len(row["source"]["sha256"]) == len(row["voxels"]) == 64


@real
def test_the_table_has_the_catalogues_volumes():
    catalogue = json.loads((SHARED / "catalogue.json").read_text())
    lists = {"train": "training", "val": "validation", "thick": "thick"}
    facts = ("image", "subject", "contrast", "sharp_axes")
    ours = {(one, *map(str, map(row.get, facts))) for row in TABLE["files"] for one in row.get("lists", ())}
    assert ours == {(lists[entry["kind"]], *map(str, map(entry.get, facts))) for entry in catalogue}


@real
@pytest.mark.parametrize("row", TABLE["files"][::7], ids=lambda row: row["image"])
def test_a_recipe_gives_the_volume_that_is_there(row):
    """Put back into the field of view that the recipe cuts it from."""
    volume = nib.load(SHARED / row["image"])
    assert data.fingerprint(volume) == row["voxels"]
    recipe = {name: value for name, value in row["recipe"].items() if name != "averaged_axes"}
    crop = recipe.get("crop") or [[0, length] for length in volume.shape]
    raw = np.pad(np.asanyarray(volume.dataobj), [(begin, 5) for begin, _ in crop])
    affine = volume.affine.copy()
    affine[:3, 3] -= affine[:3, :3] @ [begin for begin, _ in crop]
    made = data.prepared(nib.Nifti1Image(raw, affine), recipe | {"crop": crop})
    rounded = 1 if recipe.get("scaled") else 0  # the scale of whole numbers is 1 but for their rounding
    np.testing.assert_allclose(made.dataobj, np.asanyarray(volume.dataobj), rtol=0, atol=rounded)
    assert made.get_data_dtype() == volume.get_data_dtype()
    np.testing.assert_allclose(made.affine, volume.affine, atol=1e-4)
