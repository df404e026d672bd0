"""Training pairs: random planes of sharp volumes, and simulated acquisitions of them (Secs. 3.1, S1)."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import InitVar, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from monai.config import KeysCollection
from monai.data import MetaTensor
from monai.transforms import CenterSpatialCrop, MapTransform, RandomizableTransform
from monai.utils import convert_to_tensor
from torch import Tensor
from torch.nn.functional import interpolate as resize

from ..errors import InputError
from ..stack import grid
from ..stack.acquisition import SLR, Acquisition, Profile
from ..stack.intensity import intensity_range
from ..stack.interpolation import interpolate
from ..stack.noise import Noise, band_limited, with_noise
from ..stack.profile import acquire

IN_PLANE = (0, 2)  # of planes (N, H, W) whose slice axis is the second
LEAST_NOISE = 0.003  # of the range
FILTERS = (0.5, 0.95)  # tapers of the band; scanners have earlier and later ones


class Acquired(NamedTuple):
    """Thick slices `(N, S, W)` with noise, and how they were acquired."""

    slices: Tensor
    acquisition: Acquisition


class RandPlaned(RandomizableTransform, MapTransform):
    """Draws a slice axis and a plane that contains it. The slice axis becomes the plane's first axis.

    A plane across the slice axis would show no stair steps (Sec. S1). Both axes of the plane are sharp. `spacing` in
    the result holds the plane's two voxel edges, `plane_spacing` that of the third axis, in mm.

    Args:
        keys: `(1, X, Y, Z)` volumes on one grid, the first with an affine; all get the same plane. `sharp_axes` in the
            data names the axes to choose from.
        planes: how many neighbouring planes make the first axis of the result. A volume with fewer repeats its last.
            Half of the time they come in reverse order.
        allow_missing_keys: keys but for the first may be missing.
    """

    def __init__(self, keys: KeysCollection, planes: int = 1, allow_missing_keys: bool = False):
        MapTransform.__init__(self, keys, allow_missing_keys)
        RandomizableTransform.__init__(self, prob=1.0)
        self.planes = planes

    # MONAI declares one argument
    def randomize(self, shape: tuple[int, ...], sharp_axes: tuple[int, ...]) -> None:  # type: ignore[override]
        """Draws the slice axis, the plane's other axis and its index."""
        self._axis, self._other = (int(a) for a in self.R.permutation(sharp_axes)[:2])
        self._normal = 3 - self._axis - self._other
        self._index = int(self.R.randint(max(shape[self._normal] - self.planes, 0) + 1))
        self._reversed = self.planes > 1 and bool(self.R.random_sample() < 0.5)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        volume = data[self.keys[0]]
        self.randomize(volume.shape[1:], data["sharp_axes"])
        spacing = grid.voxel_spacing(volume.affine)
        index = torch.arange(self._index, self._index + self.planes).clamp(max=volume.shape[1 + self._normal] - 1)
        index = index.flip(0) if self._reversed else index
        edges = spacing[[self._axis, self._other, self._normal]].tolist()
        result: dict[Hashable, Any] = {"spacing": tuple(edges[:2]), "plane_spacing": edges[2]}
        for key in self.key_iterator(dict(data)):
            planes = convert_to_tensor(data[key], track_meta=False)[0].index_select(self._normal, index).float()
            result[key] = planes.permute(self._normal, self._axis, self._other)
        return result


@dataclass(eq=False)
class RandResampled(RandomizableTransform, MapTransform):
    """Draws a voxel size and resamples a plane to it: target thickness, pixel size and head size vary.

    Pixels may become finer than they were, because scans are often interpolated in plane. The target thickness may
    not: the plane is the truth along that axis. Empty pixels stay empty, and do not darken their neighbours. `spacing`
    in the data is updated, and `plane_spacing` by the head's size.

    Args:
        keys: `(N, H, W)` planes whose second axis is the slice axis. They are 0 where they are empty, and nowhere
            negative. `spacing` and `plane_spacing` are in the data, in mm.
        target_range: `T_hr` is uniform in this range, in mm, but never finer than the plane.
        pixel_range: in mm. For half of the planes the other edge is uniform in this range. For the others it is
            `T_hr`. Null makes it `T_hr` for all.
        size_range: the spacing is first multiplied by a factor, uniform in this range. The head becomes larger or
            smaller by it.
    """

    keys: InitVar[KeysCollection]
    target_range: tuple[float, float]
    pixel_range: tuple[float, float] | None
    size_range: tuple[float, float]
    allow_missing_keys: InitVar[bool] = False

    def __post_init__(self, keys: KeysCollection, allow_missing_keys: bool) -> None:
        MapTransform.__init__(self, keys, allow_missing_keys)
        RandomizableTransform.__init__(self, prob=1.0)

    def randomize(self, spacing: tuple[float, float, float]) -> None:  # type: ignore[override]  # MONAI declares Any
        """Draws the head's size and both edges of the new pixels."""
        self._native = np.array(spacing) * self.R.uniform(*self.size_range)
        low, high = self.target_range
        target = max(self._native[0], self.R.uniform(min(max(low, self._native[0]), high), high))
        low, high = self.pixel_range or (target, target)
        pixel = self.R.uniform(low, high) if self.R.random_sample() < 0.5 else target
        self._spacing = (float(target), float(pixel))

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        self.randomize((*data["spacing"], data["plane_spacing"]))
        result = {**data, "spacing": self._spacing, "plane_spacing": float(self._native[2])}
        for key in self.key_iterator(result):
            plane = result[key]
            size = [max(1, round(n * s / new)) for n, s, new in zip(plane.shape[1:], self._native, self._spacing)]
            filled = (plane > 0).to(plane)  # a scan without skull ends at a hard edge; the filter would soften it
            values, coverage = resize(torch.stack([plane, filled]), size=size, mode="bicubic", antialias=True)
            # bicubic undershoots beside bright edges
            result[key] = (values / coverage.clamp(min=0.5)).clamp(min=0) * (coverage >= 0.5)
        return result


