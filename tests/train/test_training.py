"""Both stages of `configs/train.yaml`, run on tiny networks: what they learn, leave alone, log and export."""

import shutil
from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
import torch
from ignite.engine import Engine

from scripts.files import sha256
from scripts.method.calibration import LEVELS, Calibration
from scripts.method.weights import read_card, write_card
from tests import nano
from tests.nano import content, load, planes_seen, same
from tests.train.conftest import EPOCHS, LONG


def test_each_stage_lowers_its_loss_and_trains_its_part_alone(trained):
    states = trained.initial, trained.stage1, trained.model
    for stage, part, begin, end, share in (  # of the loss a part is noise, which nothing predicts
        ("stage1", "apn", *states[:2], 0.95),
        ("stage2", "velocity", *states[1:], 0.98),
    ):
        before, after = trained.losses(stage, begin, end)
        assert after < share * before
        changed = {name for name in begin if not torch.equal(begin[name], end[name])}
        assert changed == {name for name in begin if name.startswith(f"{part}.")}


def test_the_apn_leaves_stage_two_bit_identical(trained):
    assert same(trained.stage1, trained.model, "apn")


def test_the_frozen_apn_gets_no_gradient_and_stays_in_evaluation_mode(trained):
    apn, velocity = trained.network.apn, trained.network.velocity
    assert not any(module.training for module in apn.modules())
    for part, trains in ((apn, False), (velocity, True)):
        assert all(parameter.requires_grad == trains for parameter in part.parameters())
    optimizer = content(trained.bundle, "train#trainer", "stage2").optimizer
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == {*map(id, velocity.parameters())}


def test_a_step_evaluates_each_network_once(trained):
    """Stage 1 on 4 planes a step; stage 2 on 4 samples and their pairs. Validation has its own network."""
    steps = EPOCHS * nano.SETTINGS["patches_per_epoch"] // nano.SETTINGS["stage1_batch_size"]
    assert trained.apn_calls[:steps] == [4] * steps
    refined = trained.velocity_calls[:steps]
    assert trained.apn_calls[steps : 2 * steps] == refined
    assert all(4 <= planes <= 8 for planes in refined)
    assert 4 < np.mean(refined) < 8


def test_the_validated_network_is_the_averaged_one_and_is_exported(trained):
    """Each stage logs in a folder of its own."""
    for stage in ("stage1", "stage2"):
        assert 10 < content(trained.bundle, "validate#evaluator", stage).state.metrics["psnr"] < 80
        assert list((trained.output_dir / stage).glob("events.out.tfevents.*"))
    validated = content(trained.bundle, "validate#evaluator", "stage2").network.state_dict()
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
    assert f"Part stage1: {used / 60:.3g} of 0.164 minutes are done" in log.text
    assert used < load(checkpoint)["budget"]["used"] < 2 * 60 * 0.164, "a busy machine's"
    rates = [rate for rate, _ in trace.values()]
    assert min(trace) == 3 and rates[-1] < 0.5 * max(rates)
    assert (tmp_path / "eval" / "stage1.pt").exists()
    nano.workflow(tmp_path / "eval", dataset_dir, "stage1", **time).run()
    assert "Part stage1 was complete after 0.164 minutes" in log.text


def test_minutes_for_fewer_than_ten_steps_export_nothing(dataset_dir, tmp_path, refusal):
    (tmp_path / "eval").mkdir()
    torch.save(nano.network().state_dict(), start := tmp_path / "eval" / "stage1.pt")
    engine = Engine(lambda *_: None)
    engine.state.iteration = 9
    for part, told, way in (
        ("stage1", "stage1 has done 9 steps in its 8.2e-05 minutes", "Set more --minutes, and another --output_dir."),
        ("stage2", "stage2 has done 9 steps in its ", f"{start} stays, and the run id stage2 goes on from it: "),
    ):
        stage = content(nano.workflow(tmp_path / "eval", dataset_dir, "training", minutes=1e-4), "train#stage", part)
        said = refusal(stage.finish, engine)
        assert said.startswith(told) and "expected 10 or more" in said and way in said
    assert list((tmp_path / "eval").iterdir()) == [start]


