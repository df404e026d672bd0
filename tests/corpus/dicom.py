"""DICOM series, whole and broken."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydicom import uid
from pydicom.fileset import FileSet

from tests.corpus.given import NONE_FOUND, Given, Maker, folder_of, nifti
from tests.dicom_files import ORIGIN, PIXEL, VOXELS, enhanced, mr_slices, save

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


def sent_twice(images):
    return [*images, *mr_slices(VOXELS)]


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


def as_dicom(maker: Maker) -> Maker:
    """Asks for DICOM, so that no NIfTI file must come."""
    return lambda folder: replace(maker(folder), scans=[], options={"output_format": "dicom"})


CORPUS: list[tuple[str, Maker, str]] = [
    # DICOM
    ("a DICOM series", dicom(), "correct"),
    ("DICOM files in a list, in any order", file_list, "correct"),
    ("an enhanced multi-frame image", multi_frame, "correct"),
    ("DICOM sent twice under new UIDs", dicom(sent_twice), "correct"),
    ("DICOM without a slice", dicom(without(2), scans=()), "1 of 6 slices missing"),
    ("DICOM with a tilted gantry", dicom(step=[0, 0.5, 4.8], scans=()), "sheared"),
    ("DICOM without positions", dicom(ImagePositionPatient=None, scans=()), NONE_FOUND),
    ("DICOM with a slope of 0", dicom(RescaleSlope=0, RescaleIntercept=0, scans=()), NONE_FOUND),
    ("inverted DICOM", dicom(PhotometricInterpretation="MONOCHROME1", scans=()), NONE_FOUND),
    ("CT", dicom(Modality="CT", scans=()), NONE_FOUND),
    ("one DICOM image", one_file(dicom(scans=())), NONE_FOUND),
    ("DICOM cut within its pixels", cut_one, "002 cannot be read"),
    ("DICOM without its preamble", without_preamble, NONE_FOUND),
    ("a folder with a DICOMDIR", with_index(""), "correct"),
    ("DICOM and NIfTI in one folder", folder_of(dicom(), nifti()), "correct"),
    ("NIfTI in, DICOM asked for", as_dicom(nifti()), "No scan came as DICOM"),
    ("DICOM and NIfTI in one folder, DICOM asked for", as_dicom(folder_of(dicom(), nifti())), "correct"),
]
