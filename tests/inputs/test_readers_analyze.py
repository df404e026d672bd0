"""NIfTI pairs and MGH are read as other formats are; Analyze, which does not say which side is left, is refused."""

import nibabel as nib
import numpy as np
import pytest

from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from scripts.stack.acquisition import Acquisition
from tests.cohort_files import texture
from tests.inputs.test_readers import read

PLACE = np.array([[-1.0, 0, 0, 30], [0, 1.0, 0, -40], [0, 0, 4.0, -20], [0, 0, 0, 1]])  # as Analyze lies: x to the left


def save(path, kind, affine=PLACE):
    nib.save(kind(texture(), affine), path)
    return path


@pytest.mark.parametrize("name", ["scan.hdr", "scan.img"])
def test_a_pair_is_read_by_either_name(name, tmp_path):
    save(tmp_path / "scan.hdr", nib.Nifti1Pair)
    array, meta = read(tmp_path / name)
    np.testing.assert_array_equal(array, texture())
    np.testing.assert_allclose(meta["affine"], PLACE)


@pytest.mark.parametrize("kind", [nib.AnalyzeImage, nib.Spm99AnalyzeImage, nib.Spm2AnalyzeImage])
def test_analyze_is_refused_with_what_to_do(kind, tmp_path, refusal):
    said = refusal(read, save(tmp_path / "scan.hdr", kind))
    assert "scan.hdr is in the Analyze format" in said and "Convert it" in said


@pytest.mark.parametrize(("header", "voxels"), [("scan.hdr", "scan.img"), ("scan.HDR", "scan.IMG")])
def test_a_pair_is_one_scan_with_all_its_files(header, voxels, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    save(folder / header, nib.Nifti1Pair)
    (folder / "picture.hdr").write_bytes(b"#?RADIANCE\n")
    (folder / "disk.img").write_bytes(b"\0" * 512)
    for source in (folder, folder / header, folder / voxels, [folder / header, folder / voxels]):
        (found,) = scans(source, "out", Selection(1.3))
        assert found.source == folder / header and found.result.as_posix() == "out/scan_sr"
        assert [path.name for path in found.files] == [header, voxels]


def test_mgh_is_mgz_unpacked(tmp_path, door):
    for ending in ("mgh", "mgz"):
        save(tmp_path / f"{ending}.{ending}", nib.MGHImage)
    plain, packed = (door(tmp_path / f"{ending}.{ending}", slice_thickness=4) for ending in ("mgh", "mgz"))
    np.testing.assert_array_equal(plain.numpy(), packed.numpy())
    assert Acquisition.of(plain) == Acquisition.of(packed)
    assert len(scans(tmp_path / "mgh.mgh", "out", Selection(1.3))) == 1
