"""Which images are no slices to rebuild, and why: real files."""

import re

import numpy as np
import pydicom
import pytest
from pydicom import uid
from pydicom.pixels import get_decoder

from scripts.errors import InputError
from scripts.inputs.dicom import find_series, read_series
from scripts.inputs.kinds import of_sidecar
from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from tests.dicom_files import THIN, enhanced, mr_slices, read_only, save, verdict


@pytest.mark.parametrize(
    "attributes, reason",
    [
        ({"ImageType": ["DERIVED", "SECONDARY", "MPR"]}, "secondary images: reformats, maps, screenshots"),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "M", "MOSAIC"]}, "mosaics"),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "P", "ND"]}, "phase images"),
        ({"ComplexImageComponent": "IMAGINARY"}, "real or imaginary images"),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "VELOCITY MAP", "V", "PCA"]}, "maps, not anatomy: VELOCITYMAP, V"),
        ({"ImageType": ["DERIVED", "PRIMARY", "T2 MAP", "T2", "SE"]}, "maps, not anatomy: T2MAP"),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "ASL", "NONE"]}, "perfusion images"),
        ({"ArterialSpinLabelingContrast": "PSEUDOCONTINUOUS"}, "perfusion images"),
        ({"AcquisitionContrast": "PERFUSION"}, "perfusion images"),
        ({"ImageType": ["DERIVED", "PRIMARY", "MNIP", "ND", "NORM"]}, "projections, not slices"),
        ({"VolumeBasedCalculationTechnique": "MIN_IP"}, "projections, not slices"),
        ({"SequenceName": "*ep_b0"}, "a diffusion series"),
        ({"AcquisitionContrast": "DIFFUSION"}, "a diffusion series"),
        ({"ScanningSequence": ["EP", "SE"]}, "echo-planar images"),
        ({"SOPClassUID": uid.SecondaryCaptureImageStorage}, "no MR images but Secondary Capture Image Storage"),
        ({"SOPClassUID": uid.MRSpectroscopyStorage}, "no MR images but MR Spectroscopy Storage"),
        ({"PhotometricInterpretation": "RGB"}, "colour images"),
        ({"ImageOrientationPatient": [1, 0, 0, 0, 0, 0]}, "broken geometry"),
        ({"ImageOrientationPatient": [1, 0, 0, 0.05, 0.99875, 0]}, "broken geometry"),
        ({"PixelSpacing": [0, 1]}, "broken geometry"),
        ({"PixelData": None}, "no pixel data"),
        ({"PixelData": None, "FloatPixelData": bytes(480)}, "pixels of floating point (FloatPixelData)"),
        (
            {"SOPClassUID": "1.3.12.2.1107.5.9.1"},
            "no MR images but objects of a maker's own kind (1.3.12.2.1107.5.9.1)",
        ),
        ({"ImagePositionPatient": [0, 0, 0]}, "fewer than 3 slices: 6 images lie at 1 place"),
        ({"SeriesInstanceUID": ["1.2", "3"]}, "SeriesInstanceUID or SOPInstanceUID is missing or broken"),
        ({"DiffusionBValue": 0.0}, None),  # what follows is anatomy of the head
        ({"ScanningSequence": ["EP", "GR"], "MRAcquisitionType": "3D"}, None),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "SW_M_FFE", "M", "FFE"]}, None),
        ({"SeriesDescription": "t2_tse_different_readmissions"}, None),
        ({"BodyPartExamined": "HIPPOCAMPUS"}, None),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "T2", "NONE"], "ComplexImageComponent": "MAGNITUDE"}, None),
        ({"ImageType": ["DERIVED", "PRIMARY", "DIXON", "WATER"]}, None),
    ],
)
def test_what_cannot_be_rebuilt_is_skipped_with_its_reason(tmp_path, voxels, attributes, reason):
    found = verdict(save(tmp_path, mr_slices(voxels, **attributes)))
    assert found is None if reason is None else reason in found


