"""A head that moves between the packages of its stack: a table of docs/benchmarks.md.

python -m benchmarks.motion DATALIST [--people ljubljana-19] [--contrasts T2w FLAIR] [--thickness 3 5]
    [--motion 0 0.3 0.5 1 2 4] [--guide no yes] [--packages 2] [--coverage] [--two_stacks] [--single]
    [--device cuda:0]
python -m benchmarks.motion DATALIST --alarms [--thickness 3 5] [--packages 2] [--noise 0.01 0.03]

Before the second package the head turns by (m, -m, 0.7 m) degrees about the array's axes and moves by (m, -m, 0.7 m) mm
along them; before a third and fourth one by -0.6 and 0.5 times as much. Slices have 1 % noise. The pose error is the
largest of all packages. PSNR is of the head where it lay for the first one. A guide is the first that the datalist
names. Each line is printed when it is done. With `--two_stacks` a still stack along another sharp axis comes first, and
both become one volume; poses are those of the stack alone, and beside the still one. With `--single` the head jerks for
a quarter of the slices, drawn by chance, and lies still for the others, which no times tell. With `--alarms` heads lie
still, nothing is rebuilt, and the table counts the stacks that are taken for moved: whole ones, few slices of the
middle, and crops of it, of which the second package is shaded or not.
"""

import argparse
import time
from dataclasses import replace

import numpy as np
import torch
from monai.data import MetaTensor
from scipy.spatial.transform import Rotation

from benchmarks import CKPT_PATH, deployed, shipped_network
from scripts.evaluate.metrics import psnr
from scripts.method.weights import read_card
from scripts.rebuild.device import default_device
from scripts.rebuild.error_map import ErrorMaps
from scripts.rebuild.guide import GuideScan
from scripts.rebuild.motion import Motion, motion_of, taken_back
from scripts.rebuild.rebuilder import Rebuilder
from scripts.rebuild.registration import angle_and_shift, placed
from scripts.rebuild.stacks import Stack
from scripts.rebuild.together import together
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import centre, voxel_spacing
from scripts.stack.interpolation import interpolate
from scripts.stack.packages import by_times
from scripts.stack.slices import Slices
from scripts.stack.tissue import flat_tissue, head_mask
from scripts.stack.trace import step_ratio
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import simulate
from scripts.train.truth import read_volume

DIRECTION, NOISE = np.array([1.0, -1.0, 0.7]), 0.01
SHARES = (0.0, 1.0, -0.6, 0.5)  # of the motion, by package
CONFIDENCE = 0.9


def moved_by(truth, amount):
    """The motion `(4, 4)` of a volume `(X, Y, Z)`, by degrees and mm."""
    axes = np.asarray(truth.affine, dtype=float)[:3, :3] / voxel_spacing(truth.affine)
    turn = Rotation.from_euler("xyz", amount * DIRECTION, degrees=True).as_matrix()
    middle, matrix = centre(truth.affine, truth.shape), np.eye(4)
    matrix[:3, :3] = axes @ turn @ axes.T
    matrix[:3, 3] = middle + axes @ (amount * DIRECTION) - matrix[:3, :3] @ middle
    return matrix


def slices(truth, axis, thickness, matrices, seed=1, noise=NOISE, single=False):
    """Slices of a volume `(X, Y, Z)`, each package of the head as it then lay, with Rician noise.

    Where they are `single`, a quarter of the slices, drawn by chance, makes the second package, which has no times.
    """
    edge = float(voxel_spacing(truth.affine)[axis])
    acquisition = Acquisition.of_truth(axis, truth.shape[axis], edge=edge, thickness=thickness)
    of = torch.arange(acquisition.slice_count) % len(matrices)
    if single:
        of = torch.from_numpy(np.random.default_rng(seed).permutation(len(of)) % 4 == 0).long()
    else:
        acquisition = replace(acquisition, packages=by_times((of + 1e-3 * torch.arange(len(of))).tolist()))
    measured = simulate(truth[None], acquisition)
    for k, matrix in enumerate(matrices):
        there = MetaTensor(placed(truth, truth, np.linalg.inv(matrix))[0], affine=truth.affine)
        which = torch.nonzero(of == k).flatten()
        moved = simulate(there[None], acquisition).as_tensor()
        measured.as_tensor().index_copy_(1 + axis, which, moved.index_select(1 + axis, which))
    rng, sd = np.random.default_rng(seed), noise * np.percentile(truth.numpy(), 99)
    real, imaginary = (torch.from_numpy(rng.normal(0, sd, measured.shape)).float() for _ in range(2))
    measured.copy_(((measured.as_tensor() + real).square() + imaginary.square()).sqrt())
    acquisition.attach(measured)
    return Slices.of(measured)


