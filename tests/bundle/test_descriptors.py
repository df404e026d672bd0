"""Boutiques and 3D Slicer: their own tools take the descriptors, and what these describe runs."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET

import nibabel as nib
import numpy as np
import pytest
from ctk_cli import CLIModule

from scripts.options import OF_SCAN
from tests.cohort_files import add
from tests.config_files import ROOT

SLICER = ROOT / "bundle" / "slicer"


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
    invocation.write_text(json.dumps({**given, "dtype": "int16", "include": ["*.nii.gz"]}))
    bosh = ("-c", "import sys; from boutiques.bosh import bosh; bosh(sys.argv[1:])")
    assert run(*bosh, "validate", descriptor).returncode == 0
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    done = run(*bosh, "exec", "launch", descriptor, invocation, "--skip-data-collection", PATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    made = nib.load(tmp_path / "out" / "scan_sr.nii.gz")
    record = json.loads((tmp_path / "out" / "scan_sr.json").read_text())
    assert made.get_data_dtype() == np.int16 and (tmp_path / "out" / "scan_sr.html").is_file()
    assert record["Facts"]["slice thickness"] == ["4 mm", "given"]


def test_slicers_description_is_that_of_the_options():
    """python bundle/slicer_module.py > bundle/slicer/DRIFT.xml"""
    made = run(ROOT / "bundle" / "slicer_module.py")
    assert made.stdout == (SLICER / "DRIFT.xml").read_text(encoding="utf-8"), made.stderr


@pytest.mark.slow
def test_slicers_module_makes_what_its_description_says(tmp_path):
    """The words are those that Slicer puts together: flags, then what has an index."""
    module = CLIModule(str(SLICER / "DRIFT.xml"))
    indexed, flagged, _ = module.classifyParameters()
    assert [(one.name, one.channel) for one in indexed] == [("input", "input"), ("output", "output")]
    assert {one.longflag for one in flagged} == {f"--{name}" for name in OF_SCAN}
    assert {one.get("fileExtensions") for one in ET.parse(SLICER / "DRIFT.xml").iter("image")} == {".nii.gz"}
    files = {name: tmp_path / f"{name}.nii.gz" for name in ("input", "output", "error")}
    add(files["input"])
    plain = ("--slice_axis", "default", "--slice_spacing", "0", "--confidence", "0.9", "--missing_slices", "refuse")
    words = ("--slice_thickness", "4", "--isotropic", "--error_map", files["error"], files["input"], files["output"])
    words = (*plain, *words)
    done = run(SLICER / "DRIFT.py", *words)
    assert done.returncode == 0, done.stderr
    spacing = nib.load(files["output"]).header.get_zooms()
    assert np.ptp(spacing) < 0.1 and nib.load(files["error"]).shape == nib.load(files["output"]).shape
