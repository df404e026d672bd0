"""The Python door: `drift_mri.rebuild` is the command's result, in memory."""

import doctest
import inspect
import json
import os
import re
import sys

import nibabel as nib
import numpy as np
import pytest

from drift_mri import InputError, __version__, python, rebuild
from drift_mri.command import main
from scripts.options import OF_SCAN
from tests.cohort_files import texture
from tests.processes import ROOT, fresh, run

AFFINE = np.array([[0, 0, 5.0, -20], [-1, 0, 0, 9], [0, 1, 0, 3], [0, 0, 0, 1]])


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    """A scan of 5 mm slices that nothing but its spacing describes."""
    path = tmp_path_factory.mktemp("door") / "scan.nii.gz"
    nib.save(nib.Nifti1Image(texture((16, 18, 5)), AFFINE), path)
    return path


@pytest.fixture(scope="module")
def result(scan):
    return rebuild(scan, slice_thickness=5)


def test_it_is_the_commands_result(scan, result, tmp_path):
    main([str(scan), "-o", str(tmp_path), "--slice_thickness", "5"])
    written = nib.load(tmp_path / "scan_sr.nii.gz")
    np.testing.assert_array_equal(result.get_fdata(), written.get_fdata())
    np.testing.assert_array_equal(result.affine, written.affine)
    assert [result.header[name] for name in ("sform_code", "qform_code")] == [
        written.header[name] for name in ("sform_code", "qform_code")
    ]
    record = json.loads((tmp_path / "scan_sr.json").read_text())
    mine = json.loads(json.dumps(result.record))
    assert {name: mine[name] for name in ("Facts", "Agreement", "Warnings")} == {
        name: record[name] for name in ("Facts", "Agreement", "Warnings")
    }


def test_file_image_and_array_are_one_scan_and_networks_stay_loaded(result, tmp_path):
    """An image in memory needs no file."""
    image = nib.Nifti1Image(texture((16, 18, 5)), AFFINE)
    image.to_filename(tmp_path / "gone.nii.gz")
    (tmp_path / "gone.nii.gz").unlink()
    before = python._network.cache_info().misses
    for other in (image, (np.asarray(image.dataobj), AFFINE)):
        same = rebuild(other, slice_thickness=5)
        np.testing.assert_array_equal(same.get_fdata(), result.get_fdata())
        np.testing.assert_array_equal(same.affine, result.affine)
    assert python._network.cache_info().misses == before


def test_an_image_in_memory_has_no_sidecar(scan, monkeypatch):
    image = nib.load(scan)
    monkeypatch.chdir(scan.parent)
    (scan.parent / "the scan.json").write_text('{"SliceThickness": 3, "SkullStripped": false}')
    record = rebuild((np.asarray(image.dataobj), image.affine)).record
    assert "want of better" in record["Facts"]["slice thickness"][1] and "SkullStripped" not in record


def test_options_are_the_commands():
    assert set(inspect.signature(rebuild).parameters) - {"scan"} == set(OF_SCAN)
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in OF_SCAN)


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        ("nothing.nii.gz", {}, "nothing.nii.gz"),
        ((np.zeros((4, 4, 4)), np.eye(3)), {}, "affine"),
        ((np.zeros((4, 4)), np.eye(4)), {}, "shape"),
        (None, {"slice_thickness": "thick"}, "slice_thickness"),
        (None, {"ckpt_path": "no.pt"}, "no.pt"),
        (None, {"guide": "auto"}, "guide is auto.* Set guide to a path"),
        (None, {"config": "no.yaml"}, "no.yaml"),
        ("", {}, "'' does not exist. Set scan"),
        (None, {"slice_thickness": "@device"}, "slice_thickness .* begins with"),
        (None, {"missing_slices": ["%configs/train.yaml::device"]}, "missing_slices .* begins with"),
        (None, {"isotropic": "$exit()"}, "isotropic .* which MONAI would evaluate"),
    ],
)
def test_mistakes_are_told_in_one_line(scan, given, options, said):
    with pytest.raises(InputError, match=said) as caught:
        rebuild(scan if given is None else given, **options)
    assert "\n" not in str(caught.value)


def test_what_is_not_there_is_named_before_monai_is_imported(scan):
    code = f"""
import sys
from drift_mri import InputError, rebuild
calls = [(one, {{}}) for one in ("gone", "")] + [({str(scan)!r}, {{name: "gone"}}) for name in sys.argv[1:]]
for scan, options in calls:
    try:
        rebuild(scan, **options)
    except InputError as error:
        print(error)
print({{"monai", "torch"}} & {{*sys.modules}})
"""
    names = ("guide", "ckpt_path", "config")
    *said, imported = fresh("-c", code, *names, cwd=scan.parent, PYTHONPATH=ROOT).stdout.splitlines()
    assert [line.split(" does not exist. Set ")[1].split()[0] for line in said] == ["scan", "scan", *names]
    assert imported == "set()"


