"""Which series are taken, how they are told apart, and which files are told of: real files."""

import copy
import gzip
import logging
import re
from pathlib import Path

import numpy as np
import pydicom
import pytest
from pydicom import Dataset, uid

from scripts.errors import InputError
from scripts.inputs.dicom import find_series, read_headers, read_series
from scripts.inputs.exclusion import needless
from scripts.outputs.dicom import write_series
from scripts.stack import grid
from tests.dicom_files import ONE_MORE_AXIAL, ORIENTATIONS, THIN, enhanced, mr_slices, read_only, save, taken, verdict


@pytest.mark.parametrize(
    ("spacing", "thickness", "pixel", "thin"),
    [(1.0, 1, 0.9, True), (1.0, 2.5, 0.9, False), (3.0, 1, 0.9, False), (3.0, 3, 3, True)],
)
def test_slices_that_are_thin_or_isotropic_need_no_rebuilding(tmp_path, voxels, spacing, thickness, pixel, thin):
    images = mr_slices(voxels, spacing=spacing, SliceThickness=thickness, PixelSpacing=[pixel, pixel])
    found = needless(*taken(save(tmp_path, images)), THIN)
    assert found == f"thin or isotropic already: slices {spacing:g} mm apart, pixels of {pixel:g} mm" * thin


def turned(slices, degrees, tilt=False):
    """Orientation of some slices turned in their plane, or out of it."""
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    other = [cosine, 0, sine, 0, 1, 0] if tilt else [cosine, sine, 0, -sine, cosine, 0]
    return {"ImageOrientationPatient": lambda k: other if k in slices else ORIENTATIONS["axial"]}


def from_another_side(image, *axes):
    """An image as it is stored from the other end of its columns (0) or rows (1)."""
    pixels = np.frombuffer(image.PixelData, np.uint16).reshape(image.Rows, image.Columns)
    orientation, position = np.reshape(image.ImageOrientationPatient, (2, 3)), np.array(image.ImagePositionPatient)
    for axis, count, edge in ((0, image.Columns, image.PixelSpacing[1]), (1, image.Rows, image.PixelSpacing[0])):
        if axis in axes:
            position = position + orientation[axis] * edge * (count - 1)
            orientation[axis] *= -1
    image.PixelData = np.flip(pixels, [1 - axis for axis in axes]).tobytes()
    image.ImageOrientationPatient, image.ImagePositionPatient = orientation.ravel().tolist(), position.tolist()
    return image


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("which", [slice(1, None, 2), slice(3, None), slice(5, None)])
def test_slices_that_are_stored_from_another_side_are_of_their_stack(tmp_path, voxels, axes, which):
    images = mr_slices(voxels, ORIENTATIONS["oblique"])
    expected = read_series(*taken(save(tmp_path / "plain", images)))
    for image in images[which]:
        from_another_side(image, *axes)
    (series,) = taken(save(tmp_path / "turned", images))
    found = read_series(series)
    np.testing.assert_array_equal(found.dataobj, expected.dataobj)
    np.testing.assert_allclose(found.affine, expected.affine, atol=1e-6)
    write_series(tmp_path / "out", np.asarray(found.dataobj), found.affine, series, "1", "key")


def either(keyword, first, second, order="010101"):
    """An attribute that has one of two values in each slice."""
    return {keyword: lambda k: (first, second)[int(order[k])]}


ONE = {  # what is one stack of six slices
    "every other slice turned a little": lambda v: mr_slices(v, **turned({1, 3, 5}, 0.08)),
    "a slice tilted a little": lambda v: mr_slices(v, **turned({0}, 0.08, tilt=True)),
    "pixels that differ by less than half of one at the edge": lambda v: mr_slices(
        v, **either("PixelSpacing", [0.9, 0.8], [0.93, 0.8])
    ),
    "numbers and times that vary along it": lambda v: mr_slices(
        v, AcquisitionNumber=lambda k: 1 + k % 2, EchoTime=lambda k: 90 + k / 100
    ),
    "a stray image of another orientation": lambda v: mr_slices(v) + mr_slices(v[:, :, :1], ORIENTATIONS["sagittal"]),
    "a slice of an interleave repeated": lambda v: (
        mr_slices(v, **either("AcquisitionNumber", 1, 2)) + mr_slices(v, AcquisitionNumber=2)[2:3]
    ),
    "a disc that holds its files twice": lambda v: 2 * mr_slices(v),
    "its copy from another side": lambda v: mr_slices(v) + [from_another_side(one, 0) for one in mr_slices(v)],
}


