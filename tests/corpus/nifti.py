"""NIfTI files: broken ones, their geometry and their intensities."""

import gzip
import os
import struct
from pathlib import Path

import nibabel as nib
import numpy as np

from tests.corpus.given import AXIAL, SCAN, Given, Maker, content, folder_of, nifti, rewritten, turned


def pipe(folder: Path) -> Given:
    os.mkfifo(folder / "scan.nii")
    return Given(folder / "scan.nii")


def patched(*patches: tuple[int, str, tuple], array=SCAN, affine=AXIAL, truth=None, size=None) -> Maker:
    """An uncompressed NIfTI file with fields (offset, format, values) of its header overwritten."""

    def make(folder: Path) -> Given:
        given = nifti(array, affine, "scan.nii", truth=truth)(folder)
        content = bytearray(given.source.read_bytes())
        for offset, form, values in patches:
            struct.pack_into("<" + form, content, offset, *values)
        given.source.write_bytes(content[:size])
        return given

    return make


DIM, DATATYPE, PIXDIM, SLOPE, INTER, UNITS, CODES, QUATERN, SROW, MAGIC = 40, 70, 76, 112, 116, 123, 252, 256, 280, 344


def sform(affine) -> tuple[int, str, tuple]:
    return SROW, "12f", tuple(np.asarray(affine, dtype=float)[:3].ravel())


def flip_a_voxel(data: bytes) -> bytes:
    """Gzip without compression, one byte of the voxels changed: only the checksum at its end knows."""
    plain = gzip.decompress(data)
    stored = bytearray(gzip.compress(plain, compresslevel=0))
    place = stored.find(plain[-400:-300])
    stored[place + 50] ^= 0x40
    return bytes(stored)


def shear(degrees: float) -> np.ndarray:
    affine = AXIAL.copy()
    affine[:3, 2] = 0, 4 * np.sin(np.radians(degrees)), 4 * np.cos(np.radians(degrees))
    return affine


def scaled(slope: float, inter: float, truth: np.ndarray | None) -> Maker:
    """16-bit voxels with this scaling in the header."""
    stored = SCAN.astype(np.int16)
    return patched((SLOPE, "2f", (slope, inter)), array=stored, truth=None if truth is None else (truth, AXIAL))


def one_voxel(value: float) -> np.ndarray:
    array = SCAN.copy()
    array[2, 3, 1] = value
    return array


def big_endian(array, affine) -> bytes:
    header = nib.Nifti1Header(endianness=">")
    header.set_data_dtype(">f4")
    image = nib.Nifti1Image(array.astype(">f4"), affine, header)
    return image.to_bytes()


def unsigned_64(array, affine):
    return nib.Nifti1Image(array, affine, dtype=np.uint64)


def in_members(data: bytes) -> bytes:
    plain = gzip.decompress(data)
    return gzip.compress(plain[:300]) + gzip.compress(plain[300:])


def huge(data: bytes) -> bytes:
    header = bytearray(gzip.decompress(data))
    struct.pack_into("<8h", header, DIM, 3, 32767, 32767, 32767, 1, 1, 1, 1)
    return gzip.compress(bytes(header))


def other_qform(spacing: float) -> list[tuple[int, str, tuple]]:
    """Both forms are set, and the quaternion turns by 180 degrees about z and moves; `spacing` in `pixdim`."""
    codes, turn = (CODES, "2h", (1, 1)), (QUATERN, "6f", (0, 0, 1, 50, 60, 70))
    return [codes, turn, (PIXDIM, "4f", (1, 1, 1, spacing))]


QFORM = np.diag([-1.0, -1.0, 4.0, 1.0])
QFORM[:3, 3] = 50, 60, 70
CENTRED = np.diag([-1.0, 1.0, 4.0, 1.0])  # of a file that says nothing: the centre at the origin, x to the left
CENTRED[:3, 3] = 2.5, -3, -8
RGB = np.dtype([("R", "u1"), ("G", "u1"), ("B", "u1")])


UNREADABLE = r"scan\.nii(\.gz)? cannot be read \("

