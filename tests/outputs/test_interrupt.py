"""Ctrl-C: one line, exit code 130, and what is not complete is not there."""

import os
import signal

import nibabel as nib
import numpy as np
import pytest

from tests.processes import BUNDLE, DRIFT_MRI, ROOT, TIMEOUT, start

COMMANDS = {
    "drift-mri": [*DRIFT_MRI, "scans", "-o", "out"],
    "monai": [
        *(*BUNDLE, "run", "--input", "scans", "--output_dir", "out", "--bundle_root", ROOT),
        *("--config_file", ROOT / "configs" / "inference.yaml", "--logging_file", ROOT / "configs" / "logging.conf"),
    ],
}


def save_scan(path, shape, seed):
    path.parent.mkdir(exist_ok=True)
    values = np.random.default_rng(seed).uniform(100, 900, shape).astype(np.float32)
    nib.save(nib.Nifti1Image(values, np.diag([1.0, 1.0, 5.0, 1.0])), path)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupt_leaves_what_is_complete_and_nothing_else(name, tmp_path):
    """The signal comes while the networks are at the second scan."""
    save_scan(tmp_path / "scans" / "a.nii.gz", (24, 24, 5), 0)
    save_scan(tmp_path / "scans" / "b.nii.gz", (120, 120, 24), 1)
    os.mkfifo(tmp_path / "said")
    (tmp_path / "errors").touch()
    process = start(*COMMANDS[name], cwd=tmp_path, streams=(tmp_path / "said", tmp_path / "errors"), PYTHONPATH=ROOT)
    with open(tmp_path / "said") as said:
        for line in said:
            if "b.nii.gz: axial slices along axis" in line:
                break
        assert list((tmp_path / "out").glob(".*.lock")), "it is at work"
        os.kill(process.pid, signal.SIGINT)
        said.read()
    process.join(TIMEOUT)
    errors = (tmp_path / "errors").read_text()
    assert process.exitcode == 130, errors
    assert errors.splitlines()[-1].startswith("interrupted: what is complete stays") and "Traceback" not in errors
    assert name == "monai" or errors.count("\n") == 1
    left = {path.name for path in (tmp_path / "out").rglob("*")}
    assert left == {"a_sr.nii.gz", "a_sr.json", "summary.csv", "drift.log", *(left & {"index.html"})}
