"""The test on a scan's own slices beside its result: record, summary, index, page, DICOM, second runs, Python."""

import html
import json
import re
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
import yaml

from drift_mri import rebuild
from scripts.method.calibration import Foretelling
from scripts.method.weights import read_card, save_weights, write_card
from scripts.rebuild.reduced_resolution import NO_GAIN
from tests.cohort_files import AXIAL, outcomes, record, summary
from tests.config_files import ERROR, on_planes
from tests.fixtures import CARD, random_network
from tests.volumes import smooth_head


@pytest.fixture
def head(write_nifti):
    """A head in slices of 4 mm."""
    return write_nifti(smooth_head((60, 56, 14)).numpy(), AXIAL)


@pytest.fixture
def foretold(bundle):
    """`bundle` with weights whose card foretells gains."""
    card = replace(CARD, foretelling=Foretelling(14.0, 0.5, 0.0, 0.0, 0.25))
    save_weights(random_network(), bundle.weights, card, torch.float32)
    return bundle


def test_the_result_is_the_same_bit_for_bit_and_all_say_the_gain(head, foretold, caplog):
    caplog.set_level("INFO", logger="drift")
    foretold(head)
    plain = (foretold.out / "scan_sr.nii.gz").read_bytes()
    assert "Check" not in record(foretold.out) and summary(foretold.out)[0]["gain"] == ""
    foretold(head, check=True, report=True)
    assert outcomes(foretold.out) == ["rebuilt"] and (foretold.out / "scan_sr.nii.gz").read_bytes() == plain
    said = record(foretold.out)["Check"]
    assert said["Gain"] == pytest.approx(said["Rebuilt"] - said["Spline"], abs=0.011)
    assert said["Foretold"] == pytest.approx(14 + 0.5 * said["Gain"], abs=0.01) and said["Error"] == 0.25
    assert said["Directions"] == 2 and set(said["Slices"]) < set(range(14)) and len(said["Pictures"]) == 4
    assert float(summary(foretold.out)[0]["gain"]) == said["Gain"] < 0, "a loss counts, whatever is foretold"
    assert said["Description"][1:-1] in caplog.text
    index, page = (html.unescape((foretold.out / name).read_text()) for name in ("index.html", "scan_sr.html"))
    assert f'data-label="gain (dB)" data-key="{said["Gain"]}"' in index and NO_GAIN in index
    assert said["Description"] in page and said["Pictures"]["measured"] in page
    assert len(re.findall(r"cubic -?\d+ %", page)) == len(said["Spots"])
    foretold(head, check=True)
    assert outcomes(foretold.out) == ["complete already"]
    foretold(head)
    assert outcomes(foretold.out) == ["complete already"] and record(foretold.out)["Check"] == said
    write_card(foretold.weights, replace(CARD, foretelling=Foretelling(15.0, 0.5, 0.0, 0.0, 0.25)))
    foretold(head)
    assert outcomes(foretold.out) == ["complete already"]
    foretold(head, check=True)
    assert outcomes(foretold.out) == ["rebuilt"] and record(foretold.out)["Check"]["Foretold"] == said["Foretold"] + 1


def test_a_scan_that_gains_nothing_is_marked(head, foretold, caplog):
    write_card(foretold.weights, replace(CARD, foretelling=Foretelling(0.4, 0.0, 0.0, 0.0, 0.2)))
    foretold(head, check=True)
    found = record(foretold.out)["Check"]
    said = found["Description"]
    assert said.endswith(f"foretold through its slices 0.4 ± 0.2 dB: {NO_GAIN}.") and "DRIFT loses" in said
    assert f"{NO_GAIN}: gain {found['Gain']:.1f} dB" in (foretold.out / "index.html").read_text()
    assert [one.levelname for one in caplog.records if NO_GAIN in one.message] == ["WARNING"]


def test_weights_without_a_line_say_what_is_measured_alone(head, bundle):
    bundle(head, check=True)
    said = record(bundle.out)["Check"]
    assert "Foretold" not in said and "foretold" not in said["Description"]
    assert float(summary(bundle.out)[0]["gain"]) == said["Gain"]


def test_a_scan_without_a_test_says_why(write_nifti, bundle):
    bundle(write_nifti(np.full((20, 22, 9), 5.0), AXIAL), check=True)
    assert record(bundle.out)["Check"]["Description"].startswith("None: nothing was rebuilt")
    assert summary(bundle.out)[0]["gain"] == ""


def test_python_has_it_in_the_record(head, foretold, tmp_path):
    small = {"network_def": on_planes(4, 8, error=ERROR), "inferer::roi_size": 16, "inferer::n_max": 2}
    config = tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump({**small, "bfloat16": False, "device": "$torch.device('cpu')"}))
    found = rebuild(head, ckpt_path=foretold.weights, check=True, config=config).record["Check"]
    assert found["Directions"] == 2 and found["Error"] == 0.25


@pytest.mark.parametrize("wrong", [{"offset": 1}, {**asdict(Foretelling(0.1, 1.0, 0.0, 0.0, 0.2)), "error": 0.0}, 3])
def test_a_card_with_another_line_is_refused(wrong, foretold, refusal):
    path = foretold.weights.with_suffix(".json")
    card = json.loads(path.read_text())
    path.write_text(json.dumps({**card, "foretelling": wrong}))
    assert "foretelling" in refusal(read_card, foretold.weights)