@pytest.mark.parametrize("what", ONE)
def test_what_is_one_stack_is_read_whole(tmp_path, voxels, what):
    volume = read_only(save(tmp_path, ONE[what](voxels)))
    np.testing.assert_array_equal(volume.dataobj, voxels)
    assert grid.voxel_spacing(volume.affine)[2] == pytest.approx(4.8, abs=0.01)


@pytest.mark.parametrize(("order", "name"), [("000011", "t2_ax"), ("110111", "moco"), ("010101", "moco")])
def test_a_stack_of_two_descriptions_has_the_name_of_most_slices(tmp_path, voxels, order, name):
    (series,) = taken(save(tmp_path, mr_slices(voxels, **either("SeriesDescription", "t2_ax", "moco", order))))
    assert name in series.name  # of as many each, the first by the alphabet: the same in every run


NONE = {  # what is no stack, and why
    "mixed orientations or matrices: 3 in one series": lambda v: [
        image for name in ("axial", "coronal", "sagittal") for image in mr_slices(v, ORIENTATIONS[name])
    ],
    r"mixed orientations.*: 2 in one.*turns of more than 0\.1": lambda v: mr_slices(v, **turned({0}, 0.2)),
    ".*other pixels": lambda v: mr_slices(v, **either("PixelSpacing", [0.9, 0.8], [0.97, 0.8])),
    r"slices have 2 echo times \(12, 90\)": lambda v: mr_slices(v, **either("EchoTime", 12, 90, "101001")),
    "slices have 2 inversion times": lambda v: mr_slices(v, **either("InversionTime", 400, 2500, "000001")),
    "mixed orientations.*: 2 in one series, as in a localizer": lambda v: (  # more than 45 degrees apart
        mr_slices(v) + mr_slices(v, [1, 0, 0, 0, 0.643, 0.766])
    ),
    "slices have 2 flip angles": lambda v: mr_slices(v, **either("FlipAngle", 5, 26, "101001")),
}


@pytest.mark.parametrize("why", NONE)
def test_what_is_no_stack_is_skipped_with_the_reason(tmp_path, voxels, why):
    assert re.match(why, verdict(save(tmp_path, NONE[why](voxels))))


TWO = {  # two stacks in one series
    "of like orientation": lambda v, w: mr_slices(v) + mr_slices(w, ONE_MORE_AXIAL),
    "less than 45 degrees apart": lambda v, w: mr_slices(v) + mr_slices(w, [1, 0, 0, 0, 0.766, 0.643]),
    **{
        f"at one place, of two kinds of {keyword}": lambda v, w, keyword=keyword, values=values: [
            enhanced(mr_slices(one, **{keyword: value})) for one, value in zip((v, w), values)
        ]
        for keyword, values in {
            "EchoTime": (20, 90),
            "TemporalPositionIdentifier": (1, 2),
            "ImageType": (["ORIGINAL", "PRIMARY", "M"], ["DERIVED", "PRIMARY", "NORM"]),
            "AcquisitionNumber": (1, 2),
        }.items()
    },
}


@pytest.mark.parametrize("what", TWO)
def test_two_stacks_are_two_volumes(tmp_path, voxels, what):
    inverted = voxels.max() - voxels
    first, second = taken(save(tmp_path, TWO[what](voxels, inverted)))
    assert first.name.endswith("-1") and second.name.endswith("-2")
    arrays = {read_series(series).dataobj.tobytes() for series in (first, second)}
    assert arrays == {voxels.astype(np.float32).tobytes(), inverted.astype(np.float32).tobytes()}


def test_volumes_that_nothing_tells_apart_are_skipped_and_cost_no_other_series(tmp_path, voxels):
    """As in arterial spin labelling and functional series of some scanners."""
    save(tmp_path / "asl", [i for t in range(3) for i in mr_slices(voxels + t, SeriesInstanceUID="1.2.9")])
    save(tmp_path / "t2", mr_slices(voxels))
    skipped = [one for one in find_series(tmp_path) if one.skipped]
    assert [one.skipped.partition(",")[0] for one in skipped] == ["3 images at each place"]
    assert "ASL" in skipped[0].skipped and len(skipped[0].images) == 18
    np.testing.assert_array_equal(read_only(tmp_path).dataobj, voxels)


