"""Which scans to rebuild: files, folders, BIDS datasets and DICOM series, and where each result goes."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import InputError, flag
from ..files import ANALYZE, ITK, VOLUMES, stem
from ..stack.acquisition import is_thin
from ..stack.grid import voxel_spacing
from . import bids, dicom
from .readers import ScanReader, data_file, is_header
from .sample import built_in_sample
from .selection import Choice

logger = logging.getLogger("drift")

FEW_VALUES = 64  # whole numbers in a mask or a label map, at most; scans have more


def _unfit(path: Path, thin: float) -> str | None:
    """Why a volume of a folder is not rebuilt; None for scans, and for broken files, which their turn comes to tell."""
    if path.name.endswith(ANALYZE) and not is_header(path):
        return "it is no header of a volume"
    if not bids.shows_anatomy(path.name):
        return "its name says that it shows no anatomy but a mask, a map, or a functional or diffusion series"
    try:
        _, image = ScanReader().read(path)
        thickness, _ = bids.sidecar_value(path, "SliceThickness")
        _, pixel, spacing = sorted(map(float, voxel_spacing(image.affine)))
        if is_thin(spacing, None if thickness is None else float(thickness), pixel, thin):
            return f"thin or isotropic already: slices {spacing:.3g} mm apart, pixels of {pixel:.3g} mm"
        values = np.unique(np.asanyarray(image.dataobj))
        if len(values) <= FEW_VALUES and np.array_equal(values, np.rint(values)):
            return f"a mask or a label map: it holds {len(values)} whole numbers. Give it by name if it is a scan"
    except Exception as error:  # noqa: BLE001  # what is wrong with the file is said when it is read
        logger.debug(f"{path}: {error}")
    return None


def _volume(path: Path, result: Path) -> dict:
    data: list[Path | None] = []
    if path.suffix == ".hdr":
        data = [path.with_suffix(ending) for ending in (".img", ".mat")]  # which SPM writes beside them
    try:
        data += [data_file(path)] if path.name.endswith(ITK) else []
    except InputError:  # told by the reader
        data = []
    sources = [path, *(one for one in data if one and one.is_file()), *bids.sidecars(path)]
    return {"image": str(path), "name": str(path), "sources": [str(p) for p in sources], "result": str(result)}


def _dicom(source: Path | Sequence[Path], output_dir: Path, thin: float, choice: Choice) -> list[dict]:
    """The thick series among DICOM files; those that are skipped are named."""
    series, _ = dicom.find_series(source, thin)
    items = []
    for one in series:
        if not choice.takes(one.name):
            continue
        if one.skipped:
            choice.skip(one.name, one.skipped)
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


def _fit(paths: Sequence[Path], thin: float, choice: Choice) -> list[Path]:
    """Those of a folder's volumes that are rebuilt; the others are named."""
    reasons = {path: _unfit(path, thin) for path in paths}
    for path, reason in reasons.items():
        if reason:
            choice.skip(str(path), reason)
    return [path for path in paths if not reasons[path]]


def _folder(root: Path, output_dir: Path, thin: float, choice: Choice) -> list[dict]:
    """The thick scans and the thick DICOM series in a folder, at any depth; results of earlier runs left out."""

    def unreadable(error: OSError) -> None:
        logger.warning(f"{error.filename} is left out: it cannot be read ({error.strerror}).")

    volumes = []
    for folder, folders, names in os.walk(root, onerror=unreadable):
        folders[:] = sorted(name for name in folders if name[0] != ".")
        for written in [name for name in folders if bids.by_drift(Path(folder, name))]:
            choice.skip(str(Path(folder, written)), "it is a dataset of results that DRIFT wrote")
            folders.remove(written)
        for name in sorted(names):
            if name.endswith(VOLUMES) and not name.startswith("."):
                if stem(name).endswith("_sr"):
                    choice.skip(str(Path(folder, name)), "its name ends in _sr, as those of results do")
                else:
                    volumes.append(Path(folder, name))
    volumes = [path for path in volumes if path.suffix != ".img" and choice.takes(path.relative_to(root).as_posix())]
    items = [
        _volume(p, output_dir / p.relative_to(root).with_name(stem(p.name) + "_sr"))
        for p in _fit(volumes, thin, choice)
    ]
    return items + _dicom(root, output_dir, thin, choice)


