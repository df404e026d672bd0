"""Training pairs: random acquisitions of sharp planes (Secs. 3.1, S1)."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import InitVar, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform, RandomizableTransform
from torch import Tensor

from ..errors import InputError
from ..stack.acquisition import SLR, Acquisition, Profile
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
