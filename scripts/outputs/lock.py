"""How runs at once keep out of each other's way."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock


@contextmanager
def alone(path: Path, wait: bool = True) -> Iterator[None]:
    """Keeps other processes off a file or a result while the block runs. A process that dies lets go of it.

    Args:
        path: file, or result without its ending. Its folder is made if missing.
        wait: for another process that has it; else there is a `filelock.Timeout`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock"), blocking=wait) as lock:
        try:
            yield
        finally:
            with suppress(PermissionError):  # Windows keeps a file that is open; there the release removes it
                Path(lock.lock_file).unlink(missing_ok=True)  # before it: whoever waits sees it, and makes another
