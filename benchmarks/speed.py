"""Speed and memory of inference: the tables of docs/benchmarks.md.

python -m benchmarks.speed networks    windows per second and FLOP/s against the machine's convolution ceiling
python -m benchmarks.speed volumes     seconds and peak memory against voxels, and against a plain loop
python -m benchmarks.speed command     the whole command, from file to file, on a head of 256 x 256 x 30 voxels
python -m benchmarks.speed parts       CPU seconds of each part of that command
python -m benchmarks.speed jobs        a folder of four such heads by --jobs 1 and 2, in turn
python -m benchmarks.speed guided DATALIST   the whole command on real heads, without and with a guide, in turn

Volumes are noise from edge to edge, so that nothing is skipped, except for `command`, where a head stands in air.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
from monai.bundle import ConfigWorkflow
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import CKPT_PATH, deployed, shipped_network
from scripts.inputs.transforms import LoadScand
from scripts.method.networks import Drift
from scripts.method.schedule import ais_steps, euler_times
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.outputs import scan as one_scan
from scripts.paper.guided import drawn_guide
from scripts.rebuild import inferer, stack_inferer
from scripts.rebuild.device import default_device, fast_bfloat16
from scripts.rebuild.rebuilder import Rebuilder
from scripts.rebuild.windows import window_size
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.slices import Slices
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import simulate
from scripts.train.truth import read_volume

N_MAX = 5  # of the plain loop
WINDOW, STRIDE = 128, 96
THICKNESS = 5.0  # mm, from which the networks make 1 mm


def network(size=None, device="cpu"):
    """The deployed network, or one of a size of configs/models with random weights."""
    return shipped_network(CKPT_PATH if size is None else None, size).to(device)


def calls(drift, batch, device):
    """Name -> a call of either network for so many windows of the result."""
    x = torch.randn(batch, 1, WINDOW, WINDOW, device=device)
    lengths, t = torch.tensor([[THICKNESS, 1.0, THICKNESS, 1.0]], device=device), torch.zeros(1, device=device)
    c = lengths[:, :2]
    if drift.apn.lengths == 2:
        first = partial(drift.apn, x, c)
    else:
        places = (torch.arange(WINDOW, device=device) + 0.5) / THICKNESS - 0.5
        first = partial(drift.apn, x[:, :, : round(WINDOW / THICKNESS)], lengths, places[None])
    return {"stage 1": first, "velocity": partial(drift.velocity, x, c, t)}


def seconds(function, device, repeats=5):
    """Median over repeats, after one warm-up."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[repeats // 2]


def flops(function):
    """Floating-point operations of convolutions and matrix products."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def ceiling(device, bfloat16):
    """FLOP/s of the fastest of some large convolutions, channels last."""
    best = 0.0
    dtype = torch.bfloat16 if bfloat16 else torch.float32
    for channels, edge in ((64, 128), (128, 64), (256, 32)):
        convolution = torch.nn.Conv2d(channels, channels, 3, padding=1, device=device, dtype=dtype)
        convolution.to(memory_format=torch.channels_last)
        x = torch.randn(8, channels, edge, edge, device=device, dtype=dtype).to(memory_format=torch.channels_last)
        call = partial(convolution, x)
        best = max(best, flops(call) / seconds(call, device))
    return best


def convolution_share(function):
    """Share of the CPU time that a call spends in convolutions."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        function()
        function()
    own = {event.key: event.self_cpu_time_total for event in profiler.key_averages()}
    total = sum(time for name, time in own.items() if name.startswith("aten::"))
    return sum(time for name, time in own.items() if "convolution" in name) / total


@torch.no_grad()
def time_networks(device):
    """Each network, size and precision on batches of windows."""
    print("| size | network | precision | windows/s | GFLOP/s | of the ceiling | convolutions alone, of the ceiling |")
    print("|---|---|---|---|---|---|---|")
    tops = {bf16: ceiling(device, bf16) for bf16 in (False, True)}
    for size, batch in ((None, 8), ("tiny", 8), ("small", 2), ("large", 1)):
        for name, call in calls(network(size, device), batch, device).items():
            work = flops(call)
            for bfloat16, precision in ((False, "float32"), (True, "bfloat16")):
                with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
                    took = seconds(call, device)
                    share = convolution_share(call) if device.type == "cpu" else float("nan")
                rate, top = work / took, tops[bfloat16]
                alone = rate / share / top
                print(
                    f"| {size or 'as shipped'} | {name} | {precision} | {batch / took:.1f} | {rate / 1e9:.0f} "
                    f"| {rate / top:.0%} | {alone:.0%} |",
                    flush=True,
                )
    print(f"\nceiling: {tops[False] / 1e9:.0f} GFLOP/s in float32, {tops[True] / 1e9:.0f} in bfloat16")


def starts(size):
    """First pixels of the windows along an axis."""
    return [*range(0, max(size - WINDOW, 0), STRIDE), max(size - WINDOW, 0)]


