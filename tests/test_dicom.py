"""Which series are taken, where their slices lie, and what a derived series says: real files, plain oracles."""

import copy
import json
import logging
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nibabel as nib
import numpy as np
import pydicom
import pytest
from pydicom import Dataset, uid
from pydicom.dataset import FileMetaDataset
from pydicom.pixels import get_decoder, get_encoder

from scripts import grid
from scripts.dicom import find_series, is_dicom, read_series, write_series
from scripts.errors import InputError

REAL = Path(__file__).parents[2] / "shared" / "data" / "dicom" / "siemens-2d-t1-sagittal-hfs"
DCM2NIIX = shutil.which("dcm2niix", path=Path(sys.executable).parent) or shutil.which("dcm2niix")
SHAPE = (12, 10, 6)  # columns, rows, slices
PIXEL = [0.9, 0.8]  # mm between rows, between columns
ORIGIN = np.array([-31.5, 12.25, 7.0])
ORIENTATIONS = {
    "axial": [1, 0, 0, 0, 1, 0],
    "coronal": [1, 0, 0, 0, 0, -1],
    "sagittal": [0, 1, 0, 0, 0, -1],
    "oblique": [0.8, 0.36, 0.48, -0.6, 0.48, 0.64],
}
ONE_MORE_AXIAL = [0.8, 0.6, 0, -0.6, 0.8, 0]


@pytest.fixture
def voxels():
    """A volume of SHAPE, each voxel with its own value."""
    return np.random.default_rng(0).permutation(np.prod(SHAPE)).reshape(SHAPE).astype(np.uint16)


def mr_slice(pixels, position, orientation=ORIENTATIONS["axial"], **attributes):
    """A classic MR image of `(columns, rows)` pixels; an attribute of None is left out."""
    image = Dataset()
    image.SOPClassUID, image.SOPInstanceUID = uid.MRImageStorage, uid.generate_uid()
    image.StudyInstanceUID, image.SeriesInstanceUID, image.FrameOfReferenceUID = "1.2.3", "1.2.3.4", "1.2.3.5"
    image.PatientName, image.PatientID, image.PatientSex = "Doe^Jane", "17", "F"
    image.PatientBirthDate, image.StudyDate, image.StudyTime = "19700101", "20240506", "101112"
    image.Modality, image.Manufacturer, image.ImageType = "MR", "Maker", ["ORIGINAL", "PRIMARY", "M"]
    image.SeriesNumber, image.SeriesDescription = 7, "t2 tse"
    image.ScanningSequence, image.SequenceVariant, image.MRAcquisitionType = "SE", "SK", "2D"
    image.EchoTime, image.RepetitionTime, image.EchoTrainLength, image.PatientPosition = 90, 4000, 15, "HFS"
    image.ImagePositionPatient, image.ImageOrientationPatient = [*map(float, position)], orientation
    image.PixelSpacing, image.SliceThickness = list(PIXEL), 4
    image.PhotometricInterpretation, image.SamplesPerPixel = "MONOCHROME2", 1
    image.Columns, image.Rows = pixels.shape
    image.BitsAllocated, image.BitsStored, image.HighBit = 16, 16, 15
    image.PixelRepresentation = int(pixels.dtype == np.int16)
    image.PixelData = np.ascontiguousarray(pixels.T).tobytes()
    for keyword, value in attributes.items():
        if value is None:
            delattr(image, keyword)
        else:
            setattr(image, keyword, value)
    return image


def mr_slices(voxels, orientation=ORIENTATIONS["axial"], spacing=4.8, step=None, **attributes):
    """A classic series; callables among the attributes get the slice's index."""
    normal = np.cross(orientation[:3], orientation[3:])
    step = spacing * normal if step is None else np.asarray(step)
    return [
        mr_slice(
            voxels[:, :, k],
            ORIGIN + k * step,
            orientation,
            **{
                name: value(k) if callable(value) else value
                for name, value in {"InstanceNumber": k + 1, **attributes}.items()
            },
        )
        for k in range(voxels.shape[2])
    ]


