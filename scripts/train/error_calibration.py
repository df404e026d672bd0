"""The calibration of error maps on people that no network was trained on; it completes the card of the weights."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from monai.data import MetaTensor
from monai.transforms import ResampleToMatch

from ..errors import logger
from ..method.calibration import QUIET, TYPICAL, Calibration, quantiles, scan_scale
from ..method.networks import Drift
from ..method.weights import read_card, write_card
from ..rebuild.error_map import expected_error
from ..rebuild.guide import PlacedGuide
from ..rebuild.inferer import DriftInferer
from ..rebuild.rebuilder import Rebuilder
from ..stack.acquisition import SLR, Acquisition, Profile
from ..stack.grid import voxel_spacing
from ..stack.intensity import intensity_range
from ..stack.noise import Noise
from ..stack.slices import Slices
from ..stack.tissue import head_mask
from .simulation import central_slab, scanned
from .stage import try_it
from .truth import THIN, read_volume

# Slice profile, slice spacing over thickness, and noise as a share of the intensity range
KINDS: tuple[tuple[Profile, float, float], ...] = (
    (SLR, 1.0, 0.0),
    ("rectangular", 1.0, 0.0),
    (SLR, 1.25, 0.0),
    (SLR, 1.0, 0.02),
)
PLANES = 16  # of a volume, in its middle
KEPT = 20_000  # scores of a scan


class Case(NamedTuple):
    """A simulated scan, and how far off its rebuilt slab is.

    Attributes:
        kind: of `KINDS`, for people.
        group: index of the slices' thickness.
        scores: of voxels of the head, errors over expected ones.
        guided: the same with each guide.
        trained: whether the networks were trained on the person. Such a case says only how much narrower guided
            intervals are: in a ratio, the smaller errors of training nearly cancel.
    """

    person: str
    kind: str
    group: int
    spacing_ratio: float
    noise: float
    scores: np.ndarray
    guided: Sequence[np.ndarray] = ()
    trained: bool = False


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
    trained: Sequence[Mapping],
    thicknesses: Sequence[float],
    seed: int,
) -> None:
    """Calibrates the error maps of weights on held-out volumes, and writes that into the weights' card.

    Error maps of sharp results have a calibration of their own, on the same scans, if the weights are made for them.

    Args:
        network: with its error network, as `path` holds it.
        path: of the weights; their card lies beside them.
        inferer: of the default.
        volumes: items of `datasets.sharp_volumes` that no network was trained on.
        trained: items that networks were trained on. The sharp ones with guides are taken, see `Case`.
        thicknesses: of the slices that are simulated, in mm.
    """
    network, thicknesses = network.to(device).eval(), sorted(thicknesses)
    inferers = {"error_map": inferer}
    if read_card(path).sharp_velocity is not None:
        inferers["sharp_error_map"] = replace(inferer, sharp=True)
    for name, one in inferers.items():
        logger.info(f"The card's {name}, by the scores of {len(volumes)} held-out volumes:")
        cases = scored(Rebuilder(network, one, device), volumes, trained, thicknesses, seed)
        for (kind, group), shares in left_out(cases, thicknesses).items():
            spread = f"{np.mean(shares):.3f} ({min(shares):.3f} to {max(shares):.3f})"
            logger.info(f"intervals of 90 %, each person by the others: {kind}, {thicknesses[group]:g} mm: {spread}")
        found: dict[str, Any] = {name: fitted(cases, thicknesses)}
        write_card(path, replace(read_card(path), **found))
    try_it(path)


def scored(
    rebuilder: Rebuilder,
    volumes: Sequence[Mapping],
    trained: Sequence[Mapping],
    thicknesses: Sequence[float],
    seed: int,
) -> list[Case]:
    """Simulated scans of volumes, and how far off their rebuilt slabs are. The last arguments are `calibrate`'s."""
    network: Drift = rebuilder.network  # type: ignore[assignment]  # any network for a method of one's own
    generator, chance = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    cases: list[Case] = []
    guided = [item for item in trained if "guides" in item]
    for item, known in [*((item, False) for item in volumes), *((item, True) for item in guided)]:
        volume = read_volume(item["label"])
        spacing = voxel_spacing(volume.affine)
        if known and spacing.max() > THIN:
            continue
        axis = item["sharp_axes"][0]
        edge = float(spacing[axis])
        sharp = central_slab(volume, axis, PLANES)
        guides = [in_place(read_volume(one), sharp) for one in item.get("guides", [])]
        truth = sharp.as_tensor()[0]
        head = head_mask(truth)
        for group, thickness in enumerate(thicknesses):
            for profile, ratio, noise in KINDS[:1] if known else KINDS:
                acquired = Acquisition.of_truth(
                    axis, truth.shape[axis], edge=edge, thickness=thickness, spacing=ratio * thickness, profile=profile
                )
                slices = Slices.of(scanned(sharp, acquired, Noise(noise), generator))
                beside = guides if (profile, ratio, noise) == KINDS[0] else []
                scores = list[np.ndarray]()
                for guide in (None, *beside):
                    rebuilt = rebuilder(slices, guide)
                    result = rebuilt.volume.as_tensor()
                    expected = expected_error(slices, result, rebuilt.spread, network, rebuilder.device)
                    score = ((result - truth).abs() / expected)[head].numpy()
                    scores.append(chance.choice(score, min(KEPT, len(score)), replace=False))
                kept, *by_guides = scores
                noisy = slices.noise_share
                kind = f"profile {profile}, spacing {ratio:g}, noise {noise:g}"
                cases.append(Case(item["subject"], kind, group, ratio, noisy, kept, by_guides, known))
                below = ", guided ".join(f"{np.quantile(one, 0.9):.2f}" for one in scores)
                logger.info(f"{item['label']}, {thickness:g} mm, {kind}: 90 % of scores are below {below}")
    return cases


