"""Trainings of both stages so small that tests can run them: `configs/train.yaml` on crops, with tiny networks."""

import sys

import torch
import yaml
from ignite.engine import Events
from monai.bundle import ConfigWorkflow

from scripts.method.networks import AnatomicalProjectionNetwork, Drift, VelocityNetwork
from scripts.method.weights import write_card
from tests.config_files import CONFIGS, ON_PLANES, ROOT, on_planes
from tests.fixtures import CARD

SETTINGS = {
    **ON_PLANES,
    "network_def": on_planes(8, 16),
    "num_workers": 0,
    "patch_size": 32,
    "stage1_batch_size": 4,
    "stage2_batch_size": 4,
    "patches_per_epoch": 8,
    "stage1_epochs": 3,
    "stage2_epochs": 3,
    "stage2_learning_rate": 5.0e-3,
    "average_decay": 0.9,
    "charbonnier_epsilon": 0.1,
    "ssim_weight": 0.02,
    "val_interval": 1000,
    "checkpoint_interval": 1,
    "bfloat16": False,
}

NETWORK = {"network_def": on_planes(4, 8)}
NANO = {  # one epoch of each stage by a command
    **ON_PLANES,
    **NETWORK,
    "num_workers": 0,
    "patch_size": 32,
    "stage1_batch_size": 2,
    "stage2_batch_size": 2,
    "patches_per_epoch": 8,
    "stage1_epochs": 1,
    "stage2_epochs": 1,
    "checkpoint_interval": 1,
    "val_interval": 1,
}


def initialised(files, run_id, **overrides):
    """Files, by their names in `configs/` or by paths, as `monai.bundle run` stacks them, ready to run."""
    result = ConfigWorkflow(
        config_file=[str(CONFIGS / file) for file in files],
        meta_file=str(CONFIGS / "metadata.json"),
        logging_file=False,
        run_id=run_id,
        bundle_root=str(ROOT),
        **overrides,
    )
    path, hook = list(sys.path), sys.excepthook
    result.initialize()
    sys.path[:], sys.excepthook = path, hook  # initialize changes the interpreter
    return result


def workflow(output_dir, dataset_dir, run_id, stacked=(), **overrides):
    """`configs/train.yaml` with tiny settings, ready to run; `stacked` are files between the two."""
    nano = write_yaml(output_dir.parent / f"{output_dir.name}.yaml", SETTINGS)
    places = {"dataset_dir": str(dataset_dir), "output_dir": str(output_dir)}
    return initialised(["train.yaml", *stacked, nano], run_id, **places, **overrides)


def content(workflow, name, stage="stage1"):
    """A component, as the config of a stage has it."""
    config = workflow.parser if stage == "stage1" else workflow.parser.get_parsed_content("second").config
    return config.get_parsed_content(name)


class Stop(Exception):
    """Ends a training from outside, between two iterations."""


def run_stage(output_dir, dataset_dir, run_id, stop_after=None, **overrides):
    """Runs a stage, to its end or until after so many epochs.

    Returns:
        The trainer, and for each of its iterations the learning rate and the batch's labels.
    """
    bundle = workflow(output_dir, dataset_dir, run_id, **overrides)
    trainer = content(bundle, "train#trainer", run_id)
    trace = {}

    def stop(engine):
        if engine.state.epoch > stop_after:
            raise Stop

    def record(engine):
        labels = engine.state.batch["label"]
        trace[engine.state.iteration] = (engine.optimizer.param_groups[0]["lr"], torch.as_tensor(labels).clone())

    if stop_after is not None:
        trainer.add_event_handler(Events.EPOCH_STARTED, stop)
    trainer.add_event_handler(Events.ITERATION_STARTED, record)
    try:
        bundle.run()
    except (Stop, RuntimeError):
        if trainer.state.epoch == 0 or stop_after is None:
            raise
    return trainer, trace


def network(seed=0):
    """The network of `SETTINGS`."""
    torch.manual_seed(seed)
    return Drift(AnatomicalProjectionNetwork((8, 16), True), VelocityNetwork((8, 16), width=8))


def load(path):
    return torch.load(path, weights_only=True)


def same(a, b, prefix=""):
    return all(torch.equal(a[name], b[name]) for name in a if name.startswith(prefix))


def planes_seen(network):
    """Records how many planes each call of a network gets; an observation, nothing is replaced."""
    seen = []

    def record(module, inputs, output):
        if module is network:  # its copies, such as the averaged network, bear the hook too
            seen.append(len(inputs[0]))

    network.register_forward_hook(record)
    return seen


def random_weights(path, channels=(4, 8)):
    torch.manual_seed(0)
    network = Drift(AnatomicalProjectionNetwork(channels, residual=True), VelocityNetwork(channels, width=8))
    torch.nn.init.normal_(network.velocity.unet.conv_out.weight, std=0.005)
    torch.save(network.state_dict(), path)
    write_card(path, CARD)
    return path


def write_yaml(path, content):
    path.write_text(yaml.safe_dump(content))
    return path
