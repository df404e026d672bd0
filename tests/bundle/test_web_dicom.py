"""DICOM in the page's modules: the derived series is the command's tag by tag, and scans of a study have its roles."""

import io
import zipfile

import numpy as np
import pytest
from pydicom import dcmread

from drift_mri.command import main
from scripts.inputs.dicom import find_series
from scripts.inputs.examination import roles
from scripts.inputs.scan import Scan, heads
from tests.bundle.test_web import FLOAT32, exported, head, in_node, javascript, pytestmark
from tests.dicom_files import ORIENTATIONS, enhanced, mr_slices, save

__all__ = ["exported", "pytestmark"]
OF_EACH_RUN = {  # keywords of times and of UIDs that hash the settings; text is written in UTF-8
    *("InstanceCreationTime", "SeriesTime", "ContentTime", "ContributionDateTime", "SOPInstanceUID"),
    *("InstanceCreationDate", "SeriesDate", "ContentDate", "SeriesInstanceUID", "SpecificCharacterSet"),
}


def assert_alike(own, theirs):
    """Attributes of two headers: numbers to 1e-4, all others alike."""
    assert {element.keyword for element in own} == {element.keyword for element in theirs}
    for element, other in zip(own, theirs):
        assert element.VR == other.VR
        if element.VR == "SQ":
            assert len(element.value) == len(other.value), element.keyword
            for item, its in zip(element.value, other.value):
                assert_alike(item, its)
        elif element.VR == "DS" and element.value is not None:
            np.testing.assert_allclose(np.float64(element.value), np.float64(other.value), atol=1e-4)
        elif element.keyword not in OF_EACH_RUN | {"PixelData"}:
            assert element.value == other.value, element.keyword


WHOSE = {"PatientName": "Müller^Anna", "SpecificCharacterSet": "ISO_IR 100", "AccessionNumber": "A 7"}
SOURCES = {
    "oblique, with windows that differ and a private attribute": lambda: windowed(
        mr_slices(head().astype(np.uint16), ORIENTATIONS["oblique"], WindowWidth=600, **WHOSE)
    ),
    "sagittal, with a slope and an intercept": lambda: mr_slices(
        head().astype(np.int16),
        ORIENTATIONS["sagittal"],
        RescaleSlope=0.5,
        RescaleIntercept=-100,
        BurnedInAnnotation="NO",
    ),
    "slices farther apart than those of the training: a warning": lambda: mr_slices(
        head().astype(np.uint16), spacing=12.0, SliceThickness=12.0
    ),
    "slices in one file": lambda: [spaced(enhanced(mr_slices(head().astype(np.uint16))))],
}


def windowed(images):
    """Slices whose windows and echo trains differ, and that say something private."""
    for k, image in enumerate(images):
        image.WindowCenter, image.EchoTrainLength = 300 + 10 * k, 8 + k % 2
        image.private_block(0x0019, "SOMEBODY", create=True).add_new(1, "LO", "private")
    return images


def spaced(image):
    """A multi-frame image that states the spacing of its slices."""
    image.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0].SpacingBetweenSlices = 4.8
    return image


@pytest.mark.parametrize("source", SOURCES)
def test_a_derived_series_is_that_of_the_command(tmp_path, source):
    images = SOURCES[source]()
    save(tmp_path / "dicom", images)
    done = in_node(tmp_path / "dicom", tmp_path / "out.zip")
    assert done.returncode == 0, done.stderr
    main([str(tmp_path / "dicom"), "-o", str(tmp_path / "py"), "--output_format", "dicom", "--config", str(FLOAT32)])
    with zipfile.ZipFile(tmp_path / "out.zip") as packed:
        own = [dcmread(io.BytesIO(packed.read(name))) for name in sorted(packed.namelist())]
    theirs = [dcmread(path) for path in sorted((tmp_path / "py").rglob("*.dcm"))]
    assert len(own) == len(theirs) > 7
    for one, other in zip(own, theirs):
        assert_alike(one, other)
        apart = one.pixel_array.astype(float) - other.pixel_array
        assert np.abs(apart).max() * float(one.get("RescaleSlope", 1)) <= 1  # rounding, and 1e-4 of the range
        assert one.file_meta.MediaStorageSOPInstanceUID == one.SOPInstanceUID
    assert len({one.SOPInstanceUID for one in own}) == len(own)
    assert ("ImageComments" in own[0]) == ("a warning" in source)
    assert {one.SeriesInstanceUID for one in own}.isdisjoint(image.SeriesInstanceUID for image in images)
    in_node(tmp_path / "dicom", tmp_path / "again.zip")
    with zipfile.ZipFile(tmp_path / "again.zip") as packed:
        again = dcmread(io.BytesIO(packed.read("0001.dcm")))
    assert again.SeriesInstanceUID == own[0].SeriesInstanceUID


