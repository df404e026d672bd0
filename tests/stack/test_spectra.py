"""Spectra along an axis: laws, closed forms and plain loops."""

import math

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter1d

from benchmarks.thick import directional_power_ratio
from scripts.paper.weave import weave
from scripts.stack import spectra
from tests.evaluate.test_metrics import phantom


def test_bands():
    assert spectra.through_plane_bands(5.0, 1.0) == [(0.1, 0.2), (0.2, 0.25), (0.25, 0.5)]
    assert spectra.through_plane_bands(5.0, 0.5) == [(0.1, 0.2), (0.2, 0.5), (0.5, 1.0)]


@pytest.mark.parametrize(("axis", "count", "spacing"), [(0, 24, 0.868), (1, 23, 0.7), (2, 24, 1.0)])
def test_power_agrees_with_plain_loops(axis, count, spacing):
    prediction, truth = phantom(0, (5, 6, count)), phantom(1, (5, 6, count))
    expected = []
    for low, high in spectra.through_plane_bands(3.6, spacing):
        powers = []
        for volume in (prediction, truth):
            lines = volume.double().reshape(-1, count).numpy()
            power = 0.0
            for line in lines:
                spectrum = np.fft.rfft((line - line.mean()) * np.hanning(count))
                for k, value in enumerate(spectrum):
                    cycles, start, stop = (round(v, 9) for v in (k / count, low * spacing, high * spacing))  # per voxel
                    if start <= cycles < stop or cycles == stop == 0.5:
                        power += abs(value) ** 2
            powers.append(power)
        expected.append(10 * np.log10(powers[0] / powers[1]) if powers[1] else math.nan)
    volumes = (volume.movedim(2, axis) for volume in (prediction, truth))
    ratios = spectra.power_ratios(*volumes, axis, spacing, spectra.through_plane_bands(3.6, spacing))
    assert ratios == pytest.approx(expected, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize(("axis", "spacing"), [(0, 0.7), (1, 1.0), (2, 5.0)])
def test_density_of_white_noise_is_its_variance_per_voxel(axis, spacing):
    """`variance x spacing` squared units x mm at every frequency, which integrates to the variance over the band."""
    noise = 3 * torch.randn(64, 60, 62, generator=torch.Generator().manual_seed(0))
    frequencies, density = spectra.power_density(noise, axis, spacing)
    assert len(frequencies) == len(density) == noise.shape[axis] // 2 + 1
    assert frequencies[0] == 0 and frequencies[-1] == pytest.approx(1 / (2 * spacing))
    inner = density[2:-1] / (9 * spacing)
    assert inner.mean().item() == pytest.approx(1, abs=0.02)
    assert inner.std().item() < 0.1


NOISE = torch.randn(48, 48, 48, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
BAND = (0.2, 0.4)  # cycles/mm


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_blur_along_the_slices_lowers_the_ratio_by_its_own_transfer(axis):
    """Halved amplitude in the band along one axis alone: 6 dB less."""
    spectrum = torch.fft.rfft(NOISE, dim=axis)
    frequencies = torch.fft.rfftfreq(48)
    gain = torch.where((frequencies > 0.15) & (frequencies < 0.45), 0.5, 1.0)
    shape = [1, 1, 1]
    shape[axis] = -1
    blurred = torch.fft.irfft(spectrum * gain.reshape(shape), n=48, dim=axis)
    reference = (axis + 1) % 3
    before, after = (directional_power_ratio(v, axis, reference, (1.0, 1.0, 1.0), BAND) for v in (NOISE, blurred))
    others = 10 * math.log10(blurred.var() / NOISE.var())  # the reference axis loses what the volume loses
    assert after - before == pytest.approx(-20 * math.log10(2) - others, abs=0.1)


def test_what_is_smooth_along_either_of_two_axes_is_woven_and_white_noise_is_not():
    noise = torch.randn(60, 20, 50, generator=torch.Generator().manual_seed(0))
    threads = [torch.from_numpy(gaussian_filter1d(noise.numpy(), 4.0, axis=axis)) for axis in (0, 2)]
    spacings = (1.0, 1.0, 1.2)
    assert weave(noise, (0, 2), spacings, 5.0) == pytest.approx(1, abs=0.1)
    assert weave(sum(threads), (2, 0), spacings, 5.0) > 10
    assert weave(threads[0], (1, 2), spacings, 5.0) == pytest.approx(1, abs=0.3), "of other axes it is not"


@pytest.mark.parametrize(
    ("axis", "count", "spacing", "thickness"), [(0, 40, 1.0, 5.0), (1, 33, 0.7, 3.0), (2, 40, 1.0, 2.0)]
)
def test_detail_that_is_finer_than_the_slices_counts_and_nothing_else_does(axis, count, spacing, thickness):
    """Waves of whole half periods from end to end: those from 1/T on count twice and a half, those below 0.9/T once."""
    places, shape = (torch.arange(count) + 0.5) / count, [3, 3, 3]
    shape[axis] = count
    for half_periods in range(count):
        wave = torch.cos(math.pi * half_periods * places).movedim(0, -1)
        volume = torch.ones(shape) * wave.reshape([count if one == axis else 1 for one in range(3)])
        of_limit = half_periods / (2 * count * spacing) * thickness
        made = spectra.with_detail(volume, axis, spacing, thickness, 2.5)
        factor = ((made * volume).sum() / (volume * volume).sum()).item()
        torch.testing.assert_close(made, factor * volume, atol=1e-5, rtol=0)
        assert factor == pytest.approx(2.5 if of_limit >= 1 else 1.0, abs=1e-5) or (0.9 < of_limit < 1 < factor < 2.5)
    torch.testing.assert_close(spectra.with_detail(volume, axis, spacing, thickness, 1.0), volume, atol=1e-6, rtol=0)
