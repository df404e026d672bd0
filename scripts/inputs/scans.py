"""Which scans to rebuild: files, folders, BIDS datasets and DICOM series, and where each result goes."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..errors import InputError, flag, printable
from ..files import ANALYZE, ITK, VOLUMES, ends_as, stem, walk
from ..stack.acquisition import is_thin
from ..stack.grid import voxel_spacing
from . import bids, dicom
from .groups import grouped
from .readers import ScanReader, data_file, header_file, is_header, no_volume
from .sample import built_in_sample
from .selection import Selection

logger = logging.getLogger("drift")

FEW_VALUES = 64  # whole numbers in a mask or a label map, at most; scans have more


def _label_count(image: Any) -> int | None:
    """How many values a mask or a label map holds; None for a scan, which one slice mostly tells."""
    for part in (image.shape[2] // 2, slice(None)):
        values = np.unique(image.dataobj[:, :, part])
        if len(values) > FEW_VALUES or not np.array_equal(values, np.rint(values)):
            return None
    return len(values)


def _unfit(path: Path, thin: float) -> str | None:
    """Why a volume of a folder is not rebuilt; None for scans, and for broken files, which fail when they are read.

    The name is looked at first, then the header. Voxels are read only where both leave it open.
    """
    if ends_as(path, ANALYZE) and not is_header(path):
        return "it is no header of a volume"
    if not bids.shows_anatomy(path.name):
        return (
            "its name says that it shows no anatomy but a mask, a map, or a functional, diffusion or perfusion series"
        )
    try:
        _, image = ScanReader().read(path)
        if why := no_volume(image):
            return f"it {why}"
        thickness, _ = bids.sidecar_value(path, "SliceThickness")
        _, pixel, spacing = sorted(map(float, voxel_spacing(image.affine)))
        if is_thin(spacing, None if thickness is None else float(thickness), pixel, thin):
            return f"thin or isotropic already: slices {spacing:.3g} mm apart, pixels of {pixel:.3g} mm"
        if count := _label_count(image):
            return f"a mask or a label map: it holds {count} whole numbers. Give it by name if it is a scan"
    except Exception as error:  # noqa: BLE001  # what is wrong with the file is said when it is read
        logger.debug(f"{path}: {error}")
    return None


def _fit(paths: Sequence[Path], thin: float, selection: Selection) -> list[Path]:
    """The volumes of a folder that are rebuilt. The others are logged with the reason."""
    fit = []
    with logging_redirect_tqdm():
        for path in tqdm(paths, desc="looking", unit="volume", leave=False, delay=1, disable=None):
            if reason := _unfit(path, thin):
                selection.skip(str(path), reason)
            else:
                fit.append(path)
    return fit


def _volume(path: Path, result: Path) -> dict:
    data: list[Path | None] = []
    if ends_as(path, (".hdr",)):  # SPM writes a .mat file beside the pair
        data = [path.with_suffix(ending) for ending in (".img", ".IMG", ".mat")]
    try:
        data += [data_file(path)] if ends_as(path, ITK) else []
    except InputError:  # which the reader says
        data = []
    sources = [path, *(one for one in data if one and one.is_file()), *bids.sidecars(path)]
    name, paths = printable(str(path)), [str(source) for source in sources]
    return {"image": str(path), "name": name, "sources": paths, "result": str(result)}


def _dicom(
    source: Path | Sequence[Path], output_dir: Path, thin: float, selection: Selection, longest_part: bool
) -> list[dict]:
    """The thick series among DICOM files. The others are logged with the reason."""
    items = []
    for one in dicom.find_series(source, thin, longest_part):
        if not selection.takes(one.name):
            continue
        if one.skipped:
            selection.skip(one.name, one.skipped)
            continue
        sources = sorted({str(path) for path, _ in one.images})
        result = str(output_dir / f"{one.name}_sr")
        items.append({"image": one, "name": one.name, "sources": sources, "result": result})
    return items


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError as error:
        raise InputError(f"{folder} cannot be read ({error.strerror}). Ask for the right to read it.") from error


def _folder(root: Path, output_dir: Path, thin: float, selection: Selection, longest_part: bool) -> list[dict]:
    """The thick scans and DICOM series in a folder, at any depth, without results of earlier runs."""

    def unreadable(error: OSError) -> None:
        logger.warning(f"{error.filename} is left out: it cannot be read ({error.strerror}).")

    wanted = []
    for folder, folders, names in walk(root, unreadable):
        for written in [name for name in folders if bids.by_drift(folder / name)]:
            logger.info(f"{folder / written} is skipped: it is a dataset of results that DRIFT wrote.")
            folders.remove(written)
        for path in (folder / name for name in names if ends_as(name, VOLUMES)):
            if stem(path.name).endswith(("_sr", "_sr_error")):
                logger.info(f"{path} is skipped: its name ends in _sr, as those of results do.")
            elif header_file(path) == path and selection.takes(path.relative_to(root).as_posix()):
                wanted.append(path)
    items = [
        _volume(path, output_dir / path.relative_to(root).with_name(f"{stem(path.name)}_sr"))
        for path in _fit(wanted, thin, selection)
    ]
    return items + _dicom(root, output_dir, thin, selection, longest_part)


def _dataset(root: Path, output_dir: Path, thin: float, selection: Selection) -> list[dict]:
    """The thick anatomical scans of a BIDS dataset."""
    if output_dir.resolve() == root.resolve():
        raise InputError(
            f"output_dir {output_dir} is the dataset itself: expected a folder of its own. Choose one such as "
            f"{root / 'derivatives' / 'drift'}."
        )
    wanted, elsewhere = [], []
    for path, reason in bids.volumes(root):
        name = path.relative_to(root)
        if reason == bids.ELSEWHERE:
            elsewhere.append(path)
        elif not selection.takes(name.as_posix(), name.parts[:2]):
            continue
        elif reason:
            selection.skip(str(path), reason)
        else:
            wanted.append(path)
    if elsewhere:
        logger.info(f"{len(elsewhere)} volumes such as {elsewhere[0]} are left out: {bids.ELSEWHERE}.")
    items: dict[Path, dict] = {}
    for path in _fit(wanted, thin, selection):
        result = output_dir / path.parent.relative_to(root) / bids.derivative_name(path.name)
        if result in items:
            selection.skip(str(path), f"it would have the result of {items[result]['name']}. Remove one of them")
        else:
            items[result] = {**_volume(path, result), "dataset": str(root.absolute())}
    return list(items.values())


def _identity(item: dict) -> str:
    """What the items of a scan share that was given twice."""
    return os.path.abspath(item["image"]) if isinstance(item["image"], str) else item["name"]


def _shared_results(items: Sequence[dict]) -> list[str]:
    counts = Counter(item["result"] for item in items)
    return [result for result, count in counts.items() if count > 1]


def _set_apart(items: Sequence[dict], roots: Sequence[Path], output_dir: Path) -> None:
    """Gives scans whose results would be one results of their own.

    The results then keep the names of the scans' folders, below the folder that all have in common: those of
    `a/T2.nii` and `b/T2.nii` become `a/T2_sr` and `b/T2_sr`. Those of one folder keep the endings: `T2.nii_sr` and
    `T2.mgz_sr`.

    Args:
        items: of scans; those that are no DICOM and of no dataset are changed.
        roots: folders that the volumes were found in.
        output_dir: of the results.

    Raises:
        InputError: if two results are still one.
    """
    volumes = [item for item in items if isinstance(item["image"], str) and "dataset" not in item]
    if volumes and _shared_results(items):
        common = os.path.commonpath([os.path.abspath(root) for root in roots])
        for item in volumes:
            path = Path(os.path.relpath(item["image"], common))
            item["result"] = str(output_dir / path.with_name(f"{stem(path.name)}_sr"))
    for result in _shared_results(items):
        for item in volumes:
            if item["result"] == result:
                item["result"] = str(Path(result).with_name(f"{Path(item['image']).name}_sr"))
    _check_results(items)


def _check_results(items: Sequence[dict]) -> None:
    """Refuses two scans with one result."""
    for result in _shared_results(items):
        first, second, *_ = (item["name"] for item in items if item["result"] == result)
        raise InputError(f"{first} and {second} would have one result, {result}. Rename one of them.")


def takes_longest_part(missing_slices: str) -> bool:
    """Whether a DICOM series that lacks slices is rebuilt in part, as the option says.

    Raises:
        InputError: if the option has another value.
    """
    if missing_slices not in ("refuse", "longest"):
        raise InputError(f"missing_slices is {missing_slices!r}: expected refuse or longest. Set --missing_slices.")
    return missing_slices == "longest"


def scans(
    source: str | os.PathLike | Sequence[str | os.PathLike] | None,
    output_dir: str | os.PathLike,
    thin: float,
    selection: Selection | None = None,
    missing_slices: str = "refuse",
    dry_run: bool | str = False,
    together: bool = False,
    reference: str | os.PathLike | None = None,
) -> list[dict]:
    """Thick-slice scans to rebuild.

    A scan that is given by name is always taken. Of what folders hold, thin scans (`acquisition.is_thin`), 4-D series,
    masks and label maps are skipped with a line that says why.

    Args:
        source: what to rebuild:

            - a scan: NIfTI, MGZ, Analyze, NRRD or MetaImage;
            - a folder of scans and DICOM series, searched at any depth, without results of earlier runs (`*_sr`,
              datasets that DRIFT wrote);
            - a BIDS dataset, of which the anatomical scans are taken;
            - a list of these and of DICOM files;
            - null for the built-in sample, which is written to `output_dir` first.
        output_dir: where results will go.
        thin: slices no thicker and no farther apart than this, in mm, need no rebuilding: the largest trained target.
        selection: which of them are wanted; None for all. It remembers what is skipped, and why.
        missing_slices: `"refuse"`, by which a DICOM series that lacks slices fails when it is read; or `"longest"`, by
            which its longest unbroken part is taken.
        dry_run: unless it is false, nothing may be written, the sample neither.
        together: stacks of one head and contrast are one item, see `groups.grouped`.
        reference: which of them gives grid, place and units; null for the first.

    Returns:
        Items with `image`, the path or the `dicom.Series`; `name`, for people; `sources`, all its files; `result`, the
        path of the result without its ending; for the sample `truth`, the path of the sharp volume; and for a BIDS
        dataset `dataset`, its root.

    Raises:
        InputError: if there is no such file or folder, no scan in it, none that is wanted, or two scans have one
            result.
    """
    folder, selection = Path(output_dir), selection or Selection()
    longest_part = takes_longest_part(missing_slices)
    together = flag("together", together)
    if reference is not None and not together:
        raise InputError("--reference names one of several stacks that make one volume. Add --together.")
    if source is None:
        if str(dry_run).lower() != "false":
            raise InputError("--dry_run lists the scans of --input, and there is none. Set it to a scan or a folder.")
        selection.check()
        return [built_in_sample(output_dir)]
    given = list(source) if isinstance(source, list | tuple) else [source]
    if "" in given:
        raise InputError("--input is empty: expected a scan, a folder, or a list of them. Leave it out for the sample.")
    found: list[dict] = []
    roots: list[Path] = []
    files: list[Path] = []
    ends: list[int] = []  # of what each path added to what was found
    for path in map(Path, map(str, given)):
        ends.append(len(found))
        if path.is_dir() and bids.DESCRIPTION in _names(path):
            found += _dataset(path, folder, thin, selection)
        elif path.is_dir():
            found += _folder(path, folder, thin, selection, longest_part)
            roots.append(path)
        elif not path.is_file():
            raise InputError(f"{path} does not exist. Set the input to a scan, a folder, or a list of them.")
        elif ends_as(path, VOLUMES):
            path = header_file(path)
            found += [_volume(path, folder / f"{stem(path.name)}_sr")] * selection.takes(path.name)
            roots.append(path.parent)
        elif dicom.is_dicom(path):
            files.append(path)
        else:
            raise InputError(
                f"{path} is no scan that can be read: expected a name ending in {', '.join(VOLUMES)}, or DICOM. Unpack "
                "or convert it first."
            )
    each_one_scan = not files and all(later - end == 1 for end, later in zip(ends, [*ends[1:], len(found)]))
    found += _dicom(files, folder, thin, selection, longest_part) if files else []
    selection.check()
    if not found:
        expected = f"no thick-slice scan was found. Expected files ending in {', '.join(VOLUMES)}, or DICOM series."
        why = [f"{name} is skipped: {reason}." for name, reason in selection.skipped[:1]]
        raise InputError(" ".join([f"{', '.join(map(str, given))}: {expected}", *why]))
    items = list({_identity(item): item for item in reversed(found)}.values())[::-1]  # each once
    _set_apart(items, roots, folder)
    if together:
        items = grouped(
            items, items if each_one_scan and len(items) > 1 else [], None if reference is None else str(reference)
        )
        _check_results(items)
    return items
