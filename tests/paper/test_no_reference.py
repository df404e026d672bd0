"""Sharpness by plain sums; BRISQUE and NIQE step by step by other ways, and whole against published programs."""

import numpy as np
import pytest
import torch
from scipy import ndimage, stats
from skimage import data

from scripts.paper import no_reference
from scripts.paper.image_quality import ImageQuality
from tests.evaluate.test_metrics import phantom

INSTALLED = ImageQuality.installed()
needs_brisque = pytest.mark.skipif(INSTALLED.brisque is None, reason="the package brisque carries the parameters")
needs_niqe = pytest.mark.skipif(INSTALLED.niqe is None, reason="the package iqa-torch carries the parameters")


def test_sharpness_by_plain_sums():
    """Crete et al.: the share of the gradient that a mean over eleven voxels takes away, along the axis."""
    volume = phantom().double().numpy()
    kernels = [np.array([1, 2, 1]) / 4, np.array([1, 2, 1]) / 4]

    def gradient(v):
        for axis, kernel in zip((0, 1), kernels):
            v = ndimage.convolve1d(v, kernel, axis)
        return np.abs(ndimage.convolve1d(v, np.array([1, 0, -1]) / 2, 2))[2:-1, 2:-1, 2:-1]

    sharp, blurred = gradient(volume), gradient(ndimage.convolve1d(volume, np.full(11, 1 / 11), 2))
    lost = np.maximum(sharp - blurred, 0).sum() / sharp.sum()
    assert no_reference.sharpness(torch.from_numpy(volume), 2) == pytest.approx(lost, abs=1e-6)


@pytest.fixture(scope="module")
def camera():
    return data.camera().astype(float)


@pytest.mark.parametrize("shape", [0.8, 1.0, 2.0])
def test_the_fit_finds_the_shape_and_both_sides_of_samples(shape):
    """Of a generalised Gaussian whose positive side is twice as wide; both sides hold their share of the mass."""
    samples = np.abs(stats.gennorm.rvs(shape, size=200_000, random_state=0))
    side = np.where(np.random.default_rng(0).random(samples.size) < 2 / 3, 2.0, -1.0)
    found, left, right = no_reference.fit(samples * side)
    deviation = stats.gennorm.std(shape)
    assert found == pytest.approx(shape, rel=0.03)
    assert (left, right) == pytest.approx((deviation, 2 * deviation), rel=0.02)
    assert np.isnan(no_reference.fit(samples)).all()


@needs_niqe
def test_niqe_as_others_compute_it(camera):
    """Values by calculate_niqe of basicsr 1.4.2, which agrees with MATLAB; the image and the image blurred."""
    assert INSTALLED.niqe(camera[None]) == pytest.approx(3.0962, abs=2e-3)
    assert INSTALLED.niqe(camera[None, 3:400, :300]) == pytest.approx(3.5099, abs=2e-3)


@needs_brisque
def test_brisque_of_features_as_libsvm_computes_it():
    """svm_predict_probability of libsvm 3.37 with the same files, of a quarter of the way and half of the way."""
    model = INSTALLED.brisque

    def score(share):
        return model.weights @ np.exp(-model.gamma * np.square(model.vectors - (2 * share - 1)).sum(1)) - model.rho

    assert (score(0.25), score(0.5)) == pytest.approx((-1.778396373880497, 14.352117400333526), abs=1e-6)
