"""How a stage of training is assembled and run: stock engines, its seeds, its checkpoint, its exported weights."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import numpy as np
import torch
from ignite.engine import Engine, Events
from monai.bundle import ConfigParser
from monai.data import DataLoader, DistributedSampler, DistributedWeightedRandomSampler
from monai.data.utils import set_rnd
from monai.engines import PrepareBatch, SupervisedEvaluator, SupervisedTrainer
from monai.handlers import (
    LrScheduleHandler,
    PeakSignalToNoiseRatio,
    StatsHandler,
    TensorBoardStatsHandler,
    ValidationHandler,
    from_engine,
)
from monai.inferers import Inferer
from monai.transforms import Transform
from monai.utils import set_determinism
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import Dataset, Sampler, WeightedRandomSampler

from ..errors import InputError, logger
from ..files import sha256
from ..method.weights import Card, load_weights, save_weights
from .checkpoint import Checkpoint
from .handlers import FEWEST, Average, ClipGradient, TimeBudget, check_minutes
from .recipe import options_of, recipe

LOSS: dict[str, Any] = {"tag_name": "loss", "output_transform": itemgetter("loss")}  # what handlers tell of a step


def seed_epoch(engine: Engine, *entropy: int) -> None:
    """Seeds every generator for the epoch that begins, so that a resumed training draws what it would have drawn.

    The workers of the trainer's `DataLoader` take their seeds from this process.
    """
    seed = int(np.random.SeedSequence([*entropy, idist.get_rank(), engine.state.epoch]).generate_state(1)[0])
    set_determinism(seed=seed)
    set_rnd(engine.data_loader.dataset, seed=seed)  # type: ignore[attr-defined]  # a trainer of MONAI


@dataclass(eq=False)
class Stage:
    """Common to all stages of a training. Its methods make the engines of one stage, and train it.

    Several processes train together under `configs/multi_gpu.yaml`. Each draws from its own share of the volumes and
    validates on its own; the first one logs and saves.

    Args:
        config: the training's, of which the recipes are made.
        network: a `Drift`, or a baseline, on the device.
        weights: how often each item of the dataset is drawn, relative.
        samples: of an epoch, in each process.
        inferer: how the trainers call the network.
        validation: volumes that validate, one by one.
        postprocessing: of what the validating inferer gives.
        data: hash of the data, of `recipe.data_digest`.
        schedule: of the learning rate, as a share of its peak: `(step, steps in all)` -> share.
        val_interval: epochs between two validations.
        checkpoint_interval: epochs between two checkpoints, at most; see `Checkpoint.due`.
        minutes: for the whole training, by the wall clock; None where epochs are counted.
        tracking: more handlers of the curves, each made with a `run_name`, such as `MLFlowHandler`.

    Attributes:
        averaged: copy of the network, which becomes the average that validates and ships.
    """

    config: ConfigParser
    network: nn.Module
    device: torch.device
    dataset: Dataset
    weights: Sequence[float]
    samples: int
    num_workers: int
    inferer: Inferer
    optimizer: Callable[..., Optimizer]
    validation: Dataset
    postprocessing: Transform
    data: str
    seed: int
    output_dir: str
    schedule: Callable[[int, int], float]
    max_norm: float
    average_decay: float
    val_interval: int
    checkpoint_interval: int
    minutes: float | None = None
    tracking: Sequence[Callable[..., Any]] = ()

    def __post_init__(self) -> None:
        self.minutes = check_minutes(self.minutes)
        self.averaged = copy.deepcopy(self.network)
        self.folder = Path(self.output_dir)
        self.first = idist.get_rank() == 0  # of all processes
        self.together = idist.get_world_size() > 1

    def trainer(
        self,
        max_epochs: int,
        batch_size: int,
        learning_rate: float,
        network: nn.Module | None,
        prepare_batch: PrepareBatch,
        loss_function: Callable,
        train_handlers: Sequence = (),
    ) -> SupervisedTrainer:
        """The stock trainer of a stage.

        Args:
            batch_size: items, in each process.
            learning_rate: its peak.
            network: the part of the network that it trains.
            prepare_batch: batch -> arguments of the network, and what the loss compares.
            train_handlers: more than the stage's own.
        """
        if network is None:
            raise InputError(
                "network_def has no error network: expected one to train. Set network_def::error, as train.yaml has it."
            )
        if self.samples < batch_size:
            raise InputError(
                f"patches_per_epoch is below {batch_size}, one batch: expected that or more. Set --patches_per_epoch."
            )
        sampler: Sampler = WeightedRandomSampler(self.weights, self.samples)
        if self.together:
            weights = list(self.weights)
            sampler = DistributedWeightedRandomSampler(self.dataset, weights, num_samples_per_rank=self.samples)
        told: dict[str, Any] = {"iteration_log": 10, "key_var_format": "{}: {:.4g} ", **LOSS}  # distillation's is small
        log = StatsHandler(**told)
        return SupervisedTrainer(
            device=self.device,
            max_epochs=max_epochs,
            train_data_loader=DataLoader(
                self.dataset, self.num_workers, sampler=sampler, batch_size=batch_size, drop_last=True
            ),
            network=idist.auto_model(network) if self.together else network,
            optimizer=self.optimizer(network.parameters(), lr=learning_rate),
            loss_function=loss_function,
            inferer=self.inferer,
            prepare_batch=prepare_batch,
            train_handlers=[*train_handlers, *([log] if self.first else [])],
            decollate=False,  # a PathSample is one value, not a list of samples
        )

    def evaluator(self, inferer: Inferer, val_handlers: Sequence = ()) -> SupervisedEvaluator:
        """The stock evaluator of a stage: the averaged network, by the deployed inferer."""
        sampler = None
        if self.together:
            sampler = DistributedSampler(self.validation, even_divisible=False, shuffle=False)
        psnr = PeakSignalToNoiseRatio(max_val=1.0, output_transform=from_engine(["pred", "label"]))
        return SupervisedEvaluator(
            device=self.device,
            val_data_loader=DataLoader(self.validation, batch_size=1, sampler=sampler),
            network=self.averaged,
            inferer=inferer,
            postprocessing=self.postprocessing,
            key_val_metric={"psnr": psnr},
            val_handlers=[*val_handlers, *([StatsHandler(iteration_log=False)] if self.first else [])],
        )

    def train(
        self,
        name: str,
        start: str | None,
        export: str,
        trainer: SupervisedTrainer,
        evaluator: SupervisedEvaluator,
        card: Card,
        time_share: float | None = None,
    ) -> None:
        """Trains a stage to its end, from its last checkpoint if there is one, and exports the averaged network.

        Writes the weights with their card, NAME_checkpoint.pt and NAME, a folder for TensorBoard. A training that
        diverges exports nothing.

        Args:
            name: of the stage; the config has one part of this name, and the option NAME_epochs.
            start: weights of the whole network to start from; None for those that it has.
            export: file name for the averaged network's weights.
            trainer: gets seeds, schedule, clipping, average, validation, curves and checkpoints.
            time_share: of the `minutes`, what this stage gets; None for a stage that counts epochs alone.
        """
        if self.minutes and not time_share:
            raise InputError(
                f"{name} has no share of the minutes: expected a number of epochs. Leave out --minutes, and set "
                f"--{name}_epochs."
            )
        if start is not None:
            load_weights(self.network, start)
        self.averaged.load_state_dict(self.network.state_dict())
        trained: nn.Module = trainer.network.module if self.together else trainer.network  # type: ignore[assignment]
        (part,) = (place for place, module in self.network.named_modules() if module is trained)
        epochs, steps = trainer.state.max_epochs, len(trainer.data_loader)  # type: ignore[arg-type]
        average = Average(trained, self.average_decay)
        average.ema_model = self.averaged.get_submodule(part).eval().requires_grad_(False)
        budget = TimeBudget(60 * self.minutes * time_share) if self.minutes and time_share else None

        def share(epochs: int, step: int) -> float:
            return self.schedule(step, epochs * steps)

        def planned(step: int) -> float:
            return self.schedule(step, round(budget.steps)) if budget and budget.steps else share(epochs, step)

        schedule = LambdaLR(trainer.optimizer, planned)
        state = {  # of the trained part alone: the start weights say on what it builds
            "network": trained,
            "average": average.ema_model,
            "optimizer": trainer.optimizer,
            "lr_scheduler": schedule,
            "trainer": trainer,
            **({"budget": budget} if budget else {}),
        }
        made_of = self.recipe(name, start)
        checkpoint = Checkpoint(self.folder / f"{name}_checkpoint.pt", made_of, state)
        checkpoint.resume(f"{name}_epochs", share)
        # the checkpoint may be of a shorter training; the budget plans after each step
        trainer.state.max_epochs = trainer.state.epoch + 1 if budget else epochs

        def complete() -> bool:
            return budget.over if budget else trainer.state.epoch == epochs

        done, whole = f"{trainer.state.epoch}", f"{epochs} epochs"
        if budget:
            done, whole = f"{budget.used / 60:.3g}", f"{budget.seconds / 60:.3g} minutes"
        if complete():
            logger.info(f"{name} is complete after {whole}: {self.folder / export}")
        else:
            logger.info(f"{name}: {done} of {whole} are done")
            if not trainer.state.epoch and (self.folder / name).is_dir():
                logger.warning(f"{name}: an earlier run ended within its first epoch. It begins anew.")
            clip = ClipGradient(self.max_norm)
            trainer.add_event_handler(Events.EPOCH_STARTED, seed_epoch, self.seed, *name.encode())
            if budget:
                budget.attach(trainer)  # before the rate, which goes by it
            LrScheduleHandler(schedule, print_lr=False, epoch_level=False).attach(trainer)  # type: ignore[arg-type]
            clip.attach(trainer)
            average.attach(trainer)
            ValidationHandler(self.val_interval, evaluator).attach(trainer)
            if self.first:
                self._draw_curves(name, trainer, evaluator, options_of(made_of))
            due = Events.EPOCH_COMPLETED(lambda _, epoch: checkpoint.due(epoch, epochs, self.checkpoint_interval))
            trainer.add_event_handler(due, checkpoint.save)
            trainer.run()
            if clip.divergence:
                raise InputError(
                    f"{name} diverges: {clip.divergence}. No weights are exported. Set a lower learning rate, and "
                    "another --output_dir."
                )
            if budget and trainer.state.iteration < FEWEST:
                raise InputError(
                    f"{name} has done {trainer.state.iteration} steps in its {whole}: expected {FEWEST} or more. No "
                    "weights are exported. Set more --minutes, and another --output_dir."
                )
            if budget:
                checkpoint.save()
        if self.first and complete():
            path = self.folder / export
            save_weights(self.averaged, path, card, torch.float32)
            logger.info(f"{name} has made {path}. Try it: drift-mri SCAN -o OUT --ckpt_path {path}")
        idist.barrier()  # the next stage reads what the first process has written

    def recipe(self, name: str, start: str | None) -> dict[str, Any]:
        """All that a stage's weights depend on: its config, and what the files that it names hold."""
        items = self.config.get().items()
        (place,) = (k for k, item in items if isinstance(item, dict) and item.get("name") == name)
        return recipe(self.config, place) | {
            "data": self.data,
            "start weights": "random" if start is None else sha256([start])[:12],
            "processes": idist.get_world_size(),
        }

    def _draw_curves(
        self, name: str, trainer: SupervisedTrainer, evaluator: SupervisedEvaluator, options: dict[str, Any]
    ) -> None:
        """Curves of loss, learning rate and PSNR, for TensorBoard and whatever else tracks the training."""
        place = str(self.folder / name)
        TensorBoardStatsHandler(log_dir=place, **LOSS).attach(trainer)
        TensorBoardStatsHandler(log_dir=place, iteration_log=False).attach(evaluator)
        for track in self.tracking:
            track(run_name=place, experiment_param=options, close_on_complete=True, **LOSS).attach(trainer)
            track(run_name=place, iteration_log=False).attach(evaluator)
