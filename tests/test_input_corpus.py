"""Broken and odd inputs: each ends in a correct result or in one clear message, and no input is ever changed.

Each goes the whole way of configs/inference.yaml, in a process of its own with limits on time and memory. The network
is real, tiny and untrained, hence the identity: a correct result holds the scan's own values at their own places.

    python -m tests.test_input_corpus      writes docs/input_corpus.md
"""

import atexit
import ctypes
import functools
import gzip
import hashlib
import logging
import multiprocessing
import os
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from monai.utils import optional_import
from pydicom import uid
from pydicom.dataset import FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.fileset import FileSet
from scipy.spatial.transform import Rotation

from scripts import readers
from scripts.errors import input_error
from scripts.networks import AnatomicalProjectionNetwork, Drift, VelocityNetwork
from tests.dicom_files import ORIGIN, PIXEL, enhanced, mr_slices, save

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "input_corpus.md"
SECONDS = 30  # for one input, on a busy machine
GIGABYTE = 2**30
AXIAL = np.diag([1.0, 1.0, 4.0, 1.0])
SCAN = (1000 * np.random.default_rng(0).random((6, 7, 5))).astype(np.float32)
itk, HAS_ITK = optional_import("itk")


@dataclass
class Given:
    """An input as a user gives it.

    Attributes:
        source: of the option `input`.
        scans: voxels and affine of the scans that must come out, in the order of the results' names.
        options: others.
        before: what happens in the process before it runs.
        output: folder of the results, within the case's own folder.
    """

    source: Path | str | list
    scans: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    options: dict = field(default_factory=dict)
    before: Callable[[], None] = lambda: None
    output: str = "out"


Maker = Callable[[Path], Given]  # fills a folder


# --- makers: files ---


def nifti(array=SCAN, affine=AXIAL, name="scan.nii.gz", kind=nib.Nifti1Image, truth=None, **options) -> Maker:
    """A NIfTI file; `truth` where its voxels or affine are not those given."""

    def make(folder: Path) -> Given:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        nib.save(kind(array, affine), path)
        true_array, true_affine = truth or (array, affine)
        return Given(path, [(true_array.reshape(true_array.shape[:3]), true_affine)], options)

    return make


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


def content(data: bytes, name="scan.nii.gz") -> Maker:
    """A file of any bytes."""

    def make(folder: Path) -> Given:
        (folder / name).write_bytes(data)
        return Given(folder / name)

    return make


PLAIN = nifti()


def rewritten(change: Callable[[bytes], bytes], maker: Maker = PLAIN, name=None, keep=False) -> Maker:
    """Another maker's file with its bytes changed."""

    def make(folder: Path) -> Given:
        given = maker(folder)
        data = change(given.source.read_bytes())
        given.source.unlink()
        path = folder / (name or given.source.name)
        path.write_bytes(data)
        return Given(path, given.scans if keep else [], given.options)

    return make


def flip_a_voxel(data: bytes) -> bytes:
    """Gzip without compression, one byte of the voxels changed: only the checksum at its end knows."""
    plain = gzip.decompress(data)
    stored = bytearray(gzip.compress(plain, compresslevel=0))
    place = stored.find(plain[-400:-300])
    stored[place + 50] ^= 0x40
    return bytes(stored)


def beside(maker: Maker, **files: str | bytes) -> Maker:
    """With other files next to it; their names with `__` for the dot."""

    def make(folder: Path) -> Given:
        given = maker(folder)
        for name, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            (folder / name.replace("__", ".")).write_bytes(data)
        return given

    return make


def sidecar(text: str | bytes, keep=False, **options) -> Maker:
    """A scan with a sidecar of this text."""
    make_scan = beside(nifti(**options), scan__json=text)
    return lambda folder: Given(make_scan(folder).source, make_scan(folder).scans if keep else [], options)


def shear(degrees: float) -> np.ndarray:
    affine = AXIAL.copy()
    affine[:3, 2] = 0, 4 * np.sin(np.radians(degrees)), 4 * np.cos(np.radians(degrees))
    return affine


def turned(degrees=(25, -40, 70), spacing=(-1.0, 1.0, 4.0), origin=(-91.3, 120.7, 33.1)) -> np.ndarray:
    affine = np.eye(4)
    affine[:3, :3] = Rotation.from_euler("xyz", degrees, degrees=True).as_matrix() @ np.diag(spacing)
    affine[:3, 3] = origin
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


# --- makers: folders, links and rights ---


def folder_of(*makers: Maker, source=".") -> Maker:
    """The folder that the makers filled; each makes its scan in it."""

    def make(folder: Path) -> Given:
        given = [maker(folder) for maker in makers]
        scans = [scan for one in given for scan in one.scans]
        return Given(folder / source, scans, before=lambda: [one.before() for one in given])

    return make


def link(name: str, target: str, scans=()) -> Maker:
    def make(folder: Path) -> Given:
        (folder / name).symlink_to(target)
        return Given(folder / name, list(scans))

    return make


def nothing(folder: Path) -> Given:
    return Given(folder)


def pipe(folder: Path) -> Given:
    os.mkfifo(folder / "scan.nii")
    return Given(folder / "scan.nii")


def obey_rights() -> None:
    """Root reads and writes what no one may, unless it gives up the capabilities for it."""
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.capget(header, data)
    data[0] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


def without_rights(maker: Maker, name: str, mode: int) -> Maker:
    """A file or folder of the case that this user may not read or write."""

    def make(folder: Path) -> Given:
        given = maker(folder)
        path = (folder / name).resolve()
        path.mkdir(exist_ok=True) if not path.exists() else None
        path.chmod(mode)
        given.before = obey_rights
        return given

    return make


