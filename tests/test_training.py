"""Laws of both training stages: batches, handlers, and the stages of `configs/train.yaml` run on tiny networks."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from ignite.engine import Engine, Events
from monai.bundle import ConfigWorkflow
from monai.data import DataLoader
from monai.engines import SupervisedTrainer
from monai.engines.utils import IterationEvents
from torch import nn

from scripts import training
from scripts.flow import PathSample
from scripts.losses import FlowLoss
from scripts.networks import AnatomicalProjectionNetwork, Drift, VelocityNetwork
from tests import paper_values as paper

ROOT = Path(__file__).parents[1]
THICK = [3.0, 1.5, 5.0, 1.9, 2.1, 6.0]  # mm; at a target of 1 mm and a gap of 1 mm, the second and fourth have no pair
PAIRED = [0, 2, 4, 5]
EPOCHS = 40  # of the stages that are to learn something
NANO = {
    "network_def": {
        "_target_": "scripts.networks.Drift",
        "apn": {"_target_": "scripts.networks.AnatomicalProjectionNetwork", "channels": [8, 16], "residual": True},
        "velocity": {"_target_": "scripts.networks.VelocityNetwork", "channels": [8, 16]},
    },
    "num_workers": 0,
    "patch_size": 32,
    "stage1_batch_size": 4,
    "stage2_batch_size": 4,
    "patches_per_epoch": 8,
    "stage1_epochs": 4,
    "stage2_epochs": 4,
    "stage2_learning_rate": 5.0e-3,
    "average_decay": 0.9,
    "val_interval": 1000,
    "checkpoint_interval": 1,
    "bfloat16": False,
}


def batch(size=16, thick=THICK, seed=0):
    """What the preprocessing hands over, on random planes."""
    generator = torch.Generator().manual_seed(seed)

    def planes():
        return torch.rand(len(thick), 1, size, size, generator=generator) * 2 - 1

    near = [t - paper.CETA_GAP if t - paper.CETA_GAP > 1 else t for t in thick]
    image, proximal = planes(), planes()
    for k, (t, n) in enumerate(zip(thick, near)):
        if t == n:
            proximal[k] = image[k]
    return {
        "image": image,
        "label": planes(),
        "thickness": torch.tensor([[t, 1.0] for t in thick]),
        "proximal": proximal,
        "proximal_thickness": torch.tensor([[n, 1.0] for n in near]),
    }


def flow_batch(apn, alpha=paper.ENDPOINT_ALPHA):
    return training.FlowBatch(apn, training.PrecisionInferer(bfloat16=False), alpha)


def planes_seen(network):
    """Records how many planes each call of a network gets; an observation, nothing is replaced."""
    seen = []

    def record(module, inputs, output):
        if module is network:  # its copies, such as the averaged network, bear the hook too
            seen.append(len(inputs[0]))

    network.register_forward_hook(record)
    return seen


# Batches


def test_stage_one_maps_the_image_at_its_thickness_to_the_label():
    data = batch()
    image, label, arguments, keywords = training.ProjectionBatch()(data, "cpu")
    assert torch.equal(image, data["image"])
    assert torch.equal(label, data["label"])
    assert len(arguments) == 1
    assert torch.equal(arguments[0], data["thickness"])
    assert keywords == {}


def test_pairs_are_those_whose_neighbour_is_thinner(drift):
    _, path, _, _ = flow_batch(drift.apn)(batch(), "cpu")
    assert path.partner.tolist() == PAIRED


def test_states_lie_on_the_path_from_the_estimate_to_the_truth(drift):
    xt, path, (thickness, t), keywords = flow_batch(drift.apn)(batch(), "cpu")
    assert isinstance(path, PathSample)
    assert keywords == {}
    assert torch.equal(path.xt, xt)
    assert torch.equal(path.t, t)
    assert ((t >= 0) & (t <= 1)).all()
    assert len(thickness) == len(xt) == len(THICK) + len(PAIRED)
    for k in range(len(xt)):
        expected = (1 - t[k]) * path.x0[k] + t[k] * path.x1[k]
        torch.testing.assert_close(xt[k], expected)


def test_estimates_are_the_apns_at_either_thickness(drift):
    data = batch()
    _, path, (thickness, _), _ = flow_batch(drift.apn)(data, "cpu")
    with torch.no_grad():
        first = drift.apn(data["image"], data["thickness"])
        second = drift.apn(data["proximal"], data["proximal_thickness"])
    torch.testing.assert_close(path.x0[: len(THICK)], first)
    torch.testing.assert_close(path.x0[len(THICK) :], second[PAIRED])
    assert torch.equal(thickness[: len(THICK)], data["thickness"])
    assert torch.equal(thickness[len(THICK) :], data["proximal_thickness"][PAIRED])


def test_pairs_share_time_and_target(drift):
    data = batch()
    _, path, _, _ = flow_batch(drift.apn)(data, "cpu")
    assert torch.equal(path.t[len(THICK) :], path.t[path.partner])
    assert torch.equal(path.x1[len(THICK) :], path.x1[path.partner])
    assert torch.equal(path.x1[: len(THICK)], data["label"])
    assert len(set(path.t[: len(THICK)].tolist())) == len(THICK), "each sample draws its own time"


def test_without_pairs_the_batch_is_the_samples_alone(drift):
    xt, path, (thickness, t), _ = flow_batch(drift.apn)(batch(thick=[1.5, 1.9]), "cpu")
    assert len(xt) == len(thickness) == len(t) == 2
    assert path.partner.numel() == 0
    assert FlowLoss(0.1, 1.0)(torch.zeros_like(xt), path).isfinite()


def test_a_step_evaluates_the_apn_once_on_samples_and_pairs(drift):
    seen = planes_seen(drift.apn)
    flow_batch(drift.apn)(batch(), "cpu")
    assert seen == [len(THICK) + len(PAIRED)]


def test_the_apn_is_frozen_and_its_estimate_carries_no_gradient(drift):
    drift.train().requires_grad_(True)
    xt, path, _, _ = flow_batch(drift.apn)(batch(), "cpu")
    assert not drift.apn.training
    assert not any(p.requires_grad for p in drift.apn.parameters())
    assert all(p.requires_grad for p in drift.velocity.parameters())
    assert not xt.requires_grad
    assert not path.x0.requires_grad


def test_times_are_dense_at_both_ends(drift):
    """At alpha = 2, |2t - 1| has the distribution function u^2: three quarters of the times lie in the outer half."""
    torch.manual_seed(0)
    _, path, _, _ = flow_batch(drift.apn)(batch(2, [1.5] * 4000), "cpu")
    outer = ((2 * path.t - 1).abs() > 0.5).float().mean().item()
    assert outer == pytest.approx(0.75, abs=0.03)
    assert path.t.mean().item() == pytest.approx(0.5, abs=0.03)


# Precision


def called(network, bfloat16, *arguments):
    with torch.no_grad():
        return training.PrecisionInferer(bfloat16)(arguments[0], network, *arguments[1:])


@pytest.mark.parametrize("stage", ["apn", "velocity"])
def test_half_the_bits_give_nearly_the_same_and_float32_what_the_network_gives(drift, stage):
    data, network = batch(), getattr(drift, stage)
    arguments = (data["image"], data["thickness"], *([torch.linspace(0, 1, len(THICK))] if stage == "velocity" else []))
    with torch.no_grad():
        plain = network(*arguments)
    exact, rough = called(network, False, *arguments), called(network, True, *arguments)
    assert torch.equal(exact, plain)
    assert exact.dtype == rough.dtype == torch.float32
    assert not torch.equal(rough, plain)
    assert (rough - plain).norm() < 1e-2 * plain.norm()


@pytest.mark.parametrize("bfloat16", [False, True])
def test_weights_and_their_gradients_stay_in_float32(drift, bfloat16):
    data = batch()
    output = training.PrecisionInferer(bfloat16)(data["image"], drift.apn, data["thickness"])
    assert output.requires_grad
    output.square().mean().backward()
    for parameter in drift.apn.parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all()


def test_the_frozen_apn_is_called_in_the_precision_of_the_inferer(drift):
    data = batch()
    _, exact, _, _ = training.FlowBatch(drift.apn, training.PrecisionInferer(False), 2.0)(data, "cpu")
    xt, rough, _, _ = training.FlowBatch(drift.apn, training.PrecisionInferer(True), 2.0)(data, "cpu")
    partner = exact.partner
    image, thickness = (
        torch.cat([data[key], data[f"proximal{suffix}"][partner]])
        for key, suffix in (("image", ""), ("thickness", "_thickness"))
    )
    for path, bfloat16 in ((exact, False), (rough, True)):
        assert torch.equal(path.x0, called(drift.apn, bfloat16, image, thickness))
    assert xt.dtype == rough.x0.dtype == torch.float32
    assert not torch.equal(rough.x0, exact.x0)


# Learning rate


def rates(steps, epochs, peak=0.3):
    """The rate at each step of a training, and the one after the last."""
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=peak)
    schedule = training.warmup_cosine(optimizer, steps, epochs)
    result = [optimizer.param_groups[0]["lr"]]
    for _ in range(steps * epochs):
        optimizer.step()
        schedule.step()
        result.append(optimizer.param_groups[0]["lr"])
    return np.array(result) / peak


@pytest.mark.parametrize(("steps", "epochs"), [(50, 4), (30, 100), (20, 1)])
def test_the_rate_warms_up_over_five_percent_and_falls_to_a_tenth_as_a_cosine(steps, epochs):
    """The first step has its share of the rate already: a step at rate 0 would be wasted."""
    rate, total = rates(steps, epochs), steps * epochs
    warm = round(paper.WARMUP_SHARE * total)
    np.testing.assert_allclose(rate[:warm], (1 + np.arange(warm)) / warm, atol=1e-9)
    phase = np.pi * np.arange(total - warm + 1) / (total - warm)
    floor = paper.LEARNING_RATE_FLOOR
    np.testing.assert_allclose(rate[warm:], floor + (1 - floor) * (1 + np.cos(phase)) / 2, atol=1e-6)


@pytest.mark.parametrize("epochs", [2, 3, 19])
def test_a_short_training_has_a_schedule_too(epochs):
    rate = rates(1, epochs)
    assert rate[0] == pytest.approx(1)
    assert (np.diff(rate) <= 1e-9).all()
    assert rate[-1] == pytest.approx(paper.LEARNING_RATE_FLOOR)


# Clipping


class Far(nn.Module):
    """Mean squared distance times a factor: its gradient is as large as one likes."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, prediction, target):
        return self.factor * nn.functional.mse_loss(prediction, target)


