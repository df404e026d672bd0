"""Thick slices of sharp volumes: the inputs of validation, calibration and evaluation (Sec. 3.1)."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import torch
from monai.config import KeysCollection
from monai.data import MetaTensor
from monai.transforms import CenterSpatialCrop, MapTransform

from ..stack import grid
from ..stack.acquisition import SLR, Acquisition
from ..stack.intensity import check_finite, intensity_range
from ..stack.noise import Noise, band_limited, with_noise
from ..stack.profile import acquire


class UnitIntensityd(MapTransform):
    """Maps intensities of tissue to [0, 1], as `StackInferer` maps them to [-1, 1]; others are cut off."""

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        result = dict(data)
        for key in self.key_iterator(result):
            check_finite(result[key], grid.name_of(result[key], "the volume"))
            tissue_range = intensity_range(result[key])
            result[key] = (tissue_range.to_unit(tissue_range.tissue(result[key])) + 1) / 2
        return result


class Simulated(MapTransform):
    """Simulates one acquisition of a sharp volume: the paired input of validation.

    Adds `image`: the thick slices with their affine and their acquisition. Its fine grid is the volume's own.

    Args:
        keys: one key, a `(1, X, Y, Z)` volume with an affine.
        slice_thickness: in mm. The slices lie along the first of the item's `sharp_axes` and have no gap.
    """

    def __init__(self, keys: KeysCollection, slice_thickness: float):
        super().__init__(keys)
        self.slice_thickness = slice_thickness

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        (key,) = self.keys
        return {**data, "image": slices_of(data[key], data["sharp_axes"][0], self.slice_thickness)}


def simulate(truth: MetaTensor, acquisition: Acquisition) -> MetaTensor:
    """The thick slices of a sharp volume, both `(1, X, Y, Z)`, with their affine and their acquisition."""
    a = acquisition
    affine = grid.respaced_affine(truth.affine.numpy(), a.slice_axis, a.fine_count, a.slice_count, a.slice_spacing)
    meta = grid.meta_without_affine(truth)
    thick = MetaTensor(acquire(truth.as_tensor(), a), affine=torch.from_numpy(affine), meta=meta)
    a.attach(thick)
    return thick


def scanned(truth: MetaTensor, acquisition: Acquisition, noise: Noise, generator: torch.Generator) -> MetaTensor:
    """The slices of `simulate` as a file has them: with noise, and of the SLR profile, since no header states it.

    The noise's deviation is a share of the range of tissue of the slices. A wider noise belongs to a truth that is as
    band-limited (`acquired_truth`).
    """
    thick = simulate(truth, acquisition)
    low, high, _ = intensity_range(thick.as_tensor())
    in_plane = [axis for axis in range(4) if axis not in (0, 1 + acquisition.slice_axis)]
    drawn = torch.randn((2, *thick.shape), generator=generator)
    clean, units = thick.as_tensor() - low, replace(noise, deviation=noise.deviation * (high - low))
    thick.copy_(low + with_noise(clean, in_plane, units, drawn))
    replace(acquisition, profile=SLR).attach(thick)
    return thick


def acquired_truth(truth: MetaTensor, slice_axis: int, noise: Noise) -> MetaTensor:
    """A sharp volume `(1, X, Y, Z)` within the band of the scanner that has such noise."""
    in_plane = [1 + axis for axis in range(3) if axis != slice_axis]
    array = band_limited(truth.as_tensor().float(), in_plane, noise)
    return MetaTensor(array, affine=truth.affine, meta=grid.meta_without_affine(truth))


def slices_of(truth: MetaTensor, axis: int, thickness: float) -> MetaTensor:
    """The slices of a sharp volume along an axis, without gaps, see `simulate`; their thickness in mm."""
    edge = float(grid.voxel_spacing(truth.affine)[axis])
    return simulate(truth, Acquisition.of_truth(axis, truth.shape[1 + axis], edge=edge, thickness=thickness))


def normal_axis(slice_axis: int) -> int:
    """The last axis that is not the slice axis: planes across it contain the slice axis."""
    return max(axis for axis in range(3) if axis != slice_axis)


def central_slab(volume: MetaTensor, slice_axis: int, count: int | None) -> MetaTensor:
    """The `count` central slices along `normal_axis`, for quick runs; all of them where it is null."""
    size = [-1, -1, -1]
    size[normal_axis(slice_axis)] = count or -1
    return CenterSpatialCrop(size)(volume)  # type: ignore[return-value]  # MONAI: Tensor
