"""Reports of a training: lines in the log, curves for TensorBoard and whatever else tracks it."""

import logging
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import ignite.distributed as idist
from ignite.engine import Engine, Events
from monai.handlers import StatsHandler, TensorBoardStatsHandler

from ..errors import logger
from .recipe import options_of
from .stage import Stage

LOSS: dict[str, Any] = {"tag_name": "loss", "output_transform": itemgetter("loss")}  # a step's number in handlers
EVERY = 10  # steps from one line to the next
quiet = logging.getLogger("drift.engine")  # ignite's own lines say the same once more, and an error twice
quiet.setLevel(logging.CRITICAL)


class Log(StatsHandler):
    """Lines on every tenth step and on each epoch, in the log that the bundle's other lines are in.

    Args:
        steps: whether steps have lines, too.
    """

    def __init__(self, steps: bool = True):
        filtered = (lambda engine, step: step % EVERY == 1) if steps else False
        super().__init__(iteration_log=filtered, key_var_format="{}: {:.4g} ", **LOSS)  # stage 2's loss is small

    def attach(self, engine: Engine) -> None:
        """Adds the lines to an engine. The first of several processes has them."""
        engine.logger = quiet
        self.name = logger.name  # else MONAI would take the engine's
        self.logger = logger
        if idist.get_rank() == 0:
            super().attach(engine)

    def exception_raised(self, _engine: Engine, e: Exception) -> None:
        """Raises the error as it is; MONAI's handler would log it with a traceback, which an `InputError` has not."""
        raise e


class Curves:
    """Curves of loss, learning rate and metrics, in the part's folder. They begin with the training.

    Args:
        stage: the part.
        validates: whether the engine validates: its steps have no loss.
        tracking: more handlers of the curves, each made with a `run_name`, such as `MLFlowHandler`.
    """

    def __init__(self, stage: Stage, validates: bool = False, tracking: Sequence[Callable[..., Any]] = ()):
        self.stage = stage
        self.validates = validates
        self.tracking = tracking
        self.handlers: list[Any] = []

    def attach(self, engine: Engine) -> None:
        """Adds the curves to an engine. The first of several processes has them."""
        if idist.get_rank() == 0:
            engine.add_event_handler(Events.STARTED, self.begin)
            engine.add_event_handler(Events.EXCEPTION_RAISED, self.failed)

    def begin(self, engine: Engine) -> None:
        """Opens the files of a part that is not complete, once."""
        if self.handlers or (not self.validates and self.stage.complete(engine)):
            return
        place = str(self.stage.folder / self.stage.name)
        steps: dict[str, Any] = {"iteration_log": False} if self.validates else LOSS
        options = {"experiment_param": options_of(self.stage.recipe()), "close_on_complete": True}
        of_runs: dict[str, Any] = {} if self.validates else options
        self.handlers = [TensorBoardStatsHandler(log_dir=place, **steps)]
        self.handlers += [track(run_name=place, **of_runs, **steps) for track in self.tracking]
        for handler in self.handlers:
            handler.attach(engine)  # ignite calls those that start with the engine, too

    def failed(self, engine: Engine, error: BaseException) -> None:
        """Marks the runs of a part that failed, which MLflow shows as such."""
        for handler in self.handlers:
            if hasattr(handler, "run_finish_status"):
                handler.run_finish_status = "FAILED"
                handler.close()
        raise error
