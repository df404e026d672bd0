"""`python -m drift_mri.data DIR`: the public scans that DRIFT is trained and measured on.

docs/data.json has a row for each file: where it is published, the hash of its bytes, the recipe that makes the volume
of it, the hash of the volume's voxels, and its entry in the datalist.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import nibabel as nib
import numpy as np
from filelock import Timeout
from nibabel.filebasedimages import ImageFileError

from . import BUNDLE
from .scripts.errors import InputError, report_input_errors  # type: ignore[import-not-found]
from .scripts.files import remove_partials, sha256, whole_file  # type: ignore[import-not-found]
from .scripts.outputs.lock import alone  # type: ignore[import-not-found]

SOURCES = BUNDLE / "docs" / "data.json"
DATALIST = "datalist.json"
SECTIONS = ("training", "validation", "thick")
ENTRY = ("image", "sharp_axes", "subject", "contrast", "guides", "lesions")  # of the datalist
SECONDS = 60  # that a server may be silent
TOP = 4095  # the 99.99th percentile of a volume that is scaled
UNREADABLE = (OSError, EOFError, zlib.error, ValueError, ImageFileError)


def download(address: str, path: Path) -> None:
    """Writes what lies at an address to a file."""
    try:
        with urlopen(address, timeout=SECONDS) as answer, path.open("wb") as file:
            shutil.copyfileobj(answer, file)
    except (OSError, HTTPException, ValueError) as error:
        why = error if isinstance(error, HTTPError) else getattr(error, "reason", error)
        raise InputError(f"{address} cannot be fetched ({why}).") from error


def _names(address: str, count: int, folder: Path) -> list[str]:
    """Names of the DICOM files of a folder, by GitHub's list of its git tree at an address."""
    download(address, listing := folder / "tree.json")
    try:
        tree = json.loads(listing.read_bytes())["tree"]
        names = [one["path"] for one in tree if one["path"].endswith(".dcm")]
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"{address} is no list of a folder's files.") from error
    finally:
        listing.unlink()
    if len(names) != count or any("/" in name for name in names):
        raise InputError(f"{address} names {len(names)} DICOM files: expected {count}.")
    return names


def fetch(source: Mapping[str, Any], addresses: Mapping[str, str], folder: Path) -> None:
    """Fetches a published file, or the DICOM files of a published folder, into an empty folder.

    The hash of a folder is that of the sorted hashes of its files, a line each.

    Args:
        source: `repository`, `commit`, `path`, `sha256`; `also`, further addresses of the same bytes; of a folder
            `files`, how many, and `git_object`, git's name of it.
        addresses: patterns of the address of a `file`, and of the list of a `folder`.
    """
    place = {name: value for name, value in source.items() if isinstance(value, str)}
    if "files" in source:
        here = addresses["folder"].format(**place)
        prefix = "" if source["path"] == "." else f"{source['path']}/"
        for name in _names(here, source["files"], folder):
            download(addresses["file"].format(**place | {"path": quote(prefix + name)}), folder / name)
        lines = "".join(f"{one}\n" for one in sorted(sha256([path]) for path in folder.iterdir()))
        _check(f"{here}: its files have", hashlib.sha256(lines.encode()).hexdigest(), source)
        return
    faults = []
    for address in (addresses["file"].format(**place | {"path": quote(source["path"])}), *source.get("also", ())):
        try:
            download(address, path := folder / Path(source["path"]).name)
            _check(f"{address} has", sha256([path]), source)
            return
        except InputError as fault:
            faults.append(str(fault))
    raise InputError(" ".join(faults))


def _check(what: str, found: str, source: Mapping[str, Any]) -> None:
    if found != source["sha256"]:
        raise InputError(f"{what} the sha256 {found}: expected {source['sha256']}.")


