"""The option sharp: the velocity and the calibration of its own on the card, and all that a result says of them."""

import html
import json
from dataclasses import asdict, replace

import nibabel as nib
import numpy as np
import pydicom
import pytest
import torch
import yaml

from drift_mri import rebuild
from drift_mri.command import main
from scripts.method.calibration import Foretelling
from scripts.method.weights import save_weights, write_card
from scripts.train.recipe import digest
from tests.cohort_files import AXIAL, outcomes, record, summary
from tests.config_files import ERROR, on_planes, parser
from tests.fixtures import CARD, TINY
from tests.method.test_error_pattern import CALIBRATION, with_error
from tests.method.test_networks import perturb
from tests.volumes import smooth_head

PLAIN = replace(CARD, n_max=2, error_map=CALIBRATION, foretelling=Foretelling(14.0, 0.5, 0.0, 0.0, 0.25))
ABLE = replace(PLAIN, n_max=9, sharp_velocity=3.0, sharp_detail=1.5)
STEPS = 7  # 9 x 0.75, at 4 mm
OF_CARD = {  # as inference.yaml has it, and the fixture's bundle has not
    "inferer::n_max": "$@card.n_max",
    "inferer::sharp_velocity": "$@run_card.sharp_velocity",
    "inferer::sharp_detail": "$@run_card.sharp_detail",
}
DRAWN = "detail is drawn from what heads look like"


@pytest.fixture
def able(bundle):
    """`bundle` with weights whose card has a velocity for it."""
    save_weights(perturb(with_error()), bundle.weights, ABLE, torch.float32)

    def run(source, **given):
        bundle(source, **{**OF_CARD, **given})

    run.out, run.weights = bundle.out, bundle.weights
    return run


@pytest.fixture
def head(write_nifti):
    """A head in slices of 4 mm."""
    return write_nifti(smooth_head((20, 22, 9)).numpy(), AXIAL)


@pytest.fixture
def small(tmp_path):
    """The same for the command and for Python: a file for --config."""
    config = {"network_def": on_planes(4, 8, error=ERROR), "inferer::roi_size": 16, "bfloat16": False}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**config, "device": "$torch.device('cpu')"}))
    return tmp_path / "small.yaml"


def voxels(folder):
    return np.asarray(nib.load(folder / "scan_sr.nii.gz").dataobj)


def test_it_takes_the_velocity_of_the_card_and_record_page_and_index_say_so(head, able):
    able(head)
    said, plain = record(able.out), voxels(able.out)
    assert "Sharp" not in said and said["Settings"]["sharp"] is False
    assert "beyond the mean" not in (able.out / "index.html").read_text()
    able(head, sharp=True, report=True)
    assert outcomes(able.out) == ["rebuilt"], "another setting makes another result"
    said, sharp = record(able.out), voxels(able.out)
    assert [said["Settings"][name] for name in ("sharp", "sharp_velocity", "sharp_detail")] == [True, 3.0, 1.5]
    assert f", sharp, in {STEPS} Euler steps" in said["Description"]
    assert said["Description"].endswith(f": {DRAWN}, not measured.")
    assert said["Sharp"].startswith(f"{STEPS} Euler steps beyond the mean; {DRAWN}.")
    assert said["Facts"]["steps"] == [str(STEPS), "AIS, PAD = 0.750"]
    assert summary(able.out)[0]["steps"] == str(STEPS)
    page, index = (html.unescape((able.out / name).read_text()) for name in ("scan_sr.html", "index.html"))
    assert f"Sharp: {said['Sharp']}" in page
    methods = " ".join(index.partition("For a methods section")[2].partition("</details>")[0].split())
    assert f"in {STEPS} Euler steps, beyond the mean, which draws detail from what heads look like." in methods
    assert "Detail between the slices is drawn, not measured." in methods
    able(head, sharp="true", report=True)
    assert outcomes(able.out) == ["complete already"]
    able(head, sharp=True, **{"inferer::sharp_velocity": 1, "inferer::sharp_detail": 1})
    assert outcomes(able.out) == ["rebuilt"] and "Sharp" in record(able.out)
    np.testing.assert_array_equal(voxels(able.out), plain, "the same flow")
    assert not np.array_equal(sharp, plain)


