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

## How near scans and maps come

*No network has a part in these figures.*

`python -m benchmarks.contents --thresholds SCANS ... --maps MAPS ...` tries the numbers of
`scripts/stack/contents.py` on 76 real volumes in twenty variants each and on 31 maps. The nearest
scan is the one that comes nearest to a number and that the rule's other numbers let through; the
nearest map is the one that its rule finds and that comes nearest. No map of these is CT or a
probability: `tests/stack/test_contents.py` makes such ones.

| rule | number | value | nearest scan | nearest map |
| --- | --- | --- | --- | --- |
| few | FEW_VALUES | 6 | 5 | 2 |
| sparse | SPARSE | 0.99 | 0.636 | 0.999 |
| labels | EQUAL | 0.7 | 0.877 | 0.816 |
| labels | NEXT | 0.7 | 0.049 | 0.559 |
| field | SMOOTH | 0.06 | 0.0015 | 0.0528 |
| statistic | ABRUPT | 0.3 | 0.779 | 0 |
| statistic | EVEN | 0.33 | 0 | 0.946 |
| statistic | BACKGROUND | 0.2 | 0.0287 | 0.495 |
| ct | GREYS | 128 | 31 | |
| ct | CROWD | 0.49 | 0.428 | |
| probabilities | FOOT | 0.25 | 0.21 | |

These numbers are of 0.27.0, which took extremes where percentiles stand now. The scans
of the rules few, labels and field are past their numbers: four of the 1,520 variants are taken for
none. All are of one volume in 64 grey values or fewer. A single voxel is eight times as
bright as its head, for which 13 values and fewer are left. Without it the nearest scan to SMOOTH
has 0.069. Nine maps are scans by their voxels, and only their names say more: B1, MTR, R2*, T2,
Tmax, tSNR, a contrast of two conditions, a mean of functional volumes, a volume without diffusion.

## What each input does

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
