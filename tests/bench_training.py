"""Training samples per second, and where a step's time goes: the table of docs/benchmarks.md.

python -m tests.bench_training DATASET_DIR [--iterations 8] [overrides of configs/train.yaml, such as --label_dir=DIR]

For each stage: samples/s of the data loader alone, of the networks alone (forward, loss, backward and optimiser on one
batch that lies ready), and of the trainer as it runs. A naive loop that reads and degrades a whole volume for each
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
from monai.transforms import RandSpatialCrop

from scripts.evaluation import load_volume
from scripts.slice_profile import degrade


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
    """Samples per second of the trainer, and of its networks alone on the last batch, as medians over iterations."""
    ends, kept = [], {}

    @trainer.on(Events.ITERATION_COMPLETED)
    def note(engine):
        ends.append(time.perf_counter())
        kept["batch"] = engine.state.batch
        if len(ends) > iterations:
            engine.terminate()

    trainer.run()
    whole = sorted(b - a for a, b in itertools.pairwise(ends))[iterations // 2]
    batch, size = kept["batch"], len(kept["batch"]["image"])
    alone = []
    for _ in range(iterations):
        start = time.perf_counter()
        inputs, targets, args, kwargs = trainer.prepare_batch(batch, trainer.state.device)
        loss = trainer.loss_function(trainer.inferer(inputs, trainer.network, *args, **kwargs), targets)
        trainer.optimizer.zero_grad()
        loss.backward()
        trainer.optimizer.step()
        alone.append(time.perf_counter() - start)
    return size / whole, size / sorted(alone)[iterations // 2]


def naive_rate(volumes, patch_size, count):
    """Samples per second of a loop that reads a volume, degrades the whole of it and cuts one patch."""
    crop = RandSpatialCrop((patch_size, patch_size), random_size=False)
    start = time.perf_counter()
    for item in itertools.islice(itertools.cycle(volumes), count):
        volume, spacings = load_volume(item["label"])
        axis = item["sharp_axes"][0]
        degraded = degrade(volume, axis, float(spacings[axis]), 5.0, 5.0)
        other = next(a for a in range(3) if a != axis)
        crop(degraded.movedim((axis, other), (1, 2))[volume.shape[3 - axis - other] // 2][None])
    return count / (time.perf_counter() - start)


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset_dir")
    parser.add_argument("--iterations", type=int, default=8)
    options, rest = parser.parse_known_args()
    overrides = {
        name: yaml.safe_load(value) for name, value in (argument.lstrip("-").split("=", 1) for argument in rest)
    }
    print(f"{torch.get_num_threads()} threads")
    print("| stage | loader alone (samples/s) | networks alone | trainer | networks' share of a step |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        config = parsed({"dataset_dir": options.dataset_dir, "output_dir": folder, "val_interval": 10**6, **overrides})
        for name, section in (("stage 1", "train"), ("stage 2", "refine")):
            loader = loader_rate(config.get_parsed_content(f"{section}#dataloader"), options.iterations)
            whole, alone = trainer_rate(config.get_parsed_content(f"{section}#trainer"), options.iterations)
            print(f"| {name} | {loader:.1f} | {alone:.2f} | {whole:.2f} | {whole / alone:.0%} |", flush=True)
        volumes, patch = config.get_parsed_content("train#volumes"), config["patch_size"]
    print(f"\nnaive loop, loading alone: {naive_rate(volumes, patch, options.iterations):.2f} samples/s")


if __name__ == "__main__":
    main()
