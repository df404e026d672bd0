"""A part of a training, as a handler of its trainer: its start, checkpoints and export."""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import numpy as np
import torch
from ignite.engine import Engine, Events
from monai.bundle import ConfigParser
from monai.data.utils import set_rnd
from monai.utils import set_determinism
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..errors import InputError, flag, logger
from ..files import sha256
from ..method.weights import Card, load_weights, save_weights
from .checkpoint import Checkpoint
from .handlers import FEWEST, Average, Course
from .recipe import recipe


def try_it(path: Path | str) -> None:
    """Says how finished weights are used."""
    logger.info(f"Try it: drift-mri SCAN -o OUT --ckpt_path {path}")


@dataclass(eq=False)
class Stage:
    """A part of a training. The first handler of its trainer.

    The trainer begins with the part's start weights or its last checkpoint, trains to the part's end, and exports the
    averaged network: the weights with their card, and NAME_checkpoint.pt. A complete part is left as it is. Several
    processes train together under `configs/multi_gpu.yaml`; the first one saves.

    Args:
        name: of the part; the option NAME_epochs is its length.
        start: weights of the whole network to start from; None for those that it has.
        export: file name for the averaged network's weights.
        network: a `Drift`, or a baseline, on the device.
        averaged: copy of the network, which becomes the average that validates and ships.
        average: of the weights that the part trains: the network, or a part of it.
        config: the training's, of which the recipe is made.
        trainer: id of the part's trainer in the config.
        data: hash of the data, of `recipe.data_digest`.
        checkpoint_interval: epochs between two checkpoints, at most; see `Checkpoint.due`.
        anew: whether the trained part begins with random weights, whatever the start weights have for it.
        usable: whether the weights are finished, so that the last line says how they are used.
    """

    name: str
    start: str | None
    export: str
    card: Card
    network: nn.Module
    averaged: nn.Module
    average: Average
    optimizer: Optimizer
    lr_scheduler: LRScheduler
    course: Course
    config: ConfigParser
    trainer: str
    data: str
    seed: int
    output_dir: str
    checkpoint_interval: int
    anew: bool | str = False
    usable: bool = True

    def __post_init__(self) -> None:
        self.folder, self.anew = Path(self.output_dir), flag("anew", self.anew)
        self.first = idist.get_rank() == 0  # of all processes
        self.was_complete = False  # before this run
        self.budget = self.course.budget
        (part,) = (place for place, module in self.network.named_modules() if module is self.average.model)
        self.average.ema_model = self.averaged.get_submodule(part).eval().requires_grad_(False)

    def attach(self, engine: Engine) -> None:
        """Attaches the part's handlers to its trainer."""
        engine.add_event_handler(Events.STARTED, self.begin)
        if self.budget:
            self.budget.attach(engine)  # before the rate, which goes by it
        engine.add_event_handler(Events.EPOCH_STARTED, self.seed_epoch)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self.keep)
        engine.add_event_handler(Events.COMPLETED, self.finish)

    def complete(self, engine: Engine) -> bool:
        """Whether the part has come to its end."""
        return self.budget.over if self.budget else engine.state.epoch == self.course.epochs

    def begin(self, engine: Engine) -> None:
        """Loads the start weights, then the last checkpoint if there is one, and says how much is to be done."""
        if self.start is not None:
            fresh = copy.deepcopy(self.average.model.state_dict()) if self.anew else None
            load_weights(self.network, self.start)
            if fresh is not None:
                self.average.model.load_state_dict(fresh)
        self.averaged.load_state_dict(self.network.state_dict())
        state = {  # of the trained part alone: the start weights say on what it builds
            "network": self.average.model,
            "average": self.average.ema_model,
            "optimizer": self.optimizer,
            "lr_scheduler": self.lr_scheduler,
            "trainer": engine,
            **({"budget": self.budget} if self.budget else {}),
        }
        self.checkpoint = Checkpoint(self.folder / f"{self.name}_checkpoint.pt", self.recipe(), state)
        self.checkpoint.resume(f"{self.name}_epochs", self.course.share)
        epoch = engine.state.epoch
        # the checkpoint may be of a shorter training; the budget plans after each step
        engine.state.max_epochs = epoch + (not self.budget.over) if self.budget else self.course.epochs
        done, whole = str(epoch), f"{self.course.epochs} epochs"
        if self.budget:
            done, whole = f"{self.budget.used / 60:.3g}", f"{self.budget.seconds / 60:.3g} minutes"
        if self.complete(engine):
            self.was_complete = True
            logger.info(f"Part {self.name} was complete after {whole}, before this run: {self.folder / self.export}")
            return
        logger.info(f"Part {self.name}: {done} of {whole} are done.")
        if not epoch and (self.folder / self.name).is_dir():
            logger.warning(f"Part {self.name}: a run has begun it and left no checkpoint. It begins anew.")

    def seed_epoch(self, engine: Engine) -> None:
        """Seeds every generator for the epoch that begins, so that a resumed training draws as one without a break.

        The workers of the trainer's `DataLoader` take their seeds from this process.
        """
        entropy = [self.seed, *self.name.encode(), idist.get_rank(), engine.state.epoch]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        set_determinism(seed=seed)
        set_rnd(engine.data_loader.dataset, seed=seed)  # type: ignore[attr-defined]  # a trainer of MONAI

    def keep(self, engine: Engine) -> None:
        """Writes a checkpoint where one is due."""
        if self.checkpoint.due(engine.state.epoch, self.course.epochs, self.checkpoint_interval):
            self.checkpoint.save()

    def finish(self, engine: Engine) -> None:
        """Exports the averaged network of a part that is complete."""
        path = self.folder / self.export
        if self.budget and engine.state.iteration < FEWEST:
            raise InputError(self._too_few(engine.state.iteration, f"{self.budget.seconds / 60:.3g} minutes"))
        if self.budget:
            self.checkpoint.save()
        if self.first and self.complete(engine):
            if not (self.was_complete and path.is_file()):  # the card may hold a calibration since then
                # calibrations hold for the weights that they were made with
                card = replace(self.card, error_map=None, sharp_error_map=None, foretelling=None)
                save_weights(self.averaged, path, card, torch.float32)
                logger.info(f"Part {self.name} has made {path}.")
            if self.usable:
                try_it(path)
        idist.barrier()  # the next part reads files of the first process

    def _too_few(self, steps: int, whole: str) -> str:
        few = f"{self.name} has done {steps} steps in its {whole}: expected {FEWEST} or more. No weights are exported."
        if self.start is None or Path(self.start).parent != self.folder:
            return f"{few} Set more --minutes, and another --output_dir."
        return (
            f"{few} {self.start} stays, and the run id {self.name} goes on from it: give it, leave out --minutes, and "
            f"set --{self.name}_epochs."
        )

    def recipe(self) -> dict[str, Any]:
        """All that the part's weights depend on: its config, and the content of the files that it names."""
        return recipe(self.config, self.trainer) | {
            "data": self.data,
            "start weights": "random" if self.start is None else sha256([self.start])[:12],
            "processes": idist.get_world_size(),
        }