def output(name: str, maker: Maker = PLAIN, prepare: Callable[[Path], object] = lambda path: None) -> Maker:
    """Results go to `name`, relative to the case's folder, after something was done to it."""

    def make(folder: Path) -> Given:
        given = maker(folder)
        given.output = name
        prepare(folder.parent / name)
        return given

    return make


def full_disk() -> None:
    """No file may grow beyond 200 bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))


def before(what: Callable[[], None], maker: Maker = PLAIN) -> Maker:
    def make(folder: Path) -> Given:
        given = maker(folder)
        given.before = what
        return given

    return make


def in_its_folder(name: str) -> Maker:
    """A scan named without its folder, from within it."""

    def make(folder: Path) -> Given:
        given = nifti(name="scan.nii.gz")(folder)
        given.source.rename(folder / name)
        return Given(name, given.scans, before=lambda: os.chdir(folder))

    return make


def without_itk() -> None:
    readers.has_itk = False


# --- makers: other formats ---


def itk_image(ending: str, array=SCAN, affine=AXIAL, compress=True, **options) -> Maker:
    """NRRD or MetaImage, as ITK writes it."""

    def make(folder: Path) -> Given:
        image = itk.image_from_array(np.ascontiguousarray(array.T))
        lps, edges = np.diag([-1, -1, 1, 1]) @ affine, np.linalg.norm(affine[:3, :3], axis=0)
        image.SetOrigin(lps[:3, 3].tolist())
        image.SetSpacing(edges.tolist())
        image.SetDirection(itk.matrix_from_array(lps[:3, :3] / edges))
        itk.imwrite(image, str(folder / f"scan.{ending}"), compression=compress)
        return Given(folder / f"scan.{ending}", [(array, affine)], options)

    return make


def nrrd(directions="(1,0,0) (0,1,0) (0,0,4)", sizes="6 7 5", kind="float", data=SCAN, more="", scans=()) -> Maker:
    """NRRD with a header of our own."""
    header = (
        f"NRRD0004\ntype: {kind}\ndimension: {len(sizes.split())}\nspace: right-anterior-superior\nsizes: {sizes}\n"
        f"space directions: {directions}\nendian: little\nencoding: raw\nspace origin: (0,0,0)\n{more}\n"
    )
    make_file = content(header.encode() + np.asarray(data).tobytes(order="F"), "scan.nrrd")
    return lambda folder: Given(make_file(folder).source, list(scans))


def nhdr_alone(folder: Path) -> Given:
    given = itk_image("nhdr")(folder)
    for path in folder.iterdir():
        if path != given.source:
            path.unlink()
    return Given(given.source)


def metaimage(spacing: str, scans=()) -> Maker:
    header = (
        "ObjectType = Image\nNDims = 3\nBinaryData = True\nBinaryDataByteOrderMSB = False\n"
        f"ElementSpacing = {spacing}\nDimSize = 6 7 5\nElementType = MET_FLOAT\nElementDataFile = LOCAL\n"
    )
    make_file = content(header.encode() + SCAN.tobytes(order="F"), "scan.mha")
    return lambda folder: Given(make_file(folder).source, list(scans))


# --- makers: DICOM ---

VOXELS = np.random.default_rng(0).permutation(12 * 10 * 6).reshape(12, 10, 6).astype(np.uint16)
DICOM_AFFINE = np.diag([-PIXEL[1], -PIXEL[0], 4.8, 1.0])
DICOM_AFFINE[:3, 3] = ORIGIN * [-1, -1, 1]
SERIES = (VOXELS, DICOM_AFFINE)


def dicom(change=lambda images: images, scans=(SERIES,), syntax=uid.ExplicitVRLittleEndian, **attributes) -> Maker:
    """A classic series of six slices, 4.8 mm apart and 4 mm thick."""

    def make(folder: Path) -> Given:
        images = change(mr_slices(VOXELS, **attributes))
        save(folder / "dicom", images, syntax)
        return Given(folder / "dicom", list(scans))

    return make


def without(index: int):
    return lambda images: images[:index] + images[index + 1 :]


def moved(index: int, distance: float):
    def change(images):
        position = images[index].ImagePositionPatient
        images[index].ImagePositionPatient = [position[0], position[1], float(position[2]) + distance]
        return images

    return change


def repeated(images):
    copy = mr_slices(VOXELS)[2]
    return [*images, copy]


def compressed(images):
    for image in images:
        image.file_meta = FileMetaDataset()
        image.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
        image.compress(uid.RLELossless)
    return images


def opaque(images):
    """Pixels that no decoder here can read."""
    for image in images:
        image.PixelData = encapsulate([b"\0" * 100])
        image["PixelData"].is_undefined_length = True
    return images


def one_file(maker: Maker, name: str | None = None) -> Maker:
    """Of a series, one file alone."""

    def make(folder: Path) -> Given:
        path = maker(folder).source / "000"
        return Given(path.rename(path.with_name(name)) if name else path)

    return make


def cut_one(folder: Path) -> Given:
    given = dicom(scans=())(folder)
    path = given.source / "002"
    path.write_bytes(path.read_bytes()[:-100])
    return given


def without_preamble(folder: Path) -> Given:
    given = dicom(scans=())(folder)
    for path in given.source.iterdir():
        path.write_bytes(path.read_bytes()[132:])
    return given


def zipped(folder: Path) -> Given:
    given = dicom(scans=())(folder)
    with zipfile.ZipFile(folder / "dicom.zip", "w") as archive:
        for path in given.source.iterdir():
            archive.write(path, path.name)
    shutil.rmtree(given.source)
    return Given(folder / "dicom.zip")


def with_index(source: str) -> Maker:
    """A series with its DICOMDIR."""

    def make(folder: Path) -> Given:
        images = mr_slices(VOXELS, StudyID="1", AccessionNumber="", StudyDescription="")
        files = FileSet()
        for path in save(folder / "loose", images).iterdir():
            files.add(path)
        files.write(folder / "set")
        shutil.rmtree(folder / "loose")
        return Given(folder / "set" / source, [] if source else [SERIES])

    return make


def multi_frame(folder: Path) -> Given:
    save(folder / "dicom", [enhanced(mr_slices(VOXELS))])
    return Given(folder / "dicom", [SERIES])


def file_list(folder: Path) -> Given:
    given = dicom()(folder)
    return Given(sorted(given.source.iterdir(), reverse=True), given.scans)


# --- makers: BIDS ---


def bids(name: str, maker: Maker, sidecars=(), scans=None) -> Maker:
    """A dataset of one scan."""

    def make(folder: Path) -> Given:
        (folder / "dataset_description.json").write_text('{"Name": "x", "BIDSVersion": "1.9.0"}')
        (folder / name).parent.mkdir(parents=True)
        given = maker((folder / name).parent)
        if not isinstance(given.source, Path) or given.source != folder / name:
            os.rename(given.source, folder / name)
        for place, text in sidecars:
            (folder / place).write_text(text)
        return Given(folder, given.scans if scans is None else scans)

    return make


# --- the corpus ---

NONE_FOUND = "no thick-slice scan was found"
UNREADABLE = r"scan\.nii(\.gz)? cannot be read \("

CORPUS: list[tuple[str, Maker, str]] = [
    # name, maker, "correct" or what the one message says
    ("a NIfTI file", nifti(), "correct"),
    ("NIfTI, not compressed", nifti(name="scan.nii"), "correct"),
    ("NIfTI-2", nifti(kind=nib.Nifti2Image), "correct"),
    ("NIfTI, big-endian", rewritten(lambda d: big_endian(SCAN, AXIAL), nifti(name="scan.nii"), keep=True), "correct"),
    (
        "NIfTI with bytes after its end",
        rewritten(lambda d: d + b"x" * 99, nifti(name="scan.nii"), keep=True),
        "correct",
    ),
    ("gzip in several members", rewritten(in_members, keep=True), "correct"),
    ("an empty file, .nii.gz", content(b""), UNREADABLE),
    ("an empty file, .nii", content(b"", "scan.nii"), UNREADABLE),
    ("text named .nii", content(b"patient,age\n1,2\n" * 99, "scan.nii"), UNREADABLE),
    ("an error page of a web server named .nii.gz", content(b"<html>404</html>" * 40), UNREADABLE),
    ("NIfTI with a wrong magic", patched((MAGIC, "4s", (b"xxxx",))), "cannot be read|no NIfTI"),
    ("gzip cut in half", rewritten(lambda d: d[: len(d) // 2]), UNREADABLE),
    ("gzip without its last bytes", rewritten(lambda d: d[:-4]), UNREADABLE),
    ("gzip with a wrong checksum", rewritten(flip_a_voxel), UNREADABLE),
    ("NIfTI cut within its voxels", patched(size=352 + 400), UNREADABLE),
    ("NIfTI cut within its header", patched(size=100), UNREADABLE),
    ("gzip named .nii", rewritten(bytes, name="scan.nii"), UNREADABLE),
    ("no gzip named .nii.gz", rewritten(bytes, nifti(name="scan.nii"), name="scan.nii.gz"), UNREADABLE),
    ("a zip file of a NIfTI file", rewritten(bytes, name="scan.nii.zip"), "scan.nii.zip is no scan.*Unpack"),
    (
        "an ending in capitals",
        rewritten(bytes, name="SCAN.NII.GZ"),
        "SCAN.NII.GZ is no scan.*expected a name ending in",
    ),
    ("a file of another kind", content(b"x", "scan.mnc"), "scan.mnc is no scan that can be read"),
    ("a file that is not there", lambda folder: Given(folder / "scan.nii.gz"), "scan.nii.gz does not exist"),
    ("a pipe", pipe, "scan.nii does not exist"),
    ("a folder named .nii", lambda f: [(f / "scan.nii").mkdir(), Given(f / "scan.nii")][1], NONE_FOUND),
    (
        "a scan beside a folder named .nii",
        folder_of(nifti(), lambda f: [(f / "x.nii").mkdir(), Given(f)][1]),
        "correct",
    ),
    # geometry
    ("an oblique stack", nifti(affine=turned()), "correct"),
    ("a mirrored stack", nifti(affine=turned(spacing=(1.0, 1.0, 4.0))), "correct"),
    ("slices along the first axis", nifti(SCAN.T, np.diag([-4.0, 1.0, 1.0, 1.0])), "correct"),
    ("a stack ten metres from the scanner's centre", nifti(affine=turned(origin=(1e4, -1e4, 5e3))), "correct"),
    ("pixels that are not square", nifti(affine=np.diag([0.5, 2.0, 5.0, 1.0])), "correct"),
    ("a spacing that is no multiple of the target", nifti(affine=np.diag([0.9, 0.9, 3.3, 1.0])), "correct"),
    ("isotropic already", nifti(affine=np.eye(4)), "correct"),
    ("finer than the target", nifti(affine=np.diag([0.5, 0.5, 0.5, 1.0])), "correct"),
    ("a sheared affine", nifti(affine=shear(1.3)), "sheared, 1.30 degrees"),
    ("shear within the header's rounding", nifti(affine=shear(0.05)), "correct"),
    ("an axis of length zero", patched(sform(np.diag([1.0, 1.0, 0.0, 1.0]))), "voxel edges of .*expected positive"),
    ("two axes that coincide", patched(sform(AXIAL[[0, 0, 2, 3]])), "sheared|voxel edges"),
    ("NaN in the affine", patched(sform(np.diag([1.0, 1.0, np.nan, 1.0]))), "voxel edges|affine"),
    ("infinity in the affine", patched(sform(np.diag([1.0, 1.0, np.inf, 1.0]))), "voxel edges|affine"),
    ("NaN in the affine's origin", patched((SROW + 12, "f", (np.nan,))), "(?i)nan|finite"),
    ("voxel sizes of zero beside a good affine", patched((PIXDIM + 4, "3f", (0, 0, 0))), "correct"),
    ("negative voxel sizes beside a good affine", patched((PIXDIM + 4, "3f", (-1, -1, -4))), "correct"),
    ("voxel sizes of another scan beside a good sform", patched((PIXDIM + 12, "f", (6,))), "correct"),
    ("a qform turned and moved against the sform", patched(*other_qform(4)), "correct"),
    ("a qform of another spacing than the sform", patched(*other_qform(6)), "correct"),
    ("a qform alone", patched((CODES, "2h", (1, 0)), *other_qform(4)[1:], truth=(SCAN, QFORM)), "correct"),
    ("neither qform nor sform", patched((CODES, "2h", (0, 0)), truth=(SCAN, CENTRED)), "correct"),
    ("lengths in micrometres", patched((UNITS, "B", (3,)), affine=1000 * AXIAL), "in microns"),
    ("lengths in metres", patched((UNITS, "B", (1,)), affine=AXIAL / 1000), "in meters"),
    ("slices half a metre apart", nifti(affine=np.diag([1.0, 1.0, 500.0, 1.0])), "500 mm"),
    ("one slice", nifti(SCAN[:, :, :1]), "has 1 slices along axis 2.*3 or more"),
    ("two slices", nifti(SCAN[:, :, :2]), "has 2 slices along axis 2.*3 or more"),
    ("three slices", nifti(SCAN[:, :, :3]), "correct"),
    ("one row", nifti(SCAN[:1]), "correct"),
    ("one voxel in each slice", nifti(SCAN[:1, :1]), "correct"),
    ("two dimensions", nifti(SCAN[:, :, 0], truth=(SCAN, AXIAL)), r"shape \(6, 7\): expected a 3-D volume"),
    ("four dimensions, one volume", nifti(SCAN[..., None]), "correct"),
    ("four dimensions, three volumes", nifti(np.stack([SCAN] * 3, -1), truth=(SCAN, AXIAL)), r"\(6, 7, 5, 3\)"),
    ("five dimensions", nifti(SCAN[..., None, None], truth=(SCAN, AXIAL)), "correct"),
    ("a dimension of zero", patched((DIM, "8h", (3, 6, 0, 5, 1, 1, 1, 1))), "cannot be read|shape|slices"),
    ("a negative dimension", patched((DIM, "8h", (3, 6, -7, 5, 1, 1, 1, 1))), "cannot be read|shape|slices"),
    ("a header of 70 terabytes", rewritten(huge, name="scan.nii.gz"), UNREADABLE),
    # intensities
    *[(f"voxels of {d}", nifti(SCAN.astype(d)), "correct") for d in ("u1", "i1", "u2", "i4", "f8")],
    ("16-bit voxels at both ends", nifti(np.where(SCAN > 500, 32767, -32768).astype(np.int16)), "correct"),
    ("64-bit voxels beyond 2^63", nifti((SCAN * 1.8e16).astype(np.uint64), kind=unsigned_64), "correct"),
    ("negative intensities", nifti(SCAN - 3000), "correct"),
    ("intensities of 1e30", nifti(SCAN.astype(np.float64) * 1e27), "correct"),
    ("intensities of 1e-12", nifti(SCAN.astype(np.float64) * 1e-15), "correct"),
    ("intensities of 1e300", nifti(SCAN.astype(np.float64) * 1e297), "has .* infinite voxels"),
    ("one voxel a million times brighter", nifti(one_voxel(1e9)), "correct"),
    ("a constant volume", nifti(np.full_like(SCAN, 300)), "correct"),
    ("a volume of zeros", nifti(np.zeros_like(SCAN)), "correct"),
    ("NaN alone", nifti(np.full_like(SCAN, np.nan)), "has 210 NaN or infinite voxels"),
    ("one NaN", nifti(one_voxel(np.nan)), "has 1 NaN or infinite voxels"),
    ("one infinite voxel", nifti(one_voxel(-np.inf)), "has 1 NaN or infinite voxels"),
    ("complex voxels", nifti(SCAN.astype(np.complex64)), "complex64 voxels: expected one real number"),
    (
        "colours",
        nifti(SCAN[..., None].repeat(3, 3).astype("u1").view(RGB)[..., 0], truth=(SCAN, AXIAL)),
        "one real number",
    ),
    ("single bits", patched((DATATYPE, "2h", (1, 1))), "cannot be read|voxels: expected"),
    ("an unknown kind of voxel", patched((DATATYPE, "2h", (9999, 8))), "cannot be read|voxels: expected"),
    ("a slope of 0", scaled(0, 7, SCAN.astype(np.int16)), "correct"),
    ("a slope of NaN", scaled(np.nan, 0, SCAN.astype(np.int16)), "correct"),
    ("an infinite slope", scaled(np.inf, 0, SCAN.astype(np.int16)), "correct"),
    ("an intercept of NaN", scaled(1, np.nan, None), "cannot be read"),
    ("a negative slope", scaled(-0.5, 7, -0.5 * SCAN.astype(np.int16) + 7), "correct"),
    # names, folders, rights
    ("a name with spaces and accents", nifti(name="M\u00fcller \u00c4 \u5934 (1).nii.gz"), "correct"),
    ("a name with signs of the config language", nifti(name="a@b$c%d/@scan.nii.gz"), "correct"),
    ("a name with #, which MONAI rewrites", nifti(name="a#b.nii.gz"), "does not exist"),
    ("a name with a line break", nifti(name="a\nb.nii.gz"), "correct"),
    ("a name that begins with a tilde", in_its_folder("~scan.nii.gz"), "correct"),
    ("a name that begins with a hyphen", in_its_folder("-scan.nii.gz"), "correct"),
    ("a path of 1500 characters", nifti(name="/".join(["x" * 99] * 15) + "/scan.nii.gz"), "correct"),
    ("a name of 255 characters", nifti(name="x" * 248 + ".nii.gz"), "too long"),
    ("a name of 230 characters", nifti(name="x" * 223 + ".nii.gz"), "correct"),
    ("a link to a scan", folder_of(nifti(), link("a_link.nii.gz", "scan.nii.gz", [(SCAN, AXIAL)])), "correct"),
    ("a link to nothing", link("scan.nii.gz", "nowhere"), "scan.nii.gz does not exist"),
    ("a link to nothing in a folder", folder_of(nifti(), link("lost.nii.gz", "nowhere")), r"lost\.nii\.gz"),
    ("a link to itself", link("scan.nii.gz", "scan.nii.gz"), "scan.nii.gz does not exist"),
    ("a folder that holds a link to itself", folder_of(nifti(), link("loop", ".")), "correct"),
    (
        "a folder given through a link",
        folder_of(nifti(name="deep/scan.nii.gz"), link("way", "deep"), source="way"),
        "correct",
    ),
    (
        "a file without the right to read it",
        without_rights(nifti(), "scan.nii.gz", 0),
        r"Permission denied: .*scan\.nii\.gz",
    ),
    ("a folder without the right to read it", without_rights(nothing, ".", 0), "cannot be read"),
    (
        "a folder within, without the right to read it",
        without_rights(folder_of(nifti()), "locked", 0),
        "correct",
    ),
    ("an empty folder", nothing, NONE_FOUND),
    ("a folder without scans", lambda f: Given(content(b"x", "notes.txt")(f).source.parent), NONE_FOUND),
    ("a folder of earlier results alone", lambda f: Given(nifti(name="scan_sr.nii.gz")(f).source.parent), NONE_FOUND),
    (
        "hidden files beside a scan",
        beside(folder_of(nifti()), **{".__scan__nii__gz": b"x", "__DS_Store": b"x"}),
        "correct",
    ),
    ("two scans with one result", folder_of(nifti(), nifti(name="scan.nii")), "scan.nii .*would have one result"),
    ("one scan given twice", lambda f: [g := nifti()(f), Given([g.source, g.source], g.scans)][1], "correct"),
    ("results into the folder of the scans", output("in", folder_of(nifti())), "correct"),
    ("results into a folder within that of the scans", output("in/out", folder_of(nifti())), "correct"),
    ("a file where the output folder should be", output("out", prepare=Path.touch), "out"),
    (
        "an output folder without the right to write",
        output("out", without_rights(nifti(), "../out", 0o500)),
        "[Pp]ermission",
    ),
    (
        "a folder where the result should be",
        output("out", prepare=lambda p: (p / "scan_sr.nii.gz").mkdir(parents=True)),
        "scan_sr.nii.gz",
    ),
    (
        "a folder where the summary should be",
        output("out", prepare=lambda p: (p / "summary.csv").mkdir(parents=True)),
        "summary.csv",
    ),
    ("a full disk", before(full_disk), "scan.*([Ff]ile too large|No space)"),
    # sidecars
    ("a sidecar with the thickness", sidecar('{"SliceThickness": 3}', keep=True), "correct"),
    ("a sidecar with null", sidecar('{"SliceThickness": null}', keep=True), "correct"),
    ("a sidecar of another scan", beside(nifti(), other__json="{"), "correct"),
    (
        "a sidecar against the user's thickness",
        sidecar('{"SliceThickness": 3}', keep=True, slice_thickness=3.5),
        "correct",
    ),
    ("a thickness in the wrong unit", sidecar('{"SliceThickness": 0.004}'), "0.004 mm.*smaller than the target"),
    ("a broken sidecar", sidecar('{"SliceThickness": '), r"scan\.json: SliceThickness cannot be read.*remove it"),
    ("an empty sidecar", sidecar(""), r"scan\.json: SliceThickness cannot be read"),
    ("a sidecar that is a list", sidecar("[3]"), r"scan\.json: SliceThickness cannot be read"),
    ("a sidecar of other bytes", sidecar(b"\xff\xfe\x00"), r"scan\.json: SliceThickness cannot be read"),
    ("a sidecar nested without end", sidecar('{"x": ' + "[" * 200000), r"scan\.json: SliceThickness cannot be read"),
    ("a thickness that is text", sidecar('{"SliceThickness": "thick"}'), r"scan\.json: SliceThickness is 'thick'"),
    (
        "a thickness below zero",
        sidecar('{"SliceThickness": -4}'),
        r"scan\.json: SliceThickness is -4: expected a positive",
    ),
    ("a thickness that is NaN", sidecar('{"SliceThickness": NaN}'), r"scan\.json: SliceThickness is nan"),
    ("a thickness that is a list", sidecar('{"SliceThickness": [4]}'), r"scan\.json: SliceThickness is \[4\]"),
    ("a BIDS scan", bids("sub-1/anat/sub-1_T2w.nii.gz", nifti(), [("T2w.json", '{"SliceThickness": 3}')]), "correct"),
    (
        "a broken sidecar at the root of a dataset",
        bids("sub-1/anat/sub-1_T2w.nii.gz", nifti(), [("T2w.json", "{")], []),
        r"T2w\.json: SliceThickness",
    ),
    (
        "a BIDS scan that was not fetched",
        bids("sub-1/anat/sub-1_T2w.nii.gz", link("x", "../.git/annex/x")),
        "sub-1_T2w.nii.gz",
    ),
    (
        "a folder named as a BIDS scan",
        bids("sub-1/anat/sub-1_T2w.nii.gz", lambda f: [(f / "x").mkdir(), Given(f / "x")][1]),
        "sub-1_T2w.nii.gz",
    ),
    # other formats
    ("MGZ", nifti(name="scan.mgz", kind=nib.MGHImage, affine=turned()), "correct"),
    (
        "MGZ cut in half",
        rewritten(lambda d: d[: len(d) // 2], nifti(name="scan.mgz", kind=nib.MGHImage)),
        r"scan\.mgz cannot be read",
    ),
    (
        "MGZ of several volumes",
        nifti(np.stack([SCAN] * 2, -1), name="scan.mgz", kind=nib.MGHImage, truth=(SCAN, AXIAL)),
        r"\(6, 7, 5, 2\)",
    ),
    ("NRRD without ITK", before(without_itk, content(b"NRRD0004\n", "scan.nrrd")), "scan.nrrd needs ITK.*pip install"),
    (
        "MetaImage without ITK",
        before(without_itk, content(b"ObjectType", "scan.mha")),
        "scan.mha needs ITK.*pip install",
    ),
    # DICOM
    ("a DICOM series", dicom(), "correct"),
    ("DICOM files in a list, in any order", file_list, "correct"),
    ("an enhanced multi-frame image", multi_frame, "correct"),
    ("DICOM with instance numbers of another order", dicom(InstanceNumber=lambda k: 99 - k), "correct"),
    ("DICOM without SliceThickness", dicom(SliceThickness=None), "correct"),
    ("DICOM with a thickness of 0", dicom(SliceThickness=0), "correct"),
    ("DICOM with a slice repeated", dicom(repeated), "correct"),
    ("DICOM without a slice", dicom(without(2), scans=()), "1 of 6 slices missing"),
    ("DICOM with a slice out of place", dicom(moved(2, 1.0), scans=()), "unevenly"),
    ("DICOM with a tilted gantry", dicom(step=[0, 0.5, 4.8], scans=()), "sheared"),
    ("DICOM without positions", dicom(ImagePositionPatient=None, scans=()), NONE_FOUND),
    ("DICOM without orientations", dicom(ImageOrientationPatient=None, scans=()), NONE_FOUND),
    ("DICOM without pixel spacing", dicom(PixelSpacing=None, scans=()), NONE_FOUND),
    ("DICOM without series", dicom(SeriesInstanceUID=None, scans=()), NONE_FOUND),
    ("DICOM with a slope of 0", dicom(RescaleSlope=0, RescaleIntercept=0, scans=()), NONE_FOUND),
    ("a localizer", dicom(ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"], scans=()), NONE_FOUND),
    ("CT", dicom(Modality="CT", scans=()), NONE_FOUND),
    ("one DICOM image", one_file(dicom(scans=())), NONE_FOUND),
    ("DICOM cut within its pixels", cut_one, "002 cannot be read"),
    ("DICOM without its preamble", without_preamble, NONE_FOUND),
    ("compressed DICOM with a decoder", dicom(compressed, syntax=uid.RLELossless), "correct"),
    ("compressed DICOM without a decoder", dicom(opaque, scans=(), syntax=uid.MPEG2MPML), NONE_FOUND),
    ("a zip file of DICOM images", zipped, "dicom.zip is no scan.*Unpack"),
    ("a DICOMDIR alone", with_index("DICOMDIR"), "DICOMDIR"),
    ("a folder with a DICOMDIR", with_index(""), "correct"),
    ("DICOM and NIfTI in one folder", folder_of(dicom(), nifti()), "correct"),
    ("NIfTI in, DICOM asked for", nifti(output_format="dicom", truth=(SCAN, AXIAL)), "scan.nii.gz is not DICOM"),
]
if HAS_ITK:
    CORPUS += [
        *[(f".{e}", itk_image(e, affine=turned()), "correct") for e in ("nrrd", "nhdr", "mha", "mhd")],
        ("NRRD of two dimensions", nrrd("(1,0,0) (0,4,0)", "6 35"), "scan.nrrd"),
        (
            "NRRD of colours",
            nrrd(
                "none (1,0,0) (0,1,0) (0,0,4)",
                "3 6 7 5",
                data=np.stack([SCAN] * 3),
                more="kinds: RGB-color domain domain domain\n",
            ),
            r"scan\.nrrd (has shape|cannot be read)",
        ),
        ("NRRD with sheared directions", nrrd("(1,0,0) (0,1,0) (0,1,4)"), "scan.nrrd.*(sheared|cannot be read)"),
        ("NRRD cut within its voxels", rewritten(lambda d: d[:-100], nrrd()), "scan.nrrd cannot be read"),
        ("NRRD of text", content(b"patient,age", "scan.nrrd"), "scan.nrrd cannot be read"),
        ("NHDR without its voxels", nhdr_alone, "scan.nhdr cannot be read"),
        ("MetaImage with a spacing of 0", metaimage("1 1 0"), "scan.mha"),
        (
            "MetaImage with a spacing below 0",
            metaimage("1 1 -4", [(SCAN, np.diag([-1.0, -1.0, -4.0, 1.0]))]),
            "correct",
        ),
        ("MetaImage of zero bytes", content(b"", "scan.mha"), "scan.mha cannot be read"),
    ]


# --- what came of it ---


@dataclass
class Finding:
    """What came of one input.

    Attributes:
        errors: each message that ended a scan or the run.
        remarks: warnings, and what was skipped and why.
        problems: of what must never happen: traceback, hang, changed input, partial file, wrong result.
    """

    errors: list[str]
    remarks: list[str]
    problems: list[str]


@functools.cache
def weights() -> Path:
    """Of an untrained network: stage 1 is the identity and the flow at rest."""
    path = Path(tempfile.mkdtemp()) / "model.pt"
    atexit.register(shutil.rmtree, path.parent)
    network = Drift(AnatomicalProjectionNetwork((4, 8), residual=True), VelocityNetwork((4, 8)))
    torch.save(network.state_dict(), path)
    return path


def rebuild(given: Given, folder: Path) -> None:
    """The route of configs/inference.yaml."""
    parser = ConfigParser()
    parser.read_config(str(ROOT / "configs" / "inference.yaml"))
    parser.read_meta(str(ROOT / "configs" / "metadata.json"))
    source = given.source
    parser.update(
        {
            "bundle_root": str(ROOT),
            "input": [str(one) for one in source] if isinstance(source, list) else str(source),
            "output_dir": str(folder / given.output),
            "ckpt_path": str(weights()),
            "device": "$torch.device('cpu')",
            "network_def::apn::channels": [4, 8],
            "network_def::velocity::channels": [4, 8],
            "inferer::roi_size": 16,
            "inferer::n_max": 1,
            "consistency": "measure",  # else results are no copies
            "inferer::progress": False,
            **given.options,
        }
    )
    given.before()
    parser.get_parsed_content("run")


class Memory(logging.Handler):
    """Keeps what the bundle says."""

    def __init__(self):
        super().__init__()
        self.said: list[tuple[int, str, bool]] = []

    def emit(self, record):
        self.said.append((record.levelno, record.getMessage(), bool(record.exc_info)))


def _child(given: Given, folder: Path, channel, screen: int) -> None:
    """Runs with limits; sends what was said and the traceback that would be shown."""
    os.dup2(screen, 1)
    os.dup2(screen, 2)
    signal.alarm(SECONDS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 4 * GIGABYTE,) * 2)
    memory = Memory()
    logging.getLogger("drift").addHandler(memory)
    logging.getLogger("drift").setLevel(logging.INFO)
    trace, ending = "", None
    try:
        rebuild(given, folder)
    except SystemExit:
        pass  # the errors were told one by one
    except BaseException as error:
        mistake = input_error(error)
        ending, trace = (str(mistake), "") if mistake else (None, traceback.format_exc()[-1500:])
    channel.send((memory.said, ending, trace))
    channel.close()


@functools.cache
def _warm_up() -> None:
    """One run in this process: those forked from it need not load everything again."""
    with tempfile.TemporaryDirectory() as folder:
        rebuild(PLAIN(Path(folder)), Path(folder))


def in_a_process(given: Given, folder: Path):
    """What was said, the last message, the traceback; then what stood on the screen and how the process ended."""
    _warm_up()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    read, write = os.pipe()
    process = context.Process(target=_child, args=(given, folder, theirs, write))
    process.start()
    theirs.close()
    os.close(write)
    with os.fdopen(read, "rb") as screen:
        shown = screen.read().decode(errors="replace")
    process.join()
    try:
        said, ending, trace = ours.recv()
    except EOFError:
        said, ending, trace = [], None, f"ended by signal {-process.exitcode}: a hang, or killed"
    return said, ending, trace, shown


def contents(folder: Path, leave_out: Path) -> dict[str, str]:
    """Kind, rights and hash of everything in a folder, but for results."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if leave_out in (path, *path.parents) and leave_out != folder:
            continue
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        elif path.is_file():
            found[str(path)] = f"{path.stat().st_mode} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        else:
            found[str(path)] = str(path.stat().st_mode)
    return found


