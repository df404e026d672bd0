"""The cost of networks: parameters, multiply-adds, peak memory, time (Sec. S4.2), and the minutes of a training."""

import math
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from ignite.engine import Engine, Events
from monai.bundle import ConfigParser
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from ..method.networks import Drift
from ..method.weights import ERROR
from .multiply_adds import multiply_adds
from .trained_variants import Stage, TrainedVariants

EDGE = 128  # pixels, of the paper's table
REPEATS = 5
PROCESS = Path("/proc/self")


def plane_calls(network: Drift, edge: int = EDGE) -> tuple[Callable, Callable]:
    """Stage 1, and one evaluation of the velocity, on a plane of `edge` x `edge` pixels, on the network's device."""
    device = next(network.parameters()).device
    plane, lengths, t = (torch.ones(*shape, device=device) for shape in ((1, 1, edge, edge), (1, 2), (1,)))
    calls = partial(network.apn, plane, lengths), partial(network.velocity, plane, lengths, t)
    return torch.no_grad()(calls[0]), torch.no_grad()(calls[1])


class CpuTime:
    """The CPU time of each epoch as a curve for TensorBoard, `cpu_minutes`; an entry of `tracking`.

    It counts this process and the ended ones that it started. A wall clock counts other programs of the machine, too.
    Loading and validation are left out. So is a worker's last epoch, which has not ended by then: `--num_workers 0`
    counts all.

    Args:
        run_name: folder of the curves.
        iteration_log: false for an evaluator, which has no such curve.
    """

    def __init__(self, run_name: str, iteration_log: bool = True, **others: object):
        self.folder, self.wanted = run_name, iteration_log

    def attach(self, engine: Engine) -> None:
        """Engines call the rest."""
        if self.wanted:
            engine.add_event_handler(Events.EPOCH_STARTED, self._begin)
            engine.add_event_handler(Events.ITERATION_COMPLETED, self._count)
            engine.add_event_handler(Events.EPOCH_COMPLETED, self._end)

    def _begin(self, engine: Engine) -> None:
        self.before = sum(os.times()[:4])

    def _count(self, engine: Engine) -> None:
        self.after = sum(os.times()[:4])

    def _end(self, engine: Engine) -> None:
        with SummaryWriter(self.folder) as curves:
            curves.add_scalar("cpu_minutes", (self.after - self.before) / 60, engine.state.epoch)


def training_minutes(trained: TrainedVariants, stage: Stage) -> float:
    """CPU time of a training and its earlier parts, by the curves for TensorBoard; an epoch done again counts once."""
    epochs: dict[int, float] = {}
    for file in sorted(trained.folder(stage).glob("*/events.*")):
        curves = EventAccumulator(str(file), {"scalars": 0})
        curves.Reload()
        if "cpu_minutes" in curves.Tags()["scalars"]:
            epochs |= {event.step: event.value for event in curves.Scalars("cpu_minutes")}
    return sum(epochs.values()) + (0.0 if stage.start is None else training_minutes(trained, stage.start))


def parameters(config: ConfigParser, run_id: str) -> float:
    """Parameters of the networks that make a result in an evaluation, in 1e6; of stage 1 where it alone was trained."""
    with torch.device("meta"):
        network = config.get_parsed_content("network_def")
    named = (network.apn if run_id == "stage1" else network).named_parameters()
    return sum(p.numel() for name, p in named if not name.startswith(ERROR)) / 1e6


def _resident(name: str) -> float:
    """Memory of this process in MiB, by Linux: the present `VmRSS`, or the largest, `VmHWM`; NaN on other systems."""
    if not (PROCESS / "clear_refs").exists():
        return math.nan
    lines = dict(line.split(":", 1) for line in (PROCESS / "status").read_text().splitlines())
    return int(lines[name].split()[0]) / 1024


def _measured(trained: TrainedVariants, size: str) -> tuple[float, float, float, str]:
    """Seconds of either network, peak memory in MiB and the device, in a process of its own."""
    config = trained.of_size(size).config("evaluate.yaml", [], {})
    device = config.get_parsed_content("device")
    cuda = torch.device(device).type == "cuda"
    before = _resident("VmRSS")
    if not cuda and not math.isnan(before):
        (PROCESS / "clear_refs").write_text("5")  # the peak counts from here on, without the imports
    network = config.get_parsed_content("network_def").to(device).eval()
    seconds = []
    for call in plane_calls(network):
        times = []
        for _ in range(REPEATS + 1):  # the first one warms up
            begin = time.perf_counter()
            call()
            if cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        seconds.append(sorted(times[1:])[REPEATS // 2])
    peak = torch.cuda.max_memory_allocated() / 2**20 if cuda else _resident("VmHWM") - before
    return seconds[0], seconds[1], peak, str(device)


def costs(trained: TrainedVariants) -> pd.DataFrame:
    """A row for each size of `configs/models/`: time and memory of one plane of 128 x 128 pixels, with random weights.

    Memory is a GPU's, weights included; on a CPU the growth of the process, on Linux alone.
    """
    rows = []
    for size in trained.sizes:
        config = trained.of_size(size).config("evaluate.yaml", [], {})
        with torch.device("meta"):
            network = config.get_parsed_content("network_def")
        parts = [sum(p.numel() for p in part.parameters()) / 1e6 for part in (network.apn, network.velocity)]
        work = [multiply_adds(call) / 1e9 for call in plane_calls(network)]
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            stage1, velocity, peak, device = alone.submit(_measured, trained, size).result()
        rows.append(
            {
                "size": size, "parameters (M)": sum(parts), "stage 1 (M)": parts[0], "velocity (M)": parts[1],
                "multiply-adds (G)": sum(work), "stage 1 (G)": work[0], "velocity (G)": work[1],
                "peak memory (MiB)": peak, "stage 1 (s)": stage1, "velocity (s)": velocity, "device": device,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)
