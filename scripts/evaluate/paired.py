"""The paired evaluation: sharp volumes are degraded, rebuilt by every method and compared with the originals."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from monai.data import MetaTensor
from monai.utils import convert_to_tensor
from torch import Tensor, nn

from ..errors import InputError, is_number, logger
from ..rebuild.error_map import ErrorMaps
from ..rebuild.rebuilder import Rebuilder
from ..rebuild.rebuilt import ErrorMap, Rebuilt
from ..rebuild.stack_inferer import StackInferer
from ..stack import spectra, tissue, trace
from ..stack.acquisition import SLR, Acquisition, Profile
from ..stack.grid import voxel_spacing
from ..stack.intensity import IntensityRange, intensity_range
from ..stack.noise import Noise
from ..stack.profile import slice_profile
from ..stack.slices import Slices
from ..train.denoising import denoised as without_noise
from ..train.simulation import acquired_truth, central_slab, scanned
from ..train.truth import read_volume
from .checks import check_thickness, expect, lengths
from .metrics import (
    covered,
    gradient_rmse,
    hf_psnr,
    lesion_contrast_kept,
    lesion_sizes,
    psnr,
    ssim,
    width_and_rank,
)
from .tables import case_of, log_means, write_tables

SMALL_LESION = 60  # voxels; less is small
NOMINAL = (0.5, 0.7, 0.9, 0.95, 0.99)  # confidences of error maps
TRUTH = "truth"  # the method whose result is the truth; some metrics need no truth and measure it as well

# Thick slices (1, X, Y, Z) with affine and acquisition, and that acquisition -> (1, X', Y', Z') on its fine grid, or a
# `Rebuilt`, which says more
Method = Callable[[MetaTensor, Acquisition], Tensor | Rebuilt]
# Truth (X, Y, Z) with its affine, and slice axis -> what measures a prediction (X, Y, Z): columns and their numbers
Metrics = Callable[[MetaTensor, int], Callable[[Tensor], dict[str, float]]]


def by_networks(
    thick: MetaTensor,
    acquisition: Acquisition,
    network: nn.Module,
    inferer: StackInferer,
    device: torch.device | str,
    maps: ErrorMaps | None = None,
) -> Rebuilt:
    """The method that ships, `Rebuilder`; the slices carry their acquisition."""
    return Rebuilder(network, inferer, device, error_maps=maps or ErrorMaps())(Slices.of(thick))


def volume_of(result: Tensor | Rebuilt) -> Tensor:
    """The volume of a method's result: `(1, X', Y', Z')` on the CPU, without meta data."""
    volume = result.volume[None] if isinstance(result, Rebuilt) else result
    return convert_to_tensor(volume, device="cpu", track_meta=False)


def given(thick: MetaTensor, acquisition: Acquisition, volume: Tensor) -> Tensor:
    """The method whose result is a given volume."""
    return volume


def same_grid(one: MetaTensor, other: MetaTensor) -> bool:
    """Whether two volumes have one shape and one affine."""
    return one.shape == other.shape and torch.allclose(one.affine, other.affine, atol=1e-3)


def read_lesion_sizes(item: Mapping, volume: MetaTensor) -> MetaTensor | None:
    """For each voxel, how large its lesion is (`lesion_sizes`), `(1, X, Y, Z)`; null without a mask of lesions."""
    if "lesions" not in item:
        return None
    mask = read_volume(item["lesions"])
    if not same_grid(mask, volume):
        raise InputError(
            f"{item['lesions']} is not on the grid of {item['label']}: expected shape and affine of the volume. "
            "Resample the mask, or take it out of the datalist."
        )
    return MetaTensor(lesion_sizes(mask.as_tensor()[0])[None], affine=mask.affine)


@dataclass(frozen=True)
class Truth:
    """A sharp volume, and the masks that it alone gives; rebuilt volumes are measured with them.

    Attributes:
        sharp: `(1, X, Y, Z)` with its affine, not constant.
        slice_axis: of the slices that are simulated.
        lesion_sizes: `(1, X, Y, Z)` in voxels, 0 outside of lesions; null where no mask is known.
        denoised: `(X, Y, Z)`, the volume without its own noise; null where it is not asked for.
    """

    name: str
    sharp: MetaTensor
    slice_axis: int
    lesion_sizes: MetaTensor | None
    metrics: Sequence[Metrics] = ()
    denoised: Tensor | None = None

    @cached_property
    def tissue_range(self) -> IntensityRange:
        """The range of tissue."""
        return intensity_range(self.volume)

    @cached_property
    def volume(self) -> Tensor:
        """`(X, Y, Z)`."""
        return self.sharp.as_tensor()[0]

    @cached_property
    def head(self) -> Tensor:
        """`(X, Y, Z)` bool."""
        return tissue.head_mask(self.volume)

    @cached_property
    def flat(self) -> Tensor:
        """`(X, Y, Z)` bool, tissue without edges."""
        return tissue.flat_tissue(self.volume)

    @cached_property
    def measures(self) -> list[Callable[[Tensor], dict[str, float]]]:
        """Each of `metrics`, for predictions `(X, Y, Z)` of this volume."""
        return [metrics(self.sharp[0], self.slice_axis) for metrics in self.metrics]  # type: ignore[arg-type]

    def row(self, label: str, method: Method, thick: MetaTensor) -> dict:
        """A method's columns of `CASE` and `METRICS`.

        Args:
            thick: `(1, X, Y, Z)` slices of the volume with their acquisition, which the method gets.
        """
        stated, start = Acquisition.of(thick), time.perf_counter()
        result = method(thick.clone(), stated)
        seconds = time.perf_counter() - start
        prediction = volume_of(result).to(self.volume)
        if prediction.shape != self.sharp.shape or not torch.isfinite(prediction).all():
            raise InputError(
                f"{label} made a volume of {tuple(prediction.shape)} of {self.name} at {stated.slice_thickness:g} mm: "
                f"expected {tuple(self.sharp.shape)}, all finite. Mend the method, or leave it out."
            )
        quality = self.measure(prediction[0], stated)
        own: dict[str, Any] = {"seconds": seconds}
        if isinstance(result, Rebuilt):
            own |= {"steps": result.steps, **result.scores}
            own |= {} if result.error_map is None else self.sureness(prediction[0], result.error_map)
        return {"method": label, "steps": None, **quality, **own}

    def sureness(self, prediction: Tensor, error_map: ErrorMap) -> dict[str, float]:
        """Coverage of the error map of a prediction `(X, Y, Z)`, for each of `NOMINAL`, and its width and rank."""
        widths = {level: error_map.half_width(level).as_tensor() for level in NOMINAL}
        error, width = (prediction - self.volume).abs(), widths[0.9]
        found = {f"coverage_{100 * level:.0f}": covered(error, one, self.head) for level, one in widths.items()}
        found["lesion_coverage"] = math.nan
        if self.lesion_sizes is not None:
            found["lesion_coverage"] = covered(error, width, self.lesion_sizes.as_tensor()[0] > 0)
        return {**found, **width_and_rank(error, width, self.head)}

    def measure(self, prediction: Tensor, acquisition: Acquisition) -> dict[str, float]:
        """Columns of `METRICS` for a volume `(X, Y, Z)` that was rebuilt from an acquisition."""
        axis, spacing, truth = self.slice_axis, acquisition.target_spacing, self.volume
        bands = spectra.through_plane_bands(acquisition.slice_thickness, spacing)
        tissue_range, (streak, steps) = self.tissue_range, trace.streak(prediction, axis, self.flat)
        low, middle, high = spectra.power_ratios(prediction, truth, axis, spacing, bands)
        kept = {"lesions": math.nan, "small_lesions": math.nan}
        if self.lesion_sizes is not None:
            for name, below in {"lesions": math.inf, "small_lesions": SMALL_LESION}.items():
                kept[name] = lesion_contrast_kept(prediction, truth, self.lesion_sizes.as_tensor()[0], below)
        return {
            "psnr": psnr(prediction, truth),
            "psnr_head": psnr(prediction, truth, self.head),
            "ssim": ssim(prediction, truth),
            "hf_psnr": hf_psnr(prediction, truth),
            "grad_rmse": gradient_rmse(prediction, truth, axis),
            "power_low": low,
            "power_middle": middle,
            "power_high": high,
            "psnr_denoised": math.nan if self.denoised is None else psnr(prediction, self.denoised, self.head),
            "step_ratio": trace.step_ratio(prediction, acquisition, self.flat),
            "streak": streak,
            "streak_steps": 100 * steps / tissue_range.extent,
            **kept,
            **{name: value for measure in self.measures for name, value in measure(prediction).items()},
        }


def evaluate(
    volumes: Sequence[Mapping],
    methods: Mapping[str, Method],
    output_dir: str | os.PathLike,
    thicknesses: Sequence[float],
    axes: str = "first",
    spacing_ratio: float = 1.0,
    simulated_noise: float = 0.0,
    simulated_width: float = 1.0,
    seed: int = 0,
    profile: Profile = SLR,
    slab: int | None = None,
    metrics: Metrics | None = None,
    segmenter: Metrics | None = None,
    denoised: bool = False,
    about: Mapping | None = None,
) -> pd.DataFrame:
    """Degrades sharp volumes, rebuilds them by every method and compares them with the originals.

    Writes the tables of `write_tables`, anew after each volume. Methods take the slices' profile for `SLR`, whatever
    the true one is: no header states it.

    Args:
        volumes: items of `datasets.sharp_volumes`; `lesions` may name a mask of lesions.
        methods: name -> how thick slices become a volume. A `Rebuilt` adds its number of steps and its
            scores, which are columns of the rows.
        thicknesses: of the simulated slices, in mm; none below a volume's own spacing.
        axes: `"first"` degrades along the first of a volume's `sharp_axes`, `"all"` along each in turn.
        spacing_ratio: slice spacing / slice thickness; above 1 for gaps, below for overlap.
        simulated_noise: standard deviation of Rician noise in the thick slices, as a share of the range of tissue.
        simulated_width: pixels; of the acquired matrix, which the slices and the truth are interpolated from.
        slab: number of central slices kept along the last axis that is not degraded; null for all.
        metrics: more metrics; with them, the truth itself is one more method.
        segmenter: segments the truth and every result, or their slabs; the labels are compared.
        denoised: compare with the truth without its own noise, too (`train.denoising`).
        about: more lines for the tables, such as how the methods are set.

    Returns:
        A row for each volume, slice axis, thickness and method; columns are those of `CASE` and `METRICS`.
    """
    thicknesses = lengths(thicknesses)
    for name, chosen in {"methods": methods, "thicknesses": thicknesses}.items():
        if not len(chosen):
            raise InputError(f"{name} are none: expected one or more. Set --{name}.")
    for name, method in methods.items():
        expect(callable(method), f"methods::{name}", method, "a callable, (thick slices, acquisition) -> volume")
    expect(TRUTH not in methods, f"methods::{TRUTH}", "given", "another name, for the truth itself bears this one")
    expect(axes in ("first", "all"), "axes", axes, "first or all, of each volume's sharp axes")
    expect(is_number(spacing_ratio, 0.01), "spacing_ratio", spacing_ratio, "a positive number, 1.0 for no gap")
    expect(is_number(simulated_noise, 0), "simulated_noise", simulated_noise, "a share of the range, 0 or more")
    expect(is_number(simulated_width, 1), "simulated_width", simulated_width, "a number of pixels, 1 or more")
    noise = Noise(float(simulated_noise), (float(simulated_width),) * 2)
    expect(isinstance(seed, int), "seed", seed, "a whole number")
    slice_profile(profile)
    whole = slab is None or (isinstance(slab, int) and is_number(slab, 1))
    expect(whole, "slab", slab, "a number of slices, or null for whole volumes")
    if not (metrics is None or callable(metrics)):
        raise InputError(
            f"metrics is {metrics!r}: expected none. For more metrics, stack configs/paper/image_quality.yaml of the "
            "repository on evaluate.yaml (docs/metrics.md)."
        )
    options = {"thicknesses": thicknesses, "axes": axes, "spacing_ratio": spacing_ratio, "seed": seed}
    options |= {"simulated_noise": simulated_noise, "simulated_width": simulated_width, "denoised": denoised}
    options |= {"profile": profile, "slab": slab, **(about or {})}
    generator = torch.Generator().manual_seed(seed)
    rows: list[dict] = []
    table = pd.DataFrame()
    for item in volumes:
        name, volume = Path(item["label"]).name, read_volume(item["label"])
        lesions = read_lesion_sizes(item, volume)
        for axis in item["sharp_axes"] if axes == "all" else item["sharp_axes"][:1]:
            whole_truth = acquired_truth(volume, axis, noise)
            sharp, edge = central_slab(whole_truth, axis, slab), float(voxel_spacing(volume.affine)[axis])
            if sharp.max() == sharp.min():
                raise InputError(f"{name} is constant where it is evaluated: expected a head. Leave this volume out.")
            kept = None if lesions is None else central_slab(lesions, axis, slab)
            clean = central_slab(without_noise(whole_truth, item["sharp_axes"]), axis, slab)[0] if denoised else None
            truth = Truth(name, sharp, axis, kept, [one for one in (metrics, segmenter) if one], clean)
            known: dict[str, Method] = {} if metrics is None else {TRUTH: partial(given, volume=sharp)}
            for thickness in thicknesses:
                check_thickness(name, axis, edge, thickness)
                spacing = round(spacing_ratio * thickness, 9)  # 1.2 x 3 mm is 3.6 mm in the tables, too
                acquired = Acquisition.of_truth(
                    axis, sharp.shape[1 + axis], edge=edge, thickness=thickness, spacing=spacing, profile=profile
                )
                thick = scanned(sharp, acquired, noise, generator)
                for label, method in {**methods, **known}.items():
                    rows.append(case_of(item, acquired) | truth.row(label, method, thick))
                    logger.info(f"{name} axis {axis}, {thickness:g} mm, {label}: PSNR {rows[-1]['psnr']:.2f} dB")
        table = write_tables(output_dir, options, rows)
    log_means(output_dir, table)
    return table
