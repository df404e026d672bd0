"""Laws of motion between packages: the forward model, known motions found and taken back, a still head left alone."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from scipy import ndimage, stats

from scripts.method.calibration import LEVELS, Calibration
from scripts.method.error_pattern import ErrorPatternNetwork
from scripts.method.networks import Drift, VelocityNetwork
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.rebuild import motion, poses
from scripts.rebuild.error_map import ErrorMaps, error_map
from scripts.rebuild.guide import PlacedGuide
from scripts.rebuild.rebuilder import Rebuilder
from scripts.rebuild.registration import angle_and_shift
from scripts.rebuild.stack_inferer import StackInferer
from scripts.stack.grid import centre
from scripts.stack.interpolation import interpolate
from scripts.stack.profile import acquire
from scripts.stack.slices import Slices
from tests import stacks
from tests.volumes import head, scan_of

THICK = 4.0  # mm; slices of two voxels
STILL = (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)  # degrees and mm
MOTIONS = [((3.0, 0.0, 0.0), (0.0, 0.0, 0.0)), ((0.0, 0.0, 4.0), (0.0, 1.0, 0.0)), ((1.0, -1.0, 0.7), (1.0, -1.0, 1.2))]
MATRICES = [stacks.motion(*pose) for pose in MOTIONS]
THREE = ((1.0, -1.0, 1.5), (1.0, -1.0, 1.2)), ((-2.0, 0.0, 1.0), (0.0, 1.5, -0.5))
EACH = pytest.mark.parametrize("axis", range(3))


@cache
def restless(axis, *poses, noise=5.0):
    """Slices of a head that moves before every further package; those of the still one; and the sharp head."""
    truth = torch.from_numpy(ndimage.gaussian_filter(stacks.person().numpy(), 1.5))  # one package foretells the other
    moved = [stacks.moved(truth, stacks.motion(*pose)) for pose in poses]
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


@cache
def found_in(axis, *poses):
    """The motion that its slices show."""
    return motion.motion_of(restless(axis, *poses)[0])


def rms(difference):
    return float(difference.square().mean().sqrt())


def off_by(one, true, measured):
    """How far one motion is from another, in degrees and, in the middle of the head, in mm."""
    return np.array(angle_and_shift(one @ np.linalg.inv(true), centre(measured.affine, measured.shape)))


@EACH
def test_a_head_without_motion_is_acquired_as_ever(axis):
    measured, _, truth = restless(axis, MOTIONS[axis], noise=0.0)
    a = measured.acquisition
    assert torch.equal(motion.acquired(truth, np.eye(4), a), acquire(truth.as_tensor(), a))


@EACH
def test_the_odd_slices_are_those_of_the_moved_head(axis):
    measured, still, truth = restless(axis, MOTIONS[axis], noise=0.0)
    again = motion.acquired(truth, MATRICES[axis], measured.acquisition)
    gaps = [(measured.array - one).movedim(axis, 0)[1::2] for one in (again, still.array)]
    assert rms(gaps[0]) < 0.1 * rms(gaps[1])


@EACH
def test_a_known_motion_is_found(axis):
    found, (measured, _, _) = found_in(axis, MOTIONS[axis]), restless(axis, MOTIONS[axis])
    assert found.moved and (off_by(found.matrices[1], MATRICES[axis], measured) < (0.4, 0.25)).all()


def test_known_motions_of_three_packages_are_found_and_taken_back():
    measured, still, truth = restless(0, *THREE)
    found = motion.motion_of(measured)
    assert found.moved and found.matrices.shape == (3, 4, 4) and np.array_equal(found.matrices[0], np.eye(4))
    for one, pose in zip(found.matrices[1:], THREE):
        assert (off_by(one, stacks.motion(*pose), measured) < (0.6, 0.35)).all()
    assert "between the 3 packages of its slices" in str(found)
    back = motion.taken_back(measured, found, truth).array
    assert rms(back - still.array) < 0.3 * rms(measured.array - still.array)


def test_a_pose_and_its_matrix_undo_each_other_in_an_oblique_stack():
    slices, turned = Slices.of(scan_of(head((40, 40, 35)))), stacks.motion((20.0, -30.0, 10.0), (3.0, 5.0, -2.0))
    frame = poses.Frame.of(replace(slices, affine=torch.from_numpy(turned) @ slices.affine))
    pose = poses.Pose(MATRICES[2][:3, :3], np.array([1.0, -2.0, 0.5]), np.zeros((6, 6)))
    again, place = frame.pose(frame.matrix(pose)), np.array([10.0, -20.0, 30.0])
    np.testing.assert_allclose(again.turn, pose.turn, atol=1e-9)
    np.testing.assert_allclose(again.shift, pose.shift, atol=1e-9)
    there = frame.matrix(pose) @ [*(frame.middle + frame.axes @ place), 1]
    np.testing.assert_allclose(there[:3], frame.middle + frame.axes @ (pose.turn @ place + pose.shift), atol=1e-9)


def test_the_farthest_of_three_packages_says_how_far_the_head_moved_and_its_uncertainty_holds_that_of_the_others():
    measured, _, _ = restless(2, STILL, THREE[1])
    found, frame = motion.motion_of(measured), poses.Frame.of(measured)
    away = [angle_and_shift(one, centre(measured.affine, measured.shape)) for one in found.matrices]
    assert (found.degrees, found.millimetres) == pytest.approx(np.max(away, axis=0))
    assert found.degrees == pytest.approx(5**0.5, abs=0.5) and found.millimetres == pytest.approx(2.5**0.5, abs=0.3)
    of, head = np.array(list(found.packages), dtype=int), frame.head(measured)
    back, there = (
        frame.smoothed(one.array, motion.SMOOTHING) for one in (motion.taken_back(measured, found), measured)
    )
    still = poses.Package.cut(back, head, frame, np.flatnonzero(of != 2))
    moved = poses.Package.cut(there, head, frame, np.flatnonzero(of == 2))
    alone = poses.fitted(partial(poses.foretold, still, moved, False), frame.pose(found.matrices[2]))
    points = poses.Package.cut(there, head, frame, np.arange(len(of))).points
    assert found.uncertainty == pytest.approx(2**0.5 * alone.displacement(points)[1], rel=0.1)


def test_a_gradient_is_one_of_half_slices_and_nothing_is_known_beyond_the_outermost_slice():
    frame = poses.Frame([0, 1, 2], np.array([1.0, 1.0, 4.0]), np.eye(3), np.zeros(3), np.array([5, 5, 4]))
    wave = np.sin(np.pi / 2 * np.arange(7))  # the finest that half slices hold
    shown = poses.Shown(np.tile(wave, (5, 5, 1)), 0, frame)
    points = frame.places(np.array([[2.0, 2.0, n] for n in (-0.1, 0.0, 1.0, 3.0, 3.1)]).T)
    np.testing.assert_allclose(shown.gradient(points)[:, 2], [0, 0, -2 / 4], atol=1e-12)
    assert shown.at(points)[1].tolist() == [False, True, True, True, False]


def test_the_spread_of_steps_is_that_of_their_mean_and_none_where_one_part_decides():
    normal, steps = np.tile(np.eye(6), (4, 1, 1)), np.random.default_rng(0).normal(size=(4, 6))
    wider = stats.t(3).isf(stats.norm.sf(3.0)) / 3.0
    np.testing.assert_allclose(poses.jackknife(normal, steps), wider**2 * np.cov(steps.T) / 4)
    assert poses.jackknife(normal[:1], steps[:1]) is None
    for little, said in ((1e-11, True), (1e-13, False)):
        normal[1:, 5, 5] = little / 3  # shifts along the slices are known by the first part
        assert (poses.jackknife(normal, steps) is not None) == said


def test_two_packages_foretell_each_other_whichever_was_first():
    found, (measured, _, _) = found_in(2, MOTIONS[2]), restless(2, MOTIONS[2])
    swapped = "".join("10"[int(one)] for one in found.packages)
    then = motion.motion_of(replace(measured, acquisition=replace(measured.acquisition, packages=swapped)))
    apart = off_by(found.matrices[1], np.linalg.inv(then.matrices[1]), measured)
    assert (apart < (0.02, 0.01)).all()


def test_a_fit_that_comes_to_no_end_says_nothing(monkeypatch):
    measured, _, _ = restless(2, MOTIONS[2])
    assert found_in(2, MOTIONS[2]).moved
    monkeypatch.setattr(poses, "ROUNDS", 2)
    assert motion.motion_of(replace(measured)) is None


FAR = {11.0: True, 13.0: False}  # mm -> whether a fit may end there
TURNED = {8.0: True, 10.0: False}  # degrees


@pytest.mark.parametrize(
    ("pose", "said"),
    [
        *((((0.0, 0.0, 0.0), (mm, 0.0, 0.0)), said) for mm, said in FAR.items()),
        *((((degrees, 0.0, 0.0), (0.0, 0.0, 0.0)), said) for degrees, said in TURNED.items()),
    ],
)
def test_a_fit_that_ends_twelve_millimetres_or_nine_degrees_away_went_astray(pose, said):
    assert (motion.motion_of(restless(2, pose)[0]) is not None) == said


@EACH
def test_a_still_head_is_not_moved(axis):
    found = found_in(axis, STILL)
    assert not found.moved and found.displacement < 0.3


def test_a_gain_of_the_odd_slices_is_no_motion():
    measured, _, _ = restless(2, MOTIONS[2])
    gains = 1 + 0.3 * (torch.arange(measured.shape[2]) % 2)
    louder = motion.motion_of(replace(measured, array=measured.array * gains))
    assert (off_by(louder.matrices[1], found_in(2, MOTIONS[2]).matrices[1], measured) < (0.07, 0.02)).all()


@EACH
def test_slices_that_are_taken_back_are_those_of_the_still_head(axis):
    measured, still, truth = restless(axis, MOTIONS[axis], noise=0.0)
    known = replace(found_in(axis, MOTIONS[axis]), matrices=np.stack([np.eye(4), MATRICES[axis]]))
    there, back, again = (
        (one.array - still.array).movedim(axis, 0)
        for one in (measured, motion.taken_back(measured, known, truth), motion.taken_back(measured, known))
    )
    assert rms(back[1::2]) < 0.1 * rms(there[1::2]) and rms(again[1::2]) < 0.7 * rms(there[1::2])
    assert not again[::2].any()


def test_slices_of_a_head_that_moved_far_come_back_by_their_spline_in_two_rounds():
    """One round leaves a quarter of the error."""
    pose = (2.0, -2.0, 1.4), (2.0, -2.0, 2.4)
    measured, still, _ = restless(0, pose, noise=0.0)
    frame = motion.Frame.of(measured)
    poses = [motion.STILL, frame.pose(stacks.motion(*pose))]
    true = motion.Motion.of("01" * (still.shape[0] // 2), poses, frame, np.zeros((3, 1)))
    back = motion.taken_back(measured, true)
    assert rms(back.array - still.array) < 0.15 * rms(measured.array - still.array)


def test_a_head_moves_from_sure_and_far_enough_on():
    def moved(displacement, uncertainty):
        return motion.Motion("01", np.stack([np.eye(4)] * 2), 0.0, 0.0, displacement, uncertainty).moved

    assert moved(0.41, 0.1) and not moved(0.39, 0.01)
    assert moved(0.91, 0.3) and not moved(0.89, 0.3)


def test_nothing_is_said_of_few_missing_or_constant_slices():
    measured, _, _ = restless(2, STILL)
    blank = replace(measured, array=measured.array.index_fill(2, torch.tensor([9]), 0))
    few = Slices.of(scan_of(head((40, 40, 35))))
    constant = replace(measured, array=0 * measured.array)
    assert [motion.motion_of(one) for one in (blank, few, constant)] == [None] * 3


@pytest.mark.parametrize(("count", "said"), [(7, False), (8, True)])
def test_seven_slices_say_nothing_and_eight_do(count, said):
    measured, _, _ = restless(2, MOTIONS[2])
    few = replace(measured.acquisition, slice_count=count)
    assert (
        motion.motion_of(replace(measured, array=measured.array[..., 6 : 6 + count], acquisition=few)) is not None
    ) == said


class Spline(StackInferer):
    """A method that needs no network."""

    def fine(self, slices, network, guide):
        return interpolate(slices.array, slices.acquisition, "cubic"), None


def rebuilders(**given):
    given = {"network": torch.nn.Identity(), "inferer": Spline(), "device": "cpu", **given}
    return [Rebuilder(motion=on, **given) for on in (False, True)]


@cache
def rebuilt(on, pose=MOTIONS[2]):
    """The head that moved, whose slices are taken back or not."""
    return rebuilders()[on](restless(2, pose)[0])


def test_a_still_head_is_rebuilt_to_the_bit_as_without():
    off, on = (rebuilt(on, STILL) for on in (False, True))
    assert torch.equal(off.volume.as_tensor(), on.volume.as_tensor()) and not on.taken_back


def test_intervals_are_wider_where_a_head_moved_and_is_left_as_it_is():
    network = Drift(SliceProjectionNetwork((4,), (1,), 4, 4), VelocityNetwork((4,), 8)).eval()
    network.error, calibration = (
        ErrorPatternNetwork(),
        Calibration([4.0], [[list(LEVELS)]], (0.0, 0.0)),
    )
    off, on = rebuilders(network=network, error_maps=ErrorMaps(True, calibration=calibration))
    still, (moved, _, truth) = restless(2, STILL)[0], restless(2, MOTIONS[2])

    def widened(rebuilt):
        known = error_map(rebuilt, network, "cpu", calibration)
        return rebuilt.error_map.expected.as_tensor() - known.expected.as_tensor()

    assert not widened(off(still)).any() and not widened(on(moved)).any()
    left = off(moved)
    more, error = widened(left), (left.volume.as_tensor() - truth.as_tensor()).abs()
    inside = left.slices.canonical.head.any(2)
    assert (more >= 0).all() and np.corrcoef(more[inside].mean(1), error[inside].mean(1))[0, 1] > 0.5


def other_contrast(truth, there=None):
    """A guide on the fine grid, dark where the head is bright."""
    shown = stacks.moved(truth.as_tensor(), np.eye(4) if there is None else there)
    return MetaTensor((1 - 2 * (shown / 700) ** 1.5)[None], affine=truth.affine)


@EACH
def test_a_guide_knows_the_motion_better_though_it_lies_elsewhere(axis):
    found, (measured, _, truth) = found_in(axis, MOTIONS[axis]), restless(axis, MOTIONS[axis])
    guide = other_contrast(truth, stacks.motion((0.5, -0.3, 0.0), (0.4, 0.0, -0.3)))
    better = motion.by_volume(measured, guide, found)
    assert better is not found and better.packages == found.packages
    assert (off_by(better.matrices[1], MATRICES[axis], measured) < (0.15, 0.1)).all()
    np.testing.assert_allclose(better.matrices[0], np.eye(4), atol=1e-9)


def test_a_guide_of_half_a_head_counts_where_it_saw():
    measured, _, truth = restless(2, MOTIONS[2])
    guide = other_contrast(truth)
    guide[:, :20] = torch.nan
    found = found_in(2, MOTIONS[2])
    better = motion.by_volume(measured, guide, found)
    assert (off_by(better.matrices[1], MATRICES[2], measured) < (0.15, 0.04)).all()
    assert (off_by(found.matrices[1], MATRICES[2], measured) > (0.2, 0.05)).all(), "without it less is known"


def test_a_guide_that_shows_nothing_or_is_not_sure_changes_nothing():
    """The more it is blurred, the less it knows: 1.0 mm, and 2.2 mm."""
    measured, _, truth = restless(2, MOTIONS[2])
    found, guide = found_in(2, MOTIONS[2]), other_contrast(truth)
    for nothing in (torch.nan, -1.0):
        assert motion.by_volume(measured, guide * 0 + nothing, found) is found
    for width, sure in ((1.0, True), (2.0, False)):
        blurred = torch.from_numpy(ndimage.gaussian_filter(guide.numpy(), (0, *[width] * 3)))
        assert (motion.by_volume(measured, MetaTensor(blurred, affine=guide.affine), found) is not found) == sure


def test_a_guide_of_three_packages():
    measured, _, truth = restless(2, *THREE)
    better = motion.by_volume(measured, other_contrast(truth), found_in(2, *THREE))
    for one, pose in zip(better.matrices[1:], THREE):
        assert (off_by(one, stacks.motion(*pose), measured) < (0.25, 0.1)).all()


def beside(truth):
    return PlacedGuide(other_contrast(truth), np.eye(4), 1.0, 0.0, 0.0, 0.0, "the guide")


def test_a_guided_rebuild_takes_the_slices_back_by_the_guide():
    measured, _, truth = restless(2, MOTIONS[2])
    off, on = (one(measured, beside(truth)).motion for one in rebuilders())
    errors = [off_by(one.matrices[1], MATRICES[2], measured)[0] for one in (on, rebuilt(True).motion, off)]
    assert errors[0] < 0.15 < min(errors[1:])


@cache
def turned(there=STILL):
    """Another stack of the same head, across the first one, where it lies elsewhere."""
    return stacks.stack_of(stacks.moved(restless(2, STILL)[2].as_tensor(), stacks.motion(*there)), 0, THICK, noise=5.0)


def test_another_stack_knows_the_motion_better_than_neighbouring_slices_do():
    (measured, _, truth), other = restless(2, MOTIONS[2]), turned(((2.0, -1.0, 0.0), (1.0, 0.0, -2.0))).measured
    off, on = rebuilders()
    still, one = on.each([other, measured], [None, None])
    degrees = [off_by(it.motion.matrices[1], MATRICES[2], measured)[0] for it in (one, rebuilt(True))]
    inside = truth.as_tensor() > 100
    errors = [rms((it.volume.as_tensor() - truth.as_tensor())[inside]) for it in (one, rebuilt(False))]
    assert one.taken_back and degrees[0] < 0.15 < degrees[1] and errors[0] < 0.7 * errors[1]
    assert torch.equal(still.volume.as_tensor(), off(other).volume.as_tensor())


def test_a_stack_that_does_not_fit_says_nothing_of_the_motion(monkeypatch):
    monkeypatch.setattr("scripts.rebuild.guide.ALIKE", 1.1)
    one, _ = rebuilders()[1].each([restless(2, MOTIONS[2])[0], turned().measured], [None, None])
    np.testing.assert_array_equal(one.motion.matrices, rebuilt(True).motion.matrices)


def test_a_head_that_moved_is_said_and_mended_if_asked():
    measured, _, truth = restless(2, MOTIONS[2])
    off, on = rebuilt(False), rebuilt(True)
    assert off.motion.moved and not off.taken_back and on.taken_back
    assert rms(on.volume.as_tensor() - truth.as_tensor()) < 0.9 * rms(off.volume.as_tensor() - truth.as_tensor())
    assert torch.equal(off.slices.array, measured.array)


def test_without_a_guide_the_first_package_alone_says_where_the_others_lie():
    apart = off_by(rebuilt(True).motion.matrices[1], MATRICES[2], restless(2, MOTIONS[2])[0])
    assert (apart < (0.5, 0.03)).all(), "its spline says 0.05 mm"


class Faint(Spline):
    """A method whose drafts are the spline's."""

    draft = Spline()

    def fine(self, slices, network, guide):
        volume, spread = super().fine(slices, network, guide)
        return volume / 2, spread


