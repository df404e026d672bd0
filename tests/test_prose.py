"""Prose is plain: no sentence begins with What, Of or One, pages fit a terminal, and a stranger finds all it names."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *ROOT.glob("*.md"),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("bundle/*/README.md")),
]
SOURCES = [p for top in ("scripts", "drift_mri", "bundle", "benchmarks") for p in sorted(ROOT.glob(f"{top}/**/*.py"))]
BUILT = {"node_modules", "dist", "model"}  # of the page in the browser
OTHERS = (
    "tests/**/*.py tests/**/*.mjs configs/**/*.yaml configs/**/*.json bundle/**/*.js bundle/**/*.ts bundle/**/*.mjs"
)
TEXTS = [p for glob in OTHERS.split() for p in sorted(ROOT.glob(glob)) if not BUILT & set(p.parts)] + PAGES + SOURCES
HISTORY = "CHANGELOG.md"
COLUMNS = 100  # of a terminal in which a page is read
# a text's beginning, the end of another sentence, a list's mark, a cell of a table, bold words
START = re.compile(r"(?:\A|[.!?:]\s+|\n\s*\n\s*|\n\s*(?:[-*]|\d+\.)\s+|\|\s*|\*)(?=(?:What|Of|One)\b)")
# notes, decisions and issues by number, and papers that lie elsewhere
ELSEWHERE = re.compile(r"\b(?:(?:reading )?note|decision|issue) \d+\b|\b(?:DESIGN|ECOSYSTEM)\.md|#\d{2,4}\b", re.I)
UNSEEN = re.compile(r"\]\([^)]*\)|`[^`]*`|https?:\S+")  # addresses, and code that cannot be broken


def begun(text):
    """The beginnings of sentences that the house does not write."""
    return [text[found.end() : found.end() + 60] for found in START.finditer(text)]


def prose(page):
    """A page without its code."""
    return re.sub(r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def docstrings(path):
    """(name, docstring) of a module, its classes and functions."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield getattr(node, "name", "the module"), text


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != HISTORY], ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_plain(page):
    assert begun(prose(page)) == []


def test_docstrings_are_plain():
    assert len(SOURCES) > 100
    found = {f"{path.relative_to(ROOT)}: {name}": begun(text) for path in SOURCES for name, text in docstrings(path)}
    assert {name: starts for name, starts in found.items() if starts} == {}


def test_a_stranger_can_follow_every_reference():
    texts = {p: p.read_text(encoding="utf-8") for p in TEXTS if p not in (Path(__file__), ROOT / HISTORY)}
    found = {str(path.relative_to(ROOT)): ELSEWHERE.findall(text) for path, text in texts.items()}
    assert len(texts) > 300 and {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != HISTORY], ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_a_page_fit_a_terminal(page):
    lines = [line for line in prose(page).splitlines() if not line.lstrip().startswith(("|", "![", "<"))]
    assert [line for line in lines if len(UNSEEN.sub("", line)) > COLUMNS] == []
