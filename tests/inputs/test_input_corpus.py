"""Broken and odd inputs: each ends in a correct result or in one clear message, and no input is ever changed.

Each goes the whole way of configs/inference.yaml, in a process of its own with limits on time and memory. The network
is real, tiny and untrained, hence the identity: a correct result holds the scan's own values at their own places.

    python -m tests.inputs.test_input_corpus      writes docs/input_corpus.md
"""

import functools
import re
from pathlib import Path

import pytest
import torch

from tests.corpus import dicom, examine, folders, formats, nifti
from tests.corpus.examine import Finding

TABLE = Path(__file__).parents[2] / "docs" / "input_corpus.md"
QUICK = {name for name, *_ in (*nifti.CORPUS, *dicom.CORPUS)}  # half a minute; with the others almost one
CORPUS = [*nifti.CORPUS, *folders.CORPUS, *formats.CORPUS, *dicom.CORPUS]
CASES = [
    pytest.param(name, outcome, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, _, outcome in CORPUS
]
BEGIN = "| input | outcome |\n|---|---|\n"  # of the table; what stands above it is written by hand


@functools.cache
def finding(name: str) -> Finding:
    return examine.examine({each: maker for each, maker, _ in CORPUS}[name])


def check(name: str, outcome: str) -> None:
    """An input ends as the corpus says."""
    found = finding(name)
    assert found.problems == [], name
    if outcome == "correct":
        assert found.errors == [], name
    else:
        (message,) = found.errors
        assert re.search(outcome, message) and "\n" not in message and len(message) < 500, name


def row(name: str) -> str:
    """What the table says of an input."""
    found = finding(name)
    remarks = [one for one in found.remarks if "nothing states the slice thickness" not in one]
    text = "; ".join([" ".join(found.errors) or "rebuilt", *remarks]).replace("|", "\\|").replace("\n", " ")
    return f"| {name} | {text} |"


@pytest.mark.parametrize(("name", "outcome"), CASES)
def test_an_odd_input_ends_in_a_correct_result_or_in_one_clear_message_as_the_table_in_docs_says(name, outcome):
    """If the table is old: python -m tests.inputs.test_input_corpus"""
    check(name, outcome)
    assert row(name) in TABLE.read_text(encoding="utf-8").splitlines()


@pytest.mark.skipif(not formats.HAS_ITK, reason="a part of the corpus needs pip install '.[itk]'")
def test_the_table_in_docs_has_every_input_once():
    table = TABLE.read_text(encoding="utf-8").partition(BEGIN)[2]
    assert re.findall(r"^\| (.*?) \| ", table, re.M) == [name for name, *_ in CORPUS]


if __name__ == "__main__":
    torch.set_num_threads(1)  # a forked process has none of the others
    for name, _, outcome in CORPUS:
        check(name, outcome)
    above = TABLE.read_text(encoding="utf-8").partition(BEGIN)[0]
    TABLE.write_text(above + BEGIN + "".join(row(name) + "\n" for name, *_ in CORPUS), encoding="utf-8")
