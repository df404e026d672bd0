"""The noise that real slices show as they are, and with zeros in k-space: a table of docs/benchmarks_appendix.md.

python -m benchmarks.zero_filling SCAN [SCAN ...] [--slices 12]

Filling with zeros makes pixels finer and keeps the noise. So the estimate should stay.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch

from scripts.evaluate.tables import markdown
from scripts.stack.grid import voxel_spacing
from scripts.stack.intensity import intensity_range
from scripts.stack.noise import noise_of
from scripts.stack.tissue import head_mask
from scripts.train.truth import read_volume

FACTORS = (1.0, 1.25, 1.5, 1.8, 2.0, 2.5)


def filled(slices, factor):
    """Slices `(H, W, S)` with finer pixels along both in-plane axes, as scanners make them: magnitudes."""
    sizes = [round(n * factor) for n in slices.shape[:2]]
    spectrum = np.fft.fftshift(np.fft.fft2(slices, axes=(0, 1)), axes=(0, 1))
    ends = [(n // 2 - m // 2, n - m - (n // 2 - m // 2)) for n, m in zip(sizes, slices.shape)]
    wide = np.fft.ifftshift(np.pad(spectrum, [*ends, (0, 0)]), axes=(0, 1))
    return np.abs(np.fft.ifft2(wide, axes=(0, 1))) * math.prod(sizes) / math.prod(slices.shape[:2])


def found(slices):
    """The noise, in % of the range of tissue."""
    volume = torch.from_numpy(slices.astype(np.float32))
    tissue_range = intensity_range(volume)
    return 100 * noise_of(volume - tissue_range.low, 2, head_mask(volume, tissue_range)).deviation / tissue_range.extent


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scans", nargs="+", type=Path)
    parser.add_argument("--slices", type=int, default=12, help="in the middle of a scan (default: 12)")
    options = parser.parse_args()
    rows = []
    for path in options.scans:
        scan = read_volume(path)
        axis = int(np.argmax(voxel_spacing(scan.affine)))
        stack = scan.as_tensor()[0].movedim(axis, 2).numpy().astype(np.float64)
        first = (stack.shape[2] - options.slices) // 2
        middle = stack[..., max(first, 0) : max(first, 0) + options.slices]
        rows.append([path.name, *(f"{found(filled(middle, factor)):.2f}" for factor in FACTORS)])
        print(*rows[-1], flush=True)
    columns = ["scan", *(f"{factor:g} times" for factor in FACTORS)]
    print(markdown({name: list(column) for name, column in zip(columns, zip(*rows))}))


if __name__ == "__main__":
    main()