def test_drafts_take_slices_back_and_the_method_makes_the_result():
    one = rebuilders(inferer=Faint())[1](restless(2, MOTIONS[2])[0])
    assert torch.equal(one.slices.array, rebuilt(True).slices.array)
    assert torch.equal(one.volume, Faint().rebuilt(one.slices, torch.nn.Identity()).volume)


@pytest.mark.parametrize(("axis", "first"), [(0, 0), (1, 1), (2, 0)])
def test_slices_of_the_first_package_stand_where_they_stood(axis, first):
    measured = restless(axis, STILL)[0]
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


@pytest.mark.parametrize("packages", ["012", "0102", "00101101"])
def test_packages_of_another_order_are_no_stack(packages):
    measured = restless(2, STILL)[0]
    whole, matrices = (packages * 20)[: measured.shape[2]], np.stack([np.eye(4)] * (1 + int(max(packages))))
    known = motion.Motion(whole, matrices, 0.0, 0.0, 0.0, 0.0)
    assert motion.first_package(measured, known) is None


@pytest.mark.parametrize(("spacing", "taken"), [(5.0, True), (4.9, False)])
def test_slices_of_a_head_that_moved_by_more_than_one_and_a_half_of_their_spacing_stay(spacing, taken):
    far = motion.Motion("01", np.stack([np.eye(4)] * 2), 5.0, 5.0, 7.45, 0.1).stays(spacing)
    assert far == ("" if taken else motion.FAR)


