"""Laws of placing a volume elsewhere, of the motion between two volumes, and of whether they show one head."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from scipy import ndimage

from scripts.rebuild.registration import (
    ALIKE,
    _on_cubes,
    angle_and_shift,
    likeness,
    placed,
    register,
    registered,
    resolution,
)
from scripts.rebuild.stacks import Stack
from scripts.stack.grid import centre, voxel_spacing
from scripts.stack.tissue import head_mask
from tests.stacks import AFFINE, CENTRE, EDGE, SHAPE, motion, moved, person, restless, stack_of

STILL = np.eye(4)
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


@pytest.mark.parametrize("way", [1, -1])
def test_half_a_voxel_at_the_border_is_half_seen(way):
    volume = on_grid(person())
    _, seen = placed(volume, volume, motion((0, 0, 0), (way, 0, 0)))
    seen = seen if way > 0 else seen.flip(0)
    torch.testing.assert_close(seen[-1], torch.full_like(seen[-1], 0.5))
    assert (seen[:-1] == 1).all()


@pytest.mark.parametrize("name", MOVES)
def test_the_motion_of_a_head_is_found(name):
    """Between thick stacks along two axes, of which one is three times as bright."""
    fixed = stack_of(person(), 0).rebuilt
    moving = stack_of(3 * moved(person(), MOVES[name]), 1).rebuilt
    found = found_motion(fixed, moving)
    degrees, mm = angle_and_shift(np.linalg.inv(MOVES[name]) @ found, CENTRE)
    assert degrees < 0.3 and mm < 0.3, "of slices of 6 mm"
    assert likeness(fixed, moving, found, np.array([6.0, 6.0, 0.0])) > ALIKE + 0.1


def alike(one, other):
    """The likeness of two stacks, registered."""
    fixed, moving = one.rebuilt, other.rebuilt
    apart = resolution(fixed, [one.measured, other.measured])
    return likeness(fixed, moving, found_motion(fixed, moving), apart)


def test_a_head_that_moves_between_its_slices_is_alike_and_another_is_not():
    """By a millimetre from slice to slice, as real ones do: fine detail differs, and gyri lie where they lay."""
    fixed = stack_of(person(), 0, thickness=4.0)
    assert alike(fixed, restless(stack_of(person(), 1, thickness=4.0), 1.0)) > ALIKE + 0.1
    assert alike(fixed, restless(stack_of(person(1), 1, thickness=4.0), 1.0)) < ALIKE - 0.05


def other_contrast(volume):
    """Tissue of a middling intensity is bright, brighter and darker tissue is dark: no monotone curve."""
    return 700 * torch.exp(-(((volume - 560) / 120) ** 2)) * (volume > 100)


@pytest.mark.parametrize(("seed", "thick"), [(0, False), (0, True), (1, True)])
def test_another_contrast_is_registered_and_alike_and_of_another_head_it_is_not(seed, thick):
    fixed = stack_of(person(), 0)
    volume = moved(other_contrast(person(seed)), MOVES["large"])
    other = stack_of(volume, 1) if thick else Stack(fixed.measured, on_grid(volume))
    apart = resolution(fixed.rebuilt, [fixed.measured, other.measured])
    found, one_head = registered(fixed.rebuilt, other.rebuilt, fixed.head, apart)
    if seed == 0:
        degrees, mm = angle_and_shift(np.linalg.inv(MOVES["large"]) @ found, CENTRE)
        assert degrees < (0.6 if thick else 0.33) and mm < 0.33, "of voxels of 2 mm and slices of 6 mm"
        assert one_head > ALIKE + 0.02
    else:
        assert one_head < ALIKE - 0.05


def likeness_of(one, other, motion=STILL):
    """Of sharp volumes."""
    return likeness(one, other, motion, np.zeros(3))


@pytest.fixture(scope="module")
def pair():
    """A head in two contrasts."""
    return on_grid(person()), on_grid(other_contrast(person()))


def test_gain_shading_mirrors_and_what_is_beyond_the_head_do_not_change_likeness(pair):
    """What the other foretells aside is looked at on both sides."""
    one, other = pair
    alone = likeness_of(one, other)
    shaded = on_grid(5 * other.as_tensor() * torch.linspace(0.8, 1.2, SHAPE[2]))
    assert likeness_of(one, shaded) == pytest.approx(alone, abs=0.03)
    cut = other.as_tensor().clone()
    cut[:, 35:, :15] = 0
    assert likeness_of(one, on_grid(cut)) == pytest.approx(alone, abs=0.03), "without a face"
    for axis in (0, 2):
        mirrored = (on_grid(volume.as_tensor().flip(axis)) for volume in pair)
        assert likeness_of(*mirrored) == pytest.approx(alone, abs=1e-3)


def test_another_part_of_the_head_is_not_alike_and_a_third_of_it_is(pair):
    one, other = pair
    assert likeness_of(one, other, motion((0, 0, 0), (0, 14, 0))) < ALIKE - 0.05
    third = AFFINE.copy()
    third[:3, 3] += [0, 0, 24]
    assert likeness_of(one, on_grid(other.as_tensor()[:, :, 12:26], third)) > ALIKE + 0.02


def test_heads_that_share_less_than_a_tenth_have_no_likeness():
    one = on_grid(person())
    for half, some in ((6, False), (10, True)):  # voxels of the edge of a cube in the middle
        affine, middle = AFFINE.copy(), np.array(SHAPE) // 2
        affine[:3, 3] += EDGE * (middle - half)
        part = on_grid(person()[tuple(slice(n - half, n + half) for n in middle)], affine)
        assert (likeness_of(one, part) > 0) == some
    far = AFFINE.copy()
    far[:3, 3] += 500
    assert likeness_of(one, on_grid(person(), far), found_motion(one, on_grid(person(), far))) == 0


def test_slices_count_along_the_axis_that_they_are_nearest_to():
    stacks = [stack_of(person(), 0), stack_of(person(), 1, thickness=4.0)]
    grid = on_grid(person())
    assert resolution(grid, [stack.measured for stack in stacks]).tolist() == [6, 4, 0]
    coarser = stack_of(person(), 1, 8.0).measured
    assert resolution(grid, [coarser, stacks[1].measured]).tolist() == [0, 8, 0]
    gaps = stack_of(person(), 0).measured
    gaps = replace(gaps, acquisition=replace(gaps.acquisition, slice_thickness=4.0))
    assert resolution(grid, [gaps]).tolist() == [6, 0, 0], "slices 4 mm thick, 6 mm apart"
    turned = MetaTensor(person(), affine=torch.from_numpy(motion((0, 0, 80), (0, 0, 0)) @ AFFINE))
    assert resolution(turned, [stacks[1].measured]).tolist() == [4, 0, 0]
    cyclic = AFFINE @ np.eye(4)[[1, 2, 0, 3]]
    assert resolution(on_grid(person(), cyclic), [stacks[0].measured]).tolist() == [0, 6, 0]


def test_the_same_volumes_give_the_same_motion():
    pair = stack_of(person(), 0).rebuilt, stack_of(moved(person(), MOVES["small"]), 2).rebuilt
    assert np.array_equal(found_motion(*pair, MOVES["small"]), found_motion(*pair, MOVES["small"]))


def test_coarse_cubes_show_no_wave_that_they_cannot_hold():
    """A wave of one and a half cubes would come back as another one; one of ten cubes stays."""
    places = torch.arange(96.0)
    for wavelength, least, most in ((6.0, 0.0, 0.15), (40.0, 0.9, 1.0)):
        wave = (2 * torch.pi * places / wavelength).sin()[:, None, None].expand(96, 12, 12)
        coarse = _on_cubes(MetaTensor(wave, affine=torch.eye(4, dtype=torch.float64)), 4.0)
        assert least <= float(coarse.as_tensor()[4:-4].abs().max()) <= most


def test_cubes_lie_where_the_volume_lies():
    """A volume that is its own place along an axis is that on its cubes, in a world that is turned."""
    affine = motion((10, -20, 30), (5, 6, 7)) @ np.diag([0.8, 1.7, 2.4, 1.0])
    shape = (50, 30, 21)
    index = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    world = index @ affine[:3, :3].T + affine[:3, 3]
    for axis in range(3):
        cubes = _on_cubes(on_grid(torch.from_numpy(world[..., axis].copy()).float(), affine), 2.0)
        assert cubes.shape == (20, 26, 25)  # of 40, 51 and 50.4 mm
        np.testing.assert_allclose(voxel_spacing(cubes.affine), 2)
        index = np.stack(np.meshgrid(*map(np.arange, cubes.shape), indexing="ij"), -1)
        there = index @ np.asarray(cubes.affine)[:3, :3].T + np.asarray(cubes.affine)[:3, 3]
        np.testing.assert_allclose(centre(cubes.affine, cubes.shape), centre(affine, shape), atol=1e-5)
        inner = (slice(4, -4),) * 3
        np.testing.assert_allclose(cubes.numpy()[inner], there[inner][..., axis], atol=0.02)


def test_a_precise_registration_looks_no_farther_than_the_head():
    """Two voxels beyond it the mask ends."""
    head, move = person(), MOVES["small"]
    inside = head > 200
    far = ~torch.from_numpy(ndimage.binary_dilation(inside.numpy(), iterations=6))
    assert far.float().mean() > 0.2
    motions = []
    for beyond in (0, 900 * torch.rand(SHAPE, generator=torch.Generator().manual_seed(0))):
        fixed = on_grid(head.where(~far, torch.as_tensor(beyond, dtype=head.dtype)))
        motions.append(register(fixed, on_grid(moved(head, move)), inside, np.linalg.inv(move)))
    np.testing.assert_array_equal(*motions)
