"""Training samples per second, and where a step's time goes: the table of docs/benchmarks.md.

python -m benchmarks.training DATASET_DIR [--iterations 16] [--label_dir=DIR and other overrides of train.yaml]

For each stage: samples/s of the data loader alone and of the trainer as it runs; the share of its step that the
networks take (forward, loss, backward, optimiser, average of the weights), while the loader's worker uses the same
cores; and samples/s of the networks when it does not. A naive loop that reads and degrades a whole volume for each
patch is timed beside them.
"""

import argparse
import itertools
import tempfile
import time

import torch
import yaml
from ignite.engine import Events
from monai.bundle import ConfigParser
from monai.engines.utils import IterationEvents
from monai.transforms import RandSpatialCrop

from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.train.truth import read_volume
from tests.volumes import degrade


def parsed(overrides):
    """configs/train.yaml with the overrides of the command line."""
    config = ConfigParser()
    config.read_config("configs/train.yaml")
    config.read_meta("configs/metadata.json")
    config.update(overrides)
    config.get_parsed_content("initialize")
    return config


def loader_rate(loader, iterations):
    """Samples per second that the loader delivers when nobody else works."""
    batches = iter(itertools.chain.from_iterable(itertools.repeat(loader)))
    next(batches)  # starts the workers
    start = time.perf_counter()
    count = sum(len(next(batches)["image"]) for _ in range(iterations))
    return count / (time.perf_counter() - start)


def trainer_rate(trainer, iterations):
    """Samples per second of the trainer, the networks' share of its time, and samples per second of them alone."""
    starts, shares = [], []

    @trainer.on(Events.ITERATION_STARTED)
    def start(engine):
        starts.append(time.perf_counter())
        if len(starts) > iterations + 1:
            engine.terminate()

    @trainer.on(IterationEvents.MODEL_COMPLETED)
    def end_of_networks(engine):
        shares.append(time.perf_counter() - starts[-1])

    trainer.run()
    whole = [b - a for a, b in itertools.pairwise(starts)][1:]  # without the first
    share = sum(shares[1 : 1 + len(whole)]) / sum(whole)
    batch, alone = next(iter(trainer.data_loader)), []
    size = len(batch["image"])
    for _ in range(iterations):
        begin = time.perf_counter()
        inputs, targets, args, kwargs = trainer.prepare_batch(batch, trainer.state.device)
        loss = trainer.loss_function(trainer.inferer(inputs, trainer.network, *args, **kwargs), targets)
        trainer.optimizer.zero_grad()
        loss.backward()
        trainer.optimizer.step()
        alone.append(time.perf_counter() - begin)
    return size * len(whole) / sum(whole), share, size / sorted(alone)[iterations // 2]


def naive_rate(volumes, patch_size, count):
    """Samples per second of a loop that reads a volume, degrades the whole of it and cuts one patch."""
    crop = RandSpatialCrop((patch_size, patch_size), random_size=False)
    start = time.perf_counter()
    for item in itertools.islice(itertools.cycle(volumes), count):
        volume = read_volume(item["label"])
        axis = item["sharp_axes"][0]
        spacing = float(voxel_spacing(volume.affine)[axis])
        degraded = degrade(
            volume.as_tensor()[0], Acquisition.of_truth(axis, volume.shape[1 + axis], edge=spacing, thickness=5.0)
        )
        other = next(a for a in range(3) if a != axis)
        crop(degraded.movedim((axis, other), (1, 2))[degraded.shape[3 - axis - other] // 2][None])
    return count / (time.perf_counter() - start)


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset_dir")
    parser.add_argument("--iterations", type=int, default=16)
    options, rest = parser.parse_known_args()
    overrides = {
        name: yaml.safe_load(value) for name, value in (argument.lstrip("-").split("=", 1) for argument in rest)
    }
    print(f"{torch.get_num_threads()} threads")
    print("| stage | loader alone (samples/s) | trainer | networks' share of a step | networks alone |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        config = parsed({"dataset_dir": options.dataset_dir, "output_dir": folder, "val_interval": 10**6, **overrides})
        for name, section in (("stage 1", "train"), ("stage 2", "stage2")):
            trainer = config.get_parsed_content(f"{section}#trainer")
            loader = loader_rate(trainer.data_loader, options.iterations)
            whole, share, alone = trainer_rate(trainer, options.iterations)
            print(f"| {name} | {loader:.0f} | {whole:.1f} | {share:.0%} | {alone:.1f} |", flush=True)
        volumes, patch = config.get_parsed_content("train#volumes"), config["patch_size"]
    print(f"\nnaive loop, loading alone: {naive_rate(volumes, patch, options.iterations):.2f} samples/s")


if __name__ == "__main__":
    main()
