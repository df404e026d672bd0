"""The record is a value with a schema: it does not change, its text gives it back, and whoever reads it finds it so."""

import copy
import json
import pickle

import pytest
from jsonschema import Draft202012Validator

from scripts.outputs.entries import ENTRIES, REQUIRED, Record, schema, table
from tests.cohort_files import outcomes, record
from tests.processes import ROOT

SCHEMA = ROOT / "docs" / "record.schema.json"
LEAST = {**dict.fromkeys(REQUIRED, "a"), "Facts": {"steps": ["2", "AIS"]}, "Warnings": ["b"]}


def test_the_schema_of_the_docs_is_that_of_the_entries():
    """python -m scripts.outputs.entries > docs/record.schema.json"""
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == json.loads(json.dumps(schema()))
    Draft202012Validator.check_schema(schema())
    assert table() in (ROOT / "docs" / "record.md").read_text(encoding="utf-8")


def test_nobody_changes_a_record():
    one = Record.made(**LEAST)
    for change in (
        lambda: one.update(Agreement=1),
        lambda: one["Facts"].setdefault("steps", 3),
        lambda: one["Facts"].pop("steps"),
        lambda: one.__setitem__("Version", "2"),
        lambda: one["Warnings"].append("c"),
    ):
        with pytest.raises((TypeError, AttributeError)):
            change()
    other = one.replaced(Warnings=["c"])
    assert one["Warnings"] == ("b",) and other == {**one, "Warnings": ("c",)}
    assert type(other) is Record and copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one


def test_its_text_gives_it_back_with_what_other_versions_wrote():
    one = Record.from_json(json.dumps({**LEAST, "Later": {"Width": [1.5]}}))
    assert one["Later"] == {"Width": (1.5,)} and Record.from_json(one.to_json()) == one


@pytest.mark.parametrize("text", ["[]", "{}", "{", json.dumps({**LEAST, "Sources": 1})[:-9]])
def test_what_is_no_record_is_refused(text):
    with pytest.raises(ValueError, match=r"record|Expecting|Unterminated|delimiter"):
        Record.from_json(text)


def test_a_new_record_has_the_entries_of_the_schema_alone():
    assert Record.made(**LEAST, EchoTime=0.1)["EchoTime"] == 0.1, "facts of the scan's sidecar"
    with pytest.raises(TypeError, match="has no Anonymous"):
        Record.made(**LEAST, Anonymous=True)


def test_what_is_written_is_as_the_schema_says(scan, bundle):
    bundle(scan, report=True)
    written = record(bundle.out)
    Draft202012Validator({**schema(), "additionalProperties": False}).validate(written)
    assert {"Results", "Summary", "Overview", "Settings"} <= written.keys() <= ENTRIES.keys()
    path = bundle.out / "scan_sr.json"
    path.write_text(json.dumps({**written, "Later": 1}))
    bundle(scan, report=True)
    assert outcomes(bundle.out) == ["complete already"], "a later version's entry is no reason to do it again"
