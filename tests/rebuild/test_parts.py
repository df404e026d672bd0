"""A long rebuild says which part is at work: in a file by a line a minute, which is a shorter time here."""

import time

import pytest

from scripts.rebuild import progress
from scripts.rebuild.progress import part, passing


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
