"""BIDS as a derivative: the files that make a folder of results a dataset.

Gorgolewski et al., Sci. Data 3:160044 (2016).
"""

import json
import os
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import whole_file
from ..inputs.bids import DESCRIPTION, REPORTS, by_drift, dataset_root, description, sidecar
from .entries import KEPT

IGNORED = f"{REPORTS}/\n"
VERSION = "1.9.0"  # of BIDS
NAME = "DRIFT: through-plane super-resolution"
README = """The thick-slice anatomical scans of the dataset {name}, rebuilt by {by}.

Each scan SUFFIX has become desc-sr_SUFFIX, on a fine grid along its slice axis. The detail is estimated by networks,
not measured. It is for research, not for diagnosis. The JSON file beside each scan says what it was made from, with
which settings, and how it agrees with the measured slices. logs/index.html shows all scans, and logs/summary.csv has a
line for each.
"""


def kept(path: Path | None) -> tuple[dict[str, Any], bool]:
    """Fields of a scan's sidecars that hold for the rebuilt scan too, and whether `SkullStripped` is a guess.

    Whether a scan shows the brain alone, derivatives have to say. Raw scans do not, where no sidecar says so. An image
    in memory has no sidecars.
    """
    if path is None or not path.exists():
        return {}, False
    said = sidecar(path)
    fields = {name: said[name] for name in KEPT if name in said}
    root = dataset_root(path)
    raw = root is not None and description(root).get("DatasetType", "raw") == "raw"
    guess = raw and "SkullStripped" not in fields
    return {**({"SkullStripped": False} if guess else {}), **fields}, guess


def check_derivative_folder(folder: str | os.PathLike) -> None:
    """Refuses a folder that is, or lies within, a dataset of another program, but for its `derivatives`."""
    root = dataset_root(Path(folder).resolve())
    within = Path(folder).resolve().relative_to(root).parts if root is not None else ()
    if root is not None and within and within[0] != "derivatives" and not by_drift(root):
        raise InputError(
            f"output_dir {folder} is a part of the dataset {root}: expected a folder outside of it, or one such as "
            f"{root / 'derivatives' / 'drift'}. Choose another one."
        )
    described, ignore = Path(folder, DESCRIPTION), Path(folder, ".bidsignore")
    begun = os.path.lexists(described) or (ignore.is_file() and ignore.read_text("utf-8") != IGNORED)
    if begun and not by_drift(folder):
        raise InputError(
            f"output_dir {folder} is a dataset that DRIFT did not write: expected a new folder, or one of its own. "
            "Choose another one."
        )


def container(root: Path = Path("/")) -> dict[str, str]:
    """The container that this process runs in, as `GeneratedBy` names it; empty outside of any.

    Apptainer names its image. Podman and Docker do not: the image has its tag in `DRIFT_IMAGE`.
    """
    image, tag = os.environ.get("APPTAINER_CONTAINER", ""), os.environ.get("DRIFT_IMAGE")
    if image:
        return {"Type": "apptainer", "URI": image if "://" in image else Path(image).absolute().as_uri()}
    for mark, kind in {"run/.containerenv": "podman", ".dockerenv": "docker"}.items():
        if (root / mark).exists():
            return {"Type": kind, **({"Tag": tag} if tag else {})}
    return {}


def write_description(folder: str | os.PathLike, source: Path, version: str, by: str) -> None:
    """Makes a folder of results a BIDS derivative of the dataset `source`, by this version of the bundle.

    `by` names the network that rebuilds and its weights (`Origin.said`).

    A README or `.bidsignore` that is there stays.
    """
    check_derivative_folder(folder)
    links = description(Path(folder)).get("DatasetLinks")
    earlier = Path(folder, str(links.get("raw"))) if isinstance(links, dict) else None
    if earlier is not None and earlier.is_dir() and earlier.resolve() != source.resolve():
        raise InputError(
            f"output_dir {folder} has the results of {earlier.resolve()}: those of {source} would lose their source "
            "there. Choose another one for each dataset."
        )
    origin, made_in = description(source), container()
    authors = origin.get("Authors")
    content = {
        "Name": NAME,
        "BIDSVersion": VERSION,
        "DatasetType": "derivative",
        "GeneratedBy": [
            {
                "Name": "DRIFT",
                "Version": version,
                "Description": f"Slices rebuilt by {by}",
                **({"Container": made_in} if made_in else {}),
            }
        ],
        "DatasetLinks": {"raw": os.path.relpath(source.resolve(), Path(folder).resolve())},
        **({"Authors": authors} if isinstance(authors, list) else {}),
    }
    texts = {Path(folder, DESCRIPTION): json.dumps(content, indent=1) + "\n"}
    if not list(Path(folder).glob("README*")):
        texts[Path(folder, "README")] = README.format(name=origin.get("Name", source.name), by=by)
    ignore = Path(folder, ".bidsignore")
    if not ignore.exists():
        texts[ignore] = IGNORED
    for path, text in texts.items():
        with whole_file(path) as partial:
            partial.write_text(text, encoding="utf-8")
