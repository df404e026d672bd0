"""The paired evaluation: sharp volumes are degraded, rebuilt by every method and compared with themselves."""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from monai.data import MetaTensor
from scipy.interpolate import make_interp_spline
from torch import Tensor

from . import metrics
from .consistency import projects, reconcile
from .errors import InputError
from .files import whole_file
from .grid import centred_positions, voxel_spacing
from .inference import DriftInferer
from .networks import Drift
from .slice_profile import SLR, Profile, acquire, regrid_nearest, slice_profile
from .transforms import LoadScand, NormalizeIntensityRanged, RestoreIntensityRanged

logger = logging.getLogger("drift")

EN_DASH = "\N{EN DASH}"  # where a table has no number
INTERPOLATIONS = {"nearest neighbour": "nearest", "linear": "linear", "cubic spline": "cubic"}
SPLINE_DEGREES = {"linear": 1, "cubic": 3}

# key of a metric -> its heading and printed decimals
METRICS = {
    "psnr": ("PSNR (dB)", 2),
    "psnr_head": ("PSNR in head (dB)", 2),
    "ssim": ("SSIM", 4),
    "hf_psnr": ("HF-PSNR (dB)", 2),
    "grad_rmse": ("Grad-RMSE", 4),
    "power_low": ("power 1/2T to 1/T (dB)", 1),
    "power_middle": ("power 1/T to half Nyquist (dB)", 1),
    "power_high": ("power half Nyquist to Nyquist (dB)", 1),
}
CASE = ("volume", "subject", "contrast", "slice_axis", "slice_thickness", "slice_spacing", "target_thickness")
GROUP = ("slice_thickness", "slice_spacing", "contrast", "method")


def load_volume(path: str) -> tuple[Tensor, np.ndarray]:
    """Reads a sharp volume.

    Args:
        path: NIfTI file.

    Returns:
        `(X, Y, Z)` float tensor and the three voxel edges in mm.

    Raises:
        InputError: if the file is no 3-D real-valued volume on an orthogonal grid, or holds NaN or infinite voxels.
    """
    volume = LoadScand("label")({"label": path})["label"]
    data = volume.as_tensor()[0].float()
    if not torch.isfinite(data).all():
        raise InputError(f"{path} has NaN or infinite voxels: expected none. Mask or mend them first.")
    return data, voxel_spacing(volume.affine)