def left_out(cases: Sequence[Case], thicknesses: Sequence[float]) -> dict[tuple[str, int], list[float]]:
    """Coverage of the intervals of 90 % that the other people calibrate: kind and group -> a share for each scan."""
    shares: dict[tuple[str, int], list[float]] = defaultdict(list)
    for name in dict.fromkeys(case.person for case in cases if not case.trained):
        others = [case for case in cases if case.person != name]
        if all(case.trained for case in others):
            continue
        calibration = fitted(others, thicknesses)
        for case in (case for case in cases if case.person == name):
            scale = scan_scale(calibration.exponents, case.spacing_ratio, case.noise)
            for scores in (case.scores, *case.guided):
                guided = scores is not case.scores
                factor = calibration.factor(thicknesses[case.group], 0.9) * scale
                factor *= calibration.narrowest(thicknesses[case.group]) if guided else 1
                shares["guided" if guided else case.kind, case.group].append(float((scores <= factor).mean()))
    return dict(shares)


def fitted(cases: Sequence[Case], thicknesses: Sequence[float]) -> Calibration:
    """The calibration by scans, for each person one or more of each of the `thicknesses`."""
    guided = _narrower(cases, len(thicknesses))
    cases = [case for case in cases if not case.trained]
    exponents = fit_scale(cases)
    scales = [scan_scale(exponents, case.spacing_ratio, case.noise) for case in cases]
    groups = range(len(thicknesses))
    scores: dict[str, list[list]] = defaultdict(lambda: [[] for _ in groups])
    for case, scale in zip(cases, scales):
        scores[case.person][case.group].append(case.scores / scale)
    people = [[quantiles(np.concatenate(one)) for one in rows] for rows in scores.values()]
    return Calibration(thicknesses, people, exponents, guided)


def in_place(guide: MetaTensor, truth: MetaTensor) -> PlacedGuide:
    """A guide `(1, X, Y, Z)` on the grid of the truth, as the training takes it."""
    guide = ResampleToMatch(padding_mode="zeros")(guide, truth)  # type: ignore[assignment]  # MONAI: Tensor
    tissue_range = intensity_range(guide)
    unit = tissue_range.to_unit(tissue_range.tissue(guide.as_tensor().float()))
    return PlacedGuide(MetaTensor(unit, affine=guide.affine), np.eye(4), 1.0, 0.0, 0.0, 0.0, "the guide")


def _narrower(cases: Sequence[Case], count: int) -> list[float]:
    """`Calibration.guided`: the mean ratio, in logarithms, of the intervals of guided and unguided scans at 90 %.

    Each person counts the same.
    """
    ratios: list[dict[str, list[float]]] = [defaultdict(list) for _ in range(count)]
    for case in cases:
        plain = np.quantile(case.scores, 0.9)
        for one in case.guided:
            ratios[case.group][case.person].append(float(np.log(np.quantile(one, 0.9) / plain)))
    means = [[np.mean(of_one) for of_one in people.values()] for people in ratios]
    return [float(f"{np.exp(np.mean(one)):.3g}") for one in means] if all(means) else []
