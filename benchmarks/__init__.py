"""Shared by the benchmarks: the network and the inferer that ship, and their plots.

Each module measures what its name says and prints a table: python -m benchmarks.NAME --help
"""

import argparse

import matplotlib
import torch
from monai.bundle import ConfigParser

from scripts.method.weights import load_weights
from scripts.rebuild.device import default_device

CKPT_PATH = "models/model.pt"


def parser_of(doc):
    """The parser of a benchmark, whose docstring is the help."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def parser_of_volumes(doc):
    """The parser of a benchmark that rebuilds sharp volumes: a datalist or a folder of them, and the weights."""
    parser = parser_of(doc)
    parser.add_argument("datalist")
    parser.add_argument("--ckpt_path", default=CKPT_PATH)
    return parser


def shipped_config(size=None, **overrides):
    """configs/inference.yaml with overrides, for weights of a size of configs/models; null for those that ship."""
    config = ConfigParser()
    config.read_config(["configs/inference.yaml", *([] if size is None else [f"configs/models/{size}.yaml"])])
    config.update(overrides)
    return config


def shipped_network(ckpt_path=CKPT_PATH, size=None):
    """The network of configs/inference.yaml with its weights; null for random ones."""
    network = shipped_config(size).get_parsed_content("network_def")
    if ckpt_path is not None:
        load_weights(network, ckpt_path)
    return network.eval().to(default_device(), memory_format=torch.channels_last)


def deployed(ckpt_path=CKPT_PATH, **settings):
    """The inferer of configs/inference.yaml for weights, quiet, with other settings; `_target_` for another class."""
    settings = {f"inferer::{name}": value for name, value in {"progress": False, **settings}.items()}
    return shipped_config(ckpt_path=str(ckpt_path), **settings).get_parsed_content("inferer")


def preprocessing(**options):
    """The deployed steps between a file and the inferer, under options of configs/inference.yaml."""
    return shipped_config(**options).get_parsed_content("preprocessing")


def panels(groups, width):
    """A figure with a panel for each group, side by side."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt.subplots(1, len(groups), figsize=(width * len(groups), 4), squeeze=False)
