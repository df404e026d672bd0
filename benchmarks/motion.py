"""A head that moves between the even and the odd slices of its stack: a table of docs/benchmarks.md.

python -m benchmarks.motion DATALIST [--contrasts T2w FLAIR] [--thickness 5] [--guided] [--alarms]

Before the odd slices the head turns by (m, -m, 0.7 m) degrees about the array's axes and moves by (m, -m, 0.7 m) mm
along them; slices have 1 % noise. PSNR is of the head where it lay for the even slices. With `--alarms` heads lie
still, nothing is rebuilt, and the table counts the stacks that are taken for moved.
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
from scripts.evaluate.tables import markdown
from scripts.rebuild.motion import Motion, found, steadied, taken_back
from scripts.rebuild.rebuilder import Rebuilder
from scripts.rebuild.registration import angle_and_shift, placed
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import centre, voxel_spacing
from scripts.stack.slices import Slices
from scripts.stack.tissue import head_mask
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import simulate
from scripts.train.truth import read_volume

DIRECTION, NOISE = np.array([1.0, -1.0, 0.7]), 0.01


def moved_by(truth, amount):
    """The motion `(4, 4)` of a volume `(X, Y, Z)`, by degrees and mm."""
    axes = np.asarray(truth.affine, dtype=float)[:3, :3] / voxel_spacing(truth.affine)
    turn = Rotation.from_euler("xyz", amount * DIRECTION, degrees=True).as_matrix()
    middle, matrix = centre(truth.affine, truth.shape), np.eye(4)
    matrix[:3, :3] = axes @ turn @ axes.T
    matrix[:3, 3] = middle + axes @ (amount * DIRECTION) - matrix[:3, :3] @ middle
    return matrix


def slices(truth, axis, thickness, matrix, seed=1):
    """Slices of a volume `(X, Y, Z)`, the odd ones of the moved head, with Rician noise."""
    edge = float(voxel_spacing(truth.affine)[axis])
    acquisition = Acquisition.of_truth(axis, truth.shape[axis], edge=edge, thickness=thickness)
    measured = simulate(truth[None], acquisition)
    there = MetaTensor(placed(truth, truth, np.linalg.inv(matrix))[0], affine=truth.affine)
    odd = torch.arange(1, acquisition.slice_count, 2)
    moved = simulate(there[None], acquisition).as_tensor()
    measured.as_tensor().index_copy_(1 + axis, odd, moved.index_select(1 + axis, odd))
    rng, sd = np.random.default_rng(seed), NOISE * np.percentile(truth.numpy(), 99)
    real, imaginary = (torch.from_numpy(rng.normal(0, sd, measured.shape)).float() for _ in range(2))
    measured.copy_(((measured.as_tensor() + real).square() + imaginary.square()).sqrt())
    return Slices.of(measured)


def by_true_pose(rebuilder, measured, guide, matrix):
    """The volume that the deployed steps make of the true pose."""
    known = Motion(matrix, 0.0, 0.0, 0.0, 0.0)
    first = rebuilder(steadied(measured, known), guide).volume
    return rebuilder(taken_back(measured, first, known), guide).volume


def row(name, truth, measured, matrix, rebuilder, guide):
    """Poses and decibels of a scan."""
    head, sharp = head_mask(truth.as_tensor()), truth.as_tensor()
    mending = replace(rebuilder, motion=True)
    beside = [one and one_of.place(Slices.of(one), measured) for one_of, one in ((rebuilder, guide), (mending, guide))]
    begin = time.perf_counter()
    as_is = rebuilder(measured, beside[0])
    middle = time.perf_counter()
    mended = mending(measured, beside[1])
    share = (time.perf_counter() - middle) / (middle - begin)
    motion = mended.motion
    degrees, mm = angle_and_shift(motion.matrix @ np.linalg.inv(matrix), centre(truth.affine, truth.shape))
    still = np.allclose(matrix, np.eye(4))
    bound = as_is.volume if still else by_true_pose(rebuilder, measured, beside[1], matrix)
    before, after, best = (psnr(one.as_tensor(), sharp, head) for one in (as_is.volume, mended.volume, bound))
    return name | {
        "moved (mm of the head)": f"{motion.displacement:.2f} ± {motion.uncertainty:.2f}",
        "said": "moved" if motion.moved else "still",
        "off by (degrees)": f"{degrees:.2f}",
        "off by (mm)": f"{mm:.2f}",
        "as it is (dB)": f"{before:.2f}",
        "taken back (dB)": f"{after:.2f}",
        "by the true pose (dB)": f"{best:.2f}",
        "time": f"x {share:.1f}",
    }


def alarms(volumes, thickness):
    """Still stacks that are taken for moved."""
    count, said = 0, []
    for item in volumes:
        truth = read_volume(item["label"])[0].float()
        motion = found(slices(truth, item["sharp_axes"][-1], thickness, np.eye(4)))
        count += motion is not None
        if motion is not None and motion.moved:
            said.append(f"{item['subject']} {item['contrast']} ({motion.displacement:.2f} mm)")
    return {"slices (mm)": f"{thickness:g}", "volumes": str(len(volumes)), "looked at": str(count), "moved": str(said)}


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datalist")
    parser.add_argument("--contrasts", nargs="+", help="of the volumes; all without it")
    parser.add_argument("--thickness", type=float, nargs="+", default=[5.0])
    parser.add_argument("--motion", type=float, nargs="+", default=[0.0, 0.5, 1.0, 2.0])
    parser.add_argument("--guided", action="store_true", help="by the first guide that the datalist names")
    parser.add_argument("--alarms", action="store_true")
    parser.add_argument("--ckpt_path", default=CKPT_PATH)
    options = parser.parse_args()
    rows = []
    if options.alarms:
        for section in ("training", "validation"):
            volumes = sharp_volumes(options.datalist, section)
            rows += [{"people": section} | alarms(volumes, thickness) for thickness in options.thickness]
    else:
        rebuilder = Rebuilder(shipped_network(options.ckpt_path), deployed(), "cpu", guide_share=1.0)
        for item in sharp_volumes(options.datalist, "validation"):
            if options.contrasts and item["contrast"] not in options.contrasts:
                continue
            truth = read_volume(item["label"])[0].float()
            guide = read_volume(item["guides"][0]) if options.guided and item.get("guides") else None
            for thickness in options.thickness:
                for amount in options.motion:
                    matrix = moved_by(truth, amount)
                    measured = slices(truth, item["sharp_axes"][-1], thickness, matrix)
                    name = {"scan": f"{item['subject']} {item['contrast']}", "slices (mm)": f"{thickness:g}"}
                    rows.append(row(name | {"motion": f"{amount:g}"}, truth, measured, matrix, rebuilder, guide))
    print(markdown({name: [one[name] for one in rows] for name in rows[0]}))


if __name__ == "__main__":
    main()