def _dataset(root: Path, output_dir: Path, thin: float, choice: Choice) -> list[dict]:
    """The thick anatomical scans of a BIDS dataset."""
    if output_dir.resolve() == root.resolve():
        raise InputError(
            f"output_dir {output_dir} is the dataset itself: expected a folder of its own. Choose one such as "
            f"{root / 'derivatives' / 'drift'}."
        )
    items, names = [], {path: path.relative_to(root) for path in bids.anatomical_scans(root)}
    wanted = [path for path, name in names.items() if choice.takes(name.as_posix(), name.parts[0])]
    for path in _fit(wanted, thin, choice):
        folder = output_dir / path.parent.relative_to(root)
        items.append({**_volume(path, folder / bids.derivative_name(path.name)), "dataset": str(root.absolute())})
    return items


def scans(
    source: str | os.PathLike | Sequence[str | os.PathLike] | None,
    output_dir: str | os.PathLike,
    thin: float,
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    participant_label: str | Sequence[str] | None = None,
    dry_run: bool = False,
) -> list[dict]:
    """Thick-slice scans to rebuild.

    A scan that is given by name is always taken. Of what folders hold, thin scans (`acquisition.is_thin`), masks and
    label maps are skipped with a line that says why.

    Args:
        source: a scan, NIfTI, MGZ, Analyze, NRRD or MetaImage; a folder of scans and DICOM series, searched at any
            depth, results of earlier runs (`*_sr`, datasets that DRIFT wrote) left out; a BIDS dataset, of which the
            anatomical scans are taken; a list of scans or of DICOM files; or null for the built-in sample, which is
            written to `output_dir` first.
        output_dir: where results will go.
        thin: slices no thicker and no farther apart than this, in mm, need no rebuilding: the largest trained target.
        include, exclude, participant_label: which of them are taken, see `Choice`.
        dry_run: nothing may be written, the sample neither.

    Returns:
        Items with `image`, the path or the `dicom.Series`; `name`, for people; `sources`, all its files; `result`, the
        path of the result without its ending; for the sample `truth`, the path of the sharp volume; and for a BIDS
        dataset `dataset`, its root.

    Raises:
        InputError: if there is no such file or folder, no scan in it, none that is wanted, or two scans have one
            result.
    """
    folder, choice = Path(output_dir), Choice(include, exclude, participant_label)
    if source is None:
        if flag("dry_run", dry_run):
            raise InputError("--dry_run lists the scans of --input, and there is none. Set it to a scan or a folder.")
        choice.check()
        return [built_in_sample(output_dir)]
    given = list(source) if isinstance(source, list | tuple) else [source]
    if "" in given:
        raise InputError("--input is empty: expected a scan, a folder, or a list of them. Leave it out for the sample.")
    items: list[dict] = []
    files: list[Path] = []
    for path in map(Path, map(str, given)):
        if path.suffix == ".img" and path.with_suffix(".hdr").is_file():
            path = path.with_suffix(".hdr")
        if path.is_dir():
            read = _dataset if bids.DESCRIPTION in _names(path) else _folder
            items += read(path, folder, thin, choice)
        elif not path.is_file():
            raise InputError(f"{path} does not exist. Set the input to a scan, a folder, or a list of them.")
        elif path.name.endswith(VOLUMES):
            items += [_volume(path, folder / f"{stem(path.name)}_sr")] * choice.takes(path.name)
        elif dicom.is_dicom(path):
            files.append(path)
        else:
            raise InputError(
                f"{path} is no scan that can be read: expected a name ending in {', '.join(VOLUMES)}, or DICOM. Unpack "
                "or convert it first."
            )
    items += _dicom(files, folder, thin, choice) if files else []
    choice.check()
    if not items:
        expected = f"no thick-slice scan was found. Expected files ending in {', '.join(VOLUMES)}, or DICOM series."
        raise InputError(" ".join([f"{source}: {expected}", *choice.skipped[:1]]))
    by_result: dict[str, str] = {}
    for item in items:
        other = by_result.setdefault(item["result"], item["name"])
        if other != item["name"]:
            raise InputError(f"{other} and {item['name']} would have one result, {item['result']}. Rename one of them.")
    return items
