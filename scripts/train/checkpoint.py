"""The checkpoint of a stage of training: one file from which the stage goes on, and which no other training takes."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from ignite.handlers import DiskSaver

from ..errors import InputError
from .recipe import differences

MINUTES = 10.0  # after which a checkpoint is due, whatever the interval


class Checkpoint:
    """The state of a stage in one file, with the recipe of the training that wrote it.

    Args:
        path: of the file; it is complete or absent.
        state: name -> object with a state dictionary.
    """

    def __init__(self, path: Path, recipe: Mapping[str, Any], state: Mapping[str, Any]):
        self.path = path
        self.recipe = dict(recipe)
        self.state = state
        self.saver = DiskSaver(path.parent, require_empty=False)  # writes in the first process alone
        self.saved: float | None = None  # when this process last did

    def resume(self, length: str, rate: Callable[[int, int], float]) -> None:
        """Restores the state, if there is a file.

        A training of another length goes on from it where both have had the same learning rates so far. Example: at a
        rate that stays for 80 % of a training, 400 of 500 epochs are the beginning of 1000.

        Args:
            length: which value of the recipe is the number of epochs.
            rate: `(epochs, step)` -> the learning rate.
        """
        if not self.path.is_file():
            return
        try:
            found = torch.load(self.path, map_location="cpu", weights_only=True)
            old, states = found["recipe"], {name: found.get(name) for name in self.state}  # of another one may lack
        except Exception as error:  # torch raises many types for a broken file
            raise InputError(
                f"{self.path} cannot be read ({type(error).__name__}). Delete it to train anew."
            ) from error
        differs = differences(old, self.recipe)
        if differs and not differences({**old, length: 0}, {**self.recipe, length: 0}):
            steps = range(states["trainer"]["iteration"])
            lengths = old[length], self.recipe[length]
            differs *= any(rate(lengths[0], step) != rate(lengths[1], step) for step in steps)
        if differs:
            raise InputError(
                f"{self.path} is of another training: {differs}. "
                "Set another --output_dir, or delete the file to train anew."
            )
        for name, item in self.state.items():
            item.load_state_dict(states[name])

    def due(self, epoch: int, epochs: int, interval: int) -> bool:
        """Whether the state is written after an epoch.

        It is after the first one, each `interval`, `MINUTES` and the last one: a killed training loses little.
        """
        late = self.saved is None or time.monotonic() - self.saved >= 60 * MINUTES
        return late or epoch % interval == 0 or epoch == epochs

    def save(self) -> None:
        """Writes the state."""
        self.saved = time.monotonic()
        states = {name: item.state_dict() for name, item in self.state.items()}
        self.saver({"recipe": self.recipe, **states}, self.path.name)
