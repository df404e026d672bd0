"""The commands that people type, each in its own process: in one file, so that one server (processes.py) does."""

import json
import re

import nibabel as nib
import numpy as np
import pytest
import torch

from drift_mri.command import main, parser
from scripts.errors import InputError
from tests.cohort_files import VOXELS, add, files
from tests.nano import NANO, NETWORK, random_weights, write_yaml
from tests.processes import BUNDLE, DRIFT_MRI, ROOT, fresh, monai_bundle, run, stacked
from tests.volumes import oblique

SHAPE = (20, 12, 8)
WRITTEN = {*("stage1.pt", "stage1.json", "model.pt", "model.json"), *("stage1_checkpoint.pt", "stage2_checkpoint.pt")}


def test_a_thick_scan_comes_out_isotropic_and_in_place(tmp_path, write_nifti, phantom):
    scan = np.ascontiguousarray(phantom[: SHAPE[0], : SHAPE[1], : 4 * SHAPE[2] : 4])
    path, network = write_nifti(scan, oblique()), write_yaml(tmp_path / "network.yaml", NETWORK)
    out, weights = tmp_path / "out", random_weights(tmp_path / "weights.pt")
    result = monai_bundle(
        *("run", "--config_file", stacked("configs/inference.yaml", network)),
        *("--input", path, "--output_dir", out, "--ckpt_path", weights),
    )
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr + result.stdout
    assert files(out) == {"scan_sr.nii.gz", "scan_sr.json", "index.html", "summary.csv", "drift.log"}
    image = nib.load(out / "scan_sr.nii.gz")
    assert image.shape == (*SHAPE[:2], 4 * SHAPE[2])
    np.testing.assert_allclose(image.header.get_zooms(), 1.0, atol=1e-5)
    assert image.header.get_xyzt_units() == ("mm", "sec")
    assert image.get_data_dtype() == np.float32
    # 32 slices of 1 mm share their middle with 8 of 4 mm: fine slice k lies at thick slice 3.5 + (k - 15.5) / 4
    for k in (0, 15, 31):
        there = image.affine @ [11, 7, k, 1]
        here = oblique() @ [11, 7, 3.5 + (k - 15.5) / 4, 1]
        assert np.linalg.norm(there - here) < 0.01
    values = image.get_fdata()
    assert np.isfinite(values).all()
    assert np.corrcoef(values.ravel(), np.repeat(scan, 4, axis=2).ravel())[0, 1] > 0.9
    assert abs(values.mean() - scan.mean()) < 0.25 * scan.mean(), "in the scan's own units"


def drift_mri(*arguments, folder):
    """The command in another folder, as from a shell."""
    return run(*DRIFT_MRI, *arguments, cwd=folder, PYTHONPATH=ROOT)


