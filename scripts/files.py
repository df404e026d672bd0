"""Files: which ones hold volumes, ones that are complete or absent, hashes, and those of installed packages."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

NIFTI = (".nii", ".nii.gz")
ITK = (".nrrd", ".nhdr", ".mha", ".mhd")  # read by ITK
ANALYZE = (".hdr", ".img")  # a pair of header and voxels, of Analyze 7.5 or NIfTI
VOLUMES = (*NIFTI, ".mgz", ".mgh", *ANALYZE, *ITK)


def stem(name: str) -> str:
    """A volume file's name without its ending."""
    for ending in sorted(VOLUMES, key=len, reverse=True):
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


@contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary path in the same folder, renamed to `path` if the block succeeds and removed if it does not.

    Args:
        path: file to write; its folder is made if missing.

    Yields:
        The path to write to; it ends like `path`, which tells many writers the format.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def remove_partials(stem: Path) -> None:
    """Removes what killed processes had begun to write with `whole_file` of a result, which no other process may be at.

    Args:
        stem: path of the result without its ending.
    """
    begun = re.compile(rf"\.\d+-{re.escape(stem.name)}\.(nii\.gz|json|html)")
    for path in [path for path in stem.parent.iterdir() if begun.fullmatch(path.name)]:
        path.unlink()


def sha256(paths: Sequence[str | os.PathLike]) -> str:
    """Hash of the files' content, in their order."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def installed_file(package: str, path: str) -> Path | None:
    """A file of an installed package, which is not imported; null where the package or the file is not there.

    Args:
        package: as it was installed by name.
        path: of the file, as the package has it.
    """
    try:
        file = Path(str(metadata.distribution(package).locate_file(path)))
    except metadata.PackageNotFoundError:
        return None
    return file if file.is_file() else None
