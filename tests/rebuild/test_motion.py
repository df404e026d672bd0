"""Laws of motion between packages: the forward model, known motions found and taken back, a still head left alone."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from scipy import ndimage

from scripts.method.calibration import LEVELS, Calibration
from scripts.method.error_pattern import ErrorPatternNetwork
from scripts.method.networks import Drift, VelocityNetwork
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.rebuild import guided_motion, motion, poses
from scripts.rebuild.error_map import ErrorMaps, error_map
from scripts.rebuild.guide import Placed
from scripts.rebuild.rebuilder import Rebuilder
from scripts.rebuild.registration import angle_and_shift
from scripts.rebuild.stack_inferer import StackInferer
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import centre
from scripts.stack.interpolation import interpolate
from scripts.stack.packages import even_and_odd
from scripts.stack.profile import acquire
from scripts.stack.slices import Slices
from tests import stacks
from tests.volumes import head, scan_of

THICK = 4.0  # mm; slices of two voxels
MOTIONS = [((3.0, 0.0, 0.0), (0.0, 0.0, 0.0)), ((0.0, 0.0, 4.0), (0.0, 1.0, 0.0)), ((1.0, -1.0, 0.7), (1.0, -1.0, 1.2))]


def restless(axis, *matrices, noise=0.0):
    """Slices of a head that moves before every further package; those of the still one; and the sharp head."""
    truth = torch.from_numpy(ndimage.gaussian_filter(stacks.person().numpy(), 1.5))  # one package foretells the other
    moved = [stacks.moved(truth, matrix) for matrix in matrices]
    still, *there = (stacks.stack_of(one, axis, THICK, noise=noise).measured for one in (truth, *moved))
    array, acquisition = still.array.clone(), still.acquisition
    for k, one in enumerate(there, start=1):
        places = torch.arange(k, still.shape[axis], 1 + len(there))
        array.index_copy_(axis, places, one.array.index_select(axis, places))
    if len(there) > 1:
        of = "".join(str(n % (1 + len(there))) for n in range(still.shape[axis]))
        acquisition = replace(acquisition, packages=of)
    return (
        replace(still, array=array, acquisition=acquisition),
        still,
        MetaTensor(truth, affine=torch.from_numpy(stacks.AFFINE)),
    )


def in_head(volume, truth):
    """The error of a volume in the head, root mean square."""
    inside = truth.as_tensor() > 100
    return float((volume.as_tensor() - truth.as_tensor())[inside].square().mean().sqrt())


def packages(measured):
    """Those of the acquisition, else even and odd slices."""
    a = measured.acquisition
    return a.packages or even_and_odd(a.slice_count, a.slice_axis, measured.affine)


def away(one, other, volume):
    """How far one motion is from another, in degrees and, in the middle of the head, in mm."""
    return angle_and_shift(one @ np.linalg.inv(other), centre(volume.affine, volume.shape))


@pytest.mark.parametrize("axis", range(3))
def test_a_head_without_motion_is_acquired_as_ever(axis):
    measured, _, truth = restless(axis, np.eye(4))
    a = measured.acquisition
    assert torch.equal(motion.acquired(truth, np.eye(4), a), acquire(truth.as_tensor(), a))


@pytest.mark.parametrize("axis", range(3))
def test_the_odd_slices_are_those_of_the_moved_head(axis):
    matrix = stacks.motion((2.0, -1.0, 1.0), (1.0, 2.0, -1.0))
    measured, still, truth = restless(axis, matrix)
    odd = torch.arange(1, still.shape[axis], 2)
    again = motion.acquired(truth, matrix, measured.acquisition).index_select(axis, odd)
    error, change = (
        (measured.array.index_select(axis, odd) - one).square().mean().sqrt()
        for one in (again, still.array.index_select(axis, odd))
    )
    assert error < 0.1 * change


@pytest.mark.parametrize(("axis", "pose"), list(enumerate(MOTIONS)))
def test_a_known_motion_is_found(axis, pose):
    measured, _, _ = restless(axis, matrix := stacks.motion(*pose), noise=5.0)
    found = motion.found(measured)
    degrees, mm = away(found.matrices[1], matrix, measured)
    assert found.moved
    assert degrees < 0.4 and mm < 0.25


THREE = [stacks.motion((1.0, -1.0, 1.5), (1.0, -1.0, 1.2)), stacks.motion((-2.0, 0.0, 1.0), (0.0, 1.5, -0.5))]


@pytest.mark.parametrize("axis", [0, 2])
def test_known_motions_of_three_packages_are_found_and_taken_back(axis):
    measured, still, truth = restless(axis, *THREE, noise=5.0)
    found = motion.found(measured)
    assert found.moved and found.matrices.shape == (3, 4, 4) and np.array_equal(found.matrices[0], np.eye(4))
    for one, true in zip(found.matrices[1:], THREE):
        degrees, mm = away(one, true, measured)
        assert degrees < 0.6 and mm < 0.35
    assert "between the 3 packages of its slices" in str(found)
    back = motion.taken_back(measured, truth, found).array
    gaps = [(one - still.array).square().mean().sqrt() for one in (back, measured.array)]
    assert gaps[0] < 0.3 * gaps[1]


def test_a_pose_and_its_matrix_undo_each_other_in_an_oblique_stack():
    slices, turned = Slices.of(scan_of(head((40, 40, 35)))), stacks.motion((20.0, -30.0, 10.0), (3.0, 5.0, -2.0))
    frame = poses.Frame.of(replace(slices, affine=torch.from_numpy(turned) @ slices.affine))
    pose = poses.Pose(stacks.motion(*MOTIONS[2])[:3, :3], np.array([1.0, -2.0, 0.5]), np.zeros((6, 6)))
    again, place = frame.pose(frame.matrix(pose)), np.array([10.0, -20.0, 30.0])
    np.testing.assert_allclose(again.turn, pose.turn, atol=1e-9)
    np.testing.assert_allclose(again.shift, pose.shift, atol=1e-9)
    there = frame.matrix(pose) @ [*(frame.middle + frame.axes @ place), 1]
    np.testing.assert_allclose(there[:3], frame.middle + frame.axes @ (pose.turn @ place + pose.shift), atol=1e-9)


def test_the_uncertainty_of_a_package_holds_that_of_the_others_that_foretell_it():
    measured, _, _ = restless(2, np.eye(4), THREE[1], noise=5.0)
    found, frame = motion.found(measured), poses.Frame.of(measured)
    of, head = np.array(list(found.packages), dtype=int), frame.head(measured)
    back, there = (frame.smoothed(one.array, motion.SMOOTHING) for one in (motion.steadied(measured, found), measured))
    still = poses.Package.cut(back, head, frame, np.flatnonzero(of != 2))
    moved = poses.Package.cut(there, head, frame, np.flatnonzero(of == 2))
    alone = poses.fitted(partial(poses.foretold, still, moved, False), frame.pose(found.matrices[2]))
    points = poses.Package.cut(there, head, frame, np.arange(len(of))).points
    assert found.uncertainty == pytest.approx(2**0.5 * alone.displacement(points)[1], rel=0.1)


def test_the_farthest_of_three_packages_says_how_far_the_head_moved():
    measured, _, _ = restless(2, np.eye(4), THREE[1], noise=5.0)
    found = motion.found(measured)
    alone = [angle_and_shift(one, centre(measured.affine, measured.shape)) for one in found.matrices]
    assert (found.degrees, found.millimetres) == pytest.approx(np.max(alone, axis=0))
    assert found.degrees == pytest.approx(5**0.5, abs=0.5) and found.millimetres == pytest.approx(2.5**0.5, abs=0.3)


@pytest.mark.parametrize("count", [39, 40])
def test_a_stack_that_is_stored_flipped_moved_as_much(count):
    measured = restless(2, stacks.motion(*MOTIONS[2]), noise=5.0)[0]
    affine = np.asarray(measured.affine)
    acquisition = Acquisition.stack(2, count // 2, spacing=THICK, thickness=THICK, target=2.0)
    other = affine @ np.diag([1.0, 1.0, -1.0, 1.0])
    other[:3, 3] += affine[:3, 2] * (count // 2 - 1)
    array = measured.array[:, :, : count // 2]
    a = motion.found(Slices(array, acquisition, torch.from_numpy(affine)))
    b = motion.found(Slices(array.flip(2), acquisition, torch.from_numpy(other)))
    assert a.moved and a.packages == b.packages[::-1]
    np.testing.assert_allclose(a.matrices, b.matrices, atol=1e-3)


def test_two_packages_foretell_each_other_whichever_was_first():
    measured = restless(2, stacks.motion(*MOTIONS[2]), noise=5.0)[0]
    first, then = (
        motion.found(
            replace(measured, acquisition=replace(measured.acquisition, packages=(one * 99)[: measured.shape[2]]))
        )
        for one in ("01", "10")
    )
    degrees, mm = away(first.matrices[1], np.linalg.inv(then.matrices[1]), measured)
    assert degrees < 0.02 and mm < 0.01


def test_a_fit_that_comes_to_no_end_or_turns_too_far_says_nothing(monkeypatch):
    measured, _, _ = restless(2, stacks.motion(*MOTIONS[2]), noise=5.0)
    monkeypatch.setattr(poses, "ROUNDS", 2)
    assert motion.found(replace(measured)) is None
    monkeypatch.undo()
    assert motion.found(replace(measured)).moved
    monkeypatch.setattr(motion, "MOST_TURN", 1.0)
    assert motion.found(replace(measured)) is None


def test_motion_is_looked_for_once(monkeypatch):
    measured, _, truth = restless(2, stacks.motion(*MOTIONS[2]), noise=5.0)
    off, on = rebuilders(guide_share=1.0)
    known = motion.found(measured)
    monkeypatch.setattr(poses, "ROUNDS", 0)  # a second look would find nothing
    beside = on.place(Slices.sharp(other_contrast(truth)), measured)
    assert off(measured, beside).motion is known and on(measured, beside).taken_back
    assert motion.found(replace(measured)) is None


@pytest.mark.parametrize("axis", range(3))
def test_a_still_head_is_not_moved(axis):
    found = motion.found(restless(axis, np.eye(4), noise=5.0)[0])
    assert not found.moved and found.displacement < 0.3


def test_a_gain_of_the_odd_slices_is_no_motion():
    measured, _, _ = restless(2, stacks.motion(*MOTIONS[2]), noise=5.0)
    plain = motion.found(measured)
    measured.array[:, :, 1::2] *= 1.3
    measured = replace(measured)
    degrees, mm = away(motion.found(measured).matrices[1], plain.matrices[1], measured)
    assert degrees < 0.05 and mm < 0.02


@pytest.mark.parametrize(("axis", "pose"), list(enumerate(MOTIONS)))
def test_slices_that_are_taken_back_are_those_of_the_still_head(axis, pose):
    matrix = stacks.motion(*pose)
    measured, still, truth = restless(axis, matrix)
    known = motion.Motion(packages(measured), np.stack([np.eye(4), matrix]), 1.0, 1.0, 1.0, 0.1)
    odd = torch.arange(1, still.shape[axis], 2)

    def error(slices):
        gap = (slices.array - still.array).index_select(axis, odd)
        return float(gap.square().mean().sqrt())

    assert error(motion.taken_back(measured, truth, known)) < 0.1 * error(measured)
    steadied = motion.steadied(measured, known)
    assert error(steadied) < 0.7 * error(measured)
    even = torch.arange(0, still.shape[axis], 2)
    assert torch.equal(steadied.array.index_select(axis, even), measured.array.index_select(axis, even))


def test_a_head_moves_from_sure_and_far_enough_on():
    def moved(displacement, uncertainty):
        return motion.Motion("01", np.stack([np.eye(4)] * 2), 0.0, 0.0, displacement, uncertainty).moved

    assert moved(0.41, 0.1) and not moved(0.39, 0.01)
    assert moved(0.91, 0.3) and not moved(0.89, 0.3)


def test_nothing_is_said_of_few_missing_or_constant_slices():
    measured, _, _ = restless(2, np.eye(4))
    blank = replace(measured, array=measured.array.index_fill(2, torch.tensor([9]), 0))
    few = Slices.of(scan_of(head((40, 40, 35))))
    constant = replace(measured, array=0 * measured.array)
    assert [motion.found(one) for one in (blank, few, constant)] == [None] * 3


class Spline(StackInferer):
    """A method that needs no network."""

    def fine(self, slices, network, guide):
        return interpolate(slices.array, slices.acquisition, "cubic"), None


def rebuilders(**given):
    given = {"network": torch.nn.Identity(), "inferer": Spline(), "device": "cpu", **given}
    return [Rebuilder(motion=on, **given) for on in (False, True)]


def test_a_still_head_is_rebuilt_to_the_bit_as_without():
    measured = restless(2, np.eye(4), noise=5.0)[0]
    off, on = (one(measured) for one in rebuilders())
    assert torch.equal(off.volume.as_tensor(), on.volume.as_tensor()) and not on.taken_back


def test_intervals_are_wider_where_a_head_moved_and_is_left_as_it_is():
    network = Drift(SliceProjectionNetwork((4,), (1,), 4, 4), VelocityNetwork((4,), 8)).eval()
    network.error, calibration = (
        ErrorPatternNetwork(),
        Calibration([4.0], [[list(LEVELS)]], (0.0, 0.0), (30.0, 0.4, 1.0)),
    )
    off, on = rebuilders(network=network, error_maps=ErrorMaps(True, calibration=calibration))
    still, moved = (restless(2, stacks.motion(*pose), noise=5.0)[0] for pose in (((0, 0, 0), (0, 0, 0)), MOTIONS[2]))

    def widened(rebuilt):
        known = error_map(rebuilt, network, "cpu", calibration)
        return rebuilt.error_map.expected.as_tensor() - known.expected.as_tensor()

    assert not any(widened(one).any() for one in (off(still), on(still), on(moved)))
    left = off(moved)
    more, error = widened(left), (left.volume.as_tensor() - restless(2, np.eye(4))[2].as_tensor()).abs()
    inside = left.slices.canonical.head.any(2)
    assert (more >= 0).all() and np.corrcoef(more[inside].mean(1), error[inside].mean(1))[0, 1] > 0.5


def other_contrast(truth, there=None):
    """A guide on the fine grid, dark where the head is bright."""
    shown = stacks.moved(truth.as_tensor(), np.eye(4) if there is None else there)
    return MetaTensor((1 - 2 * (shown / 700) ** 1.5)[None], affine=truth.affine)


@pytest.mark.parametrize(("axis", "pose"), list(enumerate(MOTIONS)))
def test_a_guide_knows_the_motion_better_though_it_lies_elsewhere(axis, pose):
    measured, _, truth = restless(axis, matrix := stacks.motion(*pose), noise=5.0)
    found = motion.found(measured)
    guide = other_contrast(truth, stacks.motion((0.5, -0.3, 0.0), (0.4, 0.0, -0.3)))
    better = guided_motion.guided(measured, guide, found)
    assert better is not found and better.packages == found.packages
    degrees, mm = away(better.matrices[1], matrix, measured)
    assert degrees < 0.15 and mm < 0.1
    np.testing.assert_allclose(better.matrices[0], np.eye(4), atol=1e-9)


def test_a_guide_of_half_a_head_counts_where_it_saw():
    measured, _, truth = restless(2, matrix := stacks.motion(*MOTIONS[2]), noise=5.0)
    guide = other_contrast(truth)
    guide[:, :20] = torch.nan
    degrees, mm = away(guided_motion.guided(measured, guide, motion.found(measured)).matrices[1], matrix, measured)
    assert degrees < 0.3 and mm < 0.2


@pytest.mark.parametrize("seen", [torch.nan, -1.0])
def test_a_guide_that_shows_nothing_changes_nothing(seen):
    measured, _, truth = restless(2, stacks.motion(*MOTIONS[2]), noise=5.0)
    found = motion.found(measured)
    assert guided_motion.guided(measured, other_contrast(truth) * 0 + seen, found) is found


def test_a_guide_that_is_not_sure_changes_nothing(monkeypatch):
    measured, _, truth = restless(2, stacks.motion(*MOTIONS[2]), noise=5.0)
    found = motion.found(measured)
    assert guided_motion.guided(measured, other_contrast(truth), found) is not found
    monkeypatch.setattr(guided_motion, "UNSURE", 0.01)
    assert guided_motion.guided(measured, other_contrast(truth), found) is found


def test_a_guide_of_three_packages():
    measured, _, truth = restless(2, *THREE, noise=5.0)
    better = guided_motion.guided(measured, other_contrast(truth), motion.found(measured))
    for one, true in zip(better.matrices[1:], THREE):
        degrees, mm = away(one, true, measured)
        assert degrees < 0.25 and mm < 0.1


def test_a_guided_rebuild_takes_the_slices_back_by_the_guide():
    measured, _, truth = restless(2, matrix := stacks.motion(*MOTIONS[2]), noise=5.0)
    beside = Placed(other_contrast(truth), np.eye(4), 1.0, 0.0, 0.0, 0.0, "the guide")
    off, on = (one(measured, beside).motion for one in rebuilders())
    alone = rebuilders()[1](measured).motion
    errors = [away(one.matrices[1], matrix, measured)[0] for one in (on, alone, off)]
    assert errors[0] < 0.15 < min(errors[1:])


@pytest.mark.parametrize("order", [1, -1])
def test_another_stack_knows_the_motion_better_than_neighbouring_slices_do(order):
    measured, _, truth = restless(2, matrix := stacks.motion(*MOTIONS[2]), noise=5.0)
    there = stacks.moved(truth.as_tensor(), stacks.motion((2.0, -1.0, 0.0), (1.0, 0.0, -2.0)))
    other = stacks.stack_of(there, 0, THICK, noise=5.0).measured
    off, on = rebuilders()
    both = on.each([measured, other][::order], [None, None])[::order]
    alone, still = on(measured), off(other)
    degrees = [away(one.motion.matrices[1], matrix, measured)[0] for one in (both[0], alone)]
    errors = [in_head(one.volume, truth) for one in (both[0], off(measured))]
    assert both[0].taken_back and degrees[0] < 0.15 < degrees[1] and errors[0] < 0.7 * errors[1]
    assert torch.equal(both[1].volume.as_tensor(), still.volume.as_tensor()) and both[1].motion is still.motion
    left = off.each([measured, other], [None, None])[0]
    assert left.motion.moved and torch.equal(left.volume.as_tensor(), off(measured).volume.as_tensor())


def test_a_stack_that_does_not_fit_says_nothing_of_the_motion(monkeypatch):
    measured, _, truth = restless(2, stacks.motion(*MOTIONS[2]), noise=5.0)
    other = stacks.stack_of(truth.as_tensor(), 0, THICK, noise=5.0).measured
    monkeypatch.setattr("scripts.rebuild.guide.ALIKE", 1.1)
    on = rebuilders()[1]
    one, alone = on.each([measured, other], [None, None])[0], on(measured)
    np.testing.assert_array_equal(one.motion.matrices, alone.motion.matrices)


def test_a_head_that_moved_is_said_and_mended_if_asked():
    measured, _, truth = restless(2, stacks.motion(*MOTIONS[2]), noise=5.0)
    off, on = (one(measured) for one in rebuilders())
    error = [float((one.volume.as_tensor() - truth.as_tensor()).square().mean().sqrt()) for one in (off, on)]
    assert off.motion.moved and not off.taken_back and on.taken_back
    assert error[1] < 0.9 * error[0]
    assert torch.equal(off.slices.array, measured.array)


@pytest.mark.parametrize("pose", MOTIONS)
def test_without_a_guide_the_first_package_alone_says_where_the_others_lie(pose):
    measured, _, _ = restless(2, matrix := stacks.motion(*pose), noise=5.0)
    degrees, mm = away(rebuilders()[1](measured).motion.matrices[1], matrix, measured)
    assert degrees < 0.45 and mm < 0.02, "its spline says 0.05 mm"


class Faint(Spline):
    """A method whose drafts are the spline's."""

    draft = Spline()

    def fine(self, slices, network, guide):
        volume, spread = super().fine(slices, network, guide)
        return volume / 2, spread


