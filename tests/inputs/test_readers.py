"""What is read of a scan's file is what it holds; what is no complete volume of real numbers is refused in one line."""

import gzip
import re
import struct
import tracemalloc

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import DataLoader, Dataset, MetaTensor
from monai.transforms import Compose, EnsureChannelFirstd, LoadImaged

from scripts.inputs import readers
from scripts.inputs.readers import EXTENSIONS, FOOTER, ScanReader, data_file
from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from scripts.inputs.transforms import LoadScand
from scripts.outputs.results import nifti_image
from scripts.stack.acquisition import Acquisition
from tests.corpus.formats import itk_image
from tests.volumes import random_affine, smooth_head

AXIAL = np.diag([1.0, 1.0, 5.0, 1.0])
VOXELS = np.random.default_rng(0).random((6, 7, 5)).astype(np.float32)


def read(source):
    """Array and meta data, as MONAI's readers are called."""
    return ScanReader().get_data(ScanReader().read(source))


def load(image):
    return LoadScand("image")({"image": image})["image"]


# --- voxels and place ---


@pytest.mark.parametrize("dtype", [np.int16, np.float64])
def test_voxels_come_as_they_are_in_their_place(dtype, write_nifti):
    voxels, affine = (100 * VOXELS).astype(dtype), random_affine([1, 1, 4], 1)
    path = write_nifti(voxels, affine)
    volume = load(str(path))
    assert volume.dtype == torch.float32 and volume.meta["filename_or_obj"] == str(path)
    np.testing.assert_array_equal(volume.as_tensor()[0], voxels.astype(np.float32))
    np.testing.assert_allclose(volume.affine.numpy(), affine, atol=1e-5)


def test_monai_loads_images_with_the_reader(write_nifti):
    path = write_nifti(VOXELS, AXIAL)
    steps = Compose([LoadImaged("image", reader=ScanReader), EnsureChannelFirstd("image")])
    volume = steps({"image": str(path)})["image"]
    np.testing.assert_array_equal(volume.numpy(), load(str(path)).numpy())
    assert volume.affine.tolist() == AXIAL.tolist() and volume.meta["stated"] == {}
    assert ScanReader().verify_suffix(["a.nii.gz", "b.mha"]) and not ScanReader().verify_suffix("a.png")


# --- what the file says of the acquisition ---


@pytest.mark.parametrize("axis", [None, 0, 2])
def test_nifti_states_the_slice_axis_of_its_header(axis, tmp_path):
    image = nib.Nifti1Image(VOXELS, AXIAL)
    image.header.set_dim_info(slice=axis)
    nib.save(image, tmp_path / "scan.nii")
    expected = {} if axis is None else {"slice_axis": [axis, "the NIfTI header (dim_info)"]}
    assert read(tmp_path / "scan.nii")[1]["stated"] == expected


def test_what_a_nifti_header_says_survives_batches(tmp_path):
    """Written into another header field by field, it says the same."""
    image = nib.Nifti1Image(VOXELS, AXIAL)
    image.header.set_dim_info(freq=1, phase=0, slice=2)
    image.header.set_xyzt_units("mm", "sec")
    image.set_sform(AXIAL, code=3)
    image.set_qform(AXIAL, code=1)
    nib.save(image, tmp_path / "scan.nii.gz")
    (batch,) = DataLoader(Dataset([{"image": str(tmp_path / "scan.nii.gz")}], LoadScand("image")), batch_size=1)
    facts = batch["image"][0].meta["header"]
    other = nib.Nifti1Header()
    for name, value in facts.items():
        other[name] = value
    assert other.get_dim_info() == (1, 0, 2) and other.get_xyzt_units() == ("mm", "sec")
    assert (int(other["sform_code"]), int(other["qform_code"])) == (3, 1)


def test_the_code_of_a_qform_that_says_another_place_is_not_carried_on(tmp_path):
    image = nib.Nifti1Image(VOXELS, AXIAL)
    image.set_sform(AXIAL, code=2)
    image.set_qform(np.diag([1.0, 1.0, 4.0, 1.0]), code=1)
    nib.save(image, tmp_path / "scan.nii")
    assert read(tmp_path / "scan.nii")[1]["header"]["qform_code"] == 2


