"""Laws of checkpoints: a training goes on exactly as it would have gone, and no other training takes its place."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import yaml
from ignite.engine import Engine
from torch import nn

from scripts.errors import InputError, input_error
from scripts.train.checkpoint import Checkpoint
from scripts.train.handlers import warmup_stable_decay
from tests import nano
from tests.nano import ROOT, load, run_stage, same
from tests.processes import assert_told_in_one_line, monai_bundle

RECIPE = {"seed": 0, "data": "abc", "network_def::apn::residual": True}

STEADY = ("epochs", lambda epochs, step: 1.0)  # every training is the beginning of any longer one


def linear(value):
    network = nn.Linear(1, 1)
    nn.init.constant_(network.weight, value)
    return network


# The file


def test_a_checkpoint_restores_what_it_saved(tmp_path):
    network, other = linear(1.0), linear(2.0)
    path = tmp_path / "new folder" / "stage1_checkpoint.pt"
    Checkpoint(path, RECIPE, {"network": network}).save()
    Checkpoint(path, RECIPE, {"network": other}).resume(*STEADY)
    assert same(network.state_dict(), other.state_dict())


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "stage1_checkpoint.pt"
    checkpoint = Checkpoint(path, RECIPE, {"network": linear(1.0)})
    checkpoint.save()
    before = path.read_bytes()
    checkpoint.state["network"].state_dict = lambda: {"unsaveable": (n for n in range(3))}
    with pytest.raises(TypeError):
        checkpoint.save()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_without_a_checkpoint_nothing_changes(tmp_path):
    network = linear(1.0)
    Checkpoint(tmp_path / "absent.pt", RECIPE, {"network": network}).resume(*STEADY)
    assert network.weight.item() == 1


def test_a_broken_checkpoint_is_named(tmp_path):
    path = tmp_path / "stage1_checkpoint.pt"
    path.write_bytes(b"half a checkpoint")
    with pytest.raises(InputError, match=r"stage1_checkpoint\.pt cannot be read .* Delete it"):
        Checkpoint(path, RECIPE, {}).resume(*STEADY)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"seed": 1}, "seed was 0, is 1"),
        ({"data": "def"}, "data was abc, is def"),
        ({"ceta_gap": None}, "ceta_gap was absent, is None"),
        ({"network_def::apn::residual": False, "seed": 3}, "network_def::apn::residual was True, is False; seed was 0"),
    ],
)
def test_another_recipe_is_refused_and_what_differs_is_named(tmp_path, other, told):
    path, network = tmp_path / "stage1_checkpoint.pt", linear(2.0)
    Checkpoint(path, RECIPE, {"network": linear(1.0)}).save()
    with pytest.raises(InputError, match=rf"of another training: {told}.*\. Set another --output_dir, or delete"):
        Checkpoint(path, {**RECIPE, **other}, {"network": network}).resume(*STEADY)
    assert network.weight.item() == 2


@pytest.mark.parametrize(
    ("old", "new", "done", "taken"), [(100, 300, 8001, True), (300, 100, 8001, True), (100, 300, 8002, False)]
)
def test_a_training_of_another_length_goes_on_where_both_had_one_rate_so_far(tmp_path, old, new, done, taken):
    def rate(epochs, step):
        return warmup_stable_decay(step, 100 * epochs)

    path, network, trainer = tmp_path / "stage1_checkpoint.pt", linear(2.0), Engine(lambda *_: None)
    trainer.load_state_dict({"iteration": done, "max_epochs": old, "epoch_length": 100})
    Checkpoint(path, {**RECIPE, "epochs": old}, {"network": linear(1.0), "trainer": trainer}).save()
    checkpoint = Checkpoint(path, {**RECIPE, "epochs": new}, {"network": network, "trainer": trainer})
    if taken:
        checkpoint.resume("epochs", rate)
    else:
        with pytest.raises(InputError, match=f"epochs was {old}, is {new}"):
            checkpoint.resume("epochs", rate)
    assert network.weight.item() == (1 if taken else 2)


def test_a_checkpoint_without_a_recipe_is_refused(tmp_path):
    path = tmp_path / "stage1_checkpoint.pt"
    torch.save({"key": {"seed": "0"}, "network": linear(1.0).state_dict()}, path)
    with pytest.raises(InputError, match="it holds no recipe"):
        Checkpoint(path, RECIPE, {"network": linear(2.0)}).resume(*STEADY)


# Trainings that were stopped


@pytest.mark.parametrize(("run_id", "workers"), [("stage1", 0), ("stage1", 1), ("stage2", 0)])
def test_a_stopped_stage_becomes_what_it_would_have_become(tmp_path, dataset_dir, run_id, workers):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    for folder in (straight, stopped):
        folder.mkdir()
        torch.save(nano.network().state_dict(), folder / "stage1.pt")
    options = {"num_workers": workers, "patches_per_epoch": 4}
    _, expected = run_stage(straight, dataset_dir, run_id, **options)
    _, first = run_stage(stopped, dataset_dir, run_id, stop_after=1, **options)
    trainer, second = run_stage(stopped, dataset_dir, run_id, **options)
    assert (trainer.state.epoch, trainer.state.iteration) == (3, 3)
    assert (set(first), set(second), set(expected)) == ({1}, {2, 3}, {1, 2, 3})
    for iteration, (rate, labels) in {**first, **second}.items():
        assert rate == expected[iteration][0]
        assert torch.equal(labels, expected[iteration][1])
    patches = [labels for _, labels in expected.values()]
    assert not any(torch.equal(a, b) for a in patches for b in patches if a is not b), "each epoch has its own patches"
    name = {"stage1": "stage1.pt", "stage2": "model.pt"}[run_id]
    assert same(load(straight / name), load(stopped / name))


@pytest.mark.parametrize(("run_id", "export"), [("stage1", "stage1.pt"), ("stage2", "model.pt")])
def test_a_stopped_stage_exports_nothing(tmp_path, dataset_dir, run_id, export):
    """The export says that a stage is finished: stage 2 and inference take it at its word."""
    folder = tmp_path / "stopped"
    folder.mkdir()
    if run_id == "stage2":
        torch.save(nano.network().state_dict(), folder / "stage1.pt")
    run_stage(folder, dataset_dir, run_id, stop_after=1)
    assert (folder / f"{run_id}_checkpoint.pt").exists()
    assert not (folder / export).exists()


def test_a_longer_training_becomes_what_it_would_have_become(tmp_path, dataset_dir):
    """At a rate that stays, the first epochs are those of any longer training."""
    straight, grown = tmp_path / "straight", tmp_path / "grown"
    steady = {"schedule::_target_": "scripts.train.handlers.warmup_stable_decay", "patches_per_epoch": 4}
    run_stage(straight, dataset_dir, "stage1", **steady, stage1_epochs=4)
    run_stage(grown, dataset_dir, "stage1", stop_after=2, **steady, stage1_epochs=3)
    trainer, _ = run_stage(grown, dataset_dir, "stage1", **steady, stage1_epochs=4)
    assert trainer.state.epoch == 4
    assert same(load(straight / "stage1.pt"), load(grown / "stage1.pt"))


# Another training in the same folder


SHORT = {"stage1_epochs": 3, "stage2_epochs": 3}


@pytest.fixture(scope="module")
def finished(tmp_path_factory, dataset_dir):
    """Folder of a training whose two stages are complete."""
    folder = tmp_path_factory.mktemp("finished") / "eval"
    nano.workflow(folder, dataset_dir, "training", **SHORT).run()
    return folder


def refusal(*arguments, **options):
    """Why a run is refused; nothing in its folder may change."""
    before = {path: path.read_bytes() for path in arguments[0].rglob("*") if path.is_file()}
    with pytest.raises(Exception) as caught:
        nano.workflow(*arguments, **{**SHORT, **options}).run()
    assert {path: path.read_bytes() for path in arguments[0].rglob("*") if path.is_file()} == before
    error = input_error(caught.value)
    assert error is not None, caught.value
    return str(error)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"stage1_epochs": 2}, "stage1_epochs was 3, is 2"),
        ({"stage1_batch_size": 2}, "stage1_batch_size was 4, is 2"),
        ({"stage1_learning_rate": 0.01}, "stage1_learning_rate was 0.001, is 0.01"),
        ({"max_thickness": 6.0, "seed": 1}, "max_thickness was 7.0, is 6.0; seed was 0, is 1"),
        (
            {"network_def#velocity#channels": [8, 24]},
            "stage1_checkpoint.pt is of another training: network_def::velocity",
        ),
        ({"network_def#apn#residual": False}, "network_def::apn::residual was True, is False"),
        ({"stage#optimizer#_target_": "torch.optim.Adam"}, "stage::optimizer::_target_ was torch.optim.AdamW, is"),
        ({"plane_pairs#transforms#5#prob": 0.0}, "plane_pairs::transforms::5::prob was 0.5, is 0.0"),
        ({"stage2#trainer#loss_function#delta": 0.2}, "stage2::trainer::loss_function::delta was 0.1, is 0.2"),
        ({"_meta_#version": "0.0.1"}, "_meta_::version was"),
        ({"stage2_epochs": 2}, "stage2_checkpoint.pt is of another training: stage2_epochs was 3, is 2"),
    ],
)
def test_any_other_value_is_refused_by_name(finished, dataset_dir, options, told):
    assert told in refusal(finished, dataset_dir, "training", **options)


def test_places_workers_intervals_and_logs_may_change(finished, dataset_dir, tmp_path):
    moved, data = tmp_path / "eval", tmp_path / "data"
    shutil.copytree(finished, moved)
    shutil.copytree(dataset_dir.parent, data)
    before = {path.name: path.read_bytes() for path in moved.iterdir() if path.is_file()}
    other = {"num_workers": 1, "val_interval": 7, "checkpoint_interval": 3, "stage#log#iteration_log": 5}
    nano.workflow(moved, data / dataset_dir.name, "training", **{**SHORT, **other}).run()
    assert {path.name: path.read_bytes() for path in moved.iterdir() if path.is_file()} == before


def test_other_start_weights_are_refused(finished, dataset_dir, tmp_path):
    torch.save(nano.network(seed=5).state_dict(), tmp_path / "start.pt")
    message = refusal(finished, dataset_dir, "training", ckpt_path=str(tmp_path / "start.pt"))
    assert "start weights was random, is" in message


def test_other_data_are_refused(finished, dataset_dir, tmp_path):
    other = tmp_path / "data"
    shutil.copytree(dataset_dir.parent, other)
    shutil.copy(other / "1.nii.gz", other / "0.nii.gz")
    assert "data was" in refusal(finished, other / dataset_dir.name, "training")


def test_another_stage_one_is_not_given_the_velocity_of_the_old_one(finished, dataset_dir, tmp_path):
    """Its checkpoint is deleted, as the refusal says, and it is trained anew."""
    folder = tmp_path / "eval"
    shutil.copytree(finished, folder)
    (folder / "stage1_checkpoint.pt").unlink()
    nano.workflow(folder, dataset_dir, "stage1", **{**SHORT, "stage1_epochs": 2}).run()
    assert not same(load(folder / "stage1.pt"), load(finished / "stage1.pt"))
    message = refusal(folder, dataset_dir, "training", stage1_epochs=2)
    assert "stage2_checkpoint.pt is of another training: start weights was" in message


def test_an_epoch_of_less_than_a_batch_is_refused(tmp_path, dataset_dir):
    result = monai_bundle(
        *("run", "stage1", "--config_file", "configs/train.yaml", "--dataset_dir", dataset_dir),
        *("--output_dir", tmp_path / "eval", "--patches_per_epoch", 3),
    )
    assert_told_in_one_line(result, "patches_per_epoch is below 4, one batch", "--patches_per_epoch")


def test_a_misspelt_option_of_a_training_is_refused(tmp_path, dataset_dir):
    result = monai_bundle(
        *("run", "training", "--config_file", "configs/train.yaml", "--dataset_dir", dataset_dir),
        *("--output_dir", tmp_path / "eval", "--stage1_epoch", 1),
    )
    assert_told_in_one_line(result, "stage1_epoch", "stage1_epochs")
    assert not (tmp_path / "eval").exists()


@pytest.mark.slow
def test_a_killed_run_resumes_and_finishes(tmp_path, dataset_dir):
    output_dir, settings = tmp_path / "eval", tmp_path / "nano.yaml"
    longer = {"stage1_epochs": 20, "stage2_epochs": 2, "patches_per_epoch": 40}
    settings.write_text(yaml.safe_dump({**nano.SETTINGS, **longer}))
    command = [
        *(sys.executable, "-m", "monai.bundle", "run", "training"),
        *("--config_file", f"['configs/train.yaml','{settings}']"),
        *("--dataset_dir", str(dataset_dir), "--output_dir", str(output_dir)),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    victim = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 120
        while not (output_dir / "stage1_checkpoint.pt").exists():
            assert victim.poll() is None, "ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait(10)
    assert not (output_dir / "model.pt").exists()
    # killed at the moment when the first checkpoint appeared: what is there must be whole
    done = load(output_dir / "stage1_checkpoint.pt")["trainer"]["iteration"]
    assert 0 < done < 200

    second = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert second.returncode == 0, second.stderr[-2000:]
    assert f"stage1: {np.ceil(done / 10):.0f} of 20 epochs are done" in second.stdout + second.stderr
    assert load(output_dir / "stage1_checkpoint.pt")["trainer"]["iteration"] == 200
    assert (output_dir / "model.pt").exists()