CORPUS: list[tuple[str, Maker, str]] = [
    # name, maker, "correct" or what the one message says
    ("a NIfTI file", nifti(), "correct"),
    ("NIfTI-2", nifti(kind=nib.Nifti2Image), "correct"),
    ("NIfTI, big-endian", rewritten(lambda d: big_endian(SCAN, AXIAL), nifti(name="scan.nii"), keep=True), "correct"),
    ("gzip in several members", rewritten(in_members, keep=True), "correct"),
    ("an empty file, .nii.gz", content(b""), UNREADABLE),
    ("an error page of a web server named .nii.gz", content(b"<html>404</html>" * 40), UNREADABLE),
    ("gzip cut in half", rewritten(lambda d: d[: len(d) // 2]), UNREADABLE),
    ("gzip with a wrong checksum", rewritten(flip_a_voxel), UNREADABLE),
    ("NIfTI cut within its voxels", patched(size=352 + 400), UNREADABLE),
    ("no gzip named .nii.gz", rewritten(bytes, nifti(name="scan.nii"), name="scan.nii.gz"), UNREADABLE),
    ("a zip file of a NIfTI file", rewritten(bytes, name="scan.nii.zip"), "scan.nii.zip is no scan.*Unpack"),
    ("an ending in capitals", rewritten(bytes, name="SCAN.NII.GZ", keep=True), "correct"),
    ("a file of another kind", content(b"x", "scan.mnc"), "scan.mnc is no scan that can be read"),
    ("a file that is not there", lambda folder: Given(folder / "scan.nii.gz"), "scan.nii.gz does not exist"),
    ("a pipe", pipe, "scan.nii does not exist"),
    (
        "a scan beside a folder named .nii",
        folder_of(nifti(), lambda f: [(f / "x.nii").mkdir(), Given(f)][1]),
        "correct",
    ),
    # geometry
    ("an oblique stack", nifti(affine=turned()), "correct"),
    ("isotropic already", nifti(affine=np.eye(4)), "correct"),
    ("a sheared affine", nifti(affine=shear(1.3)), "sheared, 1.30 degrees"),
    ("shear within the header's rounding", nifti(affine=shear(0.05)), "correct"),
    ("an axis of length zero", patched(sform(np.diag([1.0, 1.0, 0.0, 1.0]))), "voxel edges of .*expected positive"),
    ("NaN in the affine", patched(sform(np.diag([1.0, 1.0, np.nan, 1.0]))), "voxel edges|affine"),
    ("NaN in the affine's origin", patched((SROW + 12, "f", (np.nan,))), "(?i)nan|finite"),
    ("an sform of zeros, a qform without a code", patched((CODES, "2h", (0, 2)), sform(np.zeros((4, 4)))), "correct"),
    ("voxel sizes of zero beside a good affine", patched((PIXDIM + 4, "3f", (0, 0, 0))), "correct"),
    ("a qform turned and moved against the sform", patched(*other_qform(4)), "correct"),
    ("a qform alone", patched((CODES, "2h", (1, 0)), *other_qform(4)[1:], truth=(SCAN, QFORM)), "correct"),
    ("neither qform nor sform", patched((CODES, "2h", (0, 0)), truth=(SCAN, CENTRED)), "correct"),
    ("lengths in micrometres", patched((UNITS, "B", (3,)), affine=1000 * AXIAL), "in microns"),
    ("slices half a metre apart", nifti(affine=np.diag([1.0, 1.0, 500.0, 1.0])), "500 mm"),
    ("two slices", nifti(SCAN[:, :, :2]), "has 2 slices along axis 2.*3 or more"),
    ("one voxel in each slice", nifti(SCAN[:1, :1]), "correct"),
    ("two dimensions", nifti(SCAN[:, :, 0], truth=(SCAN, AXIAL)), r"shape \(6, 7\): expected a 3-D volume"),
    ("four dimensions, one volume", nifti(SCAN[..., None]), "correct"),
    ("four dimensions, three volumes", nifti(np.stack([SCAN] * 3, -1), truth=(SCAN, AXIAL)), r"\(6, 7, 5, 3\)"),
    ("a dimension of zero", patched((DIM, "8h", (3, 6, 0, 5, 1, 1, 1, 1))), "cannot be read|shape|slices"),
    ("a header of 70 terabytes", rewritten(huge, name="scan.nii.gz"), r"expected at most \d+ voxels"),
    # intensities
    ("voxels of i1", nifti(SCAN.astype("i1")), "correct"),
    ("16-bit voxels at both ends", nifti(np.where(SCAN > 500, 32767, -32768).astype(np.int16)), "correct"),
    ("64-bit voxels beyond 2^63", nifti((SCAN * 1.8e16).astype(np.uint64), kind=unsigned_64), "correct"),
    ("intensities of 1e30", nifti(SCAN.astype(np.float64) * 1e27), "correct"),
    ("intensities of 1e300", nifti(SCAN.astype(np.float64) * 1e297), "has .* infinite voxels"),
    ("one voxel a million times brighter", nifti(one_voxel(1e9)), "correct"),
    ("a volume of zeros", nifti(np.zeros_like(SCAN)), "correct"),
    ("one NaN", nifti(one_voxel(np.nan)), "has 1 NaN or infinite voxels"),
    ("complex voxels", nifti(SCAN.astype(np.complex64)), "complex64 voxels: expected one real number"),
    (
        "colours",
        nifti(SCAN[..., None].repeat(3, 3).astype("u1").view(RGB)[..., 0], truth=(SCAN, AXIAL)),
        "one real number",
    ),
    ("an unknown kind of voxel", patched((DATATYPE, "2h", (9999, 8))), "cannot be read|voxels: expected"),
    ("a slope of 0", scaled(0, 7, SCAN.astype(np.int16)), "correct"),
    ("a slope of NaN", scaled(np.nan, 0, SCAN.astype(np.int16)), "correct"),
    ("an intercept of NaN", scaled(1, np.nan, None), "cannot be read"),
    # what is no anatomy
    ("a negative slope", scaled(-0.5, 7, -0.5 * SCAN.astype(np.int16) + 7), "correct"),
]
