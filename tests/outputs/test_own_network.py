"""The network of docs/own.md, run by --config: results name it, and neither DRIFT's networks nor its weights."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pydicom
import pytest

from drift_mri import rebuild
from drift_mri.command import main
from scripts.errors import InputError
from scripts.method.weights import read_card, write_card
from tests.bids_files import add_scan, write
from tests.cohort_files import record
from tests.dicom_files import mr_slices, save
from tests.processes import ROOT

SHIPPED = json.loads((ROOT / "models" / "model.json").read_text())["sha256"]
NAMED = "my_module.MyNetwork (my_module.py), without a weights file"


@pytest.fixture
def config(tmp_path, monkeypatch):
    text, code, *_ = re.findall(r"```(?:yaml|python)\n(.*?)```", (ROOT / "docs" / "own.md").read_text(), re.DOTALL)
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "my_module.py").write_text(f"import torch\n\n\n{code}")
    (folder / "mine.yaml").write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield folder / "mine.yaml"
    sys.modules.pop("my_module", None)


def test_record_page_and_index_name_it(config, tmp_path, write_nifti):
    head = np.random.default_rng(0).integers(100, 900, (24, 26, 8)).astype(np.float32)
    scan, out = write_nifti(head, np.diag([1.0, 1.0, 4.0, 1.0]), "scan.nii.gz"), tmp_path / "out"
    main([str(scan), "-o", str(out), "--config", str(config), "--report", "--check"])
    said, page, index = record(out), (out / "scan_sr.html").read_text(), (out / "index.html").read_text()
    assert re.search(r"scan\.nii\.gz rebuilt, \d.* s:", (out / "drift.log").read_text()), "no number of steps"
    assert said["WeightsSHA256"] is None and said["Network"]["Description"] == NAMED
    assert said["Network"]["File"] == "my_module.py" and "WeightsVersion" not in said["Network"]
    assert said["Description"].startswith(f"Super-resolved along the slice axis by {NAMED}")
    assert said["Summary"]["steps"] is None and "steps" not in said["Facts"]
    assert not {"n_max", "sharp_velocity", "sharp_detail"} & set(said["Settings"])
    assert said["Check"]["Description"].startswith("On this scan's own slices my_module.MyNetwork ")
    assert NAMED in page and NAMED in index and "Choi" not in index and "Euler" not in index
    for text in (json.dumps(said), page, index):
        assert SHIPPED[:12] not in text and "by DRIFT" not in text and "N_max" not in text
    assert rebuild(scan, config=config).record["Description"] == said["Description"]
    code = config.parent / "my_module.py"
    code.write_text(code.read_text().replace("return image", "return 0.5 * image"))
    sys.modules.pop("my_module")
    main([str(scan), "-o", str(out), "--config", str(config)])
    assert record(out)["Network"]["FileSHA256"] != said["Network"]["FileSHA256"], "other code makes another result"


def test_a_network_without_a_flow_is_refused_sharp(config, tmp_path, write_nifti):
    """The card beside the shipped weights may have a velocity for it."""
    scan, card = write_nifti(np.ones((24, 26, 8)), np.diag([1.0, 1.0, 4.0, 1.0]), "scan.nii.gz"), tmp_path / "model.pt"
    card.write_bytes((ROOT / "models" / "model.pt").read_bytes())
    write_card(card, replace(read_card(ROOT / "models" / "model.pt"), sharp_velocity=2.0))
    with pytest.raises(InputError, match=r"sharp is true, and the network is my_module\.MyNetwork.*Leave out sharp"):
        rebuild(scan, config=config, ckpt_path=card, sharp=True)


def test_the_derived_series_names_it(config, tmp_path, voxels):
    save(tmp_path / "in", mr_slices(voxels))
    main([str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--config", str(config), "--output_format", "dicom"])
    image = pydicom.dcmread(next((tmp_path / "out").rglob("*.dcm")))
    assert f"by {NAMED}, run by DRIFT" in image.DerivationDescription


def test_the_derivative_names_it(config, tmp_path):
    add_scan(write(tmp_path / "bids"), "sub-1/anat/sub-1_T2w.nii.gz", shape=(24, 26, 8))
    out = tmp_path / "bids" / "derivatives" / "drift"
    main([str(tmp_path / "bids"), "-o", str(out), "--config", str(config)])
    (made,) = json.loads((out / "dataset_description.json").read_text())["GeneratedBy"]
    assert f"by {NAMED}" in made["Description"] and f"by {NAMED}" in (out / "README").read_text()