def gradient_norms(factor, max_norm):
    """Gradient norms before and after clipping, for a few steps of a stock trainer."""
    torch.manual_seed(0)
    network = AnatomicalProjectionNetwork((4, 8))
    items = [{k: v[0] for k, v in batch(8, [3.0], seed).items()} for seed in range(4)]
    before, after = [], []

    def observe(norms):
        def record(engine):
            norms.append(torch.stack([p.grad.norm() for p in network.parameters() if p.grad is not None]).norm().item())

        return record

    trainer = SupervisedTrainer(
        device=torch.device("cpu"),
        max_epochs=1,
        train_data_loader=DataLoader(items, batch_size=1),
        network=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=1e-6),
        loss_function=Far(factor),
        prepare_batch=training.ProjectionBatch(),
        decollate=False,
    )
    trainer.add_event_handler(IterationEvents.BACKWARD_COMPLETED, observe(before))
    training.ClipGradient(max_norm).attach(trainer)
    trainer.add_event_handler(IterationEvents.BACKWARD_COMPLETED, observe(after))
    trainer.run()
    return np.array(before), np.array(after)


def test_large_gradients_are_clipped_to_the_norm():
    before, after = gradient_norms(1e4, paper.GRADIENT_CLIP)
    assert len(before) == 4
    assert (before > 10 * paper.GRADIENT_CLIP).all()
    np.testing.assert_allclose(after, paper.GRADIENT_CLIP, rtol=1e-4)


