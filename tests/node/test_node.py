"""A series at a node: it comes back once, late and corrected images count, and what cannot be rebuilt is put aside."""

import json

import numpy as np
import pydicom
import pytest
from pydicom import uid

from tests.dicom_files import images_of, mr_slices, save
from tests.node.peers import Archive, file_of, free_port, running, send, there, thick, until
from tests.outputs.test_guided_scans import source_of

pytestmark = pytest.mark.slow


def test_a_thick_series_comes_back_once_and_is_the_commands(make, bundle, tmp_path, log):
    with Archive() as archive, running(make(archive.port)) as port:
        node_folder = tmp_path / "spool"
        assert send(thick(), port) == [0] * 6
        until((node_folder / "done" / "1.2.3.1").is_dir)
        assert send(thick()[::-1], port) == [0] * 6, "again, in another order"
        until(lambda: "all its 6 images came earlier" in log.text)
    (record,) = (node_folder / "results" / "1.2.3.1").glob("*.json")
    assert set(json.loads(record.read_text())["Sources"]) == {f"urn:oid:{image.SOPInstanceUID}" for image in thick()}
    ((name, images),) = archive.series.items()
    assert len(images) == len(archive.images) == len({image.SOPInstanceUID for image in images})
    assert not any((node_folder / "received").iterdir())
    bundle(save(tmp_path / "disk", thick()), output_format="dicom")
    (folder,) = bundle.out.glob("*_sr")
    expected = images_of(folder)
    assert [image.SOPInstanceUID for image in images] == [image.SOPInstanceUID for image in expected], "from the disk"
    for image, other in zip(images, expected):
        assert image.PixelData == other.PixelData and image.ImagePositionPatient == other.ImagePositionPatient
    assert images[0].StudyInstanceUID == "1.2.3" and images[0].FrameOfReferenceUID == "1.2.3.5"
    assert name not in {"1.2.3.1"} and "Doe" not in log.text
    assert "Doe" not in (node_folder / "index.html").read_text()


def test_what_cannot_be_rebuilt_is_put_aside_with_the_reason_and_stays_there(make, log):
    thin = thick(1, SliceThickness=1, ImagePositionPatient=lambda k: [0, 0, float(k)], PixelSpacing=[1, 1])
    foreign = thick(2, Modality="CT", SOPClassUID=uid.CTImageStorage)
    gap, knee = [image for k, image in enumerate(thick(3)) if k != 2], thick(4, BodyPartExamined="KNEE")
    with Archive() as archive:
        node = make(archive.port, settle=3)
        with running(node) as port:
            for images in (thin, foreign, gap, knee):
                send(images, port)
            until(lambda: len(there(node, "aside")) == 4)
            reasons = [(node.spool.path / "aside" / f"1.2.3.{k}" / "reason.txt").read_text() for k in (1, 2, 3, 4)]
            assert "thin or isotropic already" in reasons[0] and "the modality is CT" in reasons[1]
            assert "1 of 6 slices missing" in reasons[2] and "KNEE" in reasons[3].upper()
            send(thin, port)
            until(lambda: "all its 6 images came earlier" in log.text)
            assert len(there(node, "aside")) == 4 and not archive.images
            send(thick(3)[2:3], port)  # what was missing
            until(lambda: there(node, "done") == ["1.2.3.3"])
        assert there(node, "aside") == ["1.2.3.1", "1.2.3.2", "1.2.3.4"] and len(archive.series) == 1
        page = (node.spool.path / "index.html").read_text()
        assert "the modality is CT" in page and "1 sent" in page and "3 put aside" in page


def test_images_that_come_late_make_a_new_series_of_all(make):
    with Archive() as archive:
        node = make(archive.port)
        with running(node) as port:
            send(thick()[:5], port)
            until(lambda: there(node, "done") == ["1.2.3.1"])
            send(thick()[5:], port)
            until(lambda: len(archive.series) == 2 and there(node, "done") == ["1.2.3.1"])
    first, second = archive.series.values()
    assert len(second) > len(first) and len(second[0].SourceImageSequence) == 6
    assert second[0].SeriesDescription.endswith("(replaces that of 5 images)")
    assert f"replaces series {first[0].SeriesInstanceUID}, of 5 images" in second[0].DerivationDescription
    assert "replaces" not in first[0].SeriesDescription + first[0].DerivationDescription
    assert len(node.spool.images("done", "1.2.3.1")) == 6


def test_a_corrected_patient_makes_a_new_series_and_the_same_images_in_another_syntax_none(make, log):
    """A further image comes with the correction; nothing of the first patient is in what is sent then."""
    corrected = thick(1, PatientName="Roe^Ann", PatientID="18")
    with Archive() as archive:
        node = make(archive.port)
        with running(node) as port:
            send(thick()[:5], port)
            until(lambda: there(node, "done") == ["1.2.3.1"])
            for _ in range(2):
                send(corrected, port)
                until(lambda: len(archive.series) == 2 and there(node, "done") == ["1.2.3.1"])
                until(lambda: there(node, "received") == there(node, "working") == [])
            assert log.text.count("all its 6 images came earlier") == 1
            node.spool.keep("1.2.3.1", corrected[0].SOPInstanceUID, file_of(corrected[0]))
            until(lambda: "all its 1 images came earlier" in log.text)
    first, second = archive.series.values()
    assert {image.PatientID for image in first} == {"17"} and {image.PatientID for image in second} == {"18"}
    assert len(second[0].SourceImageSequence) == 6 and {str(image.PatientName) for image in second} == {"Roe^Ann"}
    kept = [pydicom.dcmread(path).PatientID for path in node.spool.images("done", "1.2.3.1")]
    assert kept == ["18"] * 6