def save(folder, images, syntax=uid.ExplicitVRLittleEndian, names=None):
    """Writes images as files; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for k, image in enumerate(images):
        image.file_meta = FileMetaDataset()
        image.file_meta.TransferSyntaxUID = syntax
        path = folder / (names[k] if names else f"{k:03d}")
        pydicom.dcmwrite(path, image, enforce_file_format=True)
    return folder


SHARED = {
    "PixelMeasuresSequence": "PixelSpacing SliceThickness",
    "PlaneOrientationSequence": "ImageOrientationPatient",
    "MRTimingAndRelatedParametersSequence": "RepetitionTime EchoTrainLength",
}
PER_FRAME = {
    "PlanePositionSequence": "ImagePositionPatient",
    "PixelValueTransformationSequence": "RescaleSlope RescaleIntercept",
    "FrameVOILUTSequence": "WindowCenter WindowWidth",
    "MREchoSequence": "EffectiveEchoTime=EchoTime",
    "MRImageFrameTypeSequence": "FrameType=ImageType",
    "FrameContentSequence": "TemporalPositionIndex=TemporalPositionIdentifier FrameAcquisitionNumber=AcquisitionNumber",
}


def functional_groups(image, macros):
    group = Dataset()
    for macro, names in macros.items():
        content = Dataset()
        for enhanced_name, _, classic_name in (name.partition("=") for name in names.split()):
            if (classic_name or enhanced_name) in image:
                setattr(content, enhanced_name, image[classic_name or enhanced_name].value)
        setattr(group, macro, [content])
    return group


def enhanced(images):
    """The same series as one multi-frame image, without what only classic images have."""
    whole = copy.deepcopy(images[0])
    for names in (*SHARED.values(), *PER_FRAME.values(), "InstanceNumber ScanningSequence SequenceVariant"):
        for name in re.split("[ =]", names):
            if name in whole:
                delattr(whole, name)
    whole.SOPClassUID, whole.NumberOfFrames = uid.EnhancedMRImageStorage, len(images)
    whole.EchoPulseSequence, whole.ImageType = "SPIN", ["ORIGINAL", "PRIMARY", "VOLUME", "NONE"]
    whole.SharedFunctionalGroupsSequence = [functional_groups(images[0], SHARED)]
    whole.PerFrameFunctionalGroupsSequence = [functional_groups(image, PER_FRAME) for image in images]
    whole.PixelData = b"".join(image.PixelData for image in images)
    return whole


def taken(source, **options):
    return [one for one in find_series(source, **options)[0] if one.skipped is None]


def read_only(source):
    (series,) = taken(source)
    return read_series(series)


def verdict(source, **options):
    """Why the only series is skipped."""
    ((series,), _) = find_series(source, **options)
    return series.skipped


def world(image, column, row):
    """RAS position in mm of a pixel, by the formula of PS3.3, C.7.6.2.1.1."""
    across, down = np.array(image.ImageOrientationPatient, float).reshape(2, 3)
    between_rows, between_columns = map(float, image.PixelSpacing)
    lps = np.array(image.ImagePositionPatient, float) + across * between_columns * column + down * between_rows * row
    return lps * [-1, -1, 1]


def images_of(folder):
    return [pydicom.dcmread(path) for path in sorted(folder.iterdir())]


def through_dcm2niix(folder, out):
    """Voxels, affine and sidecar that dcm2niix makes of a folder."""
    out.mkdir()
    subprocess.run([DCM2NIIX, "-z", "n", "-b", "y", "-f", "x", "-o", out, folder], check=True, capture_output=True)
    (path,) = out.glob("*.nii")
    image = nib.load(path)
    return np.asarray(image.dataobj), image.affine, json.loads(path.with_suffix(".json").read_text())


def assert_same_in_space(voxels, affine, other, other_affine, tolerance=0.01):
    """Two arrays hold the same values at the same places in mm, whatever the order and sign of their axes."""
    to_other = np.linalg.inv(other_affine) @ affine
    order = np.argmax(abs(to_other[:3, :3]), axis=1)
    signs = np.sign(to_other[np.arange(3), order])
    moved = np.transpose(voxels, order)
    moved = moved[tuple(slice(None, None, int(sign)) for sign in signs)]
    np.testing.assert_array_equal(moved, other)
    for corner in np.ndindex(2, 2, 2):
        index = np.array(corner) * (np.array(voxels.shape) - 1)
        there = np.where(signs > 0, index[order], np.array(other.shape) - 1 - index[order])
        np.testing.assert_allclose(affine[:3] @ [*index, 1], other_affine[:3] @ [*there, 1], atol=tolerance)


# --- reading: geometry ---


@pytest.mark.parametrize("orientation", ORIENTATIONS.values(), ids=ORIENTATIONS)
def test_every_voxel_lies_where_the_standard_says(tmp_path, voxels, orientation):
    images = mr_slices(voxels, orientation)
    volume = read_only(save(tmp_path, images))
    assert volume.array.shape == SHAPE and volume.array.dtype == np.float32
    for column, row, k in np.ndindex(SHAPE):
        here = volume.affine[:3] @ [column, row, k, 1]
        np.testing.assert_allclose(here, world(images[k], column, row), atol=1e-6)
        assert volume.array[column, row, k] == voxels[column, row, k]
    assert (volume.slice_thickness, volume.slice_spacing) == (4, pytest.approx(4.8))


def test_names_and_numbers_do_not_order_the_slices(tmp_path, voxels):
    expected = read_only(save(tmp_path / "a", mr_slices(voxels)))
    order = [3, 0, 5, 1, 4, 2]
    shuffled = mr_slices(voxels, InstanceNumber=lambda k: order[k])
    names = [f"{order[k]}-{'x' * k}" for k in range(SHAPE[2])]
    volume = read_only(save(tmp_path / "b", shuffled, names=names))
    np.testing.assert_array_equal(volume.array, expected.array)
    np.testing.assert_array_equal(volume.affine, expected.affine)


def test_a_list_of_files_is_as_good_as_a_folder(tmp_path, voxels):
    expected = read_only(save(tmp_path, mr_slices(voxels)))
    files = sorted(tmp_path.iterdir(), reverse=True)
    np.testing.assert_array_equal(read_only([*files, str(files[0])]).array, expected.array)


def test_missing_thickness_is_none(tmp_path, voxels):
    assert read_only(save(tmp_path, mr_slices(voxels, SliceThickness=None))).slice_thickness is None


@pytest.mark.parametrize("slopes", [None, 0.25, lambda k: 0.5 + k / 8], ids=["none", "one", "of each slice"])
def test_a_multi_frame_image_equals_its_classic_series(tmp_path, voxels, slopes):
    rescale = {} if slopes is None else {"RescaleSlope": slopes, "RescaleIntercept": -10}
    images = mr_slices(voxels, ORIENTATIONS["oblique"], WindowCenter=lambda k: 100 + k, WindowWidth=300, **rescale)
    classic = read_only(save(tmp_path / "classic", images))
    one_file = read_only(save(tmp_path / "enhanced", [enhanced(images[::-1])]))
    np.testing.assert_array_equal(one_file.array, classic.array)
    np.testing.assert_allclose(one_file.affine, classic.affine, atol=1e-9)
    assert (one_file.slice_thickness, one_file.slice_spacing) == (4, pytest.approx(4.8))
    (source,) = one_file.header.SourceImageSequence
    assert sorted(source.ReferencedFrameNumber) == [1, 2, 3, 4, 5, 6]
    for keyword in ("PatientName", "EchoTime", "RepetitionTime", "ScanningSequence", "WindowCenter", "RescaleSlope"):
        assert one_file.header[keyword].value == classic.header[keyword].value, keyword


def test_each_slice_has_its_own_rescaling(tmp_path, voxels):
    images = mr_slices(voxels, RescaleSlope=lambda k: 0.5 + k / 4, RescaleIntercept=lambda k: -10 * k)
    expected = voxels * (0.5 + np.arange(6) / 4) - 10 * np.arange(6)
    np.testing.assert_allclose(read_only(save(tmp_path, images)).array, expected)


def test_signed_voxels_stay_signed(tmp_path, voxels):
    signed = (voxels.astype(int) - 300).astype(np.int16)
    np.testing.assert_array_equal(read_only(save(tmp_path, mr_slices(signed))).array, signed)


def test_overlays_in_unused_bits_are_no_intensities(tmp_path, voxels):
    drawn = voxels | (1 << 13)
    images = mr_slices(drawn, BitsStored=12, HighBit=11)
    np.testing.assert_array_equal(read_only(save(tmp_path, images)).array, voxels)


@pytest.mark.parametrize("syntax", [uid.ImplicitVRLittleEndian, uid.DeflatedExplicitVRLittleEndian])
def test_uncompressed_transfer_syntaxes(tmp_path, voxels, syntax):
    np.testing.assert_array_equal(read_only(save(tmp_path, mr_slices(voxels), syntax)).array, voxels)


@pytest.mark.parametrize("syntax", [uid.RLELossless, uid.JPEG2000Lossless, uid.JPEGLSLossless])
def test_compressed_pixels_are_the_same_pixels(tmp_path, voxels, syntax):
    if not get_encoder(syntax).is_available:
        pytest.skip(f"no encoder for {syntax.name} is installed")
    large = np.kron(voxels, np.ones((8, 8, 1), np.uint16))  # JPEG 2000 halves an image five times
    images = mr_slices(large)
    save(tmp_path, images)
    for image in images:
        image.compress(syntax, generate_instance_uid=False)
    np.testing.assert_array_equal(read_only(save(tmp_path, images, syntax)).array, large)


# --- reading: what is refused or warned of ---


def test_a_repeated_slice_is_left_out_with_a_warning(tmp_path, voxels, caplog):
    images = mr_slices(voxels)
    volume = read_only(save(tmp_path, [*images, images[2], images[4]]))
    np.testing.assert_array_equal(volume.array, voxels)
    assert "2 repeated images are left out" in caplog.text and "006 repeats" in caplog.text


def test_different_images_at_one_place_are_refused(tmp_path, voxels):
    images = mr_slices(voxels)
    other = copy.deepcopy(images[2])
    other.PixelData = images[3].PixelData
    with pytest.raises(InputError, match=r"002 and .*006 are different images at the same place"):
        read_only(save(tmp_path, [*images, other]))


@pytest.mark.parametrize("gone, count", [([3], 1), ([2, 3], 2), ([1, 4], 2)])
def test_missing_slices_are_refused_with_their_place(tmp_path, voxels, gone, count):
    images = [image for k, image in enumerate(mr_slices(np.tile(voxels, 2))) if k not in gone]
    with pytest.raises(InputError, match=f"{count} of 12 slices missing.*00{gone[0] - 1} and .*00{gone[0]} "):
        read_only(save(tmp_path, images))


def test_every_other_slice_missing_is_warned_of(tmp_path, voxels, caplog):
    images = mr_slices(voxels, SpacingBetweenSlices=4.8)[::2]
    assert read_only(save(tmp_path, images)).slice_spacing == pytest.approx(9.6)
    assert "SpacingBetweenSlices is 4.8 mm, but slices lie 9.6 mm apart" in caplog.text


@pytest.mark.parametrize("wobble, outcome", [(0.001, None), (0.03, "mean spacing"), (0.3, "unevenly")])
def test_uneven_spacing(tmp_path, voxels, caplog, wobble, outcome):
    images = mr_slices(voxels)
    images[2].ImagePositionPatient[2] += wobble
    save(tmp_path, images)
    if outcome == "unevenly":
        with pytest.raises(InputError, match=r"slices lie unevenly, 4.5 to 5.1 mm apart"):
            read_only(tmp_path)
    else:
        assert read_only(tmp_path).slice_spacing == pytest.approx(4.8)
        assert (outcome in caplog.text) if outcome else not caplog.records


def test_a_slow_drift_of_the_spacing_is_refused(tmp_path, voxels):
    images = mr_slices(np.tile(voxels, 5))
    for k, image in enumerate(images):
        image.ImagePositionPatient[2] += 0.0008 * k**2  # from 4.80 to 4.85 mm
    with pytest.raises(InputError, match="slices lie unevenly"):
        read_only(save(tmp_path, images))


@pytest.mark.parametrize("angle", [0.05, 1.0])
def test_sheared_stacks(tmp_path, voxels, angle):
    tilt = [0, 4.8 * np.tan(np.radians(angle)), 4.8]
    save(tmp_path, mr_slices(voxels, step=tilt))
    if angle > grid.MAX_SHEAR:
        with pytest.raises(InputError, match=r"slices are sheared, 1.00 degrees off orthogonal"):
            read_only(tmp_path)
    else:
        np.testing.assert_allclose(read_only(tmp_path).affine[:3, 2], tilt * np.array([-1, -1, 1]), atol=1e-6)


def test_thickness_that_varies_is_warned_of(tmp_path, voxels, caplog):
    assert read_only(save(tmp_path, mr_slices(voxels, SliceThickness=lambda k: 4 + (k == 0)))).slice_thickness == 4
    assert "4 to 5 mm thick" in caplog.text


def test_a_truncated_file_is_named(tmp_path, voxels):
    save(tmp_path, mr_slices(voxels))
    content = (tmp_path / "003").read_bytes()
    (tmp_path / "003").write_bytes(content[:-50])
    with pytest.raises(InputError, match=r"003 cannot be read .*Export or download it again"):
        read_only(tmp_path)


def test_a_skipped_series_is_not_read(tmp_path, voxels):
    ((series,), _) = find_series(save(tmp_path, mr_slices(voxels[:, :, :2])))
    with pytest.raises(InputError, match="was skipped: fewer than 3 slices"):
        read_series(series)


# --- verdicts ---


@pytest.mark.parametrize(
    "attributes, reason",
    [
        ({"Modality": "CT", "SOPClassUID": uid.CTImageStorage}, "not MR: the modality is CT"),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "LOCALIZER"]}, "a localizer"),
        ({"ImageType": ["DERIVED", "SECONDARY", "MPR"]}, "secondary images: reformats, maps, screenshots"),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "M", "MOSAIC"]}, "mosaics"),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "P", "ND"]}, "phase images"),
        ({"SOPClassUID": uid.SecondaryCaptureImageStorage}, "secondary captures, which are screenshots"),
        ({"SOPClassUID": uid.MRSpectroscopyStorage}, "no MR images but MR Spectroscopy Storage"),
        ({"PhotometricInterpretation": "RGB"}, "colour images"),
        ({"ImagePositionPatient": None}, "missing geometry"),
        ({"ImageOrientationPatient": None}, "missing geometry"),
        ({"PixelSpacing": None}, "missing geometry"),
        ({"ImageOrientationPatient": [1, 0, 0, 0, 0, 0]}, "broken geometry"),
        ({"PixelSpacing": [0, 1]}, "broken geometry"),
        ({"RescaleSlope": 0, "RescaleIntercept": 0}, "broken intensities"),
        ({"PixelData": None}, "no pixel data"),
        ({"SeriesInstanceUID": None}, "SeriesInstanceUID or SOPInstanceUID is missing"),
        ({"SeriesInstanceUID": ["1.2", "3"]}, "SeriesInstanceUID or SOPInstanceUID is missing or broken"),
    ],
)
def test_what_cannot_be_rebuilt_is_skipped_with_its_reason(tmp_path, voxels, attributes, reason):
    assert reason in verdict(save(tmp_path, mr_slices(voxels, **attributes)))


def test_two_slices_are_too_few(tmp_path, voxels):
    assert verdict(save(tmp_path, mr_slices(voxels[:, :, :2]))) == "fewer than 3 slices"


@pytest.mark.parametrize("spacing, thickness, thin", [(1.0, 1, True), (1.0, 2.5, False), (3.0, 1, False)])
def test_thin_slices_need_no_rebuilding(tmp_path, voxels, spacing, thickness, thin):
    found = verdict(save(tmp_path, mr_slices(voxels, spacing=spacing, SliceThickness=thickness)))
    assert (found is not None and found.startswith("thin or isotropic already: slices 1 mm apart")) == thin


def test_coarse_pixels_make_coarse_slices_isotropic(tmp_path, voxels):
    images = mr_slices(voxels, spacing=3.0, SliceThickness=3, PixelSpacing=[3, 3])
    assert verdict(save(tmp_path, images)).startswith("thin or isotropic already: slices 3 mm apart, pixels of 3 mm")


def test_a_localizer_without_the_name_is_known_by_its_orientations(tmp_path, voxels):
    images = [image for name in ("axial", "coronal", "sagittal") for image in mr_slices(voxels, ORIENTATIONS[name])]
    assert "mixed orientations or matrices: 3 in one series" in verdict(save(tmp_path, images))


def test_a_rotating_series_is_one_skipped_series(tmp_path, voxels):
    turn = np.radians(10 * np.arange(6))
    images = mr_slices(voxels, ImageOrientationPatient=lambda k: [np.cos(turn[k]), 0, np.sin(turn[k]), 0, 1, 0])
    assert "mixed orientations or matrices: 6 in one series" in verdict(save(tmp_path, images))


def test_stacks_of_like_orientation_are_two_volumes(tmp_path, voxels):
    images = mr_slices(voxels) + mr_slices(voxels, ONE_MORE_AXIAL)
    first, second = taken(save(tmp_path, images))
    assert {len(first.images), len(second.images)} == {6}
    assert first.name.endswith("-1") and second.name.endswith("-2")
    np.testing.assert_array_equal(read_series(first).array, read_series(second).array)


def test_one_stray_image_does_not_cost_the_stack(tmp_path, voxels):
    images = mr_slices(voxels) + mr_slices(voxels[:, :, :1], ORIENTATIONS["sagittal"])
    np.testing.assert_array_equal(read_only(save(tmp_path, images)).array, voxels)
    assert [len(one.images) for one in find_series(tmp_path)[0] if one.skipped] == [1]


@pytest.mark.parametrize(
    "first, second",
    [
        ({"EchoTime": 20}, {"EchoTime": 90}),
        ({"TemporalPositionIdentifier": 1}, {"TemporalPositionIdentifier": 2}),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "M"]}, {"ImageType": ["DERIVED", "PRIMARY", "NORM"]}),
        ({"AcquisitionNumber": 1}, {"AcquisitionNumber": 2}),
    ],
)
@pytest.mark.parametrize("layout", ["classic", "multi-frame"])
def test_volumes_at_one_place_are_told_apart(tmp_path, voxels, first, second, layout):
    inverted = voxels.max() - voxels
    images = [mr_slices(voxels, **first), mr_slices(inverted, **second)]
    if layout == "multi-frame":
        images = [[enhanced(one)] for one in images]
    one, two = taken(save(tmp_path, [image for part in images for image in part]))
    arrays = {read_series(series).array.tobytes() for series in (one, two)}
    assert arrays == {voxels.astype(np.float32).tobytes(), inverted.astype(np.float32).tobytes()}


def test_facts_that_vary_along_a_stack_do_not_split_it(tmp_path, voxels):
    images = mr_slices(voxels, AcquisitionNumber=lambda k: 1 + k % 2, EchoTime=lambda k: 90 + k / 100)
    assert len(taken(save(tmp_path, images))) == 1


def test_interleaves_are_no_volumes(tmp_path, voxels):
    """A repeated slice with another acquisition number must not leave two stacks of every other slice."""
    images = mr_slices(voxels, AcquisitionNumber=lambda k: 1 + k % 2)
    again = copy.deepcopy(images[2])
    again.AcquisitionNumber = 2
    assert read_only(save(tmp_path, [*images, again])).slice_spacing == pytest.approx(4.8)


def test_a_time_series_is_skipped(tmp_path, voxels):
    images = [i for t in range(9) for i in mr_slices(voxels, TemporalPositionIdentifier=t)]
    assert verdict(save(tmp_path, images)).startswith("9 volumes at one place: a dynamic")


@pytest.mark.parametrize(
    "syntax", [*pydicom.uid.JPEGTransferSyntaxes, *pydicom.uid.JPEGLSTransferSyntaxes, uid.MPEG2MPML]
)
def test_compressed_series_name_the_package_that_is_missing(tmp_path, voxels, syntax):
    """Pixels are opaque here: only whether a decoder is installed decides the verdict."""
    try:
        available = get_decoder(uid.UID(syntax)).is_available
    except NotImplementedError:
        available = False
    images = mr_slices(voxels)
    for image in images:
        image.PixelData = pydicom.encaps.encapsulate([b"no picture"])
        image["PixelData"].is_undefined_length = True
    found = verdict(save(tmp_path, images, uid.UID(syntax)))
    if available:
        assert found is None
        with pytest.raises(InputError, match="000 cannot be read"):
            read_only(tmp_path)
    else:
        assert found.startswith(f"compressed as {uid.UID(syntax).name}") and "pip install python-gdcm" in found


def test_a_broken_file_is_named_and_costs_no_other_series(tmp_path, voxels):
    save(tmp_path, mr_slices(voxels))
    (tmp_path / "zz").write_bytes(b"\0" * 128 + b"DICM" + b"\x08\x00\x60\x00XX\xff\xff" * 5)
    (tmp_path / "zzz").write_bytes(b"\0" * 128 + b"DICM")
    series, strangers = find_series(tmp_path)
    assert strangers == 0
    assert [one.name for one in series if one.skipped] == ["zz", "zzz"]
    assert all("cannot be read as DICOM" in one.skipped for one in series if one.skipped)
    np.testing.assert_array_equal(read_only(tmp_path).array, voxels)


def test_other_files_are_counted_and_hidden_ones_are_not_seen(tmp_path, voxels):
    save(tmp_path / "a" / "b", mr_slices(voxels))
    save(tmp_path / ".partial", mr_slices(voxels))
    (tmp_path / "notes.txt").write_text("DICM")
    (tmp_path / "empty").touch()
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    series, strangers = find_series(tmp_path)
    assert [len(one.images) for one in series] == [6] and strangers == 3


def test_series_of_one_folder_are_told_apart_and_have_lasting_names(tmp_path, voxels):
    save(tmp_path / "a", mr_slices(voxels))
    save(tmp_path / "b", mr_slices(voxels, SeriesInstanceUID="1.2.9", PatientID="18"))
    save(tmp_path / "c", mr_slices(voxels, SeriesInstanceUID="1.2.10", SeriesDescription="../../t1 für/ alle"))
    names = [one.name for one in taken(tmp_path)]
    assert len(set(names)) == 3 and all(Path(name).name == name and not name.startswith(".") for name in names)
    assert names == [one.name for one in taken(tmp_path)]
    assert taken(tmp_path / "b")[0].name in names


def test_zip_files_indexes_and_absent_files_have_clear_messages(tmp_path, voxels):
    with zipfile.ZipFile(tmp_path / "scan.zip", "w") as archive:
        archive.writestr("a", "b")
    index = Dataset()
    index.SOPClassUID, index.SOPInstanceUID = uid.MediaStorageDirectoryStorage, "1.2"
    save(tmp_path / "disc", [index], names=["DICOMDIR"])
    with pytest.raises(InputError, match=r"scan.zip is a zip file. Unpack it"):
        find_series(tmp_path / "scan.zip")
    with pytest.raises(InputError, match="DICOMDIR is an index"):
        find_series(tmp_path / "disc" / "DICOMDIR")
    with pytest.raises(InputError, match="nowhere does not exist"):
        find_series(tmp_path / "nowhere")
    assert find_series(tmp_path / "disc") == ([], 1)
    assert find_series([]) == ([], 0)


def test_only_dicom_bears_its_mark(tmp_path, voxels):
    save(tmp_path, mr_slices(voxels))
    (tmp_path / "text").write_text("x" * 200)
    assert is_dicom(tmp_path / "000")
    assert not any(map(is_dicom, (tmp_path, tmp_path / "text", tmp_path / "nowhere")))


def test_pydicoms_remarks_are_not_passed_on(tmp_path, voxels, recwarn, caplog):
    images = mr_slices(voxels)
    with pydicom.config.disable_value_validation():
        for image in images:
            image.StudyInstanceUID, image.PatientAge, image.StudyDescription = "1.2.a", "51", "x" * 80
            image["EchoTime"] = pydicom.DataElement("EchoTime", "LO", "soon")
        save(tmp_path, images, uid.ImplicitVRLittleEndian)
    caplog.clear()
    recwarn.clear()
    volume = read_only(tmp_path)
    write_series(tmp_path / "sr", volume.array, volume.affine, volume.header, "1.0")
    assert not list(recwarn) and all(record.name == "drift" for record in caplog.records)
    assert logging.getLogger("pydicom").level != logging.ERROR


# --- writing ---


def rebuilt(volume, spacing=0.94, overshoot=0.0):
    """A stand-in for a rebuilt volume: nearest slices on a fine grid, some voxels beyond the range."""
    thick = volume.array.shape[2]
    fine = grid.fine_count(thick, volume.slice_spacing, spacing)
    index = grid.nearest_index(fine, spacing, thick, volume.slice_spacing)
    array = volume.array[:, :, index].copy()
    array[0, 0] = array.min() - overshoot
    return array, grid.fine_affine(volume.affine, 2, thick, fine, spacing)


def derived(folder, images, overshoot=0.0, version="1.2.3"):
    """(the rebuilt array, its affine, the images written) of a classic series."""
    volume = read_only(save(folder / "source", images))
    array, affine = rebuilt(volume, overshoot=overshoot)
    write_series(folder / "sr", array, affine, volume.header, version)
    return array, affine, images_of(folder / "sr")


@pytest.mark.parametrize("orientation", ORIENTATIONS.values(), ids=ORIENTATIONS)
def test_the_derived_series_lies_where_the_affine_says(tmp_path, voxels, orientation):
    array, affine, images = derived(tmp_path, mr_slices(voxels, orientation))
    assert len(images) == array.shape[2] == 31
    for column, row, k in [(0, 0, 0), (11, 0, 3), (0, 9, 17), (11, 9, 30)]:
        np.testing.assert_allclose(world(images[k], column, row), affine[:3] @ [column, row, k, 1], atol=1e-6)
        assert images[k].pixel_array[row, column] == array[column, row, k]
    for k, image in enumerate(images):
        assert (image.SliceThickness, image.SpacingBetweenSlices, image.InstanceNumber) == (0.94, 0.94, k + 1)
    np.testing.assert_allclose(np.diff([float(image.SliceLocation) for image in images]), 0.94, atol=1e-6)


@pytest.mark.skipif(DCM2NIIX is None, reason="dcm2niix is not installed")
@pytest.mark.parametrize("orientation", ORIENTATIONS.values(), ids=ORIENTATIONS)
def test_dcm2niix_agrees_on_source_and_result(tmp_path, voxels, orientation):
    array, affine, _ = derived(tmp_path, mr_slices(voxels, orientation), overshoot=50)
    source = read_only(tmp_path / "source")
    assert_same_in_space(source.array, source.affine, *through_dcm2niix(tmp_path / "source", tmp_path / "n1")[:2])
    other, other_affine, sidecar = through_dcm2niix(tmp_path / "sr", tmp_path / "n2")
    assert_same_in_space(array, affine, other, other_affine)
    assert (sidecar["SliceThickness"], sidecar["SpacingBetweenSlices"]) == (0.94, 0.94)


@pytest.mark.skipif(DCM2NIIX is None, reason="dcm2niix is not installed")
def test_dcm2niix_agrees_on_a_multi_frame_image(tmp_path, voxels):
    volume = read_only(save(tmp_path / "source", [enhanced(mr_slices(voxels, ORIENTATIONS["oblique"]))]))
    assert_same_in_space(volume.array, volume.affine, *through_dcm2niix(tmp_path / "source", tmp_path / "n")[:2])


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


def test_uids_are_fresh_but_for_patient_study_and_frame_of_reference(tmp_path, voxels):
    source = mr_slices(voxels)
    images = derived(tmp_path, source)[2]
    assert len({image.SOPInstanceUID for image in images} | {image.SOPInstanceUID for image in source}) == 31 + 6
    assert len({image.SeriesInstanceUID for image in images}) == 1
    assert images[0].SeriesInstanceUID != source[0].SeriesInstanceUID
    for image in images:
        assert image.SOPInstanceUID == image.file_meta.MediaStorageSOPInstanceUID
        for keyword in ("StudyInstanceUID", "FrameOfReferenceUID", "PatientID", "PatientName", "StudyDate", "EchoTime"):
            assert image[keyword].value == source[0][keyword].value


def test_the_series_says_what_it_is_and_what_it_comes_from(tmp_path, voxels):
    source = mr_slices(voxels, SeriesDescription="x" * 64)
    image = derived(tmp_path, source)[2][0]
    assert image.ImageType[:2] == ["DERIVED", "SECONDARY"]
    assert image.SeriesNumber == 1007
    assert image.SeriesDescription.endswith("x DRIFT SR") and len(image.SeriesDescription) == 64
    assert "estimated, not measured" in image.DerivationDescription and "1.2.3" in image.DerivationDescription
    (tool,) = image.ContributingEquipmentSequence
    assert (tool.Manufacturer, tool.SoftwareVersions) == ("DRIFT", "1.2.3")
    assert tool.PurposeOfReferenceCodeSequence[0].CodeValue == "109102"
    referenced = {item.ReferencedSOPInstanceUID for item in image.SourceImageSequence}
    assert referenced == {one.SOPInstanceUID for one in source}
    assert verdict(tmp_path / "sr").startswith("secondary images")  # a result is not taken for a scan


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


# --- intensities ---


@pytest.mark.parametrize(
    "factor, slope, intercept, overshoot, step, signed",
    [
        (1, None, None, 0, 1, False),
        (1, None, None, 40, 1, True),
        (90, None, None, 0, 1, False),  # up to 64710: only unsigned integers reach it
        (90, None, None, 40, 1, False),  # -40 to 64710: shifted
        (1, 0.5, -100, 20, 0.5, True),
        (1, 1e-6, 0, 0, 1e-6, False),
        (1, 1e-6, 0, 1.0, 1e-6 * 719 / 65534 + 1 / 65534, False),  # too wide for the step: all 65536 values
    ],
)
def test_intensities_come_back_within_half_a_step(tmp_path, voxels, factor, slope, intercept, overshoot, step, signed):
    rescale = {} if slope is None else {"RescaleSlope": slope, "RescaleIntercept": intercept}
    array, _, images = derived(tmp_path, mr_slices(voxels * factor, **rescale), overshoot=overshoot)
    slopes = [float(image.get("RescaleSlope", 1)) for image in images]
    np.testing.assert_allclose(slopes, step, rtol=1e-3)
    assert {image.PixelRepresentation for image in images} == {int(signed)}
    back = np.stack([i.pixel_array.T * slopes[0] + float(i.get("RescaleIntercept", 0)) for i in images], axis=-1)
    assert abs(back - array).max() <= 0.5 * slopes[0] * (1 + 1e-6)
    assert back.min() < 0 or not overshoot


def test_the_finest_slope_of_the_slices_is_the_step(tmp_path, voxels):
    source = mr_slices(voxels, RescaleSlope=lambda k: 0.25 * (1 + k), RescaleIntercept=0)
    assert {float(image.RescaleSlope) for image in derived(tmp_path, source)[2]} == {0.25}


def test_a_plain_series_stays_without_rescaling(tmp_path, voxels):
    assert "RescaleSlope" not in derived(tmp_path, mr_slices(voxels))[2][0]


def test_a_constant_volume_is_written(tmp_path, voxels):
    source = mr_slices(np.full_like(voxels, 7), RescaleSlope=1e-3, RescaleIntercept=1e6)
    array, _, images = derived(tmp_path, source)
    assert float(images[0].pixel_array[0, 0] * images[0].RescaleSlope + images[0].RescaleIntercept) == array[0, 0, 0]


# --- complete or absent ---


def test_an_earlier_result_is_replaced_and_anything_else_is_refused(tmp_path, voxels):
    volume = read_only(save(tmp_path / "source", mr_slices(voxels)))
    sr = tmp_path / "new" / "sr"
    for count in (6, 4):
        write_series(sr, volume.array[:, :, :count], volume.affine, volume.header, "1")
        assert [path.name for path in sorted(sr.iterdir())] == [f"{k:04d}.dcm" for k in range(1, count + 1)]
    assert [path.name for path in sr.parent.iterdir()] == ["sr"]
    (sr / "thesis.doc").touch()
    with pytest.raises(InputError, match="exists and is no earlier result"):
        write_series(sr, volume.array, volume.affine, volume.header, "1")
    assert len(list(sr.iterdir())) == 5


def test_what_cannot_be_written_leaves_nothing(tmp_path, voxels):
    volume = read_only(save(tmp_path / "source", mr_slices(voxels)))
    hole = volume.array.copy()
    hole[0, 0, 0] = np.nan
    with pytest.raises(InputError, match="NaN or infinite"):
        write_series(tmp_path / "sr", hole, volume.affine, volume.header, "1")
    sheared = volume.affine.copy()
    sheared[0, 2] += 1
    with pytest.raises(InputError, match="sheared"):
        write_series(tmp_path / "sr", volume.array, sheared, volume.header, "1")
    volume.header.PhotometricInterpretation = "NONSENSE"
    with pytest.raises(ValueError):
        write_series(tmp_path / "sr", volume.array, volume.affine, volume.header, "1")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


# --- a real series ---


@pytest.mark.skipif(not REAL.exists(), reason="the shared data are not here")
def test_a_real_sagittal_series_with_gaps(tmp_path):
    volume = read_only(REAL)
    assert volume.array.shape == (256, 256, 35)
    assert (volume.slice_thickness, volume.slice_spacing) == (4.0, pytest.approx(4.8, abs=1e-5))
    volume.array[:, :, :] = volume.array - 3  # some overshoot
    array, affine = rebuilt(volume)
    array, affine = array[:, :, ::8], affine @ np.diag([1, 1, 8, 1])  # fewer files
    write_series(tmp_path / "sr", array, affine, volume.header, "1")
    if DCM2NIIX is not None:
        reference = read_only(REAL)
        assert_same_in_space(reference.array, reference.affine, *through_dcm2niix(REAL, tmp_path / "n1")[:2])
        assert_same_in_space(array, affine, *through_dcm2niix(tmp_path / "sr", tmp_path / "n2")[:2])
