"""Handlers that a stock trainer lacks: the rate's course, a time budget, clipping, the averaged network."""

import math
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import ignite.distributed as idist
from ignite.engine import Engine, Events
from ignite.handlers import EMAHandler
from monai.engines import SupervisedTrainer
from monai.engines.utils import IterationEvents
from torch import nn

from ..errors import InputError, is_number, is_whole

Handler = TypeVar("Handler")
WARMUP = 500  # steps of `warmup_stable_decay`
DECAY = 0.2
FEWEST = 10  # steps of a time budget: in fewer nothing is learnt, and the rate has no course


def warmup_cosine(step: int, total: int) -> float:
    """The learning rate at a step over its peak: a line up over 5 % of all steps, then a cosine to a tenth (Sec. S4.4).

    Steps count from 0 on; the first one has its share of the rate already.
    """
    warmup = max(1, total // 20)
    if step < warmup:
        return (step + 1) / warmup
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def warmup_stable_decay(step: int, total: int) -> float:
    """A line up over `WARMUP` steps, then the peak, and over the last `DECAY` of all steps a line down to 0.

    Until the rate falls, a training is the beginning of any longer one. Hägele et al., NeurIPS 2024.
    """
    return min((step + 1) / WARMUP, 1.0, max(0.0, (total - step) / (DECAY * total)))


def shared(handler: Handler) -> Handler:
    """A handler that stands elsewhere in the config: a component, which MONAI's checks want in a list of handlers."""
    return handler


def check_counts(**counts: object) -> None:
    """Refuses options that are no whole numbers from 1 on, by their names."""
    for name, count in counts.items():
        if not is_whole(count, 1):
            raise InputError(f"{name} is {count!r}: expected a whole number, 1 or more. Set --{name}.")


def check_minutes(minutes: object) -> float | None:
    """The option `minutes` as a number; None where epochs are counted."""
    if minutes is None:
        return None
    if not is_number(minutes) or minutes == 0:
        raise InputError(f"minutes is {minutes!r}: expected a number above 0. Set --minutes, or leave it out.")
    return float(minutes)  # type: ignore[arg-type]  # it is one


def time_budget(minutes: object, share: float | None, name: str) -> "TimeBudget | None":
    """The time of a part of a training; None where epochs are counted.

    Args:
        minutes: for the whole training, by the wall clock, or None.
        share: of them, for this part; None for a part that counts epochs alone.
        name: of the part.
    """
    if (minutes := check_minutes(minutes)) is None:
        return None
    if not share:
        raise InputError(
            f"{name} has no share of the minutes: expected a number of epochs. Leave out --minutes, and set "
            f"--{name}_epochs."
        )
    return TimeBudget(60 * minutes * share)


class TimeBudget:
    """Ends a stage within a time, when the course of its learning rate has ended.

    The steps in all are those so far, times the time over the time so far. By them the rate falls, at whatever pace.
    Several processes go by the slowest. `ignite.handlers.TimeLimit` would end a training at its full rate, and count a
    resumed one anew.

    Args:
        seconds: for the stage, by the wall clock, over all runs.

    Attributes:
        used: of these seconds, as the checkpoint keeps them.
        steps: of the stage in all, as far as is known; None before the first one.
        over: whether the time holds no further step.
    """

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.used = 0.0
        self.steps: float | None = None
        self.over = False

    def attach(self, engine: Engine) -> None:
        engine.add_event_handler(Events.STARTED, self.begin)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.count)

    def begin(self, engine: Engine) -> None:
        self.since = time.monotonic()

    def count(self, engine: Engine) -> None:
        state, now = engine.state, time.monotonic()
        took: float = idist.all_reduce(now - self.since, "MAX")  # type: ignore[assignment]  # of a number a number
        self.since, self.used = now, self.used + took
        self.steps = state.iteration * self.seconds / self.used
        epochs = math.ceil(self.steps / state.epoch_length)  # type: ignore[operator]  # trainers of MONAI have it
        state.max_epochs = max(epochs, state.epoch + 1)  # which the log shows
        next_one = self.used / state.iteration if state.iteration > 1 else 0.0  # the first step reads the data
        if self.used + next_one > self.seconds:
            self.over = True
            engine.terminate()

    def state_dict(self) -> dict[str, float]:
        return {"used": self.used, "over": self.over}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self.used, self.over = state["used"], bool(state["over"])


class Course:
    """The course of a part's learning rate over its steps.

    Args:
        schedule: `(step, steps in all)` -> share of the peak rate.
        epochs: of the part.
        steps: of an epoch.
        budget: the part's time, which counts in place of the epochs; or None.
    """

    def __init__(
        self, schedule: Callable[[int, int], float], epochs: int, steps: int, budget: TimeBudget | None = None
    ):
        self.schedule, self.epochs, self.steps, self.budget = schedule, epochs, steps, budget

    def share(self, epochs: int, step: int) -> float:
        """The share of the peak rate at a step of a training of so many epochs."""
        return self.schedule(step, epochs * self.steps)

    def planned(self, step: int) -> float:
        """The share of the peak rate at a step of this training, as far as its length is known."""
        if self.budget and self.budget.steps:
            return self.schedule(step, round(self.budget.steps))
        return self.share(self.epochs, step)


class ClipGradient:
    """Clips the norm of the gradient, to 1 in the paper, before each step, and ends a training that diverges.

    A loss or a gradient that is not finite changes no weights. `ignite.handlers.TerminateOnNan` looks at the loss
    alone, once the step is taken.

    Args:
        max_norm: of the gradient.
        name: of the training, for the message.

    Raises:
        InputError: in a training that diverges.
    """

    def __init__(self, max_norm: float, name: str = "the training"):
        self.max_norm = max_norm
        self.name = name

    def attach(self, engine: Engine) -> None:
        engine.add_event_handler(IterationEvents.BACKWARD_COMPLETED, self)

    def __call__(self, engine: SupervisedTrainer) -> None:
        norm = nn.utils.clip_grad_norm_(engine.network.parameters(), self.max_norm).item()
        loss = engine.state.output["loss"].item()  # type: ignore[index]  # ignite declares a number
        if not (math.isfinite(loss) and math.isfinite(norm)):
            state = engine.state
            raise InputError(
                f"{self.name} diverges: step {state.iteration}, in epoch {state.epoch}, has the loss {loss:g} and a "
                f"gradient of norm {norm:g}. No weights are exported. Set a lower learning rate, and another "
                "--output_dir."
            )


class Average(EMAHandler):
    """Exponential moving average of a network's weights, in `ema_model`. It validates and ships.

    The first updates forget faster, so that the initial weights do not linger: update `n` keeps `(1 + n) / (10 + n)`,
    until that reaches `decay`. The trainer counts `n`, so that a resumed training goes on as it was.
    """

    def __init__(self, network: nn.Module, decay: float):
        super().__init__(network, momentum=1 - decay)

    def attach(self, engine: Engine) -> None:  # type: ignore[override]  # one name and one event serve
        engine.add_event_handler(Events.ITERATION_STARTED, self.set_momentum)
        super().attach(engine, warn_if_exists=False)

    def set_momentum(self, engine: Engine) -> None:
        """Sets the share of the new weights for the iteration that begins."""
        momentum = max(self.momentum, 9 / (9 + engine.state.iteration))
        engine.state.ema_momentum = momentum  # type: ignore[attr-defined]  # whence ignite takes it
