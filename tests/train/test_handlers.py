"""Laws of what a stock trainer lacks: the learning rate's course, clipping, the averaged network."""

import re
import time

import numpy as np
import pytest
import torch
from ignite.engine import Engine, Events
from monai.data import DataLoader
from monai.engines import SupervisedTrainer
from monai.engines.utils import IterationEvents
from torch import nn

from scripts.errors import InputError
from scripts.method.networks import AnatomicalProjectionNetwork
from scripts.train.batches import ProjectionBatch
from scripts.train.handlers import (
    Average,
    ClipGradient,
    TimeBudget,
    check_counts,
    check_minutes,
    time_budget,
    warmup_cosine,
    warmup_stable_decay,
)
from scripts.train.logs import Log
from tests import paper_values as paper
from tests.config_files import raw
from tests.nano import same
from tests.train.test_batches import batch

# Learning rate


def rates(schedule, total):
    """The rate at each step of a training, and the one after the last, over the peak."""
    return np.array([schedule(step, total) for step in range(total + 1)])


@pytest.mark.parametrize("total", [200, 3000, 20])
def test_the_rate_warms_up_over_five_percent_and_falls_to_a_tenth_as_a_cosine(total):
    """The first step has its share of the rate already: a step at rate 0 would be wasted."""
    rate = rates(warmup_cosine, total)
    warm = round(paper.WARMUP_SHARE * total)
    np.testing.assert_allclose(rate[:warm], (1 + np.arange(warm)) / warm, atol=1e-9)
    phase = np.pi * np.arange(total - warm + 1) / (total - warm)
    floor = paper.LEARNING_RATE_FLOOR
    np.testing.assert_allclose(rate[warm:], floor + (1 - floor) * (1 + np.cos(phase)) / 2, atol=1e-6)


@pytest.mark.parametrize("total", [2, 3, 19])
def test_a_short_training_has_a_schedule_too(total):
    rate = rates(warmup_cosine, total)
    assert rate[0] == pytest.approx(1)
    assert (np.diff(rate) <= 1e-9).all()
    assert rate[-1] == pytest.approx(paper.LEARNING_RATE_FLOOR)


def test_a_rate_that_stays_falls_to_nothing_over_the_last_fifth():
    rate = rates(warmup_stable_decay, 10_000)
    assert (rate[500:8000] == 1).all()
    assert rate[249] == 0.5
    assert rate[9000] == pytest.approx(0.5)
    assert rate[-1] == 0
    assert (np.diff(rate[:500]) > 0).all() and (np.diff(rate[8000:]) < 0).all()
    assert (rates(warmup_stable_decay, 20_000)[:8001] == rate[:8001]).all()


# A time budget

EPOCH = 100  # steps


