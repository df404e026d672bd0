"""Slices that are nothing like their neighbours: found, and none in a head as it is."""

import numpy as np
import pytest
import torch

from scripts.rebuild.inferer import DriftInferer
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from scripts.stack.missing import filled
from scripts.stack.slices import Slices
from tests.volumes import scan_of, smooth_head

FAULTS = {
    "blank": lambda slices, k: torch.zeros_like(slices[..., k]),
    "of one value": lambda slices, k: torch.full_like(slices[..., k], -2000.0),
    "half blank": lambda slices, k: slices[..., k].clone().index_fill(0, torch.arange(26), 0),
    "bright": lambda slices, k: 3 * slices[..., k],
    "dim": lambda slices, k: 0.2 * slices[..., k],
    "noise": lambda slices, k: 900 * torch.rand(slices[..., k].shape, generator=torch.Generator().manual_seed(0)),
    "of another place": lambda slices, k: slices[..., k].roll(22, 0),
}


@pytest.fixture(scope="module")
def slices():
    """Of 5 mm, with the noise of a scan."""
    thick = scan_of(smooth_head((48, 56, 60))).as_tensor()[0]
    return thick + 10 * torch.randn(thick.shape, generator=torch.Generator().manual_seed(0))


def stack_of(array, axis=2):
    return Slices(array, Acquisition.stack(axis, array.shape[axis], spacing=5.0, thickness=5.0, target=1.0))


def missing(array, axis=2):
    return stack_of(array, axis).missing


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("where", [(5,), (6, 7)])
def test_an_odd_slice_is_found_and_no_other(slices, fault, where):
    if fault == "of another place" and where == (6, 7):
        pytest.skip("two slices that agree with each other may be right")
    odd = slices.clone()
    for k in where:
        odd[..., k] = FAULTS[fault](slices, k)
    assert tuple(missing(odd)) == where
    assert tuple(missing(odd.movedim(2, 0), 0)) == where


@pytest.mark.parametrize(("true", "copy"), [(5, 6), (6, 5)])
def test_a_slice_that_repeats_its_neighbour_is_missing_and_the_true_one_is_kept(slices, true, copy):  # slice-repeated
    """In real stacks up to 3 % of the neighbours in tissue are equal."""
    odd = slices.clone()
    odd[..., copy] = slices[..., true]
    for volume, axis, index in ((odd, 2, copy), (odd.flip(2), 2, 11 - copy), (odd.movedim(2, 0), 0, copy)):
        assert list(missing(volume, axis)) == [index]
    assert missing(odd)[copy] == f"a copy of slice {true + 1}"
    some = odd.clone()
    some[:24, :, copy] += 1
    assert missing(some) == {}, "half of it is no copy"
    coarse = (slices / 100).round()
    assert missing(coarse) == {}, "in few grey values many neighbours are equal"


@pytest.mark.parametrize(
    ("faulty", "fault", "left_out"),
    [
        (range(3, 11, 2), "blank", True),  # a third
        (range(1, 12, 2), "copies", True),
        ((3, 5, 8), "noise", True),  # a quarter
        ((4, 5, 7, 8), "bright", False),
        ((4, 5, 7, 8), "dim", False),
    ],
)
def test_beyond_a_quarter_blank_slices_and_copies_are_missing_and_others_are_said(slices, faulty, fault, left_out):
    odd = slices.clone()
    for k in faulty:
        odd[..., k] = slices[..., k - 1] if fault == "copies" else FAULTS[fault](slices, k)
    stack = stack_of(odd)
    if fault == "copies":  # all the second of two, or all the first; the first two show little tissue
        assert [*stack.missing] in ([*range(3, 12, 2)], [*range(2, 11, 2)])
    else:
        assert [*stack.missing] == [*faulty] * left_out
    assert sum("None of these is left out" in line for line in stack.warnings) == (not left_out)
    kinds = {"copies": "a copy of slice", "noise": "unlike its neighbours"}
    said = (
        f"{len(stack.missing)} of 12 slices are taken for missing ones, slice {1 + min(stack.missing, default=0)} first"
    )
    several = f"{said}, which is {kinds.get(fault, fault)}"
    assert sum(line.startswith(several) for line in stack.warnings) == left_out


def test_missing_slices_are_said_by_their_kind_each_with_the_first_of_them(slices):
    odd = slices.clone()
    odd[..., 5], odd[..., 8] = 0, odd[..., 7]
    first, second = (line for line in stack_of(odd).warnings if "missing" in line)
    assert first.startswith("slice 6 of 12 is blank: it is taken for a missing slice, and")
    assert second.startswith("slice 9 of 12 is a copy of slice 8: it is taken for a missing slice, and")
    odd[..., 3] = 0
    several, second_again = (line for line in stack_of(odd).warnings if "missing" in line)
    assert several.startswith("2 of 12 slices are taken for missing ones, slice 4 first, which is blank.")
    assert second_again == second


