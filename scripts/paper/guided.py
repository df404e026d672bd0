"""Guides, evaluated: each contrast of a head is degraded and rebuilt beside another contrast, as a patient would move.

Two methods without a network stand beside DRIFT, and show the gain of its network.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from monai.data import MetaTensor
from scipy import ndimage
from torch import Tensor

from ..errors import InputError, logger
from ..evaluate.checks import check_thickness, lengths
from ..evaluate.paired import Method, Truth, read_lesion_sizes, same_grid
from ..evaluate.tables import case_of, log_means, write_tables
from ..files import stem
from ..rebuild.guide import PlacedGuide
from ..rebuild.rebuilder import Rebuilder
from ..rebuild.rebuilt import Rebuilt
from ..stack.acquisition import Acquisition
from ..stack.grid import voxel_spacing
from ..stack.intensity import data_range
from ..stack.interpolation import interpolate
from ..stack.profile import acquire
from ..stack.slices import Slices
from ..train.simulation import central_slab, slices_of
from ..train.truth import read_volume
from .several import add_noise, check_draws, seen_again

# Thick slices, and the guide beside them -> as `paired.Method`
GuidedMethod = Callable[[Slices, PlacedGuide], Tensor | Rebuilt]
WINDOW = 4.0  # mm; standard deviation of the windows of both methods without a network
LEAST = 1e-4  # variance of a guide that shows nothing, in squares of its range


def _in_windows(volume: Tensor, edges: np.ndarray) -> np.ndarray:
    return ndimage.gaussian_filter(volume.double().numpy(), WINDOW / edges, mode="nearest")


def _relation(values: Tensor, guide: Tensor, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope and offset of the line by which a guide foretells values best, in the window around each voxel."""
    mean, of_guide = _in_windows(values, edges), _in_windows(guide, edges)
    common = _in_windows(values * guide, edges) - mean * of_guide
    slope = common / (_in_windows(guide * guide, edges) - of_guide**2 + LEAST)
    return slope, mean - slope * of_guide


def guided_filter(slices: Slices, placed: PlacedGuide) -> Tensor:
    """The spline's volume, filtered by the guide: He et al., IEEE Trans. Pattern Anal. Mach. Intell. 35:1397 (2013)."""
    edges = voxel_spacing(placed.volume.affine)
    cubic = interpolate(slices.array, slices.acquisition, "cubic")
    guide = placed.volume.as_tensor()[0].nan_to_num(-1.0).float()
    slope, offset = (_in_windows(torch.from_numpy(one), edges) for one in _relation(cubic, guide, edges))
    return torch.from_numpy(slope * guide.numpy() + offset)[None].float()


def local_regression(slices: Slices, placed: PlacedGuide) -> Tensor:
    """The spline's volume, and the guide's detail that its slices lost, by the slope between both scans' slices."""
    acquisition, guide = slices.acquisition, placed.volume.as_tensor()[0].nan_to_num(-1.0).float()
    of_guide = acquire(guide, acquisition)
    slope, _ = _relation(slices.array, of_guide, slices.edges)
    lost = guide - interpolate(of_guide, acquisition, "cubic")
    cubic = interpolate(slices.array, acquisition, "cubic")
    factor = interpolate(torch.from_numpy(slope), acquisition, "linear")
    return (cubic + factor.float() * lost)[None]


def drawn_guide(
    sharp: MetaTensor,
    rng: np.random.Generator,
    motion: tuple[float, float],
    shading: float,
    noise: float,
) -> MetaTensor:
    """A guide as another scan of the examination shows it: `(1, X, Y, Z)` with its acquisition.

    Args:
        sharp: `(1, X, Y, Z)` with its affine.
        rng: motion, gain and noise are drawn from it.
        motion, shading: see `several.seen_again`.
        noise: standard deviation, as a share of the guide's range.
    """
    affine = np.asarray(sharp.affine, dtype=float)
    moved, _ = seen_again(affine, sharp.as_tensor()[0], rng, motion, shading)
    guide = MetaTensor(moved[None], affine=sharp.affine)
    edges = voxel_spacing(affine)
    axis = int(edges.argmax())
    edge = float(edges[axis])
    add_noise(guide, noise * data_range(moved), rng)
    Acquisition.of_truth(axis, moved.shape[axis], edge=edge, thickness=edge).attach(guide)
    return guide


