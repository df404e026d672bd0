"""Laws of making one volume of several stacks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.evaluate.metrics import psnr
from scripts.rebuild.registration import angle_and_shift
from scripts.rebuild.together import FLOOR, Stack, gain_field, together, unmeasured
from scripts.stack.acquisition import Acquisition
from scripts.stack.tissue import head_mask
from tests.stacks import AFFINE, CENTRE, SHAPE, motion, moved, person, stack_of

MOVE = motion((3, -2, 2.5), (2, -3, 1.5))


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
    result, parts = together(stacks)
    alone = in_head(stacks[0].rebuilt, truth)
    assert in_head(result, truth) > alone + 2.5
    assert torch.equal(result.affine, stacks[0].rebuilt.affine) and result.shape == stacks[0].rebuilt.shape
    assert sum(part.share for part in parts) == pytest.approx(1) and all(part.share > 0.3 for part in parts)
    degrees, mm = angle_and_shift(np.linalg.inv(MOVE) @ parts[1].motion, CENTRE)
    assert degrees < 0.2 and mm < 0.2
    back = [part.placed for part in parts]
    assert back[1].shape == stacks[1].rebuilt.shape
    assert in_head(back[1], stacks[1].rebuilt.as_tensor()) > 20, "in the place and the units of the second"


def test_a_third_stack_gains_again():
    truth = person()
    stacks = [stack_of(truth, 0), stack_of(moved(truth, MOVE), 1), stack_of(moved(truth, np.linalg.inv(MOVE)), 2)]
    two, three = (in_head(together(stacks[:count])[0], truth) for count in (2, 3))
    assert three > two + 0.5


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
    stacks = [stack_of(person(0), 0), stack_of(person(1), 1)]
    result, parts = together(stacks)
    assert result is stacks[0].rebuilt and [part.share for part in parts] == [1, 0]
    three = [*stacks, stack_of(moved(person(0), MOVE), 2)]
    two, _ = together(three[::2])
    result, parts = together(three)
    assert torch.equal(result.as_tensor(), two.as_tensor()) and parts[1].share == 0


def test_a_slice_that_moved_is_named():
    truth = person()
    still, restless = stack_of(truth, 0), stack_of(truth, 2)
    restless.measured[:, :, 5] = restless.measured[:, :, 5].roll(3, 0)
    _, parts = together([still, restless])
    assert parts[1].moved_slices == (5,) and parts[0].moved_slices == ()


def test_a_gain_is_found_and_stays_in_its_range_beyond_the_head():
    truth = MetaTensor(person(), affine=torch.from_numpy(AFFINE))
    head = head_mask(truth.as_tensor())
    field = gain_field(truth, head, truth.as_tensor() / (3 * shading()), torch.ones(SHAPE), 6.0)
    assert (field / (3 * shading()) - 1)[head].abs().max() < 0.05
    assert 2.3 < field.min() and field.max() < 3.7


@pytest.mark.parametrize("spacing", [4.0, 5.0, 6.0])
def test_a_stack_tells_what_is_below_half_of_its_slices_frequency(spacing):
    acquisition = Acquisition.of_truth(2, 60, 1.0, 5.0, spacing)
    left = unmeasured(torch.tensor([0.0, 0.5 / spacing, -0.5 / spacing, 1 / spacing, 0.45]), acquisition)
    assert FLOOR <= left[0] < 0.1
    assert left[1] == left[2] == pytest.approx(0.5, abs=0.05), "a frequency and its alias are told alike"
    assert (left[3:] > 0.9).all()


def test_no_stack_is_changed():
    stacks = [stack_of(person(), 0), stack_of(moved(person(), MOVE), 1)]
    before = [(stack.measured.clone(), stack.rebuilt.clone()) for stack in stacks]
    together(stacks)
    for stack, kept in zip(stacks, before):
        assert torch.equal(stack.measured, kept[0]) and torch.equal(stack.rebuilt, kept[1])


def test_slices_at_the_target_take_part():
    """A thin stack, of which nothing is to be rebuilt, lends its detail."""
    truth = person()
    thin = stack_of(truth, 0, thickness=2.0)
    thin = Stack(thin.measured, MetaTensor(truth, affine=thin.rebuilt.affine))
    acquisition = replace(Acquisition.of(thin.measured), target_spacing=2.0)
    acquisition.attach(thin.measured)
    thick = stack_of(truth, 1)
    assert in_head(together([thick, thin])[0], truth) > in_head(thick.rebuilt, truth) + 3