def _converted(folder: Path) -> nib.Nifti1Image:
    """The volume of a folder: its NIfTI file, or what dcm2niix makes of its DICOM files."""
    if any(path.suffix == ".dcm" for path in folder.iterdir()):
        program = shutil.which("dcm2niix", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH')}")
        if program is None:
            raise InputError(
                "dcm2niix, which converts DICOM files, is not installed. Install the extra data, or dcm2niix."
            )
        command = [program, "-z", "n", "-f", "scan", "-o", str(folder), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise InputError(f"dcm2niix cannot convert the DICOM files: {done.stdout.strip()[-200:]}.")
    (file,) = (path for path in folder.iterdir() if path.name.endswith((".nii", ".nii.gz")))
    return nib.load(file)  # type: ignore[return-value]


def prepared(image: nib.Nifti1Image, recipe: Mapping[str, Any]) -> nib.Nifti1Image:
    """A published scan as training has it.

    Args:
        recipe: in this order, each but the last left out where it is not needed: `averaged_axes`, along which pairs of
            voxels become their mean; `crop`, begin and end of each axis; `scaled`, whether values below 0, and those
            from `wrapped` on, become 0 and the 99.99th percentile 4095; `dtype`.
    """
    voxels, affine = np.squeeze(np.asanyarray(image.dataobj)), image.affine.copy()
    for axis in recipe.get("averaged_axes", ()):
        pairs = [voxels.astype(np.float32).take(range(k, voxels.shape[axis], 2), axis) for k in (0, 1)]
        voxels = (pairs[0] + pairs[1]) / 2
        affine[:3, 3] += affine[:3, axis] / 2
        affine[:3, axis] *= 2
    if "crop" in recipe:
        affine[:3, 3] += affine[:3, :3] @ [begin for begin, _ in recipe["crop"]]
        voxels = voxels[tuple(slice(*bounds) for bounds in recipe["crop"])]
    if recipe.get("scaled"):
        voxels = np.where(voxels >= recipe.get("wrapped", np.inf), 0, voxels.astype(np.float32))
        voxels = np.round(voxels * (TOP / np.percentile(voxels, 99.99))).clip(0, np.iinfo(np.int16).max)
    made = nib.Nifti1Image(voxels.astype(recipe["dtype"]), affine)
    made.header.set_xyzt_units("mm")
    return made


def fingerprint(image: nib.Nifti1Image) -> str:
    """The hash of a volume's voxels, as a NIfTI file stores them."""
    return hashlib.sha256(np.asanyarray(image.dataobj).tobytes(order="F")).hexdigest()


def _is_there(path: Path, row: Mapping[str, Any]) -> bool:
    try:
        return fingerprint(nib.load(path)) == row["voxels"]
    except UNREADABLE:
        return False


def make(row: Mapping[str, Any], addresses: Mapping[str, str], root: Path) -> None:
    """Fetches what a row of docs/data.json names, and writes the volume that its recipe makes of it below a folder."""
    path = root / row["image"]
    remove_partials(path.with_name(path.name.removesuffix(".nii.gz")))
    with tempfile.TemporaryDirectory() as folder:
        fetch(row["source"], addresses, Path(folder))
        volume = prepared(_converted(Path(folder)), row["recipe"])
        if (found := fingerprint(volume)) != row["voxels"]:
            raise InputError(
                f"{row['source']['path']} of {row['source']['repository']} became a volume whose voxels have the "
                f"sha256 {found}: expected {row['voxels']}. Another version of dcm2niix or numpy may do so."
            )
        with whole_file(path) as partial:
            nib.save(volume, partial)


def datalist(rows: Sequence[Mapping[str, Any]], there: set[str]) -> dict[str, list[dict[str, Any]]]:
    """The datalist of the files that are there: docs/training.md describes it."""
    lists: dict[str, list[dict[str, Any]]] = {section: [] for section in SECTIONS}
    for row in rows:
        if row["image"] not in there or "lists" not in row:
            continue
        entry = {name: row[name] for name in ENTRY if name in row}
        entry["guides"] = [guide for guide in row.get("guides", []) if guide in there]
        if not entry["guides"]:
            del entry["guides"]
        if entry.get("lesions") not in there:
            entry.pop("lesions", None)
        for section in row["lists"]:
            lists[section].append(entry)
    return lists


def _table(path: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    try:
        content = json.loads(path.read_bytes())
        return content["files"], content["addresses"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{path} cannot be read as a table of files ({error}). Copies of the repository have one: run the "
            "command in such a folder, or set --sources."
        ) from error


def fill(root: Path, sources: Path = SOURCES) -> int:
    """Makes all files of a table below a folder, and their datalist. Returns how many are missing.

    A file that is there with the right voxels is left alone. A file that cannot be made is named, and the rest goes on.
    """
    rows, addresses = _table(sources)
    there = set()
    for row in rows:
        path = root / row["image"]
        try:
            if not (whole := _is_there(path, row)):
                make(row, addresses, root)
            there.add(row["image"])
            print(f"{path}: {'was there' if whole else 'made'}", flush=True)
        except UNREADABLE as fault:  # also what a table of one's own names wrongly
            print(f"{path}: missing. {fault}", file=sys.stderr, flush=True)
    lists = datalist(rows, there)
    with whole_file(root / DATALIST) as partial:
        partial.write_text(json.dumps(lists, indent=1) + "\n", encoding="utf-8")
    counts = ", ".join(f"{len(entries)} for {section}" for section, entries in lists.items())
    print(f"{root / DATALIST}: {counts}")
    return len(rows) - len(there)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command. Its exit code is 1 if a file is missing."""
    report_input_errors()
    what = "Fetches and checks the public scans that DRIFT is trained and measured on, and writes their datalist."
    about = argparse.ArgumentParser(prog="python -m drift_mri.data", description=what, allow_abbrev=False)
    about.add_argument("folder", metavar="DIR", type=Path, help="folder for the volumes; made if missing")
    about.add_argument("--sources", metavar="JSON", type=Path, default=SOURCES, help="a table such as docs/data.json")
    options = about.parse_args(arguments)
    try:
        with alone(options.folder / DATALIST, wait=False):
            missing = fill(options.folder, options.sources)
    except Timeout:
        raise InputError(
            f"Another run is filling {options.folder}. Wait for its end, or choose another folder."
        ) from None
    except OSError as error:
        raise InputError(f"{options.folder} cannot be written ({error}). Choose another folder.") from error
    if missing:
        raise InputError(
            f"{missing} {'files are' if missing > 1 else 'file is'} missing, named above. Give the same command again."
        )


if __name__ == "__main__":
    main()
