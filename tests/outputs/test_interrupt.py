"""Ctrl-C: one line, exit code 130, and what is not complete is not there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
COMMANDS = {
    "drift-mri": ["-c", "from drift_mri.command import main; main()", "scans", "-o", "out"],
    "monai": [*"-m monai.bundle run --input scans --output_dir out --config_file".split()]
    + [str(ROOT / "configs" / "inference.yaml"), "--bundle_root", str(ROOT)],
}


def save_scan(path, shape, seed):
    path.parent.mkdir(exist_ok=True)
    values = np.random.default_rng(seed).uniform(100, 900, shape).astype(np.float32)
    nib.save(nib.Nifti1Image(values, np.diag([1.0, 1.0, 5.0, 1.0])), path)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupt_leaves_what_is_complete_and_nothing_else(name, tmp_path):
    """The signal comes while the networks are at the second scan."""
    save_scan(tmp_path / "scans" / "a.nii.gz", (24, 24, 5), 0)
    save_scan(tmp_path / "scans" / "b.nii.gz", (200, 200, 30), 1)
    logged = ["--logging_file", str(ROOT / "configs" / "logging.conf")] if name == "monai" else []
    with subprocess.Popen(
        [sys.executable, *COMMANDS[name], *logged],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # shells' background jobs ignore it
    ) as process:
        for line in process.stdout:
            if "b.nii.gz: slices along axis" in line:
                break
        assert list((tmp_path / "out").glob(".*.lock")), "it is at work"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1].startswith("interrupted: what is complete stays") and "Traceback" not in errors
    assert name == "monai" or errors.count("\n") == 1
    left = {path.name for path in (tmp_path / "out").rglob("*")}
    assert left == {"a_sr.nii.gz", "a_sr.json", "summary.csv", *(left & {"index.html"})}