@torch.no_grad()
def plain_loop(drift, planes, thickness, steps):
    """Networks of the paper's kind, window by window in float32, nothing shared; seconds for the planes."""
    begin = time.perf_counter()
    for plane in planes:
        result, weight = torch.zeros_like(plane), torch.zeros_like(plane)
        for i in starts(plane.shape[0]):
            for j in starts(plane.shape[1]):
                there = (slice(i, i + WINDOW), slice(j, j + WINDOW))
                result[there] += drift(plane[there][None, None], thickness, euler_times(steps))[0, 0]
                weight[there] += 1
        result /= weight
    return time.perf_counter() - begin


def case(options):
    """A volume in a process of its own: seconds, peak memory and, if asked, the plain loop's seconds."""
    device = default_device()
    shape = options["shape"]
    acquisition = Acquisition.of_truth(2, shape[2], edge=1.0, thickness=options["T"])
    scan = Slices(1000 * torch.rand(*shape[:2], acquisition.slice_count), acquisition)
    drift = network(device=device)
    deployed_inferer = deployed(**{key: options[key] for key in ("roi_size", "both_planes", "n_max", "bfloat16")})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    Rebuilder(drift, deployed_inferer, device)(scan)
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = {"seconds": took, "peak": peak / 2**20, "before": before / 2**20}
    if options.get("plain_planes"):
        plain = network("tiny", "cpu").to(memory_format=torch.contiguous_format)
        planes = 2 * torch.rand(options["plain_planes"], *shape[1:]) - 1
        steps = ais_steps(options["T"], 1.0, N_MAX)
        loop = plain_loop(plain, planes, torch.tensor([[options["T"], 1.0]]), steps)
        families = 2 if options["both_planes"] else 1  # the first two edges are the same
        result["plain"] = loop / options["plain_planes"] * shape[0] * families
    print(json.dumps(result))


