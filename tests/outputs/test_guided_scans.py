"""A run with guides: the one that is named must fit, one that is found beside a scan is left out if it does not."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.method.networks import Drift, VelocityNetwork
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.method.weights import write_card
from tests.bids_files import write
from tests.cohort_files import record, summary
from tests.config_files import on_slices
from tests.fixtures import CARD
from tests.method.test_networks import perturb
from tests.rebuild.test_guide import centred, scan, smoothed, volume, written

CUBE = (64, 64, 64)


@pytest.fixture
def guided_bundle(bundle):
    """`bundle` with a tiny network that knows guides."""
    network = perturb(Drift(SliceProjectionNetwork((6, 8), (1, 1), 4, 4), VelocityNetwork((4, 8), width=8)), scale=0.03)
    torch.save(network.state_dict(), bundle.weights)
    write_card(bundle.weights, replace(CARD, guide_share=0.7))

    def run(source, **given):
        bundle(source, network_def=on_slices([6, 8], 4, [4, 8]), **given)

    run.out, run.weights = bundle.out, bundle.weights
    return run


@pytest.fixture
def examination(tmp_path):
    """A folder with a thick FLAIR and a sharp T1w of one head."""
    folder = tmp_path / "head"
    folder.mkdir()
    written(folder / "FLAIR.nii.gz", scan((48, 48, 11))[0])
    (folder / "FLAIR.json").write_text('{"SliceThickness": 5}')
    written(folder / "T1w.nii.gz", volume(centred(np.eye(3), CUBE), CUBE))
    return folder


def spoil(folder):
    """Something else in place of the T1w."""
    noise = torch.rand(1, *CUBE, generator=torch.Generator().manual_seed(0)) * 200
    written(folder / "T1w.nii.gz", MetaTensor(smoothed(noise), affine=torch.from_numpy(centred(np.eye(3), CUBE))))


@pytest.mark.slow
def test_a_guide_that_is_found_is_in_list_record_and_summary(examination, guided_bundle, capsys):
    with pytest.raises(SystemExit):
        guided_bundle(examination, guide="auto", dry_run=True)
    listed = " ".join(capsys.readouterr().out.split())
    assert "guide:" in listed and "T1w.nii.gz, for one is FLAIR, the other T1w" in listed
    guided_bundle(examination, guide="auto")
    told = record(guided_bundle.out, "FLAIR")
    assert told["Guide"]["Name"] == "../head/T1w.nii.gz" and "one is FLAIR" in told["Guide"]["Reason"]
    assert str(examination) not in (guided_bundle.out / "FLAIR_sr.json").read_text()
    assert told["Sources"] == ["../head/FLAIR.nii.gz", "../head/FLAIR.json", "../head/T1w.nii.gz"]
    assert summary(guided_bundle.out)[0]["guide"] == "../head/T1w.nii.gz" and not told["Warnings"]
    guided_bundle(examination, guide="auto")
    assert summary(guided_bundle.out)[0]["outcome"] == "complete already"


@pytest.mark.slow
def test_in_a_dataset_the_guide_is_named_by_its_uri(examination, guided_bundle, tmp_path):
    root = write(tmp_path / "ds")
    anat = root / "sub-01" / "anat"
    anat.mkdir(parents=True)
    for path in examination.iterdir():
        path.rename(anat / f"sub-01_{path.name}")
    guided_bundle(root, guide="auto")
    (path,) = guided_bundle.out.rglob("*_desc-sr_FLAIR.json")
    told = json.loads(path.read_text())
    assert told["Guide"]["Name"] == told["Summary"]["guide"] == "bids:raw:sub-01/anat/sub-01_T1w.nii.gz"
    (row,) = (row for row in summary(guided_bundle.out) if row["result"])
    assert row["guide"] == "../ds/sub-01/anat/sub-01_T1w.nii.gz"
    assert str(tmp_path) not in path.read_text() + (guided_bundle.out / "summary.csv").read_text()


@pytest.mark.slow
def test_a_guide_that_does_not_fit_is_left_out_if_found_and_refused_if_named(examination, guided_bundle):
    spoil(examination)
    guided_bundle(examination, guide="auto")
    told = record(guided_bundle.out, "FLAIR")
    assert "Guide" not in told and told["Sources"] == ["../head/FLAIR.nii.gz", "../head/FLAIR.json"]
    assert "rebuilt without a guide" in told["Warnings"][0] and "does not fit" in told["Warnings"][0]
    assert summary(guided_bundle.out)[0]["guide"] == ""
    old = {path.name: path.read_bytes() for path in guided_bundle.out.glob("FLAIR*")}
    with pytest.raises(SystemExit, match="failed"):
        guided_bundle(examination / "FLAIR.nii.gz", guide=str(examination / "T1w.nii.gz"), isotropic=True)
    assert {path.name: path.read_bytes() for path in guided_bundle.out.glob("FLAIR*")} == old


def test_weights_that_know_no_guides_refuse_one(examination, guided_bundle, capsys):
    write_card(guided_bundle.weights, CARD)
    with pytest.raises(SystemExit):
        guided_bundle(examination, guide="auto", dry_run=True)
    assert "trained without guides" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(SystemExit, match="failed"):
        guided_bundle(examination, guide="auto")
