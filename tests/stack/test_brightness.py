"""Which brightness of a scan is said, and that a head as it should be says none."""

import nibabel as nib
import numpy as np
import pytest
import torch

from scripts.stack.brightness import BLOCKS, SLOPE, doubts, slope_of
from scripts.stack.intensity import IntensityRange, intensity_range
from scripts.stack.tissue import head_mask
from tests.config_files import ROOT
from tests.stack.test_intensity import filling, rimmed
from tests.volumes import smooth_head

THICK = ROOT.parent / "shared" / "data" / "thick"


def said(volume):
    tissue_range = intensity_range(volume)
    return doubts(volume, tissue_range, head_mask(volume, tissue_range))


def sloped(volume, times, axis):
    """The volume, so many times as bright at one end of its head as at the other."""
    where = torch.nonzero(volume > 100)[:, axis]
    low, high = where.min(), where.max()
    place = ((torch.arange(volume.shape[axis]) - low) / (high - low)).clamp(0, 1)
    return volume * (times**place).reshape([-1 if k == axis else 1 for k in range(3)])


@pytest.fixture(scope="module")
def volume():
    return filling(smooth_head((40, 40, 40)), 0.3, 10.0)


def test_a_head_in_air_says_nothing_and_each_oddity_says_its_own(volume):
    assert said(volume) == ()
    (spots,) = said(rimmed(volume, 40)[0])
    assert "more than 5 times as bright" in spots
    (slope,) = said(sloped(volume, 5.0, 1))
    assert "surface coil" in slope
    fluid = volume.where(volume < 500, 3000.0 + volume)
    assert len(said(fluid)) == 1 and ("5 times" in said(fluid)[0] or "darker than a third" in said(fluid)[0])


@pytest.mark.parametrize(("share", "faint"), [(0.32, False), (0.45, False), (0.55, True)])
def test_a_head_is_faint_where_more_than_half_of_it_is_dark(share, faint):
    """Heads as they are have up to 0.32 of their voxels below a third of their bright tissue."""
    head = torch.ones(40, 40, 40, dtype=torch.bool)
    volume = 600 + 20 * torch.randn(head.shape, generator=torch.Generator().manual_seed(0))
    volume.view(-1)[torch.randperm(64000, generator=torch.Generator().manual_seed(1))[: int(64000 * share)]] = 100
    found = doubts(volume, IntensityRange(0.0, 660.0, 3000.0), head)
    assert [f"{100 * share:.0f} % of the head is darker" in one for one in found] == [True] * faint


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_slope_is_the_one_that_was_multiplied(axis):
    """An even box; blocks lie half a block within its ends."""
    box, head = np.full((30, 36, 24), 100.0), np.ones((30, 36, 24), bool)
    place = np.arange(box.shape[axis]).reshape([-1 if k == axis else 1 for k in range(3)]) / box.shape[axis]
    for times in (1.0, 3.0, 0.2):
        expected = max(times, 1 / times) ** ((BLOCKS - 1) / BLOCKS)
        assert slope_of(box * times**place, head, 100.0) == pytest.approx(expected, rel=0.01)


def test_few_blocks_tell_no_slope():
    box = np.exp(np.arange(7.0))[:, None, None] * np.ones((7, 1, 1))
    assert slope_of(box, np.ones_like(box, bool), 100.0) == 1
    assert SLOPE > 2


@pytest.mark.skipif(not THICK.exists(), reason="the shared data are not here")
@pytest.mark.parametrize("name", ["ljubljana-long-01_study1-T1W", "ljubljana-long-20_study2-FLAIR"])
def test_a_real_scan_says_nothing_and_the_same_with_a_surface_coil_does(name):
    every = nib.load(THICK / f"{name}.nii.gz").slicer[::2, ::2]
    volume = torch.from_numpy(np.asarray(every.dataobj, dtype=np.float32))
    assert said(volume) == ()
    assert any("surface coil" in one for one in said(sloped(volume, 6.5, 1).float()))