def test_a_part_that_was_begun_and_has_no_checkpoint_begins_anew_and_says_so(dataset_dir, tmp_path, log):
    """Whether it was killed in its first epoch, or somebody has deleted the checkpoint."""
    stage = content(nano.workflow(tmp_path / "eval", dataset_dir, "stage1"), "train#stage")
    stage.begin(Engine(lambda *_: None))
    assert "begins anew" not in log.text
    (tmp_path / "eval" / "stage1").mkdir(parents=True)
    stage.begin(Engine(lambda *_: None))
    assert "Part stage1: a run has begun it and left no checkpoint. It begins anew." in log.messages


@pytest.mark.parametrize("anew", [False, True])
def test_a_part_begins_with_its_start_or_anew_on_the_other_parts_of_it(anew, trained, dataset_dir, tmp_path):
    start = trained.output_dir / "model.pt"
    given = {"stage2_start": str(start), "anew": anew}
    stage = content(nano.workflow(tmp_path / "eval", dataset_dir, "stage2", **given), "train#stage", "stage2")
    stage.begin(Engine(lambda *_: None))
    found, state = load(start), stage.network.state_dict()
    assert all(torch.equal(state[name], found[name]) for name in found if name.startswith("apn."))
    last = "velocity.unet.conv_out.weight"  # of new networks it is 0
    assert found[last].any() and torch.equal(state[last], found[last] * (not anew))
    assert torch.equal(stage.averaged.state_dict()[last], state[last])


def test_new_weights_have_no_calibration_of_the_weights_that_they_started_from(dataset_dir, tmp_path):
    calibration = Calibration([3.0], [[[float(k) for k in range(len(LEVELS))]]], (0.5, 0.1))
    stage = content(nano.workflow(tmp_path / "eval", dataset_dir, "stage1"), "train#stage")
    stage.card, engine = replace(stage.card, error_map=calibration), Engine(lambda *_: None)
    engine.state.epoch = stage.course.epochs
    stage.finish(engine)
    assert read_card(tmp_path / "eval" / "stage1.pt").error_map is None


def test_a_finished_training_says_so_and_changes_nothing(trained, dataset_dir, tmp_path, log):
    """Places and intervals may differ."""
    folder, data = (shutil.copytree(path, tmp_path / path.name) for path in (trained.output_dir, dataset_dir.parent))
    calibration = Calibration([3.0], [[[float(k) for k in range(len(LEVELS))]]], (0.5, 0.1))
    write_card(folder / "model.pt", replace(read_card(folder / "model.pt"), error_map=calibration))
    before, other = contents(folder), {"val_interval": 7, "checkpoint_interval": 3}
    again = nano.workflow(folder, data / dataset_dir.name, "training", **{**LONG, **other})
    calls = planes_seen(content(again, "network").velocity)
    again.run()
    assert calls == []
    assert contents(folder) == before
    for stage in ("stage1", "stage2"):
        assert f"Part {stage} was complete after {LONG[stage + '_epochs']} epochs" in log.text
        assert f"Part {stage} has made" not in log.text


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


def test_label_maps_are_drawn_beside_the_scans_with_their_share(tmp_path, dataset_dir, label_dir):
    bundle = nano.workflow(tmp_path / "eval", dataset_dir, "stage1", label_dir=label_dir)
    dataset, weights = content(bundle, "train#mixture"), content(bundle, "train#weights")
    shares = bundle.parser["contrast_shares"]
    assert "unknown" not in shares  # so it has a share of 1
    np.testing.assert_allclose(weights, [1 / 2] * 2 + [shares["synthetic"] / 3] * 3)
    assert len(dataset) == len(weights) == 5
    for k in range(5):
        label = dataset[k]["label"]
        assert label.shape == (1, 32, 32)
        assert -1.5 < label.min() and label.max() < 2, "label 502 has become an intensity"
