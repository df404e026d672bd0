"""Laws of making one volume of several stacks."""

from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from scipy import ndimage

from scripts.evaluate.metrics import psnr
from scripts.rebuild.consistency import difference, reconcile, relative_rmse, rmse
from scripts.rebuild.disputes import disputes
from scripts.rebuild.gain import ONE_CONTRAST, coarse, gain_field, relation
from scripts.rebuild.registration import ALIKE, angle_and_shift
from scripts.rebuild.stacks import Part, Stack
from scripts.rebuild.together import FLOOR, explained, fitting, reconciled, together, trusted, unmeasured
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from scripts.stack.tissue import head_mask
from scripts.train.simulation import simulate
from tests.config_files import ROOT
from tests.stacks import AFFINE, CENTRE, EDGE, SHAPE, motion, moved, person, restless, stack_of

MOVE = motion((3, -2, 2.5), (2, -3, 1.5))
SHARED = ROOT.parent / "shared" / "data" / "isotropic"


def in_head(volume, truth):
    return psnr(torch.as_tensor(volume), truth, head_mask(truth))


def shading():
    return 1 + 0.2 * torch.linspace(-1, 1, SHAPE[2]).expand(SHAPE)


def test_one_stack_is_its_own_volume_bit_for_bit():
    stack = stack_of(person(), 2)
    result, (part,) = together([stack])
    assert result is stack.rebuilt and part.share == 1


def test_two_stacks_are_better_than_each_and_than_their_mean_and_lie_where_the_first_lies():
    truth = person()
    stacks = [stack_of(truth, 0, noise=8), stack_of(shading() * 2 * moved(truth, MOVE), 1, noise=16)]
    before = [(stack.measured.array.clone(), stack.rebuilt.clone()) for stack in stacks]
    result, parts = together(stacks)
    for stack, kept in zip(stacks, before):
        assert torch.equal(stack.measured.array, kept[0]) and torch.equal(stack.rebuilt, kept[1])
    assert not any(part.disputes for part in parts)
    alone = in_head(stacks[0].rebuilt, truth)
    assert in_head(result, truth) > alone + 2.5
    assert torch.equal(result.affine, stacks[0].rebuilt.affine) and result.shape == stacks[0].rebuilt.shape
    assert sum(part.share for part in parts) == pytest.approx(1) and all(part.share > 0.3 for part in parts)
    degrees, mm = angle_and_shift(np.linalg.inv(MOVE) @ parts[1].motion, CENTRE)
    assert degrees < 0.2 and mm < 0.2
    back = [part.placed for part in parts]
    assert back[1].shape == stacks[1].rebuilt.shape
    assert in_head(back[1], stacks[1].rebuilt.as_tensor()) > 20, "in the place and the units of the second"


@pytest.mark.slow
def test_nothing_depends_on_where_the_floors_of_the_stacks_lie():
    stacks = [stack_of(person(), 0), stack_of(shading() * 2 * person(), 1)]
    raised = [
        Stack(replace(one.measured, array=one.measured.array + floor), one.rebuilt + floor)
        for one, floor in zip(stacks, (-300, 500))
    ]
    (result, parts), (again, others) = together(stacks), together(raised)
    torch.testing.assert_close(again.as_tensor() + 300, result.as_tensor(), atol=1, rtol=0)
    torch.testing.assert_close(others[1].placed.as_tensor() - 500, parts[1].placed.as_tensor(), atol=2, rtol=0)
    assert again.min() == -300, "and undershoot is what is below the first one's"


