"""3D Slicer, as far as it decides on a command-line module, by the rules of its source.

qSlicerUtils and the two module factories say which files are modules, ModuleDescriptionParser what a description may
hold, vtkSlicerCLIModuleLogic which words a module gets, and what becomes of what it prints.
"""

import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import NamedTuple

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TEXTS = {"file", "directory", "string"}  # whose flag is left out where they are empty
IMAGE = {"multiple", "hidden", "type", "reference", "fileExtensions"}  # attributes
TAGS = re.compile(r"<(filter-[a-z-]+)>([^<]*)</\1>[ \t\n\r]*")


def is_command_line_module(path: Path) -> bool:
    """A Python file is one by its first two characters; another file if it has no dot and may be run."""
    if path.suffix.lower() == ".py":
        return path.read_text(encoding="utf-8-sig").startswith("#!")
    return "." not in path.name and bool(path.stat().st_mode & 0o100)


def is_scripted_module(path: Path) -> bool:
    """Any other Python file is run in Slicer's own process when it starts."""
    return path.suffix.lower() == ".py" and not is_command_line_module(path)


class Parameter(NamedTuple):
    """A parameter of a description."""

    tag: str
    name: str
    flag: str
    index: int | None
    default: str
    channel: str
    extensions: list[str]


def parameters(module: Path) -> list[Parameter]:
    """Those of the description beside a module; a `ValueError` for what the parser refuses or the panel cannot show."""
    root = ET.parse(module.with_suffix(".xml")).getroot()
    if root.tag != "executable" or not root.findtext("title") or not root.findtext("category"):
        raise ValueError("no executable with a title and a category")
    found = []
    for one in [one for group in root.iter("parameters") for one in group if one.tag not in ("label", "description")]:
        text = {child.tag: (child.text or "").strip() for child in one}
        name, flag, index = text.get("name", ""), text.get("longflag", "").lstrip("-"), text.get("index")
        if not NAME.fullmatch(name) or (flag and not NAME.fullmatch(flag)) or bool(flag) == (index is not None):
            raise ValueError(f"{name}: a name, and a flag or an index")
        if not text.get("label") or not text.get("description"):
            raise ValueError(f"{name}: a label and a description")
        if one.tag in ("image", "file") and text.get("channel") not in ("input", "output"):
            raise ValueError(f"{name}: a channel")
        if set(one.attrib) - (IMAGE if one.tag == "image" else set()):
            raise ValueError(f"{name}: attributes {set(one.attrib)}")
        choices = [child.text for child in one if child.tag == "element"]
        if one.tag.endswith("-enumeration") and text.get("default") not in choices:
            raise ValueError(f"{name}: its default {text.get('default')} is none of {choices}")
        ends = one.get("fileExtensions", "").split(",")
        place = None if index is None else int(index)
        found.append(Parameter(one.tag, name, flag, place, text.get("default", ""), text.get("channel", ""), ends))
    return found


def words(module: Path, chosen: dict[str, str], volumes: dict[str, Path]) -> list[str]:
    """The words that a module gets.

    Args:
        chosen: of the panel, by name; the others keep their defaults.
        volumes: that are chosen, by name, as the files that Slicer writes and reads again.
    """
    given, every = list[str](), parameters(module)
    for one in every:
        value = chosen.get(one.name, one.default)
        if not one.flag:
            continue
        if one.tag == "boolean":
            given += [f"--{one.flag}"] if value == "true" else []
        elif one.tag == "image":
            given += [f"--{one.flag}", str(volumes[one.name])] if one.name in volumes else []
        elif one.tag not in TEXTS or value:
            given += [f"--{one.flag}", value]
    return given + [str(volumes[one.name]) for one in sorted(every, key=lambda one: one.index or 0) if not one.flag]


class Run(NamedTuple):
    """A run as Slicer shows it."""

    failed: bool
    progress: list[tuple[str, float]]  # the comment, and the share
    output: str
    errors: str


def run(python: str, module: Path, given: list[str], **environment: str) -> Run:
    """A module of a Python file is given to Slicer's Python, in a process of its own."""
    done = subprocess.run([python, str(module), *given], env=environment, capture_output=True, text=True)
    progress, comment = [], ""
    for tag, content in TAGS.findall(done.stdout):
        comment = content if tag == "filter-comment" else comment
        progress += [(comment, float(content))] if tag == "filter-progress" else []
    return Run(done.returncode != 0, progress, TAGS.sub("", done.stdout), done.stderr)
