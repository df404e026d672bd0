"""Several scans at once on one machine: the command starts itself again, and each takes scans that no other is at."""

import _thread
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..errors import InputError

JOB = "DRIFT_JOB"  # the environment of a command that another one has started


@contextmanager
def started_again(times: int) -> Iterator[None]:
    """Runs the command of this process so many more times, beside the block. Work that is not done at its end is left.

    The threads of this process are shared out among all. The others are silent. Another program is not run again.
    """
    words = sys.argv[1:]
    typed = any(word.startswith("--jobs") for word in words) and sys.orig_argv[-len(words) :] == words
    if not typed:
        raise InputError("jobs start the command again: expected --jobs in a command line. Leave it out elsewhere.")
    threads = max(1, torch.get_num_threads() // (times + 1))
    torch.set_num_threads(threads)
    others = [
        subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]],
            env={**os.environ, JOB: "1", "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(times)
    ]
    try:
        yield
    finally:
        for one in others:
            one.stdin.close()  # type: ignore[union-attr]  # it ends with that, see `end_with_the_other`


def end_with_the_other() -> None:
    """From now on this command is interrupted as soon as the one that has started it ends or is killed."""

    def wait() -> None:
        sys.stdin.read()
        _thread.interrupt_main()

    signal.signal(signal.SIGINT, signal.default_int_handler)  # behind nohup and & it is ignored
    threading.Thread(target=wait, daemon=True).start()
