"""The calibration of error maps on people that no network was trained on; it completes the card of the weights."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from monai.data import MetaTensor
from monai.transforms import CenterSpatialCrop
from scipy.optimize import least_squares
from torch import Tensor
from torch.nn.functional import avg_pool3d

from ..inputs.transforms import LoadScand
from ..method.calibration import Calibration, decay, person, quantiles
from ..method.networks import Drift
from ..method.weights import read_card, write_card
from ..rebuild.error_map import expected_error, own_scale
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
BOXES = (2, 4, 8, 16)  # voxels along an edge; regions whose mean errors are looked at
FULL = 0.99  # share of a box that lies in the head


def box_means(volume: Tensor, head: Tensor, edge: int) -> np.ndarray:
    """Means of `volume`, `(X, Y, Z)`, over the cubes of `edge` voxels that lie in the head, `(X, Y, Z)` bool."""
    if min(volume.shape) < edge:
        return np.zeros(0)
    means, share = avg_pool3d(torch.stack([volume, head.to(volume)])[:, None], edge)[:, 0]
    return means[share > FULL].double().numpy()


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
    tables: dict[bool, dict[str, list[list]]] = {
        own: defaultdict(lambda: [[] for _ in thicknesses]) for own in (True, False)
    }
    boxes: dict[int, list[tuple[int, np.ndarray]]] = {edge: [] for edge in BOXES}
    voxels = []  # mm3
    for item in volumes:
        volume = LoadScand("label")({"label": item["label"]})["label"]
        axis = item["sharp_axes"][0]
        size = [-1, -1, -1]
        size[max(a for a in range(3) if a != axis)] = PLANES
        sharp: MetaTensor = CenterSpatialCrop(size)(volume)  # type: ignore[assignment]  # MONAI: Tensor
        spacing = voxel_spacing(volume.affine)
        truth = sharp.as_tensor()[0]
        head = head_mask(truth)
        for k, thickness in enumerate(thicknesses):
            for profile, ratio, noise in KINDS:
                scans = []
                for part in (volume, sharp):
                    acquired = Acquisition.of_truth(
                        axis, part.shape[1 + axis], float(spacing[axis]), thickness, ratio * thickness, profile
                    )
                    thick = simulate(part, acquired)
                    thick.add_(noise * data_range(truth) * torch.randn(thick.shape, generator=generator))
                    told = replace(acquired, profile=SLR)  # no header states it
                    told.attach(thick)
                    scans.append((thick, told))
                (whole, whole_told), (thick, told) = scans
                edges = spacing.copy()
                edges[axis] = told.slice_spacing
                scale = own_scale(whole.as_tensor()[0], whole_told, edges, network, inferer, device)
                rebuilt = rebuild(thick, network, inferer, device)
                result, spread = rebuilt.as_tensor()[0], rebuilt.meta.get("spread")
                expected = expected_error(thick.as_tensor()[0], result, spread, told, network, device)
                scores = ((result - truth).abs() / expected)[head].numpy()
                kept = chance.choice(scores, min(KEPT, len(scores)), replace=False)
                tables[False][person(item["subject"])][k].append(kept)
                if scale.own:
                    tables[True][person(item["subject"])][k].append(kept / scale.value)
                voxels.append(float(np.prod(spacing)))
                for edge, found in boxes.items():
                    errors, squares = (box_means(one, head, edge) for one in (result - truth, expected**2))
                    found.append((k, errors / np.sqrt(squares) / scale.value))
                below = np.quantile(kept, 0.9)
                own = f", {below / scale.value:.2f} by the scan's own scale" if scale.own else ""
                kind = f"{thickness:g} mm, {profile}, spacing {ratio:g}, noise {noise:g}"
                logger.info(f"{item['label']}, {kind}: 90 % of scores are below {below:.2f}{own}")
    people, standing_in = (
        {name: [quantiles(np.concatenate(one)) for one in rows] for name, rows in tables[own].items() if all(rows)}
        for own in (True, False)
    )
    calibration = Calibration(thicknesses, people or standing_in, standing_in, (1.0, 0.0, 1.0))
    factors = [calibration.factor(thickness, 0.9, bool(people)) for thickness in thicknesses]
    ratios = {edge: np.concatenate([one / factors[k] for k, one in found]) for edge, found in boxes.items()}
    filled = [edge for edge in BOXES if len(ratios[edge])]
    regions = fit_regions(np.array(filled) ** 3 * np.mean(voxels), [ratios[edge] for edge in filled])
    calibration = replace(calibration, regions=regions)
    write_card(path, replace(read_card(path), error_map=calibration))
