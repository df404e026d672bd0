"""The training of a stage, either one: what its stock trainer gets, its seeds, its checkpoint, its exported weights."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import ignite.distributed as idist
import numpy as np
import torch
from ignite.engine import Engine, Events
from monai.data import DataLoader
from monai.data.utils import set_rnd
from monai.engines import SupervisedEvaluator, SupervisedTrainer
from monai.handlers import LrScheduleHandler, TensorBoardStatsHandler, ValidationHandler
from monai.utils import set_determinism
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from ..errors import InputError
from ..files import sha256
from ..method.weights import Card, load_weights, save_weights
from .checkpoint import Checkpoint
from .handlers import Average, ClipGradient, CpuTime, iteration_loss
from .recipe import parser_at_work, recipe

logger = logging.getLogger("drift")


def seed_epoch(engine: Engine, *entropy: int) -> None:
    """Seeds every generator for the epoch that begins, so that a resumed training draws what it would have drawn.

    Args:
        engine: trainer; workers of its `DataLoader` take their seeds from this process.
        entropy: what the seed depends on, beside the epoch and the process.
    """
    seed = int(np.random.SeedSequence([*entropy, idist.get_rank(), engine.state.epoch]).generate_state(1)[0])
    set_determinism(seed=seed)
    set_rnd(engine.data_loader.dataset, seed=seed)  # type: ignore[attr-defined]  # a trainer of MONAI


class Training:
    """What all stages of a training share. A call with what one stage has of its own trains that stage.

    Args:
        network: a `Drift`, or a baseline.
        averaged: its copy, which becomes the average that validates and ships.
        data: hash of the data, of `recipe.data_digest`.
        seed: of all that is drawn.
        output_dir: folder to write to.
        schedule: of the learning rate, as a share of its peak: `(step, steps in all)` -> share.
        max_norm: of the gradient, see `ClipGradient`.
        average_decay: see `Average`.
        val_interval: epochs between two validations.
        checkpoint_interval: epochs between two checkpoints.
    """

    def __init__(
        self,
        network: nn.Module,
        averaged: nn.Module,
        data: str,
        seed: int,
        output_dir: str,
        schedule: Callable[[int, int], float],
        max_norm: float,
        average_decay: float,
        val_interval: int,
        checkpoint_interval: int,
    ):
        self.network = network
        self.averaged = averaged
        self.data = data
        self.seed = seed
        self.folder = Path(output_dir)
        self.schedule = schedule
        self.max_norm = max_norm
        self.average_decay = average_decay
        self.val_interval = val_interval
        self.checkpoint_interval = checkpoint_interval

    def __call__(
        self,
        name: str,
        part: str,
        start: str | None,
        export: str,
        trainer: SupervisedTrainer,
        evaluator: SupervisedEvaluator,
        card: Card,
    ) -> None:
        """Trains a stage to its end, from its last checkpoint if there is one, and exports the averaged network.

        Writes the weights with their card, NAME_checkpoint.pt and NAME, a folder for TensorBoard.

        Args:
            name: of the stage; the config has one part of this name, and the option NAME_epochs.
            part: of the network, that the trainer trains; empty for the whole.
            start: weights of the whole network to start from; None for those that it has.
            export: file name for the averaged network's weights.
            trainer: stock; it gets seeds, schedule, clipping, average, validation, curves and checkpoints.
            evaluator: stock, of the averaged network.
            card: of the exported weights.

        Raises:
            InputError: if the start weights cannot be loaded, an epoch is less than a batch, the checkpoint is broken
                or of another recipe, data or start weights, or the training diverges; then nothing is exported.
        """
        if start is not None:
            load_weights(self.network, start)
            if hasattr(self.averaged, "error") and self.averaged.error is None:
                self.network.error = None  # type: ignore[assignment]  # one in the start weights is that of their stages
        self.averaged.load_state_dict(self.network.state_dict())
        trained, epochs = self.network.get_submodule(part), trainer.state.max_epochs
        average = Average(trained, self.average_decay)
        average.ema_model = self.averaged.get_submodule(part).eval().requires_grad_(False)
        loader: DataLoader = trainer.data_loader  # type: ignore[assignment]
        if not len(loader):
            raise InputError(
                f"patches_per_epoch is below {loader.batch_size}, one batch: expected that or more. Set "
                "--patches_per_epoch."
            )

        def share(epochs: int, step: int) -> float:
            return self.schedule(step, epochs * len(loader))

        schedule = LambdaLR(trainer.optimizer, partial(share, epochs))
        state = {  # of the trained part alone: the start weights say on what it builds
            "network": trained,
            "average": average.ema_model,
            "optimizer": trainer.optimizer,
            "lr_scheduler": schedule,
            "trainer": trainer,
        }
        checkpoint = Checkpoint(self.folder / f"{name}_checkpoint.pt", self._recipe(name, start), state)
        checkpoint.resume(f"{name}_epochs", share)
        trainer.state.max_epochs = epochs  # the checkpoint may be of a shorter training
        if trainer.state.epoch == epochs:
            logger.info(f"{name} is complete after {epochs} epochs: {self.folder / export}")
        else:
            logger.info(f"{name}: {trainer.state.epoch} of {epochs} epochs are done")
            clip = ClipGradient(self.max_norm)
            trainer.add_event_handler(Events.EPOCH_STARTED, seed_epoch, self.seed, *name.encode())
            LrScheduleHandler(schedule, print_lr=False, epoch_level=False).attach(trainer)  # type: ignore[arg-type]
            clip.attach(trainer)
            average.attach(trainer)
            CpuTime().attach(trainer)
            ValidationHandler(self.val_interval, evaluator).attach(trainer)
            if idist.get_rank() == 0:
                curves = str(self.folder / name)
                TensorBoardStatsHandler(
                    log_dir=curves,
                    tag_name="loss",
                    output_transform=iteration_loss,
                    state_attributes=["cpu_minutes"],
                ).attach(trainer)
                TensorBoardStatsHandler(log_dir=curves, iteration_log=False).attach(evaluator)
            due = Events.EPOCH_COMPLETED(lambda _, epoch: epoch % self.checkpoint_interval == 0 or epoch == epochs)
            trainer.add_event_handler(due, checkpoint.save)
            trainer.run()
            if clip.divergence:
                raise InputError(
                    f"{name} diverges: {clip.divergence}. No weights are exported. Set a lower learning rate, and "
                    "another --output_dir."
                )
        if idist.get_rank() == 0 and trainer.state.epoch == epochs:
            save_weights(self.averaged, self.folder / export, card, torch.float32)
        idist.barrier()  # the next stage reads what the first process has written

    def _recipe(self, name: str, start: str | None) -> dict:
        """Of a stage: its config, and what the files that it names hold."""
        parser = parser_at_work()
        (place,) = (k for k, item in parser.get().items() if isinstance(item, dict) and item.get("name") == name)
        return recipe(parser, place) | {
            "data": self.data,
            "start weights": "random" if start is None else sha256([start])[:12],
            "processes": idist.get_world_size(),
        }