def wrong(result, array: np.ndarray, affine: np.ndarray) -> str | None:
    """What is wrong with a rebuilt scan, None if nothing is: its grid against the scan's, its values against copies."""
    values, fine = np.asarray(result.dataobj, dtype=float), result.affine
    edges, fine_edges = (np.linalg.norm(a[:3, :3], axis=0) for a in (affine, fine))
    (changed, *more) = [a for a in range(3) if values.shape[a] != array.shape[a]] or [2]
    if more or np.abs(affine[:3, :3] / edges - fine[:3, :3] / fine_edges).max() > 1e-4:
        return f"axes of {array.shape} became {values.shape}"
    extent, fine_extent = array.shape[changed] * edges[changed], values.shape[changed] * fine_edges[changed]
    if abs(extent - fine_extent) > fine_edges[changed] / 2 + 1e-3:
        return f"field of view {extent:g} mm became {fine_extent:g} mm"
    middle, fine_middle = (a @ [*(np.array(n) - 1) / 2, 1] for a, n in ((affine, array.shape), (fine, values.shape)))
    if np.linalg.norm(middle - fine_middle) > 1e-3 + 1e-6 * np.abs(middle).max():
        return f"centre {middle} became {fine_middle}"
    count, truth = values.shape[changed], np.asarray(array, dtype=float)
    ratio = fine_edges[changed] / edges[changed]
    centre = (np.arange(count) - (count - 1) / 2) * ratio + (truth.shape[changed] - 1) / 2
    allowed = 1e-4 * np.ptp(truth) + 1e-5 * np.abs(truth).max()
    errors = []
    for nudge in (-1e-3, 1e-3):  # on the border of two slices either will do
        nearest = np.clip(np.floor(centre + 0.5 + nudge), 0, truth.shape[changed] - 1).astype(int)
        errors.append(np.abs(values - truth.take(nearest, changed)).max(axis=tuple({0, 1, 2} - {changed})))
    if not (np.minimum(*errors) <= allowed).all():
        return f"intensities are off by up to {np.minimum(*errors).max():g}"
    return None