def test_settings_of_the_method_are_those_of_a_config(scan, result, tmp_path):
    """As the command's. What the call says comes last."""
    mine = tmp_path / "mine.yaml"
    mine.write_text("inferer::steps: 0\nconsistency: measure\nslice_thickness: 4\ntarget_thickness: 1.25\n")
    main([str(scan), "-o", str(tmp_path), "--slice_thickness", "5", "--config", str(mine)])
    own = rebuild(scan, slice_thickness=5, config=mine)
    np.testing.assert_array_equal(own.get_fdata(), nib.load(tmp_path / "scan_sr.nii.gz").get_fdata())
    assert own.record["Facts"]["slice thickness"] == ("5 mm", "given") and own.record["Summary"]["steps"] == 0
    assert (own.shape, result.shape) == ((16, 18, 20), (16, 18, 25))


def test_a_network_of_ones_own_is_that_of_docs_own_md(scan, result, tmp_path, monkeypatch):
    """It lies beside the config, and changes nothing, unlike the one that ships."""
    config, code, *_ = re.findall(r"```(?:yaml|python)\n(.*?)```", (ROOT / "docs" / "own.md").read_text(), re.DOTALL)
    (tmp_path / "my_module.py").write_text(f"import torch\n\n\n{code}")
    (tmp_path / "mine.yaml").write_text(config)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_module", raising=False)  # other tests have another
    own = rebuild(scan, config=tmp_path / "mine.yaml")
    del sys.modules["my_module"]
    assert own.shape == result.shape and np.abs(own.get_fdata() - result.get_fdata()).max() > 1


def test_a_config_of_ones_own_may_hold_dates_numbers_as_keys_and_quoted_modules(tmp_path):
    (tmp_path / "own.yaml").write_text("made: 2026-11-28\nsites: {1: a}\nwords: $'of \"scripts.method\"'\n")
    config = python._config(str(tmp_path / "own.yaml"), None)
    assert config["sites"] == {1: "a"} and str(config["made"]) == "2026-11-28"
    assert config["words"] == "$'of \"scripts.method\"'"


def test_an_axis_of_numpy_is_an_axis(scan, result):
    assert rebuild(scan, slice_axis=np.int64(2)).shape == result.shape


def test_version_is_the_bundles():
    assert __version__ == json.loads((ROOT / "configs" / "metadata.json").read_text())["version"]


def test_the_notebook_runs(scan, monkeypatch):
    """Each cell after the other, in one namespace, as a kernel does."""
    monkeypatch.chdir(scan.parent)
    names = {}
    cells = json.loads((ROOT / "docs" / "python.ipynb").read_text())["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["result"].record["Facts"]["slice thickness"] == ("4 mm", "given")
    assert (scan.parent / "scan_sr.nii.gz").is_file() and not any(cell.get("outputs") for cell in cells)


def test_examples_of_the_page(scan, monkeypatch):
    monkeypatch.chdir(scan.parent)
    failed, tried = doctest.testfile(str(ROOT / "docs" / "python.md"), module_relative=False)
    assert tried > 10 and not failed


FORKED = """
import os, sys, torch
from drift_mri import InputError, rebuild
torch.set_num_threads(2)
torch.rand(2000, 2000).sum()  # starts the threads, which a fork leaves behind
child = os.fork()
if not child:
    print(rebuild(sys.argv[1], slice_thickness=5).shape, flush=True)
    try:
        rebuild("gone.nii.gz")
    except InputError as error:
        print(error, flush=True)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
def test_a_forked_process_rebuilds_after_its_parent_has_used_torch(scan, result):
    done = run("-c", FORKED, scan, PYTHONPATH=ROOT, OMP_NUM_THREADS=2)
    assert done.returncode == 0 and str(result.shape) in done.stdout and "gone.nii.gz" in done.stdout


NAMELESS = """
import getpass, os, pwd
for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
    os.environ.pop(name, None)
pwd.getpwuid = lambda user: {}[user]
import drift_mri
print("called", getpass.getuser())
"""


def test_a_user_without_an_entry_in_passwd_is_called_by_a_number():
    assert f"called {os.getuid()}" in run("-c", NAMELESS, PYTHONPATH=ROOT).stdout
