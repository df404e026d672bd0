"""BIDS as a derivative: the files that make a folder of results a dataset.

Gorgolewski et al., Sci. Data 3:160044 (2016).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ..errors import InputError
from ..files import whole_file
from ..inputs.bids import DESCRIPTION, by_drift, description

IGNORED = "summary.csv\ndrift.log\n**/*.html\n**/*_regions.csv\n"  # files of a result folder that BIDS does not know
IGNORED_BEFORE = ("summary.csv\n**/*.html\n", "summary.csv\ndrift.log\n**/*.html\n")  # 0.9, 0.12
VERSION = "1.9.0"  # of BIDS
README = """The thick-slice anatomical scans of the dataset {name}, rebuilt by DRIFT {version}.

Each scan SUFFIX has become desc-sr_SUFFIX, on a fine grid along its slice axis. The detail is estimated by networks,
not measured. It is for research, not for diagnosis. The JSON file beside each scan says what it was made from, with
which settings, and how it agrees with the measured slices; summary.csv has a line for each.
"""


def check_derivative_folder(folder: str | os.PathLike) -> None:
    """Makes sure that results may go into a folder.

    Raises:
        InputError: if it is a dataset that something else than DRIFT wrote.
    """
    described, ignore = Path(folder, DESCRIPTION), Path(folder, ".bidsignore")
    ours = (IGNORED, *IGNORED_BEFORE)
    begun = os.path.lexists(described) or (ignore.is_file() and ignore.read_text("utf-8") not in ours)
    if begun and not by_drift(folder):
        raise InputError(
            f"output_dir {folder} is a dataset that DRIFT did not write: expected a new folder, or one of its own. "
            "Choose another one."
        )


def write_description(folder: str | os.PathLike, source: Path, version: str) -> None:
    """Makes a folder of results a BIDS derivative.

    The authors are those of the source. A README or `.bidsignore` that is there stays.

    Args:
        folder: of the results.
        source: root of the dataset they come from.
        version: of the bundle.

    Raises:
        InputError: see `check_derivative_folder`; or if the folder has results of another dataset, to which its link
            leads.
    """
    check_derivative_folder(folder)
    links = description(Path(folder)).get("DatasetLinks")
    earlier = Path(folder, str(links.get("raw"))) if isinstance(links, dict) else None
    if earlier is not None and earlier.is_dir() and earlier.resolve() != source.resolve():
        raise InputError(
            f"output_dir {folder} has the results of {earlier.resolve()}: those of {source} would lose their source "
            "there. Choose another one for each dataset."
        )
    origin = description(source)
    authors = origin.get("Authors")
    content = {
        "Name": "DRIFT: through-plane super-resolution",
        "BIDSVersion": VERSION,
        "DatasetType": "derivative",
        **({"Authors": authors} if authors else {}),
        "GeneratedBy": [{"Name": "DRIFT", "Version": version}],
        "DatasetLinks": {"raw": os.path.relpath(source.resolve(), Path(folder).resolve())},
    }
    texts = {Path(folder, DESCRIPTION): json.dumps(content, indent=1) + "\n"}
    if not list(Path(folder).glob("README*")):
        texts[Path(folder, "README")] = README.format(name=origin.get("Name", source.name), version=version)
    ignore = Path(folder, ".bidsignore")
    if not ignore.exists() or ignore.read_text("utf-8") in IGNORED_BEFORE:
        texts[ignore] = IGNORED
    for path, text in texts.items():
        with whole_file(path) as partial:
            partial.write_text(text, encoding="utf-8")
