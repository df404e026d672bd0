"""Files: names of volumes, contents of folders, files that are complete or absent, hashes."""

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import InputError

NIFTI = (".nii", ".nii.gz")
ITK = (".nrrd", ".nhdr", ".mha", ".mhd")  # read by ITK
ANALYZE = (".hdr", ".img")  # a pair of header and voxels, of NIfTI or, refused, Analyze 7.5
VOLUMES = (*NIFTI, ".mgz", ".mgh", *ANALYZE, *ITK)


def ends_as(name: str | os.PathLike, endings: tuple[str, ...]) -> bool:
    """Whether a file's name has one of these endings, in small letters or capitals."""
    return os.fspath(name).lower().endswith(endings)


def stem(name: str) -> str:
    """A volume file's name without its ending: `a.b.NII.GZ` becomes `a.b`."""
    ending = max((one for one in VOLUMES if name.lower().endswith(one)), key=len, default="")
    return name[: len(name) - len(ending)]


def walk(
    root: str | os.PathLike, onerror: Callable[[OSError], object] | None = None
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Folders as `os.walk` yields them, in the order of names, without hidden ones.

    Links to folders are followed, after the folders themselves. A folder that several ways lead to comes once. A link
    to a folder that holds the link is not followed.
    """
    seen, waiting = set(), [Path(root)]
    while waiting:
        for place, folders, names in os.walk(waiting.pop(0), onerror=onerror):
            folder, real = Path(place), Path(os.path.realpath(place))
            if real in seen:
                folders.clear()
                continue
            seen.add(real)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield folder, folders, sorted(name for name in names if not name.startswith("."))
            links = [folder / name for name in folders if (folder / name).is_symlink()]
            waiting += [link for link in links if not real.is_relative_to(os.path.realpath(link))]


def check_ours(path: str | os.PathLike, ours: bool) -> None:
    """Refuses to write a file or folder unless it is `ours`: missing yet, or written by DRIFT."""
    if not ours:
        raise InputError(f"{path} was not written by DRIFT, and would be lost. Move it, or choose another output_dir.")


@contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary path in the same folder. It is renamed to `path` if the block succeeds, else removed.

    It ends like `path`, since many writers take the format from the ending. The folder is made if missing.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{secrets.randbelow(10**12)}-{path.name}")  # two containers may have one process number
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def remove_partials(stem: Path) -> None:
    """Removes partial files of the result `stem`, which killed processes left. No process may be writing it."""
    begun = re.compile(rf"\.\d+-{re.escape(stem.name)}(_regions)?\.(nii\.gz|json|html|csv)")
    for path in list(stem.parent.glob(".*")):
        if begun.fullmatch(path.name):
            path.unlink()


def sha256(paths: Sequence[str | os.PathLike]) -> str:
    """Hash of the files' content, in their order."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def unfetched(path: Path) -> str:
    """The remedy for a file whose content is elsewhere, as DataLad and git-annex leave it; empty for another."""
    pointer = path.is_symlink() and not path.exists()
    if path.is_file() and path.stat().st_size < 1024:
        with suppress(OSError):
            pointer = path.read_bytes().startswith(b"/annex/objects/")
    return f"Its content was not fetched: datalad get {path.name}, or remove it." if pointer else ""