def time_volumes(edges, planes):
    """Sizes, thicknesses, windows and precision, each in a process of its own."""
    paper = {"T": THICKNESS, "roi_size": WINDOW, "n_max": 1, "both_planes": False, "bfloat16": False}
    shipped = paper | {"roi_size": window_size("fast"), "both_planes": True, "bfloat16": fast_bfloat16("cpu")}
    head = {"shape": [256, 256, 150]}
    cases = [shipped | {"shape": [edge] * 3} for edge in edges]
    cases += [shipped | {"shape": [256, 256, depth]} for depth in (75, 300)]
    cases += [
        shipped | head | {"plain_planes": planes},
        shipped | head | {"T": 3.0},
        shipped | head | {"both_planes": False},
        shipped | head | {"both_planes": False, "bfloat16": False},
        paper | head | {"bfloat16": True},
        paper | head | {"plain_planes": planes},
    ]
    print("| voxels | T (mm) | N | families | windows | precision | seconds | us/voxel | peak (GiB) | plain / this |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for options in cases:
        command = [sys.executable, "-m", "benchmarks.speed", "case", json.dumps(options)]
        result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        ratio = f"{result['plain'] / result['seconds']:.1f}" if "plain" in result else ""
        print(
            f"| {' x '.join(map(str, options['shape']))} | {options['T']:g} "
            f"| {options['n_max']} | {2 if options['both_planes'] else 1} "
            f"| {'paper' if options['roi_size'] == WINDOW else 'whole'} "
            f"| {'bfloat16' if options['bfloat16'] else 'float32'} | {result['seconds']:.0f} "
            f"| {1e6 * result['seconds'] / np.prod(options['shape']):.1f} | {result['peak']:.2f} | {ratio} |",
            flush=True,
        )


def head_in_air(shape):
    """A textured ellipsoid of 150 x 200 mm that fills the slices' stack, in noisy air."""
    generator = np.random.default_rng(0)
    axes = np.meshgrid(*(np.linspace(-1, 1, n) for n in shape), indexing="ij")
    radius = sum((a / r) ** 2 for a, r in zip(axes, (150 / 256, 200 / 256, 1.05)))
    return (20 * generator.random(shape) + 800 * (radius < 1) * (0.5 + 0.5 * generator.random(shape))).astype(np.int16)


def save_heads(folder, heads):
    """So many scans."""
    folder.mkdir()
    for k in range(heads):
        image = nib.Nifti1Image(head_in_air((256, 256, 30)), np.diag([1.0, 1.0, 5.0, 1.0]))
        nib.save(image, folder / f"head{k}.nii.gz")


def time_parts(overrides):
    """CPU seconds of the parts of a rebuild in this process, which has made its imports before."""
    spent = {"imports": time.process_time()}

    def watch(owner, name, part):
        function = getattr(owner, name)

        def call(*args, **kwargs):
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent[part] = spent.get(part, 0.0) + time.process_time() - start

        setattr(owner, name, call)

    for owner, name, part in (
        (LoadScand, "__call__", "reading"),
        (SliceProjectionNetwork, "forward", "stage 1"),
        (Drift, "refine", "the flow's step"),
        (inferer, "weigh_families", "both families as one volume"),
        (inferer, "deblock", "deblocking"),
        (stack_inferer, "reconcile", "reconciling"),
        (one_scan, "_write", "writing"),
        (one_scan, "describe", "the record, with its pictures and step ratio"),
    ):
        watch(owner, name, part)
    with tempfile.TemporaryDirectory() as folder:
        save_heads(Path(folder) / "in", 1)
        start = time.process_time()
        options = dict(zip((word.removeprefix("--") for word in overrides[::2]), overrides[1::2]))
        places = {"input": str(Path(folder) / "in"), "output_dir": str(Path(folder) / "out")}
        workflow = ConfigWorkflow("configs/inference.yaml", workflow_type="inference", **places, **options)
        workflow.initialize()
        workflow.run()
        spent["all else"] = time.process_time() - start - sum(list(spent.values())[1:])
    print("| part | CPU seconds |\n|---|---|")
    for part, took in spent.items():
        print(f"| {part} | {took:.1f} |")


def run_bundle(source, overrides):
    """Seconds and CPU seconds of `python -m monai.bundle run` on a scan or a folder."""
    command = [sys.executable, "-m", "monai.bundle", "run", "--config_file", "configs/inference.yaml"]
    with tempfile.TemporaryDirectory() as output:
        command += ["--input", str(source), "--output_dir", output, *overrides]
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime


def time_jobs(rounds=2):
    """Two jobs of half the threads beside one with all."""
    print("| --jobs | four heads (s) |\n|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        save_heads(Path(folder) / "in", 4)
        for jobs in (1, 2) * rounds:
            print(f"| {jobs} | {run_bundle(Path(folder) / 'in', ['--jobs', str(jobs)])[0]:.0f} |", flush=True)


def time_command(overrides):
    """`python -m monai.bundle run` on a scan, with its CPU time and peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        save_heads(Path(folder) / "in", 1)
        took, cpu = run_bundle(Path(folder) / "in", overrides)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    named = " ".join(overrides) or "as shipped"
    print(f"| 256 x 256 x 30, 5 to 1 mm | {named} | {took:.0f} s | {cpu:.0f} CPU s | {peak:.2f} GiB |")


def save(volume, path):
    """`(1, X, Y, Z)` as NIfTI."""
    nib.save(nib.Nifti1Image(volume[0].numpy(), np.asarray(volume.affine)), path)
    return path


def time_guided(datalist, rounds=2):
    """CPU seconds of the command on each volume with guides, in 5 mm slices: without, and with its first, moved."""
    print("| head | without | guided | ratio |\n|---|---|---|---|")
    for item in sharp_volumes(datalist, "validation"):
        for path in item.get("guides", ())[:1]:
            sharp, axis = read_volume(item["label"]), item["sharp_axes"][0]
            edge = float(voxel_spacing(sharp.affine)[axis])
            thick = simulate(sharp, Acquisition.of_truth(axis, sharp.shape[1 + axis], edge=edge, thickness=THICKNESS))
            guide = drawn_guide(read_volume(path), np.random.default_rng(0), (5.0, 5.0), 0.2, 0.01)
            with tempfile.TemporaryDirectory() as folder:
                scan, beside = save(thick, Path(folder) / "scan.nii.gz"), save(guide, Path(folder) / "guide.nii.gz")
                for _ in range(rounds):
                    alone, guided = (run_bundle(scan, more)[1] for more in ([], ["--guide", str(beside)]))
                    name = Path(item["label"]).name
                    print(f"| {name} | {alone:.1f} | {guided:.1f} | {guided / alone:.2f} |", flush=True)


def main():
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["networks", "volumes", "command", "parts", "jobs", "guided", "case"])
    parser.add_argument(
        "options",
        nargs=argparse.REMAINDER,
        help="command, parts: overrides of configs/inference.yaml; guided: a datalist",
    )
    parser.add_argument("--edges", type=int, nargs="+", default=[128, 192, 256])
    parser.add_argument("--plain_planes", type=int, default=8, help="planes that the plain loop is timed on")
    arguments = parser.parse_args()
    if arguments.what == "case":
        return case(json.loads(arguments.options[0]))
    threads = torch.get_num_threads()
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {threads} threads, {default_device()}"
    )
    if arguments.what == "networks":
        time_networks(default_device())
    elif arguments.what == "volumes":
        time_volumes(arguments.edges, arguments.plain_planes)
    elif arguments.what == "jobs":
        time_jobs()
    elif arguments.what == "guided":
        time_guided(*arguments.options)
    elif arguments.what == "parts":
        time_parts(arguments.options)
    else:
        time_command(arguments.options)


if __name__ == "__main__":
    main()
