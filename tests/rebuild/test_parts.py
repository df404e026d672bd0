"""A long rebuild says which part is at work: in a file by a line a minute, which is a shorter time here."""

import re
import threading
import time

import pytest

from scripts.rebuild import progress
from scripts.rebuild.progress import part


@pytest.fixture
def pause(monkeypatch):
    monkeypatch.setattr(progress, "PAUSE", 0.1)
    monkeypatch.setattr(progress, "_told", time.monotonic())


def until(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_line_has_the_part_and_how_far_it_is(pause, log):
    with part("planes", 7) as count:
        count(2), count(1)
        until(lambda: "planes: 3 of 7" in log.text)
        count(4)
        until(lambda: "planes: 7 of 7" in log.text)
    assert all(re.fullmatch(r"planes: \d of 7, for \d+ s\.", line) for line in log.messages)


def test_short_parts_share_a_line(pause, log):
    start = time.monotonic()
    for _ in range(5):
        with part("planes"):
            time.sleep(0.04)  # less than the pause
    assert len(log.messages) <= 1 + (time.monotonic() - start) / progress.PAUSE
    with part("planes"):
        until(lambda: log.messages)
    assert log.messages[0].startswith("planes, for")


def test_a_part_that_is_not_wanted_says_nothing(pause, log):
    with part("planes", 7, wanted=False) as count:
        count(1)
        time.sleep(0.15)
    assert log.messages == []


def test_a_part_that_has_ended_says_nothing(monkeypatch, log):
    monkeypatch.setattr(progress, "PAUSE", 60.0)
    monkeypatch.setattr(progress, "_told", time.monotonic())
    with pytest.raises(KeyError), part("planes", 7):
        raise KeyError
    assert log.messages == [] and "progress" not in {thread.name for thread in threading.enumerate()}
