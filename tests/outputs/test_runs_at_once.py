"""Runs that are killed, and two runs into one folder: nothing partial counts as complete, and no work is done twice."""

import logging
import multiprocessing
import signal
import time

import nibabel as nib
import numpy as np
import pytest

from scripts.outputs.lock import alone
from tests.cohort_files import AXIAL, hidden, inputs, nan_scan, outcomes, results, summary, texture
from tests.processes import DRIFT_MRI, ROOT, fresh, run

pytestmark = pytest.mark.slow


@pytest.fixture
def many(write_nifti):
    """Six scans, each of them some windows long."""
    for k in range(6):
        path = write_nifti(texture((20, 20, 6), seed=k), AXIAL, f"scans/{k}.nii.gz")
    return path.parent


@pytest.fixture
def expected(many, bundle):
    """The results of a run that nobody disturbs: name -> voxels."""
    bundle(many, output_dir=str(bundle.out.parent / "undisturbed"))
    return voxels(bundle.out.parent / "undisturbed")


def voxels(folder):
    names = [name for name in results(folder) if not name.startswith(".")]
    return {name: np.asarray(nib.load(folder / name).dataobj) for name in names}


def start(function, *args, **kwargs):
    """In a process of its own, forked: it needs no second start of Python."""
    process = multiprocessing.get_context("fork").Process(target=function, args=args, kwargs=kwargs)
    process.start()
    return process


def assert_same(found, expected):
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name])


def recorded(folder):
    return [path.name.removesuffix(".json") for path in folder.glob("[!.]*_sr.json")]


def test_nothing_partial_is_taken_for_complete_after_kill_9(many, expected, bundle):
    """Killed again and again, each time a little later in a scan: what has a record is whole, and nothing is lost."""
    killed = done = 0
    for delay in (0, 15, 30, 45, 60):  # ms after the next record
        process = start(bundle, many)
        while process.is_alive() and len(recorded(bundle.out)) <= done:
            time.sleep(0.001)
        time.sleep(delay / 1000)
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
        names = recorded(bundle.out)
        assert len(names) >= done, "what is done stays done"
        done = len(names)
        for name in names:
            array = np.asarray(nib.load(bundle.out / f"{name}.nii.gz").dataobj)
            np.testing.assert_array_equal(array, expected[f"{name}.nii.gz"])
        if (bundle.out / "summary.csv").is_file():
            assert set(outcomes(bundle.out)) <= {"rebuilt", "complete already"}
    assert killed >= 3
    bundle(many)
    assert len(summary(bundle.out)) == 6 and "failed" not in outcomes(bundle.out)
    assert outcomes(bundle.out).count("complete already") == done
    found = voxels(bundle.out)
    assert found.keys() == expected.keys()
    assert_same(found, expected)


def run_and_log(bundle, source, path):
    logger = logging.getLogger("drift")
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.FileHandler(path))
    bundle(source)


def test_two_runs_at_once_on_one_folder_do_every_scan_once(many, expected, bundle, tmp_path):
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    runs = [start(run_and_log, bundle, many, path) for path in logs]
    for process in runs:
        process.join(120)
    assert [process.exitcode for process in runs] == [0, 0]
    said = "".join(path.read_text() for path in logs)
    assert said.count(" rebuilt, ") == said.count(" complete already: ") == 6 and "another run is at it" in said
    found = voxels(bundle.out)
    assert found.keys() == expected.keys() and hidden(bundle.out) == []
    assert_same(found, expected)
    assert len(summary(bundle.out)) == 6


def test_a_run_passes_over_what_another_one_is_at_and_comes_back_to_it(folder, bundle):
    """N terminals are N workers: nobody waits while there is other work."""
    with alone(bundle.out / "a_sr"):  # the other run
        process = start(bundle, folder)
        until = time.monotonic() + 120
        while process.is_alive() and set(recorded(bundle.out)) < {"b_sr", "c_sr"} and time.monotonic() < until:
            time.sleep(0.01)
        assert set(recorded(bundle.out)) == {"b_sr", "c_sr"} and process.is_alive()
    process.join(120)
    assert process.exitcode == 0 and set(recorded(bundle.out)) == {"a_sr", "b_sr", "c_sr"}
    assert inputs(bundle.out) == [str(folder / f"{name}.nii.gz") for name in "abc"]
    assert outcomes(bundle.out) == ["rebuilt"] * 3 and hidden(bundle.out) == []


def test_jobs_give_the_same_results_and_tell_the_same(folder, write_nifti, tmp_path):
    write_nifti(nan_scan(), AXIAL, "scans/bad.nii.gz")
    said = []
    for call, options in ((run, ["-o", "plain"]), (fresh, ["-o", "out", "--jobs", "2"])):
        done = call(*DRIFT_MRI, "scans", *options, cwd=tmp_path, PYTHONPATH=ROOT)
        assert done.returncode == 1 and done.stderr.splitlines()[-1] == "1 of 4 scans failed."
        said.append(done.stdout)
    assert_same(voxels(tmp_path / "out"), voxels(tmp_path / "plain"))
    assert outcomes(tmp_path / "out") == outcomes(tmp_path / "plain") == ["rebuilt", "rebuilt", "failed", "rebuilt"]
    assert all("bad.nii.gz has 1 NaN" in lines and lines.count(" rebuilt, ") == 3 for lines in said)


def test_a_program_that_is_no_command_is_not_started_again(folder, bundle, refusal):
    assert "expected --jobs in a command line" in refusal(bundle, folder, jobs=2)


@pytest.mark.parametrize("jobs", [0, 1.5, "two", True])
def test_jobs_are_a_positive_number(jobs, scan, bundle, refusal):
    assert "expected a whole number from 1 on" in refusal(bundle, scan, jobs=jobs)
