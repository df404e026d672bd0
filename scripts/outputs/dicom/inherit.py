"""Attributes that a derived series takes over from its source: listed ones that have one value in all slices."""

import copy
from typing import Any

import numpy as np
from pydicom import Dataset
from pydicom.valuerep import format_number_as_ds

from ...inputs.headers import element, numbers, rescaling, said, value

INHERITED = " ".join(  # attributes that still hold for a rebuilt series, by module (PS3.3, A.4.3)
    [
        # Patient
        "PatientName PatientID IssuerOfPatientID PatientBirthDate PatientSex OtherPatientIDsSequence",
        "PatientIdentityRemoved DeidentificationMethod DeidentificationMethodCodeSequence",
        # General Study, Patient Study
        "StudyInstanceUID StudyDate StudyTime StudyID AccessionNumber IssuerOfAccessionNumberSequence",
        "ReferringPhysicianName StudyDescription ProcedureCodeSequence PatientAge PatientSize PatientWeight",
        # General Series, Frame of Reference
        "SeriesNumber SeriesDescription BodyPartExamined Laterality PatientPosition ProtocolName",
        "RequestAttributesSequence FrameOfReferenceUID PositionReferenceIndicator",
        # General Equipment: the scanner; this software is added as contributing equipment
        "Manufacturer ManufacturerModelName DeviceSerialNumber SoftwareVersions InstitutionName InstitutionAddress",
        "InstitutionalDepartmentName StationName ContributingEquipmentSequence",
        # General Acquisition, General Image, Contrast/Bolus, SOP Common
        "AcquisitionDate AcquisitionTime PhotometricInterpretation VOILUTFunction BurnedInAnnotation",
        "RecognizableVisualFeatures LossyImageCompression ContrastBolusAgent ContrastBolusAgentSequence",
        "ContrastBolusRoute ContrastBolusVolume SpecificCharacterSet TimezoneOffsetFromUTC",
        # MR Image
        "ScanningSequence SequenceVariant SequenceName ScanOptions MRAcquisitionType AngioFlag RepetitionTime EchoTime",
        "InversionTime EchoNumbers EchoTrainLength FlipAngle VariableFlipAngleFlag NumberOfAverages PixelBandwidth",
        "ImagingFrequency ImagedNucleus MagneticFieldStrength ReceiveCoilName TransmitCoilName",
    ]
).split()
ONCE_IS_ENOUGH = {"BurnedInAnnotation": "YES", "RecognizableVisualFeatures": "YES", "LossyImageCompression": "01"}


def decimal(number: Any) -> str:
    """A decimal string (DS): at most 16 characters."""
    return format_number_as_ds(float(number))


def code(keyword: str) -> list[Dataset]:
    """A code sequence of one item: a code of the DICOM standard by its keyword, such as SpatialResampling."""
    from pydicom.sr.codedict import codes  # here: its tables take 0.4 s, which most scans need not

    coded, item = getattr(codes.DCM, keyword), Dataset()
    item.CodeValue, item.CodingSchemeDesignator, item.CodeMeaning = coded.value, coded.scheme_designator, coded.meaning
    return [item]


SOURCE, GUIDE = "SourceImageForImageProcessingOperation", "StructuralImageForImageProcessing"  # purposes of images


def inherited(headers: list[Dataset], indices: list[int], part: int) -> Dataset:
    """The header of a series that is derived from these images, which are its sources.

    It has the attributes of `INHERITED` that are the same in all images, and the finest slope of `rescaling`.

    Args:
        headers: classic, of the slices in their order.
        indices: of the slices in their files, from 0; only multi-frame files have more than one.
        part: number of the volume in its series, from 1. Part 2 of series 7 becomes series 7002.
    """
    common = Dataset()
    for keyword in INHERITED:
        found = [element(header, keyword) for header in headers]
        once = [one for one in found if one is not None and one.value == ONCE_IS_ENOUGH.get(keyword)]
        first = once[0] if once else found[0]
        names = {said(header, keyword) for header in headers} if keyword == "PatientName" else ()  # Doe^Jane, DOE^JANE^
        if first is not None and (once or len(names) == 1 or all(first == other for other in found[1:])):
            common.add(copy.deepcopy(first))
    common.remove_private_tags()  # also within sequences
    if "SpecificCharacterSet" not in common and any("SpecificCharacterSet" in header for header in headers):
        common.SpecificCharacterSet = "ISO_IR 192"
    pair = ("WindowCenter", "WindowWidth")
    windows = [[numbers(header, k, np.size(value(header, k)))[0] for k in pair] for header in headers]
    if np.isfinite(windows).all():  # one window for all slices, which people scroll through
        common.WindowCenter, common.WindowWidth = map(decimal, np.median(windows, axis=0))
    slopes, intercepts = (set(one) for one in zip(*map(rescaling, headers)))
    common.RescaleSlope = decimal(min(map(abs, slopes)))
    common.RescaleIntercept = decimal(intercepts.pop() if len(intercepts) == 1 else 0)
    number = int(np.nan_to_num(numbers(common, "SeriesNumber", 1)[0]))
    common.SeriesNumber = 1000 * (number % 2_000_000) + part % 1000  # below 2**31, as IS asks
    common.SourceImageSequence = references(headers, indices, SOURCE)
    return common


def references(headers: list[Dataset], indices: list[int], purpose: str) -> list[Dataset]:
    """References to these images, of the arguments of `inherited`, as sources of a purpose: `SOURCE` or `GUIDE`."""
    items = []
    for instance in dict.fromkeys(header.SOPInstanceUID for header in headers):  # a multi-frame image stands once
        item = Dataset()
        item.ReferencedSOPClassUID, item.ReferencedSOPInstanceUID = headers[0].SOPClassUID, instance
        if "NumberOfFrames" in headers[0]:
            frames = [index + 1 for index, header in zip(indices, headers) if header.SOPInstanceUID == instance]
            item.ReferencedFrameNumber = sorted(frames)
        item.PurposeOfReferenceCodeSequence = code(purpose)
        items.append(item)
    return items
