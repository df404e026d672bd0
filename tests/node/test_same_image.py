"""A copy of an image in another encoding is the same image, with what its coder says of itself; another one is none."""

import pytest
from pydicom import Dataset, uid

from drift_mri.same_image import is_same_image
from tests.node.peers import file_of, in_syntax, thick

CODE = Dataset()
CODE.CodeValue, CODE.CodingSchemeDesignator, CODE.CodeMeaning = "121327", "DCM", "Full fidelity image"
CODED = {
    "DerivationDescription": "Lossless JPEG compression, selection value 6, point transform 0",
    "DerivationCodeSequence": [CODE],
}


def written(folder, image, syntax=None):
    """A file of an image, in the implicit syntax or compressed, with what coders add to it."""
    path = folder / f"{len(list(folder.iterdir()))}.dcm"
    if syntax is None:
        path.write_bytes(file_of(image))
        return path
    image = in_syntax(image)
    image.compress(syntax, generate_instance_uid=False)
    image.save_as(path, enforce_file_format=True)
    return path


@pytest.mark.parametrize(
    ("added", "same"),
    [({}, True), ({**CODED, "LossyImageCompression": "00"}, True), ({**CODED, "LossyImageCompression": "01"}, False)],
)
def test_a_lossless_copy_is_the_same_image_whatever_its_coder_says_of_itself(added, same, tmp_path):
    plain = written(tmp_path, thick()[2])
    copy = written(tmp_path, thick(1, **added)[2], uid.RLELossless)
    assert is_same_image(plain, copy) == same


def test_a_correction_is_another_image(tmp_path):
    plain = written(tmp_path, thick()[2])
    for corrected in (thick(1, PatientID="18")[2], thick(1, EchoTime=99)[2], thick(2)[2]):
        assert not is_same_image(plain, written(tmp_path, corrected, uid.RLELossless))
