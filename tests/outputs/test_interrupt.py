"""Ctrl-C: one line, exit code 130, and what is not complete is not there."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cohort_files import add, texture
from tests.processes import BUNDLE, DRIFT_MRI, ROOT, TIMEOUT, environment, start

pytestmark = pytest.mark.slow

COMMANDS = {
    "drift-mri": [*DRIFT_MRI, "scans", "-o", "out"],
    "monai": [
        *(*BUNDLE, "run", "--input", "scans", "--output_dir", "out", "--bundle_root", ROOT),
        *("--config_file", ROOT / "configs" / "inference.yaml", "--logging_file", ROOT / "configs" / "logging.conf"),
    ],
}


def children_of(pid):
    """Processes below one, from the list of all."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found = [pid]
    for one in found:
        found += [child for child, parent in pairs if parent == one]
    return found[1:]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_jobs_end_with_the_command_and_begin_no_other_scan(sent, tmp_path):
    """Ctrl-C reaches all of a terminal's processes; a kill reaches the command alone, behind nohup and & too."""
    heeded = signal.SIG_DFL if sent == signal.SIGINT else signal.SIG_IGN
    for k in range(4):
        add(tmp_path / "scans" / f"{k}.nii", voxels=texture((240, 240, 30), k))  # packing would take seconds
    command = [sys.executable, *map(str, COMMANDS["drift-mri"]), "--jobs", "2"]
    with open(tmp_path / "errors", "w") as errors:
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment(PYTHONPATH=ROOT),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, heeded),
        )
    for _ in range(10 * TIMEOUT):
        if len(list((tmp_path / "out").glob(".*.lock"))) == 2:
            break
        time.sleep(0.1)
    workers = children_of(process.pid)
    os.killpg(process.pid, sent) if sent == signal.SIGINT else process.kill()
    assert process.wait(TIMEOUT) == (130 if sent == signal.SIGINT else -signal.SIGKILL)
    for _ in range(300):
        if not any(Path("/proc", str(pid)).exists() for pid in workers):
            break
        time.sleep(0.1)
    assert not [pid for pid in workers if Path("/proc", str(pid)).exists()]
    lines = (tmp_path / "errors").read_text().splitlines()
    assert not any("Traceback" in line for line in lines) and not list((tmp_path / "out").glob("[0-3]_sr*"))
    assert sent == signal.SIGKILL or [line for line in lines if "interrupted" in line] == lines[-1:]


@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupt_leaves_what_is_complete_and_nothing_else(name, tmp_path):
    """The signal comes while the networks are at the second scan."""
    add(tmp_path / "scans" / "a.nii.gz", voxels=texture((24, 24, 5)))
    add(tmp_path / "scans" / "b.nii.gz", voxels=texture((120, 120, 24)))
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