def evaluate_guided(
    volumes: Sequence[Mapping],
    methods: Mapping[str, Method],
    guided_methods: Mapping[str, GuidedMethod],
    rebuilder: Rebuilder,
    output_dir: str | os.PathLike,
    thicknesses: Sequence[float],
    largest_motion: Sequence[float] = (5.0, 5.0),
    shading: float = 0.2,
    guide_noise: float = 0.01,
    simulated_noise: float = 0.0,
    seed: int = 0,
    slab: int | None = None,
    about: Mapping | None = None,
) -> pd.DataFrame:
    """Degrades sharp volumes, and rebuilds them without a guide and with each guide that the datalist names.

    Before a guide the head moves, and a coil shades it. It is registered by the deployed code.

    Args:
        volumes: items of `datasets.sharp_volumes`; those without `guides` are passed over.
        methods: without a guide, see `paired.evaluate`.
        guided_methods: name -> `(thick slices, guide)` -> volume.
        rebuilder: that registers the guides.
        output_dir: where the tables are written.
        thicknesses: of the slices, in mm.
        largest_motion, shading, guide_noise: see `drawn_guide`.
        simulated_noise: in the slices of the scan, as a share of the truth's range.
        seed: of what is drawn for a guide, with the places of volume and guide in their lists.
        slab: see `paired.evaluate`. Guides stay whole.
        about: more lines for the tables.

    Returns:
        A row for each volume, thickness, method and guide. The method's name has the guide's contrast.
    """
    thicknesses = lengths(thicknesses)
    most = check_draws(largest_motion, seed, shading=shading, guide_noise=guide_noise, simulated_noise=simulated_noise)
    with_guides = [item for item in volumes if item.get("guides")]
    if not with_guides:
        raise InputError('no volume has guides: expected "guides" in the datalist (docs/training.md). Add them.')
    contrasts = {item["label"]: item["contrast"] for item in volumes}
    options: dict[str, object] = {"thicknesses": thicknesses, "largest_motion": list(largest_motion)}
    options |= {"shading": shading, "guide_noise": guide_noise, "simulated_noise": simulated_noise, "seed": seed}
    options |= {"slab": slab, **(about or {})}
    rows: list[dict] = []
    table = pd.DataFrame()
    for place, item in enumerate(with_guides):
        name, whole, axis = Path(item["label"]).name, read_volume(item["label"]), item["sharp_axes"][0]
        sharp, lesions = central_slab(whole, axis, slab), read_lesion_sizes(item, whole)
        truth = Truth(name, sharp, axis, None if lesions is None else central_slab(lesions, axis, slab))
        edge = float(voxel_spacing(whole.affine)[axis])
        for thickness in thicknesses:
            check_thickness(name, axis, edge, thickness)
            thick = slices_of(sharp, axis, thickness)
            rng = np.random.default_rng([seed, place])
            add_noise(thick, simulated_noise * data_range(truth.volume), rng)
            acquisition = Acquisition.of(thick)
            known = dict(methods)
            for number, path in enumerate(item["guides"]):
                other = read_volume(path)
                if not same_grid(other, whole):
                    raise InputError(f"{path} is not on the grid of {item['label']}. Resample it, or leave it out.")
                rng = np.random.default_rng([seed, place, 1 + number])
                drawn = drawn_guide(other, rng, most, shading, guide_noise)
                placed = rebuilder.place(rebuilder.guide_scan(Slices.of(drawn)), Slices.of(thick))
                by = contrasts.get(path, stem(Path(path).name))
                logger.info(f"{name} by {by}: likeness {placed.likeness:.2f}, {placed.degrees:.1f} degrees")
                for label, method in guided_methods.items():
                    known[f"{label}, by {by}"] = partial(_guided, method=method, placed=placed)
            for label, one in known.items():
                rows.append(case_of(item, acquisition) | truth.row(label, one, thick))
                logger.info(f"{name}, {thickness:g} mm, {label}: {rows[-1]['psnr_head']:.2f} dB in the head")
        table = write_tables(output_dir, options, rows)
    log_means(output_dir, table)
    return table


def _guided(thick: MetaTensor, acquisition: Acquisition, method: GuidedMethod, placed: PlacedGuide) -> Tensor | Rebuilt:
    """A method with its guide, as one of `paired`."""
    return method(Slices.of(thick), placed)