def by_true_pose(rebuilder, measured, guide, matrices):
    """The volume that the deployed steps make of the true poses."""
    known = Motion(measured.acquisition.packages, np.stack(matrices), 0.0, 0.0, 0.0, 0.0)
    first = rebuilder(taken_back(measured, known), guide).volume
    return rebuilder(taken_back(measured, known, first), guide).volume


def beside(rebuilder, guide, measured):
    """A guide in its place, without the refusals."""
    return None if guide is None else rebuilder.place(GuideScan(Slices.sharp(guide)), measured)


def row(name, truth, measured, matrices, rebuilder, guide):
    """Poses, decibels and steps of a scan, and how much of the head lies within the error map."""
    head, sharp = head_mask(truth.as_tensor()), truth.as_tensor()
    acquisition, mending = measured.acquisition, replace(rebuilder, motion=True)
    begin = time.perf_counter()
    as_is = rebuilder(measured, beside(rebuilder, guide, measured))
    middle = time.perf_counter()
    mended = mending(measured, beside(mending, guide, measured))
    end = time.perf_counter()
    motion, still = mended.motion, np.allclose(matrices, np.eye(4))
    plain = replace(rebuilder, error_maps=ErrorMaps())
    bound = as_is.volume
    if not still:
        known = taken_back(measured, Motion(acquisition.packages, np.stack(matrices), 0.0, 0.0, 0.0, 0.0))
        bound = by_true_pose(plain, measured, beside(plain, guide, known), matrices)
    before, after, best = (psnr(one.as_tensor(), sharp, head) for one in (as_is.volume, mended.volume, bound))
    off = [("?", "?")]
    if motion is not None:
        point = centre(truth.affine, truth.shape)
        off = [angle_and_shift(one @ np.linalg.inv(true), point) for one, true in zip(motion.matrices, matrices)]
        off = [[f"{one:.2f}" for one in np.max(off, axis=0)]]
    flat = flat_tissue(interpolate(measured.array, acquisition, "cubic").clamp(min=0))
    steps = [step_ratio(one.volume.as_tensor(), acquisition, flat) for one in (as_is, mended)]
    covered = {}
    if as_is.error_map is not None:
        inside = [
            ((one.volume.as_tensor() - sharp).abs() <= one.error_map.half_width(CONFIDENCE).as_tensor())[head]
            for one in (as_is, mended)
        ]
        covered = {"within the error map": " to ".join(f"{one.float().mean():.3f}" for one in inside)}
    said = "not judged" if motion is None else "moved" if motion.moved else "still"
    return name | {
        "moved (mm of the head)": "" if motion is None else f"{motion.displacement:.2f} ± {motion.uncertainty:.2f}",
        "said": said,
        "off by (degrees)": off[0][0],
        "off by (mm)": off[0][1],
        "as it is (dB)": f"{before:.2f}",
        "taken back (dB)": f"{after:.2f}",
        "by the true pose (dB)": f"{best:.2f}",
        "step ratio": " to ".join(f"{one:.2f}" for one in steps),
        **covered,
        "time (s)": f"{middle - begin:.1f} to {end - middle:.1f}",
    }