def central_slab(volume: Tensor, slice_axis: int, count: int) -> Tensor:
    """The `count` central slices along the last axis that is not degraded, for quick runs."""
    axis = max(a for a in range(3) if a != slice_axis)
    count = min(count, volume.shape[axis])
    return volume.narrow(axis, (volume.shape[axis] - count) // 2, count)


def interpolate_slices(
    thick: Tensor, axis: int, slice_spacing: float, fine_count: int, fine_spacing: float, method: str
) -> Tensor:
    """Thick slices on the fine grid by interpolation between their centres along the slice axis.

    Beyond the centres of the outermost slices nothing was measured: their values are repeated there.

    Args:
        thick: image with thick slices along `axis`.
        axis: slice axis.
        slice_spacing: of the thick slices, in mm.
        fine_count: slices of the fine grid.
        fine_spacing: of the fine grid, in mm.
        method: `"nearest"`, `"linear"` or `"cubic"`, a not-a-knot spline. Fewer slices than a spline needs lower its
            degree.

    Returns:
        The image with `fine_count` slices along `axis`.

    Raises:
        ValueError: if the method is none of these.
    """
    if method == "nearest":
        return regrid_nearest(thick, axis, slice_spacing, fine_count, fine_spacing)
    if method not in SPLINE_DEGREES:
        raise ValueError(f"method is {method!r}: expected 'nearest', 'linear' or 'cubic'.")
    count = thick.shape[axis]
    centres = centred_positions(count, slice_spacing, fine_count, fine_spacing)
    degree = min(SPLINE_DEGREES[method], count - 1)
    spline = make_interp_spline(centres, thick.cpu().double().numpy(), k=degree, axis=axis)
    return torch.from_numpy(spline(np.clip(np.arange(fine_count), centres[0], centres[-1]))).to(thick)


@dataclass(frozen=True)
class Acquisition:
    """How thick slices lie on the fine grid of their truth; lengths in mm."""

    slice_axis: int
    slice_thickness: float
    slice_spacing: float
    fine_count: int
    fine_spacing: float  # the target thickness as well


def rebuild(
    thick: Tensor,
    acquisition: Acquisition,
    network: Drift,
    inferer: DriftInferer,
    device: torch.device | str,
    consistency: str = "project",
) -> Tensor:
    """Thick slices through the network, in the steps and the order of `configs/inference.yaml`.

    Args:
        thick: `(X, Y, Z)` with thick slices along the slice axis.
        acquisition: of the thick slices.
        network: a `Drift` on `device`.
        inferer: how a volume goes through it.
        device: of the network.
        consistency: `"project"` to reconcile the result with the slices, whose profile is taken for `SLR`, whatever it
            was; `"measure"` for the network's own.

    Returns:
        `(X, Y, Z)` on the fine grid, in the units of `thick`.
    """
    axis, spacing = acquisition.slice_axis, acquisition.slice_spacing
    facts = {
        "slice_axis": axis,
        "slice_spacing": spacing,
        "slice_thickness": acquisition.slice_thickness,
        "target_thickness": acquisition.fine_spacing,
    }
    unit = NormalizeIntensityRanged("image")({"image": MetaTensor(thick[None], meta=facts)})["image"]
    fine = regrid_nearest(unit.as_tensor(), 1 + axis, spacing, acquisition.fine_count, acquisition.fine_spacing)
    result = inferer(MetaTensor(fine[None].to(device), meta=unit.meta), network)
    volume = RestoreIntensityRanged("pred")({"pred": result})["pred"].as_tensor()[0, 0].to(thick)
    if not projects(consistency):
        return volume
    return reconcile(volume, thick, axis, acquisition.fine_spacing, acquisition.slice_thickness, spacing)


def reconstructions(
    thick: Tensor,
    acquisition: Acquisition,
    network: Drift,
    inferers: Mapping[str, DriftInferer],
    device: torch.device | str,
    consistency: str,
) -> Iterator[tuple[str, int | None, Tensor]]:
    """Rebuilds thick slices by each method in turn; arguments as `rebuild` and `evaluate`.

    Yields:
        Name of the method, Euler steps (None where there is no network), `(X, Y, Z)` on the fine grid.
    """
    a = acquisition
    for name, method in INTERPOLATIONS.items():
        volume = interpolate_slices(thick, a.slice_axis, a.slice_spacing, a.fine_count, a.fine_spacing, method)
        yield name, None, volume
    for name, inferer in inferers.items():
        steps = inferer.step_count(a.slice_thickness, a.fine_spacing)
        yield name, steps, rebuild(thick, acquisition, network, inferer, device, consistency)


def measure(prediction: Tensor, truth: Tensor, mask: Tensor, acquisition: Acquisition) -> dict[str, float]:
    """All metrics of one rebuilt volume.

    Args:
        prediction: `(X, Y, Z)`.
        truth: `(X, Y, Z)`.
        mask: `(X, Y, Z)` bool, the head.
        acquisition: that the volume was rebuilt from.

    Returns:
        The keys of `METRICS`.
    """
    axis, spacing = acquisition.slice_axis, acquisition.fine_spacing
    bands = metrics.through_plane_bands(acquisition.slice_thickness, spacing)
    low, middle, high = metrics.power_ratios(prediction, truth, axis, spacing, bands)
    return {
        "psnr": metrics.psnr(prediction, truth),
        "psnr_head": metrics.psnr(prediction, truth, mask),
        "ssim": metrics.ssim(prediction, truth),
        "hf_psnr": metrics.hf_psnr(prediction, truth),
        "grad_rmse": metrics.gradient_rmse(prediction, truth, axis),
        "power_low": low,
        "power_middle": middle,
        "power_high": high,
    }


def summarise(rows: Sequence[Mapping]) -> list[dict]:
    """Mean and standard deviation of each metric, for each thickness, contrast and method, in order of appearance.

    Args:
        rows: one for each volume, slice axis, thickness and method.

    Returns:
        Rows with the keys of the group; `n`, the number of its rows; and for each metric `{"mean", "sd", "n"}`, its `n`
        counting the rows where the metric exists (a band can be empty on one grid and not on another). The standard
        deviation is the sample's, with `n - 1` in the denominator; NaN for one row.
    """
    groups: dict[tuple, list[Mapping]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in GROUP), []).append(row)
    summary = []
    for key, members in groups.items():
        entry = dict(zip(GROUP, key)) | {"n": len(members)}
        for metric in METRICS:
            values = np.array([row[metric] for row in members])
            values = values[~np.isnan(values)]
            with np.errstate(invalid="ignore"):  # the PSNR of a perfect volume is infinite, its spread undefined
                entry[metric] = {
                    "mean": float(values.mean()) if len(values) else math.nan,
                    "sd": float(values.std(ddof=1)) if len(values) > 1 else math.nan,
                    "n": len(values),
                }
        summary.append(entry)
    return summary


