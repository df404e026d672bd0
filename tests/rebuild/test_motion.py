"""Laws of motion between packages: the forward model, known motions found and taken back, a still head left alone."""

import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from scipy import ndimage

from scripts.rebuild import motion
from scripts.rebuild.rebuilder import Rebuilder
from scripts.rebuild.registration import angle_and_shift
from scripts.rebuild.stack_inferer import StackInferer
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import centre
from scripts.stack.interpolation import interpolate
from scripts.stack.packages import even_and_odd
from scripts.stack.profile import acquire
from tests import stacks
from tests.volumes import head, scan_of

THICK = 4.0  # mm; slices of two voxels
MOTIONS = [((3.0, 0.0, 0.0), (0.0, 0.0, 0.0)), ((0.0, 0.0, 4.0), (0.0, 1.0, 0.0)), ((1.0, -1.0, 0.7), (1.0, -1.0, 1.2))]


def restless(axis, matrix, noise=0.0):
    """Slices of a head that moves before the odd ones; the slices of the still one; and the sharp head."""
    truth = torch.from_numpy(ndimage.gaussian_filter(stacks.person().numpy(), 1.5))  # one package foretells the other
    moved = stacks.moved(truth, matrix)
    still, there = (stacks.stack_of(one, axis, THICK, noise=noise).measured for one in (truth, moved))
    measured = still.clone()
    places = torch.arange(1, still.shape[axis], 2)
    measured.index_copy_(axis, places, there.as_tensor().index_select(axis, places))
    return measured, still, MetaTensor(truth, affine=torch.from_numpy(stacks.AFFINE))


def packages(measured):
    """Even and odd slices."""
    a = Acquisition.of(measured)
    return even_and_odd(a.slice_count, a.slice_axis, measured.affine)


def away(one, other, volume):
    """How far one motion is from another, in degrees and, in the middle of the head, in mm."""
    return angle_and_shift(one @ np.linalg.inv(other), centre(volume.affine, volume.shape))


@pytest.mark.parametrize("axis", range(3))
def test_a_head_without_motion_is_acquired_as_ever(axis):
    measured, _, truth = restless(axis, np.eye(4))
    a = Acquisition.of(measured)
    assert torch.equal(motion.acquired(truth, np.eye(4), a), acquire(truth.as_tensor(), a))


@pytest.mark.parametrize("axis", range(3))
def test_the_odd_slices_are_those_of_the_moved_head(axis):
    matrix = stacks.motion((2.0, -1.0, 1.0), (1.0, 2.0, -1.0))
    measured, still, truth = restless(axis, matrix)
    odd = torch.arange(1, still.shape[axis], 2)
    again = motion.acquired(truth, matrix, Acquisition.of(measured)).index_select(axis, odd)
    error, change = (
        (measured.as_tensor().index_select(axis, odd) - one).square().mean().sqrt()
        for one in (again, still.as_tensor().index_select(axis, odd))
    )
    assert error < 0.1 * change


@pytest.mark.parametrize(("axis", "pose"), list(enumerate(MOTIONS)))
def test_a_known_motion_is_found(axis, pose):
    measured, _, _ = restless(axis, matrix := stacks.motion(*pose), noise=5.0)
    found = motion.found(measured)
    degrees, mm = away(found.matrices[1], matrix, measured)
    assert found.moved
    assert degrees < 0.4 and mm < 0.25


def test_a_fit_that_comes_to_no_end_or_turns_too_far_says_nothing(monkeypatch):
    measured, _, _ = restless(2, stacks.motion(*MOTIONS[2]), noise=5.0)
    monkeypatch.setattr(motion, "ROUNDS", 2)
    assert motion.found(measured) is None
    monkeypatch.undo()
    assert motion.found(measured).moved
    monkeypatch.setattr(motion, "MOST_TURN", 1.0)
    assert motion.found(measured) is None


@pytest.mark.parametrize("axis", range(3))
def test_a_still_head_is_not_moved(axis):
    found = motion.found(restless(axis, np.eye(4), noise=5.0)[0])
    assert not found.moved and found.displacement < 0.3


def test_a_gain_of_the_odd_slices_is_no_motion():
    measured, _, _ = restless(2, stacks.motion(*MOTIONS[2]), noise=5.0)
    plain = motion.found(measured)
    measured[:, :, 1::2] *= 1.3
    degrees, mm = away(motion.found(measured).matrices[1], plain.matrices[1], measured)
    assert degrees < 0.05 and mm < 0.02


@pytest.mark.parametrize(("axis", "pose"), list(enumerate(MOTIONS)))
def test_slices_that_are_taken_back_are_those_of_the_still_head(axis, pose):
    matrix = stacks.motion(*pose)
    measured, still, truth = restless(axis, matrix)
    known = motion.Motion(packages(measured), np.stack([np.eye(4), matrix]), 1.0, 1.0, 1.0, 0.1)
    odd = torch.arange(1, still.shape[axis], 2)

    def error(slices):
        gap = (slices.as_tensor() - still.as_tensor()).index_select(axis, odd)
        return float(gap.square().mean().sqrt())

    assert error(motion.taken_back(measured, truth, known)) < 0.1 * error(measured)
    steadied = motion.steadied(measured, known)
    assert error(steadied) < 0.7 * error(measured)
    even = torch.arange(0, still.shape[axis], 2)
    assert torch.equal(steadied.as_tensor().index_select(axis, even), measured.as_tensor().index_select(axis, even))


def test_a_head_moves_from_sure_and_far_enough_on():
    def moved(displacement, uncertainty):
        return motion.Motion("01", np.stack([np.eye(4)] * 2), 0.0, 0.0, displacement, uncertainty).moved

    assert moved(0.41, 0.1) and not moved(0.39, 0.01)
    assert moved(0.91, 0.3) and not moved(0.89, 0.3)


def test_nothing_is_said_of_few_missing_or_constant_slices():
    measured, _, _ = restless(2, np.eye(4))
    blank = measured.clone()
    blank[:, :, 9] = 0
    few = scan_of(head((40, 40, 35)))[0]
    constant = measured * 0
    assert [motion.found(one) for one in (blank, few, constant)] == [None] * 3


class Spline(StackInferer):
    """A method that needs no network."""

    def fine(self, slices, network):
        return interpolate(slices.values, slices.acquisition, "cubic"), None


def rebuilders():
    return [Rebuilder(torch.nn.Identity(), Spline(), "cpu", motion=on) for on in (False, True)]


def test_a_still_head_is_rebuilt_to_the_bit_as_without():
    measured = restless(2, np.eye(4), noise=5.0)[0][None]
    off, on = (one(measured) for one in rebuilders())
    assert torch.equal(off.volume.as_tensor(), on.volume.as_tensor()) and not on.taken_back


def test_a_head_that_moved_is_said_and_mended_if_asked():
    measured, _, truth = restless(2, stacks.motion(*MOTIONS[2]), noise=5.0)
    off, on = (one(measured[None]) for one in rebuilders())
    error = [float((one.volume.as_tensor() - truth.as_tensor()).square().mean().sqrt()) for one in (off, on)]
    assert off.motion.moved and not off.taken_back and on.taken_back
    assert error[1] < 0.9 * error[0]
    assert torch.equal(off.measured.as_tensor(), measured.as_tensor())
