"""Packed DICOM files hold what plain ones hold; what unpacks to more than its header says is refused, not unpacked."""

import gzip
import tracemalloc
import zlib

import numpy as np
import pytest
from pydicom import uid

from scripts.inputs import headers
from scripts.inputs.headers import read_dataset
from tests.dicom_files import enhanced, mr_slice, mr_slices, save

DEFLATED = uid.DeflatedExplicitVRLittleEndian
HEADER = 2**17  # bytes
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


@pytest.fixture
def small(monkeypatch):
    """Bounds of a hundredth, so that the laws take no second."""
    monkeypatch.setattr(headers, "MOST_HEADER", HEADER)
    monkeypatch.setattr(headers, "MOST_BYTES", 16 * HEADER)


def test_an_image_of_more_pixels_than_headers_have_bytes_is_unpacked_whole(small, tmp_path):
    voxels = (np.arange(2 * 250**2) % 251).astype(np.uint16).reshape(250, 250, 2)
    assert voxels.nbytes > HEADER
    path = packed(tmp_path, enhanced(mr_slices(voxels)), "gzip")
    np.testing.assert_array_equal(read_dataset(path).pixel_array, voxels.T)


def test_what_unpacks_to_more_than_its_header_says_is_refused_before_the_memory_is_full(small, tmp_path):
    path = packed(tmp_path, of_zeros(64 * HEADER, mr_slice(VOXELS, [0, 0, 0])), "deflated gzip")
    content = path.read_bytes()
    assert len(content) < HEADER
    tracemalloc.start()
    try:
        assert read_dataset(content, stop_before_pixels=True, specific_tags=["PatientID"]).PatientID == "17"
        with pytest.raises(ValueError, match="unpacks to more than"):
            read_dataset(content)
        assert tracemalloc.get_traced_memory()[1] < 16 * HEADER
    finally:
        tracemalloc.stop()


def test_a_header_that_boasts_unpacks_no_more_than_an_image_may_hold(small, tmp_path):
    image = mr_slice(VOXELS, [0, 0, 0], Rows=60_000, Columns=60_000)
    path = packed(tmp_path, of_zeros(0, image), "plain")
    pack = zlib.compressobj(1, wbits=31)
    parts = [pack.compress(path.read_bytes()), *(pack.compress(bytes(HEADER)) for _ in range(20)), pack.flush()]
    with pytest.raises(ValueError, match="unpacks to more than"):
        read_dataset(b"".join(parts))
