"""Headers of NRRD and MetaImage that name the file of their voxels: one beside them, or none is read."""

import numpy as np
import pytest

from scripts.inputs import readers
from scripts.inputs.readers import data_file
from tests.inputs.test_readers import read

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
    [*((name, *HEADERS[k]) for k in (0, 3) for name in NAMES), *((NAMES[0], *header) for header in HEADERS)],
)
def test_a_header_cannot_name_a_file_that_is_not_its_own(name, ending, text, field, header, refusal, tmp_path):
    """Any file of the machine would come out as an image."""
    path = header(ending, text, field, name.format(up=tmp_path))
    assert "takes its voxels from" in refusal(data_file, path) and str(path) in refusal(data_file, path)


@pytest.mark.parametrize("first", ["beside.raw", "LOCAL"])
def test_a_header_that_names_two_files_is_refused(first, header, refusal):
    path = header("mhd", META, "ElementDataFile", f"{first}\nElementDataFile : ../secret.raw")
    assert "takes its voxels from" in refusal(data_file, path)


@pytest.mark.parametrize("ending", ["mhd", "mha"])
def test_voxels_after_their_header_have_no_file_of_their_own(ending, header):
    assert data_file(header(ending, META, "ElementDataFile", "LOCAL")) is None
    assert data_file(header("nrrd", NRRD, "content", "x")) is None
