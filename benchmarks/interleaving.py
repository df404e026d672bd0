"""Slices that do not lie where the file says: evidence in stacks as they are, and put into other orders.

python -m benchmarks.interleaving SCAN [SCAN ...]

Each SCAN is a file, or a folder with one DICOM series. Sharp volumes become slices of 3 and of 5 mm along each axis. A
line for each kind of `stack.interleaving.clues`: its least value in right stacks, its values in wrong ones, the limit,
wrong stacks that are refused by any clue, and right ones that are refused by this one.
"""

from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from benchmarks import parser_of
from scripts.evaluate.tables import markdown
from scripts.inputs.scans import scan_named
from scripts.stack.grid import voxel_spacing
from scripts.stack.intensity import intensity_range
from scripts.stack.interleaving import ORDERS, clues, dimmed
from scripts.train.simulation import slices_of
from scripts.train.truth import read_volume

THICKNESSES = (3.0, 5.0)  # mm
CUBES = 1.5  # the longest edge of a voxel over the shortest
KINDS = ("by turns", "no order", "a part backwards", "a part mirrored")


def stacks_of(path):
    """Stacks of a scan: `(X, Y, Z)`, and the axis of the slices."""
    scan = read_volume(scan_named(path, "SCAN").source)
    edges = voxel_spacing(scan.affine)
    if edges.max() > CUBES * edges.min():
        yield scan.as_tensor()[0], int(edges.argmax())
        return
    for axis in range(3):
        for thickness in THICKNESSES:
            yield slices_of(scan, axis, thickness).as_tensor()[0], axis


def disordered(stack, axis, random):
    """The stack put wrongly, and the kind: by turns, in no order, its latter half backwards or mirrored."""
    slices, half = stack.movedim(axis, 0), stack.shape[axis] // 2
    count, (first, last) = len(slices), slices.split([half, stack.shape[axis] - half])
    wrong = [(KINDS[0], slices[order(count)]) for order in ORDERS.values()]
    wrong += [(KINDS[1], slices[random.permutation(count)]), (KINDS[2], torch.cat([first, last.flip(0)]))]
    wrong += [(KINDS[3], torch.cat([first, last.flip(along)])) for along in ((1,), (2,), (1, 2))]
    for kind, one in wrong:
        yield kind, one.movedim(0, axis)


def evidence(stack, axis):
    """The clue of each kind; that of mirrored parts may be none."""
    return dict(zip(KINDS, clues(stack, axis, intensity_range(stack))))


def main():
    """Prints the table."""
    parser = parser_of(__doc__)
    parser.add_argument("scans", nargs="+", type=Path)
    right, wrong, told, refused = (defaultdict(list) for _ in range(4))
    bright, random = list[float](), np.random.default_rng(0)
    for path in tqdm(parser.parse_args().scans):
        for stack, axis in stacks_of(path):
            bright.append(dimmed(stack, axis, intensity_range(stack))[1])
            for kind, clue in evidence(stack, axis).items():
                right[kind].append(clue.value)
                refused[kind].append(clue.value < clue.limit)
                if refused[kind][-1]:
                    tqdm.write(f"{path.name}, axis {axis}: {clue.said} ({clue.value:.2f})")
            for kind, one in disordered(stack, axis, random):
                found = evidence(one, axis)
                told[kind].append(any(clue.value < clue.limit for clue in found.values()))
                if kind in found:
                    wrong[kind].append(found[kind].value)
    table = {name: [] for name in ("slices", "right, least", "wrong", "wrong: refused", "right: refused")}
    for kind in KINDS:
        row = (
            kind,
            f"{min(right[kind], default=np.nan):.2f}",
            f"{min(wrong[kind]):.2f} to {max(wrong[kind]):.2f}",
            f"{sum(told[kind])} of {len(told[kind])}",
            f"{sum(refused[kind])} of {len(bright)}",
        )
        for column, value in zip(table.values(), row):
            column.append(value)
    print(markdown(table))
    print(f"Every other slice of {len(bright)} right stacks is {min(bright):.3f} to {max(bright):.3f} times as bright.")


if __name__ == "__main__":
    main()
