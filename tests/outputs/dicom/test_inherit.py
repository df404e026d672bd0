"""What a derived series says: where it lies, what it is, and what it takes over from its source."""

import numpy as np
import pytest
from pydicom import Dataset, uid

from scripts.inputs.dicom import read_headers, read_series
from scripts.outputs.dicom import write_series
from scripts.outputs.dicom.inherit import inherited
from scripts.stack.grid import voxel_spacing
from tests.dicom_files import (
    DCM2NIIX,
    ORIENTATIONS,
    REAL,
    assert_same_in_space,
    derived,
    enhanced,
    images_of,
    mr_slices,
    read_only,
    rebuilt,
    save,
    taken,
    through_dcm2niix,
    verdict,
    world,
)


@pytest.mark.parametrize("orientation", [ORIENTATIONS[name] for name in ("coronal", "oblique")])
def test_the_derived_series_lies_where_the_affine_says(tmp_path, voxels, orientation):
    array, affine, images = derived(tmp_path, mr_slices(voxels, orientation))
    assert len(images) == array.shape[2] == 13
    for column, row, k in [(0, 0, 0), (11, 0, 3), (0, 9, 7), (11, 9, 12)]:
        np.testing.assert_allclose(world(images[k], column, row), affine[:3] @ [column, row, k, 1], atol=1e-6)
        assert images[k].pixel_array[row, column] == array[column, row, k]
    for k, image in enumerate(images):
        assert (image.SliceThickness, image.SpacingBetweenSlices, image.InstanceNumber) == (2.2, 2.2, k + 1)
    np.testing.assert_allclose(np.diff([float(image.SliceLocation) for image in images]), 2.2, atol=1e-6)


@pytest.mark.skipif(DCM2NIIX is None, reason="dcm2niix is not installed")
@pytest.mark.parametrize("orientation", [ORIENTATIONS[name] for name in ("sagittal", "oblique")])
def test_dcm2niix_agrees_on_source_and_result(tmp_path, voxels, orientation):
    array, affine, _ = derived(tmp_path, mr_slices(voxels, orientation), overshoot=50)
    source = read_only(tmp_path / "source")
    assert_same_in_space(source.dataobj, source.affine, *through_dcm2niix(tmp_path / "source", tmp_path / "n1")[:2])
    other, other_affine, sidecar = through_dcm2niix(tmp_path / "sr", tmp_path / "n2")
    assert_same_in_space(array, affine, other, other_affine)
    assert (sidecar["SliceThickness"], sidecar["SpacingBetweenSlices"]) == (2.2, 2.2)


@pytest.mark.skipif(DCM2NIIX is None, reason="dcm2niix is not installed")
def test_dcm2niix_names_the_scanner_and_no_multiband(tmp_path, voxels):
    scanner = {"Manufacturer": "SIEMENS", "ManufacturerModelName": "Prisma", "SoftwareVersions": "syngo MR E11"}
    derived(tmp_path, mr_slices(voxels, **scanner))
    sidecar = through_dcm2niix(tmp_path / "sr", tmp_path / "n")[2]
    said = [sidecar[name] for name in ("Manufacturer", "ManufacturersModelName", "SoftwareVersions")]
    assert said == ["Siemens", "Prisma", "syngo MR E11"]
    assert not {"MultibandAccelerationFactor", "SliceTiming"} & set(sidecar)


REQUIRED = (  # attributes of type 1 in the mandatory modules of the MR Image IOD
    "SOPClassUID SOPInstanceUID StudyInstanceUID SeriesInstanceUID Modality FrameOfReferenceUID ImageType "
    "ScanningSequence SequenceVariant PixelSpacing ImageOrientationPatient ImagePositionPatient SamplesPerPixel "
    "PhotometricInterpretation Rows Columns BitsAllocated BitsStored HighBit PixelRepresentation PixelData"
).split()
PRESENT = (  # of type 2, and of type 2C where the condition holds
    "PatientName PatientID PatientBirthDate PatientSex StudyDate StudyTime ReferringPhysicianName StudyID "
    "AccessionNumber SeriesNumber PatientPosition PositionReferenceIndicator Manufacturer InstanceNumber ContentDate "
    "ContentTime SliceThickness ScanOptions MRAcquisitionType EchoTime EchoTrainLength RepetitionTime"
).split()


