"""Python's constants in the types of JSON, so that the page asks the same tables: numbers, words, patterns, reasons."""

import importlib
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydicom import datadict
from pydicom.tag import Tag

from scripts.inputs import kinds
from scripts.inputs.headers import ENHANCED_NAMES
from scripts.outputs.dicom.inherit import GUIDE, SOURCE, code

MODULES = (  # whose constants the page shares
    *(
        "stack.acquisition",
        "stack.settle",
        "stack.grid",
        "stack.intensity",
        "stack.tissue",
        "stack.trace",
        "stack.missing",
        "stack.interleaving",
        "stack.planes",
    ),
    *("stack.spectra", "stack.brightness", "stack.noise", "stack.slices", "stack.contents"),
    *(
        "inputs.bids",
        "inputs.readers",
        "rebuild.preprocessing",
        "inputs.names",
        "inputs.identity",
        "inputs.examination",
        "inputs.kinds",
        "inputs.headers",
        "inputs.dicom.policies",
        "inputs.dicom.select",
        "inputs.dicom.stacks",
    ),
    *("rebuild.consistency", "rebuild.deblocking", "rebuild.windows", "outputs.record", "outputs.facts"),
    *("outputs.dicom.inherit", "outputs.dicom.write"),
    *(
        "rebuild.coverage",
        "rebuild.guide",
        "rebuild.rebuilt",
        "rebuild.gain",
        "rebuild.registration",
        "rebuild.rebuilder",
        "rebuild.acquired_again",
        "rebuild.reduced_resolution",
        "method.calibration",
    ),
)


IDENTITY = (  # attributes that say whose head an image shows, and by which contrast
    "PatientName PatientID StudyInstanceUID SeriesInstanceUID EchoTime InversionTime RepetitionTime ContrastBolusAgent "
    "ScanOptions SpectrallySelectedSuppression SOPClassUID AnatomicRegionSequence PatientSpeciesCodeSequence "
    "ContrastBolusIngredient ContrastBolusAgentSequence ContrastBolusVolume ContrastBolusTotalDose"
).split()


def tables() -> dict[str, dict[str, Any]]:
    """By the last name of a module: its constants that JSON holds; and `attributes` and `codes`."""
    found: dict[str, dict[str, Any]] = {"attributes": attributes(), "codes": codes()}
    for name in MODULES:
        own = found.setdefault(name.rsplit(".")[-1], {})
        for key, value in vars(importlib.import_module(f"scripts.{name}")).items():
            if key.isupper():
                with suppress(TypeError):  # which the page does not ask
                    own[key] = as_json(value)
    return found


def as_json(value: Any) -> Any:
    """A constant in the types of JSON: a set sorted, a pattern as its text, a table of tests as its reasons.

    Raises:
        TypeError: if it is anything else.
    """
    if isinstance(value, int | float | str):
        return value
    if isinstance(value, re.Pattern) and not value.flags & re.IGNORECASE:
        return value.pattern
    if isinstance(value, set):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [as_json(one) for one in value]
    if isinstance(value, Mapping):
        if any(map(callable, value.values())):
            return list(value)
        if all(isinstance(key, str) for key in value):
            return {key: as_json(one) for key, one in value.items()}
        return as_json(list(value.items()))
    raise TypeError(f"{type(value).__name__} is no constant that JSON holds")


def attributes() -> dict[str, list[str]]:
    """Attributes on the content of an image: keyword, or tag of a private one -> tag, and kind of its values."""
    words = [*kinds.DESCRIBED, *ENHANCED_NAMES, "EchoPulseSequence", *IDENTITY]
    found = {word: [_written(word), datadict.dictionary_VR(word)] for word in words if datadict.tag_for_keyword(word)}
    for tag, (block, creator) in {kinds.GE_COMPONENT: (kinds.GE_CREATOR, "GEMS_PARM_01"), **kinds.B_VALUES}.items():
        found[_written(tag)] = [_written(tag), datadict.private_dictionary_VR(tag, creator)]
        found[_written(block)] = [_written(block), "LO"]
    return found


def codes() -> dict[str, list[str]]:
    """Codes of derived series: keyword -> value, scheme and meaning."""
    found = {}
    for keyword in ("SpatialResampling", "ProcessingEquipment", SOURCE, GUIDE):
        (item,) = code(keyword)
        found[keyword] = [item.CodeValue, item.CodingSchemeDesignator, item.CodeMeaning]
    return found


def _written(tag: str | tuple[int, int]) -> str:
    """A tag as dicom-parser writes it."""
    return f"x{Tag(tag):08x}"
