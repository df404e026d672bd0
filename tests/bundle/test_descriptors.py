"""Boutiques and 3D Slicer: their own tools take the descriptors, and what these describe runs."""

import json
import os
import subprocess
import sys

import nibabel as nib
import numpy as np
import pytest

from scripts.options import OF_SCAN
from tests.bundle import slicer
from tests.cohort_files import add
from tests.config_files import ROOT

SLICER = ROOT / "bundle" / "slicer"
MODULE = SLICER / "DRIFT.py"


def run(*words, **environment):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_bosh_takes_the_descriptor_and_runs_it(tmp_path):
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "drift-mri"  # as an installation makes it
    command.write_text(f"#!{sys.executable}\nfrom drift_mri.command import main\n\nmain()\n")
    command.chmod(0o755)
    scan = tmp_path / "scan.nii.gz"
    add(scan)
    descriptor, invocation = tmp_path / "drift-mri.json", tmp_path / "given.json"
    descriptor.write_text(run(ROOT / "bundle" / "boutiques.py").stdout)
    given = {"input": [str(scan)], "output_dir": str(tmp_path / "out"), "slice_thickness": 4, "report": True}
    invocation.write_text(json.dumps({**given, "dtype": "int16", "include": ["*.nii.gz"], "guide": "auto"}))
    bosh = ("-c", "import sys; from boutiques.bosh import bosh; bosh(sys.argv[1:])")
    assert run(*bosh, "validate", descriptor).returncode == 0
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    done = run(*bosh, "exec", "launch", descriptor, invocation, "--skip-data-collection", PATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    made = nib.load(tmp_path / "out" / "scan_sr.nii.gz")
    record = json.loads((tmp_path / "out" / "scan_sr.json").read_text())
    assert made.get_data_dtype() == np.int16 and (tmp_path / "out" / "scan_sr.html").is_file()
    assert record["Facts"]["slice thickness"] == ["4 mm", "given"]


def test_an_option_that_takes_a_word_is_no_file_to_boutiques():
    """Hosts look for a file where there should be one."""
    kinds = {one["id"]: one["type"] for one in json.loads(run(ROOT / "bundle" / "boutiques.py").stdout)["inputs"]}
    assert (kinds["guide"], kinds["ckpt_path"], kinds["dry_run"]) == ("String", "File", "Flag")


def test_slicers_description_is_that_of_the_options():
    """python bundle/slicer_module.py > bundle/slicer/DRIFT.xml"""
    made = run(ROOT / "bundle" / "slicer_module.py")
    assert made.stdout == (SLICER / "DRIFT.xml").read_text(encoding="utf-8"), made.stderr


def test_slicer_takes_the_folder_for_one_command_line_module_and_runs_nothing_of_it_at_its_start():
    assert [path.name for path in SLICER.iterdir() if slicer.is_command_line_module(path)] == ["DRIFT.py"]
    assert not [path for path in SLICER.iterdir() if slicer.is_scripted_module(path)]
    found = slicer.parameters(MODULE)
    assert [(one.name, one.channel) for one in found if one.index is not None] == [
        ("input", "input"),
        ("output", "output"),
    ]
    assert {one.flag for one in found if one.flag} == {*OF_SCAN}
    assert {tuple(one.extensions) for one in found if one.tag == "image"} == {(".nii.gz",)}
    assert "3D Slicer 5.10" in MODULE.with_suffix(".xml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen", [{}, {"target_thickness": "0.9", "isotropic": "true", "motion": "false", "slice_axis": "2", "noise": "2"}]
)
def test_slicers_module_makes_what_its_panel_says(chosen, tmp_path):
    """As the panel stands when it is opened, and with options; the spacing is 4 mm."""
    volumes = {name: tmp_path / f"{name}.nii.gz" for name in ("input", "output", *(["error_map"] if chosen else []))}
    add(volumes["input"])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    made = slicer.run(sys.executable, MODULE, slicer.words(MODULE, chosen, volumes), **environment)
    assert not made.failed, made.errors
    assert len(made.progress) > 3 and {share for _, share in made.progress} >= {0.0, 1.0}
    assert any("planes" in part for part, _ in made.progress) and made.output.strip() == ""
    result = nib.load(volumes["output"])
    np.testing.assert_allclose(result.header.get_zooms(), 0.9 if chosen else 1.0, rtol=0.05)
    if chosen:
        assert nib.load(volumes["error_map"]).shape == result.shape


@pytest.mark.slow
def test_slicer_shows_the_warnings_of_a_result_and_what_is_wrong_with_an_option(tmp_path):
    volumes = {name: tmp_path / f"{name}.nii.gz" for name in ("input", "output")}
    add(volumes["input"])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    far = slicer.run(sys.executable, MODULE, slicer.words(MODULE, {"target_thickness": "3"}, volumes), **environment)
    assert not far.failed and "warning: " in far.errors
    wrong = slicer.run(sys.executable, MODULE, slicer.words(MODULE, {"noise": "much"}, volumes), **environment)
    assert wrong.failed and wrong.errors.startswith("error: noise is 'much': expected a number or auto")