def single(name, truth, axis, thickness, matrices, rebuilder, guide):
    """Decibels of a still head and of one that jerks, and the words on the jerks."""
    head, mending = head_mask(truth.as_tensor()), replace(rebuilder, motion=True)
    results = [
        mending(measured, beside(mending, guide, measured))
        for measured in (slices(truth, axis, thickness, poses, single=True) for poses in ([np.eye(4)] * 2, matrices))
    ]
    still, jerks = (psnr(one.volume.as_tensor(), truth.as_tensor(), head) for one in results)
    motion = results[1].motion
    return name | {
        "still (dB)": f"{still:.2f}",
        "a quarter of the slices moved (dB)": f"{jerks:.2f}",
        "said (mm)": "not judged" if motion is None else f"{motion.displacement:.2f} ± {motion.uncertainty:.2f}",
        "taken for": "" if motion is None else motion.doubt or ("moved" if motion.moved else "still"),
    }


def joined(name, truth, axes, thickness, matrices, rebuilder):
    """Poses and decibels of two stacks, of which the head lies still in the first one."""
    stacks = [
        slices(truth, axis, thickness, poses, seed)
        for seed, (axis, poses) in enumerate(((axes[0], [np.eye(4)] * len(matrices)), (axes[-1], matrices)), start=1)
    ]
    known = Motion(stacks[1].acquisition.packages, np.stack(matrices), 0.0, 0.0, 0.0, 0.0)
    mending, head, point = (
        replace(rebuilder, motion=True),
        head_mask(truth.as_tensor()),
        centre(truth.affine, truth.shape),
    )
    still, left = (rebuilder(one) for one in stacks)
    alone, beside = mending(stacks[1]), mending.each(stacks, [None, None])[1]
    first = rebuilder(taken_back(stacks[1], known)).volume
    ways = {"as it is": left, "taken back alone": alone, "beside the still one": beside}
    ways["by the true pose"] = rebuilder(taken_back(stacks[1], known, first))

    def decibels(second):
        volume, _ = together([Stack.of(one.slices, one.volume) for one in (still, second)])
        return f"{psnr(volume.as_tensor(), truth.as_tensor(), head):.2f}"

    off = [
        np.max(
            [angle_and_shift(one @ np.linalg.inv(true), point) for one, true in zip(motion.matrices, matrices)], axis=0
        )
        for motion in (alone.motion, beside.motion)
    ]
    poses = {
        f"off by ({unit})": " to ".join(f"{one[index]:.2f}" for one in off)
        for index, unit in enumerate(("degrees", "mm"))
    }
    return name | poses | {f"{way} (dB)": decibels(second) for way, second in ways.items()}