def budgeted(monkeypatch, seconds, pace, stopped_after=None):
    """A training whose steps take `pace(step)` seconds: the time at its end, the rate of each step, and its budget.

    After an epoch it is killed, if so wished, and goes on from the state that it has saved.
    """
    clock, rates = [100.0], [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def step(engine, _):
        clock[0] += pace(engine.state.iteration)

    def run(states=None):
        engine, budget = Engine(step), TimeBudget(seconds)
        budget.attach(engine)
        engine.add_event_handler(
            Events.ITERATION_COMPLETED,
            lambda: rates.append(warmup_stable_decay(engine.state.iteration, budget.steps)),
        )
        if states:
            engine.load_state_dict(states[0])
            budget.load_state_dict(states[1])
        elif stopped_after:
            engine.add_event_handler(Events.EPOCH_COMPLETED(once=stopped_after), lambda: engine.terminate())
        engine.run(range(EPOCH), max_epochs=engine.state.epoch + 1)  # as a stage begins
        return engine, budget

    engine, budget = run()
    if stopped_after:
        assert not budget.over
        clock[0] += 1e6  # between the two runs
        engine, budget = run((engine.state_dict(), budget.state_dict()))
        clock[0] -= 1e6
    assert budget.over and len(rates) == engine.state.iteration + 1
    return clock[0] - 100, np.array(rates[:-1]), budget


PACES = {
    "steady": lambda step: 0.02,
    "slower at the end": lambda step: 0.02 if step < 2500 else 0.06,
    "slower at first": lambda step: 0.05 if step < 500 else 0.02,
    "a validation now and then": lambda step: 0.015 + (step % 200 == 0),
}


@pytest.mark.parametrize("stopped_after", [None, 7])
@pytest.mark.parametrize("pace", PACES)
def test_a_training_ends_within_its_minutes_and_its_rate_has_fallen_by_then(monkeypatch, pace, stopped_after):
    """The rate stays at its peak for four fifths of the time, whatever the pace."""
    spent, rates, budget = budgeted(monkeypatch, 60.0, PACES[pace], stopped_after)
    assert 60 - 1.1 <= spent <= 60 + 1e-6
    assert budget.used == pytest.approx(spent)
    assert rates[-1] < 0.02 / 0.2
    ends = 100 + np.cumsum([PACES[pace](step) for step in range(1, len(rates) + 1)])
    peak, falling = ends - 100 < 0.79 * 60, ends - 100 > 0.82 * 60
    assert (rates[500:][peak[500:]] == 1).all() and (rates[falling] < 1).all()
    assert (np.diff(rates[falling]) <= 0).all()


@pytest.mark.parametrize(("first", "goes_on"), [(0.6, True), (1.2, False)])
def test_a_first_step_that_reads_the_data_ends_a_training_only_where_it_takes_all_the_time(monkeypatch, first, goes_on):
    _, rates, _ = budgeted(monkeypatch, 1.0, lambda step: first if step == 1 else 2**-6)
    assert (len(rates) > 1) == goes_on


def test_a_steady_training_has_the_course_of_one_of_so_many_steps(monkeypatch):
    _, rates, _ = budgeted(monkeypatch, 60.0, lambda step: 2**-5)
    assert (rates[1:] == [warmup_stable_decay(step, 60 * 2**5) for step in range(1, 60 * 2**5)]).all()


@pytest.mark.parametrize("count", [0, -1, 2.0, True, "ten"])
@pytest.mark.parametrize("name", ["stage1_epochs", "val_interval", "checkpoint_interval"])
def test_epochs_and_intervals_that_count_nothing_are_refused_before_data_are_read(name, count, refusal):
    initialize = raw("train.yaml")["initialize"]
    (check,) = (one for one in initialize if isinstance(one, dict) and one["_target_"].endswith("check_counts"))
    counts = {key: 1 for key in check if key != "_target_"}
    check_counts(**counts)
    said = refusal(check_counts, **{**counts, name: count})
    assert said == f"{name} is {count!r}: expected a whole number, 1 or more. Set --{name}."


@pytest.mark.parametrize("minutes", [0, -5, "sixty", float("nan"), float("inf"), True])
def test_minutes_that_are_no_time_are_refused(minutes):
    with pytest.raises(InputError, match=r"minutes is .*: expected a number above 0\. Set --minutes, or leave it out"):
        check_minutes(minutes)
    assert (check_minutes(None), check_minutes(60), check_minutes(0.5)) == (None, 60.0, 0.5)


def test_a_part_without_a_share_of_the_minutes_refuses_them():
    """That of the error map is one."""
    assert raw("error_map.yaml")["time_share"] is None
    with pytest.raises(InputError, match=r"^stage1 has no share of the minutes.* and set --stage1_epochs\.$"):
        time_budget(9, None, "stage1")
    assert time_budget(None, None, "stage1") is None and time_budget(9, 0.5, "stage1").seconds == 270


# Lines


def test_every_tenth_loss_is_logged_in_digits_that_count(log):
    """Stage 2's are small: with decimals alone they would read 0.0000."""
    losses = [3.21987e-5 / (1 + n) for n in range(21)]
    engine = Engine(lambda engine, loss: {"loss": torch.tensor(loss)})
    Log().attach(engine)
    engine.run(losses)
    logged = [float(one) for one in re.findall(r"-- loss: (\S+)", log.text)]
    assert len(logged) == 3 and logged == pytest.approx(losses[::10], rel=1e-3, abs=0)


# Clipping


class Far(nn.Module):
    """Mean squared distance times a factor: its gradient is as large as one likes."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, prediction, target):
        return self.factor * nn.functional.mse_loss(prediction, target)


class Steep(nn.Module):
    """A finite loss of which no slope is finite."""

    def forward(self, prediction, target):
        return (prediction - prediction.detach()).abs().sqrt().mean()


def gradient_norms(loss, max_norm):
    """Gradient norms before and after clipping, for a few steps of a stock trainer, its network, and the error."""
    torch.manual_seed(0)
    network = AnatomicalProjectionNetwork((4, 8))
    items = [{k: v[0] for k, v in batch(8, [3.0], seed).items()} for seed in range(4)]
    before, after = [], []

    def observe(norms):
        def record(engine):
            norms.append(sum(p.grad.norm() ** 2 for p in network.parameters() if p.grad is not None) ** 0.5)

        return record

    trainer = SupervisedTrainer(
        device=torch.device("cpu"),
        max_epochs=1,
        train_data_loader=DataLoader(items, batch_size=1),
        network=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=1e-6),
        loss_function=loss,
        prepare_batch=ProjectionBatch(),
        decollate=False,
    )
    trainer.add_event_handler(IterationEvents.BACKWARD_COMPLETED, observe(before))
    ClipGradient(max_norm).attach(trainer)
    trainer.add_event_handler(IterationEvents.BACKWARD_COMPLETED, observe(after))
    caught = None
    try:
        trainer.run()
    except InputError as error:
        caught = str(error)
    return np.array(before), np.array(after), network, caught


def test_large_gradients_are_clipped_to_the_norm_and_small_ones_stay():
    before, after, *_ = gradient_norms(Far(1e4), paper.GRADIENT_CLIP)
    assert len(before) == 4 and (before > 10 * paper.GRADIENT_CLIP).all()
    np.testing.assert_allclose(after, paper.GRADIENT_CLIP, rtol=1e-4)
    before, after, *_ = gradient_norms(Far(1e-4), paper.GRADIENT_CLIP)
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize(("loss", "told"), [(Far(np.nan), "nan"), (Far(np.inf), "inf"), (Steep(), "0")])
def test_a_step_that_would_break_the_weights_ends_the_training_and_changes_nothing(loss, told):
    before, _, network, caught = gradient_norms(loss, 1.0)
    assert len(before) == 1
    assert caught.startswith(f"the training diverges: step 1, in epoch 1, has the loss {told} and a gradient of norm")
    torch.manual_seed(0)
    assert same(network.state_dict(), AnatomicalProjectionNetwork((4, 8)).state_dict())


# The averaged network


def test_the_average_starts_as_the_network_apart_from_it_and_for_evaluation(drift):
    average = Average(drift.train(), 0.9).ema_model
    torch.testing.assert_close(average.state_dict(), drift.state_dict(), rtol=0, atol=0)
    with torch.no_grad():
        for parameter in drift.parameters():
            parameter.add_(1)
    assert not any(torch.equal(drift.state_dict()[name], value) for name, value in average.state_dict().items())
    for network, trains in ((average, False), (drift, True)):
        assert all(module.training == trains for module in network.modules())
        assert all(parameter.requires_grad == trains for parameter in network.parameters())


def test_the_average_is_a_plain_loops():
    decay, network, weights = 0.7, nn.Linear(3, 2), []
    average = Average(network, decay)
    expected = network.weight.detach().clone()
    generator = torch.Generator().manual_seed(0)

    def step(engine, item):
        with torch.no_grad():
            network.weight.copy_(torch.randn(2, 3, generator=generator))
        weights.append(network.weight.detach().clone())

    engine = Engine(step)
    average.attach(engine)
    engine.run(range(30))
    for n, new in enumerate(weights):
        keep = min(decay, (1 + n) / (10 + n))
        expected = keep * expected + (1 - keep) * new
    torch.testing.assert_close(average.ema_model.weight, expected)


def test_a_resumed_average_forgets_no_faster_than_before():
    """How fast it forgets depends on the trainer's count, not on its own."""
    network = nn.Linear(1, 1)
    average = Average(network, 0.998)
    engine = Engine(lambda engine, item: None)
    average.attach(engine)
    engine.load_state_dict({"iteration": 5000, "max_epochs": 1001, "epoch_length": 5})
    engine.run(range(5))
    assert engine.state.ema_momentum == pytest.approx(0.002)