@pytest.mark.parametrize(
    ("block", "said", "reason"),
    [
        ((0x0019, "SIEMENS MR HEADER"), (0x0C, "IS", "1000"), "a diffusion series"),
        ((0x0019, "SOMEBODY ELSE"), (0x0C, "IS", "1000"), None),
        ((0x0043, "GEMS_PARM_01"), (0x39, "IS", ["1000000800", "8", "0", "0"]), "a diffusion series"),
        ((0x0043, "GEMS_PARM_01"), (0x39, "IS", ["0", "8", "0", "0"]), None),
        ((0x2001, "Philips Imaging DD 001"), (0x03, "FL", 800.0), "a diffusion series"),
        ((0x0043, "GEMS_PARM_01"), (0x2F, "SS", 0), None),
        *(((0x0043, "GEMS_PARM_01"), (0x2F, "SS", k), "phase, real or imaginary images") for k in (1, 2, 3)),
    ],
)
def test_vendors_say_b_values_and_phases_in_attributes_of_their_own(tmp_path, voxels, block, said, reason):
    images = mr_slices(voxels, ImageType=["ORIGINAL", "PRIMARY", "OTHER"])
    for image in images:
        image.private_block(*block, create=True).add_new(*said)
    found = verdict(save(tmp_path, images))
    assert found is None if reason is None else found.startswith(reason)


def test_images_without_a_b_value_in_a_diffusion_series_are_of_it(tmp_path, voxels):
    classic = mr_slices(voxels) + mr_slices(voxels, DiffusionBValue=1000.0)
    frames = mr_slices(voxels) + mr_slices(voxels, ImageType=["ORIGINAL", "PRIMARY", "DIFFUSION", "NONE"])
    for kind, images in {"classic": classic, "multi-frame": [enhanced(frames)]}.items():
        (found,) = find_series(save(tmp_path / kind, images))
        assert found.skipped.startswith("a diffusion series") and len(found.images) == 12


@pytest.mark.parametrize(
    "attributes",
    [{"BodyPartExamined": "CSPINE"}, {"ImageType": ["DERIVED", "SECONDARY", "MPR"]}, {"ScanningSequence": "EP"}],
)
def test_a_series_that_is_asked_for_by_name_is_taken_whatever_it_says_that_it_shows(tmp_path, voxels, attributes):
    folder = save(tmp_path / "in", mr_slices(voxels, **attributes))
    (skipped,) = find_series(folder)
    name = re.search("--include (.*) takes it nevertheless", skipped.skipped)[1]
    (item,) = scans(folder, tmp_path / "out", Selection(THIN, include=name))
    np.testing.assert_array_equal(read_series(item.source).dataobj, voxels)
    with pytest.raises(InputError, match="no thick-slice scan"):
        scans(folder, tmp_path / "out", Selection(THIN, include="*"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ImageType": "DERIVED\\PRIMARY\\DIFFUSION\\ADC"}, "maps, not anatomy: ADC"),
        ({"BodyPart": "KNEE"}, "not a head"),
        ({"PulseSequenceName": "*ep_b1000#4"}, "a diffusion series"),
        ({"ScanningSequence": "EP_SE", "MRAcquisitionType": "2D"}, "echo-planar"),
        ({"Units": "rad"}, "a map in units of rad"),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "M", "NORM"], "Modality": "MR", "BodyPartExamined": "HEAD"}, None),
        ({"ScanningSequence": "SE", "EchoTime": 0.09, "ImageType": 5, "Units": None}, None),
    ],
)
def test_sidecars_are_looked_at_as_headers_are(fields, reason):
    found = of_sidecar(fields)
    assert found is None if reason is None else reason in found


def test_a_map_among_the_frames_of_a_multi_frame_image_is_skipped(tmp_path, voxels):
    images = mr_slices(voxels) + mr_slices(voxels, ImageType=["DERIVED", "PRIMARY", "DIFFUSION", "ADC"])
    skipped, taken_one = find_series(save(tmp_path, [enhanced(images)]))
    assert skipped.skipped.startswith("parametric maps, not anatomy: ADC") and len(skipped.images) == 6
    np.testing.assert_array_equal(read_series(taken_one).dataobj, voxels)


@pytest.mark.parametrize("syntax", [uid.JPEGLosslessSV1, uid.JPEGLSLossless, uid.MPEG2MPML])
def test_compressed_series_name_the_package_that_is_missing(tmp_path, voxels, syntax):
    """Pixels are opaque here: only whether a decoder is installed decides the verdict."""
    try:
        available = get_decoder(syntax).is_available
    except NotImplementedError:
        available = False
    images = mr_slices(voxels)
    for image in images:
        image.PixelData = pydicom.encaps.encapsulate([b"no picture"])
        image["PixelData"].is_undefined_length = True
    found = verdict(save(tmp_path, images, syntax))
    if available:
        assert found is None
        with pytest.raises(InputError, match="000 cannot be read"):
            read_only(tmp_path)
    else:
        assert found.startswith(f"compressed as {syntax.name}") and "pip install python-gdcm" in found