def test_a_corrected_image_of_the_same_patient_is_rebuilt_and_sent_again(make, log):
    with Archive() as archive:
        node = make(archive.port)
        with running(node) as port:
            send(thick(), port)
            until(lambda: there(node, "done") == ["1.2.3.1"])
            count = len(archive.images)
            brighter = thick()[2]
            brighter.PixelData = (np.frombuffer(brighter.PixelData, np.uint16) // 2).tobytes()
            send([brighter], port)
            until(lambda: len(archive.images) == 2 * count)
    assert "1 of its 1 images replace earlier ones" in log.text
    assert len(archive.series) == 1
    assert any(a.PixelData != b.PixelData for a, b in zip(archive.images[:count], archive.images[count:]))


def test_a_correction_that_is_not_whole_is_put_aside_until_it_is(make):
    corrected = thick(1, PatientName="Roe^Ann", PatientID="18")
    with Archive() as archive:
        node = make(archive.port)
        with running(node) as port:
            send(thick(), port)
            until(lambda: there(node, "done") == ["1.2.3.1"])
            send(corrected[:3], port)
            until(lambda: there(node, "aside") == ["1.2.3.1"])
            reason = (node.spool.path / "aside" / "1.2.3.1" / "reason.txt").read_text()
            assert "its images are of 2 patients" in reason and "Roe" not in reason
            send(corrected[3:], port)
            until(lambda: there(node, "done") == ["1.2.3.1"])
    assert [images[0].PatientID for images in archive.series.values()] == ["17", "18"]


def test_a_stack_that_ends_in_tissue_waits_longer(make, log):
    with Archive() as archive:
        node = make(archive.port, settle=1)
        with running(node) as port:
            send(thick(), port)
            until(lambda: "slices end where tissue is still large: it waits for more" in log.text)
            assert there(node, "received") == ["1.2.3.1"]
            until(lambda: there(node, "done") == ["1.2.3.1"])
    assert log.text.count("it waits for more") == 1


def test_an_isotropic_series_of_the_study_guides(make, tmp_path):
    _, flair, t1 = source_of("DICOM", tmp_path / "head")
    with Archive() as archive:
        node = make(archive.port, settle=1, **{"guide": "auto", "rebuilder::guide_share": 0.5})
        with running(node) as port:
            send([*images_of(flair), *images_of(t1)], port)
            until(lambda: there(node, "done") == ["1.2.3"])
        (record,) = (node.spool.path / "results" / "1.2.3").glob("*_sr.json")
    told = json.loads(record.read_text())
    assert "t1_mprage" in told["Guide"]["Name"] and not told["Warnings"]


@pytest.mark.parametrize("given", [{"together": True}, {"guide": "auto", "rebuilder::guide_share": 0.5}])
def test_with_together_or_a_guide_a_study_has_to_settle(given, make):
    node = make(free_port(), **given)
    with node.listening("127.0.0.1", 0, ["MODALITY"]) as port:
        send(thick(1) + thick(2), port)
    assert there(node, "received") == ["1.2.3"] and len(node.spool.images("received", "1.2.3")) == 12


def test_a_stack_that_was_cut_is_looked_at_once_and_taken_as_soon_as_it_is_whole(make, log):
    """A head of 16 slices, of which six come first. What is not read again may be broken meanwhile."""
    across, along = np.hypot(*np.mgrid[-1:1:20j, -1:1:20j]), np.linspace(-1, 1, 16)
    voxels = np.stack([np.where(across**2 + (1.05 * z) ** 2 < 1, 800, 0) for z in along], -1).astype(np.uint16)
    head = mr_slices(voxels, SOPInstanceUID=lambda k: f"1.2.826.1.{k + 1}", SeriesInstanceUID="1.2.3.1")
    node = make(free_port(), settle=1000)

    def keep(images):
        for image in images:
            node.spool.keep("1.2.3.1", image.SOPInstanceUID, file_of(image))

    keep(head[5:11])
    node.take("1.2.3.1")
    assert "its 6 slices end where tissue is still large" in log.text and there(node, "received") == ["1.2.3.1"]
    for path in node.spool.images("received", "1.2.3.1"):
        path.write_bytes(b"")
    node.take("1.2.3.1")
    assert there(node, "received") == ["1.2.3.1"], "nothing new has come"
    keep(head)
    node.take("1.2.3.1")
    assert there(node, "working") == ["1.2.3.1"], "it is whole"