def test_small_gradients_stay_as_they_are():
    before, after = gradient_norms(1e-4, paper.GRADIENT_CLIP)
    assert (before < paper.GRADIENT_CLIP).all()
    np.testing.assert_array_equal(after, before)


# The averaged network


def test_the_average_starts_as_the_network_and_apart_from_it(drift):
    average = training.moving_average(drift, 0.9)
    state, copy = drift.state_dict(), average.module.state_dict()
    assert state.keys() == copy.keys()
    assert all(torch.equal(state[name], copy[name]) for name in state)
    with torch.no_grad():
        for parameter in drift.parameters():
            parameter.add_(1)
    assert not any(torch.equal(drift.state_dict()[name], value) for name, value in average.module.state_dict().items())


def test_the_average_is_a_plain_loops():
    decay, generator = 0.7, torch.Generator().manual_seed(0)
    network = nn.Linear(3, 2)
    average = training.moving_average(network, decay)
    expected = None
    for n in range(30):
        with torch.no_grad():
            network.weight.copy_(torch.randn(2, 3, generator=generator))
        training.UpdateAverage(average, network)(None)
        keep = min(decay, (1 + n) / (10 + n))
        new = network.weight.detach().clone()
        expected = new if n == 0 else keep * expected + (1 - keep) * new
        torch.testing.assert_close(average.module.weight, expected)


