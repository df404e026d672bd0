"""A long rebuild says which part is at work: in a file by a line a minute, which is a shorter time here."""

import time
from itertools import groupby

import pytest

from scripts.method.calibration import LEVELS, Calibration
from scripts.method.error_pattern import ErrorPatternNetwork
from scripts.rebuild import progress
from scripts.rebuild.error_map import ErrorMaps
from scripts.rebuild.progress import part, passing
from tests.fixtures import untrained
from tests.rebuild.test_motion import MOTIONS, beside, rebuilders, restless, turned


@pytest.fixture
def pause(monkeypatch):
    monkeypatch.setattr(progress, "PAUSE", 0.1)
    monkeypatch.setattr(progress, "_told", time.monotonic())


def test_a_line_has_the_part_and_how_far_it_is(pause, log):
    with part("planes", 7) as count:
        count(2), time.sleep(0.12), count(1)
        assert log.messages == ["planes: 3 of 7, for 0 s."]
        time.sleep(0.12), count(4)
    assert log.messages[1:] == ["planes: 7 of 7, for 0 s."]


def test_short_parts_share_a_line(pause, log):
    start = time.monotonic()
    for _ in range(5):
        with part("planes", 1) as count:
            time.sleep(0.04)  # less than the pause
            count(1)
    assert 1 <= len(log.messages) <= 1 + (time.monotonic() - start) / progress.PAUSE


def test_a_part_that_is_not_wanted_says_nothing(pause, log):
    with part("planes", 7, wanted=False) as count:
        time.sleep(0.15)
        count(1)
    assert log.messages == []


def test_a_part_has_the_name_of_its_pass_and_hosts_hear_how_far_it_is(pause, log, monkeypatch):
    monkeypatch.setattr(progress, "watchers", heard := [])
    heard.append(lambda name, share: told.append((name, share)))
    told = []
    with passing("stack 1 of 2"), passing("a draft"), part("planes", 4) as count:
        time.sleep(0.12), count(1)
    with pytest.raises(ValueError, match="broken"), passing("a draft"):
        raise ValueError("broken")
    with part("reconciling"):
        pass
    assert log.messages == ["stack 1 of 2, a draft, planes: 1 of 4, for 0 s."]
    name = "stack 1 of 2, a draft, planes"
    assert told == [(name, 0.0), (name, 0.25), ("reconciling", 0.0)]


@pytest.fixture
def heard(monkeypatch):
    """Names of parts as a host hears them, each once, in their order."""
    names = []
    monkeypatch.setattr(progress, "watchers", [lambda name, share: names.append(name)])
    return lambda: [name for name, _ in groupby(names)]


def test_a_guided_rebuild_of_a_head_that_moved_names_its_passes(heard):
    network = untrained()
    network.error, calibration = ErrorPatternNetwork(), Calibration([4.0], [[list(LEVELS)]], (0.0, 0.0))
    maps = ErrorMaps(True, calibration=calibration)
    _, method = rebuilders(network=network, error_maps=maps, guide_share=0.3)
    measured, _, truth = restless(2, MOTIONS[2])
    method.guide_scan(turned().measured)
    rebuilt = method(measured, beside(truth))
    assert rebuilt.taken_back and rebuilt.error_map is not None
    passes = ["the guide", "a draft to find motion", "", "without the guide"]
    assert heard() == [f"{one}, reconciling".removeprefix(", ") for one in passes]


def test_stacks_of_one_head_name_their_passes(heard):
    _, method = rebuilders()
    _, moved = method.each([turned().measured, restless(2, MOTIONS[2])[0]], [None, None])
    assert moved.taken_back
    assert heard() == [
        "stack 1 of 2, reconciling",
        "stack 2 of 2, a draft to find motion, reconciling",
        "stack 2 of 2, reconciling",
        "registering",
        "once more, reconciling",
    ]
