"""Makers of real DICOM files for the tests, and other readers of what is written."""

import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pydicom
from pydicom import Dataset, uid
from pydicom.dataset import FileMetaDataset

from scripts.inputs.dicom import find_series, read_series
from scripts.outputs.dicom import write_series
from scripts.stack import grid
from scripts.stack.acquisition import Acquisition

REAL = Path(__file__).parents[2] / "shared" / "data" / "dicom" / "siemens-2d-t1-sagittal-hfs"
DCM2NIIX = shutil.which("dcm2niix", path=Path(sys.executable).parent) or shutil.which("dcm2niix")
SHAPE = (12, 10, 6)  # columns, rows, slices
VOXELS = np.random.default_rng(0).permutation(np.prod(SHAPE)).reshape(SHAPE).astype(np.uint16)  # no value twice
THIN = 1.3  # mm
PIXEL = [0.9, 0.8]  # mm between rows, between columns
ORIGIN = np.array([-31.5, 12.25, 7.0])
ORIENTATIONS = {
    "axial": [1, 0, 0, 0, 1, 0],
    "coronal": [1, 0, 0, 0, 0, -1],
    "sagittal": [0, 1, 0, 0, 0, -1],
    "oblique": [0.8, 0.36, 0.48, -0.6, 0.48, 0.64],
}
ONE_MORE_AXIAL = [0.8, 0.6, 0, -0.6, 0.8, 0]


def mr_slice(pixels, position, orientation=ORIENTATIONS["axial"], **attributes):
    """A classic MR image of `(columns, rows)` pixels; an attribute of None is left out."""
    image = Dataset()
    image.SOPClassUID, image.SOPInstanceUID = uid.MRImageStorage, uid.generate_uid()
    image.StudyInstanceUID, image.SeriesInstanceUID, image.FrameOfReferenceUID = "1.2.3", "1.2.3.4", "1.2.3.5"
    image.PatientName, image.PatientID, image.PatientSex = "Doe^Jane", "17", "F"
    image.PatientBirthDate, image.StudyDate, image.StudyTime = "19700101", "20240506", "101112"
    image.Modality, image.Manufacturer, image.ImageType = "MR", "Maker", ["ORIGINAL", "PRIMARY", "M"]
    image.SeriesNumber, image.SeriesDescription = 7, "t2 tse"
    image.ScanningSequence, image.SequenceVariant, image.MRAcquisitionType = "SE", "SK", "2D"
    image.EchoTime, image.RepetitionTime, image.EchoTrainLength, image.PatientPosition = 90, 4000, 15, "HFS"
    image.ImagePositionPatient, image.ImageOrientationPatient = [*map(float, position)], orientation
    image.PixelSpacing, image.SliceThickness = list(PIXEL), 4
    image.PhotometricInterpretation, image.SamplesPerPixel = "MONOCHROME2", 1
    image.Columns, image.Rows = pixels.shape
    image.BitsAllocated, image.BitsStored, image.HighBit = 16, 16, 15
    image.PixelRepresentation = int(pixels.dtype == np.int16)
    image.PixelData = np.ascontiguousarray(pixels.T).tobytes()
    for keyword, value in attributes.items():
        if value is None:
            delattr(image, keyword)
        else:
            setattr(image, keyword, value)
    return image


def mr_slices(voxels, orientation=ORIENTATIONS["axial"], spacing=4.8, step=None, **attributes):
    """A classic series; callables among the attributes get the slice's index."""
    normal = np.cross(orientation[:3], orientation[3:])
    step = spacing * normal if step is None else np.asarray(step)
    return [
        mr_slice(
            voxels[:, :, k],
            ORIGIN + k * step,
            orientation,
            **{
                name: value(k) if callable(value) else value
                for name, value in {"InstanceNumber": k + 1, **attributes}.items()
            },
        )
        for k in range(voxels.shape[2])
    ]


