"""Both stages of `configs/train.yaml`, run on tiny networks: what they learn, leave alone, log and export."""

import logging
import math
import re
import shutil
from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
import torch
from ignite.engine import Events

from scripts.files import sha256
from scripts.method.weights import read_card
from scripts.train.logs import EVERY
from tests import nano
from tests.config_files import raw
from tests.nano import content, load, planes_seen, random_weights, same
from tests.train.conftest import EPOCHS, LONG


def test_stage_one_lowers_the_loss_and_trains_the_apn_alone(trained):
    before, after = trained.losses("stage1", trained.initial, trained.stage1)
    assert after < 0.95 * before  # part of it is noise, which nothing predicts
    changed = {name for name in trained.initial if not torch.equal(trained.initial[name], trained.stage1[name])}
    assert changed == {name for name in trained.initial if name.startswith("apn")}


def test_stage_two_lowers_the_loss(trained):
    before, after = trained.losses("stage2", trained.stage1, trained.model)
    assert after < 0.98 * before


def test_the_apn_leaves_stage_two_bit_identical(trained):
    assert same(trained.stage1, trained.model, "apn")
    assert not same(trained.stage1, trained.model, "velocity.unet")


def test_the_frozen_apn_gets_no_gradient_and_stays_in_evaluation_mode(trained):
    apn, velocity = trained.network.apn, trained.network.velocity
    assert not any(module.training for module in apn.modules())
    for part, trains in ((apn, False), (velocity, True)):
        assert all(parameter.requires_grad == trains for parameter in part.parameters())
    optimizer = content(trained.bundle, "stage2#trainer").optimizer
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == {*map(id, velocity.parameters())}


def test_a_step_evaluates_each_network_once(trained):
    """Stage 1 on 4 planes a step; stage 2 on 4 samples and their pairs. Validation has its own network."""
    steps = EPOCHS * nano.SETTINGS["patches_per_epoch"] // nano.SETTINGS["stage1_batch_size"]
    assert trained.apn_calls[:steps] == [4] * steps
    refined = trained.velocity_calls[:steps]
    assert trained.apn_calls[steps : 2 * steps] == refined
    assert all(4 <= planes <= 8 for planes in refined)
    assert 4 < np.mean(refined) < 8


def test_validation_is_recorded_in_a_folder_for_each_stage(trained):
    for stage, evaluator in (("stage1", "validate#evaluator"), ("stage2", "stage2#evaluator")):
        psnr = content(trained.bundle, evaluator).state.metrics["psnr"]
        assert math.isfinite(psnr) and 10 < psnr < 80
        assert list((trained.output_dir / stage).glob("events.out.tfevents.*"))


def test_the_validated_network_is_the_averaged_one_and_is_exported(trained):
    validated = content(trained.bundle, "stage2#evaluator").network.state_dict()
    assert trained.model.keys() == validated.keys() == trained.initial.keys()
    assert same(trained.model, validated)
    average = load(trained.output_dir / "stage2_checkpoint.pt")["average"]
    assert all(torch.equal(trained.model[f"velocity.{name}"], value) for name, value in average.items())


def test_either_stage_writes_the_card_of_its_weights_which_ships_whatever_the_options_of_the_day(
    trained, dataset_dir, tmp_path
):
    for name in ("stage1.pt", "model.pt"):
        card = read_card(trained.output_dir / name)
        assert card.sha256 == sha256([trained.output_dir / name])
        assert (card.target_range, card.max_thickness) == ((0.7, 1.3), 7.0)
        assert card.version == content(trained.bundle, "_meta_#version")
    today = {"max_thickness": 5.0, "n_max": 3, "size": "other", "_meta_#version": "9.9.9"}
    place = tmp_path / "models" / "model.pt"
    nano.workflow(trained.output_dir, dataset_dir, "ship", **{"ship#0#path": str(place)}, **today).run()
    shipped = read_card(place)
    assert replace(shipped, sha256=card.sha256) == card and shipped.sha256 == sha256([place])
    assert all(value.dtype == torch.float16 for value in load(place).values())


def test_a_training_that_diverges_is_told_in_one_line_exports_nothing_and_keeps_its_last_finite_state(
    tmp_path, dataset_dir, refusal, caplog
):
    """At a rate that no network stands."""
    rate = {"stage1_learning_rate": 1e30, "patches_per_epoch": 4}
    told = refusal(nano.workflow(tmp_path / "eval", dataset_dir, "training", **rate).run)
    assert "stage1 diverges: step 2, in epoch 2, has the loss" in told and "learning rate" in told
    assert not any(record.exc_info for record in caplog.records), "a trace beside it"
    assert [path.name for path in (tmp_path / "eval").iterdir() if path.is_file()] == ["stage1_checkpoint.pt"]
    checkpoint = load(tmp_path / "eval" / "stage1_checkpoint.pt")
    assert checkpoint["trainer"]["iteration"] == 1
    for name in ("network", "average"):
        assert all(value.isfinite().all() for value in checkpoint[name].values())


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_training_takes_its_minutes_and_goes_on_with_what_is_left_of_them(dataset_dir, tmp_path, log):
    """A stopped one keeps what it has used; its weights are exported at the end, when the rate has fallen."""
    time = {"minutes": 0.2, "schedule::_target_": "scripts.train.handlers.warmup_cosine", "stage1_epochs": 1}
    checkpoint = tmp_path / "eval" / "stage1_checkpoint.pt"
    nano.run_stage(tmp_path / "eval", dataset_dir, "stage1", stop_after=1, **time)
    used = load(checkpoint)["budget"]["used"]
    assert used > 0 and not (tmp_path / "eval" / "stage1.pt").exists()
    log.clear()
    _, trace = nano.run_stage(tmp_path / "eval", dataset_dir, "stage1", **time)
    assert f"Part stage1: {used / 60:.3g} of 0.154 minutes are done" in log.text
    assert used < load(checkpoint)["budget"]["used"] < 2 * 60 * 0.154, "a busy machine's"
    rates = [rate for rate, _ in trace.values()]
    assert min(trace) == 3 and rates[-1] < 0.5 * max(rates)
    assert (tmp_path / "eval" / "stage1.pt").exists()
    nano.workflow(tmp_path / "eval", dataset_dir, "stage1", **time).run()
    assert "Part stage1 was complete after 0.154 minutes" in log.text


