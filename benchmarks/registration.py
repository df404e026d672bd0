"""Whether two stacks of one head are registered, and two of different heads kept apart: tables of docs/benchmarks.md.

python -m benchmarks.registration DATALIST [--section training] [--pairs 20] [--motion 15 15] [--region SCAN ...]
python -m benchmarks.registration DATALIST --contrasts [--others DATALIST] ...

Two stacks lie along the first two sharp axes of a volume, with the gain and the shading of configs/evaluate.yaml and a
noise of 1 %. Their cubic splines are registered: they take a second, and are a harder case than what networks make of
the stacks. Pairs of one head take the volumes in turn, with a motion of their own. Pairs of two heads are those of all
people, with a T1w volume of each. Scans of another region, if there are any, are paired with the heads in turn: the
centre of the scan is put where the head's is, for else they may share nothing.

With --contrasts a thick stack of one contrast, 3 or 5 mm, is paired with a volume of another: sharp, or a stack of
--thickness along another axis; whole, without its outer 8 mm, or without its face. A distance that was there before a
motion was drawn, found on the sharp volumes, is no error. Volumes of one "subject" are contrasts of one head. Pairs of
two heads are put centre on centre; guides come from --others too.
"""

from itertools import combinations, count, islice, permutations
from pathlib import Path

import numpy as np
import torch
from monai.data import MetaTensor
from scipy import ndimage

from benchmarks import parser_of
from scripts.evaluate.tables import markdown
from scripts.paper.several import add_noise, random_gain, random_motion, several_stacks
from scripts.rebuild.registration import ALIKE, angle_and_shift, registered, resolution
from scripts.rebuild.stacks import Stack
from scripts.rebuild.together import matched
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import centre, voxel_spacing
from scripts.stack.intensity import data_range
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from scripts.stack.tissue import head_mask
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import slices_of
from scripts.train.truth import read_volume

CLOSE = 0.2  # degrees and mm
SHADING, NOISE = 0.2, 0.01
THIRD = 0.33  # mm and degrees, of guides
FORMS = "whole", "masked", "defaced"


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
        stacks.append(Stack(Slices.of(thick), MetaTensor(spline, affine=torch.from_numpy(affine))))
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
        point = centre(first.rebuilt.affine, first.rebuilt.shape)
        drawn, wrong = (angle_and_shift(m, point) for m in (there, np.linalg.inv(there) @ part.motion))
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


def region(path, point):
    """A thick scan, whose largest spacing is that of its slices, with its centre at a point; and its cubic spline."""
    scan = read_volume(path)
    affine, shape, edges = np.asarray(scan.affine, dtype=float), np.array(scan.shape[1:]), voxel_spacing(scan.affine)
    affine[:3, 3] = point - affine[:3, :3] @ ((shape - 1) / 2)
    axis, spacing, target = int(edges.argmax()), float(edges.max()), float(edges.min())
    acquisition = Acquisition.stack(axis, int(shape[axis]), spacing=spacing, thickness=spacing, target=target)
    measured = Slices(scan.as_tensor()[0].float(), acquisition, torch.from_numpy(affine))
    spline = interpolate(measured.array, acquisition, "cubic")
    return Stack(measured, MetaTensor(spline, affine=measured.fine_affine))


def head_and_region(items, options):
    """Yields a line for each pair of a head and another region, and its likeness."""
    for number in range(options.pairs):
        item, path = items[number % len(items)], options.region[number % len(options.region)]
        head = stacks_of(item, options, number)[0][0]
        alike = matched(head, region(path, centre(head.rebuilt.affine, head.rebuilt.shape))).likeness
        yield (name_of(item), Path(path).name, f"{alike:.2f}"), alike


def other_contrasts(items):
    """Pairs of a scan and a guide of one head and two contrasts, head by head in turn."""
    heads = {}
    for one, other in permutations(items, 2):
        if one["subject"] == other["subject"] and one["contrast"] != other["contrast"]:
            heads.setdefault(one["subject"], []).append((one, other))
    for number in count():
        for pairs in heads.values():
            yield pairs[number * 5 % len(pairs)]  # 5: scans and guides change at once


