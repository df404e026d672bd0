"""What the benchmarks share: the network and the inferer that ship, the options of a sweep, its volumes and its plots.

Each module measures what its name says and prints a table: python -m tests.benchmarks.NAME --help
"""

import argparse
from functools import partial

import matplotlib
import torch
from monai.bundle import ConfigParser

from scripts.evaluate.paired import by_networks
from scripts.method.weights import load_weights
from scripts.stack.interpolation import interpolate
from scripts.train.datasets import sharp_volumes

CKPT_PATH = "models/model.pt"
CUBIC = {"cubic spline": partial(interpolate, method="cubic")}  # what a sweep is compared with


def shipped_config(size="tiny", **overrides):
    """configs/inference.yaml with overrides, for weights of a size."""
    config = ConfigParser()
    config.read_config(["configs/inference.yaml", f"configs/models/{size}.yaml"])
    config.update(overrides)
    return config


def shipped_network(ckpt_path=CKPT_PATH, size="tiny"):
    """The network of configs/inference.yaml with its weights; null for random ones."""
    network = shipped_config(size).get_parsed_content("network_def")
    if ckpt_path is not None:
        load_weights(network, ckpt_path)
    return network.eval().to(memory_format=torch.channels_last)


def deployed(**settings):
    """The inferer of configs/inference.yaml, quiet, with other settings; `_target_` for another class."""
    settings = {f"inferer::{name}": value for name, value in {"progress": False, **settings}.items()}
    return shipped_config(**settings).get_parsed_content("inferer")


def preprocessing():
    """The deployed steps between a file and the inferer."""
    return shipped_config().get_parsed_content("preprocessing")


def method(network, inferer):
    """As `scripts.evaluate.paired.evaluate` takes it."""
    return partial(by_networks, network=network, inferer=inferer, device="cpu")


def sweep_parser(description, slab):
    """Options of a sweep over methods of inference."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset_dir")
    parser.add_argument("output_dir")
    parser.add_argument("--ckpt_path", default=CKPT_PATH)
    parser.add_argument("--thicknesses", type=float, nargs="+", default=[3.0, 5.0])
    parser.add_argument("--slab", type=int, default=slab)
    parser.add_argument("--volumes", type=int, nargs="+", help="which of the held-out volumes; all without it")
    return parser


def held_out(options):
    """The volumes that the options choose."""
    volumes = sharp_volumes(options.dataset_dir, "validation")
    return [volumes[i] for i in options.volumes or range(len(volumes))]


def panels(groups, width):
    """A figure with a panel for each group, side by side."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt.subplots(1, len(groups), figsize=(width * len(groups), 4), squeeze=False)
