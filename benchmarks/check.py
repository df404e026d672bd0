"""How well the test on a scan's own slices foretells the gain through them: a figure and numbers of docs/trust.md.

python -m benchmarks.check DATALIST TRIALS.csv PICTURE.png --subjects PERSON PERSON ...

Held-out volumes are acquired in turn with other thicknesses, noises, gaps, profiles and matrices. Each is tested by
`--check`, which knows the slices alone, and rebuilt, which tells the gain through its slices and the share of voxels
that the error map holds. A line foretells the gain; each person's errors are by the line of the others. --write puts it
into the card of the weights. A command that was stopped goes on behind the trials of TRIALS.csv.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import optimize, stats

from benchmarks import deployed, panels, parser_of_volumes, shipped_network
from scripts.evaluate.metrics import covered, psnr
from scripts.method.calibration import Foretelling
from scripts.method.weights import read_card, write_card
from scripts.rebuild.acquired_again import below_border
from scripts.rebuild.device import default_device
from scripts.rebuild.error_map import ErrorMaps
from scripts.rebuild.rebuilder import Rebuilder
from scripts.rebuild.reduced_resolution import check
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.interpolation import interpolate
from scripts.stack.noise import Noise
from scripts.stack.slices import Slices
from scripts.stack.tissue import head_mask
from scripts.train.datasets import sharp_volumes
from scripts.train.simulation import acquired_truth, central_slab, scanned
from scripts.train.truth import read_volume

THICKNESSES = (5.0, 3.0, 7.0, 2.0)  # mm
NOISES = (0.0, 0.02, 0.01, 0.04)  # of the range of tissue
RATIOS = (1.0, 1.0, 1.2)  # slice spacing / thickness
PROFILES = (4.0, 4.0, "gaussian", 4.0, "rectangular")
WIDTHS = (1.0, 1.0, 1.0, 1.6, 1.0, 1.0, 1.0)  # pixels of the acquired matrix
COUNT = 20  # trials
RIGHT = (0.87, 0.93)  # coverage of intervals of 90 % that is right for a single scan


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
    is_axial = int(np.abs(np.asarray(volume.affine)[:3, axis]).argmax() == 2)
    facts = {"person": item["subject"], "contrast": item["contrast"], "axis": axis, "axial": is_axial}
    facts |= {"thickness": thickness, "target": edge}
    facts |= {"noise": level, "ratio": ratio, "profile": profile, "width": width}
    return truth, scanned(truth, acquisition, noise, torch.Generator().manual_seed(number)), facts


def through_slices(item, turn, number, rebuilder, slab):
    """The gain over the cubic spline through the slices of a slab, in dB, below the border as in the test.

    With an error map the share of the head's voxels that its intervals of 90 % hold, too.
    """
    truth, thick, _ = acquired(item, turn, number, slab)
    slices, volume = Slices.of(thick), truth.as_tensor()[0]
    rebuilt, inside = rebuilder(slices), below_border(Slices.sharp(truth))
    result, spline = rebuilt.volume.as_tensor(), interpolate(slices.array, slices.acquisition, "cubic")
    found = {"true": psnr(result, volume, inside) - psnr(spline, volume, inside)}
    if rebuilt.error_map is not None:
        width = rebuilt.error_map.half_width(0.9).as_tensor()
        found["held"] = covered((result - volume).abs(), width, head_mask(volume))
    return found


def within_slices(item, turn, number, rebuilder):
    """Facts of a trial, and the gain within its slices."""
    _, thick, facts = acquired(item, turn, number)
    method, network = rebuilder.inferer.one_family, rebuilder.network
    found = check(Slices.of(thick), lambda one: method.rebuilt(one, network).volume.as_tensor(), spots=False)
    return {**facts, "within": found.gain}


def terms(rows):
    """The terms of `Foretelling`, `(n, 4)`."""
    thickness = np.log(rows["thickness"] / rows["target"])
    return np.column_stack([np.ones(len(rows)), rows["within"], thickness, rows["axial"]])


def fit(rows):
    """The coefficients of `terms`; a scan that is far off counts little (`soft_l1`)."""
    known, true = terms(rows), rows["true"].to_numpy()
    return optimize.least_squares(lambda found: known @ found - true, (0, 1, 0, 0), loss="soft_l1", f_scale=0.3).x


def told(rows, line):
    """The gain that is foretold of each trial, `(n,)`."""
    return terms(rows) @ line


def by_others(rows, fit_of, told_of):
    """How far off each person's trials are that the fit of the other people foretells, `(n,)`."""
    people = [(rows[rows["person"] == one], rows[rows["person"] != one]) for one in rows["person"].unique()]
    return np.concatenate([told_of(own, fit_of(others)) - own["true"] for own, others in people])


