"""Several scans at once on one machine: processes that share out its cores, each with a network of its own."""

from __future__ import annotations

import copy
import logging
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from logging.handlers import QueueHandler, QueueListener
from typing import Any

import torch
from filelock import Timeout

from ..errors import InputError

logger = logging.getLogger("drift")
_work: Callable[..., dict]  # of a worker process
_stopped = False  # by Ctrl-C; the same


class _Tell(logging.Handler):
    """Hands messages of workers to the logger of this process."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger(record.name).handle(record)


def _end_with_parent() -> None:
    """Ends a worker whose parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _begin(pickled: bytes, threads: int, messages: Any) -> None:
    """Makes a process a worker."""
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # while it waits: the parent ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    logger.setLevel(logging.INFO)
    logger.addHandler(QueueHandler(messages))
    logger.propagate = False
    rebuild_scan, parts = pickle.loads(pickled)

    def work(item: Mapping, wait: bool) -> dict:
        return rebuild_scan(item, *parts, wait=wait)

    _work = work


def _rebuild(item: Mapping, wait: bool) -> dict:
    global _stopped
    if _stopped:  # the pool hands on what it had fetched
        raise KeyboardInterrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return _work(item, wait)
    except KeyboardInterrupt:
        _stopped = True
        raise
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def in_processes(
    rebuild_scan: Callable[..., dict], parts: Sequence[Any], items: Sequence[Mapping], jobs: int
) -> Iterator[tuple[int, dict]]:
    """Rebuilds scans in worker processes, as many at once as there are workers.

    The threads of this process are shared out among them. A scan that another run is at comes again at the end.

    Args:
        rebuild_scan: `scan.rebuild_scan`.
        parts: what it takes beside the item.
        items: of `scans.scans`.
        jobs: number of workers.

    Yields:
        (index of the item, its row), in the order in which scans are done.

    Raises:
        InputError: if a worker dies.
    """
    preprocessing, network, inferer, *others = parts
    inferer = copy.copy(inferer)
    inferer.progress = False  # one bar is enough
    pickled = pickle.dumps((rebuild_scan, (preprocessing, network, inferer, *others)))
    context = multiprocessing.get_context("forkserver")  # a plain fork would copy threads that hold locks
    context.set_forkserver_preload(["monai.bundle"])  # once, not in each worker
    messages = context.Queue()
    listener = QueueListener(messages, _Tell())
    threads = max(1, torch.get_num_threads() // jobs)
    with ProcessPoolExecutor(jobs, context, _begin, (pickled, threads, messages)) as pool:
        listener.start()
        try:
            waiting = list(range(len(items)))
            for wait in (False, True):
                futures: dict[Future, int] = {pool.submit(_rebuild, items[index], wait): index for index in waiting}
                waiting = []
                for future in as_completed(futures):
                    try:
                        yield futures[future], future.result()
                    except Timeout:
                        logger.info(f"{items[futures[future]]['name']}: another run is at it. Its turn comes again.")
                        waiting.append(futures[future])
        except BrokenProcessPool as error:
            raise InputError(
                f"one of {jobs} jobs died, perhaps for want of memory. Run the same command with fewer --jobs."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
            listener.stop()