def examine(maker: Maker) -> Finding:
    """Makes an input in a folder of its own, runs it, and looks at what came of it."""
    case = Path(tempfile.mkdtemp(prefix="corpus-"))
    try:
        (case / "in").mkdir()
        given = maker(case / "in")
        out, before = case / given.output, contents(case / "in", case / given.output)
        said, ending, trace, shown = in_a_process(given, case)
        problems = [trace] if trace else ["a traceback"] if "Traceback" in shown or any(s[2] for s in said) else []
        after = contents(case / "in", out)
        problems += [f"changed: {name}" for name in before if after.get(name) != before[name]]
        problems += [f"left behind: {p.name}" for p in case.rglob(".*") if re.match(r"\.\d+-", p.name)]
        results = sorted(p for p in out.rglob("*.nii.gz") if p.is_file() and str(p) not in before)
        errors = [message for level, message, _ in said if level >= logging.ERROR] + ([ending] if ending else [])
        expected = list(given.scans)
        if len(results) != len(expected) and not errors:
            problems.append(f"{len(results)} results of {len(expected)} scans")
        for path in results:
            complaints = [wrong(nib.load(path), *scan) for scan in expected]
            if None not in complaints:
                problems.append(f"{path.name}: {complaints}")
        said_besides = [m for level, m, _ in said if level == logging.WARNING or "is skipped" in m]
        tidy = functools.partial(_tidy, case)
        return Finding([tidy(e) for e in errors], list(map(tidy, said_besides)), list(map(tidy, problems)))
    finally:
        for path in case.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(case)


