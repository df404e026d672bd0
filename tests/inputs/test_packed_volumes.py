"""Gzipped volumes: no more is unpacked than the header says; an image in memory needs no file."""

import gzip

import nibabel as nib
import numpy as np
import pytest

from scripts.inputs.readers import FOOTER, ScanReader

VOXELS = np.arange(6 * 7 * 5, dtype=np.int16).reshape(6, 7, 5)
KINDS = {"scan.nii.gz": nib.Nifti1Image, "scan.mgz": nib.MGHImage}


def read(source):
    return ScanReader().get_data(ScanReader().read(source))[0]


@pytest.mark.parametrize("name", KINDS)
def test_what_lies_behind_the_voxels_may_be_tags_and_no_more(name, tmp_path, refusal):
    path = tmp_path / name
    nib.save(KINDS[name](VOXELS, np.eye(4)), path)
    plain = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(plain + bytes(FOOTER - 4096), 1))
    np.testing.assert_array_equal(read(path), VOXELS)
    path.write_bytes(gzip.compress(plain + bytes(FOOTER + 4096), 1))
    assert "scan" in (told := refusal(read, path)) and "unpacks to more than its header says" in told


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
    np.testing.assert_array_equal(read(image), VOXELS)
