"""Starts a network of twice the channels from trained weights: it computes what they compute, and has room to learn.

    python bundle/widen.py models/model.pt configs/models/tiny.yaml wide.yaml --output wide.pt

The two YAML files hold `network_def` of the old and of the new network, whose stages have as many channels or twice as
many. Training goes on from the output by `--ckpt_path wide.pt`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from monai.bundle import ConfigParser
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.errors import InputError, report_input_errors
from scripts.files import whole_file
from scripts.method.networks import Drift
from scripts.method.weights import load_weights


def twice(weight: Tensor) -> Tensor:
    """Each output channel twice, side by side, so that groups of a norm hold copies: `(C, ...)` -> `(2 C, ...)`."""
    return weight.repeat_interleave(2, dim=0)


def shared_out(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Each input channel's weights shared out at random among its two copies: `(K, C, ...)` -> `(K, 2 C, ...)`.

    Their sum stays; unequal shares give the copies unequal gradients, so that they part.
    """
    share = torch.rand(weight.shape, generator=generator)
    return torch.stack([share * weight, (1 - share) * weight], dim=2).flatten(1, 2)


def widened(unet: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """The weights of a `UNet` for one of twice the channels (Net2Net: Chen et al., ICLR 2016).

    The function is the same, but for norms whose groups do not become twice as large or as many
    (`networks.group_count`).

    Args:
        unet: trained.
        generator: of the shares of the copies.
    """
    weights = {}
    for name, module in unet.named_modules():
        if not isinstance(module, nn.Conv2d | nn.GroupNorm | nn.Linear):
            continue
        weight, bias = module.weight, module.bias
        if isinstance(module, nn.Conv2d) and name != "conv_in":
            weight = shared_out(weight, generator)
        if name != "conv_out":  # scales and shifts of the adaptive norms, from linear layers, are of channels too
            weight, bias = twice(weight), twice(bias)
        weights |= {f"{name}.weight": weight, f"{name}.bias": bias}
    return weights


def grow(old: Drift, new: Drift, seed: int = 0) -> None:
    """Gives a network the weights of a narrower one.

    Args:
        old: trained.
        new: stages have as many channels as the old ones or twice as many; changed in place.
        seed: of the shares of the copies.

    Raises:
        InputError: if a stage has another shape.
    """
    generator = torch.Generator().manual_seed(seed)
    for name in ("apn", "velocity"):
        a, b = getattr(old, name), getattr(new, name)
        weights = a.state_dict()
        if a.unet.conv_in.out_channels != b.unet.conv_in.out_channels:
            weights |= {f"unet.{key}": weight for key, weight in widened(a.unet, generator).items()}
        try:
            b.load_state_dict(weights)
        except RuntimeError as error:  # torch names each weight and its shape
            raise InputError(f"{name} is neither as wide as the trained one nor twice: {error}") from error


def network_of(path: str) -> Drift:
    """`network_def` of a YAML file."""
    parser = ConfigParser()
    parser.read_config(path)
    return parser.get_parsed_content("network_def")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights")
    parser.add_argument("old", help="YAML with network_def of the weights")
    parser.add_argument("new", help="YAML with network_def of the network to start")
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    report_input_errors()
    old, new = load_weights(network_of(options.old), options.weights), network_of(options.new)
    grow(old, new)
    with whole_file(Path(options.output)) as partial, open(partial, "wb") as file:
        torch.save(new.state_dict(), file)


if __name__ == "__main__":
    main()
