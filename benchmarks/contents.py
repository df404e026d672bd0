"""The voxels of scans as witnesses: how sharp they are, and which guides are copies.

python -m benchmarks.contents DATALIST
python -m benchmarks.contents --thresholds SCANS ... --maps MAPS ... [--every 5]

Two tables of docs/benchmarks_appendix.md. First the distance of the samples that a volume shows along an axis, as it is
and interpolated from slices of the simulation. Then how far a rising curve explains a scan of 5 mm slices by each guide
of its person, and by the cubic spline of its own slices.

With `--thresholds`, each number by which `stack.contents` tells scans from others, and how near to it they come: the
scans of folders, in twenty variants, that the rule's other numbers let through, and the maps of others that it finds.
"""

import numpy as np
import torch
from monai.data import MetaTensor
from tqdm import tqdm

from benchmarks import parser_of
from scripts.evaluate.tables import markdown
from scripts.files import VOLUMES, ends_as, walk
from scripts.inputs.readers import ScanReader
from scripts.rebuild.guide import GuideScan
from scripts.stack import contents
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from scripts.stack.spectra import sharpness
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import slices_of
from scripts.train.truth import read_volume

THICKNESSES = (3.0, 5.0)  # mm
NOISE = 0.02  # of the 99th percentile


def sharp_along(volume, axis):
    """Distances of samples along an axis, in mm: of the volume, and of its noisy slices by two interpolations."""
    edges = voxel_spacing(volume.affine)
    found = [sharpness(volume[0].as_tensor(), edges)[axis]]
    noise = torch.Generator().manual_seed(0)
    for thickness in THICKNESSES:
        slices = slices_of(volume, axis, thickness)
        level = NOISE * float(np.percentile(volume.as_tensor().numpy(), 99))
        measured = slices[0].as_tensor() + level * torch.randn(slices.shape[1:], generator=noise)
        a = Acquisition.of(slices)
        fine = [*edges[:axis], a.target_spacing, *edges[axis + 1 :]]
        found += [sharpness(interpolate(measured, a, method), fine)[axis] for method in ("linear", "cubic")]
    return found


RULES = {  # of `contents.verdict`: statistic -> its threshold, and 1 where scans lie below it, -1 where above
    "few": {"values": ("FEW_VALUES", -1)},
    "sparse": {"sparse": ("SPARSE", 1)},
    "labels": {"equal": ("EQUAL", 1), "following": ("NEXT", -1)},
    "field": {"step": ("SMOOTH", -1)},
    "statistic": {"beside": ("ABRUPT", -1), "even": ("EVEN", 1), "background": ("BACKGROUND", 1)},
    "ct": {"greys": ("GREYS", 1), "crowd": ("CROWD", 1)},
    "probabilities": {"greys": ("GREYS", 1), "foot": ("FOOT", 1), "background": ("EMPTY", 1)},
}


def levels(v, count):
    """A volume in so many grey values."""
    return np.rint((v - v.min()) / max(np.ptp(v), 1e-30) * (count - 1))


