"""Metrics that need no truth: sharpness along an axis, BRISQUE and NIQE (Sec. S13, Tab. S6).

BRISQUE: Mittal, Moorthy and Bovik, *No-Reference Image Quality Assessment in the Spatial Domain*, IEEE Trans. Image
Process. 21:4695-4708 (2012). NIQE: Mittal, Soundararajan and Bovik, *Making a Completely Blind Image Quality
Analyzer*, IEEE Signal Process. Lett. 20:209-212 (2013). Both tell how far the local statistics of gray images lie from
those of undistorted photographs. Images hold 0 to 255. Neither was fitted to a medical image.

The parameters are those of the packages brisque and iqa-torch (both Apache-2.0). Their code is not imported: it needs
OpenCV and a torchvision of the same build as torch. So does piq, and pyiqa, which also download their parameters. All
of them compute NIQE of one image at a time, and the head in one plane has too few blocks of 96 pixels for that.
"""

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import ndimage
from scipy.special import gamma
from skimage.measure import blur_effect
from torch import Tensor

BRISQUE_MODEL = ("brisque", "brisque/models/svm.txt")
NIQE_MODEL = ("iqa-torch", "iqa/niqe/niqe_pris_params.npz")

BLOCK = 96  # pixels; NIQE's parameters were fitted with them
# fmt: off
LOW = np.array([  # smallest features of BRISQUE's training, of the image and of its half; the model was fitted to -1
    0.336999, 0.019667, 0.23, -0.125959, 0.000167, 0.000616, 0.231, -0.125873, 0.000165,
    0.0006, 0.241, -0.128814, 0.000179, 0.000386, 0.243, -0.13308, 0.000182, 0.000421,
    0.436998, 0.016929, 0.247, -0.200231, 0.000104, 0.000834, 0.257, -0.200017, 0.000112,
    0.000876, 0.257, -0.155072, 0.000112, 0.000356, 0.258, -0.154374, 0.000117, 0.000351,
])
HIGH = np.array([  # the largest ones, for which it was fitted to 1
    9.999411, 0.807472, 1.644021, 0.202917, 0.712384, 0.468672, 1.644021, 0.169548, 0.713132,
    0.467896, 1.553016, 0.101368, 0.687324, 0.533087, 1.554016, 0.101, 0.689177, 0.533133,
    3.639918, 0.800955, 1.096995, 0.175286, 0.755547, 0.39927, 1.095995, 0.155928, 0.751488,
    0.402398, 1.041992, 0.093209, 0.623516, 0.532925, 1.042992, 0.093714, 0.621958, 0.534484,
])
# fmt: on
LEAST_SIDE = 16  # pixels, of BRISQUE
LEAST_HEAD = 0.5  # of a block; others show air
HALVING = np.array([-3, -9, 29, 111, 111, 29, -9, -3]) / 256  # cubic convolution, a = -1/2, stretched to halve
SHAPES = np.arange(0.2, 10.001, 0.001)  # of generalised Gaussians
RATIOS = gamma(2 / SHAPES) ** 2 / (gamma(1 / SHAPES) * gamma(3 / SHAPES))  # (E|x|)^2 / E[x^2]; grows with the shape


def sharpness(volume: Tensor, axis: int) -> float:
    """1 - blur effect along an axis: the share of the gradient that a further blur would take away.

    Crete et al., Proc. SPIE 6492 (2007), by `skimage.measure.blur_effect` with its window of 11 voxels. Noise and stair
    steps raise it, too.

    Args:
        volume: `(X, Y, Z)`.
        axis: along which, the slice axis.

    Returns:
        0 to 1, 1 for the sharpest; NaN for a constant volume.
    """
    values = volume.detach().double().cpu().numpy()
    extent = np.ptp(values)
    if not extent:
        return math.nan
    return 1 - float(blur_effect((values - values.min()) / extent, reduce_func=None)[axis])


def _window() -> np.ndarray:
    """Seven weights of a Gaussian with a standard deviation of 7/6 pixels, sum 1."""
    weights = np.exp(-np.square(np.arange(-3, 4)) / (2 * (7 / 6) ** 2))
    return weights / weights.sum()


def mscn(image: np.ndarray, mode: str) -> np.ndarray:
    """Mean-subtracted contrast-normalised coefficients, `(I - mu) / (sigma + 1)`, Eq. 1 of both papers.

    Args:
        image: `(H, W)`, 0 to 255.
        mode: how images go on beyond their edges, as `scipy.ndimage` names it.
    """

    def smooth(x: np.ndarray) -> np.ndarray:
        for axis in range(2):
            x = ndimage.correlate1d(x, _window(), axis, mode=mode)
        return x

    mean = smooth(image)
    return (image - mean) / (np.sqrt(np.abs(smooth(image**2) - mean**2)) + 1)


def half(image: np.ndarray) -> np.ndarray:
    """An image of half the size, rounded up, by cubic convolution without aliasing, mirrored at its edges."""
    for axis in range(2):
        image = ndimage.correlate1d(image, HALVING, axis, mode="reflect", origin=-1)
    return image[::2, ::2]


def fit(values: np.ndarray) -> tuple[float, float, float]:
    """Moment-matching fit of an asymmetric generalised Gaussian.

    Returns:
        Its shape, and the root mean squares of negative and of positive values. NaN where either is lacking.
    """
    sides = values[values < 0], values[values > 0]
    if not all(map(len, sides)):
        return np.nan, np.nan, np.nan
    left, right = (np.sqrt(np.mean(side**2)) for side in sides)
    skew = left / right
    ratio = np.mean(np.abs(values)) ** 2 / np.mean(values**2)
    return _shape(ratio * (skew**3 + 1) * (skew + 1) / (skew**2 + 1) ** 2), left, right


