"""What the sweeps of docs/benchmarks.md share: the shipped network, their options and their plots."""

import argparse

import matplotlib
import torch
from monai.bundle import ConfigParser

from scripts.datasets import sharp_volumes
from scripts.weights import load_weights


def shipped_network(ckpt_path="models/model.pt"):
    """The network of configs/inference.yaml with its weights."""
    config = ConfigParser()
    config.read_config("configs/inference.yaml")
    network = load_weights(config.get_parsed_content("network_def"), ckpt_path)
    return network.eval().to(memory_format=torch.channels_last)


def sweep_parser(description, slab):
    """Options of a sweep over methods of inference."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset_dir")
    parser.add_argument("output_dir")
    parser.add_argument("--ckpt_path", default="models/model.pt")
    parser.add_argument("--thicknesses", type=float, nargs="+", default=[3.0, 5.0])
    parser.add_argument("--slab", type=int, default=slab)
    parser.add_argument("--n_max", type=int, default=4, help="of AIS")
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