def thick(volume, axis, thickness, rng):
    """The cubic spline of a noisy stack of a volume, and the stack."""
    stack = slices_of(MetaTensor(volume.as_tensor()[None], affine=volume.affine), axis, thickness)[0]
    add_noise(stack, NOISE * data_range(volume.as_tensor()), rng)
    slices = Slices.of(stack)
    return Stack(slices, MetaTensor(interpolate(slices.array, slices.acquisition, "cubic"), affine=volume.affine))


def cut(volume, form):
    """A volume whole, masked or defaced, by its head."""
    array, edges = volume.as_tensor(), voxel_spacing(volume.affine)
    head = head_mask(array).numpy()
    if form == "masked":
        kept = ndimage.distance_transform_edt(head, edges) > 8
    elif form == "defaced":
        places = np.tensordot(np.asarray(volume.affine)[:3, :3], np.indices(head.shape), 1)
        front, height = (places[axis] - places[axis][head].mean() for axis in (1, 2))
        kept = ~((front > 0.25 * np.ptp(front[head])) & (height < 0))
    else:
        return volume
    return MetaTensor(array.where(torch.from_numpy(kept), array.min()), affine=volume.affine)


def sharp(item):
    """The volume of an item, `(X, Y, Z)`."""
    return read_volume(item["label"])[0].float()


def middle(volume):
    """The world coordinates of a volume's head's centre."""
    place = ndimage.center_of_mass(head_mask(volume.as_tensor()).numpy())
    return (np.asarray(volume.affine) @ [*place, 1])[:3]