def test_the_average_of_a_constant_is_exactly_that_constant(drift):
    average = training.moving_average(drift, 0.998)
    for _ in range(50):
        average.update_parameters(drift)
    state = average.module.state_dict()
    assert all(torch.equal(state[name], value) for name, value in drift.state_dict().items())


def test_the_average_is_for_evaluation(drift):
    drift.train()
    average = training.moving_average(drift, 0.9)
    assert not average.training
    assert not any(module.training for module in average.modules())
    assert not any(parameter.requires_grad for parameter in average.parameters())
    assert drift.training
    assert all(parameter.requires_grad for parameter in drift.parameters())


# Resuming


def test_a_checkpoint_restores_what_it_saved(tmp_path):
    network, other = nn.Linear(1, 1), nn.Linear(1, 1)
    path = str(tmp_path / "new folder" / "stage1_checkpoint.pt")
    training.Checkpoint(path, {"network": network}, 1).save()
    training.Checkpoint(path, {"network": other}, 1).resume(Engine(lambda engine, item: None))
    assert same(network.state_dict(), other.state_dict())


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "stage1_checkpoint.pt"
    checkpoint = training.Checkpoint(str(path), {"network": nn.Linear(1, 1)}, 1)
    checkpoint.save()
    before = path.read_bytes()
    checkpoint.state["network"].state_dict = lambda: {"unsaveable": (n for n in range(3))}
    with pytest.raises(TypeError):
        checkpoint.save()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_without_a_checkpoint_nothing_changes(tmp_path):
    network = nn.Linear(1, 1)
    weight = network.weight.item()
    training.Checkpoint(str(tmp_path / "absent.pt"), {"network": network}, 1).resume(Engine(lambda engine, item: None))
    assert network.weight.item() == weight


# The stages of configs/train.yaml


@pytest.fixture(scope="module")
def dataset_dir(tmp_path_factory, phantom):
    """A datalist of two volumes to train on and one to validate with, 1 mm."""
    import nibabel as nib

    folder = tmp_path_factory.mktemp("data")
    for k in range(3):
        volume = (phantom, phantom[::-1], phantom[:24, :24, :4])[k]
        nib.save(nib.Nifti1Image(np.ascontiguousarray(volume), np.eye(4)), folder / f"{k}.nii.gz")
    sections = {"training": [{"image": "0.nii.gz"}, {"image": "1.nii.gz"}], "validation": [{"image": "2.nii.gz"}]}
    (folder / "dataset.json").write_text(json.dumps(sections))
    return folder / "dataset.json"


def bundle(output_dir, dataset_dir, run_id, **overrides):
    """`configs/train.yaml` with tiny settings, ready to run."""
    nano = output_dir.parent / f"{output_dir.name}.yaml"
    nano.write_text(yaml.safe_dump(NANO))
    workflow = ConfigWorkflow(
        config_file=[str(ROOT / "configs" / "train.yaml"), str(nano)],
        meta_file=str(ROOT / "configs" / "metadata.json"),
        logging_file=False,
        run_id=run_id,
        bundle_root=str(ROOT),
        dataset_dir=str(dataset_dir),
        output_dir=str(output_dir),
        **overrides,
    )
    path, hook = list(sys.path), sys.excepthook
    workflow.initialize()
    sys.path[:], sys.excepthook = path, hook  # initialize changes the interpreter
    return workflow


