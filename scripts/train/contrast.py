"""New contrasts for training: random intensity curves on real scans, and scans synthesised from label maps."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.networks.layers import GaussianFilter
from monai.transforms import MapTransform, RandomizableTransform
from scipy.interpolate import PchipInterpolator

POINTS = 5  # of a curve, including the value of air


class RandIntensityCurved(RandomizableTransform, MapTransform):
    """Maps intensities through a random smooth curve. It is often not monotone: tissues change their order.

    The curve runs through random values at equal distances. They are uniform in [0, 1], and the largest is stretched
    to 1. 0 stays 0, so that air stays dark. Voxels above 1 get the value at 1. (MONAI's RandHistogramShift keeps the
    order of tissues.)

    Args:
        keys: images in [0, 1]. All get one curve.
    """

    def __init__(self, keys: KeysCollection, prob: float):
        MapTransform.__init__(self, keys)
        RandomizableTransform.__init__(self, prob)

    def randomize(self, data: Any = None) -> None:
        """Draws whether, and which curve."""
        super().randomize(None)
        values = self.R.uniform(size=POINTS - 1)
        self._values = np.concatenate([[0.0], values / values.max()])

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        result = dict(data)
        self.randomize()
        if self._do_transform:
            at = np.linspace(0, 1, 256)
            curve = PchipInterpolator(np.linspace(0, 1, POINTS), self._values)(at)
            for key in self.key_iterator(result):
                result[key] = torch.from_numpy(np.interp(result[key], at, curve)).float()
        return result


@dataclass(eq=False)
class RandTissueContrastd(RandomizableTransform, MapTransform):
    """Synthesises a scan from a label map: every label gets a random intensity and texture.

    The generative model is SynthSR's: Billot et al., Science Advances 9:eadd3607 (2023). Every label has a Gaussian of
    intensities. Its mean and its standard deviation are uniform. Two things are added. Deviations of neighbours are
    correlated, as in tissue. The image is slightly blurred, because two tissues share voxels.

    Args:
        keys: label maps of integers, `(N, H, W)`, neighbouring planes. Images in [0, 1], or a little beyond, replace
            them. Each key has a contrast of its own; all are of the brain only, or none is.
        brain_labels: labels from 1 to this value are brain. 0 is air.
        brain_only: share of the images of which only the brain is left.
        max_deviation: the standard deviation within a tissue is uniform up to this.
        texture_range: width of the deviations' Gaussian correlation, uniform in this range of pixels.
        blur_range: width of the Gaussian blur, uniform in this range of pixels.
    """

    keys: InitVar[KeysCollection]
    brain_labels: int
    brain_only: float
    max_deviation: float
    texture_range: tuple[float, float]
    blur_range: tuple[float, float]

    def __post_init__(self, keys: KeysCollection) -> None:
        MapTransform.__init__(self, keys)
        RandomizableTransform.__init__(self, prob=1.0)

    def randomize(self, shape: Sequence[int], labels: int) -> None:  # type: ignore[override]  # MONAI declares Any
        """Draws intensities for `labels` labels, and texture and blur for a plane of this shape."""
        self._mean = self.R.uniform(size=labels)
        self._mean[0] = 0.0  # air
        self._deviation = self.R.uniform(0, self.max_deviation, size=labels)
        self._deviation[0] *= 0.1
        self._noise = self.R.normal(size=shape)
        self._texture = float(self.R.uniform(*self.texture_range))
        self._blur = float(self.R.uniform(*self.blur_range))

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        result = dict(data)
        stripped = self.R.random_sample() < self.brain_only
        for key in self.key_iterator(result):
            labels = torch.as_tensor(result[key]).long()
            self.randomize(tuple(labels.shape), int(labels.max()) + 1)
            if stripped:
                labels = labels.where(labels <= self.brain_labels, 0)
            mean, deviation = (torch.from_numpy(v).float()[labels] for v in (self._mean, self._deviation))
            texture = GaussianFilter(3, self._texture)(torch.from_numpy(self._noise).float()[None, None])[0, 0]
            image = mean + deviation * texture / texture.std().clamp(min=1e-6)
            result[key] = GaussianFilter(2, self._blur)(image[None])[0].clamp(min=0)
        return result