# --- what is refused ---


def test_an_image_that_a_host_has_loaded_passes_once_it_is_checked(refusal):
    image = MetaTensor(torch.zeros(1, 4, 4, 4), affine=torch.from_numpy(AXIAL.copy()))
    assert load(image) is image
    image.affine[0, 2] = 1.0
    assert "sheared" in refusal(load, image)


# --- what programs leave behind ---


@pytest.mark.parametrize("code", [0, 1])
def test_an_sform_that_is_no_grid_gives_way_to_a_good_qform(code, tmp_path):
    affine = random_affine([1, 1, 4], 1)
    image = nib.Nifti1Image(VOXELS, affine)
    image.set_qform(affine, code=1)
    content = bytearray(image.to_bytes())
    struct.pack_into("<2h", content, 252, code, 2)  # codes of qform and sform
    struct.pack_into("<12f", content, 280, *12 * [0.0])
    (tmp_path / "scan.nii").write_bytes(content)
    array, meta = read(tmp_path / "scan.nii")
    np.testing.assert_array_equal(array, VOXELS)
    np.testing.assert_allclose(meta["affine"], affine, atol=1e-4)
    assert "the qform is used" in meta["warning"] and meta["header"]["sform_code"] == 0
    assert meta["header"]["qform_code"] == (code or 2), "a result keeps its place"
    in_memory = read(nib.Nifti1Image.from_bytes(bytes(content)))[1]
    np.testing.assert_allclose(in_memory["affine"], affine, atol=1e-4)


def test_nan_of_the_background_is_no_signal_and_within_the_head_it_is_refused(write_nifti, refusal, log):
    voxels = np.pad(900 + 100 * VOXELS, 2)
    expected = voxels.copy()
    voxels[voxels == 0] = np.nan
    np.testing.assert_array_equal(load(str(write_nifti(voxels, AXIAL))).as_tensor()[0], expected)
    assert any(re.search(r"scan.*: \d+ NaN voxels of the background become 0, no signal", m) for m in log.messages)
    voxels[5, 5, 4] = np.nan
    expected[5, 5, 4] = 0
    np.testing.assert_array_equal(load(str(write_nifti(voxels, AXIAL))).as_tensor()[0], expected)
    voxels[4:6, 4:7, 3:5] = np.nan
    assert "NaN or infinite voxels" in refusal(load, str(write_nifti(voxels, AXIAL)))


@pytest.mark.slow  # to import ITK
def test_an_nrrd_file_of_several_volumes_is_refused_by_their_number(refusal, tmp_path):
    pytest.importorskip("itk")
    path = tmp_path / "four.nrrd"
    header = "NRRD0004\ntype: short\ndimension: 4\nsizes: 2 4 5 6\nkinds: list domain domain domain\nencoding: raw\n"
    place = "space: left-posterior-superior\nspace directions: none (1,0,0) (0,1,0) (0,0,4)\nspace origin: (0,0,0)\n"
    path.write_bytes(f"{header}{place}endian: little\n\n".encode() + bytes(2 * 240))
    said = refusal(load, str(path))
    assert "four.nrrd has 2 values in each voxel: expected one. Save one volume of it." in said


@pytest.mark.slow  # to import ITK
@pytest.mark.parametrize("named", [True, False])
def test_an_nrrd_header_without_a_space_is_a_warning(named, tmp_path):
    pytest.importorskip("itk")
    path = itk_image("nrrd")(tmp_path).source
    if not named:
        path.write_bytes(path.read_bytes().replace(b"space: left-posterior-superior\n", b"space dimension: 3\n"))
    assert ("has no space" in read(path)[1].get("warning", "")) is not named


# --- facts that deny each other ---