def test_a_broken_file_is_named_and_costs_no_other_series(tmp_path, voxels):
    save(tmp_path, mr_slices(voxels))
    (tmp_path / "zz").write_bytes(b"\0" * 128 + b"DICM" + b"\x08\x00\x60\x00XX\xff\xff" * 5)
    (tmp_path / "zzz").write_bytes(b"\0" * 128 + b"DICM")
    series = find_series(tmp_path)
    assert [one.name for one in series if one.skipped] == ["zz", "zzz"]
    assert all("cannot be read as DICOM" in one.skipped for one in series if one.skipped)
    np.testing.assert_array_equal(read_only(tmp_path).dataobj, voxels)


CUT = {  # a name -> what is left of a slice
    "005": lambda content: content[:900],
    "005.dcm": lambda content: b"",
    "005.ima": lambda content: b"<html>404</html>",
    "005.dcm.gz": lambda content: gzip.compress(content)[:-200],
}


@pytest.mark.parametrize("name", CUT)
def test_a_cut_slice_at_the_end_is_not_lost_without_a_word(tmp_path, voxels, caplog, name):
    """The others are read, gzipped or not. Notes are no slice."""
    save(tmp_path, mr_slices(voxels), names=["000", "001", "002", "003", "004", name])
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        assert len(content) > 900 + voxels[:, :, 0].nbytes
        path.write_bytes(
            CUT[name](content) if path.name == name else gzip.compress(content) if "gz" in name else content
        )
    (tmp_path / "notes.txt").write_text("seen")
    (series,) = taken(tmp_path)
    np.testing.assert_array_equal(read_series(series).dataobj, voxels[..., :5])
    assert len(read_headers(series)[0]) == 5
    (told,) = (r.getMessage() for r in caplog.records if r.name == "drift")
    assert re.match(rf"{series.name}: [^,]*{name} cannot be read, and may hold slices of it", told)


@pytest.mark.parametrize(("gone", "kept"), [((2,), 6), ((6,), 6), ((2, 5), 3)])
def test_of_a_stack_that_lacks_slices_the_longest_part_may_be_taken(tmp_path, gone, kept):
    """Of nine slices, or of those at both ends of a gap as many; what is left out is said."""
    voxels = np.arange(12 * 10 * 9, dtype=np.uint16).reshape(12, 10, 9)
    images = [image for k, image in enumerate(mr_slices(voxels)) if k not in gone]
    (series,) = find_series(save(tmp_path, images), longest_part=True)
    volume = read_series(series)
    assert volume.dataobj.shape[2] == len(series.images) == kept
    said = f"{len(gone)} of 9 slices are missing: {kept} slices, the longest unbroken part"
    assert volume.extra["warning"].startswith(said)
    first = 0 if gone == (6,) else max(gone) + 1
    np.testing.assert_array_equal(volume.dataobj, voxels[:, :, first : first + kept].astype(np.float32))


def test_series_of_one_folder_are_told_apart_and_have_lasting_names(tmp_path, voxels):
    save(tmp_path / "a", mr_slices(voxels))
    save(tmp_path / "b", mr_slices(voxels, SeriesInstanceUID="1.2.9", PatientID="18"))
    save(tmp_path / "c/d", mr_slices(voxels, SeriesInstanceUID="1.2.10", SeriesDescription="../../t1 für/ alle"))
    save(tmp_path / ".partial", mr_slices(voxels, SeriesInstanceUID="1.2.11"))  # a hidden folder is not seen
    (tmp_path / "empty").touch()
    names = [one.name for one in taken(tmp_path)]
    assert len(set(names)) == 3 and all(Path(name).name == name and not name.startswith(".") for name in names)
    assert names == [one.name for one in taken(tmp_path)]
    assert taken(tmp_path / "b")[0].name in names


def test_an_index_has_a_clear_message(tmp_path):
    index = Dataset()
    index.SOPClassUID, index.SOPInstanceUID = uid.MediaStorageDirectoryStorage, "1.2"
    save(tmp_path / "disc", [index], names=["DICOMDIR"])
    with pytest.raises(InputError, match="DICOMDIR is an index"):
        find_series(tmp_path / "disc" / "DICOMDIR")
    assert find_series(tmp_path / "disc") == []
    assert find_series([]) == []


