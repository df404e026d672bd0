"""Prints the description of 3D Slicer's module: python bundle/slicer_module.py > bundle/slicer/DRIFT.xml

It lies beside the module's folder, in which Slicer takes each Python file for a module.
"""

import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
sys.path[0] = str(ROOT)

from scripts.options import GROUPS, OF_SCAN, Option  # noqa: E402  # they lie there

DEFAULTS = yaml.safe_load((ROOT / "configs" / "inference.yaml").read_text(encoding="utf-8"))
NONE = "default"  # of a list: the option is left out
SLICER = "3D Slicer 5.10"  # the first with Python 3.12; DRIFT needs 3.11


def words_of(value: Any) -> str:
    """A default as the options take it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parameter(parent: ET.Element, kind: str, name: str, text: str, **elements: Any) -> ET.Element:
    """A parameter that Slicer shows, by its own tag for the kind."""
    one = ET.SubElement(parent, kind, {"fileExtensions": ".nii.gz"} if kind == "image" else {})
    for tag, content in {"name": name, **elements}.items():
        ET.SubElement(one, tag).text = str(content)
    ET.SubElement(one, "description").text = text
    ET.SubElement(one, "label").text = name.replace("_", " ").capitalize()
    return one


def add(parent: ET.Element, name: str, option: Option) -> None:
    """An option as Slicer shows it. A text that is empty, a length of 0 and `NONE` stand for none."""
    default, text, flag = DEFAULTS.get(name), option.help, {"longflag": name}
    if name == "error_map":
        parameter(parent, "image", name, "a volume for " + text.partition(": ")[2], **flag, channel="output")
    elif option.kind == "switch":
        parameter(parent, "boolean", name, text, **flag, default="false")
    elif option.choices:
        first = [NONE] if default is None else []
        one = parameter(parent, "string-enumeration", name, text, **flag, default=words_of(default or NONE))
        for choice in (*first, *option.choices):
            ET.SubElement(one, "element").text = str(choice)
    elif option.words:
        parameter(parent, "string", name, text, **flag, default=default)
    elif option.kind == "number":
        parameter(parent, "double", name, text, **flag, default=default or 0)
    else:
        parameter(parent, "image" if option.value == "SCAN" else "file", name, text, **flag, channel="input")


module = ET.Element("executable")
for tag, content in {
    "category": "Filtering",
    "title": "DRIFT",
    "description": "Rebuilds a thick-slice brain MRI scan at isotropic resolution. The detail is estimated, not "
    f"measured: for research. {SLICER} or later, in whose Python DRIFT is installed.",
    "license": "Apache-2.0",
    "contributor": "the DRIFT bundle's contributors",
}.items():
    ET.SubElement(module, tag).text = content
for group, what in {"volumes": "the scan and its result", **GROUPS}.items():
    options = {name: one for name, one in OF_SCAN.items() if one.group == group}
    if options or group == "volumes":
        shown = ET.SubElement(module, "parameters")
        ET.SubElement(shown, "label").text = group.capitalize()
        ET.SubElement(shown, "description").text = what
        if group == "volumes":
            parameter(shown, "image", "input", "a thick-slice scan", index=0, channel="input")
            parameter(shown, "image", "output", "the scan rebuilt", index=1, channel="output")
        for name, one in options.items():
            add(shown, name, one)
ET.indent(module)
sys.stdout.write(f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(module, encoding="unicode")}\n')
