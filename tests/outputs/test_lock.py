"""Folders that take no locks: runs work there, and say so."""

import errno
import fcntl
import os

import pytest

from scripts.outputs.lock import _warn, alone
from tests.cohort_files import hidden, outcomes


@pytest.fixture
def flock_fails(monkeypatch):
    """A file system that knows no flock, as the kernel tells it."""

    def with_error(number):
        def flock(*_):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", flock)
        _warn.cache_clear()

    return with_error


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_cohort_is_rebuilt_where_no_locks_are_and_one_line_says_so(number, flock_fails, folder, bundle, log):
    flock_fails(number)
    bundle(folder)
    assert outcomes(bundle.out) == ["rebuilt"] * 3 and hidden(bundle.out) == []
    assert log.text.count(f"takes no locks ({os.strerror(number)})") == 1


def test_another_error_of_the_disk_is_one(flock_fails, tmp_path):
    flock_fails(errno.EIO)
    with pytest.raises(OSError, match="Input/output error") as caught, alone(tmp_path / "a"):
        pass
    assert caught.value.filename == str(tmp_path), "the folder, not the lock's file"


def test_jobs_are_refused_where_they_would_do_the_same_scans(flock_fails, folder, bundle, refusal):
    flock_fails(errno.ENOLCK)
    assert "takes no locks: expected 1. Leave out --jobs" in refusal(bundle, folder, jobs=2)
