"""Laws and numbers of PAD and AIS."""

import math

import pytest
import torch

from scripts.method import schedule
from tests import paper_values as paper


@pytest.mark.parametrize("steps", [1, 13, 100])
def test_times_are_uniform_and_end_at_one(steps):
    times = schedule.euler_times(steps)
    assert times[-1] == 1
    torch.testing.assert_close(times, torch.tensor([n / steps for n in range(steps + 1)]))


@pytest.mark.parametrize("thickness", [0.1, 0.9, 6.0])
def test_equal_thickness_takes_no_step(thickness):
    assert schedule.pad(thickness, thickness) == 0
    assert schedule.ais_steps(thickness, thickness) == 0


@pytest.mark.parametrize(("slice_thickness", "target", "value"), [(2.0, 1.0, 0.5), (4.0, 1.0, 0.75), (5.0, 0.5, 0.9)])
def test_pad_is_the_lost_share_of_bandwidth(slice_thickness, target, value):
    assert schedule.pad(slice_thickness, target) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(("thickness", "steps"), paper.AIS_STEPS.items())
def test_steps_of_section_s9(thickness, steps):
    assert schedule.ais_steps(thickness, paper.TARGET_HCP) == steps


@pytest.mark.parametrize(("scale", "steps"), paper.AIS_STEPS_BY_SCALE.items())
@pytest.mark.parametrize("target", [0.7, 1.1])
def test_steps_of_a_scale_are_those_of_section_4_4_at_any_target(scale, steps, target):
    assert schedule.ais_steps(scale * target, target) == steps
    assert schedule.ais_steps(round(scale * target, 1), target) == steps


@pytest.mark.parametrize("ulps", [-1, 1])
@pytest.mark.parametrize(("scale", "steps"), [(2, 8), (6, 12), (30, 14), (10 / 7, 4), (10 / 9, 2)])
def test_ties_go_to_even_whatever_the_last_bit(scale, steps, ulps):
    thickness = scale * 0.7
    for _ in range(abs(ulps)):
        thickness = math.nextafter(thickness, math.copysign(math.inf, ulps))
    assert schedule.ais_steps(thickness, 0.7) == steps


@pytest.mark.parametrize(("n_max", "steps"), [(15, 8), (4, 2), (1, 0), (0, 0)])
def test_steps_are_a_share_of_the_most(n_max, steps):
    assert schedule.ais_steps(2.0, 1.0, n_max) == steps
    assert schedule.ais_steps(1.0, 1.0, n_max) == schedule.N_MIN
    assert schedule.ais_steps(1e6, 1.0, n_max) == n_max


def test_impossible_thicknesses_and_numbers_are_named():
    for thickness, target in ((0.6, 0.7), (0.0, 0.7), (2.0, -1.0)):
        with pytest.raises(ValueError, match=f"{thickness:g} mm.*{target:g} mm"):
            schedule.pad(thickness, target)
    with pytest.raises(ValueError, match="n_max is -1"):
        schedule.ais_steps(2.0, 1.0, -1)
    with pytest.raises(ValueError, match="-3"):
        schedule.euler_times(-3)