def test_a_head_that_moved_too_far_is_said_and_left_as_it_is(monkeypatch):
    measured, _, truth = restless(2, MOTIONS[2])
    monkeypatch.setattr(motion, "REACH", 0.01)
    off, on = (one(measured, beside(truth)) for one in rebuilders())
    assert on.motion.moved and not on.taken_back
    assert torch.equal(off.volume.as_tensor(), on.volume.as_tensor())
    np.testing.assert_array_equal(off.motion.matrices, on.motion.matrices)


def moved_within(axis, pose):
    """Slices of a head that moved when half of the second package was acquired."""
    measured, still, _ = restless(axis, pose)
    array, half = measured.array.clone(), measured.shape[axis] // 2
    array.movedim(axis, 0)[:half] = still.array.movedim(axis, 0)[:half]
    return replace(measured, array=array)


@pytest.mark.parametrize(("axis", "pose"), [(0, MOTIONS[1]), (1, ((3.0, 0.0, 2.0), (2.0, 1.0, -1.5)))])
def test_slices_of_a_head_that_moved_within_a_package_stay_and_it_is_said(axis, pose):
    measured = moved_within(axis, pose)
    off, on = (one(measured) for one in rebuilders())
    assert on.motion.moved and on.motion.doubt == motion.WITHIN and not on.taken_back
    assert torch.equal(off.volume.as_tensor(), on.volume.as_tensor()) and "within a package" in on.motion_said


