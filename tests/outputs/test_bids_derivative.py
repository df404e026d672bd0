"""The BIDS derivative that results form: what it says, that a validator accepts it, and that none is overwritten."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch

from scripts.errors import InputError
from scripts.inputs.bids import by_drift, description
from scripts.method.weights import save_weights
from scripts.outputs import bids
from tests.bids_files import add_scan, write
from tests.cohort_files import outcomes
from tests.fixtures import CARD
from tests.method.test_error_pattern import CALIBRATION, with_error
from tests.processes import TIMEOUT

VALIDATOR = shutil.which("bids-validator-deno", path=Path(sys.executable).parent) or shutil.which("bids-validator-deno")


def test_the_description_says_what_made_the_derivative_and_where_its_sources_are(tmp_path):
    root, out = write(tmp_path / "ds"), tmp_path / "ds" / "derivatives" / "drift"
    bids.write_description(out, root, "0.1.0", "DRIFT 0.1.0")
    content = json.loads((out / "dataset_description.json").read_text())
    assert content["DatasetType"] == "derivative"
    (tool,) = content["GeneratedBy"]
    assert (tool["Name"], tool["Version"], tool.get("Container", {})) == ("DRIFT", "0.1.0", bids.container())
    assert (out / content["DatasetLinks"]["raw"]).resolve() == root.resolve()
    assert not Path(content["DatasetLinks"]["raw"]).is_absolute(), "a dataset may move with its derivatives"
    assert "Authors" not in content and "the dataset x, rebuilt by DRIFT 0.1.0" in (out / "README").read_text()


def test_the_link_to_the_sources_leads_there_from_a_folder_that_is_a_link(tmp_path):
    """`..` leads out of the folder that a link names, not out of the link."""
    root, out = write(tmp_path / "ds"), tmp_path / "ds" / "derivatives" / "drift"
    (tmp_path / "disk" / "deep" / "drift").mkdir(parents=True)
    out.parent.symlink_to(tmp_path / "disk" / "deep")
    bids.write_description(out, root, "0.1.0", "DRIFT 0.1.0")
    assert (out / description(out)["DatasetLinks"]["raw"]).resolve() == root.resolve()


def test_the_authors_are_the_sources(tmp_path):
    authors = ["A. Ardern", "B. \u0106osi\u0107"]
    root = write(tmp_path / "ds", **{"dataset_description.json": {"Name": "x{y}", "Authors": authors}})
    bids.write_description(tmp_path / "a", root, "0.1.0", "DRIFT 0.1.0")
    assert json.loads((tmp_path / "a" / "dataset_description.json").read_text())["Authors"] == authors
    assert "the dataset x{y}, rebuilt" in (tmp_path / "a" / "README").read_text()


def test_a_readme_of_the_users_stays(tmp_path):
    write(tmp_path / "b", **{"README.md": "mine"})
    (tmp_path / "b" / "dataset_description.json").unlink()
    bids.write_description(tmp_path / "b", write(tmp_path / "ds"), "0.1.0", "DRIFT 0.1.0")
    assert (tmp_path / "b" / "README.md").read_text() == "mine" and not (tmp_path / "b" / "README").exists()


@pytest.mark.parametrize(
    ("mark", "environment", "told"),
    [
        (None, {}, {}),
        (None, {"APPTAINER_CONTAINER": "/images/drift.sif"}, {"Type": "apptainer", "URI": "file:///images/drift.sif"}),
        ("run/.containerenv", {"DRIFT_IMAGE": "drift-mri:1"}, {"Type": "podman", "Tag": "drift-mri:1"}),
        (".dockerenv", {}, {"Type": "docker"}),
    ],
)
def test_the_container_is_told_by_its_marks(mark, environment, told, tmp_path, monkeypatch):
    for name in ("APPTAINER_CONTAINER", "DRIFT_IMAGE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if mark:
        (tmp_path / mark).parent.mkdir(exist_ok=True)
        (tmp_path / mark).touch()
    assert bids.container(tmp_path) == told


FOREIGN = '{"Name": "mine", "BIDSVersion": "1.9.0", "GeneratedBy": [{"Name": "fMRIPrep"}]}'


@pytest.mark.parametrize(
    ("name", "content"),
    [("dataset_description.json", text) for text in (FOREIGN, "{", "[]", '{"GeneratedBy": 3}')]
    + [(".bidsignore", "*.tmp\n")],
)
def test_another_dataset_is_never_overwritten(name, content, tmp_path):
    out = write(tmp_path / "out", **{name: content})
    if name == ".bidsignore":
        (out / "dataset_description.json").unlink()
    before = tree(out)
    with pytest.raises(InputError, match="out is a dataset that DRIFT did not write: expected a new folder"):
        bids.write_description(out, tmp_path / "ds", "0.1.0", "DRIFT 0.1.0")
    assert tree(out) == before


def test_its_own_dataset_is_written_again_and_lines_of_the_users_stay(tmp_path):
    out = tmp_path / "out"
    bids.write_description(out, tmp_path / "ds", "0.1.0", "DRIFT 0.1.0")
    assert by_drift(out)
    (out / ".bidsignore").write_text("mine\n")
    bids.write_description(out, tmp_path / "ds", "0.2.0", "DRIFT 0.2.0")
    assert "0.2.0" in (out / "dataset_description.json").read_text()
    assert (out / ".bidsignore").read_text() == "mine\n"


def test_the_results_of_two_datasets_do_not_share_a_folder(tmp_path):
    """The one link of a derivative would lead half of its sources into the other dataset."""
    first, second, out = write(tmp_path / "a"), write(tmp_path / "b"), tmp_path / "out"
    bids.write_description(out, first, "0.1.0", "DRIFT 0.1.0")
    before = tree(out)
    with pytest.raises(InputError, match=r"has the results of .*a: those of .*b would lose their source"):
        bids.write_description(out, second, "0.1.0", "DRIFT 0.1.0")
    assert tree(out) == before
    shutil.rmtree(first)
    bids.write_description(out, second, "0.1.0", "DRIFT 0.1.0")
    assert (out / description(out)["DatasetLinks"]["raw"]).resolve() == second.resolve()


@pytest.fixture
def dataset(tmp_path):
    """Two subjects; one thickness inherited from the root, one scan with its own sidecar."""
    root = write(
        tmp_path / "ds",
        **{
            "T2w.json": {"SliceThickness": 4, "RepetitionTime": 5.1, "EchoTime": 0.1, "SliceTiming": [0.0] * 6},
            "sub-02/anat/sub-02_FLAIR.json": {
                **{"SliceThickness": 4.5, "MagneticFieldStrength": 3, "Manufacturer": "Maker", "AcquisitionMatrix": 9},
                **{"SpacingBetweenSlices": 5, "SliceEncodingDirection": "k", "InversionTime": 2.5, "FlipAngle": 120},
            },
            "README": "A dataset of two subjects, made by a test to be rebuilt. " * 4,
        },
    )
    add_scan(root, "sub-01/anat/sub-01_T2w.nii.gz")
    add_scan(root, "sub-02/anat/sub-02_FLAIR.nii.gz")
    return root


def tree(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_dataset_becomes_a_derivative_that_a_validator_accepts(dataset, bundle, tmp_path):
    """With pages, error maps and regions, also of a scan whose name has a description."""
    save_weights(with_error(), bundle.weights, replace(CARD, error_map=CALIBRATION), torch.float32)
    scan = nib.load(add_scan(dataset, "sub-01/anat/sub-01_desc-preproc_T1w.nii.gz"))
    regions, out, before = tmp_path / "labels.nii.gz", tmp_path / "drift", tree(dataset)
    nib.save(nib.Nifti1Image(np.ones(scan.shape, np.int16), scan.affine), regions)
    for outcome in ("rebuilt", "complete already"):
        bundle(dataset, output_dir=str(out), report=True, error_map=True, regions=str(regions))
        assert set(outcomes(out)) == {outcome} and tree(dataset) == before
    names = ("sub-01/anat/sub-01_desc-sr{}_T2w", "sub-02/anat/sub-02_desc-sr{}_FLAIR")
    endings = {"": (".nii.gz", ".json", ".html"), "error": (".nii.gz", ".json", "_regions.csv")}
    reports = (".html", "_regions.csv")
    assert tree(out).keys() == {
        *"dataset_description.json .bidsignore logs/summary.csv logs/drift.log logs/index.html README".split(),
        *(
            "logs/" * (ending in reports) + name.format(kind) + ending
            for name in (*names, "sub-01/anat/sub-01_desc-preprocsr{}_T1w")
            for kind in endings
            for ending in endings[kind]
        ),
    }
    index = (out / "logs" / "index.html").read_text()
    for name in names:
        for link in (f"{name.format('')}.html", f"../{name.format('')}.nii.gz"):
            assert f'href="{link}"' in index and (out / "logs" / link).is_file()
    first, second = (json.loads((out / f"{name.format('')}.json").read_text()) for name in names)
    assert first["Sources"] == ["bids:raw:sub-01/anat/sub-01_T2w.nii.gz", "bids:raw:T2w.json"]
    assert second["Sources"] == [f"bids:raw:sub-02/anat/sub-02_FLAIR.{ending}" for ending in ("nii.gz", "json")]
    assert first["SliceThickness"] == pytest.approx(1) and first["SpacingBetweenSlices"] == pytest.approx(1)
    facts = [record["Facts"] for record in (first, second)]
    assert [fact["slice thickness"][0] for fact in facts] == ["4 mm", "4.5 mm"]
    assert "T2w.json" in facts[0]["slice thickness"][1] and "sub-02_FLAIR.json" in facts[1]["slice thickness"][1]
    assert (first["RepetitionTime"], first["EchoTime"]) == (5.1, 0.1), "inherited: what the scanner did holds"
    held = [second[name] for name in ("MagneticFieldStrength", "Manufacturer", "InversionTime", "FlipAngle")]
    assert held == [3, "Maker", 2.5, 120]
    gone = {"SliceTiming", "AcquisitionMatrix", "SliceEncodingDirection"}
    assert not gone & {*first, *second}, "what is of the measured slices does not"
    assert len(first["WeightsSHA256"]) == 64 and first["Version"]
    error = json.loads((out / f"{names[0].format('error')}.json").read_text())
    assert error["Description"].startswith("Half-width") and error["SkullStripped"] is False
    assert "a guess" in facts[0]["skull"][1], "no sidecar says it"
    if VALIDATOR is None:
        pytest.skip("the BIDS validator is not installed: pip install bids-validator-deno")
    assert validator_errors(out) == []


def validator_errors(folder, *options):
    command = [VALIDATOR, str(folder), "--format", "json", *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    said = json.loads(result.stdout)
    issues = [i for one in (said, *said.get("derivativesSummary", {}).values()) for i in one["issues"]["issues"]]
    return [(i["code"], i.get("subCode"), i.get("location")) for i in issues if i["severity"] == "error"]


@pytest.mark.slow
@pytest.mark.skipif(VALIDATOR is None, reason="the BIDS validator is not installed: pip install bids-validator-deno")
def test_a_derivative_within_its_dataset_leaves_that_valid(dataset, bundle, tmp_path):
    """The validator, --recursive, reads no `.bidsignore` but that of the root."""
    save_weights(with_error(), bundle.weights, replace(CARD, error_map=CALIBRATION), torch.float32)
    scan, regions = nib.load(dataset / "sub-01/anat/sub-01_T2w.nii.gz"), tmp_path / "labels.nii.gz"
    nib.save(nib.Nifti1Image(np.ones(scan.shape, np.int16), scan.affine), regions)
    inside = dataset / "derivatives" / "drift"
    bundle(dataset, output_dir=str(inside), report=True, error_map=True, regions=str(regions))
    for options in ((), ("--recursive",)):
        assert validator_errors(dataset, *options) == []
    assert validator_errors(inside) == []
    (inside / "stray.csv").write_bytes(b"")
    assert validator_errors(dataset, "--recursive"), "the validator does look there"
    (dataset / "sub-01" / "anat" / "stray.nii.gz").write_bytes(b"")
    assert validator_errors(dataset), "the validator does look"


def test_a_dataset_is_never_its_own_output_folder(dataset, bundle, refusal):
    """Its description would be replaced by the derivative's."""
    before = tree(dataset)
    assert "output_dir" in refusal(bundle, dataset, output_dir=str(dataset))
    after = tree(dataset)
    assert {name: after.get(name) for name in before} == before