def test_a_dry_run_for_programs_is_all_of_standard_output_and_a_console_gets_what_it_can_show(tmp_path):
    """The table and the log spell out what a console without UTF-8 cannot show, and what it must not obey."""
    for name in ("M\u00fcller \u8133.nii.gz", "a\x1b[2J\x07.nii.gz"):
        add(tmp_path / name)
    add(tmp_path / "b\x1b[2J_mask.nii.gz", voxels=(VOXELS > VOXELS.mean()).astype(np.uint8))
    done = run(*DRIFT_MRI, ".", "-o", "out", "--dry_run", cwd=tmp_path, PYTHONPATH=ROOT, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert r"M\xfcller \u8133.nii.gz" in done.stdout and r"a\x1b[2J\x07.nii.gz" in done.stdout
    assert "will skip" in done.stdout + done.stderr and "\x1b" not in done.stdout + done.stderr
    done = drift_mri(".", "-o", "out", "--dry_run", "json", folder=tmp_path)
    assert [row["what"] for row in json.loads(done.stdout)] == ["will rebuild"] * 2 + ["will skip"], done.stderr
    done = drift_mri("nothing.nii.gz", "-o", "out", folder=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


MINE = """
network_def: {_target_: mine.Mine}
network: {_target_: scripts.method.weights.deployed, network: '@network_def', device: '@device'}
"""


OWN_NETWORK = """
from scripts.method.networks import AnatomicalProjectionNetwork, Drift, VelocityNetwork

print("mine is asked")


def Mine():
    return Drift(AnatomicalProjectionNetwork((4, 8), residual=True), VelocityNetwork((4, 8)))
"""


def test_a_network_of_ones_own_runs_by_a_config_and_says_little(tmp_path):
    """So does a module that lies beside it. A name that it misspells is refused. No terminal is there for bars."""
    scans = [add(tmp_path / name) for name in ("a.nii.gz", "b.nii.gz")]
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.yaml").write_text(MINE)
    (tmp_path / "own" / "mine.py").write_text(OWN_NETWORK)
    done = drift_mri(*scans, "-o", "out", "--config", "own/mine.yaml", folder=tmp_path)
    assert done.returncode == 0 and "mine is asked\n" in done.stdout, done.stderr
    assert (tmp_path / "out" / "a_sr.nii.gz").is_file()
    assert done.stderr == "" and "\r" not in done.stdout and "%|" not in done.stdout
    lines = 4 + 3 * 2  # that, where config, scans and results lie; of each a warning, facts, its end
    assert len(done.stdout.splitlines()) <= lines
    (tmp_path / "own" / "mine.yaml").write_text("network_def: {_target_: scripts.networks.Drift}")
    with pytest.raises(InputError, match=r"scripts\.networks\.Drift cannot be found"):
        main([str(scans[0]), "-o", str(tmp_path / "new"), "--config", str(tmp_path / "own" / "mine.yaml")])


def test_python_prints_nothing_and_leaves_no_scripts_behind(tmp_path):
    code = (
        "import sys; from drift_mri import rebuild; rebuild(sys.argv[1]);"
        "assert not any(name.split('.')[0] == 'scripts' for name in sys.modules)"
    )
    done = run("-c", code, add(tmp_path / "scan.nii.gz"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_command_refuses_before_it_evaluates_or_writes_anything(tmp_path):
    """A name that is code is not run."""
    config = ROOT / "configs" / "inference.yaml"
    words = ("--input", "$open('ran', 'w')", "--output_dir", "out")
    evil = monai_bundle("run", "--config_file", config, "--bundle_root", ROOT, *words, cwd=tmp_path)
    assert evil.returncode == 1 and "error: --input $open('ran', 'w') begins with $" in evil.stderr
    assert "Traceback" not in evil.stderr + evil.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def trained(tmp_path_factory, phantom):
    """One epoch of both stages on a folder of sharp volumes, by the documented command."""
    folder = tmp_path_factory.mktemp("trained")
    for k in range(16):
        (folder / "data" / f"sub-{k:02}").mkdir(parents=True)
        volume = np.ascontiguousarray(phantom[k : k + 16, k : k + 20, k : k + 12])
        nib.save(nib.Nifti1Image(volume, np.eye(4)), folder / "data" / f"sub-{k:02}" / "T1w.nii.gz")
    nano = write_yaml(folder / "nano.yaml", NANO)
    result = monai_bundle(
        *("run", "training", "--config_file", stacked("configs/train.yaml", nano)),
        *("--dataset_dir", folder / "data", "--output_dir", folder / "eval"),
    )
    return folder, result


@pytest.mark.slow
def test_both_stages_train_by_one_command(trained):
    folder, result = trained
    assert result.returncode == 0, result.stderr[-3000:]
    assert "Traceback" not in result.stderr + result.stdout
    written = {name for name in files(folder / "eval") if "tfevents" not in name}
    assert written == WRITTEN
    assert {name.split("/")[0] for name in files(folder / "eval") if "tfevents" in name} == {"stage1", "stage2"}
    stage1, model = (torch.load(folder / "eval" / name, weights_only=True) for name in ("stage1.pt", "model.pt"))
    assert all(torch.equal(stage1[name], model[name]) for name in stage1 if name.startswith("apn"))
    assert not all(torch.equal(stage1[name], model[name]) for name in stage1 if name.startswith("velocity"))
    assert re.search(r"loss", result.stdout + result.stderr), "losses show while it runs"
    assert re.search(r"psnr", result.stdout + result.stderr)
    *_, last = (line for line in (result.stdout + result.stderr).splitlines() if "--ckpt_path" in line)
    assert last.endswith(f"drift-mri SCAN -o OUT --ckpt_path {folder / 'eval' / 'model.pt'}"), "what takes the weights"
    assert parser().parse_args(last.split("drift-mri ")[1].split()).ckpt_path == str(folder / "eval" / "model.pt")


@pytest.mark.slow
def test_two_processes_train_together(trained, tmp_path):
    """Gloo on the CPU. The first process alone writes; both end."""
    folder, _ = trained
    config = stacked("configs/train.yaml", folder / "nano.yaml", "configs/multi_gpu.yaml")
    result = fresh(
        *("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", *BUNDLE, "run", "training"),
        *("--config_file", config, "--dataset_dir", folder / "data", "--output_dir", tmp_path / "eval"),
    )
    assert result.returncode == 0, result.stderr[-3000:]
    written = {name for name in files(tmp_path / "eval") if "tfevents" not in name}
    assert written == WRITTEN
    assert len([name for name in files(tmp_path / "eval") if "tfevents" in name]) == len(
        [name for name in files(folder / "eval") if "tfevents" in name]
    ), "the first process alone logs"
    single, double = (torch.load(f / "eval" / "model.pt", weights_only=True) for f in (folder, tmp_path))
    assert single.keys() == double.keys(), "no name begins with module."
    checkpoint = torch.load(tmp_path / "eval" / "stage2_checkpoint.pt", weights_only=True)
    steps = NANO["patches_per_epoch"] // NANO["stage2_batch_size"]
    assert checkpoint["trainer"]["iteration"] == steps
    stage1 = torch.load(tmp_path / "eval" / "stage1.pt", weights_only=True)
    assert all(torch.equal(stage1[name], double[name]) for name in stage1 if name.startswith("apn"))
