"""BIDS as a derivative: the files that make a folder of results a dataset.

Gorgolewski et al., Sci. Data 3:160044 (2016).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import whole_file
from ..inputs.bids import DESCRIPTION, by_drift, dataset_root, description

CITATION = "CITATION.cff"
IGNORED = "summary.csv\ndrift.log\n**/*.html\n**/*_regions.csv\n"  # files of a result folder that BIDS does not know
VERSION = "1.9.0"  # of BIDS
NAME = "DRIFT: through-plane super-resolution"
PAPER = {  # as in CITATION.cff at the bundle's root
    "type": "article",
    "title": "DRIFT: Difficulty-aware Rectified Flows for Through-plane MRI Super-Resolution",
    "authors": [
        {"family-names": "Choi", "given-names": "Yoonseok"},
        {"family-names": "Ha", "given-names": "Eun-Gyu"},
        {"family-names": "Kim", "given-names": "Daniel"},
        {"family-names": "Al-masni", "given-names": "Mohammed A."},
        {"family-names": "Yang", "given-names": "Ming-Hsuan"},
        {"family-names": "Kim", "given-names": "Dong-Hyun"},
    ],
    "year": 2026,
    "url": "https://yoonseokchoi-ai.github.io/drift-eccv2026/",
}
README = """The thick-slice anatomical scans of the dataset {name}, rebuilt by DRIFT {version}.

Each scan SUFFIX has become desc-sr_SUFFIX, on a fine grid along its slice axis. The detail is estimated by networks,
not measured. It is for research, not for diagnosis. The JSON file beside each scan says what it was made from, with
which settings, and how it agrees with the measured slices; summary.csv has a line for each.
"""


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


def _citation(source: Path, version: str) -> dict[str, Any]:
    """Content of `CITATION.cff`: whose scans were rebuilt, by which software, of which method.

    BIDS has the authors there or in the description, not in both.
    """
    origin = description(source)
    name, names = origin.get("Name", source.name), origin.get("Authors")
    authors = [{"name": str(one)} for one in (names if isinstance(names, list) else ()) or [f"the authors of {name}"]]
    ours = [{"name": "the DRIFT bundle's contributors"}]
    software = {"type": "software", "title": NAME, "version": version, "authors": ours}
    return {
        "cff-version": "1.2.0",
        "message": "Cite the dataset whose scans were rebuilt, the software, and the paper of its method.",
        "title": f"{name}, rebuilt by DRIFT",
        "type": "dataset",
        "authors": authors,
        "references": [software, PAPER],
    }


def write_description(folder: str | os.PathLike, source: Path, version: str) -> None:
    """Makes a folder of results a BIDS derivative of the dataset `source`, by this version of the bundle.

    A README, `CITATION.cff` or `.bidsignore` that is there stays.
    """
    check_derivative_folder(folder)
    links = description(Path(folder)).get("DatasetLinks")
    earlier = Path(folder, str(links.get("raw"))) if isinstance(links, dict) else None
    if earlier is not None and earlier.is_dir() and earlier.resolve() != source.resolve():
        raise InputError(
            f"output_dir {folder} has the results of {earlier.resolve()}: those of {source} would lose their source "
            "there. Choose another one for each dataset."
        )
    made_in = container()
    content = {
        "Name": NAME,
        "BIDSVersion": VERSION,
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "DRIFT", "Version": version, **({"Container": made_in} if made_in else {})}],
        "DatasetLinks": {"raw": os.path.relpath(source.resolve(), Path(folder).resolve())},
    }
    texts = {Path(folder, DESCRIPTION): json.dumps(content, indent=1) + "\n"}
    if not list(Path(folder).glob("README*")):
        name = description(source).get("Name", source.name)
        texts[Path(folder, "README")] = README.format(name=name, version=version)
    ignore, cff = Path(folder, ".bidsignore"), Path(folder, CITATION)
    if not ignore.exists():
        texts[ignore] = IGNORED
    if not cff.exists():  # JSON is YAML, too
        texts[cff] = json.dumps(_citation(source, version), indent=1, ensure_ascii=False) + "\n"
    for path, text in texts.items():
        with whole_file(path) as partial:
            partial.write_text(text, encoding="utf-8")
