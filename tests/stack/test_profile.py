"""Laws of the slice profile and its kernel, with a Bloch simulation and closed forms as oracles."""

from math import erf

import numpy as np
import pytest
from sigpy.mri import rf

from scripts.stack.profile import profile_kernel, slr_profile

TIME_BANDWIDTHS = [2.0, 4.0, 10.0]
PROFILES = [*TIME_BANDWIDTHS, "gaussian", "rectangular"]


def half_width(weights):
    """Full width at half maximum of a piecewise linear curve through the samples, 0 outside; in samples."""
    curve = [0.0, *weights, 0.0]
    half = max(curve) / 2
    rise = next(k for k in range(1, len(curve)) if curve[k - 1] < half <= curve[k])
    fall = next(k for k in range(len(curve) - 1, 0, -1) if curve[k] < half <= curve[k - 1])
    left = rise - 1 + (half - curve[rise - 1]) / (curve[rise] - curve[rise - 1])
    right = fall - (half - curve[fall]) / (curve[fall - 1] - curve[fall])
    return right - left


def bloch(pulse, x):
    """Magnetisation `(len(x), 3)` after the pulse and its rewinder, by rotation matrices, relaxation ignored.

    Each sample is a hard pulse about an axis in the transverse plane, between two halves of its gradient's precession.
    The gradient turns the magnetisation at `x = 1` once during the pulse.
    """

    def precession(angle):
        c, s, zero, one = np.cos(angle), np.sin(angle), np.zeros_like(angle), np.ones_like(angle)
        return np.array([[c, -s, zero], [s, c, zero], [zero, zero, one]]).transpose(2, 0, 1)

    half_step = precession(np.pi * x / len(pulse))
    m = np.tile([0.0, 0.0, 1.0], (len(x), 1))[..., None]
    for sample in pulse:
        flip, phase = np.abs(sample), np.angle(sample)
        nutation = np.array([[1, 0, 0], [0, np.cos(flip), -np.sin(flip)], [0, np.sin(flip), np.cos(flip)]])
        turn = precession(np.array([phase]))[0]
        m = half_step @ ((turn @ nutation @ turn.T) @ (half_step @ m))
    return (precession(-np.pi * x) @ m)[..., 0]


def pulse(time_bandwidth):
    return rf.slr.dzrf(n=256, tb=time_bandwidth, ptype="ex", ftype="ls", d1=0.01, d2=0.01, cancel_alpha_phs=False)


def share(profile, z):
    """Integral up to `z` of a shape that is one wide at half its maximum and one in area."""
    if profile == "rectangular":
        return min(max(z, -0.5), 0.5) + 0.5
    return (1 + erf(2 * np.sqrt(np.log(2)) * z)) / 2


def shape_over_voxels(profile, ratio, reach):
    """The shape's integrals over voxels, stretched until they are `ratio` wide at half their maximum."""

    def weights(width):
        edges = [share(profile, (k - 0.5) / width) for k in range(-reach, reach + 2)]
        return np.diff(edges) / (edges[-1] - edges[0])

    low, high = 0.5, 2 * ratio
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if half_width(weights(middle)) < ratio else (low, middle)
    return weights(low)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("fine_spacing", [0.7, 1.25])
def test_kernel_is_as_wide_as_the_slice_is_thick(fine_spacing, profile):
    for ratio in (1.05, 1.2, 1.43, 1.5, 2.0, 2.5, 3.0, 3.7, 4.2, 5.0, 6.5, 8.0, 20.0):
        kernel = profile_kernel(ratio * fine_spacing, fine_spacing, profile)
        assert half_width(kernel) == pytest.approx(ratio, abs=5e-5)  # voxels


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("ratio", [0.5, 1.05, 3.7])
def test_kernel_is_symmetric_with_odd_length_and_sum_one(ratio, profile):
    kernel = profile_kernel(ratio * 0.7, 0.7, profile)
    assert len(kernel) % 2 == 1
    assert kernel.sum() == pytest.approx(1, abs=1e-12)
    assert (kernel >= 0).all()
    np.testing.assert_array_equal(kernel, kernel[::-1])


@pytest.mark.parametrize("time_bandwidth", TIME_BANDWIDTHS)
def test_profile_agrees_with_a_bloch_simulation(time_bandwidth):
    x = np.linspace(-time_bandwidth, time_bandwidth, 401)
    transverse = np.hypot(*bloch(pulse(time_bandwidth), x)[:, :2].T)
    width = half_width(transverse) * (x[1] - x[0])
    assert width == pytest.approx(time_bandwidth, rel=0.25)  # what the product means, up to the edges' softness
    z, profile = slr_profile(time_bandwidth)
    np.testing.assert_allclose(np.interp(x / width, z, profile), transverse, atol=0.01)


@pytest.mark.parametrize("profile", ["gaussian", "rectangular"])
@pytest.mark.parametrize("ratio", [1.05, 3.3])
def test_shapes_are_integrated_over_voxels_in_closed_form(ratio, profile):
    kernel = profile_kernel(ratio, 1.0, profile)
    np.testing.assert_allclose(kernel, shape_over_voxels(profile, ratio, len(kernel) // 2), atol=1e-3)


def test_impossible_lengths_and_products_are_named():
    for thickness, fine_spacing in ((0.0, 1.0), (-2.5, 1.0), (3.0, -0.7), (float("nan"), 1.0)):
        with pytest.raises(ValueError, match=f"{thickness} mm.*{fine_spacing} mm"):
            profile_kernel(thickness, fine_spacing)
    with pytest.raises(ValueError, match=r"product is 1\.9"):
        slr_profile(1.9)


@pytest.mark.parametrize("name", ["hamming", "Gaussian", ""])
def test_an_unknown_profile_is_refused_with_what_is_allowed(name):
    with pytest.raises(ValueError, match=f"slice profile is '{name}'.*'gaussian' or 'rectangular'.*SLR"):
        profile_kernel(4.0, 1.0, name)