STUDY = {  # description: spacing of the slices, orientation, attributes
    "t2_flair_tra": (4.0, "axial", {"EchoTime": 90, "RepetitionTime": 9000, "InversionTime": 2500}),
    "t1_mprage": (1.0, "sagittal", {"EchoTime": 3, "RepetitionTime": 2000, "InversionTime": 900}),
    "t1_mprage_gd": (1.0, "sagittal", {"EchoTime": 3, "RepetitionTime": 2000, "InversionTime": 900}),
    "t2_tse_cor": (4.0, "coronal", {"EchoTime": 100, "RepetitionTime": 4000}),
    "t2_flair_cor": (4.0, "coronal", {"EchoTime": 90, "RepetitionTime": 9000, "InversionTime": 2500}),
    "pd_tse_tra": (4.0, "axial", {"EchoTime": 15, "RepetitionTime": 4000}),
    "ax": (4.0, "axial", {"EchoTime": 8, "RepetitionTime": 500}),
    "unnamed": (4.0, "axial", {"EchoTime": 50, "RepetitionTime": 1500}),
    "t1_of_another": (1.0, "axial", {"EchoTime": 3, "PatientName": "Other", "PatientID": "X"}),
}
ROLES = """
    const [{ findScans }, { roles }] = await get("inputs/readers.js", "inputs/examination.js");
    const entries = await readdir(given[0], { recursive: true, withFileTypes: true });
    const paths = entries.filter((one) => one.isFile()).map((one) => `${one.parentPath}/${one.name}`);
    const read = async (name) => ({ name, bytes: new Uint8Array(await readFile(name)) });
    const found = await findScans(await Promise.all(paths.map(read)));
    const shown = ({ other, role }) => [other.scan.name, role.rank.length > 0, role.why];
    for (const own of found) say([own.scan.name, roles(own, found).map(shown)]);"""


def test_the_scans_of_a_study_have_the_roles_that_the_command_gives_them(tmp_path):
    for number, (name, (spacing, orientation, attributes)) in enumerate(STUDY.items(), 1):
        voxels = head((20, 22, 20 if spacing == 1 else 7), seed=number).astype(np.int16)
        attributes = {"SeriesDescription": name, "SliceThickness": spacing, "StudyInstanceUID": "1.2.3", **attributes}
        attributes |= {"SeriesNumber": number, "SeriesInstanceUID": f"1.2.3.{number}", "FrameOfReferenceUID": "1.2.4"}
        save(tmp_path / str(number), mr_slices(voxels, ORIENTATIONS[orientation], spacing=spacing, **attributes))
    own = dict(javascript(ROLES, tmp_path))
    scans = [Scan(one.name, one, (), tmp_path / one.name) for one in find_series(tmp_path)]
    numbers, of = {scan.name: int(scan.name[:3]) for scan in scans}, heads(scans)
    assert len(own) == len(scans) == len(STUDY)
    for name, parts in own.items():
        scan = next(one for one in scans if numbers[one.name] == int(name.split("_")[0]))
        theirs = roles(scan, [other for other in scans if of[other.source] == of[scan.source]])
        assert {(int(n.split("_")[0]), guides, why) for n, guides, why in parts} == {
            (numbers[other.name], bool(beside.rank), beside.why) for other, beside in theirs
        }
        expected = [numbers[other.name] for other, beside in theirs if beside.rank]
        assert [int(n.split("_")[0]) for n, guides, _ in parts if guides] == expected


WARNINGS = """
    const [{ findScans }] = await get("inputs/readers.js");
    for (const folder of given) {
      const entries = (await readdir(folder)).sort();
      const read = async (name) => ({ name, bytes: new Uint8Array(await readFile(`${folder}/${name}`)) });
      try {
        for (const { scan } of await findScans(await Promise.all(entries.map(read)))) say(scan.warnings);
      } catch (error) {
        say([error.message]);
      }
    }"""


def test_a_lost_end_and_the_syntax_of_a_maker_are_said_in_the_commands_words(tmp_path):
    images = mr_slices(head().astype(np.uint16), ImagesInAcquisition=17)
    lost, whole = save(tmp_path / "lost", images), save(tmp_path / "whole", mr_slices(head().astype(np.uint16)))
    private = save(tmp_path / "private", mr_slices(head().astype(np.uint16)))
    standard, own = b"1.2.840.10008.1.2.1", b"1.2.840.113619.5.2\0"
    for path in private.iterdir():
        path.write_bytes(path.read_bytes().replace(standard, own))
    said = list(javascript(WARNINGS, lost, whole, private))
    ((found,), (makers,)) = find_series(lost), find_series(private)
    assert found.note.startswith("10 of 17 images are not there") and said[0] == [found.note] and said[1] == []
    assert makers.skipped.replace(str(private), "").replace("/", "") in said[2][0]
