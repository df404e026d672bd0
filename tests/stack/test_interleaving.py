"""Slices in the order of their times are refused, cross-talk is evened out, and a right stack is neither."""

from functools import cache

import nibabel as nib
import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import voxel_spacing
from scripts.stack.intensity import intensity_range
from scripts.stack.interleaving import (
    BACKWARDS,
    CROSS_TALK,
    DIMMED,
    DISORDER,
    MIRROR,
    NO_ORDER,
    ORDERS,
    clues,
    dimmed,
    disorder,
    evened,
)
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


@cache
def real_stack(name):
    """A stack of the shared data, `(X, Y, Z)`, the axis of its slices, and its range; a sharp one in slices of 5 mm."""
    image = nib.load(SHARED / f"{name}.nii.gz")
    volume = torch.from_numpy(np.asarray(image.dataobj, dtype=np.float32))
    axis, edges = int(voxel_spacing(image.affine).argmax()), voxel_spacing(image.affine)
    if name.startswith("isotropic"):
        axis = 2
        volume = acquire(volume, Acquisition.of_truth(2, volume.shape[2], edge=float(edges[2]), thickness=5.0))
    return volume, axis, intensity_range(volume)


def lopsided():
    """A head of 20 slices whose tissue differs over centimetres, as that of real ones does."""
    field = gaussian_filter(np.random.default_rng(0).normal(size=(48, 56, 20)), (6, 6, 2))
    head = smooth_head((48, 56, 20))
    return head * (1 + 0.3 * torch.from_numpy(field / field.std()).float().clamp(-3, 3))


def misplaced(volume):
    """What is said of slices along axis 2 that stand so -> the volume."""
    mixed = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    before, behind = volume[..., :9], volume[..., 9:]
    return {
        "": volume,
        DISORDER.format(NO_ORDER): volume[..., mixed],
        DISORDER.format(BACKWARDS[0].format(10)): torch.cat([before, behind.flip(2)], 2),
        DISORDER.format(BACKWARDS[1].format(10)): torch.cat([before.flip(2), behind], 2),
        **{MIRROR.format(k): torch.cat([volume[..., : k - 1], volume[..., k - 1 :].flip(0)], 2) for k in (9, 10)},
        MIRROR.format(11): torch.cat([volume[..., :10], volume[..., 10:].flip(1)], 2),
        MIRROR.format(12): torch.cat([volume[..., :11], volume[..., 11:].flip(0, 1)], 2),
    }


@pytest.mark.parametrize("said", misplaced(torch.zeros(1, 1, 20)))
@pytest.mark.parametrize("axis", [0, 2])
def test_slices_in_no_order_and_parts_backwards_or_mirrored_are_told(said, axis):
    assert ordered(misplaced(lopsided())[said].movedim(2, axis), axis) == said


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


@pytest.mark.parametrize("said", TURNS)  # slices-in-order-of-time
@pytest.mark.parametrize("axis", [0, 2])
def test_slices_in_another_order_than_their_places_are_told_and_the_order_is_named(slices, said, axis):
    volume = slices.movedim(2, axis)
    assert ordered(volume, axis) == "" == ordered(volume.flip(axis), axis)
    assert ordered(standing(volume, axis, said), axis) == DISORDER.format(said)


def test_few_slices_and_noise_tell_no_order(slices):
    noise = torch.rand(40, 40, 20, generator=torch.Generator().manual_seed(0))
    assert ordered(standing(slices[..., :7], 2, next(iter(ORDERS)))) == "" == ordered(noise)


def test_a_strip_of_a_stack_tells_no_order(slices):
    """A coronal slab of a few planes, as benchmarks cut it, shows too little of the head."""
    strip = standing(torch.cat([slices] * 6, dim=1)[:24], 2, next(iter(ORDERS)))
    assert ordered(strip) == "" != ordered(strip[:, :180])


@pytest.mark.parametrize("seed", range(4))
def test_a_head_of_equal_halves_shows_no_mirror_whatever_its_noise(seed):
    even = sum(lopsided().flip(along) for along in ((), (0,), (1,), (0, 1))) / 4
    noise = torch.randn(even.shape, generator=torch.Generator().manual_seed(seed))
    assert ordered(even + 40 * noise) == ""


@pytest.mark.parametrize("factor", [0.7, 0.8])
@pytest.mark.parametrize("which", [0, 1])
def test_every_other_slice_that_is_dimmer_becomes_as_bright_as_the_others(slices, factor, which):  # odd-slices-dimmer
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


real = pytest.mark.skipif(not SHARED.exists(), reason="the shared data are not here")


@real
@pytest.mark.parametrize("name", REAL)
def test_a_real_stack_is_far_from_all_limits(name):
    """The nearest of all: 2.5 times as unlike by turns, 1.6 backwards, every other slice 0.95 times as bright.

    In the order of numbers as words most neighbours stand beside each other: three of the four tell it for certain.
    """
    volume, axis, tissue_range = real_stack(name)
    found = clues(volume, axis, tissue_range)
    assert all(one.value > max(1.4 * one.limit, 0) for one in found), found
    assert disorder(volume, axis, tissue_range) == "" and dimmed(volume, axis, tissue_range)[1] > DIMMED + 0.05
    for said in TURNS if name == REAL[1] else ORDERS:
        assert disorder(standing(volume, axis, said), axis, tissue_range).startswith(DISORDER[:30])


@real
@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("seed", range(3))
def test_slices_in_no_order_are_told(name, seed):
    volume, axis, tissue_range = real_stack(name)
    drawn = torch.randperm(volume.shape[axis], generator=torch.Generator().manual_seed(seed))
    said = disorder(volume.index_select(axis, drawn), axis, tissue_range)
    assert said in [DISORDER.format(one) for one in (NO_ORDER, *ORDERS)]


@real
@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("share", [1 / 3, 1 / 2, 2 / 3])
def test_a_part_backwards_or_mirrored_is_told_and_where_it_begins(name, share):
    volume, axis, tissue_range = real_stack(name)
    first = round(share * volume.shape[axis])
    before, behind = volume.movedim(axis, 0).split([first, volume.shape[axis] - first])

    def said(*parts):
        return disorder(torch.cat(parts).movedim(0, axis), axis, tissue_range)

    assert said(before, behind.flip(0)) == DISORDER.format(BACKWARDS[0].format(first + 1))
    assert said(before.flip(0), behind) == DISORDER.format(BACKWARDS[1].format(first + 1))
    for along in ((1,), (2,), (1, 2)):
        assert said(before, behind.flip(along)) == MIRROR.format(first + 1) == said(before.flip(along), behind)
    assert said(before.flip(1), behind.flip(1)) == "" == said(behind.flip(0), before.flip(0))
