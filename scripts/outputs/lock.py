"""How runs at once keep out of each other's way."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import logger

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # of file systems without flock: some NFS, Lustre, FUSE


@contextmanager
def alone(path: Path, wait: bool = True) -> Iterator[bool]:
    """Keeps other processes off a file or a result while the block runs. A process that dies lets go of it.

    A folder that takes no locks keeps nobody off. A warning says so, once, and the block runs.

    Args:
        path: file, or result without its ending. Its folder is made if missing.
        wait: for another process that has it; else there is a `filelock.Timeout`.

    Yields:
        Whether other processes are kept off.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"), blocking=wait, fallback_to_soft=False)
    locked = True
    try:
        lock.acquire()
    except Timeout:
        raise
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in NO_LOCKS:
            raise OSError(error.errno, error.strerror, str(path.parent)) from error  # people know no lock file
        _warn(str(getattr(error, "strerror", None) or error))
        locked = False
    try:
        yield locked
    finally:
        with suppress(PermissionError):  # Windows keeps a file that is open; there the release removes it
            Path(lock.lock_file).unlink(missing_ok=True)  # before it: whoever waits sees it, and makes another
        lock.release()


@cache
def _warn(why: str) -> None:
    """Says once in a process that there are no locks."""
    logger.warning(
        f"The folder of results takes no locks ({why}). This run works without: start no second one into the folder "
        "before it ends."
    )
