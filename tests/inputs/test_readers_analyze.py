"""Analyze and MGH: read as other formats are; of Analyze one knows which side is which only by convention."""

import nibabel as nib
import numpy as np
import pytest

from scripts.inputs.readers import ScanReader
from scripts.inputs.scans import scans
from scripts.stack.acquisition import Acquisition
from tests.cohort_files import summary, texture

PLACE = np.array([[-1.0, 0, 0, 30], [0, 1.0, 0, -40], [0, 0, 4.0, -20], [0, 0, 0, 1]])  # as Analyze lies: x to the left
PAIRS = {"plain": nib.AnalyzeImage, "spm": nib.Spm99AnalyzeImage, "nifti": nib.Nifti1Pair}


def save(path, kind, affine=PLACE):
    nib.save(kind(texture(), affine), path)
    return path


def read(path):
    reader = ScanReader()
    return reader.get_data(reader.read(path))


@pytest.mark.parametrize("name", ["scan.hdr", "scan.img"])
@pytest.mark.parametrize("kind", PAIRS)
def test_a_pair_is_read_by_either_name(kind, name, tmp_path):
    save(tmp_path / "scan.hdr", PAIRS[kind])
    array, meta = read(tmp_path / name)
    np.testing.assert_array_equal(array, texture())
    np.testing.assert_allclose(np.abs(meta["affine"][:3, :3]), np.diag([1.0, 1.0, 4.0]))
    assert ("header" in meta) == (kind == "nifti")
    assert ("warning" in meta) == (kind == "plain"), "SPM's file beside it says the place, and NIfTI's header"


def test_the_side_is_a_warning_in_the_line_and_the_summary(tmp_path, bundle, log):
    bundle(save(tmp_path / "scan.hdr", nib.AnalyzeImage))
    (row,) = summary(bundle.out)
    for text in (row["warnings"], log.text):
        assert "Analyze files do not say which side is the patient's left" in text
    result = nib.load(bundle.out / "scan_sr.nii.gz")
    assert result.shape[:2] == (6, 7) and nib.aff2axcodes(result.affine) == ("L", "A", "S")


def test_a_pair_is_one_scan_with_all_its_files(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    save(folder / "scan.hdr", nib.Spm99AnalyzeImage)
    (folder / "picture.hdr").write_bytes(b"#?RADIANCE\n")
    (folder / "disk.img").write_bytes(b"\0" * 512)
    for source in (folder, folder / "scan.hdr", folder / "scan.img", [folder / "scan.hdr", folder / "scan.img"]):
        items = scans(source, "out", 1.3)
        assert {item["image"] for item in items} == {str(folder / "scan.hdr")}
        names = [path.rsplit("/", 1)[1] for path in items[0]["sources"]]
        assert names == ["scan.hdr", "scan.img", "scan.mat"] and items[0]["result"] == "out/scan_sr"


@pytest.mark.parametrize("kind", [nib.AnalyzeImage, nib.Nifti1Pair, nib.Nifti2Pair])
@pytest.mark.parametrize("order", ["<", ">"])
def test_a_header_is_known_by_its_length_in_either_byte_order(kind, order, tmp_path):
    header = kind.header_class(endianness=order)
    nib.save(kind(texture(), PLACE, header), tmp_path / "scan.hdr")
    assert [item["image"] for item in scans(tmp_path, "out", 1.3)] == [str(tmp_path / "scan.hdr")]


def test_a_header_without_voxels_is_told(tmp_path, refusal):
    save(tmp_path / "scan.hdr", nib.AnalyzeImage)
    (tmp_path / "scan.img").unlink()
    assert "scan.hdr cannot be read" in refusal(read, tmp_path / "scan.hdr")


def test_mgh_is_mgz_unpacked(tmp_path, door):
    for ending in ("mgh", "mgz"):
        save(tmp_path / f"{ending}.{ending}", nib.MGHImage)
    plain, packed = (door(tmp_path / f"{ending}.{ending}", slice_thickness=4) for ending in ("mgh", "mgz"))
    np.testing.assert_array_equal(plain.numpy(), packed.numpy())
    assert Acquisition.of(plain) == Acquisition.of(packed)
    assert len(scans(tmp_path / "mgh.mgh", "out", 1.3)) == 1