def test_a_header_without_any_form_says_no_side_and_is_warned_of(tmp_path):  # no-form
    image = nib.Nifti1Image(VOXELS, None)
    image.header.set_zooms((1, 1, 5))
    nib.save(image, tmp_path / "scan.nii")
    _, meta = read(tmp_path / "scan.nii")
    assert "neither an sform nor a qform" in meta["warning"]
    result = nifti_image(MetaTensor(torch.from_numpy(VOXELS), affine=meta["affine"]), meta["header"])
    nib.save(result, tmp_path / "result.nii")
    again = nib.load(tmp_path / "result.nii")
    assert [int(again.header[name]) for name in ("sform_code", "qform_code")] == [0, 0]
    np.testing.assert_allclose(again.affine, meta["affine"])
    assert "warning" not in read(nib.Nifti1Image(VOXELS, AXIAL))[1]


def test_a_rounded_quaternion_does_not_hide_a_good_sform(tmp_path):  # quaternion-beyond-one
    image = nib.Nifti1Image(VOXELS, AXIAL)
    image.set_qform(AXIAL, 1)
    nib.save(image, tmp_path / "scan.nii")
    with open(tmp_path / "scan.nii", "r+b") as file:
        file.seek(256)
        file.write(struct.pack("<3f", 0, 1.000002, 0))
    array, meta = read(tmp_path / "scan.nii")
    np.testing.assert_array_equal(array, VOXELS)
    np.testing.assert_allclose(meta["affine"], AXIAL)
    assert meta["header"]["qform_code"] == meta["header"]["sform_code"]


def test_bright_values_that_were_stored_as_negative_ones_are_unwrapped(tmp_path):
    bright = 60000 * smooth_head((20, 20, 20)).numpy() / 1200
    spot = np.where(bright > 25000, -10000, 10000).astype(np.int16)
    spot[10, 10, 10] = 32767  # no single voxel decides
    some = np.where(np.arange(bright.size).reshape(bright.shape) % 5, 32000, 100)
    for name, voxels, wrapped in (
        ("unsigned", bright.astype(np.uint16).astype(np.int16), True),
        ("ct", (bright / 20 - 1000).astype(np.int16), False),
        ("sharp", np.where(bright > 25000, -10000, 10000).astype(np.int16), False),
        ("a spot", spot, False),
        ("both ends", np.where(bright > 25000, -32768, 32767).astype(np.int16), False),
        ("negative air", np.where(bright > 25000, some, -32000).astype(np.int16), False),
    ):
        nib.save(nib.Nifti1Image(voxels, AXIAL), tmp_path / f"{name}.nii")
        array, meta = read(tmp_path / f"{name}.nii")
        assert ("above 32767" in meta.get("warning", "")) == wrapped
        np.testing.assert_array_equal(array, bright.astype(np.uint16) if wrapped else voxels)


# --- pairs and MGH are read as other formats are; Analyze does not say which side is left ---

PLACE = np.array([[-1.0, 0, 0, 30], [0, 1.0, 0, -40], [0, 0, 4.0, -20], [0, 0, 0, 1]])  # as Analyze lies: x to the left


def save(path, kind):
    nib.save(kind(VOXELS, PLACE), path)
    return path


@pytest.mark.parametrize("kind", [nib.AnalyzeImage, nib.Spm99AnalyzeImage, nib.Spm2AnalyzeImage])
def test_analyze_is_refused_with_what_to_do(kind, tmp_path, refusal):
    said = refusal(read, save(tmp_path / "scan.hdr", kind))
    assert "scan.hdr is in the Analyze format" in said and "Convert it" in said