def variants(v):
    """Twenty variants of a scan that show the same: name -> voxels."""
    bright = dict(zip((90, 95, 98), np.percentile(v, (90, 95, 98)).astype(v.dtype)))
    inside = v > 0.3 * bright[95]
    clipped, masked = {p: np.minimum(v, limit) for p, limit in bright.items()}, np.where(inside, v, 0)
    half = v[tuple(slice(n // 4, n - n // 4) for n in v.shape)]
    return {
        **{"as it is": v, "of 1e-4": v / max(v.max(), 1e-30) * 1e-4, "standardised": (v - v.mean()) / v.std()},
        **{f"{count} values": levels(v, count) for count in (16, 32, 64, 256)},
        **{f"clipped at {p} %": one for p, one in clipped.items()},
        **{"clipped, 16 values": levels(clipped[90], 16), "masked": masked, "masked, 16 values": levels(masked, 16)},
        **{"masked and clipped": np.where(inside, clipped[90], 0)},
        **{f"background {b}": np.where(inside, v, b) for b in (-1, -1000, 32768, np.nan)},
        **{"its middle": half, "its middle, 16 values": levels(half, 16)},
    }


def statistics_of(folders, every=1, changed=lambda volume: {"": volume}):
    """Statistics of every so many volume of folders, changed: path, name of the change, and they."""
    walked = (found for folder in folders for found in walk(folder))
    paths = sorted(root / name for root, _, names in walked for name in names if ends_as(name, VOLUMES))
    for path in tqdm(paths[::every], unit="volume"):
        voxels = np.squeeze(np.asanyarray(ScanReader().read(path)[1].dataobj).astype(np.float32))
        for name, one in changed(voxels).items():
            yield path.name, name, contents.statistics(one)


def passed(s, numbers):
    """Whether statistics meet thresholds."""
    return all(side * getattr(s, key) > side * getattr(contents, name) for key, (name, side) in numbers.items())


def print_thresholds(scans, maps, every):
    """A table of the thresholds of `stack.contents`, and a line for each volume on the wrong side."""
    found = {True: list[contents.Statistics](), False: list[contents.Statistics]()}
    for is_scan, each in ((True, statistics_of(scans, every, variants)), (False, statistics_of(maps))):
        for path, name, s in each:
            found[is_scan].append(s)
            verdict = contents.verdict_of(s)
            if is_scan != (verdict == contents.SCAN):
                print(f"{path} {name}: {verdict.answer} by its voxels. {verdict.why}", flush=True)
    table = {name: list[str]() for name in ("rule", "number", "value", "nearest scan", "nearest map")}
    for rule, numbers in RULES.items():
        for key, (name, side) in numbers.items():
            others = {one: limit for one, limit in numbers.items() if one != key}
            near = [side * getattr(s, key) for s in found[True] if passed(s, others)]
            far = [side * getattr(s, key) for s in found[False] if passed(s, numbers)]
            nearest = [max(filter(np.isfinite, near), default=None), min(filter(np.isfinite, far), default=None)]
            cells = ["" if one is None else f"{side * one:.3g}" for one in nearest]
            for column, cell in zip(table.values(), (rule, name, f"{getattr(contents, name):g}", *cells)):
                column.append(cell)
    print(f"{len(found[True])} variants of scans, {len(found[False])} maps\n\n{markdown(table)}")


def main():
    """Prints the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("datalist", nargs="?")
    parser.add_argument("--thresholds", metavar="SCANS", nargs="+")
    parser.add_argument("--maps", nargs="+")
    parser.add_argument("--every", type=int, default=1, help="take every such scan")
    given = parser.parse_args()
    if given.thresholds:
        return print_thresholds(given.thresholds, given.maps, given.every)
    volumes = sharp_volumes(given.datalist, "validation")
    methods = [f"{thickness:g} mm, {method}" for thickness in THICKNESSES for method in ("linear", "cubic")]
    sharp = {name: list[str]() for name in ("scan", "axis", "as it is", *methods)}
    relations = {name: list[str]() for name in ("scan", "guide", "likeness", "relation")}
    for item in volumes:
        volume, axis, name = read_volume(item["label"]), item["sharp_axes"][-1], item["subject"]
        row = (f"{name} {item['contrast']}", str(axis), *(f"{mm:.2f}" for mm in sharp_along(volume, axis)))
        for column, cell in zip(sharp.values(), row):
            column.append(cell)
        measured = Slices.of(slices_of(volume, axis, THICKNESSES[-1]))
        spline = interpolate(measured.array, measured.acquisition, "cubic").clamp(min=0)
        copy = MetaTensor(spline[None], affine=measured.fine_affine)
        guides = {other["contrast"]: other["label"] for other in volumes if other["subject"] == name}
        guides.pop(item["contrast"], None)
        for guide, other in [*((key, read_volume(path)) for key, path in guides.items()), ("its own spline", copy)]:
            found = GuideScan(Slices.sharp(other)).place(measured)
            row = (f"{name} {item['contrast']}", guide, f"{found.likeness:.2f}", f"{found.relation:.2f}")
            for column, cell in zip(relations.values(), row):
                column.append(cell)
    for table in (sharp, relations):
        print(markdown(table), end="\n\n")


if __name__ == "__main__":
    main()
