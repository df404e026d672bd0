"""A cohort over a Ray cluster: what the plain command does, by several workers, one of which is killed on the way."""

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from scripts.inputs.sample import built_in_sample
from tests.processes import ROOT, monai_bundle

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install '.[ray]'"),
]

TIMEOUT = 900  # s; for machines that do other work
OPTIONS = ("--input", "../scans", "--output_dir", "out", "--inferer::roi_size", "32")  # small windows for small scans


def environment(**variables):
    """Workers as urgent as the tests: Ray makes them the last ones to run."""
    own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "RAY_worker_niceness": "0"}
    return {**os.environ, **own, **variables}


def start(*command, cwd=None, **variables):
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def plain(folder):
    """The bundle's own command."""
    folder.mkdir(exist_ok=True)
    config = ROOT / "configs" / "inference.yaml"
    return monai_bundle("run", "--config_file", config, "--bundle_root", ROOT, *OPTIONS, cwd=folder)


@pytest.fixture
def scans(tmp_path):
    """Six crops of a thick scan of a real head, and a scan that cannot be rebuilt."""
    folder = tmp_path / "scans"
    folder.mkdir()
    image = nib.load(built_in_sample(tmp_path).source)
    for number, corner in enumerate(product((40, 72), (50, 82, 114))):
        crop = image.slicer[tuple(slice(at, at + 32) for at in corner) + (slice(10, 18),)]
        nib.save(crop, folder / f"head{number}.nii.gz")
    bad = np.full((16, 16, 4), np.nan, np.float32)
    nib.save(nib.Nifti1Image(bad, np.diag([1.0, 1.0, 4.0, 1.0])), folder / "bad.nii.gz")
    return folder


@pytest.fixture
def cluster():
    """A Ray cluster of this machine with room for two workers: its address and its session."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = start(
        *("-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
        *("--node-ip-address", "127.0.0.1", "--port", port, "--num-cpus", 4, "--num-gpus", 0),
        *("--include-dashboard", "false"),
    )
    yield f"127.0.0.1:{port}", process.pid
    process.terminate()
    process.communicate(timeout=TIMEOUT)


def busy(session):
    """Processes of the session's workers that are rebuilding a scan: Ray names them by what they do."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "cmdline").read_bytes()
            if name.startswith(b"ray::Worker.rebuild") and os.getsid(int(folder.name)) == session:
                found.append(int(folder.name))
        except OSError:
            continue  # it has ended meanwhile
    return found


def wait_for(look, process):
    """What `look` returns once that is not empty, while the process runs."""
    while not (found := look()):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    return found


def table(folder):
    """The summary without what differs from run to run."""
    with open(folder / "out" / "summary.csv", newline="", encoding="utf-8") as file:
        return [{**row, "seconds": ""} for row in csv.DictReader(file)]


def records(folder):
    found = {p.name: json.loads(p.read_text(encoding="utf-8")) for p in (folder / "out").glob("[!.]*_sr.json")}
    for record in found.values():
        del record["Summary"]["seconds"]
    return found


def test_every_scan_is_done_once_though_a_worker_is_killed(scans, cluster, tmp_path):
    address, session = cluster
    alone = plain(tmp_path / "plain")
    assert alone.returncode == 1 and "1 of 7 scans failed" in alone.stderr, alone.stderr
    folder = tmp_path / "ray"
    folder.mkdir()
    process = start(ROOT / "bundle" / "ray_cohort.py", *OPTIONS, cwd=folder, RAY_ADDRESS=address)
    wait_for(lambda: records(folder), process)
    time.sleep(0.2)  # into a scan, not at its end
    killed, before = wait_for(lambda: busy(session), process)[0], len(records(folder))
    os.kill(killed, signal.SIGKILL)
    said, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1 and "1 of 7 scans failed." in said, said
    assert 1 <= before < 6, "on the way"
    assert said.count("its worker died, try 1 of 3") == 1
    assert table(folder) == table(tmp_path / "plain")
    assert [row["outcome"] for row in table(folder)] == ["failed"] + 6 * ["rebuilt"]
    assert "bad.nii.gz has" in table(folder)[0]["warnings"]
    assert records(folder) == records(tmp_path / "plain") and len(records(folder)) == 6
    assert {p.name for p in (folder / "out").glob("[!.]*")} == {p.name for p in (tmp_path / "plain" / "out").iterdir()}
    for path in (folder / "out").glob("[!.]*.nii.gz"):
        ours, expected = nib.load(path), nib.load(tmp_path / "plain" / "out" / path.name)
        np.testing.assert_array_equal(ours.affine, expected.affine)
        np.testing.assert_allclose(ours.get_fdata(), expected.get_fdata(), rtol=1e-5, atol=1e-3)
    plain(folder)  # whoever comes next finds nothing to do
    assert [row["outcome"] for row in table(folder)] == ["failed"] + 6 * ["complete already"]
