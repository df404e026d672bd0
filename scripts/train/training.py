"""A stage of training, either one: what its stock trainer gets, its seeds, its checkpoint, its exported weights."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import ignite.distributed as idist
import numpy as np
import torch
from ignite.engine import Engine, Events
from ignite.handlers import DiskSaver
from monai.data import DataLoader
from monai.data.utils import set_rnd
from monai.engines import SupervisedEvaluator, SupervisedTrainer
from monai.handlers import LrScheduleHandler, TensorBoardStatsHandler, ValidationHandler
from monai.utils import set_determinism
from torch import nn

from ..errors import InputError
from ..files import sha256
from ..method.weights import Card, load_weights, save_weights
from .batches import Average, iteration_loss, warmup_cosine

logger = logging.getLogger("drift")


def data_key(volumes: Sequence[Mapping], label_maps: Sequence[Mapping]) -> str:
    """Tells data apart: by the content of each file, wherever it lies, and what is said of it.

    Args:
        volumes: of `datasets.sharp_volumes`.
        label_maps: of `datasets.label_maps`.

    Raises:
        InputError: if a file cannot be read.
    """

    def known(item: Mapping) -> dict:
        return {**item, **{name: sha256([item[name]]) for name in ("label", "lesions") if name in item}}

    try:
        text = json.dumps([[known(item) for item in items] for items in (volumes, label_maps)], sort_keys=True)
    except OSError as error:
        raise InputError(f"a volume of the data cannot be read ({error}). Mend the datalist.") from error
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Checkpoint:
    """The state of a stage in one file, with the key of the training that wrote it.

    Args:
        path: of the file; it is complete or absent.
        key: what the result depends on: name -> value, both text.
        state: name -> object with a state dictionary.
    """

    def __init__(self, path: Path, key: Mapping[str, str], state: Mapping):
        self.path = path
        self.key = dict(key)
        self.state = state
        self.saver = DiskSaver(path.parent, require_empty=False)  # writes in the first process alone

    def resume(self) -> None:
        """Restores the state, if there is a file.

        Raises:
            InputError: if the file cannot be read, or has another key; what differs is named.
        """
        if not self.path.is_file():
            return
        try:
            found = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many types for a broken file
            raise InputError(
                f"{self.path} cannot be read ({type(error).__name__}). Delete it to train anew."
            ) from error
        old = found.get("key", {})
        names = sorted(name for name in {*old, *self.key} if old.get(name) != self.key.get(name))
        if names:
            told = "; ".join(f"{name} was {old.get(name)}, is {self.key.get(name)}" for name in names)
            raise InputError(
                f"{self.path} is of another training: {told if old else 'it has no key'}. "
                "Set another --output_dir, or delete the file to train anew."
            )
        for name, item in self.state.items():
            item.load_state_dict(found[name])

    def save(self) -> None:
        """Writes the state."""
        self.saver({"key": self.key, **{name: s.state_dict() for name, s in self.state.items()}}, self.path.name)


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
    """What all stages of a training share; called with what one has of its own, it trains that one.

    Args:
        network: a `Drift`, or a baseline.
        averaged: its copy, which becomes the average that validates and ships.
        settings: all that change the result, `seed` among them.
        card: of the exported weights.
        output_dir: folder to write to.
        average_decay: see `Average`.
        val_interval: epochs between two validations.
        checkpoint_interval: epochs between two checkpoints.
    """

    def __init__(
        self,
        network: nn.Module,
        averaged: nn.Module,
        settings: Mapping,
        card: Card,
        output_dir: str,
        average_decay: float,
        val_interval: int,
        checkpoint_interval: int,
    ):
        self.network = network
        self.averaged = averaged
        self.settings = settings
        self.card = card
        self.folder = Path(output_dir)
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
    ) -> None:
        """Trains a stage to its end, from its last checkpoint if there is one, and exports the averaged network.

        Writes the weights with their card, NAME_checkpoint.pt and NAME, a folder for TensorBoard.

        Args:
            name: of the stage.
            part: of the network, that the trainer trains; empty for the whole.
            start: weights of the whole network to start from; None for those that it has.
            export: file name for the averaged network's weights.
            trainer: stock; it gets seeds, schedule, average, validation, curves and checkpoints.
            evaluator: stock, of the averaged network.

        Raises:
            InputError: if the start weights cannot be loaded, an epoch is less than a batch, or the checkpoint is
                broken or of another training: other data, settings or start weights.
        """
        if start is not None:
            load_weights(self.network, start)
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
        schedule = warmup_cosine(trainer.optimizer, len(loader), epochs)
        key = {
            **{option: str(value) for option, value in self.settings.items()},
            f"{name}_epochs": str(epochs),
            f"{name}_batch_size": str(loader.batch_size),
            f"{name}_learning_rate": str(trainer.optimizer.defaults["lr"]),
            "start weights": "random" if start is None else sha256([start])[:12],
            "parameters": str(sum(parameter.numel() for parameter in self.network.parameters())),
            "processes": str(idist.get_world_size()),
        }
        state = {  # of the trained part alone: the key says on what it builds
            "network": trained,
            "average": average.ema_model,
            "optimizer": trainer.optimizer,
            "lr_scheduler": schedule,
            "trainer": trainer,
        }
        checkpoint = Checkpoint(self.folder / f"{name}_checkpoint.pt", key, state)
        checkpoint.resume()
        if trainer.state.epoch == epochs:
            logger.info(f"{name} is complete after {epochs} epochs: {self.folder / export}")
        else:
            logger.info(f"{name}: {trainer.state.epoch} of {epochs} epochs are done")
            trainer.add_event_handler(Events.EPOCH_STARTED, seed_epoch, self.settings["seed"], *name.encode())
            LrScheduleHandler(schedule, print_lr=False, epoch_level=False).attach(trainer)  # type: ignore[arg-type]
            average.attach(trainer)
            ValidationHandler(self.val_interval, evaluator).attach(trainer)
            if idist.get_rank() == 0:
                curves = str(self.folder / name)
                TensorBoardStatsHandler(log_dir=curves, tag_name="loss", output_transform=iteration_loss).attach(
                    trainer
                )
                TensorBoardStatsHandler(log_dir=curves, iteration_log=False).attach(evaluator)
            due = Events.EPOCH_COMPLETED(lambda _, epoch: epoch % self.checkpoint_interval == 0 or epoch == epochs)
            trainer.add_event_handler(due, checkpoint.save)
            trainer.run()
        if idist.get_rank() == 0 and trainer.state.epoch == epochs:
            save_weights(self.averaged, self.folder / export, self.card, torch.float32)
        idist.barrier()  # the next stage reads what the first process has written