def _number(value: float, decimals: int) -> str:
    return EN_DASH if math.isnan(value) else f"{value:.{decimals}f}"


def _mean_sd(statistic: Mapping[str, float], decimals: int, n: int) -> str:
    if not statistic["n"]:
        return EN_DASH
    text = f"{_number(statistic['mean'], decimals)} ± {_number(statistic['sd'], decimals)}"
    return text if statistic["n"] == n else f"{text} (N = {statistic['n']})"


def _markdown_table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def summary_table(summary: Sequence[Mapping]) -> str:
    """Mean ± standard deviation as a Markdown table; an en dash where there is no number."""
    header = ["T (mm)", "spacing (mm)", "contrast", "method", "N", *(heading for heading, _ in METRICS.values())]
    body = [
        [f"{e['slice_thickness']:g}", f"{e['slice_spacing']:g}", e["contrast"], e["method"], str(e["n"])]
        + [_mean_sd(e[key], decimals, e["n"]) for key, (_, decimals) in METRICS.items()]
        for e in summary
    ]
    return _markdown_table(header, body)


def _case_table(rows: Sequence[Mapping]) -> str:
    header = ["volume", "contrast", "axis", "T (mm)", "spacing (mm)", "target (mm)", "method", "steps"]
    body = [
        [row["volume"], row["contrast"], str(row["slice_axis"])]
        + [f"{row[key]:.4g}" for key in ("slice_thickness", "slice_spacing", "target_thickness")]
        + [row["method"], EN_DASH if row["steps"] is None else str(row["steps"])]
        + [_number(row[key], decimals) for key, (_, decimals) in METRICS.items()]
        for row in rows
    ]
    return _markdown_table(header + [heading for heading, _ in METRICS.values()], body)