@pytest.mark.parametrize("step", [-1, 1])
def test_of_many_copies_those_are_missing_whose_places_are_others(step):
    """More than a quarter repeat the slice before, or the one behind."""
    true = scan_of(smooth_head((48, 56, 100))).as_tensor()[0]
    odd, faulty = true.clone(), [4, 6, 8, 11, 13, 15]  # of 20
    for k in faulty:
        odd[..., k] = true[..., k + step]
    assert [*stack_of(odd).missing] == faulty


@pytest.mark.parametrize(("length", "found"), [(3, True), (4, False)])
def test_up_to_three_slices_in_a_row_are_missing_and_more_are_another_matter(length, found):
    many = scan_of(smooth_head((48, 56, 100))).as_tensor()[0].clone()  # 20 slices: four are less than a quarter
    run = tuple(range(8, 8 + length))
    many[..., run] = 0
    assert tuple(missing(many)) == (run if found else ())


@pytest.mark.parametrize(("share", "found"), [(0.7, False), (0.8, True)])
@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_blank_slice_at_the_end_counts_beside_three_quarters_of_the_largest_slices_tissue(share, found, at_the_end):
    volume = 500 + 50 * torch.rand(50, 40, 8, generator=torch.Generator().manual_seed(0))
    volume[..., 0] = 0
    volume[round(50 * share) :, :, 1] = 0
    volume = volume.flip(2) if at_the_end else volume
    assert missing(volume) == ({7 if at_the_end else 0: "blank"} if found else {})


def test_a_blank_slice_at_the_end_is_found_where_the_head_is_cut_there(slices):
    cut = slices[..., 5:].clone()
    cut[..., 0] = 0
    assert missing(cut) == {0: "blank"}
    cut[0, 0, 0] = 1
    assert missing(cut) == {}, "noise is no blank"
    assert missing(slices) == {}, "the head ends within the stack"


@pytest.mark.parametrize(
    ("alike", "run", "found"), [(0.55, 1, True), (0.6, 2, False), (0.8, 2, True), (0.45, 1, False)]
)
def test_a_run_of_slices_is_odd_between_neighbours_that_are_more_alike_than_those_of_one(alike, run, found):
    """A midline between two halves of a brain that are half alike is none."""
    random = np.random.default_rng(0).normal(size=(16, 64, 64))
    fields = np.sqrt(alike) * random[0] + np.sqrt(1 - alike) * random[1:13]
    fields[5 : 5 + run] = random[13 : 13 + run]
    volume = torch.from_numpy(500 + 40 * fields).float().movedim(0, 2)
    assert tuple(missing(volume)) == tuple(range(5, 5 + run)) * found


@pytest.mark.parametrize("gain", [0.6, 1.6])
def test_interleaved_slices_that_differ_in_gain_are_no_faults(slices, gain):
    slices = slices.clone()
    slices[..., ::2] *= gain
    assert missing(slices) == {}


@pytest.mark.parametrize(("gain", "found"), [(0.27, True), (0.38, False), (1.9, False), (2.15, True)])
def test_a_slice_is_odd_below_a_third_and_above_twice_its_neighbours_intensity(slices, gain, found):
    slices = slices.clone()
    slices[..., 5] *= gain
    assert tuple(missing(slices)) == (5,) * found


def test_missing_slices_are_filled_in_a_straight_line_between_those_that_are_there():
    volume = torch.arange(6.0).expand(2, 3, 6).clone()
    gone = {0: "", 2: "", 3: "", 5: ""}
    odd = volume.index_fill(2, torch.tensor(list(gone)), -9)
    torch.testing.assert_close(filled(odd, 2, gone)[0, 0], torch.tensor([1.0, 1, 2, 3, 4, 4]))
    assert filled(volume, 2, {}) is volume


def test_a_missing_slice_leaves_its_neighbours_alone_and_stays_in_its_place(identity):
    scan = scan_of(smooth_head((48, 56, 60)))
    odd = scan.clone()
    odd[0, ..., 5] = FAULTS["noise"](scan.as_tensor()[0], 5)
    odd.meta = scan.meta
    acquisition = Acquisition.of(scan)
    place = interpolate(torch.zeros(1, 1, 12).index_fill(2, torch.tensor([5]), 1), acquisition, "nearest")[0, 0] > 0.5
    rebuilder = Rebuilder(identity, DriftInferer(512, steps=0, deblocked=True), "cpu")
    clean, result = (rebuilder(Slices.of(one)).volume.as_tensor() for one in (scan, odd))
    torch.testing.assert_close(result[..., place], interpolate(odd[0].as_tensor(), acquisition, "nearest")[..., place])
    change = (result - clean)[..., ~place].abs()
    assert change.square().mean().sqrt() < 0.01 * clean.max() and change.max() < 0.15 * clean.max()
    far = np.abs(np.arange(60) - 27.5) > 12
    assert change.square().mean((0, 1)).sqrt()[far[~place.numpy()]].max() < 0.003 * clean.max()
