"""The spool: whose images a series has, what is removed, and which folders are none."""

import os
import time
from io import BytesIO

import numpy as np
import pydicom
import pytest
from pydicom import Dataset, uid

from drift_mri.spool import Spool
from scripts.errors import InputError
from tests.corpus.situations import head
from tests.dicom_files import mr_slices
from tests.node.peers import file_of, in_syntax, thick


@pytest.mark.parametrize("other", [{"PatientName": "Roe^Ann"}, {"PatientID": "18"}])
def test_images_of_another_name_or_another_number_are_of_two_patients(other, tmp_path):
    spool = Spool(tmp_path / "spool")
    images = [*thick()[:2], *thick(**other)[2:4]]
    for count, image in enumerate(images, start=1):
        spool.keep("1.2.3.1", image.SOPInstanceUID, file_of(image))
        assert spool.patients("received", "1.2.3.1") == 1 + (count > 2)


@pytest.mark.parametrize("name", ["DOE^JANE^^^", "doe^jane", "Doe Jane"])
def test_one_name_in_two_spellings_or_left_out_is_one_patient(name, tmp_path):
    spool = Spool(tmp_path / "spool")
    for image in [*thick()[:2], *thick(PatientName=name)[2:4], *thick(PatientName=None)[4:]]:
        spool.keep("1.2.3.1", image.SOPInstanceUID, file_of(image))
    assert spool.patients("received", "1.2.3.1") == 1


@pytest.mark.parametrize(("count", "may_grow"), [(12, False), (8, True)])
def test_a_whole_head_ends_in_little_tissue_and_a_part_of_it_in_much(count, may_grow, tmp_path):
    spool = Spool(tmp_path / "spool")
    for image in mr_slices(head().astype(np.uint16)[..., :count], spacing=5.0):
        spool.keep("1.2.3.1", image.SOPInstanceUID, file_of(image))
    assert spool.may_grow("1.2.3.1") == may_grow


SYNTAXES = [
    *(uid.ExplicitVRLittleEndian, uid.ImplicitVRLittleEndian, uid.ExplicitVRBigEndian),
    *(uid.DeflatedExplicitVRLittleEndian, uid.RLELossless),
]


def private(maker="fast 3", within="in ner", **attributes):
    """An image with a maker's elements of many types, and a sequence of them."""
    image, item, reference = thick(**attributes)[0], Dataset(), Dataset()
    values = {
        "LO": maker,
        "SH": ["A ", "B"],
        "DS": [" 1.50", "2"],
        "US": 7,
        "OB": b"abc",
        "UI": "1.2.3",
        "FD": [1.5, 2.5],
    }
    item.private_block(0x0019, "MAKER 1.0", create=True).add_new(1, "LO", within)
    block = image.private_block(0x0019, "MAKER 1.0", create=True)
    for k, (kind, value) in enumerate({**values, "SQ": [item]}.items(), start=1):
        block.add_new(k, kind, value)
    reference.ReferencedSOPClassUID, reference.ReferencedSOPInstanceUID = "1.2.3", "1.2.3.4"
    image.ReferencedImageSequence, image.SmallestImagePixelValue = [reference], 3
    return image


def written(image, syntax):
    """The content of a file."""
    content, image = BytesIO(), in_syntax(image)
    if syntax == uid.RLELossless:
        image.compress(syntax, generate_instance_uid=False)
    elif syntax == uid.ExplicitVRBigEndian:
        image.PixelData = np.frombuffer(image.PixelData, "<u2").astype(">u2").tobytes()
    image.file_meta.TransferSyntaxUID = syntax
    pydicom.dcmwrite(content, image, enforce_file_format=True)
    return content.getvalue()


def comes_again(tmp_path, first, second):
    """Whether a second sending of an image counts as another image."""
    spool = Spool(tmp_path / "spool")
    for content, state in ((first, "done"), (second, "working")):
        spool.keep("1.2.3.1", "1.2.826.1.1", content)
        spool.move("1.2.3.1", "received", state)
    return spool.join_earlier("1.2.3.1")


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("other", SYNTAXES[:2])
def test_an_image_in_another_syntax_is_the_same_with_all_that_its_maker_adds(syntax, other, tmp_path):
    assert not comes_again(tmp_path, written(private(), other), written(private(), syntax))


def test_values_that_stray_from_the_standard_are_not_told_to_the_log(tmp_path, caplog, recwarn):
    """A text where a maker has numbers, say: the log has no patient in it."""
    image = private()
    image.private_block(0x0019, "SIEMENS MR HEADER", create=True).add_new(0x0C, "OB", b"Doe^Jane")  # a number, type IS
    assert not comes_again(tmp_path, *(written(image, syntax) for syntax in SYNTAXES[:2]))
    assert "Doe" not in caplog.text and not [one for one in recwarn if "Doe" in str(one.message)]


@pytest.mark.parametrize("changed", [{"maker": "fast 4"}, {"within": "other"}, {"PatientID": "18"}, {"number": 2}])
def test_another_value_or_another_pixel_is_another_image(changed, tmp_path):
    assert comes_again(tmp_path, written(private(), SYNTAXES[1]), written(private(**changed), SYNTAXES[0]))


def test_hidden_files_and_folders_are_none_of_a_spool(tmp_path):
    """Locks and what is half written."""
    spool = Spool(tmp_path / "spool")
    spool.keep("1.2.3.1", "1", file_of(thick()[0]))
    (spool.path / "received" / ".1.2.3.9").mkdir()
    (spool.path / "received" / "1.2.3.1" / ".7-2.dcm").write_bytes(b"half")
    assert spool.names("received") == ["1.2.3.1"]
    assert [path.name for path in spool.images("received", "1.2.3.1")] == ["1.dcm"]


def test_what_was_sent_is_removed_after_its_days_and_nothing_else(tmp_path):
    spool = Spool(tmp_path / "spool")
    day = 86400
    for state, name, age in (("done", "1", 8), ("done", "2", 6), ("aside", "3", 99), ("sending", "4", 99)):
        for folder in (spool.path / state / name, spool.path / "results" / name):
            folder.mkdir()
            os.utime(folder, (time.time() - age * day,) * 2)
    spool.tidy(7)
    assert [spool.names(state) for state in ("done", "aside", "sending")] == [["2"], ["3"], ["4"]]
    assert sorted(spool.names("results")) == ["2", "3", "4"]


def test_a_folder_of_other_things_is_no_spool(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "of mine.txt").write_text("x")
    with pytest.raises(InputError, match="holds other things"):
        Spool(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_an_empty_folder_is_closed_to_others_and_a_spool_that_is_open_to_all_is_refused(tmp_path):
    folder = tmp_path / "spool"
    folder.mkdir()
    folder.chmod(0o755)
    Spool(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o750)
    Spool(folder)
    assert folder.stat().st_mode & 0o777 == 0o750, "a group that somebody chose"
    folder.chmod(0o755)
    with pytest.raises(InputError, match="is open to everybody"):
        Spool(folder)
