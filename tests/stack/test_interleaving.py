"""Slices in the order of their times are refused, cross-talk is evened out, and a right stack is neither."""

import nibabel as nib
import numpy as np
import pytest
import torch

from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.intensity import intensity_range
from scripts.stack.interleaving import CROSS_TALK, DIMMED, DISORDER, ORDERS, dimmed, disorder, evened
from scripts.stack.profile import acquire
from tests.config_files import ROOT
from tests.volumes import scan_of, smooth_head

SHARED = ROOT.parent / "shared" / "data"
REAL = [
    "thick/ljubljana-long-01_study1-T2W",
    "examination/tcga-7294_T2w",
    "stacks/mialsrtk-fetal-01_run-6_T2w",
    "isotropic/arc-m2208_T2w",
]


@pytest.fixture(scope="module")
def slices():
    """Of 5 mm, with the noise of a scan."""
    thick = scan_of(smooth_head((48, 56, 100))).as_tensor()[0]
    return thick + 10 * torch.randn(thick.shape, generator=torch.Generator().manual_seed(0))


def ordered(volume, axis=2):
    return disorder(volume, axis, intensity_range(volume))


def standing(volume, axis, said):
    """The volume with its slices in one of the orders."""
    return volume.index_select(axis, torch.tensor(ORDERS[said](volume.shape[axis])))


def test_orders_are_those_that_programs_leave():
    assert [order(11) for order in ORDERS.values()] == [
        [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9],
        [1, 3, 5, 7, 9, 0, 2, 4, 6, 8, 10],
        [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8],
        [0, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8],
    ]


*TURNS, NAMES = ORDERS


@pytest.mark.parametrize("said", TURNS)
@pytest.mark.parametrize("axis", [0, 2])
def test_slices_in_another_order_than_their_places_are_told_and_the_order_is_named(slices, said, axis):
    volume = slices.movedim(2, axis)
    assert ordered(volume, axis) == "" == ordered(volume.flip(axis), axis)
    assert ordered(standing(volume, axis, said), axis) == DISORDER.format(said)


def test_few_slices_and_noise_tell_no_order(slices):
    noise = torch.rand(40, 40, 20, generator=torch.Generator().manual_seed(0))
    assert ordered(standing(slices[..., :7], 2, next(iter(ORDERS)))) == "" == ordered(noise)


@pytest.mark.parametrize("factor", [0.7, 0.8])
@pytest.mark.parametrize("which", [0, 1])
def test_every_other_slice_that_is_dimmer_becomes_as_bright_as_the_others(slices, factor, which):
    dim, low = slices.clone(), intensity_range(slices).low
    dim[..., which::2] = low + factor * (dim[..., which::2] - low)
    even, said = evened(dim, 2, intensity_range(dim))
    assert said == CROSS_TALK.format(which + 1, float(said.split(" is ")[1][:4]))
    assert float(said.split(" is ")[1][:4]) == pytest.approx(factor, abs=0.03)
    inside = slices > 300
    ratio = (even / slices)[inside].reshape(-1)
    assert ratio.mean() == pytest.approx(1, abs=0.03) and torch.equal(
        even[..., 1 - which :: 2], dim[..., 1 - which :: 2]
    )


def test_slices_that_differ_less_than_those_of_cross_talk_stay(slices):
    uneven = slices.clone()
    uneven[..., ::2] *= 0.92
    for volume in (slices, uneven, slices[..., :6]):
        assert evened(volume, 2, intensity_range(volume)) == (volume, "")
    hot = slices.clone()
    hot[20:28, 24:32, 9] = 25 * 600
    assert evened(hot, 2, intensity_range(hot))[1] == "", "one bright spot dims nothing"


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data are not here")
@pytest.mark.parametrize("name", REAL)
def test_a_real_stack_is_far_from_both_limits(name):
    """The nearest of all: 2.1 times as unlike by turns, and every other slice 0.96 times as bright.

    In the order of numbers as words most neighbours stand beside each other: two of the four tell it for certain.
    """
    image = nib.load(SHARED / f"{name}.nii.gz")
    volume = torch.from_numpy(np.asarray(image.dataobj, dtype=np.float32))
    axis = int(voxel_spacing(image.affine).argmax())
    if name.startswith("isotropic"):
        axis, edge = 2, float(voxel_spacing(image.affine)[2])
        volume = acquire(volume, Acquisition.of_truth(2, volume.shape[2], edge=edge, thickness=5.0))
    assert ordered(volume, axis) == "" and dimmed(volume, axis, intensity_range(volume))[1] > DIMMED + 0.05
    for said in TURNS if name in REAL[1::2] else ORDERS:
        assert ordered(standing(volume, axis, said), axis).startswith(DISORDER[:30])
