"""The version that made each table and picture of the pages, by its caption; and the list of those that are older.

    python -m benchmarks.captions    # prints the list, as docs/benchmarks.md has it

A caption is a paragraph in italics that names a version, or says that no network has a part. It holds for its section,
and for those within it that have none of their own.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import parser_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
DRAWINGS = {"docs/geometry.md", "docs/scans.md", "docs/paper/baselines.md"}  # pages that show no results
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
CAPTION = re.compile(r"(?:(?<=\n\n)|^)\*(?![* ])([^*]+)\*(?=\n\n|\n?$)")
VERSION = re.compile(r"\b\d+\.\d+\.\d+\b")
NO_NETWORK = "no network has a part"
NUMBERS = 0.3  # share of a table's cells, without its first column, from which on it holds results


class Section(NamedTuple):
    """A section of a page.

    Attributes:
        version: that made its tables and pictures; empty where no network has a part, None where no caption says it.
        shows: whether it has any.
    """

    page: str
    title: str
    text: str
    version: str | None
    shows: bool


def card_version() -> str:
    """The version of the weights that ship."""
    return str(json.loads((ROOT / "models" / "model.json").read_text(encoding="utf-8"))["version"])


def caption(text: str) -> str | None:
    """The version that a section's caption names first; empty where it says that no network has a part."""
    for found in CAPTION.finditer(text):
        if NO_NETWORK in found[1].replace("\n", " ").lower():
            return ""
        if version := VERSION.search(found[1]):
            return version[0]
    return None


def shows_results(text: str) -> bool:
    """Whether a section has a picture, or a table of numbers."""
    lines = [line.strip() for line in text.splitlines()]
    cells = [cell.strip() for line in lines if line.startswith("|") for cell in line.strip("|").split("|")[1:]]
    numbers = [cell for cell in cells if re.match(r"[+\u2212±-]?\d", cell)]
    return any(line.startswith("![") for line in lines) or len(numbers) > NUMBERS * max(len(cells), 1)


def sections(page: Path) -> Iterator[Section]:
    """The sections of a page, without its code."""
    text = re.sub(r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    name, above = page.relative_to(ROOT).as_posix(), list[tuple[int, str | None]]()
    headings = [*HEADING.finditer(text)]
    for heading, end in zip(headings, [*(one.start() for one in headings[1:]), len(text)]):
        level, own = len(heading[1]), text[heading.end() : end]
        above = [(depth, version) for depth, version in above if depth < level]
        said = caption(own)
        version = said if said is not None else next((one for _, one in reversed(above) if one is not None), None)
        above.append((level, version))
        yield Section(name, heading[2], own, version, name not in DRAWINGS and shows_results(own))


def is_older(version: str | None, than: str) -> bool:
    """Whether a version came before another one."""
    return bool(version) and [*map(int, str(version).split("."))] < [*map(int, than.split("."))]


def older(than: str) -> str:
    """The list of sections whose results are older than a version, in Markdown."""
    found: dict[str, dict[str, list[str]]] = {}
    for section in (one for page in PAGES for one in sections(page)):
        if section.shows and is_older(section.version, than):
            found.setdefault(str(section.version), {}).setdefault(section.page, []).append(section.title)
    rows = list[str]()
    for version, pages in sorted(found.items(), key=lambda one: [*map(int, one[0].split("."))]):
        named = "; ".join(f"`{page}`: {', '.join(titles)}" for page, titles in pages.items())
        rows.append(f"| {version} | {named} |")
    return "\n".join(["| version | sections |", "| --- | --- |", *rows]) + "\n"


def main():
    """Prints the list."""
    parser_of(__doc__).parse_args()
    print(older(card_version()), end="")


if __name__ == "__main__":
    main()
