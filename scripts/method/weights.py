"""A weights file holds a network's state dictionary. The card beside it names the scans that it was trained for."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import torch
from torch import nn

from ..errors import InputError, flag, is_number
from ..files import sha256, whole_file
from .calibration import Calibration, Foretelling

MOST_STEPS = 100  # of Euler; the paper takes up to 15
MOST_SHARP = 10.0  # of either factor of sharp results
ERROR = "error."  # begins the names of the third network's weights
LOADED = "loaded_weights"  # attribute of a network: hash of its weights file, and the version that the file's card says


@dataclass(frozen=True)
class Card:
    """The purpose that weights were trained for: `models/model.json` beside `models/model.pt`.

    Args:
        version: of the bundle that trained them.
        size: name of the network's size, as in `configs/models/`.
        target_range: least and largest target thickness, mm.
        pixel_range: least and largest pixel, mm.
        max_thickness: largest slice thickness, mm.
        spacing_ratio: least and largest slice spacing / slice thickness.
        n_max: Euler steps at most, of AIS; 1 to 100.
        sharp_velocity: the factor of `--sharp` on the flow's velocity, 1 to 10; None for weights that are not made for
            sharp results.
        sharp_detail: its factor on the detail of stage 1's estimate, with which the flow begins, 1 to 10.
        guide_share: of the training pairs that had a guide, 0 to 1.
        sha256: of the weights file. `write_card` fills it in.
        error_map: turns the third network's numbers into error maps; None where no map can be made.
        sharp_error_map: the same for results of `--sharp`.
        foretelling: turns the gain within a scan's slices into that through them; None where nothing calibrates it.
    """

    version: str
    size: str
    target_range: tuple[float, float]
    pixel_range: tuple[float, float]
    max_thickness: float
    spacing_ratio: tuple[float, float]
    n_max: int
    guide_share: float = 0.0
    sha256: str = ""
    sharp_velocity: float | None = None
    sharp_detail: float = 1.0
    error_map: Calibration | None = None
    sharp_error_map: Calibration | None = None
    foretelling: Foretelling | None = None

    def __post_init__(self) -> None:
        """Turns the lists of YAML and JSON into tuples of numbers."""
        for name in ("target_range", "pixel_range", "spacing_ratio"):
            value = getattr(self, name)
            numbers = isinstance(value, list | tuple) and len(value) == 2 and all(map(is_number, value))
            if not numbers or not 0 < value[0] <= value[1]:
                raise InputError(f"{name} is {value!r}: expected two positive numbers, the smaller first.")
            object.__setattr__(self, name, (float(value[0]), float(value[1])))
        if not (is_number(self.max_thickness) and self.max_thickness > 0):
            raise InputError(f"max_thickness is {self.max_thickness!r}: expected a positive number.")
        if type(self.n_max) is not int or not 0 < self.n_max <= MOST_STEPS:
            raise InputError(f"n_max is {self.n_max!r}: expected a whole number from 1 to {MOST_STEPS}.")
        for name, none in (("sharp_velocity", ", or null"), ("sharp_detail", "")):
            factor = getattr(self, name)
            if not (is_number(factor, 1) and factor <= MOST_SHARP) and not (none and factor is None):
                raise InputError(f"{name} is {factor!r}: expected a number from 1 to {MOST_SHARP:g}{none}.")
        if not is_number(self.guide_share, 0) or self.guide_share > 1:
            raise InputError(f"guide_share is {self.guide_share!r}: expected a number from 0 to 1.")
        for name in ("version", "size", "sha256"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name} is {getattr(self, name)!r}: expected text.")
        for name in ("error_map", "sharp_error_map"):
            value = getattr(self, name)
            if isinstance(value, dict):
                if set(value) != {field.name for field in fields(Calibration)}:
                    raise InputError(
                        f"{name} has {', '.join(value)}: that is a calibration of another version. Take {name} out of "
                        "the card; run calibration (docs/training.md) makes it anew."
                    )
                object.__setattr__(self, name, Calibration(**value))
            if not isinstance(getattr(self, name), Calibration | None):
                raise InputError(f"{name} is {value!r}: expected a calibration, or null.")
        names = [field.name for field in fields(Foretelling)]
        if isinstance(self.foretelling, dict) and set(self.foretelling) == set(names):
            object.__setattr__(self, "foretelling", Foretelling(**self.foretelling))
        if not isinstance(self.foretelling, Foretelling | None):
            raise InputError(f"foretelling is {self.foretelling!r}: expected {', '.join(names)}, or null.")


def card_of_run(card: Card, sharp: bool | str) -> Card:
    """The card as a run takes it: with `sharp` its `error_map` is that of sharp results.

    The gain that a scan's own slices foretell belongs to the default: nothing calibrates that of sharp results.

    Args:
        sharp: the option.

    Raises:
        InputError: for weights that are not made for it.
    """
    if not flag("sharp", sharp):
        return card
    if card.sharp_velocity is None:
        raise InputError(
            "sharp is true, and the card of these weights has no sharp_velocity: they are not made for sharp results. "
            "Leave out --sharp, or set --ckpt_path to weights whose card has it."
        )
    return replace(card, error_map=card.sharp_error_map, foretelling=None)


def card_path(path: str | os.PathLike) -> Path:
    """Path of a weights file's card: beside it, under its name and `.json`.

    >>> card_path("models/model.pt").as_posix()
    'models/model.json'
    """
    return Path(path).with_suffix(".json")


def read_card(path: str | os.PathLike) -> Card:
    """The card of a weights file.

    Raises:
        InputError: no weights lie there, or no card beside them that can be read.
    """
    place = card_path(path)
    if not os.path.isfile(path):
        raise InputError(f"weights not found: {path}. Download or train them, or set --ckpt_path.")
    if Path(path).stem.endswith("_checkpoint"):
        raise InputError(
            f"{path} is the checkpoint that a training goes on from: expected weights. They lie beside it: stage1.pt "
            "after stage 1, model.pt after both."
        )
    if not place.is_file():
        raise InputError(
            f"{path} has no card: {place} is missing. Copy it with the weights; models/model.json shows what it holds."
        )
    try:
        found = json.loads(place.read_bytes())
        foreign = sorted(set(found) - {field.name for field in fields(Card)})
        if not foreign:
            return Card(**found)
    except (ValueError, TypeError) as error:  # no JSON; fields that are missing; other values
        raise InputError(f"{place} is not the card of weights: {error} Copy it again with the weights.") from error
    raise InputError(
        f"{place} is not the card of weights: it has {', '.join(foreign)}, which this version does not know. Take that "
        "out of the card; docs/training.md says what weights of earlier releases need."
    )


def check_card(path: str | os.PathLike) -> Card:
    """Reads the card of a weights file, and checks that it is the card of these weights.

    Raises:
        InputError: it is not, or `read_card` finds none.
    """
    card = read_card(path)
    if card.sha256 != sha256([path]):
        raise InputError(
            f"{path} differs from its card, {card_path(path)}: another sha256. "
            "Download both again; if you replaced the weights, put their own card beside them."
        )
    return card


def write_card(path: str | os.PathLike, card: Card) -> None:
    """Writes a card beside its weights, whose hash is taken here."""
    with whole_file(card_path(path)) as partial:
        _write(partial, card, path)


def _write(place: Path, card: Card, weights: str | os.PathLike) -> None:
    content = asdict(replace(card, sha256=sha256([weights])))
    content = {name: value for name, value in content.items() if value is not None}
    text = re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda row: f"[{' '.join(row[1].split())}]", json.dumps(content, indent=4))
    place.write_text(text + "\n", encoding="utf-8")


def load_weights(network: nn.Module, path: str | os.PathLike) -> nn.Module:
    """Loads a checkpoint into the network. Loading is strict, and executes nothing of the file.

    The third network, of the error map, may be missing in the file: then the network keeps its own. Its numbers mean
    nothing until a card calibrates them.

    Args:
        network: a `Drift` of the size that was trained; it is returned, and `Origin.of` it knows the file.
        path: file with the network's state dictionary, as training exports it, in any floating-point precision. If a
            card lies beside it, the weights must have the card's hash.
    """
    if not os.path.isfile(path):
        raise InputError(f"weights not found: {path}. Download or train them, or set --ckpt_path.")
    card = check_card(path) if card_path(path).is_file() else None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        found = {str(name): tuple(value.shape) for name, value in state.items()}
    except Exception as error:  # torch raises many types for a broken file
        raise InputError(f"{path} is not a DRIFT checkpoint ({type(error).__name__}). Set --ckpt_path.") from error
    has_error = any(name.startswith(ERROR) for name in found)
    own = {name: value for name, value in network.state_dict().items() if has_error or not name.startswith(ERROR)}
    expected = {name: tuple(value.shape) for name, value in own.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise InputError(
                f"{path} does not fit this network: {name} is {found.get(name, 'missing')} in the file, "
                f"{expected.get(name, 'absent')} in the network. Stack the YAML of the weights, of configs/models/ or "
                "configs/paper/baselines/; docs/training.md says which earlier releases' weights load."
            )
        if state[name].is_floating_point() != own[name].is_floating_point():
            raise InputError(
                f"{path} does not fit this network: {name} holds {state[name].dtype} in the file, {own[name].dtype} in "
                "the network. Export the weights again, as float16 or float32."
            )
    network.load_state_dict({**network.state_dict(), **{name: value.float() for name, value in state.items()}})
    setattr(network, LOADED, (sha256([path]), "") if card is None else (card.sha256, card.version))
    return network


def deployed(network: nn.Module, device: torch.device | str) -> nn.Module:
    """The network on a device, in evaluation mode. Its 2-D convolutions are channels last: that is faster on a CPU."""
    network = network.to(device).eval()
    for parameter in network.parameters():
        if parameter.dim() == 4:  # PyTorch has another format for 3-D ones
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return network


def save_weights(
    network: nn.Module, path: str | os.PathLike, card: Card, precision: torch.dtype = torch.float16
) -> None:
    """Writes the network's weights and their card. New weights never lie beside an old card.

    Weights ship in half precision. Indices stay whole numbers.
    """
    state = {
        name: value.to(precision) if value.is_floating_point() else value
        for name, value in network.state_dict().items()
    }
    with whole_file(path) as partial, whole_file(card_path(path)) as partial_card:  # the card gets its name first
        with open(partial, "wb") as file:  # torch stores given names
            torch.save(state, file)
        _write(partial_card, card, partial)
