"""A long rebuild says which part is at work: in a file by a line a minute, which is a shorter time here."""

import re
import time

import pytest

from scripts.rebuild import progress
from scripts.rebuild.progress import part


@pytest.fixture
def pause(monkeypatch):
    monkeypatch.setattr(progress, "PAUSE", 0.1)
    monkeypatch.setattr(progress, "_told", time.monotonic())


def test_a_line_has_the_part_and_how_far_it_is(pause, log):
    with part("planes", 7) as count:
        count(2), count(1)
        time.sleep(0.15)
        count(4)
        time.sleep(0.1)
    assert [re.sub(r"for \d+ s", "for 0 s", line) for line in log.messages] == [
        "planes: 3 of 7, for 0 s.",
        "planes: 7 of 7, for 0 s.",
    ]


def test_short_parts_share_a_line(pause, log):
    for _ in range(5):
        with part("planes"):
            time.sleep(0.04)  # less than the pause
    assert 1 <= len(log.messages) <= 3 and log.messages[0].startswith("planes, for")


def test_what_is_not_wanted_or_ended_says_nothing(pause, log):
    with part("planes", 7, wanted=False) as count:
        count(1)
        time.sleep(0.15)
    with pytest.raises(KeyError), part("planes", 7):
        raise KeyError
    time.sleep(0.15)
    assert log.messages == []