def content(workflow, name):
    return workflow.parser.get_parsed_content(name)


def snapshot(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def load(path):
    return torch.load(path, weights_only=True)


def same(a, b, prefix=""):
    return all(torch.equal(a[name], b[name]) for name in a if name.startswith(prefix))


class Trained:
    """Both stages, run once for several tests."""

    def __init__(self, output_dir, dataset_dir):
        self.output_dir = output_dir
        options = {"stage1_epochs": EPOCHS, "stage2_epochs": EPOCHS, "checkpoint_interval": 20, "val_interval": EPOCHS}
        self.bundle = bundle(output_dir, dataset_dir, "training", **options)
        self.network = content(self.bundle, "network")
        self.initial = snapshot(self.network)
        self.apn_calls, self.velocity_calls = planes_seen(self.network.apn), planes_seen(self.network.velocity)
        self.bundle.run()
        self.stage1, self.model = load(output_dir / "stage1.pt"), load(output_dir / "model.pt")

    def losses(self, stage, *states):
        """Mean loss of a stage over the same batches, for each state of the network."""
        torch.manual_seed(1)
        batches = list(content(self.bundle, f"{stage}#dataloader")) * 4
        prepare = content(self.bundle, f"{stage}#trainer").prepare_batch
        results = []
        for state in states:
            self.network.load_state_dict(state)
            part = self.network.apn if stage == "train" else self.network.velocity
            torch.manual_seed(2)
            with torch.no_grad():
                values = []
                for data in batches:
                    image, target, arguments, _ = prepare(data, "cpu")
                    values.append(content(self.bundle, f"{stage}#loss")(part(image, *arguments), target).item())
            results.append(np.mean(values))
        return results


@pytest.fixture(scope="module")
def trained(tmp_path_factory, dataset_dir):
    return Trained(tmp_path_factory.mktemp("trained") / "eval", dataset_dir)


def test_stage_one_lowers_the_loss(trained):
    before, after = trained.losses("train", trained.initial, trained.stage1)
    assert after < 0.95 * before  # part of it is noise, which nothing predicts


def test_stage_two_lowers_the_loss(trained):
    before, after = trained.losses("refine", trained.stage1, trained.model)
    assert after < 0.98 * before


def test_stage_one_trains_the_apn_alone(trained):
    assert same(trained.stage1, trained.initial, "velocity")
    changed = [name for name in trained.initial if not torch.equal(trained.initial[name], trained.stage1[name])]
    assert {name for name in trained.initial if name.startswith("apn")} == set(changed)


def test_the_apn_leaves_stage_two_bit_identical(trained):
    assert same(trained.stage1, trained.model, "apn")
    checkpoint = load(trained.output_dir / "stage2_checkpoint.pt")
    assert same(trained.stage1, checkpoint["network"], "apn")
    assert not same(trained.stage1, trained.model, "velocity.unet")


def test_the_frozen_apn_gets_no_gradient_and_stays_in_evaluation_mode(trained):
    apn = trained.network.apn
    assert not any(module.training for module in apn.modules())
    assert not any(parameter.requires_grad for parameter in apn.parameters())
    optimizer = content(trained.bundle, "refine#optimizer")
    own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert own == {id(p) for p in trained.network.velocity.parameters()}


def test_a_step_evaluates_each_network_once(trained):
    """Stage 1 on 4 planes a step; stage 2 on 4 samples and their pairs. Validation has its own network."""
    steps = EPOCHS * (NANO["patches_per_epoch"] // NANO["stage1_batch_size"])
    assert trained.apn_calls[:steps] == [4] * steps
    refined = trained.velocity_calls[:steps]
    assert trained.apn_calls[steps : 2 * steps] == refined
    assert all(4 <= planes <= 8 for planes in refined)
    assert 4 < np.mean(refined) < 8


def test_validation_follows_the_averaged_network_and_is_recorded(trained):
    for evaluator in ("evaluator", "refined_evaluator"):
        metrics = content(trained.bundle, f"validate#{evaluator}").state.metrics
        assert math.isfinite(metrics["psnr"])
        assert 0 < metrics["psnr"] < 80
    for stage in ("stage1", "stage2"):
        assert list((trained.output_dir / stage).glob("events.out.tfevents.*"))


def test_the_exported_network_is_the_averaged_one(trained):
    average = content(trained.bundle, "refine#average").module.state_dict()
    assert trained.model.keys() == average.keys() == trained.initial.keys()
    assert same(trained.model, average)


def test_a_finished_training_has_nothing_left_to_do(trained, dataset_dir):
    again = bundle(trained.output_dir, dataset_dir, "training", stage1_epochs=EPOCHS, stage2_epochs=EPOCHS)
    network = content(again, "network")
    calls = planes_seen(network.velocity)
    again.run()
    assert calls == []
    assert same(load(trained.output_dir / "stage1.pt"), trained.stage1)
    assert same(load(trained.output_dir / "model.pt"), trained.model)


class Stop(Exception):
    """Ends a training from outside, between two iterations."""


def run_stage(output_dir, dataset_dir, run_id, stop_after=None):
    """Runs a stage; returns its state at the end and the learning rate of each of its iterations."""
    workflow = bundle(output_dir, dataset_dir, run_id)
    section = {"stage1": "train", "stage2": "refine"}[run_id]
    trainer = content(workflow, f"{section}#trainer")
    optimizer = content(workflow, f"{section}#optimizer")
    trace = {}

    def record(engine):
        if stop_after is not None and engine.state.epoch > stop_after:
            raise Stop
        trace[engine.state.iteration] = optimizer.param_groups[0]["lr"]

    trainer.add_event_handler(Events.ITERATION_STARTED, record)
    if stop_after is None:
        workflow.run()
    else:
        with pytest.raises((Stop, RuntimeError)):
            workflow.run()
    average = content(workflow, f"{section}#average")
    step = next(iter(optimizer.state.values()))["step"].item() if optimizer.state else 0
    end = {
        "epoch": trainer.state.epoch,
        "iteration": trainer.state.iteration,
        "rate": optimizer.param_groups[0]["lr"],
        "updates of the average": average.n_averaged.item(),
        "steps of the optimiser": step,
    }
    return end, trace


@pytest.mark.parametrize("run_id", ["stage1", "stage2"])
def test_a_stopped_stage_goes_on_where_it_was(tmp_path, dataset_dir, run_id):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    if run_id == "stage2":
        torch.manual_seed(0)
        network = Drift(AnatomicalProjectionNetwork((8, 16), True), VelocityNetwork((8, 16)))
        for folder in (straight, stopped):
            folder.mkdir()
            torch.save(network.state_dict(), folder / "stage1.pt")
    expected, rates_expected = run_stage(straight, dataset_dir, run_id)
    assert expected["epoch"] == 4
    assert expected["iteration"] == 8
    _, first = run_stage(stopped, dataset_dir, run_id, stop_after=2)
    end, second = run_stage(stopped, dataset_dir, run_id)
    assert end == expected
    assert set(first) == {1, 2, 3, 4}
    assert set(second) == {5, 6, 7, 8}
    assert {**first, **second} == pytest.approx(rates_expected)


@pytest.mark.parametrize("run_id", ["stage1", "stage2"])
def test_a_stopped_stage_exports_nothing(tmp_path, dataset_dir, run_id):
    """The export says that a stage is finished: stage 2 and inference take it at its word."""
    folder = tmp_path / "stopped"
    folder.mkdir()
    torch.manual_seed(0)
    network = Drift(AnatomicalProjectionNetwork((8, 16), True), VelocityNetwork((8, 16)))
    if run_id == "stage2":
        torch.save(network.state_dict(), folder / "stage1.pt")
    run_stage(folder, dataset_dir, run_id, stop_after=1)
    assert not (folder / {"stage1": "stage1.pt", "stage2": "model.pt"}[run_id]).exists()


def run_gently(output_dir, dataset_dir, network, **options):
    """One epoch of stage 1 from this network's weights, at a rate that moves nothing; returns what it exports."""
    start = output_dir.parent / "start.pt"
    torch.save(network.state_dict(), start)
    options = {"stage1_epochs": 1, "stage1_learning_rate": 1e-12, "ckpt_path": str(start), **options}
    bundle(output_dir, dataset_dir, "stage1", **options).run()
    return load(output_dir / "stage1.pt")


def nano_drift(seed):
    torch.manual_seed(seed)
    return Drift(AnatomicalProjectionNetwork((8, 16), True), VelocityNetwork((8, 16)))


def test_stage_one_starts_from_given_weights_and_resumes_from_its_own(tmp_path, dataset_dir):
    first, second = nano_drift(1).state_dict(), nano_drift(2)
    end = run_gently(tmp_path / "eval", dataset_dir, nano_drift(1))
    assert end.keys() == first.keys()
    for name in end:
        torch.testing.assert_close(end[name], first[name], atol=1e-6, rtol=0)
    again = run_gently(tmp_path / "eval", dataset_dir, second, stage1_epochs=2)
    for name in again:
        torch.testing.assert_close(again[name], first[name], atol=1e-6, rtol=0)


@pytest.fixture
def label_dir(tmp_path):
    """Three label maps, 1 mm: boxes inside each other."""
    import nibabel as nib

    labels = np.zeros((40, 40, 40), np.int16)
    for margin, label in ((4, 502), (8, 3), (14, 2)):
        labels[margin:-margin, margin:-margin, margin:-margin] = label
    (tmp_path / "maps").mkdir()
    for k in range(3):
        nib.save(nib.Nifti1Image(labels, np.eye(4)), tmp_path / "maps" / f"{k}.nii.gz")
    return str(tmp_path / "maps")


def test_label_maps_train_beside_the_scans_with_their_share(tmp_path, dataset_dir, label_dir):
    workflow = bundle(tmp_path / "eval", dataset_dir, "stage1", label_dir=label_dir, stage1_epochs=1)
    dataset, weights = content(workflow, "train#mixture"), content(workflow, "train#weights")
    np.testing.assert_allclose(weights, [2**-0.5] * 2 + [3**-0.5] * 3)
    assert len(dataset) == len(weights) == 5
    assert len(content(workflow, "train#dataloader")) == NANO["patches_per_epoch"] // NANO["stage1_batch_size"]
    for k in range(5):
        label = dataset[k]["label"]
        assert label.shape == (1, 32, 32)
        assert -1.5 < label.min() and label.max() < 2, "label 502 has become an intensity"
    workflow.run()
    assert all(value.isfinite().all() for value in load(tmp_path / "eval" / "stage1.pt").values())


def test_checkpoints_are_complete(trained):
    for stage in ("stage1", "stage2"):
        found = load(trained.output_dir / f"{stage}_checkpoint.pt")
        assert set(found) == {"network", "average", "optimizer", "lr_scheduler", "trainer"}
    loose = [p.name for p in trained.output_dir.iterdir() if p.is_file() and p.suffix != ".pt"]
    assert loose == []


@pytest.mark.slow
def test_a_killed_run_resumes_and_finishes(tmp_path, dataset_dir):
    output_dir, nano = tmp_path / "eval", tmp_path / "nano.yaml"
    nano.write_text(yaml.safe_dump({**NANO, "stage1_epochs": 20, "stage2_epochs": 2, "patches_per_epoch": 40}))
    command = [
        *(sys.executable, "-m", "monai.bundle", "run", "training"),
        *("--config_file", f"['configs/train.yaml','{nano}']"),
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
    assert 0 < load(output_dir / "stage1_checkpoint.pt")["trainer"]["iteration"] < 200

    second = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert second.returncode == 0, second.stderr[-2000:]
    assert "resuming from" in second.stdout + second.stderr
    end = load(output_dir / "stage1_checkpoint.pt")
    assert end["trainer"]["iteration"] == 200
    assert end["average"]["n_averaged"].item() == 200
    assert (output_dir / "model.pt").exists()
