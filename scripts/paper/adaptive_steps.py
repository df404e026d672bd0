"""Which scans are difficult, and how many Euler steps they deserve: PAD against the image (Secs. S10, S11)."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from monai.data import MetaTensor
from scipy.stats import pearsonr, spearmanr

from ..method.networks import Drift
from ..method.schedule import N_MAX, ais_steps, pad
from ..rebuild.inferer import DriftInferer
from ..rebuild.rebuilder import Rebuilder
from ..rebuild.rebuilt import Rebuilt
from ..stack.acquisition import Acquisition
from ..stack.slices import Slices
from ..stack.tissue import head_mask
from .comparison import PAIR

BINS = 64  # of the entropy, over [0, 1]
SCORES = {"speed": "mean velocity", "entropy": "entropy of the velocity", "unevenness": "SD of the velocity"}


def scored(
    thick: MetaTensor, acquisition: Acquisition, network: Drift, inferer: DriftInferer, device: torch.device | str
) -> Rebuilt:
    """Stage 1 and one Euler step, and how difficult the image seems by its velocity, after AdaDiffSR (Sec. S11).

    The paper leaves the score open. Here it is taken of `|v(z, t = 0)|` in the head, in intensities in [-1, 1]; the
    velocity is the difference of the two volumes, of which the deployed inferer makes one more than it needs.

    Returns:
        The rebuilt scan with its `scores`.
    """
    volumes, slices = [], Slices.of(thick)
    for steps in (0, 1):
        inferer = copy.copy(inferer)
        inferer.steps = steps
        volumes.append(Rebuilder(network, inferer, device)(slices))
    tissue_range = slices.tissue_range
    start, end = (rebuilt.volume.as_tensor() for rebuilt in volumes)
    velocity = (tissue_range.to_unit(end) - tissue_range.to_unit(start)).abs()[head_mask(start)]
    shares = torch.histc(velocity.clamp(max=1), BINS, 0, 1) / len(velocity)
    scores = {
        "speed": velocity.mean().item(),
        "entropy": -(shares * shares.clamp(min=1e-12).log2()).sum().item(),
        "unevenness": velocity.std().item(),
    }
    return replace(volumes[1], scores=scores)


def _pads(rows: pd.DataFrame) -> list[float]:
    return [pad(*lengths) for lengths in zip(rows["slice_thickness"], rows["target_thickness"])]


def correlation(rows: pd.DataFrame, label: str = "N = 8", column: str = "hf_psnr") -> pd.DataFrame:
    """How PAD goes with quality at one number of steps for all (Sec. S10).

    Args:
        rows: of a sweep.
        label: rows that count.
        column: the quality.

    Returns:
        Pearson's and Spearman's correlation: of the means over volumes, as the paper; and within each volume, mean and
        SD over volumes. NaN for fewer than two thicknesses.
    """
    rows = rows[rows["label"] == label].assign(pad=lambda found: _pads(found))
    parts = {"of means": [rows.groupby("slice_thickness")[["pad", column]].mean()]}
    parts["within a volume"] = [part for _, part in rows.groupby(PAIR)]
    table = []
    for name, groups in parts.items():
        several = [(g["pad"], g[column]) if len(g) > 1 else None for g in groups]
        values = pd.DataFrame(
            [(np.nan, np.nan) if pair is None else (pearsonr(*pair)[0], spearmanr(*pair)[0]) for pair in several],
            columns=["pearson", "spearman"],
        )
        found = pd.concat([values.mean(skipna=False), values.std(skipna=False).add_suffix("_sd")]).sort_index()
        table.append({"correlation": name, **found, "n": len(values)})
    return pd.DataFrame(table)


def _ranks(scores: pd.DataFrame, name: str) -> pd.Series:
    """Rank in [0, 1] of each case's score among those of the other subjects, at all thicknesses."""
    ranks = {}
    for index, case in scores.iterrows():
        others = scores.loc[scores["subject"] != case["subject"], name]
        ranks[index] = float((others < case[name]).mean()) if len(others) else 0.5
    return pd.Series(ranks)


def scheduling(
    rows: pd.DataFrame, columns: Sequence[str] = ("psnr_head", "hf_psnr", "st_lpips"), n_max: int = N_MAX
) -> pd.DataFrame:
    """The gain by PAD, the image or both as the cue for the number of Euler steps (Tab. S5, Sec. S11).

    The paper leaves the mapping open. Here N is `n_max` times the cue, and then the nearest number that was swept. The
    image's cue is the rank of its score among those of the other subjects, at all thicknesses. The hybrid's is the mean
    of that rank and PAD.

    Where each step costs quality, a cue that takes fewer steps is better, whatever it orders. Two rows tell this apart.
    The image also deals out the very numbers that PAD takes, most steps to the largest score. `fixed` gives all cases
    one number, the mean of PAD's.

    Args:
        rows: of a sweep over `steps`, `N = ...`, and of `scored`, called `image scores`.
        columns: the quality; columns that the rows lack are left out.
        n_max: most steps.

    Returns:
        A row for each cue: mean number of steps and of evaluations of the velocity; mean of the quality; the
        correlation of the score with HF-PSNR within each thickness, the one of largest magnitude.
    """
    case, columns = [*PAIR, "slice_thickness"], [name for name in columns if name in rows]
    swept = rows[rows["label"].str.startswith("N = ")].drop_duplicates([*case, "steps"]).set_index([*case, "steps"])
    scores = rows[rows["label"] == "image scores"].reset_index(drop=True)
    counts = np.array(sorted(swept.index.get_level_values("steps").unique()))
    pads = pd.Series(_pads(scores))
    exact = [ais_steps(*lengths, n_max) for lengths in zip(scores["slice_thickness"], scores["target_thickness"])]
    cues: dict[str, tuple[pd.Series, str | None]] = {"PAD": (pd.Series(exact), None)}
    cues["fixed"] = (pd.Series(np.full(len(exact), np.mean(exact))), None)
    for score, told in SCORES.items():
        rank = _ranks(scores, score)
        cues[f"image: {told}"] = ((n_max * rank).round(), score)
        cues[f"hybrid: {told}"] = ((n_max * (rank + pads) / 2).round(), score)
        order = scores[score].rank(method="first").astype(int) - 1
        cues[f"image, PAD's numbers: {told}"] = (pd.Series(np.sort(exact)[order]), score)
    table = []
    for cue, (steps, name) in cues.items():
        nearest = [int(counts[np.abs(counts - n).argmin()]) for n in steps]
        found = swept.loc[list(zip(*(scores[key] for key in case), nearest)), columns]
        largest = np.nan
        if name is not None:
            quality = swept.xs(int(counts[np.abs(counts - 8).argmin()]), level="steps")["hf_psnr"]
            pairs = scores.set_index(case)[[name]].join(quality)
            values = [pearsonr(g[name], g["hf_psnr"])[0] for _, g in pairs.groupby("slice_thickness") if len(g) > 2]
            largest = max(values, key=abs) if values else np.nan
        cost = {"steps": np.mean(nearest), "evaluations": np.mean(nearest) + (name is not None)}
        table.append({"cue": cue, **cost, **found.mean(), "largest r": largest, "n": len(scores)})
    return pd.DataFrame(table)
