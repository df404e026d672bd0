"""Laws of slices that are acquired again: their noise, their thickness and their pixels."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import ndimage

from scripts.rebuild.acquired_again import PLANES, AcquiredAgain, as_acquired, below_border, middle_slices
from scripts.stack.interpolation import interpolate
from scripts.stack.noise import Noise, with_noise
from tests.rebuild.test_reduced_resolution import quiet, scan, scan_of
from tests.volumes import smooth_head

__all__ = ["scan"]


@pytest.mark.parametrize("width", [1.0, 1.6])
def test_the_noise_of_the_measured_slice_is_no_error(width):
    """The error against the noisy slice, less its noise, is that against the slice without noise."""
    clean = scan_of(smooth_head((112, 120, 12)))
    noise = Noise(0.04 * clean.tissue_range.extent, (width, width))
    drawn = torch.randn((2, *clean.shape), generator=torch.Generator().manual_seed(7))  # the head has seed 0
    array = with_noise(clean.array, (0, 1), noise, drawn)
    noisy = clean.like(array, tissue_range=clean.tissue_range, head=clean.head, missing={}, noise=noise)
    told, true, hidden = [], [], []
    for axis, index in itertools.product((0, 1), range(4, 9)):
        again = AcquiredAgain.of(noisy, below_border(noisy), index, axis)
        plane, _ = as_acquired(clean.array[..., index].movedim(axis, 0), 1.0, width, 1.0)
        thick = again.slices(noisy, torch.zeros(*again.truth.shape, PLANES), index + 100 * axis)
        found = interpolate(thick.array, thick.acquisition, "cubic")[..., PLANES // 2]
        deep = ndimage.binary_erosion(again.head.numpy(), iterations=8)  # noise raises what is dark
        told.append(float((found - again.truth)[deep].square().mean()) - again.hidden)
        true.append(float((found - plane)[deep].square().mean()))
        hidden.append(again.hidden)
    assert np.mean(told) == pytest.approx(np.mean(true), abs=0.08 * np.mean(hidden))


def test_slices_acquired_again_have_the_noise_of_the_scan_and_its_thickness():
    flat = torch.full((128, 120, 3), 500.0)
    noise = Noise(20.0)
    drawn = torch.randn((2, *flat.shape), generator=torch.Generator().manual_seed(1))
    scan = scan_of(with_noise(flat, (0, 1), noise, drawn))
    scan = scan.like(scan.array, tissue_range=scan.tissue_range, head=torch.ones(flat.shape).bool(), missing={})
    vars(scan).update(noise=noise)
    again = AcquiredAgain.of(scan, below_border(scan), 1, 1)
    made = again.slices(scan, torch.zeros(*again.truth.shape, PLANES), 3)
    assert made.array.shape == (24, 128, PLANES) and made.acquisition.slice_thickness == 5.0
    assert float(made.array.std()) == pytest.approx(20, rel=0.05)
    both = made.array - made.array.mean()
    shared = float((both[..., 0] * both[..., 2]).mean() / both.square().mean())
    assert 0.15 < shared < 0.4, "planes beside each other share the slice's own noise, and no more"


def test_pixels_finer_than_the_target_are_integrated_to_it():
    scan = quiet(scan_of(smooth_head((128, 144, 6)), edges=(0.5, 0.5)))
    again = AcquiredAgain.of(scan, below_border(scan), 3, 0)
    assert again.truth.shape == (64, 144) and again.edges == (1.0, 0.5)
    assert again.acquisition.slice_thickness == 5.0 and again.acquisition.slice_count == 13


def test_interpolated_pixels_become_those_that_were_acquired():
    scan = scan_of(smooth_head((128, 144, 6)), thickness=4.0)
    wide = scan.like(
        scan.array, tissue_range=scan.tissue_range, head=scan.head, missing={}, noise=Noise(9.0, (1.6, 1.1))
    )
    first, second = (AcquiredAgain.of(wide, below_border(wide), 3, axis) for axis in (0, 1))
    assert first.truth.shape == (80, 144) and first.edges == (1.6, 1.0) and second.truth.shape == (144, 128)
    assert first.acquisition.slice_thickness == 4.0 and first.acquisition.slice_count == 20, "of pixels as of targets"
    assert first.noise.widths == (1.1, 1.0)
    made = first.slices(wide, torch.zeros(*first.truth.shape, PLANES), 0)
    assert made.edges.tolist() == [4.0, 1.0, 1.0], "planes are a target apart"


def test_a_missing_slice_is_none_of_those_tested(scan):
    array = scan.array.clone()
    (middle,) = middle_slices(scan, 1)
    array[..., middle] = 0
    assert middle not in middle_slices(replace(scan, array=array), 12)
    assert middle in middle_slices(scan, 12)
    largest = middle_slices(scan, scan.array.shape[2])
    others = middle_slices(scan.like(scan.array, missing=dict.fromkeys(largest)), 12)
    assert others and not set(others) & set(largest), "the largest of those that were measured"
