"""The option sharp in the page's modules, by the weights that ship: Python's volume, record, derived series."""

import json
import re
import shutil
import subprocess
import zipfile
from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
from pydicom import dcmread

import drift_mri
from drift_mri.command import main
from scripts.method.weights import read_card, write_card
from tests.browser import needs_chromium
from tests.bundle.test_web import FLOAT32, HEAD, NODE, ROOT, assert_same, axial, exported, head, pytestmark
from tests.bundle.test_web_dicom import assert_alike
from tests.bundle.test_web_guide import copied
from tests.bundle.test_web_page import Page, Server
from tests.dicom_files import mr_slices, save

__all__ = ["exported", "pytestmark"]


@pytest.fixture(scope="module")
def program(exported, tmp_path_factory):
    return copied(tmp_path_factory.mktemp("program") / "web")


def run(program, *given):
    done = subprocess.run([NODE, program, *map(str, given)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_node_makes_the_volume_and_the_record_of_python(tmp_path, program):
    path, out = tmp_path / "scan.nii.gz", tmp_path / "scan_sr.nii.gz"
    nib.save(nib.Nifti1Image(HEAD, axial()), path)
    plain, sharp = (drift_mri.rebuild(path, config=FLOAT32, sharp=sharp) for sharp in (False, True))
    run(program, path, out, "--sharp")
    assert_same(nib.load(out), sharp, HEAD)
    assert np.abs(sharp.get_fdata() - plain.get_fdata()).max() > 1, "the velocity matters"
    record, theirs = json.loads((tmp_path / "scan_sr.json").read_text()), json.loads(json.dumps(sharp.record))
    assert theirs["Sharp"].startswith("4 Euler steps beyond the mean")
    for name in ("Description", "Sharp", "Facts"):
        assert record[name] == theirs[name], name
    assert [record["Settings"][name] for name in ("sharp", "sharp_velocity", "sharp_detail")] == [True, 1.75, 1.5]


def test_the_derived_series_is_that_of_the_command(tmp_path, program):
    save(tmp_path / "dicom", mr_slices(head().astype(np.uint16), SeriesDescription="x" * 60))
    run(program, tmp_path / "dicom", tmp_path / "out.zip", "--sharp")
    given = ["--output_format", "dicom", "--config", str(FLOAT32), "--sharp"]
    main([str(tmp_path / "dicom"), "-o", str(tmp_path / "py"), *given])
    with zipfile.ZipFile(tmp_path / "out.zip") as packed:
        packed.extractall(tmp_path / "js")
    own, theirs = (dcmread(next((tmp_path / name).rglob("*.dcm"))) for name in ("js", "py"))
    assert_alike(own, theirs)
    assert own.SeriesDescription.endswith("x DRIFT SR sharp") and len(own.SeriesDescription) == 64
    assert "drawn from what heads look like" in own.DerivationDescription


@needs_chromium
def test_the_page_offers_it_and_says_what_was_made(tmp_path, program):
    subprocess.run([NODE, program.parent / "build.mjs"], check=True)
    nib.save(nib.Nifti1Image(HEAD, axial()), tmp_path / "scan.nii")
    with Server(program.parent / "dist") as server, Page(tmp_path, server.address) as page:
        assert page.drop(tmp_path / "scan.nii") is None
        assert not page.evaluate("document.querySelector('#flow').hidden")
        assert not page.evaluate("document.querySelector('[name=sharp]').checked")
        page.click("[name=sharp]")
        page.rebuild()
        drawn, made = (page.evaluate(f"document.querySelector('#{name}').innerText") for name in ("drawn", "made_with"))
        assert drawn.startswith("Sharp: 4 Euler steps beyond the mean") and "detail drawn" in made


def test_weights_whose_card_has_no_velocity_are_refused_in_the_words_of_python(tmp_path, program, refusal):
    constants = program.with_name("model") / "constants.js"
    text, path = constants.read_text(), shutil.copy(ROOT / "models" / "model.pt", tmp_path / "model.pt")
    constants.unlink()  # it may be a link
    constants.write_text(re.sub(r'"sharp_velocity":[^,}]*', '"sharp_velocity":null', text, count=1))
    write_card(path, replace(read_card(ROOT / "models" / "model.pt"), sharp_velocity=None))
    nib.save(nib.Nifti1Image(HEAD, axial()), tmp_path / "scan.nii")
    given = [NODE, program, tmp_path / "scan.nii", tmp_path / "out" / "scan_sr.nii.gz", "--sharp"]
    done = subprocess.run([*map(str, given)], capture_output=True, text=True, timeout=600)
    constants.write_text(text)
    said = refusal(main, [str(tmp_path / "scan.nii"), "-o", str(tmp_path / "py"), "--sharp", "--ckpt_path", str(path)])
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == f"error: {said}"
    assert not (tmp_path / "out").exists() and not (tmp_path / "py").exists()