def draw(rows, error, path):
    """Gain through the slices over the foretold one."""
    figure, ((panel,),) = panels(("gain",), 5.0)
    both = rows[["told", "true"]].to_numpy()
    ends = np.array([both.min() - 0.3, both.max() + 0.3])
    panel.plot(ends, ends, "k:", lw=1)
    panel.fill_between(ends, ends - error, ends + error, color="0.9", lw=0)
    for contrast, part in rows.groupby("contrast"):
        panel.plot(part["told"], part["true"], "o", label=contrast)
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
    card = read_card(options.ckpt_path)
    calibration, asked = card.error_map, {"weights": card.sha256[:12], "slab": options.slab or 0}
    network, inferer = shipped_network(options.ckpt_path), deployed(options.ckpt_path, spread=calibration is not None)
    maps = ErrorMaps(calibration is not None, calibration=calibration)
    rebuilder = Rebuilder(network, inferer, default_device(), error_maps=maps)
    items = [one for one in sharp_volumes(options.datalist, "all") if one["subject"] in options.subjects]
    rows = pd.read_csv(options.trials, dtype={"weights": str}).to_dict("records") if options.trials.exists() else []
    for row in rows:
        if row["person"] not in options.subjects or any(row.get(name) != value for name, value in asked.items()):
            parser.error(f"{options.trials} has trials of other weights, subjects or slabs. Give another file.")
    for number in range(len(rows), options.count):
        turn, place = divmod(number, len(items))
        trial = (items[place], turn, number, rebuilder)
        rows.append({**asked, **within_slices(*trial), **through_slices(*trial, options.slab)})
        pd.DataFrame(rows).to_csv(options.trials, index=False, float_format="%.4f")
        print(rows[-1], flush=True)
    conclude(pd.DataFrame(rows), options)


def rms(off):
    """The root mean square of some errors, and the largest, for people."""
    return f"{np.sqrt(np.mean(np.square(off))):.2f} ({np.abs(off).max():.2f} at most)"


def conclude(table, options):
    """Fits, draws, prints how good it is, and writes it if asked."""
    off = by_others(table, fit, told)
    line = Foretelling(*(float(f"{one:.3g}") for one in (*fit(table), np.sqrt(np.mean(off**2)))))
    draw(table.assign(told=told(table, fit(table))), line.error, options.picture)
    print(line)
    rank = stats.spearmanr(table["within"], table["true"]).statistic
    print(f"{len(table)} trials of {table['person'].nunique()} people, rank correlation {rank:.2f}")
    print(f"the gain within the slices is off by {rms(table['within'] - table['true'])} dB")
    mean = by_others(table, lambda others: (others["true"].mean(),), lambda own, found: np.full(len(own), *found))
    facts = by_others(table.assign(within=0.0), fit, told)
    print(f"by the mean of the other people {rms(mean)} dB, by thickness and direction alone {rms(facts)} dB")
    print(f"by the line of the other people {rms(off)} dB")
    if "held" in table:
        held = table["held"]
        right = held.between(*RIGHT).mean()
        print(
            f"intervals of 90 % hold {held.mean():.3f} ({held.min():.2f} to {held.max():.2f}), SD {held.std():.3f}; "
            f"{RIGHT[0]:g} to {RIGHT[1]:g} in {right:.0%} of the scans"
        )
        for person, own in table.groupby("person", sort=False)["held"]:
            print(f"  {person}: {', '.join(f'{one:.2f}' for one in own)}")
    if options.write:
        write_card(options.ckpt_path, replace(read_card(options.ckpt_path), foretelling=line))


if __name__ == "__main__":
    main()
