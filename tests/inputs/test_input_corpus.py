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
HEAD = """\
# What each odd input does

Written by `python -m tests.inputs.test_input_corpus`. `tests/inputs/test_input_corpus.py` makes
each input, runs it through `configs/inference.yaml` and checks what is said here: the result lies
where the scan lies and holds its values, or there is one message. None ends in a traceback, a hang,
a changed input or a partial file. Warnings, and what was skipped and why, stand behind the outcome.
A single warning is left out: where nothing states the slice thickness, the slice spacing is taken
for it.

`dcm-classifier` 0.9.9, a random forest on headers, is an oracle beside these, and no part of DRIFT.
It agrees on contrasts, but calls three localizers T1w, and needs itk, gdcm and onnxruntime.

| input | outcome |
|---|---|
"""


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
    text = TABLE.read_text(encoding="utf-8")
    assert text.startswith(HEAD) and re.findall(r"^\| (.*?) \| ", text[len(HEAD) :], re.M) == [n for n, *_ in CORPUS]


if __name__ == "__main__":
    torch.set_num_threads(1)  # a forked process has none of the others
    for name, _, outcome in CORPUS:
        check(name, outcome)
    TABLE.write_text(HEAD + "".join(row(name) + "\n" for name, *_ in CORPUS), encoding="utf-8")
