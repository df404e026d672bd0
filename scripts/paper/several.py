"""Several stacks of one head: simulated with motion, gains and noise, and made one volume."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from monai.data import MetaTensor
from scipy import ndimage
from scipy.spatial.transform import Rotation
from torch import Tensor

from ..errors import InputError, is_number, logger
from ..evaluate.checks import check_thickness, expect, lengths
from ..evaluate.paired import Method, Truth, given, read_lesion_sizes, volume_of
from ..evaluate.tables import case_of, log_means, write_tables
from ..rebuild.registration import angle_and_shift, placed
from ..rebuild.stacks import Part, Stack
from ..rebuild.together import together
from ..stack.acquisition import Acquisition
from ..stack.grid import centre, voxel_spacing
from ..stack.intensity import data_range
from ..stack.slices import Slices
from ..train.simulation import slices_of
from ..train.truth import read_volume
from .weave import weave

WAVE = (200.0, 400.0)  # mm; wavelengths of shadings
SCALE = 0.3  # most of the logarithm of a stack's gain, beside its shading


def random_motion(rng: np.random.Generator, degrees: float, mm: float, point: np.ndarray) -> np.ndarray:
    """A motion about a point: `(4, 4)`, world to world; turn and shift are uniform up to what is given."""

    def vector(most: float) -> np.ndarray:
        direction = rng.normal(size=3)
        return rng.uniform(0, most) * direction / np.linalg.norm(direction)

    motion = np.eye(4)
    motion[:3, :3] = Rotation.from_rotvec(np.radians(vector(degrees))).as_matrix()
    motion[:3, 3] = point - motion[:3, :3] @ point + vector(mm)
    return motion


def random_gain(rng: np.random.Generator, affine: np.ndarray, shape: tuple[int, ...], shading: float) -> Tensor:
    """A factor and a shading around it, of three waves that are longer than a head: `(X, Y, Z)`.

    `shading` is the largest distance of the shading from 1.
    """
    places = np.tensordot(affine[:3, :3], np.indices(shape), 1)
    waves = np.zeros(shape)
    for _ in range(3):
        direction = rng.normal(size=3)
        cycles = np.tensordot(direction / np.linalg.norm(direction), places, 1) / rng.uniform(*WAVE)
        waves += np.cos(2 * np.pi * (cycles + rng.uniform()))
    waves -= (waves.max() + waves.min()) / 2
    return torch.from_numpy(np.exp(rng.uniform(-SCALE, SCALE)) * (1 + shading * waves / np.abs(waves).max())).float()


def seen_again(
    affine: np.ndarray, volume: Tensor, rng: np.random.Generator, motion: tuple[float, float], shading: float
) -> tuple[Tensor, np.ndarray]:
    """A head in another scan of the same field of view: it has moved, and another coil shades it.

    Anatomy beyond the field of view is taken to go on as it is at its border. `motion` is the most degrees and mm,
    `shading` is an argument of `random_gain`.

    Returns:
        `(X, Y, Z)`, and the motion `(4, 4)` from the world before to the world after.
    """
    there = random_motion(rng, *motion, centre(affine, volume.shape))
    index = np.linalg.inv(affine) @ np.linalg.inv(there) @ affine
    turned = ndimage.affine_transform(volume.float().numpy(), index[:3, :3], index[:3, 3], order=5, mode="nearest")
    moved = torch.from_numpy(turned).clamp(min=float(volume.min()))
    return moved * random_gain(rng, affine, moved.shape, shading), there


def add_noise(volume: MetaTensor, sd: float, rng: np.random.Generator) -> None:
    """Adds Gaussian noise of a standard deviation, in place."""
    volume.add_(sd * torch.from_numpy(rng.normal(size=tuple(volume.shape))).float())


def several_stacks(
    affine: np.ndarray,
    sharp: Tensor,
    axes: Sequence[int],
    thickness: float,
    rng: np.random.Generator,
    motion: tuple[float, float],
    shading: float,
    noise: float,
) -> list[tuple[MetaTensor, np.ndarray]]:
    """Stacks of one head, each along its own axis of one field of view.

    The first is still and has the volume's units. Before each other the head moves, and a coil shades it.

    Args:
        affine: `(4, 4)`, of the volume.
        sharp: `(X, Y, Z)`.
        axes: of the slices, one for each stack.
        thickness: in mm; of the slices, without gaps.
        rng: motions, gains and noise are drawn from it.
        motion, shading: see `seen_again`.
        noise: standard deviation in the slices, as a share of the volume's range.

    Returns:
        Slices `(1, X, Y, Z)` with their acquisition, and the motion `(4, 4)` from the first stack's world to theirs.
    """
    stacks = []
    for number, axis in enumerate(axes):
        there, volume = np.eye(4), sharp.float()
        if number:
            volume, there = seen_again(affine, volume, rng, motion, shading)
        thick = slices_of(MetaTensor(volume[None], affine=torch.from_numpy(affine)), axis, thickness)
        add_noise(thick, noise * data_range(volume), rng)
        stacks.append((thick, there))
    return stacks


def check_draws(largest_motion: Sequence[float], seed: int, **shares: float) -> tuple[float, float]:
    """Most degrees and mm of what is drawn, beside shares of intensity, each 0 or more."""
    for name, value in shares.items():
        expect(is_number(value, 0), name, value, "a share, 0 or more")
    pair = (
        isinstance(largest_motion, Sequence)
        and len(largest_motion) == 2
        and all(is_number(one, 0) for one in largest_motion)
    )
    expect(pair, "largest_motion", largest_motion, "degrees and mm, [5.0, 5.0]")
    expect(isinstance(seed, int), "seed", seed, "a whole number")
    return largest_motion[0], largest_motion[1]


def evaluate_several(
    volumes: Sequence[Mapping],
    methods: Mapping[str, Method],
    output_dir: str | os.PathLike,
    thicknesses: Sequence[float],
    stacks: int = 2,
    largest_motion: Sequence[float] = (5.0, 5.0),
    shading: float = 0.2,
    simulated_noise: float = 0.01,
    seed: int = 0,
    combine: Callable[[Sequence[Stack]], tuple[MetaTensor, list[Part]]] = together,
    about: Mapping | None = None,
) -> pd.DataFrame:
    """Simulates several stacks of sharp volumes, rebuilds each by every method, and combines them.

    Each method has a row for each stack alone, placed by the motion and the gain that were found; one for the mean of
    these; and one for what `combine` makes. The columns `turn_error` and `shift_error` say how far the motions are from
    those that were drawn; `weave`, how much more woven than the truth the result is.

    Args:
        volumes: items of `datasets.sharp_volumes` with two sharp axes or more.
        methods: see `paired.evaluate`.
        output_dir: where the tables are written.
        thicknesses: of the slices, in mm.
        stacks: of each head; they take the volume's sharp axes in turn.
        largest_motion, shading, simulated_noise: see `several_stacks`.
        seed: of what is drawn for a volume, with the volume's place among `volumes`.
        combine: stacks -> the volume on the grid of the first, and a part for each.
        about: more lines for the tables.

    Returns:
        A row for each volume, thickness, method and way to combine; columns are those of `CASE` and `METRICS`.
    """
    thicknesses = lengths(thicknesses)
    expect(isinstance(stacks, int) and is_number(stacks, 2), "stacks", stacks, "a whole number, 2 or more")
    most = check_draws(largest_motion, seed, shading=shading, simulated_noise=simulated_noise)
    options = {"thicknesses": thicknesses, "stacks": stacks, "largest_motion": list(largest_motion), "shading": shading}
    options |= {"simulated_noise": simulated_noise, "seed": seed, **(about or {})}
    rows: list[dict] = []
    table = pd.DataFrame()
    for place, item in enumerate(volumes):
        name, sharp, sharp_axes = Path(item["label"]).name, read_volume(item["label"]), item["sharp_axes"]
        if len(sharp_axes) < 2:
            raise InputError(f"{name} has one sharp axis: several stacks need two. Leave this volume out.")
        affine = np.asarray(sharp.affine, dtype=float)
        axes = [sharp_axes[k % len(sharp_axes)] for k in range(stacks)]
        truth = Truth(name, sharp, axes[0], read_lesion_sizes(item, sharp))
        for thickness in thicknesses:
            for axis in axes:
                check_thickness(name, axis, float(voxel_spacing(affine)[axis]), thickness)
            rng = np.random.default_rng([seed, place])
            drawn = several_stacks(affine, sharp.as_tensor()[0], axes, thickness, rng, most, shading, simulated_noise)
            case = case_of(item, Acquisition.of(drawn[0][0]))
            for label, method in methods.items():
                for row in _rows(label, method, drawn, combine, truth):
                    rows.append(case | row)
                    logger.info(f"{name}, {thickness:g} mm, {row['method']}: {row['psnr_head']:.2f} dB in the head")
        table = write_tables(output_dir, options, rows)
    log_means(output_dir, table)
    return table


def _rows(
    label: str,
    method: Method,
    drawn: Sequence[tuple[MetaTensor, np.ndarray]],
    combine: Callable[[Sequence[Stack]], tuple[MetaTensor, list[Part]]],
    truth: Truth,
) -> list[dict]:
    """A method's rows: each stack alone, their mean, and combined; each with the seconds up to it."""
    start, stacks = time.perf_counter(), []
    for thick, _ in drawn:
        volume = volume_of(method(thick.clone(), Acquisition.of(thick)))[0].float()
        rebuilt = MetaTensor(volume, affine=truth.sharp.affine)
        stacks.append(Stack(Slices.of(thick), rebuilt))
    alone = time.perf_counter() - start
    volume, parts = combine(stacks)
    whole = time.perf_counter() - start
    views = [placed(stack.rebuilt, stacks[0].rebuilt, part.motion)[0] * part.gain for stack, part in zip(stacks, parts)]
    middle = centre(truth.sharp.affine, truth.volume.shape)
    errors = [angle_and_shift(np.linalg.inv(there) @ part.motion, middle) for (_, there), part in zip(drawn, parts)]
    error = dict(zip(("turn_error", "shift_error"), np.max(errors, axis=0)))
    ways = {f"stack {number}": view for number, view in enumerate(views, 1)}
    ways |= {"mean": torch.stack(views).mean(0), "together": volume.as_tensor()}
    first, second = (Acquisition.of(thick) for thick, _ in drawn[:2])
    axes, spacings = (first.slice_axis, second.slice_axis), voxel_spacing(truth.sharp.affine).tolist()
    woven = partial(weave, axes=axes, spacings=spacings, slice_spacing=first.slice_spacing)
    rows = []
    for way, result in ways.items():
        row = truth.row(f"{label}, {way}", partial(given, volume=result[None]), drawn[0][0])
        row["weave"] = woven(result) / woven(truth.volume)
        rows.append(row | error | {"seconds": whole if way == "together" else alone})
    return rows
