"""Which scans to rebuild: files, folders, BIDS datasets and DICOM series, and where each result goes."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..errors import InputError, few, flag, logger, name_below, printable
from ..files import ITK, VOLUMES, ends_as, stem, walk
from ..stack.acquisition import ALREADY_THIN
from . import bids, dicom
from .examination import grouped, say_what_could_guide, with_candidates
from .exclusion import dull, looked_at, needless
from .readers import data_file, pair
from .sample import built_in_sample
from .scan import Candidate, Scan
from .selection import Selection


class Found(NamedTuple):
    """A scan that was found: its name for the user's patterns, its BIDS labels, and why it is not rebuilt, if known."""

    scan: Scan
    name: str
    labels: Sequence[str] = ()
    skipped: str = ""


def _taken(found: Sequence[Found], selection: Selection) -> list[Scan]:
    """The scans that are rebuilt. The others are logged with the reason; sharp and unwanted ones may guide."""
    taken = []
    with logging_redirect_tqdm():
        for scan, name, labels, why in tqdm(found, desc="looking", unit="scan", leave=False, delay=1, disable=None):
            if (wanted := selection.takes(name, labels)) and not why:
                answer, why = looked_at(scan.source, selection.thin, selection.asks_for(name), name)
                if answer != "none":
                    taken.append(replace(scan, doubt=why))
                    continue
            thin = why.startswith(ALREADY_THIN)
            if (not why or thin) and not selection.shuts_out(name):
                selection.candidates.append(scan)
            if wanted:
                selection.skip(scan.name, why + (dull(scan) if thin else ""))
    return taken


def _volume(path: Path, result: Path) -> Scan:
    data: list[Path | None] = []
    if ends_as(path, ITK):
        with suppress(InputError, OSError):  # which the reader says
            data = [data_file(path)]
    files = (*pair(path), *(one for one in (*data, *bids.sidecars(path)) if one and one.is_file()))
    return Scan(printable(str(path)), path, files, result)


def _series(series: dicom.Series, result: Path) -> Scan:
    return Scan(series.name, series, tuple(sorted({path for path, _ in series.images}, key=str)), result)


def _result(output_dir: Path, path: Path) -> Path:
    return output_dir / path.with_name(f"{stem(path.name)}_sr")


def _dicom(source: Path | Sequence[Path], output_dir: Path, selection: Selection, longest_part: bool) -> list[Scan]:
    found = []
    for one in dicom.find_series(source, longest_part, selection.asks_for):
        found.append(Found(_series(one, output_dir / f"{one.name}_sr"), one.name, skipped=one.skipped or ""))
    return _taken(found, selection)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError as error:
        raise InputError(f"{folder} cannot be read ({error.strerror}). Ask for the right to read it.") from error


def _folder(root: Path, output_dir: Path, selection: Selection, longest_part: bool) -> list[Scan]:
    """The thick scans and DICOM series in a folder, at any depth, without results of earlier runs."""
    found = []
    for folder, folders, names in walk(
        root, lambda error: logger.warning(f"{error.filename} is left out: it cannot be read ({error.strerror}).")
    ):
        for written in [name for name in folders if bids.by_drift(folder / name)]:
            logger.info(f"{folder / written} is skipped: it is a dataset of results that DRIFT wrote.")
            folders.remove(written)
        for path in (folder / name for name in names if ends_as(name, VOLUMES)):
            name = path.relative_to(root)
            if stem(path.name).endswith(("_sr", "_sr_error")):
                logger.info(f"{path} is skipped: its name ends in _sr, as those of results do.")
            elif pair(path)[0] == path:
                found.append(Found(_volume(path, _result(output_dir, name)), name.as_posix()))
    return _taken(found, selection) + _dicom(root, output_dir, selection, longest_part)