@pytest.mark.parametrize(("header", "voxels"), [("scan.hdr", "scan.img"), ("scan.HDR", "scan.IMG")])
def test_a_pair_is_one_scan_with_all_its_files_and_is_read_by_either_name(header, voxels, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    save(folder / header, nib.Nifti1Pair)
    (folder / "picture.hdr").write_bytes(b"#?RADIANCE\n")
    (folder / "disk.img").write_bytes(b"\0" * 512)
    for source in (folder, folder / header, folder / voxels, [folder / header, folder / voxels]):
        (found,) = scans(source, "out", Selection(1.3))
        assert found.source == folder / header and found.result.as_posix() == "out/scan_sr"
        assert [path.name for path in found.files] == [header, voxels]
    for name in (header, voxels):
        array, meta = read(folder / name)
        np.testing.assert_array_equal(array, VOXELS)
        np.testing.assert_allclose(meta["affine"], PLACE)


def test_mgh_is_mgz_unpacked(tmp_path, door):
    for ending in ("mgh", "mgz"):
        save(tmp_path / f"{ending}.{ending}", nib.MGHImage)
    plain, packed = (door(tmp_path / f"{ending}.{ending}", slice_thickness=4) for ending in ("mgh", "mgz"))
    np.testing.assert_array_equal(plain.numpy(), packed.numpy())
    assert Acquisition.of(plain) == Acquisition.of(packed)
    assert len(scans(tmp_path / "mgh.mgh", "out", Selection(1.3))) == 1


# --- no more is unpacked than the header says; an image in memory needs no file ---

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


# --- headers of NRRD and MetaImage name a file of voxels beside them, or none ---

NRRD = "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 4 4 4\nencoding: raw\n{field}: {name}\n"
META = "NDims = 3\nDimSize = 4 4 4\nElementType = MET_UCHAR\n{field} = {name}\n"
HEADERS = [*((ending, NRRD, "data file") for ending in ("nhdr", "nrrd")), ("nhdr", NRRD, "DataFile")]
HEADERS += [(ending, META, "ElementDataFile") for ending in ("mhd", "mha")]
SECRET = b"0123456789abcdef" * 4


@pytest.fixture
def header(tmp_path):
    """Writes a header into `in`, beside `beside.raw`; `secret.raw` lies above."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("secret.raw", "in/beside.raw", "in/deep/below.raw"):
        (tmp_path / name).write_bytes(SECRET)
    (tmp_path / "in" / "link.raw").symlink_to("../secret.raw")

    def write(ending, text, field, name):
        path = tmp_path / "in" / f"scan.{ending}"
        path.write_text(text.format(field=field, name=name))
        return path

    return write


@pytest.mark.parametrize(("ending", "text", "field"), HEADERS)
def test_voxels_may_lie_in_a_file_beside_their_header(ending, text, field, header):
    path = header(ending, text, field, "./beside.raw")
    assert data_file(path) == path.with_name("beside.raw")


@pytest.mark.slow  # to import ITK
@pytest.mark.skipif(not readers.has_itk, reason="needs pip install '.[itk]'")
@pytest.mark.parametrize(("ending", "text", "field"), HEADERS)
def test_voxels_beside_their_header_are_read_and_others_are_not(ending, text, field, header, refusal):
    path = header(ending, text, field, "./beside.raw")
    assert read(path)[0].ravel(order="F").astype(np.uint8).tobytes() == SECRET
    assert "one file in its own folder" in refusal(read, header(ending, text, field, "../secret.raw"))


NAMES = ["{up}/secret.raw", "../secret.raw", "./../secret.raw", "deep/below.raw", "link.raw", "..", ".", ""]
NAMES += ["LIST\nbeside.raw\nbeside.raw", "LIST 2\n../secret.raw", "be%dside.raw 1 3 1", "..\\secret.raw"]


@pytest.mark.parametrize(
    ("name", "ending", "text", "field"),
    [
        *((name, *HEADERS[k]) for k in (0, 3) for name in NAMES),
        *((NAMES[0], *header) for header in HEADERS),
        *((f"{first}\nElementDataFile : ../secret.raw", *HEADERS[3]) for first in ("beside.raw", "LOCAL")),
    ],
)
def test_a_header_cannot_name_a_file_that_is_not_its_own(name, ending, text, field, header, refusal, tmp_path):
    """Any file of the machine would come out as an image."""
    path = header(ending, text, field, name.format(up=tmp_path))
    assert "takes its voxels from" in refusal(data_file, path) and str(path) in refusal(data_file, path)


@pytest.mark.parametrize("ending", ["mhd", "mha"])
def test_voxels_after_their_header_have_no_file_of_their_own(ending, header):
    assert data_file(header(ending, META, "ElementDataFile", "LOCAL")) is None
    assert data_file(header("nrrd", NRRD, "content", "x")) is None