def test_pydicoms_remarks_are_not_passed_on(tmp_path, voxels, recwarn, caplog):
    images = mr_slices(voxels)
    with pydicom.config.disable_value_validation():
        for image in images:
            image.StudyInstanceUID, image.PatientAge, image.StudyDescription = "1.2.a", "51", "x" * 80
            image["EchoTime"] = pydicom.DataElement("EchoTime", "LO", "soon")
        save(tmp_path, images, uid.ImplicitVRLittleEndian)
    caplog.clear()
    recwarn.clear()
    (source,) = taken(tmp_path)
    volume = read_series(source)
    write_series(tmp_path / "sr", volume.dataobj, volume.affine, source, "1.0", "key")
    assert not list(recwarn) and all(record.name == "drift" for record in caplog.records)
    assert logging.getLogger("pydicom").level != logging.ERROR


@pytest.mark.parametrize("kind", [uid.RawDataStorage, uid.SecondaryCaptureImageStorage, "1.3.12.2.1107.5.9.1"])
def test_an_object_that_is_no_image_changes_neither_name_nor_number_of_its_series(tmp_path, voxels, kind):
    images = mr_slices(voxels)
    (alone,) = find_series(save(tmp_path / "alone", images))
    thing = copy.deepcopy(images[0])
    thing.SOPClassUID, thing.SOPInstanceUID, thing.SeriesDescription = kind, uid.generate_uid(), "raw"
    found = find_series(save(tmp_path / "both", [*images, thing]))
    (with_it,), (skipped,) = ([one for one in found if bool(one.skipped) == aside] for aside in (False, True))
    assert (with_it.name, with_it.part, len(with_it.images)) == (alone.name, alone.part, 6)
    assert len(skipped.images) == 1 and skipped.name != alone.name


@pytest.mark.parametrize(("volumes", "kept"), [(8, True), (9, False)])
def test_up_to_eight_volumes_at_one_place_are_taken(tmp_path, voxels, volumes, kept):
    images = [one for k in range(volumes) for one in mr_slices(voxels, AcquisitionNumber=k)]
    found = find_series(save(tmp_path, images))
    assert len(found) == (volumes if kept else 1) and all((one.skipped is None) == kept for one in found)


@pytest.mark.parametrize(("degrees", "torn"), [(4.5, True), (5.5, False)])
def test_slices_that_are_turned_by_up_to_five_degrees_are_of_one_torn_stack(tmp_path, voxels, degrees, torn):
    found = find_series(save(tmp_path, mr_slices(voxels, **turned((4, 5), degrees))))
    assert any("make one stack but for turns" in (one.skipped or "") for one in found) == torn


@pytest.mark.parametrize(("thickness", "count"), [(3.9, 1), (4.1, 2)])
def test_series_within_each_other_are_one_stack_unless_their_slices_overlap_by_more(tmp_path, voxels, thickness, count):
    """Slices 2.4 mm apart, in two series of 4.8 mm: 0.6 of 4 mm."""
    images = mr_slices(voxels, spacing=2.4, SliceThickness=thickness, SeriesInstanceUID=lambda k: f"1.2.3.{k % 2}")
    assert len([one for one in find_series(save(tmp_path, images)) if not one.skipped]) == count


@pytest.mark.parametrize(
    ("by", "count", "kept", "told"),
    [
        ("ImagesInAcquisition", "6", 6, False),
        ("ImagesInAcquisition", "6", 4, True),  # end-of-the-head-lost
        ("ImagesInAcquisition", None, 4, False),
        ("Number of Slices MR of Philips", 6, 4, True),
    ],
)
def test_images_that_the_header_counts_and_that_are_not_there_are_said(tmp_path, voxels, by, count, kept, told):
    images = mr_slices(voxels, **({by: count} if count == "6" else {}))[6 - kept :]
    for image in images if "Philips" in by else ():
        image.private_block(0x2001, "Philips Imaging DD 001", create=True).add_new(0x18, "SL", count)
    (one,) = find_series(save(tmp_path, images))
    said = f"2 of 6 images are not there, by {by}" * told
    assert one.skipped is None and one.note.partition(" of the header")[0] == said


def test_a_transfer_syntax_of_a_maker_is_one_line(tmp_path, voxels):  # private-transfer-syntax
    folder = save(tmp_path / "series", mr_slices(voxels))
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes().replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.113619.5.2\0\0"))
    (one,) = find_series(folder)
    assert len(one.images) == 6 and "in the transfer syntax 1.2.840.113619.5.2 of their maker" in one.skipped