@pytest.mark.parametrize("kind", ["classic", "poor", "multi-frame"])
def test_the_required_attributes_are_there(tmp_path, voxels, kind):
    lost = "StudyInstanceUID FrameOfReferenceUID PatientName PatientID StudyDate Manufacturer ScanningSequence EchoTime"
    images = mr_slices(voxels, **dict.fromkeys(lost.split()) if kind == "poor" else {})
    images = [enhanced(images)] if kind == "multi-frame" else images
    for image in derived(tmp_path, images)[2]:
        assert [k for k in REQUIRED if k not in image or image[k].is_empty] == []
        assert [k for k in PRESENT if k not in image] == []
        assert image.SOPClassUID == image.file_meta.MediaStorageSOPClassUID == uid.MRImageStorage
        assert image.file_meta.TransferSyntaxUID == uid.ExplicitVRLittleEndian


def uids(images):
    return [(image.SeriesInstanceUID, image.SOPInstanceUID) for image in images]


def test_uids_come_from_source_settings_and_version_and_none_is_the_sources(tmp_path, voxels):
    """Patient, study and frame of reference stay."""
    source = mr_slices(voxels)
    images = derived(tmp_path / "a", source)[2]
    assert uids(derived(tmp_path / "b", source[::-1])[2]) == uids(images)
    every = {one for pair in uids(source) for one in pair}
    for made in (
        images,
        derived(tmp_path / "key", source, key="other settings")[2],
        derived(tmp_path / "version", source, version="2")[2],
        derived(tmp_path / "source", mr_slices(voxels))[2],  # images of their own UIDs
    ):
        own = {one for pair in uids(made) for one in pair}
        assert len(own) == 13 + 1 and not own & every and all(uid.UID(one).is_valid for one in own)
        every |= own
    for image in images:
        assert image.SOPInstanceUID == image.file_meta.MediaStorageSOPInstanceUID
        for keyword in ("StudyInstanceUID", "FrameOfReferenceUID", "PatientID", "PatientName", "StudyDate", "EchoTime"):
            assert image[keyword].value == source[0][keyword].value


def test_a_multi_frame_image_hands_on_what_its_classic_series_does(tmp_path, voxels):
    images = mr_slices(voxels, RescaleSlope=lambda k: 0.5 + k / 8, WindowCenter=lambda k: 100 + k, WindowWidth=300)
    found = {}
    for name, files in {"classic": images, "enhanced": [enhanced(images[::-1])]}.items():
        (series,) = taken(save(tmp_path / name, files))
        found[name] = inherited(*read_headers(series), series.part)
    (source,) = found["enhanced"].SourceImageSequence
    assert source.ReferencedFrameNumber == [1, 2, 3, 4, 5, 6] and len(found["classic"].SourceImageSequence) == 6
    for keyword in ("PatientName", "EchoTime", "RepetitionTime", "ScanningSequence", "WindowCenter", "RescaleSlope"):
        assert found["enhanced"][keyword].value == found["classic"][keyword].value, keyword


@pytest.mark.parametrize("layout", ["classic", "multi-frame"])
def test_two_echoes_are_two_series_with_two_numbers(tmp_path, voxels, layout):
    images = mr_slices(voxels, EchoTime=20) + mr_slices(voxels, EchoTime=90)
    save(tmp_path / "source", [enhanced(images)] if layout == "multi-frame" else images)
    written = []
    for k, series in enumerate(taken(tmp_path / "source")):
        volume = read_series(series)
        write_series(tmp_path / str(k), volume.dataobj, volume.affine, series, "1", "key")
        written += images_of(tmp_path / str(k))
    assert {(i.EchoTime, i.SeriesNumber) for i in written} == {(20, 7001), (90, 7002)}
    assert len({one for pair in uids(written) for one in pair}) == 2 + 12


@pytest.mark.slow
def test_parts_of_two_series_never_share_a_number(tmp_path, voxels):
    numbers = set()
    for number in (1, 2, 1001, 2001, 101001, 1999999):
        images = mr_slices(voxels, SeriesNumber=number, SeriesInstanceUID=f"1.2.{number}")
        (series,) = taken(save(tmp_path / str(number), images))
        numbers |= {inherited(*read_headers(series), part).SeriesNumber for part in range(1, 9)}
    assert len(numbers) == 6 * 8 and max(numbers) < 2**31


def test_a_series_number_that_is_as_large_as_any_gives_one_that_dicom_takes(tmp_path, voxels):
    (series,) = taken(save(tmp_path / "source", mr_slices(voxels, SeriesNumber=2**31 - 1)))
    assert 0 < inherited(*read_headers(series), 999).SeriesNumber < 2**31


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_pixels_are_decoded_once_and_each_warning_is_told_once(tmp_path, voxels, bundle, log, count):
    images = mr_slices(voxels, SliceThickness=lambda k: 4 + (k == 0))
    for k in range(count):
        bundle(save(tmp_path / "source", images), output_format="dicom", slice_thickness=4.0 + k / 2)
    assert len([line for line in log.messages if "4 to 5 mm thick" in line]) == count


