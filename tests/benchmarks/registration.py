"""Whether two stacks of one head are registered, and two of different heads told apart: tables of docs/benchmarks.md.

python -m tests.benchmarks.registration DATALIST [--section training] [--pairs 20] [--motion 15 15] [--region SCAN ...]

Two stacks lie along the first two sharp axes of a volume, with the gain and the shading of configs/evaluate.yaml and a
noise of 1 %. Their cubic splines are registered: they take a second, and are a harder case than what networks make of
the stacks. Pairs of one head take the volumes in turn, with a motion of their own. Pairs of two heads are those of all
people, with a T1w volume of each. Scans of another region, if there are any, are paired with the heads in turn: the
centre of the scan is put where the head's is, for else they may share nothing.
"""

import argparse
from itertools import combinations, islice
from pathlib import Path

import numpy as np
import torch
from monai.data import MetaTensor

from scripts.evaluate.paired import read_volume
from scripts.evaluate.several import several_stacks
from scripts.evaluate.tables import markdown
from scripts.rebuild.registration import ALIKE, angle_and_shift
from scripts.rebuild.together import Stack, matched
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import fine_affine, voxel_spacing
from scripts.stack.interpolation import interpolate
from scripts.train.datasets import sharp_volumes

CLOSE = 0.2  # degrees and mm
SHADING, NOISE = 0.2, 0.01


def stacks_of(item, options, seed):
    """Two stacks of a head, and the motion between them."""
    sharp = read_volume(item["label"])
    affine, volume = np.asarray(sharp.affine, dtype=float), sharp.as_tensor()[0]
    rng = np.random.default_rng(seed)
    axes = item["sharp_axes"][:2]
    drawn = several_stacks(affine, volume, axes, options.thickness, rng, options.motion, SHADING, NOISE)
    stacks = []
    for thick, _ in drawn:
        spline = interpolate(thick.as_tensor()[0], Acquisition.of(thick), "cubic")
        stacks.append(Stack(thick[0], MetaTensor(spline, affine=torch.from_numpy(affine))))
    return stacks, drawn[1][1]


def name_of(item):
    """Person and contrast."""
    return f"{item['subject']} {item['contrast']}"


def one_head(items, options):
    """Yields a line for each pair of one head, and how far its motion is wrong."""
    for number in range(options.pairs):
        item = items[number % len(items)]
        (first, second), there = stacks_of(item, options, number)
        part = matched(first, second)
        centre = np.asarray(first.rebuilt.affine) @ [*((np.array(first.rebuilt.shape) - 1) / 2), 1]
        drawn, wrong = (angle_and_shift(m, centre[:3]) for m in (there, np.linalg.inv(there) @ part.motion))
        numbers = (*drawn, *wrong, part.likeness)
        forms = ("{:.1f}", "{:.1f}", "{:.3f}", "{:.3f}", "{:.2f}")
        yield (name_of(item), *(form.format(value) for form, value in zip(forms, numbers))), max(wrong)


def two_heads(items, options):
    """Yields a line for each pair of two heads, and its likeness."""
    people = {item["subject"]: item for item in items if item["contrast"] == "T1w"}
    stacks = {name: stacks_of(item, options, seed)[0] for seed, (name, item) in enumerate(people.items())}
    for one, other in islice(combinations(stacks, 2), options.pairs):
        alike = matched(stacks[one][0], stacks[other][1]).likeness
        yield (one, other, f"{alike:.2f}"), alike


def region(path, centre):
    """A thick scan, whose largest spacing is that of its slices, with its centre at a point; and its cubic spline."""
    scan = read_volume(path)
    affine, shape, edges = np.asarray(scan.affine, dtype=float), np.array(scan.shape[1:]), voxel_spacing(scan.affine)
    affine[:3, 3] = centre - affine[:3, :3] @ ((shape - 1) / 2)
    axis, spacing, target = int(edges.argmax()), float(edges.max()), float(edges.min())
    acquisition = Acquisition.stack(axis, int(shape[axis]), spacing, spacing, target)
    measured = MetaTensor(scan.as_tensor()[0].float(), affine=torch.from_numpy(affine))
    acquisition.attach(measured)
    fine = fine_affine(affine, axis, acquisition.slice_count, acquisition.fine_count, target)
    spline = interpolate(measured.as_tensor(), acquisition, "cubic")
    return Stack(measured, MetaTensor(spline, affine=torch.from_numpy(fine)))


def head_and_region(items, options):
    """Yields a line for each pair of a head and another region, and its likeness."""
    for number in range(options.pairs):
        item, path = items[number % len(items)], options.region[number % len(options.region)]
        head = stacks_of(item, options, number)[0][0]
        centre = np.asarray(head.rebuilt.affine) @ [*((np.array(head.rebuilt.shape) - 1) / 2), 1]
        alike = matched(head, region(path, centre[:3])).likeness
        yield (name_of(item), Path(path).name, f"{alike:.2f}"), alike


def print_apart(other, pairs):
    """Prints a table of pairs that do not belong together, and how many are told apart."""
    lines, alike = zip(*pairs)
    print(markdown(dict(zip(("head", other, "likeness"), zip(*lines)))))
    print(f"\n{sum(one < ALIKE for one in alike)} of {len(alike)} pairs are told apart: likeness below {ALIKE}.\n")


def main():
    """Prints the tables, and how many pairs are right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datalist")
    parser.add_argument("--section", default="validation")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--motion", type=float, nargs=2, default=(15.0, 15.0), metavar=("DEGREES", "MM"))
    parser.add_argument("--thickness", type=float, default=5.0, help="mm")
    parser.add_argument("--region", nargs="+", default=[], metavar="SCAN", help="thick scans of another region")
    options = parser.parse_args()
    items = [item for item in sharp_volumes(options.datalist, options.section) if len(item["sharp_axes"]) > 1]
    lines, wrong = zip(*one_head(items, options))
    headings = ("head", "turned (degrees)", "moved (mm)", "wrong (degrees)", "wrong (mm)", "likeness")
    print(markdown(dict(zip(headings, zip(*lines)))))
    right = sum(error <= CLOSE for error in wrong)
    print(f"\n{right} of {len(wrong)} pairs are within {CLOSE} degrees and {CLOSE} mm.\n")
    print_apart("other head", two_heads(items, options))
    if options.region:
        print_apart("other region", head_and_region(items, options))


if __name__ == "__main__":
    main()
