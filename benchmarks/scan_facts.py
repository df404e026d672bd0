"""Does a scan itself say how wide its intervals of 90 % have to be? A table of docs/benchmarks_appendix.md.

python -m benchmarks.scan_facts DATALIST [--thickness 5] [--section validation] [--slab 16] [--ckpt_path WEIGHTS]

Each volume is rebuilt from slices with 0.5 and 2 % of noise. Each needs a factor, of the intervals that the weights'
card makes, with which they hold 90 % of the head. A line for each fact has its correlation with that factor, both in
logarithms, and the factor's standard deviation that is left when the other people say how it follows from the fact.
"""

import argparse

import numpy as np
import torch
from scipy import ndimage

from benchmarks import CKPT_PATH, deployed, shipped_network
from scripts.evaluate.tables import markdown
from scripts.method.calibration import scan_scale
from scripts.method.weights import read_card
from scripts.rebuild.consistency import difference, reconcile
from scripts.rebuild.error_map import detail, expected_error, noise_share
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.intensity import data_range, intensity_range
from scripts.stack.tissue import head_mask
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import central_slab, normal_axis, simulate
from scripts.train.truth import read_volume

NOISES = (0.005, 0.02)
FEWEST = 3  # people


def rms(values):
    """Root mean square."""
    return float(values.square().mean().sqrt())


def foretold(slices, inside, axis):
    """How far each slice is off the cubic polynomial through its four neighbours."""
    s, inside = slices.movedim(axis, 0), inside.movedim(axis, 0)[2:-2]
    return rms((s[2:-2] - (-s[:-4] + 4 * s[1:-3] + 4 * s[3:-1] - s[4:]) / 6)[inside])


def in_plane(slices, inside, pixels, axis):
    """How far the slices are off their mean over so many pixels along an axis."""
    return rms((slices - torch.from_numpy(ndimage.uniform_filter1d(slices.numpy(), pixels, axis=axis)))[inside])


def case(item, noise, network, inferer, options):
    """A scan's person, the logarithm of the factor that it needs, its coverage, and its facts."""
    volume, axis = read_volume(item["label"]), item["sharp_axes"][0]
    spacing, sharp = voxel_spacing(volume.affine), central_slab(volume, axis, options.slab)
    truth = sharp.as_tensor()[0]
    a = Acquisition.of_truth(axis, truth.shape[axis], edge=float(spacing[axis]), thickness=options.thickness)
    thick = simulate(sharp, a)
    generator = torch.Generator().manual_seed(0)
    thick.add_(noise * data_range(truth) * torch.randn(thick.shape, generator=generator))
    a.attach(thick)
    slices, head = thick.as_tensor()[0], head_mask(truth)
    inside, scale = head_mask(slices), intensity_range(slices)
    rebuilt = inferer.rebuilt(thick[None], network)
    before, spread = rebuilt.volume.as_tensor(), rebuilt.spread
    result = reconcile(before, slices, a)
    expected = expected_error(slices, result, spread, a, network, "cpu")
    noisy, error = noise_share(slices, a), options.calibration
    width = error.factor(options.thickness, 0.9) * scan_scale(error.exponents, 1.0, noisy)
    score = ((result - truth).abs() / (expected * width))[head].numpy()
    other = 3 - axis - normal_axis(axis)
    pixels = round(options.thickness / float(spacing[other]))
    facts = {
        "noise of the slices": noisy,
        "agreement before it is reconciled": rms(difference(before, slices, a)[inside]),
        "distance of the families": float(spread[head].mean()),
        "the same over the expected error": float(spread[head].mean() / expected[head].mean()),
        "evenness of that distance (median over mean)": float(spread[head].median() / spread[head].mean()),
        "evenness of the expected error": float(expected[head].median() / expected[head].mean()),
        "detail of the result": rms(detail(result, a)[head]),
        "slices off their neighbours": foretold(slices, inside, axis),
        "detail within the slices": in_plane(slices, inside, pixels, other),
        "edge of a voxel": float(spacing[axis]),
    }
    ranged = ("agreement", "distance", "detail", "slices")  # as shares of the range
    facts = {k: v / (scale.high - scale.low) if k.startswith(ranged) else v for k, v in facts.items()}
    return item["subject"], float(np.log(np.quantile(score, 0.9))), float((score <= 1).mean()), facts


def left(persons, needed, columns):
    """How far the needed factors are off a line through those of other people. Each person counts the same."""
    off = np.empty(len(needed))
    for name in set(persons):
        mine = persons == name
        weights = np.array([np.sum(persons == one) for one in persons[~mine]]) ** -0.5
        line, *_ = np.linalg.lstsq(columns[~mine] * weights[:, None], needed[~mine] * weights, rcond=None)
        off[mine] = needed[mine] - columns[mine] @ line
    return float(np.sqrt((off**2).mean()))


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datalist")
    parser.add_argument("--thickness", type=float, default=5.0)
    parser.add_argument("--section", default="validation")
    parser.add_argument("--slab", type=int, default=16)
    parser.add_argument("--ckpt_path", default=CKPT_PATH)
    options = parser.parse_args()
    options.calibration = read_card(options.ckpt_path).error_map
    network, inferer = shipped_network(options.ckpt_path), deployed(spread=True, consistency="measure")
    items = sharp_volumes(options.datalist, options.section)
    cases = [case(item, noise, network, inferer, options) for item in items for noise in NOISES]
    persons, needed, covered = (np.array(one) for one in list(zip(*cases))[:3])
    if len(set(persons)) < FEWEST:
        raise SystemExit(f"{options.datalist} has {len(set(persons))} people: expected {FEWEST} or more.")
    print(f"{len(cases)} scans of {len(set(persons))} people, coverage {covered.min():.2f} to {covered.max():.2f}")
    ones = np.ones((len(cases), 1))
    rows = [("none", "", f"{left(persons, needed, ones):.3f}")]
    for name in cases[0][3]:
        fact = np.log([one[3][name] for one in cases])
        error = left(persons, needed, np.column_stack([ones, fact]))
        rows.append((name, f"{np.corrcoef(fact, needed)[0, 1]:.2f}", f"{error:.3f}"))
    print(markdown(dict(zip(("fact", "correlation", "spread that is left"), map(list, zip(*rows))))))


if __name__ == "__main__":
    main()