def test_drafts_take_slices_back_and_the_method_makes_the_result():
    measured, _, truth = restless(2, stacks.motion(*MOTIONS[2]), noise=5.0)
    for guide in (None, Placed(other_contrast(truth), np.eye(4), 1.0, 0.0, 0.0, 0.0, "a guide")):
        one, plain = (rebuilders(inferer=inferer)[1](replace(measured), guide) for inferer in (Faint(), Spline()))
        assert torch.equal(one.slices.array, plain.slices.array)
        assert torch.equal(one.volume, Faint().rebuilt(one.slices, torch.nn.Identity()).volume)


@pytest.mark.parametrize(("axis", "first"), [(0, 0), (1, 1), (2, 0)])
def test_slices_of_the_first_package_stand_where_they_stood(axis, first):
    measured = restless(axis, np.eye(4))[0]
    packages = "".join(str((n + first) % 2) for n in range(measured.acquisition.slice_count))
    known = motion.Motion(packages, np.stack([np.eye(4)] * 2), 0.0, 0.0, 0.0, 0.0)
    alone = motion.first_package(measured, known)
    index = np.zeros((4, alone.acquisition.slice_count))
    index[axis], index[3] = np.arange(alone.acquisition.slice_count), 1
    there = np.linalg.inv(measured.affine.numpy()) @ alone.affine.numpy() @ index
    np.testing.assert_allclose(there[axis], np.arange(first, measured.acquisition.slice_count, 2), atol=1e-9)
    assert torch.equal(alone.array, measured.array.index_select(axis, torch.tensor(there[axis].round()).long()))
    assert alone.acquisition.slice_spacing == 2 * measured.acquisition.slice_spacing
    assert alone.acquisition.slice_thickness == measured.acquisition.slice_thickness
    assert alone.acquisition.packages == ""