def test_losses_are_logged_in_digits_that_count(trained, dataset_dir, tmp_path, caplog):
    """Distillation's are small: with decimals alone they would read 0.0000."""
    caplog.set_level(logging.INFO)
    (tmp_path / "eval").mkdir()
    for name in ("model.pt", "model.json"):
        shutil.copy(trained.output_dir / name, tmp_path / "eval" / name)
    bundle, losses = nano.workflow(tmp_path / "eval", dataset_dir, "distil", distil_epochs=6), []
    trainer = content(bundle, "distil#trainer")
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output["loss"]))
    bundle.run()
    logged = [float(one) for one in re.findall(r"-- loss: (\S+)", caplog.text)]
    assert logged == pytest.approx([one.item() for one in losses][::EVERY], rel=1e-3)
    assert len(logged) == 2 and 0 < min(logged) < 1e-3


def test_minutes_for_fewer_than_ten_steps_export_nothing(dataset_dir, tmp_path, refusal):
    told = refusal(nano.workflow(tmp_path / "eval", dataset_dir, "stage1", minutes=1e-4).run)
    assert told.startswith("stage1 has done 1 steps in its 7.7e-05 minutes: expected 10 or more")
    assert told.endswith("Set more --minutes, and another --output_dir.")
    assert not list((tmp_path / "eval").glob("*.pt")), "the next try has other minutes"


def test_a_stage_without_a_share_of_the_minutes_refuses_them(dataset_dir, tmp_path, refusal):
    """That of the error map is one."""
    assert raw("error_map.yaml")["train::course::budget::share"] is None
    told = refusal(
        nano.workflow(tmp_path / "eval", dataset_dir, "stage1", minutes=9, **{"train::course::budget::share": None}).run
    )
    assert told.startswith("stage1 has no share of the minutes") and told.endswith("and set --stage1_epochs.")


def test_a_finished_training_says_so_and_changes_nothing(trained, dataset_dir, tmp_path, log):
    """Places and intervals may differ."""
    folder, data = (shutil.copytree(path, tmp_path / path.name) for path in (trained.output_dir, dataset_dir.parent))
    before, other = contents(folder), {"val_interval": 7, "checkpoint_interval": 3}
    again = nano.workflow(folder, data / dataset_dir.name, "training", **{**LONG, **other})
    calls = planes_seen(content(again, "network").velocity)
    again.run()
    assert calls == []
    assert contents(folder) == before
    for stage in ("stage1", "stage2"):
        assert f"Part {stage} was complete after {LONG[stage + '_epochs']} epochs" in log.text


def test_another_stage_one_is_not_given_the_velocity_of_the_old_one(trained, dataset_dir, tmp_path, refusal):
    folder = shutil.copytree(trained.output_dir, tmp_path / "eval")
    random_weights(folder / "stage1.pt", channels=(8, 16))
    before = contents(folder)
    told = refusal(nano.workflow(folder, dataset_dir, "stage2", **LONG).run)
    assert "stage2_checkpoint.pt is of another training: start weights was" in told
    assert contents(folder) == before


def test_checkpoints_hold_what_their_stage_trains_and_no_more(trained):
    """A checkpoint of stage 2 with the APN in it brought back an old one."""
    for stage, part in (("stage1", "apn"), ("stage2", "velocity")):
        found = load(trained.output_dir / f"{stage}_checkpoint.pt")
        assert set(found) == {"recipe", "network", "average", "optimizer", "lr_scheduler", "trainer"}
        for state in ("network", "average"):
            assert {f"{part}.{name}" for name in found[state]} == {n for n in trained.initial if n.startswith(part)}
    assert {path.suffix for path in trained.output_dir.iterdir() if path.is_file()} == {".pt", ".json"}


@pytest.fixture
def label_dir(tmp_path):
    """Three label maps, 1 mm: boxes inside each other."""
    labels = np.zeros((40, 40, 40), np.int16)
    for margin, label in ((4, 502), (8, 3), (14, 2)):
        labels[margin:-margin, margin:-margin, margin:-margin] = label
    (tmp_path / "maps").mkdir()
    for k in range(3):
        nib.save(nib.Nifti1Image(labels, np.eye(4)), tmp_path / "maps" / f"{k}.nii.gz")
    return str(tmp_path / "maps")


def test_label_maps_train_beside_the_scans_with_their_share(tmp_path, dataset_dir, label_dir):
    bundle = nano.workflow(tmp_path / "eval", dataset_dir, "stage1", label_dir=label_dir, stage1_epochs=1)
    dataset, weights = content(bundle, "train#mixture"), content(bundle, "train#weights")
    shares = bundle.parser["contrast_shares"]
    assert "unknown" not in shares  # so it has a share of 1
    np.testing.assert_allclose(weights, [1 / 2] * 2 + [shares["synthetic"] / 3] * 3)
    assert len(dataset) == len(weights) == 5
    for k in range(5):
        label = dataset[k]["label"]
        assert label.shape == (1, 32, 32)
        assert -1.5 < label.min() and label.max() < 2, "label 502 has become an intensity"
    bundle.run()
    assert all(value.isfinite().all() for value in load(tmp_path / "eval" / "stage1.pt").values())
