"""How well the test on a scan's own slices foretells the gain through them: a figure and numbers of docs/trust.md.

python -m benchmarks.check DATALIST TRIALS.csv PICTURE.png --subjects PERSON PERSON ...

Held-out volumes are acquired in turn with other thicknesses, noises, gaps, profiles and matrices. Each is tested by
`--check`, which knows the slices alone, and rebuilt, which tells the gain through its slices. A fit foretells this
gain; each person's errors are by the fit of the others. --write puts it into the card of the weights.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import optimize, stats

from benchmarks import deployed, panels, parser_of_volumes, shipped_network
from scripts.evaluate.metrics import psnr
from scripts.method.calibration import Foretelling
from scripts.method.weights import read_card, write_card
from scripts.rebuild.acquired_again import below_border
from scripts.rebuild.reduced_resolution import check
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.interpolation import interpolate
from scripts.stack.noise import Noise
from scripts.stack.slices import Slices
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import acquired_truth, central_slab, scanned
from scripts.train.truth import read_volume

THICKNESSES = (5.0, 3.0, 7.0, 2.0)  # mm
NOISES = (0.0, 0.02, 0.01, 0.04)  # of the range of tissue
RATIOS = (1.0, 1.0, 1.2)  # slice spacing / thickness
PROFILES = (4.0, 4.0, "gaussian", 4.0, "rectangular")
WIDTHS = (1.0, 1.0, 1.0, 1.6, 1.0, 1.0, 1.0)  # pixels of the acquired matrix
COUNT = 20  # trials


def acquired(item, turn, number, slab=None):
    """A volume, or its slab, as it is acquired in a trial: truth and slices, `(1, X, Y, Z)`, and facts for the table.

    It is the volume's `turn`-th trial, and the `number`-th of all.
    """
    volume, axes = read_volume(item["label"]), item["sharp_axes"]
    axis = axes[(turn + number) % len(axes)]
    edge = float(voxel_spacing(volume.affine)[axis])
    thickness, profile = THICKNESSES[number % 4], PROFILES[number % 5]
    level, ratio, width = NOISES[(number + number // 4) % 4], RATIOS[number // 2 % 3], WIDTHS[number % 7]
    noise = Noise(level, (width, width))
    truth = central_slab(acquired_truth(volume, axis, noise), axis, slab)
    acquisition = Acquisition.of_truth(
        axis,
        truth.shape[1 + axis],
        edge=edge,
        thickness=thickness,
        spacing=round(ratio * thickness, 9),
        profile=profile,
    )
    facts = {"person": item["subject"], "contrast": item["contrast"], "axis": axis}
    facts |= {"thickness": thickness, "target": edge}
    facts |= {"noise": level, "ratio": ratio, "profile": profile, "width": width}
    return truth, scanned(truth, acquisition, noise, torch.Generator().manual_seed(number)), facts


def through_slices(item, turn, number, network, inferer, slab):
    """Gain over the cubic spline through the slices of a slab, in dB, below the border as in the test."""
    truth, thick, _ = acquired(item, turn, number, slab)
    volume, inside = truth.as_tensor()[0], below_border(Slices.sharp(truth))
    result = inferer.rebuilt(Slices.of(thick), network).volume.as_tensor()
    spline = interpolate(thick.as_tensor()[0], Acquisition.of(thick), "cubic")
    return psnr(result, volume, inside) - psnr(spline, volume, inside)


def within_slices(item, turn, number, network, inferer):
    """Facts of a trial, and the gain within its slices."""
    _, thick, facts = acquired(item, turn, number)
    method = inferer.one_family
    found = check(Slices.of(thick), lambda one: method.rebuilt(one, network).volume.as_tensor(), spots=False)
    return {**facts, "within": found.gain}


def columns(rows):
    """The terms of the fit: 1, the gain within the slices, and the doublings of their thickness; `(n, 3)`."""
    return np.column_stack([np.ones(len(rows)), rows["within"], np.log2(rows["thickness"] / rows["target"])])


def fit(rows):
    """Offset, slope and doubling of `Foretelling`; a scan that is far off counts little (`soft_l1`)."""
    terms, gains = columns(rows), rows["true"].to_numpy()
    return optimize.least_squares(lambda found: terms @ found - gains, (0, 1, 0), loss="soft_l1", f_scale=0.3).x


def fitted(rows):
    """The fit on all trials, and its error for people who took no part."""
    off = []
    for person in rows["person"].unique():
        others, own = rows[rows["person"] != person], rows[rows["person"] == person]
        off.append(columns(own) @ fit(others) - own["true"])
    error = np.sqrt(np.mean(np.square(np.concatenate(off))))
    return Foretelling(*(float(f"{one:.3g}") for one in (*fit(rows), error)))


def draw(rows, told, error, path):
    """Gain through the slices over the foretold one."""
    figure, ((panel,),) = panels(("gain",), 5.0)
    ends = np.array([min(told.min(), rows["true"].min()) - 0.3, max(told.max(), rows["true"].max()) + 0.3])
    panel.plot(ends, ends, "k:", lw=1)
    panel.fill_between(ends, ends - error, ends + error, color="0.9", lw=0)
    for contrast, of_one in rows.assign(told=told).groupby("contrast"):
        panel.plot(of_one["told"], of_one["true"], "o", label=contrast)
    panel.set(xlabel="foretold by the scan's own slices (dB)", ylabel="gain through the slices (dB)")
    panel.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main():
    """The command."""
    parser = parser_of_volumes(__doc__)
    parser.add_argument("trials", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--subjects", nargs="+", required=True, help="people whose volumes no network was trained on")
    parser.add_argument(
        "--slab", type=int, help="rebuild so many middle planes of the last axis without slices, not all"
    )
    parser.add_argument("--count", type=int, default=COUNT, help="of trials")
    parser.add_argument("--write", action="store_true", help="write the line into the card of the weights")
    options = parser.parse_args()
    network, inferer = shipped_network(options.ckpt_path), deployed(options.ckpt_path)
    items = [one for one in sharp_volumes(options.datalist, "all") if one["subject"] in options.subjects]
    items = [one for one in items if len(one["sharp_axes"]) == 3]  # else a plane within the slices is blurred
    rows = []
    for number in range(options.count):
        turn, place = divmod(number, len(items))
        trial = (items[place], turn, number, network, inferer)
        rows.append({**within_slices(*trial), "true": through_slices(*trial, options.slab)})
        pd.DataFrame(rows).to_csv(options.trials, index=False, float_format="%.4f")
        print(rows[-1], flush=True)
    conclude(pd.DataFrame(rows), options)


def conclude(table, options):
    """Fits, draws, prints how good it is, and writes it if asked."""
    line = fitted(table)
    told = columns(table) @ (line.offset, line.slope, line.doubling)
    draw(table, told, line.error, options.picture)
    print(line)
    for name, one in {"gain within the slices": table["within"], "foretold": told}.items():
        off, rank = one - table["true"], stats.spearmanr(one, table["true"]).statistic
        print(f"{name}: RMS {np.sqrt(np.mean(off**2)):.2f} dB, largest {np.abs(off).max():.2f}, rank {rank:.2f}")
    print(f"{len(table)} trials of {table['person'].nunique()} people; by other people's fit {line.error:g} dB")
    if options.write:
        write_card(options.ckpt_path, replace(read_card(options.ckpt_path), foretelling=line))


if __name__ == "__main__":
    main()
