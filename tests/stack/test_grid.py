"""Laws and a worked example of slice geometry."""

from itertools import permutations, product

import nibabel as nib
import numpy as np
import pytest
import torch

from scripts.stack import grid
from scripts.stack.acquisition import Acquisition

# (thick slices, slice spacing in mm, target spacing in mm), integer and non-integer ratios
STACKS = [(6, 4.0, 1.0), (12, 3.3, 0.9), (1, 5.0, 1.0), (9, 2.5, 1.0)]
COARSER = [(9, 1.0, 1.3)]


def rotation(x, y, z):
    """Rotation by three angles in degrees about x, then y, then z."""
    (cx, sx), (cy, sy), (cz, sz) = ((np.cos(a), np.sin(a)) for a in np.radians([x, y, z]))
    about_x = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    about_y = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    about_z = np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    return about_z @ about_y @ about_x


def affine_of(spacing, angles=(0, 0, 0), origin=(0, 0, 0), signs=(1, 1, 1)):
    affine = np.eye(4)
    affine[:3, :3] = rotation(*angles) @ np.diag(np.multiply(spacing, signs))
    affine[:3, 3] = origin
    return affine


def oblique(axis, slice_spacing):
    """A tilted, mirrored stack far from the scanner's centre."""
    spacing = np.array([0.9, 1.1, 0.8])
    spacing[axis] = slice_spacing
    return affine_of(spacing, angles=(25, -40, 70), origin=(-91.3, 120.7, 33.1), signs=(-1, 1, 1))


def world(affine, axis, position):
    """World coordinates of index `position` along `axis`, at index (11, 13, 17) along the others."""
    index = np.array([11.0, 13.0, 17.0, 1.0])
    index[axis] = position
    return (affine @ index)[:3]


def nearest_by_loop(fine_count, target_spacing, thick_count, slice_spacing, shift=0.0):
    """The thick slice with the nearest centre, the one nearer the middle of the stack on ties, slice by slice."""
    index = []
    for j in range(fine_count):
        place = (j - (fine_count - 1) / 2) * target_spacing - shift  # mm from the middle of the thick stack
        centres = [(i - (thick_count - 1) / 2) * slice_spacing for i in range(thick_count)]
        index.append(
            min(range(thick_count), key=lambda i: (round(abs(place - centres[i]), 4), round(abs(centres[i]), 4), -i))
        )
    return np.array(index)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("stack", STACKS + COARSER)
def test_slice_centres_keep_their_world_position(stack, axis):
    thick, slice_spacing, target = stack
    fine = grid.fine_count(thick, slice_spacing, target)
    affine = oblique(axis, slice_spacing)
    fine_affine = grid.respaced_affine(affine, axis, thick, fine, target)
    for i, position in enumerate(grid.centred_positions(thick, slice_spacing, fine, target)):
        assert np.linalg.norm(world(affine, axis, i) - world(fine_affine, axis, position)) < 1e-4


def test_a_worked_affine():
    affine = np.array([[1.0, 0, 0, -10], [0, 2.0, 0, -20], [0, 0, 4.0, -30], [0, 0, 0, 1]])
    # five slices of 4 mm from z = -32 to -12 mm: twenty of 1 mm, the first one centred on -31.5 mm
    expected = np.array([[1.0, 0, 0, -10], [0, 2.0, 0, -20], [0, 0, 1.0, -31.5], [0, 0, 0, 1]])
    assert grid.fine_count(5, 4.0, 1.0) == 20
    np.testing.assert_allclose(grid.respaced_affine(affine, 2, 5, 20, 1.0), expected, atol=1e-12)


@pytest.mark.parametrize("shift", [0.0, -0.77])
@pytest.mark.parametrize("stack", STACKS + COARSER)
def test_nearest_slices_agree_with_a_plain_loop(stack, shift):
    thick, slice_spacing, target = stack
    fine = grid.fine_count(thick, slice_spacing, target)
    expected = nearest_by_loop(fine, target, thick, slice_spacing, shift)
    acquisition = Acquisition.stack(
        2, thick, spacing=slice_spacing, thickness=slice_spacing, target=target, shift=shift
    )
    np.testing.assert_array_equal(acquisition.nearest_slices, expected)


@pytest.mark.parametrize("stack", STACKS + COARSER)
def test_fine_count_covers_the_stack_to_the_nearest_slice(stack):
    assert grid.fine_count(1, 0.2, 1.0) == 1
    thick, slice_spacing, target = stack
    fine = grid.fine_count(thick, slice_spacing, target)
    assert abs(fine * target - thick * slice_spacing) <= target / 2 + 1e-9


@pytest.mark.parametrize(
    ("fine", "fine_spacing", "slice_spacing", "thick"),
    [(24, 1.0, 4.0, 6), (25, 1.0, 4.0, 7), (320, 0.7, 5.6, 40), (30, 0.7, 2.1, 10), (3, 1.0, 6.0, 1)],
)
def test_thick_slices_cover_the_fine_grid(fine, fine_spacing, slice_spacing, thick):
    assert grid.thick_count(fine, fine_spacing, slice_spacing) == thick


def test_a_turn_moves_voxels_as_nibabel_does_and_back():
    """From all 48 orders in which a volume may be stored; a tilt of less than 45 degrees does not change them."""
    volume = torch.rand(3, 4, 5)
    for order, signs in product(permutations(range(3)), product([1, -1], repeat=3)):
        affine = affine_of((0.9, 1.1, 5.0), (14, -20, 17))[:, [*order, 3]] @ np.diag([*signs, 1])
        turn, expected = grid.Turn.of(affine), nib.as_closest_canonical(nib.Nifti1Image(volume.numpy(), affine))
        np.testing.assert_array_equal(turn.into(volume), expected.get_fdata(dtype=np.float32))
        assert torch.equal(turn.back(turn.into(volume)), volume)


@pytest.mark.parametrize(
    ("spacing", "axis"),
    [((5.0, 1, 1), 0), ((1, 5.0, 1), 1), ((1, 1, 5.0), 2), ((1, 1, 1), 2), ((3, 3, 1), 1), ((3, 1, 3), 2)],
)
def test_slice_axis_has_the_largest_spacing_the_last_of_equals(spacing, axis):
    assert grid.slice_axis(spacing) == axis


@pytest.mark.parametrize(("pair", "degrees"), [((0, 1), 0.05), ((0, 2), -5.0), ((2, 1), 5.0)])
def test_shear_angle_is_the_tilt_of_one_axis_towards_another(degrees, pair):
    fixed, tilted = pair
    columns = np.eye(3)
    columns[fixed, tilted] = np.sin(np.radians(degrees))
    columns[tilted, tilted] = np.cos(np.radians(degrees))
    affine = np.eye(4)
    affine[:3, :3] = rotation(25, -40, 70) @ columns @ np.diag([0.7, 0.9, 5.0])
    assert grid.shear_angle(affine) == pytest.approx(abs(degrees), abs=1e-6)
