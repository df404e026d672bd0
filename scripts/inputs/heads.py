"""Whose head: which scans are of one head. Their images then say whether they show one.

Standards say it: patient and study of DICOM and of sidecars, the subject of BIDS. Loose files have their folder, and in
it the first word of their names. Training's split asks the same of its files.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..files import stem
from .names import first_token, folder
from .scan import Scan

MOST = 40  # files of a head; a guide is looked for among all of them
Head = tuple[str, ...]


def heads(scans: Iterable[Scan]) -> dict[Any, Head]:
    """The head of each scan of one stack, by its source."""
    stated = {one.source: one.identity.head for one in scans}
    return stated | of_files(one for one, head in stated.items() if not head and isinstance(one, Path))


def of_files(paths: Iterable[Path]) -> dict[Path, Head]:
    """The heads of loose files: their folder, and in it the files that share a first token, where at least two do.

    Where all first tokens of a folder differ, it is of one head. No examination has more than `MOST` files: each of
    more is a head of its own.
    """
    folders: dict[Path, dict[Path, str]] = defaultdict(dict)
    for path in paths:
        folders[folder(path)][path] = first_token(stem(path.name)).casefold()
    found: dict[Path, Head] = {}
    for where, tokens in folders.items():
        counts = Counter(filter(None, tokens.values()))
        shared = max(counts.values(), default=0) > 1
        found |= {path: (str(where), token if shared else "") for path, token in tokens.items()}
    sizes = Counter(found.values())
    return {path: head if sizes[head] <= MOST else (*head, str(path)) for path, head in found.items()}