def _dataset(root: Path, output_dir: Path, selection: Selection) -> list[Scan]:
    if output_dir.resolve() == root.resolve():
        raise InputError(
            f"output_dir {output_dir} is the dataset itself: expected a folder of its own. Choose one such as "
            f"{root / 'derivatives' / 'drift'}."
        )
    found, elsewhere = [], []
    for path, reason in bids.volumes(root):
        name = path.relative_to(root)
        if reason == bids.ELSEWHERE:
            elsewhere.append(path)
        else:
            result = output_dir / name.with_name(bids.derivative_name(path.name))
            found.append(Found(_volume(path, result), name.as_posix(), name.parts[:2], reason or ""))
    if elsewhere:
        logger.info(f"Left out, since {bids.ELSEWHERE}: {few(elsewhere)}.")
    taken: dict[Path, Scan] = {}
    for scan in _taken(found, selection):
        if first := taken.get(scan.result):
            selection.skip(scan.name, f"it would have the result of {first.name}. Remove one of them")
        else:
            reports = output_dir / bids.REPORTS / scan.result.parent.relative_to(output_dir)
            taken[scan.result] = replace(scan, dataset=root.absolute(), reports=reports)
    return list(taken.values())


def _same(scan: Scan) -> str:
    """The name that a scan which was given twice has both times."""
    return scan.name if scan.path is None else os.path.abspath(scan.path)


def _shared(results: Iterable[Path]) -> list[Path]:
    return [result for result, count in Counter(results).items() if count > 1]


def _set_apart(scans: Sequence[Scan], roots: Sequence[Path], output_dir: Path) -> list[Scan]:
    """Gives each scan a result path of its own; DICOM series and scans of datasets keep theirs.

    Results of `a/T2.nii` and `b/T2.nii` become `a/T2_sr` and `b/T2_sr`, below the folder that `roots`, in which the
    scans were found, have in common. Results of one folder keep the endings: `T2.nii_sr` and `T2.mgz_sr`.
    """
    results = {scan: scan.result for scan in scans}
    loose = {scan: scan.path for scan in scans if scan.path and scan.dataset is None}
    if roots and _shared(results.values()):
        common = os.path.commonpath([os.path.abspath(root) for root in roots])
        results |= {scan: _result(output_dir, Path(os.path.relpath(path, common))) for scan, path in loose.items()}
    shared = _shared(results.values())
    results |= {one: results[one].with_name(f"{path.name}_sr") for one, path in loose.items() if results[one] in shared}
    return [replace(scan, result=result) for scan, result in results.items()]


def takes_longest_part(missing_slices: str) -> bool:
    """Whether a DICOM series that lacks slices is rebuilt in part, as the option says."""
    if missing_slices not in ("refuse", "longest"):
        raise InputError(f"missing_slices is {missing_slices!r}: expected refuse or longest. Set --missing_slices.")
    return missing_slices == "longest"