def _tidy(case: Path, text: str) -> str:
    """Without what differs from run to run and from one version of a library to the next."""
    text = text.replace(f"{case}/", "").removeprefix("error: ")
    text = re.sub(r"cannot be read \(.*\)\. ", "cannot be read (...). ", text, flags=re.S)
    text = re.sub(r"\.\d+-", ".PID-", text)
    return re.sub(r"x{20,}", "xx...", text)


@functools.cache
def finding(name: str) -> Finding:
    return examine({each: maker for each, maker, _ in CORPUS}[name])


# --- tests ---


@pytest.mark.parametrize(("name", "outcome"), [pytest.param(name, outcome, id=name) for name, _, outcome in CORPUS])
def test_an_odd_input_ends_in_a_correct_result_or_in_one_clear_message(name, outcome):
    found = finding(name)
    assert found.problems == []
    if outcome == "correct":
        assert found.errors == []
    else:
        (message,) = found.errors
        assert re.search(outcome, message) and "\n" not in message and len(message) < 500


def test_the_corpus_is_large_and_has_each_name_once():
    names = [name for name, _, _ in CORPUS]
    assert len(names) == len(set(names)) >= 60


@pytest.mark.parametrize("change", ["shift", "flip", "scale", "transpose", "value", "short"])
def test_a_wrong_result_would_be_noticed(change):
    affine = turned()
    fine = affine @ np.diag([1, 1, 0.25, 1.0])
    fine[:3, 3] = affine[:3, 3] - affine[:3, 2] * 0.375
    values = SCAN.repeat(4, 2).astype(float)
    assert wrong(nib.Nifti1Image(values, fine), SCAN, affine) is None
    if change == "shift":
        fine[:3, 3] += fine[:3, 2]
    elif change == "flip":
        values = values[::-1]
    elif change == "scale":
        fine[:3, 2] *= 1.1
    elif change == "transpose":
        values, fine = values.transpose(1, 0, 2), fine[:, [1, 0, 2, 3]]
    elif change == "value":
        values[2, 3, 11] += 1
    else:
        values = values[:, :, 1:-1]
    assert wrong(nib.Nifti1Image(values, fine), SCAN, affine)