@pytest.mark.parametrize("name", ["sub-01", "code/out", "link/new"])
def test_no_part_of_a_raw_dataset_is_an_output_folder(name, tmp_path):
    root = write(tmp_path / "ds")
    (root / "sub-01").mkdir(exist_ok=True)
    (root / "link").symlink_to("sub-01")
    with pytest.raises(InputError, match=r"output_dir .* is a part of the dataset .*derivatives"):
        bids.check_derivative_folder(root / name)
    bids.check_derivative_folder(root / "derivatives" / "drift")
    bids.check_derivative_folder(tmp_path / "out")


def test_a_dataset_given_by_another_name_is_the_same(dataset, bundle, tmp_path, monkeypatch):
    """Relative, with a slash at its end, and through a link."""
    (tmp_path / "link").symlink_to(dataset)
    monkeypatch.chdir(tmp_path)
    for name in ("ds/", "link"):
        bundle(name, output_dir=str(tmp_path / "out" / name[:2]), include="sub-01/*")
        record = json.loads((tmp_path / "out" / name[:2] / "sub-01/anat/sub-01_desc-sr_T2w.json").read_text())
        assert record["Sources"][0] == "bids:raw:sub-01/anat/sub-01_T2w.nii.gz"


def test_a_broken_sidecar_does_not_cost_a_scan_whose_thickness_is_given(dataset, bundle):
    (dataset / "sub-02" / "anat" / "sub-02_FLAIR.json").write_text("{")
    bundle(dataset, include="sub-02/*", slice_thickness=4)
    record = json.loads((bundle.out / "sub-02/anat/sub-02_desc-sr_FLAIR.json").read_text())
    assert record["SliceThickness"] == pytest.approx(1) and "Manufacturer" not in record