@pytest.mark.parametrize("packages", ["012012012012", "001011010011"])
def test_packages_of_another_order_are_no_stack(packages):
    measured = restless(2, np.eye(4))[0]
    known = motion.Motion(packages, np.stack([np.eye(4)] * (1 + int(max(packages)))), 0.0, 0.0, 0.0, 0.0)
    assert motion.first_package(measured, known) is None


@pytest.mark.parametrize(("spacing", "taken"), [(5.0, True), (4.9, False)])
def test_slices_of_a_head_that_moved_by_more_than_one_and_a_half_of_their_spacing_stay(spacing, taken):
    assert motion.Motion("01", np.stack([np.eye(4)] * 2), 5.0, 5.0, 7.45, 0.1).in_reach(spacing) == taken


def test_a_head_that_moved_too_far_is_said_and_left_as_it_is(monkeypatch):
    measured, _, truth = restless(2, stacks.motion(*MOTIONS[2]), noise=5.0)
    monkeypatch.setattr(motion, "REACH", 0.01)
    guide = Placed(other_contrast(truth), np.eye(4), 1.0, 0.0, 0.0, 0.0, "a guide")
    off, on = (one(measured, guide) for one in rebuilders())
    assert on.motion.moved and not on.taken_back
    assert torch.equal(off.volume.as_tensor(), on.volume.as_tensor())
    np.testing.assert_array_equal(off.motion.matrices, on.motion.matrices)
