"""How sharp a volume is along each axis, by its spectrum: what interpolation adds is no detail."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import at_spacing, interpolate
from scripts.stack.spectra import interpolated, sharpness, spacing_is_lost
from tests.volumes import head, scan_of

EDGES = (1.0, 1.0, 1.0)


def as_slices(thickness, method="cubic"):
    """A head of 1 mm, as programs make it of thick slices."""
    thick = scan_of(head((64, 64, 80)), thickness)
    return interpolate(thick[0].as_tensor(), Acquisition.of(thick), method)


def test_a_volume_is_as_sharp_as_its_voxels():
    assert sharpness(head((64, 64, 80)), EDGES) == [1.0, 1.0, 1.0]
    assert sharpness(head((64, 64, 80)), (0.8, 0.8, 0.8)) == pytest.approx([0.8] * 3)


@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize(("thickness", "least"), [(3.0, 1.8), (5.0, 3.2)])
def test_interpolated_slices_are_as_sharp_as_those_they_were_made_of(method, thickness, least):
    noise = 10 * torch.randn(64, 64, 80, generator=torch.Generator().manual_seed(0))
    for volume in (as_slices(thickness, method), as_slices(thickness, method) + noise * 0.1):
        *in_plane, across = sharpness(volume, EDGES)
        assert in_plane == [1.0, 1.0] and least < across <= 1.2 * thickness
    turned = sharpness(as_slices(thickness, method).permute(2, 0, 1), EDGES)
    assert turned[0] > least and turned[1:] == [1.0, 1.0]


@pytest.mark.parametrize("factor", [2, 5])
def test_repeated_slices_are_as_sharp_as_those_they_repeat(factor):
    volume = head((64, 64, 80))
    for one in (volume, (volume / volume.max() * 15).round(), volume.clamp(max=float(volume.quantile(0.9)))):
        assert sharpness(one, EDGES) == [1.0, 1.0, 1.0]
        repeated = one[..., ::factor].repeat_interleave(factor, 2).permute(2, 0, 1)
        across, *within = sharpness(repeated, EDGES)
        assert within == [1.0, 1.0] and 0.6 * factor < across < 1.1 * factor


@pytest.mark.parametrize(("equal", "sharp"), [(0.31, True), (0.45, False)])
def test_more_equal_neighbours_along_one_axis_than_scans_have_are_repeats(equal, sharp):
    """Of 16 grey values; 1 / (1 - share) as many neighbours differ along the other axes."""
    generator = torch.Generator().manual_seed(0)
    volume = torch.randn(32, 32, 32, generator=generator)
    for k in range(1, 32):
        same = torch.rand(32, 32, generator=generator) < equal
        volume[k] = torch.where(same, volume[k - 1], volume[k])
    assert (sharpness(volume, EDGES)[0] == 1.0) == sharp


@pytest.mark.parametrize(("count", "sharp"), [(15, True), (16, False)])
def test_too_few_voxels_say_nothing(count, sharp):
    volume = torch.randn(20, 20, count, generator=torch.Generator().manual_seed(0))
    assert (sharpness(volume[::4].repeat_interleave(4, 0), EDGES)[0] == 1.0) == sharp


@pytest.mark.parametrize(("power", "sharp"), [(0.07, True), (0.04, False)])
def test_power_below_a_tenth_of_the_other_axes_is_none(power, sharp):
    """The other axes lose half of what the filter takes: their power is `(1 + power) / 2`."""
    volume = np.random.default_rng(0).normal(size=(64, 64, 64))
    spectrum = np.fft.rfft(volume, axis=0)
    spectrum[np.fft.rfftfreq(64) >= 0.25] *= power**0.5
    weak = torch.from_numpy(np.fft.irfft(spectrum, n=64, axis=0))
    assert (sharpness(weak, EDGES)[0] == 1.0) == sharp


def test_what_counts_as_interpolated():
    assert interpolated([1.0, 1.0, 1.0], EDGES) is None
    assert interpolated([1.0, 1.4, 4.8], EDGES) == (2, 4.8)
    assert interpolated([1.0, 1.4, 4.8], EDGES, (0, 1)) is None, "axes that are not asked for"
    assert interpolated([0.5, 1.9, 0.5], (0.5, 0.5, 0.5)) is None, "pixels that a scanner interpolated"
    assert interpolated([0.5, 2.1, 0.5], (0.5, 0.5, 0.5)) == (1, 2.1)
    assert interpolated([1.0, 1.0, 3.4], (1.0, 1.0, 2.4)) is None
    assert interpolated([1.0, 1.0, 3.8], (1.0, 1.0, 2.4)) == (2, 3.8)


@pytest.mark.parametrize(("inside", "sharp"), [(165, False), (130, True)])
def test_the_middle_160_voxels_say_how_sharp_a_volume_is(inside, sharp):
    """Slices that were interpolated there, and none beyond."""
    chance = torch.Generator().manual_seed(0)
    volume, thick = (torch.randn(240, 24, count, generator=chance) for count in (24, 6))
    middle = slice((240 - inside) // 2, (240 + inside) // 2)
    volume[middle] = torch.nn.functional.interpolate(thick[middle], size=24, mode="linear")
    assert (sharpness(volume, EDGES)[2] == 1) == sharp


def test_a_stack_in_cubes_has_lost_its_spacing_and_a_slab_has_not():
    thick = scan_of(head((64, 64, 80)), 5.0)[0].as_tensor()
    assert thick.shape[2] == 16 and spacing_is_lost(thick, EDGES)
    assert not spacing_is_lost(thick, (1.0, 1.0, 5.0))
    assert not spacing_is_lost(head((64, 64, 80))[..., 32:48], EDGES)
    assert not spacing_is_lost(head((64, 64, 40)), EDGES)


@pytest.mark.parametrize(
    ("power", "shape", "lost"),
    [
        (3.0, (64, 64, 32), False),
        (6.0, (64, 64, 32), True),
        (12.0, (64, 64, 36), False),  # more than half as high as wide
        (12.0, (64, 42, 16), True),
        (12.0, (64, 38, 16), False),  # too narrow for a head
    ],
)
def test_slices_with_four_times_the_power_of_other_axes_have_lost_their_spacing(power, shape, lost):
    chance = torch.Generator().manual_seed(0)
    volume = torch.randn(shape, generator=chance) + (power - 1) ** 0.5 * torch.randn(shape[-1], generator=chance)
    assert spacing_is_lost(volume, EDGES) == lost


@pytest.mark.parametrize("factor", [3, 5])
def test_slices_are_taken_back_to_the_spacing_they_had(factor):
    thick = torch.from_numpy(ndimage.gaussian_filter(np.random.default_rng(0).normal(size=(6, 7, 9)), 1.0))
    place = (np.arange(9 * factor) - (factor - 1) / 2) / factor
    fine = torch.stack(
        [
            torch.from_numpy(
                ndimage.map_coordinates(
                    thick.numpy(), np.meshgrid(np.arange(6), np.arange(7), [z], indexing="ij"), order=1, mode="nearest"
                )[..., 0]
            )
            for z in place
        ],
        -1,
    )
    back = at_spacing(fine, 2, 0.8, 0.8 * factor)
    assert back.shape == thick.shape
    torch.testing.assert_close(back[..., 1:-1], thick[..., 1:-1], atol=1e-6, rtol=0)
