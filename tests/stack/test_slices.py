"""Laws of slices as one value: facts are those of the voxels, and turn with them."""

import numpy as np
import pytest
import torch
from monai.data import DataLoader

from scripts.stack.intensity import IntensityRange, intensity_range
from scripts.stack.slices import Slices
from scripts.stack.tissue import head_mask
from tests.volumes import scan_of, smooth_head


@pytest.fixture(scope="module")
def scan():
    """Noisy slices of a head, of which one is blank, with a floor of 40."""
    scan = scan_of(smooth_head((40, 44, 60)))
    scan.add_(10 * torch.rand(scan.shape, generator=torch.Generator().manual_seed(0)) + 40)
    scan[0, :, :, 4] = 40
    return scan


def test_facts_are_those_of_the_voxels(scan):
    slices = Slices.of(scan)
    assert slices.tissue_range == intensity_range(slices.array)
    assert torch.equal(slices.head, head_mask(slices.array))
    assert slices.above_floor.min() == pytest.approx(float(slices.array.min()) - slices.tissue_range.low)
    assert slices.unit.array[slices.head].max() > 0.9 and slices.unit.array.min() == -1
    assert slices.tissue is slices.tissue and slices.filled is slices.filled


def test_an_attached_range_is_taken_as_long_as_it_is_of_these_voxels(scan):
    """From a batch, too, whose collation makes tensors of numbers. The slices' own facts hold none."""
    volume, wide = scan.clone(), IntensityRange(0.0, 1e4, 2e4)
    wide.attach(volume)
    assert Slices.of(volume).tissue_range == wide and "tissue_range" not in Slices.of(volume).meta
    assert Slices.of(next(iter(DataLoader([volume])))).tissue_range == wide
    volume[0, 20, 20, 7] += 1
    assert Slices.of(volume).tissue_range == intensity_range(volume.as_tensor()[0])


def test_slices_that_are_whole_and_tissue_are_the_same_value():
    slices = Slices.of(scan_of(smooth_head((40, 44, 60))))
    assert slices.filled is slices and slices.tissue is slices


def test_the_fine_grid_has_the_centre_of_the_slices(scan):
    slices = Slices.of(scan)
    ends = [slices.affine @ torch.tensor([*((np.array(slices.shape) - 1) / 2), 1])]
    ends += [slices.fine_affine @ torch.tensor([*((np.array(slices.fine_shape) - 1) / 2), 1])]
    torch.testing.assert_close(*ends)
    assert slices.fine_shape == [40, 44, 60]


def test_a_change_of_unit_changes_the_unit_of_each_fact(scan):
    """The head of whole slices whose range begins at 40 has its range, its noise and its floor in either unit."""
    slices = Slices.of(scan).filled
    unit, (low, high, ceiling) = slices.unit, slices.tissue_range
    assert unit.tissue_range == pytest.approx(
        (-1, 1, slices.tissue_range.to_unit(torch.tensor(ceiling)).item()), abs=1e-5
    )
    assert unit.noise.deviation == pytest.approx(2 / (high - low) * slices.noise.deviation)
    assert torch.equal(unit.head, slices.head)
    torch.testing.assert_close(unit.above_floor, slices.tissue.above_floor * (2 / (high - low)))
    assert unit.missing == {} and low > 0
