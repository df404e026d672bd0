"""Where the slices of a series lie and what their intensities are: real files, plain oracles."""

import copy
import gzip
import logging
import tracemalloc

import numpy as np
import pytest
from pydicom import uid

from scripts.errors import InputError
from scripts.inputs import headers
from scripts.inputs.dicom import find_series, read_series
from scripts.inputs.headers import read_dataset
from scripts.stack import grid
from tests.dicom_files import ORIENTATIONS, SHAPE, VOXELS, enhanced, mr_slice, mr_slices, read_only, save, world

# --- geometry ---


@pytest.mark.parametrize("orientation", ORIENTATIONS.values(), ids=ORIENTATIONS)
def test_every_voxel_lies_where_the_standard_says(tmp_path, voxels, orientation):
    images = mr_slices(voxels, orientation)
    volume = read_only(save(tmp_path, images))
    assert volume.dataobj.shape == SHAPE and volume.dataobj.dtype == np.float32
    for column, row, k in np.ndindex(SHAPE):
        here = volume.affine[:3] @ [column, row, k, 1]
        np.testing.assert_allclose(here, world(images[k], column, row), atol=1e-6)
        assert volume.dataobj[column, row, k] == voxels[column, row, k]
    assert volume.extra["stated"]["slice_thickness"][0] == 4
    assert grid.voxel_spacing(volume.affine)[2] == pytest.approx(4.8)


RESCALED = {"none": (1, 0), "one": (0.25, -10), "of each slice": (0.5 + np.arange(6) / 8, -10.0 * np.arange(6))}


@pytest.mark.parametrize("which", RESCALED)
def test_a_multi_frame_image_equals_its_classic_series(tmp_path, voxels, which):
    slopes, intercepts = RESCALED[which]
    each = {"RescaleSlope": slopes, "RescaleIntercept": intercepts}
    rescale = {name: lambda k, of=of: np.resize(of, 6)[k] for name, of in each.items() if which != "none"}
    images = mr_slices(voxels, ORIENTATIONS["oblique"], **rescale)
    classic = read_only(save(tmp_path / "classic", images))
    one_file = read_only(save(tmp_path / "enhanced", [enhanced(images[::-1])]))
    np.testing.assert_allclose(classic.dataobj, voxels * slopes + intercepts)
    np.testing.assert_array_equal(one_file.dataobj, classic.dataobj)
    np.testing.assert_allclose(one_file.affine, classic.affine, atol=1e-9)
    assert one_file.extra == classic.extra and one_file.extra["stated"]["slice_thickness"][0] == 4
    assert one_file.extra["series"] == {"series": "t2 tse", "date": "20240506"}


def test_overlays_in_unused_bits_are_no_intensities(tmp_path, voxels):
    drawn = voxels | (1 << 13)
    images = mr_slices(drawn, BitsStored=12, HighBit=11)
    np.testing.assert_array_equal(read_only(save(tmp_path, images)).dataobj, voxels)


def compressed(path, syntax):
    """Writes the image of a file anew, in a transfer syntax of `gdcm.TransferSyntax`."""
    gdcm = pytest.importorskip("gdcm", reason="pip install python-gdcm")
    reader, change, writer = gdcm.ImageReader(), gdcm.ImageChangeTransferSyntax(), gdcm.ImageWriter()
    reader.SetFileName(str(path))
    assert reader.Read()
    change.SetTransferSyntax(gdcm.TransferSyntax(getattr(gdcm.TransferSyntax, syntax)))
    change.SetInput(reader.GetImage())
    assert change.Change()
    writer.SetFile(reader.GetFile())
    writer.SetImage(change.GetOutput())
    writer.SetFileName(str(path))
    assert writer.Write()


@pytest.mark.parametrize("syntax", ["RLELossless", "JPEG2000Lossless", "JPEGLSLossless", "JPEGLosslessProcess14_1"])
def test_compressed_pixels_are_the_same_pixels(tmp_path, voxels, syntax):
    large = np.kron(voxels, np.ones((8, 8, 1), np.uint16))  # JPEG 2000 halves an image five times
    for path in save(tmp_path, mr_slices(large)).iterdir():
        compressed(path, syntax)
    np.testing.assert_array_equal(read_only(tmp_path).dataobj, large)


