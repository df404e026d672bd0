"""The time of the whole command, from file to file, and of its parts.

python -m benchmarks.speed command [--heads 4] [--jobs 2, or other overrides of configs/inference.yaml]
python -m benchmarks.speed parts [--input SCAN --guide GUIDE, or other overrides]

Without --input the scan is a textured ellipsoid in noisy air, 256 x 256 x 30 voxels of 1 x 1 x 5 mm. `command` counts
seconds, CPU seconds and peak memory of `python -m monai.bundle run`, `parts` CPU seconds in this process.
"""

import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
from monai.bundle import ConfigWorkflow

from benchmarks import parser_of
from scripts.inputs.transforms import LoadScand
from scripts.method.networks import Drift
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.outputs import one_scan, results
from scripts.rebuild import guide, inferer, stack_inferer
from scripts.rebuild.device import default_device

SHAPE = (256, 256, 30)
PARTS = (  # owner and name of the function that does a part, and the part
    (LoadScand, "__call__", "reading"),
    (guide, "registered", "registering a guide"),
    (SliceProjectionNetwork, "forward", "stage 1"),
    (Drift, "refine", "the flow's step"),
    (inferer, "weigh_families", "both families as one volume"),
    (inferer, "deblock", "deblocking"),
    (stack_inferer, "reconcile", "reconciling"),
    (results, "write", "writing"),
    (one_scan, "describe", "the record, with its pictures and step ratio"),
)


def save_heads(folder, heads):
    """So many scans of a head: an ellipsoid of 150 x 200 mm that fills the slices' stack, in noisy air."""
    axes = np.meshgrid(*(np.linspace(-1, 1, n) for n in SHAPE), indexing="ij")
    radius = sum((a / r) ** 2 for a, r in zip(axes, (150 / 256, 200 / 256, 1.05)))
    for k in range(heads):
        generator = np.random.default_rng(k)
        head = 20 * generator.random(SHAPE) + 800 * (radius < 1) * (0.5 + 0.5 * generator.random(SHAPE))
        nib.save(nib.Nifti1Image(head.astype(np.int16), np.diag([1.0, 1.0, 5.0, 1.0])), folder / f"head{k}.nii.gz")


def time_command(options):
    """Prints a row for the command with options, in a process of its own."""
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "monai.bundle", "run", "--config_file", "configs/inference.yaml", *words]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    took, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    print("| seconds | CPU seconds | peak memory (GiB) |\n|---|---|---|")
    print(f"| {took:.0f} | {used.ru_utime + used.ru_stime:.0f} | {used.ru_maxrss / 2**20:.2f} |")


def time_parts(options):
    """Prints the CPU seconds of each part of a rebuild in this process, which has made its imports before."""
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

    for one in PARTS:
        watch(*one)
    start = time.process_time()
    workflow = ConfigWorkflow("configs/inference.yaml", workflow_type="inference", **options)
    workflow.initialize()
    workflow.run()
    spent["all else"] = time.process_time() - start - sum(list(spent.values())[1:])
    print("| part | CPU seconds |\n|---|---|")
    for part, took in spent.items():
        print(f"| {part} | {took:.1f} |")


def main():
    """Prints one table."""
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=["command", "parts"])
    parser.add_argument("--heads", type=int, default=1, help="scans in the folder, without --input (default: 1)")
    arguments, words = parser.parse_known_args()
    options = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2]))
    threads = torch.get_num_threads()
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {threads} threads, {default_device()}"
    )
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "in"
        given.mkdir()
        if "input" not in options:
            save_heads(given, arguments.heads)
        options = {"input": str(given), "output_dir": str(Path(folder) / "out"), **options}
        {"command": time_command, "parts": time_parts}[arguments.what](options)


if __name__ == "__main__":
    main()
