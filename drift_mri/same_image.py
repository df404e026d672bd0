"""Whether two files hold one DICOM image, in whatever transfer syntaxes: a node is sent images again."""

import filecmp
import os
from pathlib import Path

import numpy as np
from pydicom import Dataset, filewriter
from pydicom.dataelem import DataElement
from pydicom.filebase import DicomBytesIO
from pydicom.tag import Tag

from scripts.inputs.headers import quiet, read_dataset

OF_CODING = {  # values that a program adds when it compresses an image without loss
    Tag(keyword)
    for keyword in ("DataSetTrailingPadding", "DerivationDescription", "DerivationCodeSequence", "PlanarConfiguration")
}


def is_same_image(one: Path, other: Path) -> bool:
    """Whether the pixels of two files are the same, and all values, tag by tag."""
    if filecmp.cmp(one, other, shallow=False):
        return True
    try:
        with quiet():  # its remarks hold values of headers
            (pixels, values), (others, theirs) = map(pixels_and_values, (one, other))
        return values == theirs and np.array_equal(pixels, others)
    except Exception:  # noqa: BLE001  # pydicom raises many types for broken objects
        return False


def pixels_and_values(source: str | os.PathLike) -> tuple[np.ndarray, dict[int, bytes]]:
    """The pixels of an object, empty where it has none, and its other values: tag -> the bytes of an implicit encoding.

    The same object has the same ones in every lossless transfer syntax. Private values have no types in an implicit
    one. Lengths of groups and sequences are the encoding's own, and so are `OF_CODING` and a "00" that says what is so
    without it: no lossy compression.
    """
    dataset = read_dataset(source)
    pixels = dataset.pixel_array if "PixelData" in dataset else np.zeros(0)
    dataset.pop("PixelData", None)
    if dataset.get("LossyImageCompression") == "00":
        del dataset.LossyImageCompression
    dataset.walk(_define_lengths)
    values = {}
    for found in (one for one in dataset if one.tag.element and one.tag not in OF_CODING):
        content = DicomBytesIO()
        content.is_little_endian, content.is_implicit_VR = True, True
        filewriter.write_data_element(content, found, list(np.atleast_1d(dataset.original_character_set)))
        parts = content.getvalue()[8:].split(b"\\")  # after tag and length; each may be padded
        values[int(found.tag)] = b"\\".join(part.strip(b" \0") for part in parts)
    return pixels, values


def _define_lengths(_: Dataset, found: DataElement) -> None:
    found.is_undefined_length = False
    for item in found.value if found.VR == "SQ" else ():
        item.is_undefined_length_sequence_item = False
