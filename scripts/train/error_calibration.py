"""The calibration of error maps on people that no network was trained on; it completes the card of the weights."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from monai.data import MetaTensor
from monai.transforms import CenterSpatialCrop
from scipy.optimize import least_squares

from ..inputs.transforms import LoadScand
from ..method.calibration import BOXES, QUIET, TYPICAL, Calibration, box_means, decay, person, quantiles, scan_scale
from ..method.networks import Drift
from ..method.weights import read_card, write_card
from ..rebuild.error_map import expected_error, noise_share
from ..rebuild.inferer import DriftInferer, rebuild
from ..stack.acquisition import SLR, Acquisition, Profile
from ..stack.grid import voxel_spacing
from ..stack.intensity import data_range
from ..stack.tissue import head_mask
from .simulation import simulate

logger = logging.getLogger("drift")

# Slice profile, slice spacing over thickness, and noise as a share of the intensity range
KINDS: tuple[tuple[Profile, float, float], ...] = (
    (SLR, 1.0, 0.0),
    ("rectangular", 1.0, 0.0),
    (SLR, 1.25, 0.0),
    (SLR, 1.0, 0.02),
)
PLANES = 32  # of a volume, in its middle
KEPT = 20_000  # scores of a scan


class Case(NamedTuple):
    """A simulated scan, and how far off its rebuilt slab is.

    Attributes:
        person: `calibration.person`.
        group: index of the slices' thickness.
        spacing_ratio, noise: see `scan_scale`.
        voxel: volume in mm3.
        scores: of voxels of the head, errors over expected ones.
        boxes: edge in voxels -> of each box mean error over the root mean square of expected ones.
    """

    person: str
    group: int
    spacing_ratio: float
    noise: float
    voxel: float
    scores: np.ndarray
    boxes: Mapping[int, np.ndarray]


def fit_regions(volumes: np.ndarray, ratios: Sequence[np.ndarray]) -> tuple[float, float, float]:
    """`Calibration.regions` from boxes.

    Args:
        volumes: of the boxes, in mm3, `(n,)`.
        ratios: for each of these, mean errors over the root mean square of the voxels' 90 % half-widths.
    """
    spread = np.log([np.mean(one**2) for one in ratios])

    def off(parameters: np.ndarray) -> np.ndarray:
        level, together, exponent = parameters
        return level + np.log(decay(volumes, np.exp(together), exponent)) - spread

    start = (spread[0], np.log(volumes[0]), 0.5)
    _, together, exponent = least_squares(off, start, bounds=((-np.inf, -5, 0), (np.inf, 15, 2))).x
    size = [np.abs(one) / decay(volume, np.exp(together), exponent) ** 0.5 for one, volume in zip(ratios, volumes)]
    factor = np.quantile(np.concatenate(size), 0.95)
    return float(f"{np.exp(together):.4g}"), float(f"{exponent:.4g}"), float(f"{factor:.4g}")


def fit_scale(cases: Sequence[Case]) -> tuple[float, float]:
    """`Calibration.exponents` from scans: least squares of logarithms. Each person counts the same."""
    count = Counter(case.person for case in cases)
    weights = np.array([count[case.person] for case in cases]) ** -0.5
    levels = np.eye(1 + max(case.group for case in cases))[[case.group for case in cases]]
    ratios, noises = np.array([(case.spacing_ratio, case.noise) for case in cases]).T
    columns = np.column_stack([levels, np.log(ratios), np.log(noises.clip(QUIET) / TYPICAL)])
    needed = np.log([np.quantile(case.scores, 0.9) for case in cases])
    *_, gap, noisy = np.linalg.lstsq(columns * weights[:, None], needed * weights, rcond=None)[0]
    return float(f"{gap:.3g}"), float(f"{noisy:.3g}")


def calibrate(
    network: Drift,
    path: str,
    inferer: DriftInferer,
    device: torch.device | str,
    volumes: Sequence[Mapping],
    thicknesses: Sequence[float],
    seed: int,
) -> None:
    """Calibrates the error maps of weights on held-out volumes, and writes that into the weights' card.

    Args:
        network: with its error network, as `path` holds it.
        path: of the weights; their card lies beside them.
        inferer: the deployed one.
        device: of the network.
        volumes: items of `datasets.sharp_volumes`.
        thicknesses: of the slices that are simulated, in mm.
        seed: of their noise, and of what is kept.
    """
    network.to(device).eval()
    generator, chance = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    thicknesses = sorted(thicknesses)
    cases: list[Case] = []
    for item in volumes:
        volume = LoadScand("label")({"label": item["label"]})["label"]
        axis = item["sharp_axes"][0]
        size = [-1, -1, -1]
        size[max(a for a in range(3) if a != axis)] = PLANES
        sharp: MetaTensor = CenterSpatialCrop(size)(volume)  # type: ignore[assignment]  # MONAI: Tensor
        spacing = voxel_spacing(volume.affine)
        truth = sharp.as_tensor()[0]
        head = head_mask(truth)
        for group, thickness in enumerate(thicknesses):
            for profile, ratio, noise in KINDS:
                acquired = Acquisition.of_truth(
                    axis, truth.shape[axis], float(spacing[axis]), thickness, ratio * thickness, profile
                )
                thick = simulate(sharp, acquired)
                thick.add_(noise * data_range(truth) * torch.randn(thick.shape, generator=generator))
                told = replace(acquired, profile=SLR)  # no header states it
                told.attach(thick)
                slices = thick.as_tensor()[0]
                rebuilt = rebuild(thick, network, inferer, device)
                result, spread = rebuilt.as_tensor()[0], rebuilt.meta.get("spread")
                expected = expected_error(slices, result, spread, told, network, device)
                scores = ((result - truth).abs() / expected)[head].numpy()
                boxes = {}
                for edge in BOXES:
                    errors, squares = (box_means(one, head, edge) for one in (result - truth, expected**2))
                    boxes[edge] = errors / np.sqrt(squares)
                kept = chance.choice(scores, min(KEPT, len(scores)), replace=False)
                noisy = noise_share(slices, told)
                name = person(item["subject"])
                cases.append(Case(name, group, ratio, noisy, float(np.prod(spacing)), kept, boxes))
                kind = f"{thickness:g} mm, {profile}, spacing {ratio:g}, noise {noise:g}, found {noisy:.4f}"
                logger.info(f"{item['label']}, {kind}: 90 % of scores are below {np.quantile(kept, 0.9):.2f}")
    write_card(path, replace(read_card(path), error_map=fitted(cases, thicknesses)))


def fitted(cases: Sequence[Case], thicknesses: Sequence[float]) -> Calibration:
    """The calibration by scans, for each person one or more of each of the `thicknesses`."""
    exponents = fit_scale(cases)
    scales = [scan_scale(exponents, case.spacing_ratio, case.noise) for case in cases]
    groups = range(len(thicknesses))
    scores: dict[str, list[list]] = defaultdict(lambda: [[] for _ in groups])
    for case, scale in zip(cases, scales):
        scores[case.person][case.group].append(case.scores / scale)
    people = {name: [quantiles(np.concatenate(one)) for one in rows] for name, rows in scores.items()}
    calibration = Calibration(thicknesses, people, exponents, (1.0, 0.0, 1.0))
    factors = [calibration.factor(thickness, 0.9) for thickness in thicknesses]
    ratios = {
        edge: np.concatenate([case.boxes[edge] / (factors[case.group] * scale) for case, scale in zip(cases, scales)])
        for edge in BOXES
    }
    filled = [edge for edge in BOXES if len(ratios[edge])]
    volumes = np.array(filled) ** 3 * np.mean([case.voxel for case in cases])
    return replace(calibration, regions=fit_regions(volumes, [ratios[edge] for edge in filled]))
