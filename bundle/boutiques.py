"""Prints the Boutiques descriptor of `drift-mri`: python bundle/boutiques.py > drift-mri.json

Glatard et al., GigaScience 7:giy016 (2018).
"""

import json
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])

from drift_mri import __version__  # noqa: E402  # it lies there
from drift_mri.command import OPTIONS  # noqa: E402
from scripts.options import Option  # noqa: E402


def described(name: str, option: Option) -> dict:
    """An option as the descriptor has it."""
    flag = option.kind == "switch" or option.bare == "true"
    number = option.kind in ("number", "whole") and not option.words
    path = option.kind in ("path", "paths") and not option.bare  # which is a word, such as auto
    return {
        "id": name,
        "name": name.replace("_", " "),
        "description": option.help,
        "type": "Flag" if flag else "Number" if number else "File" if path else "String",
        "value-key": f"[{name.upper()}]",
        "command-line-flag": f"--{name}",
        "optional": True,
        **({"integer": True} if option.kind == "whole" else {}),
        **({"value-choices": list(option.choices)} if option.choices and not flag else {}),
        **({"list": True} if option.kind == "patterns" else {}),
    }


given = {"id": "input", "name": "input", "type": "File", "value-key": "[INPUT]", "list": True}
output = {"id": "output_dir", "name": "output folder", "type": "String", "value-key": "[OUTPUT_DIR]"}
options = [described(name, one) for name, one in OPTIONS.items()]
results = {"id": "results", "name": "results", "path-template": "[OUTPUT_DIR]"}
descriptor = {
    "name": "drift-mri",
    "tool-version": __version__,
    "description": "Thick-slice brain MRI scans to isotropic ones",
    "schema-version": "0.5",
    "command-line": " ".join(["drift-mri", "[INPUT]", "-o", "[OUTPUT_DIR]", *(one["value-key"] for one in options)]),
    "inputs": [
        {**given, "description": "scans, DICOM files, folders of both, or a BIDS dataset"},
        {**output, "description": "folder of the results"},
        *options,
    ],
    "output-files": [results],
    "tags": {"domain": ["neuroinformatics", "mri"]},
}
print(json.dumps(descriptor, indent=1))