def guided(scan, guide, number, options, recentred):
    """A scan, a guide that moved, its motion, the registration of their slices, and the cells of a line."""
    rng = np.random.default_rng(number)
    here, there = sharp(scan), sharp(guide)
    if recentred:
        there.affine[:3, 3] += torch.from_numpy(middle(here) - middle(there))
    drawn = random_motion(rng, *options.motion, middle(there))
    index = np.linalg.inv(np.asarray(there.affine)) @ np.linalg.inv(drawn) @ np.asarray(there.affine)
    low = float(there.min())
    turned = ndimage.affine_transform(there.numpy(), index[:3, :3], index[:3, 3], order=3, mode="constant", cval=low)
    turned = torch.from_numpy(turned).clamp(min=low) * random_gain(rng, np.asarray(there.affine), there.shape, SHADING)
    form, mm, axis = FORMS[number % 3], (3.0, 5.0)[number // 2 % 2], scan["sharp_axes"][number % 2]
    other = guide["sharp_axes"][(number + 1) % 2]
    moved = cut(MetaTensor(turned, affine=there.affine), form)
    stack, beside = thick(here, axis, mm, rng), thick(moved, other, options.thickness, rng)
    if number // 3 % 2:
        moved, measured, kind = beside.rebuilt, [stack.measured, beside.measured], f"{options.thickness:g} mm"
    else:
        add_noise(moved, NOISE * data_range(moved.as_tensor()), rng)
        measured, kind = [stack.measured], "sharp"
    apart = resolution(stack.rebuilt, measured)
    found = registered(stack.rebuilt, moved, stack.head, apart)
    return here, there, drawn, found, (f"{name_of(scan)} {mm:g} mm", f"{name_of(guide)} {kind}", form)


def one_head_two_contrasts(items, options):
    """Yields a line for each scan and guide of one head, how far its motion is wrong, and its likeness."""
    rest = {}
    for number, (scan, guide) in enumerate(islice(other_contrasts(items), options.pairs)):
        here, there, drawn, (found, alike), names = guided(scan, guide, number, options, recentred=False)
        pair = scan["label"], guide["label"]
        if pair not in rest:
            rest[pair] = registered(here, there, head_mask(here.as_tensor()), np.zeros(3))[0]
        centre = middle(here)
        numbers = [angle_and_shift(m, centre) for m in (drawn, rest[pair], np.linalg.inv(drawn @ rest[pair]) @ found)]
        wrong = max(numbers[-1])
        yield (*names, *(f"{value:.2f}" for pair in numbers for value in pair), f"{alike:.2f}"), (wrong, alike)


def two_heads_two_contrasts(items, others, options):
    """Yields a line for each scan and guide of two heads, and its likeness."""
    pairs = [(a, b) for a in items for b in others if a["subject"] != b["subject"] and a["contrast"] != b["contrast"]]
    order = np.random.default_rng(0).permutation(len(pairs))[: options.pairs]
    for number, place in enumerate(order):
        *_, (_, alike), names = guided(*pairs[place], number, options, recentred=True)
        yield (*names, f"{alike:.2f}"), alike


def head_and_region_two_contrasts(items, options):
    """Yields a line for each head and another region, and its likeness."""
    for number in range(options.pairs):
        item, path = items[number % len(items)], options.region[number % len(options.region)]
        here = sharp(item)
        stack = thick(here, item["sharp_axes"][number % 2], (3.0, 5.0)[number // 2 % 2], np.random.default_rng(number))
        other = region(path, middle(here))
        apart = resolution(stack.rebuilt, [stack.measured, other.measured])
        _, alike = registered(stack.rebuilt, other.rebuilt, stack.head, apart)
        yield (name_of(item), Path(path).name, f"{alike:.2f}"), alike


def print_lines(headings, lines):
    """Prints a table line by line, as its lines come, and returns the other facts of each."""
    known = []
    print("| " + " | ".join(headings) + " |\n|" + "---|" * len(headings))
    for line, one in lines:
        print("| " + " | ".join(line) + " |", flush=True)
        known.append(one)
    return known


def print_contrasts(items, others, options):
    """Prints the tables of two contrasts."""
    headings = "scan, guide, form, turned, moved, apart before, mm, wrong (degrees), wrong (mm), likeness".split(", ")
    wrong, alike = zip(*print_lines(headings, one_head_two_contrasts(items, options)))
    print(f"\n{sum(one <= THIRD for one in wrong)} of {len(wrong)} are within {THIRD} degrees and mm; ", end="")
    print(f"{sum(one >= ALIKE for one in alike)} are taken for one head: likeness of {ALIKE} or more.\n")
    alike = print_lines(["scan", "guide", "form", "likeness"], two_heads_two_contrasts(items, others, options))
    print(f"\n{sum(one < ALIKE for one in alike)} of {len(alike)} pairs of two heads are told apart.\n")
    if options.region:
        alike = print_lines(["head", "other region", "likeness"], head_and_region_two_contrasts(items, options))
        print(f"\n{sum(one < ALIKE for one in alike)} of {len(alike)} other regions are told apart.\n")


def print_apart(other, pairs):
    """Prints a table of pairs that do not belong together, and how many are kept apart."""
    lines, alike = zip(*pairs)
    print(markdown(dict(zip(("head", other, "likeness"), zip(*lines)))))
    print(f"\n{sum(one < ALIKE for one in alike)} of {len(alike)} pairs are told apart: likeness below {ALIKE}.\n")


def main():
    """Prints the tables, and how many pairs are right."""
    parser = parser_of(__doc__)
    parser.add_argument("datalist")
    parser.add_argument("--section", default="validation")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--motion", type=float, nargs=2, default=(15.0, 15.0), metavar=("DEGREES", "MM"))
    parser.add_argument("--thickness", type=float, default=5.0, help="mm")
    parser.add_argument("--region", nargs="+", default=[], metavar="SCAN", help="thick scans of another region")
    parser.add_argument("--contrasts", action="store_true", help="pairs of two contrasts")
    parser.add_argument("--others", help="a datalist: guides of other people, of all its sections")
    options = parser.parse_args()
    items = [item for item in sharp_volumes(options.datalist, options.section) if len(item["sharp_axes"]) > 1]
    if options.contrasts:
        others = sharp_volumes(options.others, "all") if options.others else items
        print_contrasts(items, [item for item in others if len(item["sharp_axes"]) > 1], options)
        return
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
