"""BIDS: which sidecar says what, which scans are taken, and that results are a derivative that a validator accepts."""

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from scripts import bids
from scripts.errors import InputError, input_error
from scripts.scans import scans

VALIDATOR = shutil.which("bids-validator-deno", path=Path(sys.executable).parent) or shutil.which("bids-validator-deno")
THIN = 1.3  # mm
THICK = np.diag([1.0, 1.0, 5.0, 1.0])
SCAN = "sub-01/ses-a/anat/sub-01_ses-a_acq-tse_T2w.nii.gz"


def write(root, **files):
    """A dataset: name -> content of a JSON file, or a text."""
    for name, content in {"dataset_description.json": {"Name": "x", "BIDSVersion": "1.9.0"}, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return root


def add_scan(root, name, affine=THICK, shape=(8, 9, 6)):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nib.Nifti1Image((1000 * np.random.default_rng(0).random(shape)).astype(np.float32), affine)
    image.header.set_xyzt_units("mm", "sec")
    nib.save(image, path)
    return path


# --- inheritance ---


# (sidecar, whether it speaks of SCAN), from the nearest to the farthest
SIDECARS = [
    ("sub-01/ses-a/anat/sub-01_ses-a_acq-tse_T2w.json", True),
    ("sub-01/ses-a/anat/sub-01_ses-a_T2w.json", True),
    ("sub-01/ses-a/sub-01_ses-a_acq-tse_T2w.json", True),
    ("sub-01/ses-a/sub-01_ses-a_T2w.json", True),
    ("sub-01/sub-01_T2w.json", True),
    ("acq-tse_T2w.json", True),
    ("T2w.json", True),
    ("sub-01/ses-a/anat/sub-01_ses-a_acq-tse_T1w.json", False),
    ("sub-01/ses-a/anat/sub-01_ses-a_acq-tse_run-1_T2w.json", False),
    ("sub-01/ses-a/anat/sub-02_ses-a_acq-tse_T2w.json", False),
    ("sub-01/sub-01_ses-b_T2w.json", False),
    ("sub-02/sub-01_T2w.json", False),
    ("sub-01/ses-a/T2w/T2w.json", False),
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


@pytest.mark.parametrize("nearest", range(4))
def test_the_nearest_sidecar_that_knows_a_value_wins(nearest, tmp_path):
    """One in each folder: BIDS allows no more."""
    speaking = [SCAN.replace(".nii.gz", ".json"), *(SIDECARS[k][0] for k in (3, 4, 6))]
    root = write(tmp_path, **{name: {"SliceThickness": k} for k, name in enumerate(speaking) if k >= nearest})
    assert bids.sidecar_value(root / SCAN, "SliceThickness")[0] == nearest


def test_a_nearer_sidecar_that_does_not_know_leaves_it_to_the_next(tmp_path):
    near = SCAN.replace(".nii.gz", ".json")
    root = write(tmp_path, **{near: {"EchoTime": 0.1}, "T2w.json": {"SliceThickness": 4, "EchoTime": 0.2}})
    assert bids.sidecar_value(root / SCAN, "SliceThickness") == (4, root / "T2w.json")
    assert bids.sidecar_value(root / SCAN, "EchoTime") == (0.1, root / near)
    assert bids.sidecars(root / SCAN) == [root / near, root / "T2w.json"]


def test_a_sidecar_without_a_dataset_speaks_of_its_own_scan_alone(tmp_path):
    (tmp_path / "T2w.json").write_text('{"SliceThickness": 9}')
    (tmp_path / "sub-01_T2w.json").write_text('{"SliceThickness": 4}')
    assert bids.sidecar_value(tmp_path / "sub-01_T2w.nii.gz", "SliceThickness")[0] == 4
    assert bids.sidecar_value(tmp_path / "sub-02_T2w.nii.gz", "SliceThickness") == (None, None)


def test_nothing_is_inherited_from_above_the_dataset(tmp_path):
    root = write(tmp_path / "inner")
    write(tmp_path, **{"T2w.json": {"SliceThickness": 9}})
    assert bids.dataset_root(root / SCAN) == root
    assert bids.sidecar_value(root / SCAN, "SliceThickness") == (None, None)


@pytest.mark.parametrize("content", ["{", "[4]", "4", "", "null"])
def test_a_broken_inherited_sidecar_is_named(content, tmp_path):
    root = write(tmp_path, **{"T2w.json": content})
    with pytest.raises(InputError, match=r"T2w\.json: SliceThickness cannot be read.*remove it"):
        bids.sidecar_value(root / SCAN, "SliceThickness")


# --- which scans ---


def test_the_thick_anatomical_scans_of_a_dataset_are_taken(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="drift")
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
    items = scans(root, out, THIN)
    assert [item["image"] for item in items] == [str(root / name) for name in taken]
    assert [Path(item["result"]).relative_to(out).as_posix() for item in items] == [
        "sub-01/anat/sub-01_desc-sr_T2w",
        "sub-02/ses-1/anat/sub-02_ses-1_desc-sr_FLAIR",
    ]
    assert {item["dataset"] for item in items} == {str(root)}
    assert items[0]["sources"] == [str(root / taken[0]), str(root / "sub-01/anat/sub-01_T2w.json")]
    assert any("sub-01_T1w.nii.gz is skipped" in m and "slices 1.3 mm apart" in m for m in caplog.messages)


def test_a_scan_that_cannot_be_read_is_taken_so_that_it_is_told(tmp_path):
    root = write(tmp_path)
    add_scan(root, "sub-01/anat/sub-01_T2w.nii.gz").write_bytes(b"")
    assert len(scans(root, tmp_path / "out", THIN)) == 1


@pytest.mark.parametrize("name", ["sub-01_mod-T2w_defacemask", "sub-01_part-phase_T2w", "sub-01_part-imag_T2starw"])
def test_masks_and_phases_are_no_scans_to_rebuild(name, tmp_path):
    root = write(tmp_path)
    add_scan(root, "sub-01/anat/sub-01_T2w.nii.gz")
    add_scan(root, f"sub-01/anat/{name}.nii.gz")
    assert [Path(item["image"]).name for item in scans(root, tmp_path / "out", THIN)] == ["sub-01_T2w.nii.gz"]


def test_a_dataset_without_thick_scans_is_told(tmp_path):
    add_scan(write(tmp_path), "sub-01/anat/sub-01_T1w.nii.gz", np.eye(4))
    with pytest.raises(InputError, match="no thick-slice scan was found"):
        scans(tmp_path, tmp_path / "out", THIN)


# --- the derivative ---


@pytest.mark.parametrize(
    ("name", "derivative"),
    [
        ("sub-01_T2w.nii.gz", "sub-01_desc-sr_T2w"),
        ("sub-01_ses-2_acq-x_run-1_FLAIR.nii", "sub-01_ses-2_acq-x_run-1_desc-sr_FLAIR"),
    ],
)
def test_a_derivative_has_its_description_before_its_suffix(name, derivative):
    assert bids.derivative_name(name) == derivative


def test_the_description_says_what_made_the_derivative_and_where_its_sources_are(tmp_path):
    root, out = write(tmp_path / "ds"), tmp_path / "ds" / "derivatives" / "drift"
    bids.write_description(out, root, "0.1.0")
    content = json.loads((out / "dataset_description.json").read_text())
    assert content["DatasetType"] == "derivative"
    assert content["GeneratedBy"] == [{"Name": "DRIFT", "Version": "0.1.0"}]
    assert (out / content["DatasetLinks"]["raw"]).resolve() == root.resolve()


FOREIGN = '{"Name": "mine", "BIDSVersion": "1.9.0", "GeneratedBy": [{"Name": "fMRIPrep"}]}'


@pytest.mark.parametrize(
    ("name", "content"),
    [("dataset_description.json", text) for text in (FOREIGN, '{"Name": "mine"}', "{", "[]", '{"GeneratedBy": 3}')]
    + [(".bidsignore", "*.tmp\n")],
)
def test_another_dataset_is_never_overwritten(name, content, tmp_path):
    """Defect 13."""
    out = write(tmp_path / "out", **{name: content})
    if name == ".bidsignore":
        (out / "dataset_description.json").unlink()
    before = tree(out)
    assert bids.is_foreign(out) == (name != ".bidsignore")
    with pytest.raises(InputError, match="out is a dataset that DRIFT did not write: expected a new folder"):
        bids.write_description(out, tmp_path / "ds", "0.1.0")
    assert tree(out) == before


def test_its_own_dataset_is_written_again_and_lines_of_the_users_stay(tmp_path):
    out = tmp_path / "out"
    assert not bids.is_foreign(out)
    bids.write_description(out, tmp_path / "ds", "0.1.0")
    assert not bids.is_foreign(out) and bids.by_drift(out)
    (out / ".bidsignore").write_text("mine\n")
    bids.write_description(out, tmp_path / "ds", "0.2.0")
    assert "0.2.0" in (out / "dataset_description.json").read_text()
    assert (out / ".bidsignore").read_text() == "mine\n"


@pytest.fixture
def dataset(tmp_path):
    """Two subjects; one thickness inherited from the root, one scan with its own sidecar."""
    root = write(
        tmp_path / "ds",
        **{
            "T2w.json": {"SliceThickness": 4, "EchoTime": 0.1},
            "sub-02/anat/sub-02_FLAIR.json": {"SliceThickness": 4.5},
            "README": "A dataset of two subjects, made by a test to be rebuilt. " * 4,
        },
    )
    add_scan(root, "sub-01/anat/sub-01_T2w.nii.gz")
    add_scan(root, "sub-02/anat/sub-02_FLAIR.nii.gz")
    return root


def tree(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_dataset_becomes_a_derivative_that_a_validator_accepts(dataset, bundle, tmp_path):
    before, out = tree(dataset), tmp_path / "drift"
    bundle(dataset, output_dir=str(out), report=True)
    assert tree(dataset) == before
    stems = ["sub-01/anat/sub-01_desc-sr_T2w", "sub-02/anat/sub-02_desc-sr_FLAIR"]
    assert tree(out).keys() == {
        *(f"{stem}.{ending}" for stem in stems for ending in ("nii.gz", "json", "html")),
        *("dataset_description.json", ".bidsignore", "summary.csv", "index.html"),
    }
    first, second = (json.loads((out / f"{stem}.json").read_text()) for stem in stems)
    assert first["Sources"] == ["bids:raw:sub-01/anat/sub-01_T2w.nii.gz", "bids:raw:T2w.json"]
    assert second["Sources"] == [f"bids:raw:sub-02/anat/sub-02_FLAIR.{ending}" for ending in ("nii.gz", "json")]
    assert first["SliceThickness"] == pytest.approx(1) and first["SpacingBetweenSlices"] == pytest.approx(1)
    facts = [record["Facts"] for record in (first, second)]
    assert [fact["slice thickness"][0] for fact in facts] == ["4 mm", "4.5 mm"]
    assert "T2w.json" in facts[0]["slice thickness"][1] and "sub-02_FLAIR.json" in facts[1]["slice thickness"][1]
    assert len(first["WeightsSHA256"]) == 64 and first["Version"]
    if VALIDATOR is None:
        pytest.skip("the BIDS validator is not installed: pip install bids-validator-deno")
    assert validator_errors(out) == []


def validator_errors(folder):
    result = subprocess.run(
        [VALIDATOR, str(folder), "--format", "json"], capture_output=True, text=True, timeout=60, check=False
    )
    issues = json.loads(result.stdout)["issues"]["issues"]
    return [(i["code"], i.get("subCode"), i.get("location")) for i in issues if i["severity"] == "error"]


@pytest.mark.skipif(VALIDATOR is None, reason="the BIDS validator is not installed: pip install bids-validator-deno")
def test_a_derivative_within_its_dataset_leaves_that_valid(dataset, bundle):
    bundle(dataset, output_dir=str(dataset / "derivatives" / "drift"))
    assert validator_errors(dataset) == []
    assert validator_errors(dataset / "derivatives" / "drift") == []
    (dataset / "sub-01" / "anat" / "stray.nii.gz").write_bytes(b"")
    assert validator_errors(dataset), "the validator does look"


def test_a_dataset_is_never_its_own_output_folder(dataset, bundle):
    """Its description would be replaced by the derivative's."""
    before = tree(dataset)
    with pytest.raises(Exception) as caught:
        bundle(dataset, output_dir=str(dataset))
    assert "output_dir" in str(input_error(caught.value))
    after = tree(dataset)
    assert {name: after.get(name) for name in before} == before


def test_a_second_run_finds_no_scan_among_its_own_results(dataset, bundle):
    out = dataset / "derivatives" / "drift"
    for _ in range(2):
        bundle(dataset, output_dir=str(out))
    assert len(list(out.rglob("*.nii.gz"))) == 2


def test_a_dataset_given_by_another_name_is_the_same(dataset, bundle, tmp_path, monkeypatch):
    """Relative, with a slash at its end, and through a link."""
    (tmp_path / "link").symlink_to(dataset)
    monkeypatch.chdir(tmp_path)
    for name in ("ds", "ds/", "link"):
        bundle(name, output_dir=str(tmp_path / "out" / name[:2]))
        record = json.loads((tmp_path / "out" / name[:2] / "sub-01/anat/sub-01_desc-sr_T2w.json").read_text())
        assert record["Sources"][0] == "bids:raw:sub-01/anat/sub-01_T2w.nii.gz"