@pytest.mark.parametrize("syntax", [uid.DeflatedExplicitVRLittleEndian, uid.ImplicitVRLittleEndian])
def test_another_encoding_of_a_file_holds_the_same_pixels(tmp_path, voxels, syntax):
    np.testing.assert_array_equal(read_only(save(tmp_path, mr_slices(voxels), syntax)).dataobj, voxels)


RANGE = {"PixelPaddingValue": -1000, "PixelPaddingRangeLimit": -900}


@pytest.mark.parametrize(
    ("padding", "padded", "smallest", "layout"),
    [
        ({"PixelPaddingValue": -1000}, [-1000], 300, "classic"),
        (RANGE, [-1000, -950, -900], -60, "multi-frame"),
        ({"PixelPaddingValue": 30000}, [30000], 300, "multi-frame"),
    ],
)
def test_padding_becomes_no_signal(tmp_path, voxels, caplog, layout, padding, padded, smallest):
    """In a series without skull the smallest intensity is tissue: air must not become as bright."""
    caplog.set_level(logging.INFO)
    stored = 2 * voxels.astype(np.int16) + smallest + 7  # odd, so that no voxel has the value of padding by chance
    expected = 2.0 * stored - 7
    for k, value in enumerate(padded):
        stored[k, 0, k], expected[k, 0, k] = value, np.nan
    images = mr_slices(stored, RescaleSlope=2, RescaleIntercept=-7, **padding)
    volume = read_only(save(tmp_path, [enhanced(images)] if layout == "multi-frame" else images))
    np.testing.assert_array_equal(volume.dataobj, np.nan_to_num(expected, nan=0))
    assert f"{len(padded)} voxels of padding (PixelPaddingValue) become 0." in caplog.text


def test_a_volume_of_padding_alone_is_refused(tmp_path, voxels):
    with pytest.raises(InputError, match="all voxels are padding"):
        read_only(save(tmp_path, mr_slices(0 * voxels, PixelPaddingValue=0)))


# --- what is refused or warned of ---


def test_different_images_at_one_place_are_refused(tmp_path, voxels):
    images = mr_slices(voxels)
    other = copy.deepcopy(images[2])
    other.PixelData = images[3].PixelData
    with pytest.raises(InputError, match=r"002 and .*006 are different images at the same place"):
        read_only(save(tmp_path, [*images, other]))


@pytest.mark.parametrize("gone", [(2, 3), (1, 3, 5, 7)])
def test_missing_slices_are_refused_with_their_place(tmp_path, voxels, gone):
    """However many: they are no unevenness."""
    images = [image for k, image in enumerate(mr_slices(np.tile(voxels, 2))) if k not in gone]
    place = f"00{gone[0] - 1} and .*00{gone[0]} "
    with pytest.raises(InputError, match=f"{len(gone)} of 12 slices missing; slices are 4.8 mm apart.*{place}"):
        read_only(save(tmp_path, images))


def test_every_other_slice_missing_is_denied_by_the_header(tmp_path, voxels):
    volume = read_only(save(tmp_path, mr_slices(voxels, SpacingBetweenSlices=4.8)[::2]))
    assert grid.voxel_spacing(volume.affine)[2] == pytest.approx(9.6)
    assert volume.extra["stated"]["slice_spacing"] == [4.8, "the DICOM header"]


@pytest.mark.parametrize(
    ("spacing", "off", "told"),
    [
        (4.8, 0.001, ""),
        (4.8, 0.03, "mean spacing"),
        (4.8, 0.3, "4.5 to 5.1 mm apart"),
        (10.0, 0.08, "mean spacing"),
        (10.0, 0.15, "at most 0.1 mm is supported"),
    ],
)
def test_a_slice_off_its_place_by_a_hundredth_of_the_spacing_is_rounding(tmp_path, voxels, caplog, spacing, off, told):
    images = mr_slices(voxels, spacing=spacing)
    images[2].ImagePositionPatient[2] += off
    save(tmp_path, images)
    if told not in ("", "mean spacing"):
        with pytest.raises(InputError, match=f"slices lie unevenly, .*{told}"):
            read_only(tmp_path)
    else:
        assert grid.voxel_spacing(read_only(tmp_path).affine)[2] == pytest.approx(spacing)
        assert (told in caplog.text) if told else not caplog.records


def test_a_slow_drift_of_the_spacing_is_refused(tmp_path, voxels):
    images = mr_slices(np.tile(voxels, 5))
    for k, image in enumerate(images):
        image.ImagePositionPatient[2] += 0.0008 * k**2  # from 4.80 to 4.85 mm
    with pytest.raises(InputError, match="slices lie unevenly"):
        read_only(save(tmp_path, images))