def test_a_hang_a_changed_input_and_a_traceback_would_be_noticed(monkeypatch):
    def problems(what):
        """Of a scan during whose run something happens to its file."""

        def make(folder):
            given = PLAIN(folder)
            given.before = lambda: what(given.source)
            return given

        return examine(make).problems

    assert problems(lambda path: None) == []
    assert any("KeyError" in problem for problem in problems(lambda path: {}["x"]))
    assert any("changed" in problem for problem in problems(lambda path: path.write_bytes(b"x")))
    assert any("changed" in problem for problem in problems(lambda path: path.unlink()))
    monkeypatch.setattr(sys.modules[__name__], "SECONDS", 1)
    assert any("hang" in problem for problem in problems(lambda path: time.sleep(20)))


# --- the table ---


def table() -> str:
    lines = [
        "# What each odd input does",
        "",
        "Written by `python -m tests.test_input_corpus`. `tests/test_input_corpus.py` makes each input, runs it",
        "through `configs/inference.yaml` and checks what is said here: the result lies where the scan lies and holds",
        "its values, or there is one message. None ends in a traceback, a hang, a changed input or a partial file.",
        "Warnings, and what was skipped and why, stand behind the outcome.",
        "",
        "| input | outcome |",
        "|---|---|",
    ]
    for name, _, _ in CORPUS:
        found = finding(name)
        outcome = " ".join(found.errors) or "rebuilt"
        text = "; ".join([outcome, *found.remarks]).replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {name} | {text} |")
    return "\n".join(lines) + "\n"


@pytest.mark.skipif(not HAS_ITK, reason="a part of the table needs pip install '.[itk]'")
def test_the_table_in_docs_is_up_to_date():
    """If not: python -m tests.test_input_corpus"""
    assert TABLE.read_text(encoding="utf-8") == table()


def fits(found: Finding, outcome: str) -> bool:
    """Whether an input ended as the corpus says."""
    if found.problems or outcome == "correct":
        return not found.problems and not found.errors
    return len(found.errors) == 1 and bool(re.search(outcome, found.errors[0]))


if __name__ == "__main__":
    unfit = [name for name, _, outcome in CORPUS if not fits(finding(name), outcome)]
    if unfit:
        raise SystemExit(f"not written, since these inputs do not end as they should: {', '.join(unfit)}")
    TABLE.write_text(table(), encoding="utf-8")