def shaded(measured, amount):
    """The same slices where the odd ones are darker in the middle than on both sides."""
    axis = measured.acquisition.slice_axis
    bend = 1 + amount * (2 * torch.linspace(-1, 1, measured.shape[(axis + 1) % 3]) ** 2 - 1)
    gains = bend.reshape([-1 if k == (axis + 1) % 3 else 1 for k in range(3)]).expand(measured.shape).clone()
    gains.movedim(axis, 0)[::2] = 1
    return replace(measured, array=measured.array * gains)


@EACH
def test_shading_between_packages_is_no_motion_and_hides_none(axis):
    still, moved = (motion.motion_of(shaded(restless(axis, pose)[0], 0.4)) for pose in (STILL, MOTIONS[axis]))
    plain = found_in(axis, MOTIONS[axis])
    assert not still.moved and still.displacement < 0.3 and moved.moved
    assert (off_by(moved.matrices[1], plain.matrices[1], restless(axis, STILL)[0]) < (0.4, 0.15)).all()


@pytest.mark.parametrize("seed", range(3))
def test_residuals_that_neighbours_share_make_a_small_still_stack_no_surer(seed):
    """Errors as wide as those of anatomy, in few slices of a small field: whole slices count once, not their pixels."""
    truth = torch.from_numpy(ndimage.gaussian_filter(stacks.person(seed).numpy(), 0.8))
    stack = stacks.stack_of(truth, 2, THICK, noise=5.0).measured
    few = stack.acquisition.moved(*stack.turn)
    few = replace(few, slice_count=9, fine_count=18)
    small = Slices(stack.array[6:38, 10:42, 5:14].clone(), few, stack.affine)
    found = motion.motion_of(small)
    assert found is None or found.displacement < 3 * found.uncertainty