def test_the_series_says_what_it_is_and_what_it_comes_from(tmp_path, voxels):
    source = mr_slices(voxels, SeriesDescription="x" * 64)
    image = derived(tmp_path, source)[2][0]
    assert image.ImageType[:2] == ["DERIVED", "SECONDARY"]
    assert image.SeriesNumber == 7001
    assert image.SeriesDescription.endswith("x DRIFT SR") and len(image.SeriesDescription) == 64
    for fact in ("estimated, not measured", "DRIFT 1.2.3", "acquisition of type 2D"):
        assert fact in image.DerivationDescription
    (tool,) = image.ContributingEquipmentSequence
    assert image.MRAcquisitionType == "3D" and "ManufacturerModelName" not in tool
    assert tool.Manufacturer == "DRIFT" and "DRIFT 1.2.3" in tool.ContributionDescription
    assert tool.PurposeOfReferenceCodeSequence[0].CodeValue == "109102"
    referenced = {item.ReferencedSOPInstanceUID for item in image.SourceImageSequence}
    assert referenced == {one.SOPInstanceUID for one in source}
    assert verdict(tmp_path / "sr").startswith("secondary images")  # a result is not taken for a scan


def test_the_series_of_several_stacks_says_so_and_is_not_mistaken_for_that_of_the_first_alone(tmp_path, voxels):
    first, second = mr_slices(voxels), mr_slices(voxels, ORIENTATIONS["sagittal"], SeriesInstanceUID="1.2.3.9")
    alone = derived(tmp_path / "alone", first)[2][0]
    (one,), (other,) = (taken(save(tmp_path / name, images)) for name, images in (("1", first), ("2", second)))
    volume = read_series(one)
    write_series(tmp_path / "both", volume.dataobj, volume.affine, one, "1.2.3", "settings", others=[other])
    both = images_of(tmp_path / "both")[0]
    assert both.SeriesDescription == "t2 tse 2 stacks DRIFT SR" and alone.SeriesDescription == "t2 tse DRIFT SR"
    assert both.DerivationDescription.startswith("Made of 2 series. Slices rebuilt")
    assert (alone.SeriesNumber, both.SeriesNumber) == (7001, 7251)
    referenced = {item.ReferencedSOPInstanceUID for item in both.SourceImageSequence}
    assert referenced == {image.SOPInstanceUID for image in first + second}
    for keyword in ("StudyInstanceUID", "FrameOfReferenceUID"):
        assert both[keyword].value == first[0][keyword].value
    assert both.SeriesInstanceUID not in {image.SeriesInstanceUID for image in (alone, first[0], second[0])}


def test_a_series_that_was_guided_says_so_and_is_no_series_of_several_stacks(tmp_path, voxels):
    """The guide's images are sources of a purpose of their own; a file has a name alone."""
    scan = mr_slices(voxels, SpecificCharacterSet="ISO_IR 100", SeriesDescription="x" * 64)
    sharp = mr_slices(voxels, ORIENTATIONS["sagittal"], SeriesInstanceUID="1.2.3.9", SeriesDescription="t1 Schädel Ω")
    sharp[0].SpecificCharacterSet = "ISO_IR 192"
    for one in sharp[1:]:
        one.SpecificCharacterSet = "ISO_IR 192"
    (own,), (guide,) = (taken(save(tmp_path / name, images)) for name, images in (("1", scan), ("2", sharp)))
    volume, made = read_series(own), {}
    for name, beside in (("alone", None), ("series", guide), ("file", tmp_path / "T1w.nii.gz")):
        write_series(tmp_path / name, volume.dataobj, volume.affine, own, "1.2.3", "settings", guide=beside)
        made[name] = images_of(tmp_path / name)[0]
    alone, by_series, by_file = made.values()
    assert by_series.SeriesDescription == "x" * 40 + " DRIFT SR guided by t1 S"
    assert alone.SeriesNumber == by_series.SeriesNumber
    assert by_series.DerivationDescription.startswith("Guided by t1 Schädel Ω, another contrast of the head")
    assert by_series.DerivationDescription.endswith(alone.DerivationDescription)
    assert by_file.DerivationDescription.startswith("Guided by T1w.nii.gz") and len(by_file.SeriesDescription) <= 64
    purposes = [
        {(item.ReferencedSOPInstanceUID, item.PurposeOfReferenceCodeSequence[0].CodeValue) for item in one}
        for one in (by_series.SourceImageSequence, by_file.SourceImageSequence)
    ]
    of_scan = {(one.SOPInstanceUID, "121322") for one in scan}
    assert purposes == [of_scan | {(one.SOPInstanceUID, "128250") for one in sharp}, of_scan]
    assert by_series.SeriesInstanceUID != alone.SeriesInstanceUID == by_file.SeriesInstanceUID


