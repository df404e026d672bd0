"""Laws of packages: passes over a head by the times of its slices; even and odd ones where nobody knows them."""

import numpy as np
import pytest

from scripts.stack.acquisition import Acquisition
from scripts.stack.packages import by_times, even_and_odd


def times(count, order):
    """When slices were acquired of which the first ones were acquired in this order; a second each."""
    found = np.empty(count)
    found[order] = np.arange(count)
    return found.tolist()


def interleaved(count, packages, first=0, backwards=False):
    passes = [np.arange((first + k) % packages, count, packages) for k in range(packages)]
    return np.concatenate([one[::-1] if backwards else one for one in passes])


@pytest.mark.parametrize(("packages", "backwards"), [(2, True), (3, False), (4, True)])
def test_a_pass_over_the_head_is_a_package(packages, backwards):
    count = 6 * packages + 1
    said = by_times(times(count, interleaved(count, packages, backwards=backwards)))
    assert said == "".join(str(k % packages) for k in range(count))


def test_the_package_that_was_acquired_first_comes_first():
    assert by_times(times(9, interleaved(9, 2, first=1))) == "101010101"
    assert by_times(times(15, interleaved(15, 3, first=2))) == "120120120120120"


def test_slices_of_a_package_may_have_one_time():
    assert by_times([0, 60, 120] * 5) == "012" * 5


@pytest.mark.parametrize(
    "unsaid",
    [
        pytest.param(list(range(12)), id="one after the other"),
        pytest.param([7.0] * 12, id="one time"),
        pytest.param(times(20, interleaved(20, 5)), id="more than four"),
        pytest.param(times(6, interleaved(6, 2)), id="few slices"),
        pytest.param([0, 1] * 5 + [np.nan], id="a time is missing"),
        pytest.param([0.0] * 4 + [1.0] * 4, id="one half after the other"),
        pytest.param(np.random.default_rng(0).permutation(20).tolist(), id="no order"),
        pytest.param([3.0], id="one slice"),
        pytest.param([], id="no slice"),
    ],
)
def test_times_that_say_no_packages(unsaid):
    assert by_times(unsaid) == ""


@pytest.mark.parametrize(("axis", "count"), [(0, 9), (1, 10), (2, 9)])
def test_even_slices_are_even_however_the_stack_is_stored(axis, count):
    stored, flipped = np.eye(4), np.diag(np.where(np.arange(4) == axis, -1.0, 1.0))
    assert even_and_odd(count, axis, stored) == ("01" * 5)[:count]
    assert even_and_odd(count, axis, flipped) == ("01" * 5)[:count][::-1]
    other = np.diag(np.where(np.arange(4) == (axis + 1) % 3, -1.0, 1.0))
    assert even_and_odd(count, axis, other) == ("01" * 5)[:count]


def test_packages_turn_with_their_slices():
    a = Acquisition.stack(0, 8, spacing=4.0, thickness=4.0, target=1.0, packages="01234567")
    assert a.moved((1, 2, 0), (0, 1)).packages == "01234567"
    assert a.moved((1, 2, 0), (2,)).packages == "76543210"


@pytest.mark.parametrize(
    ("order", "said"), [([0, 2, 4, 6, 8, 1, 3, 5, 7], "010101010"), ([0, 2, 4, 6, 8, 9, 1, 3, 5, 7], "")]
)
def test_a_package_has_at_most_one_slice_more_than_another(order, said):
    assert by_times(times(len(order), order)) == said