@pytest.mark.parametrize(("fits", "doubt"), [(True, ""), (False, motion.VAIN)])
def test_what_is_taken_back_pays_in_slices_that_were_not_used_for_the_pose(fits, doubt):
    measured = restless(2, MOTIONS[2] if fits else STILL)[0]
    frame, of = poses.Frame.of(measured), np.arange(measured.shape[2]) % 2
    smooth, head = frame.smoothed(measured.above_floor, motion.SMOOTHING), frame.head(measured)
    still, moved = (poses.Package.cut(smooth, head, frame, np.flatnonzero(of == k)) for k in (0, 1))
    points = poses.Package.cut(smooth, head, frame, np.arange(len(of))).points
    assert motion._doubt([(still, moved, poses.STILL)], True, points, len(of)) == doubt


def test_slices_that_are_taken_back_are_nowhere_darker_than_the_darkest_slice():
    measured, _, truth = restless(2, MOTIONS[2])
    known = replace(found_in(2, MOTIONS[2]), matrices=np.stack([np.eye(4), MATRICES[2]]))
    sharper = MetaTensor(3 * truth.as_tensor() - 2 * ndimage.gaussian_filter(truth.numpy(), 2), affine=truth.affine)
    assert motion.taken_back(measured, known, sharper).array.min() == measured.array.min()
