"""Seconds and memory of a head of 256 x 256 x 30 voxels at 5 mm: torch, Node and Chromium on the same cores.

taskset -c 0 python -m benchmarks.web [--slices 30] [--only Node]

It takes as many threads as it may use cores. The page must have been built (docs/web.md).
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nibabel as nib

from tests.bundle.test_web import NODE, WEB, axial, head
from tests.bundle.test_web_page import Page, Server

TORCH = "import sys, torch, drift_mri; torch.set_num_threads({}); drift_mri.rebuild(sys.argv[1], config=sys.argv[2])"


def command(*given):
    """Seconds of wall clock and of processors of a process, and its memory in GiB."""
    start = time.perf_counter()
    process = subprocess.Popen(given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=WEB.parents[1])
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{given} ended with {status}.")
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def chromium(folder, path, threads):
    """Seconds of wall clock from the button to the views, by the page itself."""
    with Server(WEB / "dist") as server, Page(folder, server.address, threads) as page:
        page.drop(path)
        start = time.perf_counter()
        page.click("[type=submit]")
        page.wait("document.querySelector('#save').checkVisibility()", 3000)
        return time.perf_counter() - start, None, None


def main():
    """Prints a row of the table for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=30)
    parser.add_argument("--only", help="a part of the name of what is run")
    options = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "head.nii.gz"
        nib.save(nib.Nifti1Image(head((256, 256, options.slices)), axial(5.0)), path)
        node = (NODE, WEB / "rebuild.mjs", path, folder / "out.nii.gz", f"--threads={threads}")
        kinds = {kind: folder / f"{kind}.yaml" for kind in ("float32", "bfloat16")}
        for kind, config in kinds.items():
            config.write_text(f"bfloat16: {str(kind == 'bfloat16').lower()}\n")
        runs = {
            "Node": lambda: command(*node),
            "Chromium": lambda: chromium(folder, path, threads),
            "torch, float32": lambda: command(sys.executable, "-c", TORCH.format(threads), path, kinds["float32"]),
            "torch, bfloat16": lambda: command(sys.executable, "-c", TORCH.format(threads), path, kinds["bfloat16"]),
        }
        print(f"{threads} threads\n\n| | s | s of processors | GiB |\n| --- | --- | --- | --- |")
        for what, run in runs.items():
            if (options.only or "") in what:
                numbers = ("" if number is None else f"{number:.1f}" for number in run())
                print(f"| {what} | {' | '.join(numbers)} |", flush=True)


if __name__ == "__main__":
    main()