@pytest.mark.slow
def test_a_blank_slice_costs_its_own_place_alone_which_the_other_stack_fills():
    truth, faulty = person(), 1
    stacks = [stack_of(truth, 0), stack_of(moved(truth, MOVE), 1)]
    alone, both = in_head(stacks[0].rebuilt, truth), in_head(together(stacks)[0], truth)
    measured, rebuilt, a = stacks[faulty].measured, stacks[faulty].rebuilt.clone(), stacks[faulty].measured.acquisition
    gone = torch.zeros_like(measured.array)
    gone.select(a.slice_axis, a.slice_count // 2).fill_(1)
    measured = replace(measured, array=measured.array.where(gone == 0, 0))
    rebuilt[interpolate(gone, a, "nearest") > 0.5] = 0
    stacks[faulty] = Stack.of(measured, rebuilt)
    assert list(stacks[faulty].missing) == [a.slice_count // 2]
    result, parts = together(stacks)
    assert alone + 2 < both - 3.5 < in_head(result, truth) < both and all(part.share > 0.3 for part in parts)
    assert parts[faulty].moved_slices == ()


def test_parallel_stacks_with_an_offset_are_better_than_each():
    truth = person()
    stacks = [stack_of(truth, 2), stack_of(truth, 2, shift=3.0)]
    result, _ = together(stacks)
    assert in_head(result, truth) > max(in_head(stack.rebuilt, truth) for stack in stacks) + 0.5


def test_what_the_first_stack_alone_sees_is_its_own():
    truth = person()
    affine = AFFINE.copy()
    affine[:3, 3] += AFFINE[:3, :3] @ [14, 0, 0]
    stacks = [stack_of(truth, 1), stack_of(truth[14:], 2, affine=affine)]
    result, (_, part) = together(stacks)
    assert (part.seen[:13] == 0).all() and (part.seen[20:-5, 5:-5, 5:-5] == 1).all()
    torch.testing.assert_close(result[:13], stacks[0].rebuilt[:13], rtol=0, atol=1e-3)
    assert in_head(result[20:], truth[20:]) > in_head(stacks[0].rebuilt[20:], truth[20:]) + 2


def test_the_stack_of_another_head_takes_no_part():
    stacks = [stack_of(person(0), 0), stack_of(person(1), 1), stack_of(moved(person(0), MOVE), 2)]
    two, _ = together(stacks[::2])
    result, parts = together(stacks)
    assert torch.equal(result.as_tensor(), two.as_tensor()) and parts[1].share == 0


def enhanced(volume):
    """After a contrast agent: some tissue of every intensity is brighter."""
    spots = ndimage.gaussian_filter(np.random.default_rng(7).normal(size=SHAPE), 3.0)
    return volume * (1 + 0.8 * torch.from_numpy(spots > 0.7 * spots.std()).float())


@pytest.mark.parametrize(
    ("contrast", "one"),
    [
        (lambda volume: volume.sqrt() * 20, True),
        (enhanced, False),
        (lambda volume: (1000 - volume) * (volume > 150), False),
    ],
)
def test_one_rising_curve_is_one_contrast_and_anything_else_takes_no_part(contrast, one):
    truth = person()
    stacks = [stack_of(truth, 0, noise=8), stack_of(contrast(truth).float(), 1, noise=8)]
    _, parts = together(stacks)
    assert parts[1].likeness > ALIKE and parts[1].belongs == one and (one or parts[1].share == 0)
    assert parts[1].relation > ONE_CONTRAST + 0.03 if one else parts[1].relation < ONE_CONTRAST - 0.05


def test_what_belongs_is_told_before_any_stack_is_rebuilt_and_stays_so():
    """By splines, from which the precise motion is found."""
    stacks = [stack_of(person(), 2), stack_of(moved(person(), MOVE), 0), stack_of(person(1), 1)]
    stacks.append(stack_of(enhanced(person()).float(), 1))
    fits = fitting([stack.measured for stack in stacks])
    assert [fit.belongs for fit in fits] == [True, True, False, False]
    assert fits[2].likeness < ALIKE < fits[3].likeness and fits[3].relation < ONE_CONTRAST
    inside = [k for k, fit in enumerate(fits) if fit.belongs]
    volume, parts = together([stacks[k] for k in inside], [fits[k] for k in inside])
    whole, whole_parts = together(stacks[:2])
    assert in_head(volume, whole) > 40 and np.allclose(parts[1].motion, whole_parts[1].motion, atol=0.05)
    assert parts[1].likeness == fits[1].likeness
    _, (_, other) = together([stacks[0], stacks[3]], [fits[0], replace(fits[3], relation=1.0)])
    assert not other.belongs and other.share == 0, "contrasts are compared again"


@pytest.mark.parametrize(("share", "one"), [(0.87, False), (0.89, True)])
def test_one_contrast_explains_seven_eighths_of_the_other(share, one):
    """T1w and T1w with contrast agent reach 0.75, heads that move in one contrast 0.95 (docs/benchmarks.md)."""
    field = torch.ones(SHAPE)
    assert Part(np.eye(4), 1.0, share, field, field).belongs == one
    assert not Part(np.eye(4), ALIKE - 0.01, share, field, field).belongs


def test_what_shares_too_little_is_not_taken_for_one_contrast():
    stack, few = stack_of(person(), 0), torch.zeros(SHAPE)
    volume, few[20:24] = stack.rebuilt, 1
    assert relation(volume, stack.head, volume.as_tensor(), torch.ones(SHAPE), 6.0) == pytest.approx(1)
    assert relation(volume, stack.head, volume.as_tensor(), few, 6.0) == 0


def without_air(volume, axis):
    affine = AFFINE.copy()
    affine[:3, 3] += AFFINE[:3, :3] @ [10, 12, 10]
    return stack_of(volume[10:34, 12:40, 10:30], axis, affine=affine)


SPOILT = {
    "a head that moved within the stack": lambda: (
        stack_of(person(), 2, 4.0, noise=20),
        restless(stack_of(person(), 0, 4.0, noise=20), 1.5, 1),
    ),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_stack_that_takes_the_result_away_from_the_slices_of_the_first_is_left_out(name):
    first, other = SPOILT[name]()
    result, (_, part) = together([first, other])
    assert result is first.rebuilt and part.belongs and part.share == 0 and part.spoils > 0.05


def test_of_three_stacks_the_one_that_spoils_the_result_is_left_out():
    _, spoils = SPOILT["a head that moved within the stack"]()
    stacks = [stack_of(person(), 2, 4.0, noise=20), spoils, stack_of(person(), 1, 4.0, noise=20)]
    two, _ = together(stacks[::2])
    result, parts = together(stacks)
    assert torch.equal(result.as_tensor(), two.as_tensor())
    assert [part.share > 0 for part in parts] == [True, False, True] and parts[1].spoils and not parts[2].spoils


def test_what_takes_a_result_off_by_less_than_five_per_cent_spoils_nothing():
    """The first one's own result is exact, and its slices have no noise."""
    truth = person()
    first, blurred = stack_of(truth, 0), torch.from_numpy(ndimage.gaussian_filter(truth.numpy(), 0.7))
    exact = Stack(first.measured, MetaTensor(truth, affine=first.rebuilt.affine))
    assert together([exact, stack_of(blurred, 1)])[1][1].share > 0.3


def test_noise_spoils_nothing():
    stacks = [stack_of(person(), axis, 4.0, noise=60) for axis in (2, 0)]
    assert together(stacks)[1][1].share > 0.3


@pytest.mark.parametrize(
    ("noise", "own", "limit"), [(0.0, 0.0, 0.03), (0.04, 0.0, 0.05), (0.0, 0.03, 0.06), (0.04, 0.02, 0.05)]
)
def test_a_still_head_explains_noise_and_three_per_cent_of_signal_or_twice_what_the_own_result_is_off(
    noise, own, limit
):
    truth, exact = person(), stack_of(person(), 2)
    slices, signal = exact.measured, rmse(exact.measured.above_floor, exact.measured)
    slices = slices.like(slices.array, noise=replace(slices.noise, deviation=noise * signal))
    stack = Stack(slices, MetaTensor(truth * (1 + own), affine=exact.rebuilt.affine))
    assert explained(stack) == pytest.approx(limit, rel=0.01)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data are not here")
@pytest.mark.parametrize("name", ["uih-a_T1w", "pysynthsr_FLAIR"])
def test_axial_and_coronal_slices_of_one_real_volume_are_those_of_a_still_head(name):
    """Registration and resampling leave the result 2.4 % off slices that the stack's own is 0.6 % off."""
    image = nib.load(SHARED / f"{name}.nii.gz")
    middle = tuple(slice((count - 64) // 2, (count + 64) // 2) for count in image.shape)
    truth = MetaTensor(torch.from_numpy(np.asarray(image.dataobj[middle], dtype=np.float32)), affine=torch.eye(4))
    stacks = []
    for axis in (2, 1):
        measured = Slices.of(simulate(truth[None], Acquisition.of_truth(axis, 64, edge=1.0, thickness=5.0))[0])
        spline = interpolate(measured.array, measured.acquisition, "cubic")
        stacks.append(Stack.of(measured, MetaTensor(reconcile(spline, measured).clamp(min=0), affine=truth.affine)))
    _, parts = together(stacks)
    for stack, part in zip(stacks, parts):
        assert part.share > 0.4
        off = relative_rmse(difference(part.placed.as_tensor(), stack.measured), stack.measured)
        assert off < 0.9 * explained(stack)


LESION = CENTRE + [-9, 4, 5]  # mm


def with_lesion(volume, brightness, radius=6.0):
    """A ball, such as a plaque."""
    index = np.stack(np.meshgrid(*map(np.arange, SHAPE), indexing="ij"), -1)
    distance = np.linalg.norm(index @ AFFINE[:3, :3] + AFFINE[:3, 3] - LESION, axis=-1)
    return volume * (1 + brightness * torch.from_numpy(1 / (1 + np.exp(distance - radius)))).float()


@pytest.mark.parametrize("brightness", [pytest.param(0.5, marks=pytest.mark.slow), -0.4])
def test_a_lesion_that_one_of_two_stacks_shows_is_said_with_its_place(brightness):
    truth = person()
    other = shading() * 2 * moved(with_lesion(truth, brightness), MOVE)
    _, (first, second) = together([stack_of(truth, 0, noise=8), stack_of(other, 1, noise=16)])
    assert first.disputes == ()
    (odd,) = second.disputes
    assert np.linalg.norm(np.subtract(odd.place, LESION)) < EDGE and 200 < odd.volume < 1500
    assert np.sign(odd.difference) == np.sign(brightness) and 0.1 < abs(odd.difference) < 0.4


@pytest.mark.slow
def test_of_three_stacks_the_one_that_shows_a_lesion_alone_is_named():
    truth, odd = person(), 2
    stacks = [stack_of(with_lesion(truth, 0.6 * (axis == odd)), axis, noise=8) for axis in range(3)]
    found = [part.disputes for part in together(stacks)[1]]
    assert [len(one) for one in found] == [axis == odd for axis in range(3)] and found[odd][0].difference > 0.1


OTHERWISE = {
    "in a small place": lambda truth: with_lesion(truth, 0.8, 3.6),
    "for it lies half a mm off": lambda truth: moved(truth, motion((0, 0, 0), (0.5, 0.25, 0))),
    "in a large place": lambda truth: with_lesion(truth, 0.8, 5.0),
}


@pytest.mark.parametrize("how", OTHERWISE)
def test_only_a_place_of_100_mm3_that_no_small_shift_explains_is_a_dispute(how):
    truth, seen = person(), torch.ones(SHAPE)
    stacks = [stack_of(truth, 0, noise=4), stack_of(OTHERWISE[how](truth), 1, noise=4)]
    first, second = disputes(stacks, [Part(np.eye(4), 1.0, 1.0, seen, seen)] * 2)
    assert first == () and len(second) == (how == "in a large place")


def disturbed(stack, index):
    """The same stack, in one slice of which the head lay 4 mm off."""
    measured, a = stack.measured.array.clone(), stack.measured.acquisition
    measured.select(a.slice_axis, index).copy_(measured.select(a.slice_axis, index).roll(2, 0))
    spline = interpolate(measured, a, "cubic").clamp(min=0)
    return Stack(replace(stack.measured, array=measured), MetaTensor(spline, affine=stack.rebuilt.affine))


def test_a_slice_that_moved_is_named_and_moves_nothing():
    first, other = stack_of(person(), 0, 4.0), disturbed(stack_of(person(), 2, 4.0), 5)
    _, parts = together([first, other])
    assert parts[1].moved_slices == (5,) and parts[0].moved_slices == () and parts[1].share > 0.3
    whole = [Part(np.eye(4), 1.0, 1.0, torch.ones(SHAPE), torch.ones(SHAPE))] * 2
    volume, moved = reconciled(first.rebuilt.as_tensor(), [first, other], whole, first.rebuilt)
    still = reconciled(first.rebuilt.as_tensor(), [first], whole, first.rebuilt)[0]
    change = (volume - still).square().sum((0, 1))
    assert moved == [(), (5,)] and change[10:12].max() < 0.5 * change[[8, 13]].min(), "it spans voxels 10 and 11"


@pytest.mark.parametrize(("scale", "period", "kept"), [(6, 12, 0.17), (6, 60, 0.93), (2, 10, 0.17), (2, 50, 0.93)])
def test_contrasts_are_compared_by_what_slices_of_five_millimetres_or_more_show(scale, period, kept):
    """A wave of two slices, which they just measure, leaves a sixth; a wave of ten slices stays."""
    edges = np.array([1.0, 2.0, 1.5])
    wave = np.cos(2 * np.pi * np.arange(120) * edges[1] / period)
    volume = torch.from_numpy(np.tile(wave[None, :, None], (8, 1, 8)).astype(np.float32))
    left = coarse(volume, np.ones(volume.shape, bool), scale, edges)[4, 30:90, 4]
    assert np.sqrt(2 * np.mean(left**2)) == pytest.approx(kept, abs=0.02)


@pytest.fixture(scope="module")
def sharp():
    """A head and its mask."""
    truth = MetaTensor(person(), affine=torch.from_numpy(AFFINE))
    return truth, head_mask(truth.as_tensor())


def test_a_gain_is_found_and_stays_in_its_range_beyond_the_head(sharp):
    truth, head = sharp
    field = gain_field(truth, head, truth.as_tensor() / (3 * shading()), torch.ones(SHAPE), 6.0)
    assert (field / (3 * shading()) - 1)[head].abs().max() < 0.05
    assert 2.3 < field.min() and field.max() < 3.7


def test_a_gain_that_a_small_part_shows_has_no_other_values_elsewhere(sharp):
    """A polynomial would run away there."""
    (truth, head), seen, rise = sharp, torch.zeros(SHAPE), torch.linspace(0.8, 1.2, SHAPE[0])
    middle = tuple(slice(n // 3, n - n // 3) for n in SHAPE)
    seen[middle] = 1
    field = gain_field(truth, head, truth.as_tensor() / rise[:, None, None], seen, 4.0)
    least, most = rise[middle[0]].min(), rise[middle[0]].max()
    assert (field[middle].mean() / rise[middle[0]].mean()).item() == pytest.approx(1, abs=0.02)
    assert least - 0.03 < field.min() and field.max() < most + 0.03


def test_a_gain_may_be_of_the_third_degree(sharp):
    (truth, head), (x, y) = sharp, (torch.linspace(-1, 1, n) for n in SHAPE[:2])
    cubic = (1 + 0.3 * x**3)[:, None, None] * (1 + 0.2 * y**2)[:, None].expand(SHAPE)
    found = gain_field(truth, head, truth.as_tensor() / cubic, torch.ones(SHAPE), 6.0)
    assert (found / cubic - 1)[head].abs().mean() < 0.01


def test_a_gain_does_not_heed_what_differs_otherwise_than_by_a_gain(sharp):
    truth, head = sharp
    other, far = truth.as_tensor().clone(), head.clone()
    other[14:20, 20:28, 14:20] *= 3
    far[:26, 14:36, 6:28] = False
    assert (gain_field(truth, head, other, torch.ones(SHAPE), 6.0) - 1)[far].abs().mean() < 0.015


def wave(direction):
    """Of 8 mm, along a direction of the voxels."""
    places = np.tensordot(np.asarray(direction) / np.linalg.norm(direction), np.indices(SHAPE) * EDGE, 1)
    return torch.from_numpy(np.cos(2 * np.pi * places / 8.0)).float()


@pytest.mark.parametrize(("direction", "measured"), [((0, 1, 1), False), ((0, -1, 1), True), ((1, 0, 0), True)])
def test_a_stack_that_lay_turned_is_trusted_in_the_directions_of_its_slices_there(direction, measured):
    """By 45 degrees about the first axis, which the first stack's slices lie along."""
    turned = motion((45, 0, 0), (0, 0, 0))
    stacks = [stack_of(person(), 0, 2.0 + 1e-3), stack_of(person(), 2)]
    seen = torch.ones(SHAPE)
    parts = [Part(one, 1.0, 1.0, seen, seen) for one in (np.eye(4), turned)]
    mean, _ = trusted([torch.zeros(SHAPE), wave(direction)], stacks, parts, stacks[0].rebuilt)
    share = (mean * wave(direction))[8:-8, 8:-8, 8:-8].mean() / 0.5
    assert share == pytest.approx(0.5, abs=0.1) if measured else share < 0.1


@pytest.mark.parametrize(("noise", "moves"), [(1.0, True), (60.0, False)])
def test_measured_slices_move_a_volume_only_by_more_than_their_noise(noise, moves):
    stack, seen = stack_of(person(), 0, noise=noise), torch.ones(SHAPE)
    part, volume = Part(np.eye(4), 1.0, 1.0, seen, seen), stack.rebuilt.as_tensor()
    assert torch.equal(reconciled(volume, [stack, stack], [part, part], stack.rebuilt)[0], volume) != moves


def test_a_volume_that_three_stacks_see_moves_no_farther_onto_one_than_where_two_do():
    stack, seen = stack_of(person(), 0, noise=1.0), torch.ones(SHAPE)
    part, volume = Part(np.eye(4), 1.0, 1.0, seen, seen), 1.05 * stack.rebuilt.as_tensor()
    alone, two, three = (reconciled(volume, [stack], [part] * count, stack.rebuilt)[0] for count in (1, 2, 3))
    assert torch.equal(alone, volume), "where one sees it, it is that stack's"
    assert torch.equal(two, three) and not torch.equal(two, volume)


def test_what_lies_beyond_the_result_keeps_what_the_stack_itself_shows():
    truth, affine = person(), AFFINE.copy()
    affine[:3, 3] += AFFINE[:3, :3] @ [14, 0, 0]
    whole = stack_of(truth, 1)
    _, (_, part) = together([stack_of(truth[14:], 2, affine=affine), whole])
    torch.testing.assert_close(part.placed[:12].as_tensor(), whole.rebuilt[:12].as_tensor(), rtol=0, atol=1e-3)
    assert (part.placed[20:] - whole.rebuilt[20:]).abs().max() > 20


@pytest.mark.parametrize("index", [0, -1])
def test_an_end_slice_is_never_said_to_have_moved(index):
    """What lies beyond it is not known. The stacks end within the head."""
    truth, affine = person()[:, :, 8:32], AFFINE.copy()
    affine[:3, 3] += AFFINE[:3, :3] @ [0, 0, 8]
    still, other = stack_of(truth, 0, 4.0, affine=affine), stack_of(truth, 2, 4.0, affine=affine)
    _, parts = together([still, disturbed(other, index)])
    assert parts[1].share > 0 and parts[1].moved_slices == ()


@pytest.mark.parametrize("spacing", [4.0, 5.0, 6.0])
def test_a_stack_tells_what_is_below_half_of_its_slices_frequency(spacing):
    acquisition = Acquisition.of_truth(2, 60, edge=1.0, thickness=5.0, spacing=spacing)
    left = unmeasured(torch.tensor([0.0, 0.5 / spacing, -0.5 / spacing, 1 / spacing, 0.45]), acquisition)
    assert FLOOR <= left[0] < 0.1
    assert left[1] == left[2] == pytest.approx(0.5, abs=0.05), "a frequency and its alias are told alike"
    assert (left[3:] > 0.9).all()


@pytest.mark.slow
def test_slices_at_the_target_take_part():
    """A thin stack, of which nothing is to be rebuilt, lends its detail."""
    truth = person()
    thin = stack_of(truth, 0, thickness=2.0)
    acquisition = replace(thin.measured.acquisition, target_spacing=2.0)
    thin = Stack(replace(thin.measured, acquisition=acquisition), MetaTensor(truth, affine=thin.rebuilt.affine))
    thick = stack_of(truth, 1)
    assert in_head(together([thick, thin])[0], truth) > in_head(thick.rebuilt, truth) + 3