@dataclass(eq=False)
class RandAcquired(RandomizableTransform, MapTransform):
    """Draws an acquisition and simulates it on a sharp plane: the training pair of both stages (Sec. 3.1).

    The slices are stacked along the plane's first axis. The plane's spacing there is the target thickness `T_hr`. The
    defaults are the paper's. The transform adds:

    - `image`: the degraded plane, and `thickness`: `[T_i, T_hr]` in mm.
    - `proximal`: the same plane at `T_j = T_i - gap`, for CETA, and `proximal_thickness`: `[T_j, T_hr]`. Where `T_j`
      would not exceed `T_hr`, `proximal` is `image` and `T_j` is `T_i`. `FlowBatch` then leaves the pair out.

    Args:
        keys: one key, a `(1, H, W)` plane in [0, 1]. `spacing` is in the data, in mm.
        max_thickness: `T_i` is uniform in `(T_hr, max_thickness]` mm.
        min_thickness: least `T_i`, in mm; null for `T_hr`.
        ceta_gap: `Delta T` of CETA in mm. 0 makes no pairs. `"random"` draws `T_j` as `T_i` is drawn (Tab. 3).
        profiles: one of them is drawn, see `profile.slice_profile`.
        spacing_ratio: slice spacing / slice thickness. Half of the stacks draw it, uniform in this range. Others: 1.
        max_shift: the stack lies off its centred place. The offset is uniform up to this share of `T_hr`, either way.
        max_gain: the slices of half of the stacks differ in gain. The standard deviation is uniform up to this share.
            In half of those the gain alternates between odd and even slices, as in interleaved acquisitions.
        max_noise: stacks have Rician noise (`stack.noise`). The logarithm of its standard deviation is uniform from
            `LEAST_NOISE` to this share of the intensity range.
        quiet_share: of the stacks, without noise.
        noise_error: standard deviation of the logarithm of the noise as an estimate finds it (`stated`), over the
            true one.
        false_noise: an estimate finds up to this share of the range in half of the stacks without noise.
        interpolated_share: of the stacks, which are interpolated in plane. Half of these have a round band, and the
            taper is uniform in `FILTERS`. The sharp plane is then as band-limited as its noise.
        max_width: along either axis they are interpolated by a factor that is uniform up to this one.
        coarsest: acquired pixels of interpolated stacks, in mm, at most.
        common_thickness: half of the stacks have `T_i` uniform in this range, in mm, as far as it lies within the
            other one; null for none.
    """

    keys: InitVar[KeysCollection]
    max_thickness: float
    ceta_gap: float | str = 1.0
    min_thickness: float | None = None
    profiles: Sequence[Profile] = (SLR,)
    spacing_ratio: tuple[float, float] = (1.0, 1.0)
    max_shift: float = 0.0
    max_gain: float = 0.0
    max_noise: float = 0.0
    quiet_share: float = 1 / 3
    noise_error: float = 0.0
    false_noise: float = 0.0
    interpolated_share: float = 0.5
    max_width: float = 1.0
    coarsest: float = math.inf
    common_thickness: tuple[float, float] | None = None

    def __post_init__(self, keys: KeysCollection) -> None:
        MapTransform.__init__(self, keys)
        RandomizableTransform.__init__(self, prob=1.0)
        gap, least, most = self.ceta_gap, self.min_thickness, self.max_thickness
        if gap != "random" and not (isinstance(gap, int | float) and gap >= 0):
            raise InputError(f"ceta_gap is {gap!r}: expected millimetres, 0 for no pairs, or random. Set --ceta_gap.")
        if least is not None and not (isinstance(least, int | float) and 0 < least <= most):
            raise InputError(
                f"min_thickness is {least!r}: expected millimetres, at most max_thickness, {most}. Set --min_thickness."
            )

    def _half_of_the_time(self, largest: float) -> float:
        """Uniform in [0, largest], or 0."""
        value = float(self.R.uniform(0, largest))
        return value if self.R.random_sample() < 0.5 else 0.0

    def _drawn_thickness(self, target: float) -> float:
        """Uniform on `(T_hr, max]`, since 1 - [0, 1) is (0, 1]; or among the common thicknesses."""
        least, most = max(target, self.min_thickness or 0.0), self.max_thickness
        if self.common_thickness is not None and self.R.random_sample() < 0.5:
            low, high = max(least, self.common_thickness[0]), min(most, self.common_thickness[1])
            if low <= high:  # else none of them is common
                least, most = low, high
        return least + (1 - float(self.R.random_sample())) * (most - least)

    def randomize(self, target: float, pixel: float) -> None:  # type: ignore[override]  # MONAI declares Any
        """Draws how the stack is acquired; target and pixel in mm."""
        self._thickness = self._proximal = self._drawn_thickness(target)
        ratio = float(self.R.uniform(*self.spacing_ratio))
        self._ratio = ratio if self.R.random_sample() < 0.5 else 1.0
        self._profile = self.profiles[self.R.randint(len(self.profiles))]
        self._shift = float(self.R.uniform(-1, 1)) * self.max_shift * target
        self._gain = self._half_of_the_time(self.max_gain)
        self._interleaved = bool(self.R.random_sample() < 0.5)
        none = self.R.random_sample() < self.quiet_share
        share = float(np.exp(self.R.uniform(*np.log([LEAST_NOISE, max(self.max_noise, LEAST_NOISE)]))))
        self.noise = Noise(0.0 if none or not self.max_noise else share)
        widest = max(1.0, min(self.max_width, self.coarsest / pixel))
        if self.R.random_sample() < self.interpolated_share and widest > 1:
            first, second = (float(width) for width in self.R.uniform(1, widest, size=2))
            is_round, taper = bool(self.R.random_sample() < 0.5), float(self.R.uniform(*FILTERS))
            self.noise = replace(self.noise, widths=(first, second), round=is_round, taper=taper)
        self.stated = self._stated()
        self._seed = int(self.R.randint(2**31))  # of gains and noise: how many are drawn depends on the slices
        if self.ceta_gap == "random":
            self._proximal = self._drawn_thickness(target)
        elif self._thickness - float(self.ceta_gap) > target:
            self._proximal = self._thickness - float(self.ceta_gap)

    def _stated(self) -> float:
        """The noise as an estimate finds it, which takes some texture for noise."""
        if not self.noise.deviation:
            return self._half_of_the_time(self.false_noise) if self.false_noise else 0.0
        error = self.noise_error * self.R.normal() if self.noise_error else 0.0
        return self.noise.deviation * math.exp(error)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        (key,) = self.keys
        label, target = data[key], data["spacing"][0]
        label, stacks = self.stacks(label, data["spacing"])
        images = [interpolate(stack.slices, stack.acquisition, "nearest") for stack in stacks]
        return {
            key: label,
            "image": images[0],
            "thickness": torch.tensor([self._thickness, target]),
            "proximal": images[-1],
            "proximal_thickness": torch.tensor([self._proximal, target]),
        }

    def stacks(self, planes: Tensor, spacing: tuple[float, float]) -> tuple[Tensor, list[Acquired]]:
        """Draws an acquisition, and acquires sharp planes, `(N, H, W)` in [0, 1], by it. CETA's pair is a second stack.

        `spacing` is a pixel's edges along the slice axis and the other one, in mm. The first result is the truth of
        both stacks: the planes as the acquired matrix shows them.
        """
        target, pixel = spacing
        self.randomize(target, pixel)
        planes = band_limited(planes, IN_PLANE, self.noise)
        generator = torch.Generator().manual_seed(self._seed)
        thicknesses = dict.fromkeys([self._thickness, self._proximal])
        return planes, [self._acquired(planes, target, thickness, generator) for thickness in thicknesses]

    def _acquired(self, plane: Tensor, target: float, thickness: float, generator: torch.Generator) -> Acquired:
        spacing = max(self._ratio * thickness, target)  # slices nearer than the target would leave nothing to do
        # a plane is a volume of X = 1
        acquisition = Acquisition.of_truth(
            1,
            plane.shape[1],
            edge=target,
            thickness=thickness,
            spacing=spacing,
            profile=self._profile,
            shift=self._shift,
        )
        thick = acquire(plane, acquisition)
        if self._gain:
            gain = torch.randn(thick.shape[1], generator=generator)
            if self._interleaved:
                gain = torch.where(torch.arange(len(gain)) % 2 == 1, gain[:1], -gain[:1])
            thick = thick * (1 + self._gain * gain)[:, None]
        drawn = torch.randn((2, *thick.shape), generator=generator)
        return Acquired(with_noise(thick, IN_PLANE, self.noise, drawn), acquisition)


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