def _csv_table(rows: Sequence[Mapping], summary: Sequence[Mapping]) -> str:
    """One line for each case and, told apart by `statistic`, a mean and an SD for each group."""
    text = io.StringIO()
    writer = csv.DictWriter(text, ["statistic", "n", *CASE, "method", "steps", *METRICS], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({"statistic": "value", "n": 1, **row})
    for entry in summary:
        group = {key: entry[key] for key in GROUP}
        for statistic in ("mean", "sd"):
            values = {key: entry[key][statistic] for key in METRICS}
            writer.writerow({"statistic": statistic, "n": entry["n"], **group, **values})
    return text.getvalue()


def _finite(value):
    """The same with null for NaN and infinity, which JSON cannot say."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_tables(output_dir: str | os.PathLike, settings: Mapping, rows: Sequence[Mapping]) -> None:
    """Writes `evaluation.csv`, `evaluation.json` and `evaluation.md`: settings, cases, and mean ± SD.

    Args:
        output_dir: folder, made if missing.
        settings: of the evaluation.
        rows: one for each volume, slice axis, thickness and method.
    """
    summary = summarise(rows)
    content = _finite({"settings": settings, "rows": rows, "summary": summary})
    about = "\n".join(f"- {key}: {value}" for key, value in settings.items())
    markdown = (
        f"# Paired evaluation\n\n{about}\n\n## Mean ± SD\n\n{summary_table(summary)}\n"
        f"N counts pairs of a volume and a slice axis. {EN_DASH}: no such frequency on the grid, or one pair alone.\n\n"
        f"## Each volume\n\n{_case_table(rows)}"
    )
    tables = {
        "csv": _csv_table(rows, summary),
        "json": json.dumps(content, indent=1, allow_nan=False) + "\n",
        "md": markdown,
    }
    for ending, text in tables.items():
        with whole_file(Path(output_dir) / f"evaluation.{ending}") as partial:
            partial.write_text(text, encoding="utf-8")


def _check_settings(
    thicknesses: Sequence[float],
    axes: str,
    spacing_ratio: float,
    noise: float,
    seed: int,
    profile: Profile,
    slab: int | None,
    consistency: str,
) -> None:
    """Refuses what `evaluate` cannot do, before the first volume is read."""
    if not thicknesses or not all(0 < t < math.inf for t in thicknesses):
        raise InputError(
            f"thicknesses are {thicknesses}: expected positive lengths in mm. Set --thicknesses [3.0,5.0]."
        )
    if axes not in ("first", "all"):
        raise InputError(f"axes is {axes!r}: expected first or all, of each volume's sharp axes. Set --axes.")
    if not 0 < spacing_ratio < math.inf:
        raise InputError(f"spacing_ratio is {spacing_ratio}: expected a positive number. Set it to 1.0 for no gap.")
    if not 0 <= noise < math.inf:
        raise InputError(f"noise is {noise}: expected a share of the intensity range, 0 or more. Set --noise.")
    if not isinstance(seed, int):
        raise InputError(f"seed is {seed!r}: expected a whole number. Set --seed.")
    slice_profile(profile)
    if slab is not None and not (isinstance(slab, int) and slab >= 1):
        raise InputError(f"slab is {slab!r}: expected a number of slices, or null for whole volumes. Set --slab.")
    projects(consistency)


def evaluate(
    volumes: Sequence[Mapping],
    network: Drift,
    inferers: Mapping[str, DriftInferer],
    output_dir: str | os.PathLike,
    thicknesses: Sequence[float],
    axes: str = "first",
    spacing_ratio: float = 1.0,
    noise: float = 0.0,
    seed: int = 0,
    profile: Profile = SLR,
    slab: int | None = None,
    consistency: str = "project",
    device: torch.device | str = "cpu",
) -> dict:
    """Degrades sharp volumes, rebuilds them by every method and compares them with what they were.

    Writes the tables of `write_tables`, anew after each volume.

    Args:
        volumes: items of `datasets.sharp_volumes`.
        network: a `Drift` on `device`.
        inferers: name of a method -> how a volume goes through the network; `steps: 0` is stage 1 alone.
        output_dir: where the tables are written.
        thicknesses: of the simulated slices, in mm; none below a volume's own spacing.
        axes: `"first"` degrades along the first of a volume's `sharp_axes`, `"all"` along each in turn.
        spacing_ratio: slice spacing / slice thickness; above 1 for gaps, below for overlap.
        noise: standard deviation of Gaussian noise in the thick slices, as a share of the truth's intensity range.
        seed: of the noise.
        profile: of the slices, see `slice_profile.slice_profile`.
        slab: number of central slices kept along the last axis that is not degraded; null for all.
        consistency: of the networks' results with the slices, see `rebuild`.
        device: of the network.

    Returns:
        `settings`, `rows` (a case and its metrics each) and `summary` (see `summarise`).

    Raises:
        InputError: if an option is out of its range, or a volume cannot be used.
        ValueError: if a method returns NaN or infinite voxels.
    """
    thicknesses = [float(t) for t in np.ravel(thicknesses)]
    settings = {
        "thicknesses": thicknesses,
        "axes": axes,
        "spacing_ratio": spacing_ratio,
        "noise": noise,
        "seed": seed,
        "profile": profile,
        "slab": slab,
        "consistency": consistency,
    }
    _check_settings(thicknesses, axes, spacing_ratio, noise, seed, profile, slab, consistency)
    generator = torch.Generator().manual_seed(seed)
    network.eval()
    rows: list[dict] = []
    for item in volumes:
        name = Path(item["label"]).name
        volume, spacings = load_volume(item["label"])
        for axis in item["sharp_axes"] if axes == "all" else item["sharp_axes"][:1]:
            truth = volume if slab is None else central_slab(volume, axis, slab)
            mask = metrics.head_mask(truth)
            noise_sd = noise * metrics.data_range(truth)
            for thickness in thicknesses:
                slice_spacing = round(spacing_ratio * thickness, 9)  # 1.2 x 3 mm is 3.6 mm in the tables, too
                a = Acquisition(axis, thickness, slice_spacing, truth.shape[axis], float(spacings[axis]))
                if thickness < a.fine_spacing:
                    raise InputError(
                        f"{name} has voxels of {a.fine_spacing:.4g} mm along axis {axis}: slices of {thickness:g} mm "
                        "cannot be simulated, expected thicker ones. Set --thicknesses."
                    )
                thick = acquire(truth, axis, a.fine_spacing, thickness, a.slice_spacing, profile)
                thick = thick + noise_sd * torch.randn(thick.shape, generator=generator)
                case = (name, item["subject"], item["contrast"], axis, thickness, a.slice_spacing, a.fine_spacing)
                for method, steps, prediction in reconstructions(thick, a, network, inferers, device, consistency):
                    if not torch.isfinite(prediction).all():
                        raise ValueError(
                            f"{method} made NaN or infinite voxels of {name} at {thickness:g} mm: expected none. "
                            "Check the weights."
                        )
                    quality = measure(prediction, truth, mask, a)
                    rows.append({**dict(zip(CASE, case)), "method": method, "steps": steps, **quality})
                    logger.info(f"{name} axis {axis}, {thickness:g} mm, {method}: PSNR {quality['psnr']:.2f} dB")
        write_tables(output_dir, settings, rows)
    summary = summarise(rows)
    logger.info(f"wrote {Path(output_dir) / 'evaluation'}.csv, .json and .md\n{summary_table(summary)}")
    return {"settings": settings, "rows": rows, "summary": summary}
