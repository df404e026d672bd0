"""BIDS as a source: which files of a dataset are anatomical scans, and the facts of their sidecars.

Gorgolewski et al., Sci. Data 3:160044 (2016).
"""

import csv
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import NIFTI, ends_as, stem, unfetched, walk
from ..stack.packages import by_times
from ..stack.settle import NAMES
from . import kinds
from .names import folder as own_folder

DESCRIPTION = "dataset_description.json"
REPORTS = "logs"  # the folder of a dataset for what BIDS does not know
SUBJECT = re.compile(r"(sub-[A-Za-z0-9]+)(?:_(ses-[A-Za-z0-9]+))?(?=_|$)")  # begins a name
SESSION = re.compile(r"ses-[A-Za-z0-9]+")
ELSEWHERE = "of a dataset the scans in the subjects' anat folders are taken"


def dataset_root(path: str | os.PathLike) -> Path | None:
    """Root of the BIDS dataset that a file or folder belongs to; None outside of one."""
    path = Path(path).absolute()
    return next((folder for folder in (path, *path.parents) if (folder / DESCRIPTION).is_file()), None)


def place(path: str | os.PathLike) -> tuple[Path | None, str, str]:
    """The folder of a file's subject, the subject and its session, `sub-01` and `ses-1`; None and empty without one.

    Folders of a dataset say it, or a name as BIDS has it, and the folders that it lies in.
    """
    path = Path(path).absolute()
    root, folders, named = dataset_root(path), list(path.parents[:3]), SUBJECT.match(stem(path.name))
    if root is not None:
        folders, named = [one for one in path.parents if one.is_relative_to(root) and one != root], None
    of = next((one for one in folders if SUBJECT.fullmatch(one.name)), None)
    visit = next((one.name for one in folders if SESSION.fullmatch(one.name)), "")
    if named is not None:
        above = own_folder(path) if of is None or of.name != named[1] else of.parent
        return above, named[1], named[2] or visit
    return (None, "", "") if of is None else (of.parent, of.name, visit)


def session_date(path: str | os.PathLike) -> date | None:
    """Date of a scan's session by the tables of its subject; None where none says it."""
    root, subject, session = place(path)
    if root is None:
        return None
    name, own = Path(path).absolute(), root / subject
    for table in (*(own / session).glob("*_scans.tsv"), *own.glob("*_scans.tsv"), *own.glob("*_sessions.tsv")):
        with suppress(OSError, UnicodeDecodeError, csv.Error):
            for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines(), delimiter="\t"):
                its = row.get("session_id") == session or table.parent / (row.get("filename") or ".") == name
                if its and (found := day(row.get("acq_time"))):
                    return found
    return None


def day(said: Any) -> date | None:
    """The date of a text that begins with year, month and day; None of anything else."""
    with suppress(ValueError):
        return date.fromisoformat(re.sub(r"[^0-9]", "", str(said)[:10])[:8])
    return None


def by_drift(folder: str | os.PathLike) -> bool:
    """Whether a folder is a dataset that DRIFT wrote."""
    tools = description(Path(folder)).get("GeneratedBy")
    return isinstance(tools, list) and any(isinstance(tool, dict) and tool.get("Name") == "DRIFT" for tool in tools)


def reports(folder: Path, dataset: bool = False) -> Path:
    """The folder of log, summary and pages of a folder of results.

    In a dataset, one that is to be or that DRIFT wrote, it is `REPORTS`: validators leave that alone.
    """
    return folder / REPORTS if dataset or by_drift(folder) else folder


def volumes(root: Path) -> list[tuple[Path, str | None]]:
    """NIfTI files of a dataset's subjects, sorted, each with the reason why it is no anatomical scan, or None."""
    ignored, found = _ignored(root), list[tuple[Path, str | None]]()
    for folder, folders, names in walk(root):
        if folder == root:
            folders[:] = [name for name in folders if name.startswith("sub-")]
            continue
        for name in (*folders, *names):  # a folder that is named as a scan is refused when its turn comes
            path, (entities, suffix), why = folder / name, _parts(stem(name)), None
            if folder.name != "anat" or not name.startswith("sub-"):
                why = ELSEWHERE
            elif ignored(path.relative_to(root).as_posix()):
                why = "a line of the dataset's .bidsignore names it"
            elif kinds.NOT_MAGNITUDE & entities:
                why = "phase, real or imaginary images, not magnitude"
            elif suffix not in kinds.WEIGHTED:
                why = f"{suffix} is none of the suffixes that are taken: {', '.join(sorted(kinds.WEIGHTED))}"
            if ends_as(name, NIFTI):
                found.append((path, why))
    return sorted(found)


def _ignored(root: Path) -> Callable[[str], bool]:
    """A test whether a dataset's `.bidsignore`, in the syntax of gitignore, names a path, relative to its root."""
    path = root / ".bidsignore"
    if not path.is_file():
        return lambda name: False
    from pathspec import GitIgnoreSpec  # here, because hosts need it only for such datasets

    try:
        return GitIgnoreSpec.from_lines(path.read_text(encoding="utf-8").splitlines()).match_file
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}). Mend it, or remove it.") from error