def save(folder, images, syntax=uid.ExplicitVRLittleEndian, names=None):
    """Writes images as files; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for k, image in enumerate(images):
        image.file_meta = FileMetaDataset()
        image.file_meta.TransferSyntaxUID = syntax
        path = folder / (names[k] if names else f"{k:03d}")
        pydicom.dcmwrite(path, image, enforce_file_format=True)
    return folder


SHARED = {
    "PixelMeasuresSequence": "PixelSpacing SliceThickness",
    "PlaneOrientationSequence": "ImageOrientationPatient",
    "MRTimingAndRelatedParametersSequence": "RepetitionTime EchoTrainLength",
}
PER_FRAME = {
    "PlanePositionSequence": "ImagePositionPatient",
    "PixelValueTransformationSequence": "RescaleSlope RescaleIntercept",
    "FrameVOILUTSequence": "WindowCenter WindowWidth",
    "MREchoSequence": "EffectiveEchoTime=EchoTime",
    "MRImageFrameTypeSequence": "FrameType=ImageType",
    "FrameContentSequence": "TemporalPositionIndex=TemporalPositionIdentifier FrameAcquisitionNumber=AcquisitionNumber",
}


def functional_groups(image, macros):
    group = Dataset()
    for macro, names in macros.items():
        content = Dataset()
        for enhanced_name, _, classic_name in (name.partition("=") for name in names.split()):
            if (classic_name or enhanced_name) in image:
                setattr(content, enhanced_name, image[classic_name or enhanced_name].value)
        setattr(group, macro, [content])
    return group


def enhanced(images):
    """The same series as one multi-frame image, without what only classic images have."""
    whole = copy.deepcopy(images[0])
    for names in (*SHARED.values(), *PER_FRAME.values(), "InstanceNumber ScanningSequence SequenceVariant"):
        for name in re.split("[ =]", names):
            if name in whole:
                delattr(whole, name)
    whole.SOPClassUID, whole.NumberOfFrames = uid.EnhancedMRImageStorage, len(images)
    whole.EchoPulseSequence, whole.ImageType = "SPIN", ["ORIGINAL", "PRIMARY", "VOLUME", "NONE"]
    whole.SharedFunctionalGroupsSequence = [functional_groups(images[0], SHARED)]
    whole.PerFrameFunctionalGroupsSequence = [functional_groups(image, PER_FRAME) for image in images]
    whole.PixelData = b"".join(image.PixelData for image in images)
    return whole


def taken(source):
    return [one for one in find_series(source) if one.skipped is None]


def read_only(source):
    (series,) = taken(source)
    return read_series(series)


def verdict(source):
    """Why the only series is skipped."""
    (series,) = find_series(source)
    return series.skipped


def world(image, column, row):
    """RAS position in mm of a pixel, by the formula of PS3.3, C.7.6.2.1.1."""
    across, down = np.array(image.ImageOrientationPatient, float).reshape(2, 3)
    between_rows, between_columns = map(float, image.PixelSpacing)
    lps = np.array(image.ImagePositionPatient, float) + across * between_columns * column + down * between_rows * row
    return lps * [-1, -1, 1]


def images_of(folder):
    return [pydicom.dcmread(path) for path in sorted(folder.iterdir())]


def through_dcm2niix(folder, out):
    """Voxels, affine and sidecar that dcm2niix makes of a folder."""
    out.mkdir()
    subprocess.run([DCM2NIIX, "-z", "n", "-b", "y", "-f", "x", "-o", out, folder], check=True, capture_output=True)
    (path,) = out.glob("*.nii")
    image = nib.load(path)
    return np.asarray(image.dataobj), image.affine, json.loads(path.with_suffix(".json").read_text())


def assert_same_in_space(voxels, affine, other, other_affine, tolerance=0.01):
    """Two arrays hold the same values at the same places in mm, whatever the order and sign of their axes."""
    to_other = np.linalg.inv(other_affine) @ affine
    order = np.argmax(abs(to_other[:3, :3]), axis=1)
    signs = np.sign(to_other[np.arange(3), order])
    moved = np.transpose(voxels, order)
    moved = moved[tuple(slice(None, None, int(sign)) for sign in signs)]
    np.testing.assert_array_equal(moved, other)
    for corner in np.ndindex(2, 2, 2):
        index = np.array(corner) * (np.array(voxels.shape) - 1)
        there = np.where(signs > 0, index[order], np.array(other.shape) - 1 - index[order])
        np.testing.assert_allclose(affine[:3] @ [*index, 1], other_affine[:3] @ [*there, 1], atol=tolerance)


def rebuilt(volume, spacing=2.2, overshoot=0.0):
    """A stand-in for a rebuilt volume: nearest slices on a fine grid, some voxels beyond the range."""
    thick, slice_spacing = volume.dataobj.shape[2], grid.voxel_spacing(volume.affine)[2]
    fine = grid.fine_count(thick, slice_spacing, spacing)
    index = Acquisition.stack(2, thick, spacing=slice_spacing, thickness=slice_spacing, target=spacing).nearest_slices
    array = volume.dataobj[:, :, index].copy()
    array[0, 0] = array.min() - overshoot
    return array, grid.respaced_affine(volume.affine, 2, thick, fine, spacing)


def derived(folder, images, overshoot=0.0, version="1.2.3", key="settings"):
    """(the rebuilt array, its affine, the images written) of a classic series."""
    (source,) = taken(save(folder / "source", images))
    array, affine = rebuilt(read_series(source), overshoot=overshoot)
    write_series(folder / "sr", array, affine, source, version, key)
    return array, affine, images_of(folder / "sr")
