"""Laws of checkpoints: a training goes on exactly as it would have gone, and no other training takes its place."""

import time

import pytest
import torch
from ignite.engine import Engine
from torch import nn

from scripts.errors import InputError, input_error
from scripts.files import sha256
from scripts.train.checkpoint import MINUTES, Checkpoint
from scripts.train.handlers import warmup_stable_decay
from tests import nano
from tests.nano import load, run_stage, same

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


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"seed": 1}, "seed was 0, is 1"),
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
    path.write_bytes(b"half a checkpoint")
    with pytest.raises(InputError, match=r"stage1_checkpoint\.pt cannot be read .* Delete it"):
        Checkpoint(path, RECIPE, {}).resume(*STEADY)


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


# Trainings that were stopped


LONGER = {"schedule::_target_": "scripts.train.handlers.warmup_stable_decay", "stage1_epochs": 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run_id", "workers", "all_of_it", "before"),
    [("stage1", 1, LONGER, {**LONGER, "stage1_epochs": 3}), ("stage2", 0, {}, {})],
    ids=["a longer stage 1", "stage 2"],
)
def test_a_stopped_stage_becomes_what_it_would_have_become(tmp_path, dataset_dir, run_id, workers, all_of_it, before):
    """At a rate that stays, the first epochs are those of any longer training. A stopped stage exports nothing."""
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    name = {"stage1": "stage1.pt", "stage2": "model.pt"}[run_id]
    for folder in (straight, stopped):
        folder.mkdir()
        if run_id == "stage2":
            torch.save(nano.network().state_dict(), folder / "stage1.pt")
    options = {"num_workers": workers, "patches_per_epoch": 4}
    _, expected = run_stage(straight, dataset_dir, run_id, **options, **all_of_it)
    _, first = run_stage(stopped, dataset_dir, run_id, stop_after=1, **options, **before)
    assert (stopped / f"{run_id}_checkpoint.pt").exists() and not (stopped / name).exists()
    trainer, second = run_stage(stopped, dataset_dir, run_id, **options, **all_of_it)
    epochs = all_of_it.get("stage1_epochs", 3)
    assert (trainer.state.epoch, trainer.state.iteration) == (epochs, epochs)
    assert (set(first), set(second), set(expected)) == ({1}, {*range(2, epochs + 1)}, {*range(1, epochs + 1)})
    for iteration, (rate, labels) in {**first, **second}.items():
        assert rate == expected[iteration][0]
        assert torch.equal(labels, expected[iteration][1])
    patches = [labels for _, labels in expected.values()]
    assert not any(torch.equal(a, b) for a in patches for b in patches if a is not b), "each epoch has its own patches"
    assert same(load(straight / name), load(stopped / name))


# Another training in the same folder


def test_a_recipe_holds_data_start_weights_and_processes(tmp_path, dataset_dir):
    torch.save(nano.network(seed=5).state_dict(), start := tmp_path / "start.pt")
    stages = [
        nano.content(nano.workflow(tmp_path / "eval", dataset_dir, "stage1", ckpt_path=path), "train#stage")
        for path in (None, str(start))
    ]
    stage, (found, other) = stages[0], (one.recipe() for one in stages)
    assert (found["data"], found["start weights"], found["processes"]) == (stage.data, "random", 1)
    assert other == {**found, "start weights": sha256([start])[:12]}


def test_an_epoch_of_less_than_a_batch_is_refused(tmp_path, dataset_dir):
    bundle = nano.workflow(tmp_path / "eval", dataset_dir, "stage1", patches_per_epoch=3)
    with pytest.raises(RuntimeError) as caught:
        nano.content(bundle, "train#trainer")
    assert "patches_per_epoch is below 4, one batch" in str(input_error(caught.value))
    assert not (tmp_path / "eval").exists()


def test_a_checkpoint_is_due_after_the_first_epoch_at_intervals_by_minutes_and_at_the_end(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "a.pt", RECIPE, {"network": torch.nn.Linear(2, 2)})
    due = []
    for epoch in range(1, 12):
        due.append(checkpoint.due(epoch, 11, 4))
        if due[-1]:
            checkpoint.save()
    assert [epoch for epoch, one in enumerate(due, start=1) if one] == [1, 4, 8, 11]
    assert not checkpoint.due(2, 11, 4)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60 * MINUTES + 1)
    assert checkpoint.due(2, 11, 4)
