"""Each table and picture names the version that made it, and no older one is called the one that ships."""

import re
from pathlib import Path

import pytest

from benchmarks.captions import PAGES, ROOT, caption, card_version, is_older, older, sections, shows_results

SECTIONS = [section for page in PAGES for section in sections(page)]
SHIPS = re.compile(r"\b(?:weights|networks?|one)\s+(?:that|which)\s+ships?\b|\bshipped\s+(?:weights|network)\b", re.I)


def test_each_table_and_picture_has_a_caption_with_its_version():
    shown = [one for one in SECTIONS if one.shows]
    assert len(shown) > 60
    assert [f"{one.page}: {one.title}" for one in shown if one.version is None] == []


def test_those_that_are_older_than_the_weights_are_listed():
    """If this fails: python -m benchmarks.captions prints the list of docs/benchmarks.md."""
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    listed = page.partition("## Figures of earlier versions\n")[2]
    assert f"\nWeights of {card_version()} ship." in listed
    assert listed.endswith(f"\n\n{older(card_version())}")


def test_older_ones_are_not_called_those_that_ship():
    old = [one for one in SECTIONS if is_older(caption(one.text) or (one.shows and one.version) or "", card_version())]
    assert len(old) > 20
    found = {f"{one.page}: {one.title}": SHIPS.findall(one.text) for one in old}
    assert {name: words for name, words in found.items() if words} == {}


PAGE = """# Page

{top}

## Inner

| volume | gain |
| --- | --- |
| a | +1.2 |

### Deeper

![A head](head.png)

{deep}

## Words

| word | meaning |
| --- | --- |
| a | b 3 |
"""


@pytest.mark.parametrize(
    ("top", "deep", "versions"),
    [
        ("*Version 0.9.0.*", "", ["0.9.0", "0.9.0"]),
        ("*Figures of\n0.9.0.*", "*Pictures of 0.10.0, one of 0.2.0.*", ["0.9.0", "0.10.0"]),
        ("Of version 0.9.0.", "*No network has a\npart in it.*", [None, ""]),
        ("**Version 0.9.0.** More *than 0.8.0.*", "* a list of 0.7.0 *", [None, None]),
    ],
)
def test_a_caption_holds_for_its_section_and_those_within(tmp_path, monkeypatch, top, deep, versions):
    monkeypatch.setattr("benchmarks.captions.ROOT", tmp_path)
    (tmp_path / "page.md").write_text(PAGE.format(top=top, deep=deep))
    found = {one.title: one for one in sections(Path(tmp_path / "page.md"))}
    assert [found[name].version for name in ("Inner", "Deeper")] == versions
    assert [one.shows for one in found.values()] == [False, True, True, False]


def test_versions_are_compared_as_numbers():
    assert is_older("0.9.0", "0.27.0") and not is_older("0.28.0", "0.27.0") and not is_older("", "0.27.0")
    assert shows_results("| a | b |\n| --- | --- |\n| x | -3.1 ± 2 |") and not shows_results("| a | 3 b | c | d | e |")