def test_nothing_private_or_stale_is_copied(tmp_path, voxels):
    source = mr_slices(
        voxels,
        AcquisitionTime=lambda k: f"10111{k}",
        SmallestImagePixelValue=1,
        LossyImageCompressionRatio=20,
        SAR=0.4,
        TriggerTime=12,
        ImageComments="slice of a thick scan",
    )
    for image in source:
        image.private_block(0x0029, "VENDOR", create=True).add_new(1, "LO", "secret")
        request = Dataset()
        request.RequestedProcedureID = "9"
        request.private_block(0x0029, "VENDOR", create=True).add_new(1, "LO", "secret")
        image.RequestAttributesSequence = [request]
        image.add_new(0x60003000, "OW", b"\0\0")
    for image in derived(tmp_path, source)[2]:
        assert not [element for element in image.iterall() if element.tag.is_private]
        stale = "AcquisitionTime SmallestImagePixelValue LossyImageCompressionRatio SAR TriggerTime ImageComments"
        assert [keyword for keyword in stale.split() if keyword in image] == []
        assert not [element for element in image if element.tag.group == 0x6000]
        assert image.RequestAttributesSequence[0].RequestedProcedureID == "9"
    assert b"secret" not in (tmp_path / "sr" / "0001.dcm").read_bytes()


def test_what_is_true_of_one_slice_and_matters_is_said_of_all(tmp_path, voxels):
    source = mr_slices(voxels, BurnedInAnnotation=lambda k: "YES" if k == 4 else "NO")
    source[2].LossyImageCompression = "01"
    for image in derived(tmp_path, source)[2]:
        assert (image.BurnedInAnnotation, image.LossyImageCompression) == ("YES", "01")


def test_one_window_for_all_slices(tmp_path, voxels):
    source = mr_slices(voxels, WindowCenter=lambda k: [300 + k, 5], WindowWidth=lambda k: [700, 5])
    assert {(i.WindowCenter, i.WindowWidth) for i in derived(tmp_path, source)[2]} == {(302.5, 700)}
    for name, lost in {
        "none": {},
        "half": {"WindowCenter": 3},
        "some": {"WindowWidth": lambda k: [[], 7][k > 2]},
    }.items():
        assert "WindowCenter" not in derived(tmp_path / name, mr_slices(voxels, **lost))[2][0]


def test_names_in_other_alphabets_survive(tmp_path, voxels):
    source = mr_slices(voxels, SpecificCharacterSet="ISO_IR 192", PatientName="Müller^Łucja")
    assert derived(tmp_path, source)[2][0].PatientName == "Müller^Łucja"


@pytest.mark.slow
@pytest.mark.skipif(not REAL.exists(), reason="the shared data are not here")
def test_a_real_sagittal_series_with_gaps(tmp_path):
    (source,) = taken(REAL)
    volume = read_series(source)
    assert volume.dataobj.shape == (256, 256, 35)
    assert volume.extra["stated"]["slice_thickness"][0] == 4.0
    assert voxel_spacing(volume.affine)[2] == pytest.approx(4.8, abs=1e-5)
    volume.dataobj[:, :, :] = volume.dataobj - 3  # some overshoot
    array, affine = rebuilt(volume)
    array, affine = array[:, :, ::8], affine @ np.diag([1, 1, 8, 1])  # fewer files
    write_series(tmp_path / "sr", array, affine, source, "1", "key")
    if DCM2NIIX is not None:
        reference = read_only(REAL)
        assert_same_in_space(reference.dataobj, reference.affine, *through_dcm2niix(REAL, tmp_path / "n1")[:2])
        other, other_affine, sidecar = through_dcm2niix(tmp_path / "sr", tmp_path / "n2")
        assert_same_in_space(array, affine, other, other_affine)
        assert sidecar["ManufacturersModelName"] == "Prisma_fit" and sidecar["SoftwareVersions"] == "syngo MR E11"
        assert "MultibandAccelerationFactor" not in sidecar


@pytest.mark.parametrize(("other", "kept"), [("DOE^JANE^^^", True), ("Roe^Ann", False)])
def test_a_name_in_two_spellings_is_kept_and_two_names_are_not(other, kept, tmp_path, voxels):
    images = mr_slices(voxels, PatientName=lambda k: ("Doe^Jane", other)[k % 2])
    _, _, (first, *_) = derived(tmp_path, images)
    assert (str(first.PatientName) == "Doe^Jane") == kept and first.PatientID == "17"
