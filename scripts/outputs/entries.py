"""The record of a result as a value: its entries, its text, its schema. `record.describe` makes it.

A record is the JSON file beside a result, `NAME_sr.json`. It is written last. An entry is a row of `ENTRIES`. The row
makes docs/record.schema.json, python -m scripts.outputs.entries > docs/record.schema.json, and the table of
docs/record.md.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn


class Frozen(dict[str, Any]):
    """A dict that nobody changes; those in it are frozen, and its lists are tuples."""

    def __init__(self, content: Mapping[str, Any]):
        super().__init__({name: frozen(value) for name, value in content.items()})

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a record does not change: expected another by replaced(NAME=VALUE)")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


def frozen(value: Any) -> Any:
    """A value of JSON that nobody changes."""
    if isinstance(value, Mapping):
        return Frozen(value)
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


TEXT, NUMBER, SWITCH, OBJECT = ({"type": kind} for kind in ("string", "number", "boolean", "object"))
SHARE = {"type": ["number", "null"]}  # null where it has none


def each(form: Mapping[str, Any]) -> dict[str, Any]:
    """The form of a list."""
    return {"type": "array", "items": form}


def of(*required: str, **forms: Mapping[str, Any]) -> dict[str, Any]:
    """The form of an object with these entries, all of which are there unless some are named."""
    return {"type": "object", "properties": forms, "required": list(required or forms)}


MATRIX = each(each(NUMBER))
MOVED: dict[str, Any] = {"Degrees": NUMBER, "Millimetres": NUMBER}
FACT = {"type": "array", "prefixItems": [TEXT, TEXT], "minItems": 2, "maxItems": 2}
STACK = of(
    **MOVED,
    Name=TEXT,
    Motion=MATRIX,
    Gain=each(NUMBER),
    Likeness=NUMBER,
    Relation=NUMBER,
    Share=NUMBER,
    Agreement=SHARE,
    Warnings=each(TEXT),
    Disputes=each(of(Place=each(NUMBER), Volume=NUMBER, Difference=NUMBER)),
)
# Entry -> its form, and what it says. The first ones are in each record, of Python and of the browser too.
REQUIRED: dict[str, tuple[Mapping[str, Any], str]] = {
    "Description": (TEXT, "what the result is; `Not rebuilt` begins that of a copy"),
    "Sources": (
        each(TEXT),
        "the files it was made of, the scan first: paths from the record, URIs of BIDS, or UIDs in an archive",
    ),
    "SliceThickness": (NUMBER, "of the result, in mm"),
    "SpacingBetweenSlices": (NUMBER, "of the result, in mm"),
    "Facts": ({**OBJECT, "additionalProperties": FACT}, "what was taken for the acquisition, and where it came from"),
    "Warnings": (each(TEXT), "what to look at"),
    "Agreement": (
        SHARE,
        "RMS difference to the measured slices, over their RMS in the head without hot spots; null for a constant scan",
    ),
}
ENTRIES: dict[str, tuple[Mapping[str, Any], str]] = {
    **REQUIRED,
    "Guide": (
        of("Name", Name=TEXT, Reason=TEXT, Motion=MATRIX, Likeness=NUMBER, Share=NUMBER, Borders=OBJECT, **MOVED),
        "the scan that guided: its name, why it was chosen, motion to the scan (4 x 4, mm, RAS+), "
        "likeness, its share of the head, and places on the borders of its field of view",
    ),
    "Sharp": (TEXT, "with --sharp: Euler steps of the flow, and what they cost"),
    "Motion": (
        of(
            **{"Description": TEXT, "TakenBack": SWITCH, "Packages": {"type": "integer"}, "Matrices": each(MATRIX)},
            **{**MOVED, "Displacement": NUMBER, "Uncertainty": NUMBER},
        ),
        "of a head that moved between the packages of its slices; lengths in mm",
    ),
    "Stacks": (each(STACK), "with --together: motion, gain, share and agreement of each stack"),
    "ErrorMap": (
        of(
            *("Description", "Confidence"),
            **{"Description": TEXT, "Confidence": NUMBER, "Median": NUMBER, "MedianOfRange": NUMBER, "Noise": NUMBER},
            **{"Regions": {"type": ["string", "null"]}, "Calibration": {"type": ["string", "null"]}},
        ),
        "with --error_map: confidence, median half-width in the head, hashes of the regions and of the calibration",
    ),
    "Check": (
        of(
            "Description",
            **{"Description": TEXT, "Slices": each({"type": "integer"}), "Directions": {"type": "integer"}},
            **{"Spline": NUMBER, "Rebuilt": NUMBER, "Gain": NUMBER, "Foretold": NUMBER, "Error": NUMBER},
            Foretelling={"type": ["string", "null"]},
            Spots=each(of(Size=NUMBER, Contrast=NUMBER, Kept=NUMBER, Spline=NUMBER, Count={"type": "integer"})),
            Pictures=OBJECT,
        ),
        "with --check: the scan's own slices, acquired again and rebuilt. Which slices, from 0; PSNR of the cubic "
        "spline and of the network; the gain that this foretells through the slices, its error, in dB, and the hash of "
        "the line that foretells it; spots of a size in mm and a contrast, and the share of it that is kept; pictures "
        "of one slice",
    ),
    "Noise": (
        of(Deviation=NUMBER, Share=NUMBER, Widths=each(NUMBER), Source=TEXT, Left=SHARE),
        "of the slices: standard deviation in their units, and over the range of their tissue; pixels of the acquired "
        "matrix in pixels of the image; the RMS difference of `Agreement` over the noise, 1 where noise alone is left",
    ),
    "Streak": (
        of(Ratio=SHARE, Steps=SHARE),
        "in flat tissue: steps within the slices over those across them, 1 in true isotropic scans; and steps within "
        "the slices over the range of tissue",
    ),
    "Overview": (OBJECT, "the scan's pictures in index.html"),
    "Summary": (OBJECT, "its row of summary.csv"),
    "InputSHA256": (TEXT, "hash of the files that were given"),
    "Network": (
        of("Description", "Class", Description=TEXT, Class=TEXT, File=TEXT, FileSHA256=TEXT, WeightsVersion=TEXT),
        "that rebuilt, in words and by its class; of one that is not DRIFT's the file and the hash of its code; the "
        "version that trained its weights",
    ),
    "WeightsSHA256": ({"type": ["string", "null"]}, "hash of the weights file; null for weights of another origin"),
    "ConfigSHA256": (TEXT, "hash of all that makes results, the config's overrides included"),
    "Release": (TEXT, "the first two numbers of the version; the third changes no result"),
    "Settings": (
        OBJECT,
        "options and settings of the method that change a result; `sharp_velocity` and `sharp_detail` do with `sharp` "
        "alone; null for one that was left open",
    ),
    "Version": (TEXT, "of the bundle"),
    "Device": (TEXT, "that computed"),
    "Bfloat16": (SWITCH, "whether convolutions were in bfloat16"),
    "Results": (
        {**OBJECT, "additionalProperties": {**of(Bytes={"type": "integer"}, SHA256=TEXT), "required": []}},
        "files that were written, the result first: sizes in bytes, and hashes",
    ),
}
KEPT = (  # fields of the scan's BIDS sidecar that hold for its result; those on slices, their order or times do not
    "SkullStripped "
    "Modality MagneticFieldStrength Manufacturer ManufacturersModelName SoftwareVersions InstitutionName StationName "
    "BodyPart BodyPartExamined MRAcquisitionType ScanningSequence SequenceVariant SequenceName PulseSequenceType "
    "ReceiveCoilName ReceiveCoilActiveElements RepetitionTime EchoTime InversionTime FlipAngle EchoTrainLength "
    "NumberOfAverages PixelBandwidth ImagingFrequency ContrastBolusIngredient SeriesDescription ProtocolName"
).split()


def to_json(content: Mapping[str, Any]) -> str:
    """The text of a record, or of another sidecar."""
    return json.dumps(content, indent=1) + "\n"


class Record(Frozen):
    """The nature of a result, its sources, its makers, and how far it can be trusted.

    A record that is read keeps entries that this version does not know: another version wrote them. A new record has
    the entries of `ENTRIES`, and facts of the scan's BIDS sidecar, alone.
    """

    def __init__(self, content: Mapping[str, Any]):
        if lost := REQUIRED.keys() - content.keys():
            raise ValueError(f"a record has {', '.join(sorted(lost))}, which this one lacks")
        super().__init__(content)

    @classmethod
    def made(cls, **entries: Any) -> "Record":
        """A new record. A name that `ENTRIES` lacks is a `TypeError`."""
        if strange := entries.keys() - {*ENTRIES, *KEPT}:
            raise TypeError(f"a record has no {', '.join(sorted(strange))}: expected a row of ENTRIES for each")
        return cls(entries)

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """The record of a file's text; a `ValueError` for another text."""
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError(f"a {type(content).__name__} is no record: expected an object")
        return cls(content)

    @classmethod
    def read(cls, path: Path) -> "Record":
        """The record in a file; a `ValueError` for another content."""
        return cls.from_json(path.read_text(encoding="utf-8"))

    def to_json(self) -> str:
        """The text of its file."""
        return to_json(self)

    def replaced(self, **entries: Any) -> "Record":
        """Another record, with these entries in the place of its own."""
        return type(self)({**self, **entries})


def schema() -> dict[str, Any]:
    """The JSON schema of records."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Record of a result of DRIFT",
        "description": "Further entries are facts of the scan's BIDS sidecar, or of other versions.",
        "type": "object",
        "required": list(REQUIRED),
        "properties": {name: {"description": what, **form} for name, (form, what) in ENTRIES.items()},
    }


def table() -> str:
    """The entries as docs/record.md shows them, in Markdown."""
    rows = [f"| `{name}` | {what} |" for name, (_, what) in ENTRIES.items()]
    return "\n".join(["| entry | what |", "| --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(to_json(schema()))
