"""Laws of placing a volume elsewhere, of the motion between two volumes, and of whether they show one head."""

import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from nibabel.orientations import apply_orientation, inv_ornt_aff

from scripts.rebuild.registration import ALIKE, angle_and_shift, likeness, placed, register
from scripts.stack.tissue import head_mask
from tests.stacks import AFFINE, CENTRE, SHAPE, motion, moved, person, restless, stack_of

MOVES = {
    "small": motion((3, -2, 2.5), (2, -3, 1.5)),
    "large": motion((-9, 6, 10), (9, 8, -8)),
}


def found_motion(fixed, moving, start=None):
    """As `together.matched` finds it, but for gains: from afar, and then nearby."""
    head = head_mask(fixed.as_tensor().clamp(min=0))
    return register(fixed, moving, head, register(fixed, moving, head, start))


def on_grid(volume, affine=AFFINE):
    return MetaTensor(volume, affine=torch.from_numpy(affine))


def test_a_volume_on_its_own_grid_is_itself():
    volume = on_grid(person())
    values, seen = placed(volume, volume, np.eye(4))
    assert torch.equal(values, volume.as_tensor()) and (seen == 1).all()


def test_a_shift_by_whole_voxels_moves_voxels_and_shows_what_was_not_seen():
    volume = on_grid(person())
    values, seen = placed(volume, volume, motion((0, 0, 0), (6, 0, 0)))
    torch.testing.assert_close(values[:-3], volume.as_tensor()[3:], rtol=0, atol=1e-2)
    assert (seen[:-3] == 1).all() and (seen[-3:] == 0).all()


def test_the_order_in_which_a_file_stores_its_axes_does_not_matter():
    volume, there = person(), motion((4, 5, 6), (1, 2, 3))
    order = np.array([[2, -1], [0, 1], [1, -1]])
    other = on_grid(
        torch.from_numpy(np.ascontiguousarray(apply_orientation(volume.numpy(), order))),
        AFFINE @ inv_ornt_aff(order, SHAPE),
    )
    for one, two in zip(placed(on_grid(volume), on_grid(volume), there), placed(other, on_grid(volume), there)):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-2)


@pytest.mark.parametrize("name", MOVES)
def test_the_motion_of_a_head_is_found(name):
    """Between thick stacks along two axes, of which one is three times as bright."""
    fixed = stack_of(person(), 0).rebuilt
    moving = stack_of(3 * moved(person(), MOVES[name]), 1).rebuilt
    found = found_motion(fixed, moving)
    degrees, mm = angle_and_shift(np.linalg.inv(MOVES[name]) @ found, CENTRE)
    assert degrees < 0.3 and mm < 0.3, "of slices of 6 mm"
    assert likeness(fixed, moving, found, 6.0) > ALIKE + 0.05


def test_two_people_are_not_alike_wherever_they_are_put():
    fixed = stack_of(person(0), 0).rebuilt
    for seed in (1, 2):
        other = stack_of(person(seed), 1).rebuilt
        assert likeness(fixed, other, found_motion(fixed, other), 6.0) < ALIKE - 0.2


def test_a_head_that_moves_between_its_slices_is_alike_and_another_is_not():
    """By a millimetre from slice to slice, as real ones do: fine detail differs, and gyri lie where they lay."""
    fixed = stack_of(person(), 0, thickness=4.0).rebuilt
    moving = restless(stack_of(person(), 1, thickness=4.0), 1.0).rebuilt
    assert likeness(fixed, moving, found_motion(fixed, moving), 4.0) > ALIKE + 0.05
    other = stack_of(person(1), 1, thickness=4.0).rebuilt
    assert likeness(fixed, other, found_motion(fixed, other), 4.0) < ALIKE - 0.3


def test_volumes_without_an_overlap_are_not_alike():
    volume = on_grid(person())
    far = AFFINE.copy()
    far[:3, 3] += 500
    assert likeness(volume, on_grid(person(), far), found_motion(volume, on_grid(person(), far)), 6.0) == 0


def test_the_same_volumes_give_the_same_motion():
    pair = stack_of(person(), 0).rebuilt, stack_of(moved(person(), MOVES["small"]), 2).rebuilt
    assert np.array_equal(found_motion(*pair, MOVES["small"]), found_motion(*pair, MOVES["small"]))