def test_the_test_on_its_own_slices_is_of_sharp_results_too(write_nifti, able):
    head = write_nifti(smooth_head((40, 44, 9)).numpy(), AXIAL)
    gains = []
    for sharp in (False, True):
        able(head, check=True, sharp=sharp)
        gains.append(record(able.out)["Check"]["Gain"])
    assert gains[0] != gains[1]


def test_steps_of_ones_own_are_taken(head, able):
    able(head, sharp=True, **{"inferer::steps": 3})
    assert record(able.out)["Sharp"].startswith("3 Euler steps beyond the mean")


def test_a_dry_run_says_steps_and_cost_and_that_a_copy_has_none(head, able, write_nifti, capsys):
    copy = write_nifti(np.full((20, 22, 9), 5.0), AXIAL, "copy.nii.gz")
    with pytest.raises(SystemExit):
        able([head, copy], sharp=True, dry_run="json")
    rows = {row["what"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["will rebuild"]["steps"] == STEPS
    assert f"sharp: {STEPS} Euler steps beyond the mean; {DRAWN}" in rows["will rebuild"]["why"]
    assert rows["will copy"]["steps"] == 0 and "sharp" not in rows["will copy"]["why"]
    able(copy, sharp=True)
    said = record(able.out, "copy")
    assert "Sharp" not in said and said["Description"].startswith("Not rebuilt")


REFUSED = {
    "weights that are not made for it": (PLAIN, {}, "the card of these weights has no sharp_velocity"),
    "an error map that nothing calibrates": (ABLE, {"error_map": True}, "Leave out --error_map or --sharp"),
    "no step": (ABLE, {"inferer::steps": 0}, "sharp is true, and steps is 0"),
    "a velocity that leads back": (ABLE, {"inferer::sharp_velocity": 0.5}, "sharp_velocity is 0.5"),
    "less detail": (ABLE, {"inferer::sharp_detail": 0.5}, "sharp_detail is 0.5"),
    "a word": (ABLE, {"sharp": "much"}, "sharp is 'much'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_in_a_dry_run_and_before_anything_is_rebuilt(head, able, refusal, what):
    card, given, said = REFUSED[what]
    write_card(able.weights, card)
    for dry in (True, False):
        assert said in refusal(able, head, **{"sharp": True, "dry_run": dry, **given})
    assert not able.out.exists()


def test_its_error_map_has_a_calibration_of_its_own(head, able):
    wider = replace(CALIBRATION, people=[[[2 * one for one in row] for row in rows] for rows in CALIBRATION.people])
    write_card(able.weights, replace(ABLE, sharp_error_map=wider))
    for sharp, calibration in ((True, wider), (False, CALIBRATION)):
        able(head, error_map=True, sharp=sharp)
        assert record(able.out)["ErrorMap"]["Calibration"] == digest(asdict(calibration))


def test_nothing_foretells_its_gain(able):
    for sharp, foretelling in (("true", None), ("false", PLAIN.foretelling)):
        given = {**TINY, **OF_CARD, "ckpt_path": str(able.weights), "sharp": sharp}
        assert parser("inference.yaml", **given).get_parsed_content("rebuilder").foretelling == foretelling


def test_the_command_the_derived_series_and_python_have_it(able, small, series, tmp_path):
    given = ["--ckpt_path", str(able.weights), "--config", str(small), "--output_format", "dicom"]
    said = {}
    for name, more in (("plain", []), ("sharp", ["--sharp"])):
        main([str(series), "-o", str(tmp_path / name), *given, *more])
        said[name] = pydicom.dcmread(next((tmp_path / name).rglob("*.dcm")))
    assert said["sharp"].SeriesDescription == f"{said['plain'].SeriesDescription} sharp"
    assert "is drawn from what heads look like, not measured" in said["sharp"].DerivationDescription
    assert "is estimated, not measured" in said["plain"].DerivationDescription
    assert said["sharp"].SeriesInstanceUID != said["plain"].SeriesInstanceUID
    found = rebuild(series, sharp=True, ckpt_path=able.weights, config=small)
    theirs = json.loads(next((tmp_path / "sharp").rglob("*_sr.json")).read_text())
    assert found.record["Sharp"] == theirs["Sharp"] and found.record["Description"] == theirs["Description"]