def scans(
    source: str | os.PathLike | Sequence[str | os.PathLike] | None,
    output_dir: str | os.PathLike,
    selection: Selection,
    missing_slices: str = "refuse",
    dry_run: bool | str = False,
    together: bool = False,
    reference: str | os.PathLike | None = None,
    guide: str | os.PathLike | None = None,
) -> list[Scan]:
    """Thick-slice scans to rebuild.

    A scan that is given by name is always taken. In folders thin scans (`acquisition.is_thin`), 4-D series, masks
    and label maps are skipped with a line that says why.

    Args:
        source: a scan (`files.VOLUMES`); a folder of scans and DICOM series, searched at any depth, without results of
            earlier runs; a BIDS dataset, of which the anatomical scans are taken; a list of these and of DICOM files;
            or null for the built-in sample, which is written to `output_dir` first.
        selection: which of them are wanted; it remembers the skipped ones.
        missing_slices: `"refuse"` a DICOM series that lacks slices when it is read, or take its `"longest"` part.
        dry_run: unless it is false, nothing may be written, the sample neither.
        together: stacks of one head and contrast are one scan; `reference` names the one that gives grid and units.
        guide: a scan of another contrast of the same head, which guides all of them; `"auto"` for the best one that was
            found beside each; null for none.
    """
    folder, longest_part = Path(output_dir), takes_longest_part(missing_slices)
    together, selection.listed = flag("together", together), str(dry_run).lower() != "false"
    if reference is not None and not together:
        raise InputError("--reference names one of several stacks that make one volume. Add --together.")
    if source is None:
        if selection.listed:
            raise InputError("--dry_run lists the scans of --input, and there is none. Set it to a scan or a folder.")
        selection.check()
        return [built_in_sample(output_dir)]
    given: list[str | os.PathLike] = list(source) if isinstance(source, list | tuple) else [source]  # type: ignore
    if "" in given:
        raise InputError("--input is empty: expected a scan, a folder, or a list of them. Leave it out for the sample.")
    name_below(given)
    groups, roots, files = list[list[Scan]](), list[Path](), list[Path]()
    for path in map(Path, map(str, given)):
        if path.is_dir() and bids.DESCRIPTION in _names(path):
            groups.append(_dataset(path, folder, selection))
        elif path.is_dir():
            groups.append(_folder(path, folder, selection, longest_part))
            roots.append(path)
        elif not path.is_file():
            raise InputError(f"{path} does not exist. Set the input to a scan, a folder, or a list of them.")
        elif ends_as(path, VOLUMES):
            path = pair(path)[0]
            groups.append([_volume(path, _result(folder, Path(path.name)))] if selection.takes(path.name) else [])
            roots.append(path.parent)
        elif dicom.is_dicom(path):
            files.append(path)
        else:
            raise InputError(
                f"{path} is no scan that can be read: expected a name ending in {', '.join(VOLUMES)}, or DICOM. "
                "Unpack or convert it first."
            )
    each_one_scan = not files and all(len(group) == 1 for group in groups)
    if files:
        groups.append(_dicom(files, folder, selection, longest_part))
    found = [scan for group in groups for scan in group]
    selection.check()
    if not found:
        if selection.listed:  # there is no table
            for name, reason in selection.skipped:
                logger.info(f"{name} is skipped: {reason}.")
        expected = f"no thick-slice scan was found. Expected files ending in {', '.join(VOLUMES)}, or DICOM series."
        why = [f"{name} is skipped: {reason}." for name, reason in selection.skipped[:1]]
        raise InputError(" ".join([f"{', '.join(map(str, given))}: {expected}", *why]))
    once = list({_same(scan): scan for scan in reversed(found)}.values())[::-1]
    result = _set_apart(once, roots, folder)
    if together:
        result = grouped(result, each_one_scan and len(result) > 1, None if reference is None else str(reference))
    for shared in _shared([scan.result for scan in result]):
        first, second, *_ = (scan.name for scan in result if scan.result == shared)
        raise InputError(f"{first} and {second} would have one result, {shared}. Rename one of them.")
    if str(guide).lower() in ("auto", "true"):
        return with_candidates(result, selection.candidates)
    if guide is None:
        say_what_could_guide(result, selection.candidates)
        return result
    one = scan_named(guide, "--guide", None, longest_part)
    return [scan if _same(scan) == _same(one) else replace(scan, guides=(Candidate(one),)) for scan in result]


def scan_named(name: str | os.PathLike, option: str, thin: float | None = None, longest_part: bool = False) -> Scan:
    """The scan that an option names: a file, or a folder with one DICOM series, thick unless `thin` is None."""
    path = Path(name)
    if path.is_file() and ends_as(path, VOLUMES):
        return _volume(pair(path)[0], path)
    if not os.fspath(name) or not path.exists():
        raise InputError(f"{os.fspath(name)!r} does not exist. Set {option} to a scan, or to a folder with one series.")
    found = dicom.find_series(path if path.is_dir() else [path], longest_part)
    taken = [one for one in found if not (one.skipped or (thin is not None and needless(one, thin)))]
    if len(taken) != 1:
        what, names = "DICOM" if thin is None else "thick DICOM", ", ".join(one.name for one in taken) or "none"
        raise InputError(
            f"{path} holds {len(taken)} {what} series ({names}): expected one. Set {option} to the folder of one."
        )
    return _series(taken[0], path)