def _parts(name: str) -> tuple[set[str], str]:
    """Entities, such as `sub-01`, and suffix, such as `T2w`, of a file name without its ending."""
    *entities, suffix = name.split("_")
    return set(entities), suffix


def contrast(name: str) -> tuple[str, ...]:
    """Suffix and entities that are of one contrast, of a file name; runs and labels of an acquisition differ within it.

    >>> contrast("sub-01_ses-2_acq-ax_ce-gd_run-1_T1w.nii.gz")
    ('T1w', 'ce-gd')
    """
    entities, suffix = _parts(stem(name))
    return suffix, *sorted(one for one in entities if one.split("-")[0] not in ("sub", "ses", "acq", "run"))


def derivative_name(name: str) -> str:
    """Name of a scan's derivative without its ending. A name has one description: BIDS allows no second one.

    >>> [derivative_name(name) for name in ("sub-01_T2w.nii.gz", "sub-01_desc-preproc_T2w.nii.gz")]
    ['sub-01_desc-sr_T2w', 'sub-01_desc-preprocsr_T2w']
    """
    *entities, suffix = stem(name).split("_")
    label = next((one for one in entities if one.startswith("desc-")), "desc-")
    return "_".join([*(one for one in entities if one != label), f"{label}sr", suffix])


def sidecars(path: str | os.PathLike) -> list[Path]:
    """JSON sidecars of a scan, the nearest first.

    In a BIDS dataset it inherits sidecars of upper folders that have its suffix and no entity that it lacks: `T2w.json`
    at the root speaks of `sub-01/anat/sub-01_acq-tse_T2w.nii.gz`.
    """
    path, root = Path(path), dataset_root(path)
    own = path.with_name(stem(path.name) + ".json")
    found = [own] if own.is_file() or own.is_symlink() else []
    entities, suffix = _parts(stem(path.name))
    for folder in (one for one in path.absolute().parents if root is not None and one.is_relative_to(root)):
        for candidate in sorted(folder.glob(f"*{suffix}.json")):
            theirs, kind = _parts(candidate.stem)
            if kind == suffix and theirs <= entities and candidate.is_file() and candidate not in found:
                found.append(candidate)
    return found


def _content(path: Path) -> dict[str, Any]:
    """A sidecar's fields. Lists of one number, as of one for each slice, become that number."""
    try:
        content = path.read_bytes()
        try:
            fields = json.loads(content).items()  # in Unicode, with a byte-order mark or without one
        except UnicodeDecodeError:
            fields = json.loads(content.decode("latin-1")).items()  # as older converters write
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        mend = unfetched(path) or "Mend it, or remove it."
        raise InputError(f"{path} cannot be read ({error}). {mend}") from error
    return {name: value[0] if _numbers(value) and len(set(value)) == 1 else value for name, value in fields}


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) in (int, float) for one in value)


def sidecar_value(path: str | os.PathLike, name: str) -> tuple[Any, Path | None]:
    """A field's value in the nearest sidecar that has it, and that sidecar; None and None where none has."""
    said = ((_content(one).get(name), one) for one in sidecars(path))
    return next((found for found in said if found[0] is not None), (None, None))


def beside(path: str | os.PathLike) -> dict[str, Any]:
    """The facts of a scan's slices that its sidecars say.

    Returns:
        `slice_thickness` and `slice_spacing`, each as it stands there, and its source; `packages`: the array axis along
        which `SliceTiming` counts, the packages by `packages.by_times`, and the source; `broken`: why a sidecar cannot
        be read. `SliceEncodingDirection` is `k` where nothing else is said; `k-` counts the slices from the last one.
    """
    found = dict[str, Any]()
    try:
        for fact, name in NAMES.items():
            value, source = sidecar_value(path, name)
            found |= {} if source is None else {fact: (value, f"the sidecar {source.name}")}
    except InputError as error:
        found["broken"] = str(error)
    with suppress(InputError):  # which was said of the lengths
        times, source = sidecar_value(path, "SliceTiming")
        direction = str(sidecar_value(path, "SliceEncodingDirection")[0] or "k")
        if source is not None and _numbers(times) and direction[0] in "ijk":
            packages = by_times(times[::-1] if direction[1:] == "-" else times)
            found["packages"] = ("ijk".index(direction[0]), packages, f"SliceTiming of the sidecar {source.name}")
    return found


def sidecar(path: str | os.PathLike) -> dict[str, Any]:
    """All that the sidecars of a scan say; the nearest wins. A broken one says nothing, until it is read."""
    said = dict[str, Any]()
    for one in reversed(sidecars(path)):
        with suppress(InputError):
            said |= {name: value for name, value in _content(one).items() if value is not None}
    return said


def description(root: Path) -> dict[str, Any]:
    """Content of a dataset's `dataset_description.json`; empty if it is missing or cannot be read."""
    try:
        content = json.loads((root / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