def _shape(ratio: float) -> float:
    """The one of `SHAPES` with the nearest of `RATIOS`."""
    return float(SHAPES[np.abs(RATIOS - ratio).argmin()])


def _products(coefficients: np.ndarray) -> list[np.ndarray]:
    """Products of neighbours to the right, below, and along both diagonals; images go on at their other end."""
    shifts = (0, 1), (1, 0), (1, 1), (1, -1)
    return [coefficients * np.roll(coefficients, shift, (0, 1)) for shift in shifts]


def _mean(shape: float, left: float, right: float) -> float:
    """The mean of an asymmetric generalised Gaussian, from its scales `beta`."""
    return (right - left) * gamma(2 / shape) / gamma(1 / shape)


def _scale(shape: float) -> float:
    """`beta / sigma` of a generalised Gaussian."""
    return np.sqrt(gamma(1 / shape) / gamma(3 / shape))


def brisque_features(image: np.ndarray) -> np.ndarray:
    """The 36 features of an image `(H, W)`: 18 of it, 18 of its half."""
    features: list[float] = []
    for scaled in (image, half(image)):
        coefficients = mscn(scaled, "constant")
        power = np.mean(coefficients**2)
        features += [_shape(np.mean(np.abs(coefficients)) ** 2 / power), power]
        for product in _products(coefficients):
            shape, left, right = fit(product)
            features += [shape, _mean(shape, left, right) * _scale(shape), left**2, right**2]
    return np.array(features)


def niqe_features(image: np.ndarray) -> np.ndarray:
    """The 36 features of each block of 96 pixels of an image, `(rows, columns, 36)`; what is beyond is left out."""
    rows, columns = (size // BLOCK for size in image.shape)
    image, features = image[: rows * BLOCK, : columns * BLOCK], []
    for size, scaled in ((BLOCK, image), (BLOCK // 2, half(image))):
        coefficients = mscn(scaled, "nearest")
        blocks = coefficients.reshape(rows, size, columns, size).swapaxes(1, 2)
        features.append([[_block_features(block) for block in line] for line in blocks])
    return np.concatenate(features, -1)


def _block_features(block: np.ndarray) -> list[float]:
    shape, left, right = fit(block)
    features = [shape, (left + right) / 2 * _scale(shape)]
    for product in _products(block):
        shape, left, right = fit(product)
        left, right = left * _scale(shape), right * _scale(shape)
        features += [shape, _mean(shape, left, right), left, right]
    return features


@dataclass(frozen=True)
class Brisque:
    """Support vector regression of people's judgement; about 0 for the best photographs, 100 for the worst.

    Attributes:
        vectors: `(n, 36)`, of scaled features.
        weights: `(n,)`.
        gamma: of the radial basis function.
        rho: offset.
    """

    vectors: np.ndarray
    weights: np.ndarray
    gamma: float
    rho: float

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Brisque":
        """From a model in libsvm's text format."""
        head, _, lines = Path(path).read_text().partition("SV\n")
        values = dict(line.split(maxsplit=1) for line in head.splitlines())
        rows = [line.split() for line in lines.splitlines()]
        vectors = np.array([[float(item.partition(":")[2]) for item in row[1:]] for row in rows])
        weights = np.array([float(row[0]) for row in rows])
        return cls(vectors, weights, float(values["gamma"]), float(values["rho"]))

    def of_image(self, image: np.ndarray) -> float:
        """BRISQUE of an image `(H, W)`, 0 to 255; NaN where it is flat."""
        if image.min() == image.max():
            return np.nan
        scaled = 2 * (brisque_features(image) - LOW) / (HIGH - LOW) - 1
        distances = np.square(self.vectors - scaled).sum(1)
        return float(self.weights @ np.exp(-self.gamma * distances) - self.rho)

    def __call__(self, images: np.ndarray) -> float:
        """Mean over images `(N, H, W)`, 0 to 255; NaN where they are smaller than 16 pixels."""
        if min(images.shape[1:]) < LEAST_SIDE:
            return np.nan
        return float(np.mean([self.of_image(image) for image in images]))


@dataclass(frozen=True)
class Niqe:
    """Distance from a Gaussian that was fitted to blocks of photographs; 0 is as natural as they are.

    Attributes:
        mean: `(36,)`, of the features of photographs.
        covariance: `(36, 36)`.
    """

    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Niqe":
        """From a `.npz` file with `mu_pris_param` and `cov_pris_param`."""
        with np.load(path) as content:
            return cls(content["mu_pris_param"].ravel(), content["cov_pris_param"])

    def __call__(self, images: np.ndarray, inside: np.ndarray | None = None) -> float:
        """NIQE of the blocks of all images together, Eq. 10 of its paper: of one image there are too few.

        Args:
            images: `(N, H, W)`, 0 to 255.
            inside: `(N, H, W)` bool; blocks of which less than half lies there are left out. All count without it.

        Returns:
            The distance; NaN where there are fewer than two blocks.
        """
        if min(images.shape[1:]) < BLOCK:
            return np.nan
        features = np.concatenate([niqe_features(image.round()).reshape(-1, 36) for image in images])
        if inside is not None:
            rows, columns = (size // BLOCK for size in inside.shape[1:])
            blocks = inside[:, : rows * BLOCK, : columns * BLOCK].reshape(-1, rows, BLOCK, columns, BLOCK)
            features = features[blocks.mean((2, 4)).ravel() >= LEAST_HEAD]
        complete = features[~np.isnan(features).any(1)]
        if len(complete) < 2:
            return np.nan
        difference = self.mean - np.nanmean(features, 0)
        inverse = np.linalg.pinv((self.covariance + np.cov(complete, rowvar=False)) / 2)
        return float(np.sqrt(difference @ inverse @ difference))