def cut(measured, count, pixels):
    """So many slices of the middle of a stack, and pixels along each axis within them; None for all."""
    a = measured.acquisition
    sizes = [count if axis == a.slice_axis else pixels for axis in range(3)]
    sizes = [full if size is None else min(size, full) for size, full in zip(sizes, measured.shape)]
    starts = [(full - size) // 2 for size, full in zip(sizes, measured.shape)]
    affine = measured.affine.clone()
    affine[:3, 3] += affine[:3, :3] @ torch.tensor(starts, dtype=affine.dtype)
    array = measured.array[tuple(slice(start, start + size) for start, size in zip(starts, sizes))].clone()
    return Slices(array, replace(a, slice_count=sizes[a.slice_axis], packages=""), affine, measured.meta)


def shaded(measured, amount):
    """The stack where every second slice is brighter on one side, and darker on the other, by a smooth share."""
    axis = measured.acquisition.slice_axis
    across = (axis + 1) % 3
    wave = torch.sin(torch.linspace(-np.pi / 2, np.pi / 2, measured.shape[across]))
    gains = (1 + amount * wave).reshape([-1 if k == across else 1 for k in range(3)]).expand(measured.shape).clone()
    gains.movedim(axis, 0)[::2] = 1
    return replace(measured, array=measured.array * gains)


def alarms(volumes, thickness, count, noise):
    """Yields lines of still stacks that are taken for moved; those that are cut or shaded have two packages."""
    whole = {
        item["subject"] + " " + item["contrast"]: slices(
            read_volume(item["label"])[0].float(), item["sharp_axes"][-1], thickness, [np.eye(4)] * count, noise=noise
        )
        for item in volumes
    }
    for field, size in {"whole": (None, None), "10 slices": (10, None), "64 x 64 x 9": (9, 64)}.items():
        for amount in (0.0, 0.2, 0.4):
            stacks = {name: one if field == "whole" else cut(one, *size) for name, one in whole.items()}
            motions = {name: motion_of(shaded(one, amount) if amount else one) for name, one in stacks.items()}
            known = {name: one for name, one in motions.items() if one is not None}
            ratios = [one.displacement / one.uncertainty for one in known.values()]
            moved = [f"{name} ({one.displacement:.2f} mm)" for name, one in known.items() if one.moved]
            yield {
                "slices (mm)": f"{thickness:g}",
                "noise": f"{noise:g}",
                "field of view": field,
                "shading": f"{amount:g}",
                "stacks": str(len(volumes)),
                "looked at": str(len(known)),
                "most standard deviations": f"{max(ratios, default=0):.1f}",
                "moved": ", ".join(moved) or "none",
            }


def said(line, first):
    """Prints a line of the table at once; below its head if it is the first one."""
    if first:
        print("| " + " | ".join(line) + " |\n|" + "---|" * len(line), flush=True)
    print("| " + " | ".join(line.values()) + " |", flush=True)


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datalist")
    parser.add_argument("--people", nargs="+", help="subjects; all without it")
    parser.add_argument("--contrasts", nargs="+", help="of the volumes; all without it")
    parser.add_argument("--thickness", type=float, nargs="+", default=[5.0])
    parser.add_argument("--motion", type=float, nargs="+", default=[0.0, 0.5, 1.0, 2.0])
    parser.add_argument("--guide", nargs="+", choices=("no", "yes"), default=["no"])
    parser.add_argument("--packages", type=int, choices=(2, 3, 4), default=2)
    parser.add_argument("--coverage", action="store_true", help="with error maps; times are then of these, too")
    parser.add_argument("--two_stacks", action="store_true")
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--alarms", action="store_true")
    parser.add_argument("--noise", type=float, nargs="+", default=[NOISE], help="with --alarms; others have 0.01")
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--ckpt_path", default=CKPT_PATH)
    options = parser.parse_args()

    def asked(item):
        return (not options.people or item["subject"] in options.people) and (
            not options.contrasts or item["contrast"] in options.contrasts
        )

    first = True
    if options.alarms:
        for section in ("training", "validation"):
            volumes = [item for item in sharp_volumes(options.datalist, section) if asked(item)]
            for thickness in options.thickness:
                for noise in options.noise:
                    for line in alarms(volumes, thickness, options.packages, noise):
                        said({"people": section} | line, first)
                        first = False
        return
    network = shipped_network(options.ckpt_path).to(options.device)
    inferer = deployed(options.ckpt_path, spread=options.coverage)
    maps = ErrorMaps()
    if options.coverage:
        maps = ErrorMaps(True, CONFIDENCE, read_card(options.ckpt_path).error_map)
    rebuilder = Rebuilder(network, inferer, options.device, error_maps=maps, guide_share=1.0)
    for item in filter(asked, sharp_volumes(options.datalist, "validation")):
        truth = read_volume(item["label"])[0].float()
        for thickness in options.thickness:
            for amount in options.motion:
                matrices = [moved_by(truth, amount * share) for share in SHARES[: options.packages]]
                name = {"scan": f"{item['subject']} {item['contrast']}", "slices (mm)": f"{thickness:g}"}
                if options.two_stacks:
                    name |= {"motion": f"{amount:g}"}
                    said(joined(name, truth, item["sharp_axes"], thickness, matrices, rebuilder), first)
                    first = False
                    continue
                measured = slices(truth, item["sharp_axes"][-1], thickness, matrices)
                for guided in options.guide:
                    guide = None
                    if guided == "yes":
                        if not item.get("guides"):
                            continue
                        guide = read_volume(item["guides"][0])
                    named = name | {"guide": guided, "motion": f"{amount:g}"}
                    if options.single:
                        axis = item["sharp_axes"][-1]
                        said(single(named, truth, axis, thickness, matrices, rebuilder, guide), first)
                        first = False
                        continue
                    said(row(named, truth, measured, matrices, rebuilder, guide), first)
                    first = False


if __name__ == "__main__":
    main()