def test_a_shear_that_is_rounding_stays(tmp_path, voxels):
    tilt = [0, 4.8 * np.tan(np.radians(0.05)), 4.8]
    volume = read_only(save(tmp_path, mr_slices(voxels, step=tilt)))
    np.testing.assert_allclose(volume.affine[:3, 2], tilt * np.array([-1, -1, 1]), atol=1e-6)


@pytest.mark.parametrize("first", [3.9, 5])
def test_the_median_of_thicknesses_is_used_and_their_range_is_warned_of(first, tmp_path, voxels, caplog):
    images = mr_slices(voxels, SliceThickness=lambda k: first if k == 0 else 4)
    assert read_only(save(tmp_path, images)).extra["stated"]["slice_thickness"][0] == 4
    assert f"{min(first, 4)} to {max(first, 4)} mm thick; the median, 4 mm" in caplog.text


def test_a_skipped_series_is_not_read(tmp_path, voxels):
    (series,) = find_series(save(tmp_path, mr_slices(voxels[:, :, :2])))
    with pytest.raises(InputError, match="was skipped: fewer than 3 slices"):
        read_series(series)


@pytest.mark.parametrize("orientation", ["axial", "oblique"])
def test_positions_of_one_decimal_are_rebuilt_with_a_warning(tmp_path, voxels, orientation, caplog):
    images = mr_slices(voxels, ORIENTATIONS[orientation], spacing=4.83)
    for image in images:
        image.ImagePositionPatient = [round(float(one), 1) for one in image.ImagePositionPatient]
    volume = read_only(save(tmp_path, images))
    assert grid.voxel_spacing(volume.affine)[2] == pytest.approx(4.83, abs=0.05) and "off an even grid" in caplog.text
    assert grid.shear_angle(volume.affine) < grid.MAX_SHEAR


# --- packed files: none is unpacked to more than an image may hold ---

DEFLATED = uid.DeflatedExplicitVRLittleEndian
MOST = 2**21  # bytes


def of_zeros(count):
    """An image whose element before its pixels holds so many zeros."""
    image = mr_slice(VOXELS[:, :, 0], [0, 0, 0])
    image.add_new(0x00291010, "OB", bytes(count))
    return image


def packed(folder, image, how):
    """A file of an image: as it is, deflated, gzipped, or both."""
    (path,) = save(folder, [image], DEFLATED if "deflated" in how else uid.ExplicitVRLittleEndian).iterdir()
    if "gzip" in how:
        path.write_bytes(gzip.compress(path.read_bytes(), 1))
    return path


@pytest.mark.parametrize("how", ["plain", "gzip", "deflated", "deflated gzip"])
def test_a_packed_image_is_the_plain_one_from_its_file_or_its_content(how, tmp_path):
    path = packed(tmp_path, enhanced(mr_slices(VOXELS)), how)
    for source in (path, path.read_bytes()):
        read = read_dataset(source)
        np.testing.assert_array_equal(read.pixel_array, VOXELS.T)
        assert read.PatientID == "17" and len(read.PerFrameFunctionalGroupsSequence) == SHAPE[2]
        header = read_dataset(source, stop_before_pixels=True, specific_tags=["PatientID"])
        assert header.PatientID == "17" and "PixelData" not in header and "Rows" not in header


@pytest.mark.parametrize("how", ["gzip", "deflated", "deflated gzip"])
def test_no_more_is_unpacked_than_an_image_may_hold(how, tmp_path, monkeypatch):
    """The bound is a hundredth here, so that the law takes no second."""
    monkeypatch.setattr(headers, "MOST_BYTES", MOST)
    content = packed(tmp_path, of_zeros(MOST // 2), how).read_bytes()
    assert read_dataset(content).PatientID == "17"
    content = packed(tmp_path, of_zeros(8 * MOST), how).read_bytes()
    assert len(content) < MOST
    tracemalloc.start()
    try:
        for options in ({}, {"stop_before_pixels": True, "specific_tags": ["PatientID"]}):
            with pytest.raises(ValueError, match="unpacks to more than"):
                read_dataset(content, **options)
        assert tracemalloc.get_traced_memory()[1] < 4 * MOST
    finally:
        tracemalloc.stop()
