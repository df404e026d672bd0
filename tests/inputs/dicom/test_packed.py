"""Packed DICOM files hold what plain ones hold; none is unpacked to more than an image may hold."""

import gzip
import tracemalloc

import numpy as np
import pytest
from pydicom import uid

from scripts.inputs import headers
from scripts.inputs.headers import read_dataset
from tests.dicom_files import enhanced, mr_slice, mr_slices, save

DEFLATED = uid.DeflatedExplicitVRLittleEndian
MOST = 2**21  # bytes
VOXELS = np.arange(12 * 10, dtype=np.uint16).reshape(12, 10)


def of_zeros(count, image):
    """An image whose element before its pixels holds so many zeros."""
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
    whole = enhanced(mr_slices(np.dstack([VOXELS] * 3)))
    path = packed(tmp_path, whole, how)
    for source in (path, path.read_bytes()):
        read = read_dataset(source)
        np.testing.assert_array_equal(read.pixel_array, np.stack([VOXELS.T] * 3))
        assert read.PatientID == "17" and len(read.PerFrameFunctionalGroupsSequence) == 3
        header = read_dataset(source, stop_before_pixels=True, specific_tags=["PatientID"])
        assert header.PatientID == "17" and "PixelData" not in header and "Rows" not in header


@pytest.mark.parametrize("how", ["gzip", "deflated", "deflated gzip"])
def test_no_more_is_unpacked_than_an_image_may_hold(how, tmp_path, monkeypatch):
    """The bound is a hundredth here, so that the law takes no second."""
    monkeypatch.setattr(headers, "MOST_BYTES", MOST)
    content = packed(tmp_path, of_zeros(MOST // 2, mr_slice(VOXELS, [0, 0, 0])), how).read_bytes()
    assert read_dataset(content).PatientID == "17"
    content = packed(tmp_path, of_zeros(8 * MOST, mr_slice(VOXELS, [0, 0, 0])), how).read_bytes()
    assert len(content) < MOST
    tracemalloc.start()
    try:
        for options in ({}, {"stop_before_pixels": True, "specific_tags": ["PatientID"]}):
            with pytest.raises(ValueError, match="unpacks to more than"):
                read_dataset(content, **options)
        assert tracemalloc.get_traced_memory()[1] < 4 * MOST
    finally:
        tracemalloc.stop()
