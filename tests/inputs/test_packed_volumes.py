"""Gzipped volumes: no more is unpacked than the header says; an image in memory needs no file."""

import gzip
import tracemalloc

import nibabel as nib
import numpy as np
import pytest

from scripts.inputs.readers import EXTENSIONS, FOOTER
from tests.inputs.test_readers import read

VOXELS = np.arange(6 * 7 * 5, dtype=np.int16).reshape(6, 7, 5)
KINDS = {"scan.nii.gz": nib.Nifti1Image, "scan.mgz": nib.MGHImage}


@pytest.mark.parametrize("name", KINDS)
def test_what_lies_behind_the_voxels_may_be_tags_and_no_more(name, tmp_path, refusal):
    path = tmp_path / name
    nib.save(KINDS[name](VOXELS, np.eye(4)), path)
    plain = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(plain + bytes(FOOTER - 4096), 1))
    np.testing.assert_array_equal(read(path)[0], VOXELS)
    path.write_bytes(gzip.compress(plain + bytes(FOOTER + 4096), 1))
    assert "scan" in (told := refusal(read, path)) and "unpacks to more than its header says" in told


def extended(path, kind, said, held):
    """A packed NIfTI whose header has one extension: of `said` bytes, as it says itself, and of `held` bytes."""
    image = kind(VOXELS, np.eye(4))
    header = image.header.copy()
    start = header.sizeof_hdr + 4
    header["vox_offset"] = start + held
    with gzip.open(path, "wb", 1) as file:
        file.write(header.binaryblock + b"\1\0\0\0" + np.array([said, 6], np.int32).tobytes())
        file.write(bytes(held - 8) + VOXELS.tobytes("F"))
    return path


@pytest.mark.parametrize("kind", [nib.Nifti1Image, nib.Nifti2Image])
@pytest.mark.parametrize("bytes_held", [1024, EXTENSIONS - 4096])
def test_a_header_may_have_extensions(kind, bytes_held, tmp_path):
    path = extended(tmp_path / "scan.nii.gz", kind, bytes_held, bytes_held)
    np.testing.assert_array_equal(read(path)[0], VOXELS)


@pytest.mark.parametrize(
    ("kind", "said"), [*((nib.Nifti1Image, one) for one in (2**25, -(2**20), 0)), (nib.Nifti2Image, 2**31 - 16)]
)
def test_no_more_of_an_extension_is_unpacked_than_a_header_may_hold(kind, said, tmp_path, refusal):
    """Some 40 kB would fill 32 MB here, and 2 MB as many as 2 GB. A negative size would be read to the end."""
    path = extended(tmp_path / "scan.nii.gz", kind, said, 2**25)
    assert path.stat().st_size < 2**20
    tracemalloc.start()
    told = refusal(read, path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "scan.nii.gz cannot be read (its header extensions go beyond 16 MB" in told
    assert most < 4 * EXTENSIONS


@pytest.mark.parametrize("cached", ["array", "read"])
def test_an_image_in_memory_is_read_without_its_file(cached, tmp_path):
    path = tmp_path / "scan.nii.gz"
    image = nib.Nifti1Image(VOXELS, np.eye(4))
    image.to_filename(path)
    if cached == "read":
        image = nib.load(path)
        image.get_fdata()
    assert image.get_filename() == str(path)
    path.unlink()
    np.testing.assert_array_equal(read(image)[0], VOXELS)
