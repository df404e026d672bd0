"""`drift-mri-node`: nothing is lost, nothing is done twice, strangers are sent away. The network is a real one."""

import json
import multiprocessing
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from io import BytesIO
from urllib.request import urlopen

import numpy as np
import pydicom
import pytest
import torch
from pydicom import uid
from pydicom.dataset import FileMetaDataset
from pydicom.pixels import get_decoder
from pynetdicom import AE, evt
from pynetdicom.sop_class import Verification

from drift_mri.node import Node, main, parser, pause
from drift_mri.spool import STATES, Spool
from drift_mri.transfer import MOST, SILENCE, Peer, tls_contexts
from scripts.errors import InputError
from scripts.method.weights import save_weights
from scripts.outputs.lock import alone
from tests.config_files import ERROR, ROOT, on_planes
from tests.config_files import parser as config_parser
from tests.dicom_files import enhanced, images_of, mr_slices, save
from tests.dicom_files import taken as scans_of
from tests.fixtures import CARD, load_once
from tests.method.test_error_pattern import CALIBRATION, with_error
from tests.outputs.test_guided_scans import source_of

pytestmark = pytest.mark.slow

SYNTAXES = [uid.ExplicitVRLittleEndian, uid.ImplicitVRLittleEndian]
PATIENCE = 180  # seconds; a machine may be busy


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(what, why="", patience=PATIENCE):
    end = time.monotonic() + patience
    while not what():
        assert time.monotonic() < end, why or "it does not happen"
        time.sleep(0.02)


def thick(number=1, **attributes):
    """A series of six slices, 4.8 mm apart, with its own UIDs; all of one study."""
    voxels = (1000 * np.random.default_rng(number).random((12, 10, 6))).astype(np.uint16)
    instance = f"1.2.826.{number}."
    return mr_slices(
        voxels,
        **{
            "SeriesInstanceUID": f"1.2.3.{number}",
            "SOPInstanceUID": lambda k: f"{instance}{k + 1}",
            "SeriesNumber": number,
            "PixelSpacing": [1.2, 1.2],
            **attributes,
        },
    )


@contextmanager
def association(port, calling="MODALITY", called="DRIFT", tls=None):
    ae = AE(ae_title=calling)
    ae.acse_timeout = ae.dimse_timeout = ae.network_timeout = PATIENCE  # the node answers once a disk holds the image
    for kind in (uid.MRImageStorage, uid.EnhancedMRImageStorage, uid.CTImageStorage):
        ae.add_requested_context(kind, SYNTAXES)
    ae.add_requested_context(Verification)
    one = ae.associate("127.0.0.1", port, ae_title=called, tls_args=tls)
    try:
        yield one
    finally:
        if one.is_established:
            one.release()


def send(images, port, **caller):
    """Statuses of C-STORE."""
    with association(port, **caller) as one:
        assert one.is_established
        for image in images:
            image.file_meta = FileMetaDataset()
            image.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
            image.file_meta.MediaStorageSOPClassUID = image.SOPClassUID
        return [one.send_c_store(image).Status for image in images]


class Archive:
    """A peer that keeps what it gets, in the order in which it comes."""

    def __init__(self, port=None, refuses=(), remark=0):
        self.port, self.refuses, self.images, self.server = port or free_port(), set(refuses), [], None
        self.remark = remark

    def store(self, event):
        image = event.dataset
        if image.SeriesNumber in self.refuses:
            return 0xA900
        self.images.append(image)
        return self.remark

    def __enter__(self):
        ae = AE(ae_title="ARCHIVE")
        ae.require_called_aet = True
        ae.add_supported_context(Verification)
        ae.add_supported_context(uid.MRImageStorage, SYNTAXES)
        self.server = ae.start_server(
            ("127.0.0.1", self.port), block=False, evt_handlers=[(evt.EVT_C_STORE, self.store)]
        )
        return self

    def __exit__(self, *_):
        self.server.shutdown()

    @property
    def series(self):
        """SeriesInstanceUID -> its images in their order."""
        found = {}
        for image in self.images:
            found.setdefault(image.SeriesInstanceUID, []).append(image)
        return {name: sorted(images, key=lambda one: one.InstanceNumber) for name, images in found.items()}


@pytest.fixture
def make(bundle, tmp_path):
    """A node with a tiny network on `tmp_path / "spool"`, which sends to a port."""

    def node(port, settle=0.3, keep=7, tls=None, **given):
        spool = Spool(tmp_path / "spool")
        own = {
            "output_dir": str(spool.path),
            "output_format": "dicom",
            "ckpt_path": str(bundle.weights),
            "device": "$torch.device('cpu')",
            "network_def": on_planes(4, 8, error=ERROR),
            "inferer::roi_size": 16,
            "inferer::n_max": 2,
            "inferer::progress": False,
            "bfloat16": False,
        }
        config = config_parser("inference.yaml", **{**own, **given})
        load_once(config, bundle.weights)
        return Node(config, spool, Peer(f"ARCHIVE@127.0.0.1:{port}", "DRIFT", tls), settle, keep)

    return node


@contextmanager
def running(node, port=0, tls=None):
    with node.listening("127.0.0.1", port, ["MODALITY"], tls) as taken:
        thread = threading.Thread(target=node.run)
        thread.start()
        try:
            yield taken
        finally:
            node.stop.set()
            thread.join(PATIENCE)
            assert not thread.is_alive()
            node.stop.clear()


def there(node, state):
    return sorted(node.spool.names(state))


def test_a_thick_series_comes_back_once_and_is_the_commands(make, bundle, tmp_path, log):
    with Archive() as archive, running(make(archive.port)) as port:
        node_folder = tmp_path / "spool"
        assert send(thick(), port) == [0] * 6
        until((node_folder / "done" / "1.2.3.1").is_dir)
        assert send(thick()[::-1], port) == [0] * 6, "again, in another order"
        until(lambda: "all its 6 images came earlier" in log.text)
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
    gap = [image for k, image in enumerate(thick(3)) if k != 2]
    with Archive() as archive:
        node = make(archive.port, settle=3)
        with running(node) as port:
            for images in (thin, foreign, gap):
                send(images, port)
            until(lambda: len(there(node, "aside")) == 3)
            reasons = [(node.spool.path / "aside" / f"1.2.3.{k}" / "reason.txt").read_text() for k in (1, 2, 3)]
            assert "thin or isotropic already" in reasons[0] and "the modality is CT" in reasons[1]
            assert "1 of 6 slices missing" in reasons[2]
            send(thin, port)
            until(lambda: "all its 6 images came earlier" in log.text)
            assert len(there(node, "aside")) == 3 and not archive.images
            send(thick(3)[2:3], port)  # what was missing
            until(lambda: there(node, "done") == ["1.2.3.3"])
        assert there(node, "aside") == ["1.2.3.1", "1.2.3.2"] and len(archive.series) == 1
        page = (node.spool.path / "index.html").read_text()
        assert "the modality is CT" in page and "1 sent" in page and "2 put aside" in page


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
            node.spool.keep("1.2.3.1", corrected[0].SOPInstanceUID, _file_of(corrected[0]))
            until(lambda: "all its 1 images came earlier" in log.text)
    first, second = archive.series.values()
    assert {image.PatientID for image in first} == {"17"} and {image.PatientID for image in second} == {"18"}
    assert len(second[0].SourceImageSequence) == 6 and {str(image.PatientName) for image in second} == {"Roe^Ann"}
    kept = [pydicom.dcmread(path).PatientID for path in node.spool.images("done", "1.2.3.1")]
    assert kept == ["18"] * 6


def _file_of(image):
    """The content of a file in the implicit syntax."""
    image.file_meta, content = FileMetaDataset(), BytesIO()
    image.file_meta.TransferSyntaxUID = uid.ImplicitVRLittleEndian
    image.file_meta.MediaStorageSOPClassUID, image.file_meta.MediaStorageSOPInstanceUID = (
        image.SOPClassUID,
        image.SOPInstanceUID,
    )
    pydicom.dcmwrite(content, image, enforce_file_format=True)
    return content.getvalue()


@pytest.mark.parametrize("other", [{"PatientName": "Roe^Ann"}, {"PatientID": "18"}])
def test_images_of_another_name_or_another_number_are_of_two_patients(other, tmp_path):
    spool = Spool(tmp_path / "spool")
    images = [*thick()[:2], *thick(**other)[2:4]]
    for count, image in enumerate(images, start=1):
        spool.keep("1.2.3.1", image.SOPInstanceUID, _file_of(image))
        assert spool.patients("received", "1.2.3.1") == 1 + (count > 2)


def test_a_corrected_image_of_the_same_patient_is_rebuilt_and_sent_again(make):
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


def test_an_image_is_on_the_disk_and_whole_before_its_sender_is_told_so(make):
    node = make(free_port())
    whole = enhanced(thick(2))
    with node.listening("127.0.0.1", 0, ["MODALITY"]) as port:
        for name, images in (("1.2.3.1", thick(1)), ("1.2.3.2", [whole])):
            for count, image in enumerate(images, start=1):
                assert send([image], port) == [0]
                kept = node.spool.images("received", name)
                assert len(kept) == count
                path = node.spool.path / "received" / name / f"{image.SOPInstanceUID}.dcm"
                assert pydicom.dcmread(path).PixelData == image.PixelData
        assert there(node, "received") == ["1.2.3.1", "1.2.3.2"] and node.spool.names("received", 60) == []


def test_every_transfer_syntax_that_can_be_read_is_taken_and_enhanced_images_are_rebuilt(make, log):
    always = [uid.ImplicitVRLittleEndian, uid.DeflatedExplicitVRLittleEndian, uid.ExplicitVRBigEndian, uid.RLELossless]
    decoded = [uid.JPEG2000Lossless, uid.JPEG2000, uid.JPEGLSLossless, uid.JPEGLosslessSV1]
    ae = AE(ae_title="MODALITY")
    for syntax in (*always, *decoded, uid.MPEG2MPML):
        ae.add_requested_context(uid.EnhancedMRImageStorage, [syntax])
    whole = enhanced(thick())
    whole.file_meta = FileMetaDataset()
    whole.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
    whole.compress(uid.RLELossless, generate_instance_uid=False)
    with Archive() as archive:
        node = make(archive.port)
        with running(node) as port:
            one = ae.associate("127.0.0.1", port, ae_title="DRIFT")
            taken = {context.transfer_syntax[0] for context in one.accepted_contexts}
            assert taken == {*always, *(one for one in decoded if get_decoder(one).is_available)}
            assert one.send_c_store(whole).Status == 0
            one.release()
            until(lambda: there(node, "done") == ["1.2.3.1"])
    ((first, *_),) = archive.series.values()
    assert first.StudyInstanceUID == "1.2.3" and len(archive.images) > 20


def test_an_error_map_is_sent_with_its_series(make, bundle):
    save_weights(with_error(), bundle.weights, replace(CARD, error_map=CALIBRATION), torch.float32)
    with Archive() as archive:
        node = make(archive.port, error_map=True)
        with running(node) as port:
            send(thick(), port)
            until(lambda: there(node, "done") == ["1.2.3.1"])
    names = sorted(images[0].SeriesDescription for images in archive.series.values())
    assert len(names) == 2 and names[1] == f"{names[0]} error bar"


def test_a_stop_ends_it_after_the_scan_at_work(make):
    node = make(free_port())
    with running(node) as port:
        send(thick(), port)
        (scan,) = scans_of(save(node.spool.path.parent / "scan", thick()))
        with alone(node.spool.path / "results" / "1.2.3.1" / f"{scan.name}_sr"):  # its turn has come, it cannot go on
            until(lambda: there(node, "working") == ["1.2.3.1"])
            time.sleep(2)
            node.stop.set()
    assert there(node, "sending") == ["1.2.3.1"]


def test_what_a_killed_node_had_begun_to_write_is_no_series(make):
    node = make(free_port())
    (node.spool.path / "received" / "1.2.3.1").mkdir()
    (node.spool.path / "received" / "1.2.3.1" / ".5-1.2.dcm").write_bytes(b"half")
    with running(node):
        until(lambda: there(node, "received") == there(node, "working") == [])
    assert there(node, "aside") == []


@pytest.mark.parametrize("keyword", ["SeriesInstanceUID", "SOPInstanceUID"])
def test_uids_that_are_none_write_nothing(keyword, make, tmp_path):
    node = make(free_port())
    (image,) = thick()[:1]
    with pydicom.config.disable_value_validation():
        setattr(image, keyword, "../../../escaped")
        with node.listening("127.0.0.1", 0, ["MODALITY"]) as port:
            try:
                assert send([image], port) == [0xC000]
            except ValueError:  # this sender refuses by itself
                assert keyword == "SOPInstanceUID"
    assert there(node, "received") == [] and not list(tmp_path.glob("**/escaped*"))


def test_a_full_disk_is_told_as_such_and_leaves_nothing(make):
    """A limit on the size of files stands for the disk: the system refuses in the same place."""
    node = make(free_port())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with node.listening("127.0.0.1", 0, ["MODALITY"]) as port:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        try:
            statuses = send(thick()[:1], port)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert statuses == [0xA700]
        assert not [path for path in (node.spool.path / "received").rglob("*") if path.is_file()]
        assert send(thick()[:1], port) == [0], "the same image, when there is room"


def test_strangers_are_refused_and_garbage_harms_nobody(make, log):
    node = make(free_port())
    with node.listening("127.0.0.1", 0, ["MODALITY"]) as port:
        for caller in ({"calling": "STRANGER"}, {"called": "OTHER"}):
            with association(port, **caller) as one:
                assert one.is_rejected
        assert "STRANGER" in log.text
        silent = socket.create_connection(("127.0.0.1", port))
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x01\x00\xff\xff\xff\xff", bytes(200)):
            with socket.create_connection(("127.0.0.1", port)) as one:
                one.sendall(garbage)
        with association(port) as one:
            assert one.is_established and one.send_c_echo().Status == 0
        silent.close()
    assert there(node, "received") == []


def _send_deflated(path, port):
    ae = AE(ae_title="MODALITY")
    ae.add_requested_context(uid.MRImageStorage, [uid.DeflatedExplicitVRLittleEndian])
    one = ae.associate("127.0.0.1", port, ae_title="DRIFT")
    assert one.send_c_store(path).Status == 0
    one.release()


def test_an_image_that_unpacks_to_more_than_it_says_costs_little_memory(make, tmp_path):
    image = thick()[0]
    image.add_new(0x00291010, "OB", bytes(2**28))
    (path,) = save(tmp_path / "bomb", [image], uid.DeflatedExplicitVRLittleEndian).iterdir()
    assert path.stat().st_size < 2**19
    node = make(free_port())
    with node.listening("127.0.0.1", 0, ["MODALITY"]) as port:
        tracemalloc.start()
        try:
            sender = multiprocessing.get_context("fork").Process(target=_send_deflated, args=(path, port))
            sender.start()
            until(lambda: there(node, "received") == ["1.2.3.1"])
            sender.join()
            assert sender.exitcode == 0 and tracemalloc.get_traced_memory()[1] < 2**26
        finally:
            tracemalloc.stop()
    with running(node):
        until(lambda: there(node, "aside") == ["1.2.3.1"])
    assert "unpacks to more than 16 MB" in (node.spool.path / "aside" / "1.2.3.1" / "reason.txt").read_text()


def test_callers_that_ask_for_nothing_shut_nobody_out_and_are_cut_short(make, log):
    node = make(free_port())
    with node.listening("127.0.0.1", 0, ["MODALITY"]) as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(MOST + 8)]
        assert send(thick()[:1], port) == [0]
        for one in silent:
            one.settimeout(5 * SILENCE)
            assert one.recv(1) in (b"", b"\x07"), "closed, or aborted"
            one.close()
    assert "refused" not in log.text


def test_the_log_says_why_an_association_is_refused(make, log):
    node = make(free_port())
    with node.listening("127.0.0.1", 0, ["MODALITY"]) as port, ExitStack() as opened:
        strangers = {"calling": ("STRANGER", "its title is not allowed"), "called": ("OTHER", "called another")}
        for how, (title, why) in strangers.items():
            with association(port, **{how: title}) as one:
                assert one.is_rejected
                until(lambda why=why: why in log.text, why)  # the node's thread writes it, once the other side may know
        log.clear()
        for _ in range(MOST):
            assert opened.enter_context(association(port)).is_established
        with association(port) as one:
            assert one.is_rejected
        until(lambda: f"{MOST} associations are open already" in log.text, "too many are not said")
        assert "title" not in log.text


def test_pauses_grow_to_ten_minutes():
    assert [pause(k) for k in (1, 2, 3, 8, 1000)] == [5, 10, 20, 600, 600]


def test_a_peer_that_is_away_gets_its_series_when_it_comes(make, log):
    archive = Archive()
    node = make(archive.port)
    with running(node) as port:
        send(thick(), port)
        until(lambda: "Tried again in 5 s" in log.text)
        assert there(node, "sending") == ["1.2.3.1"]
        send(thick(2), port)
        until(lambda: there(node, "sending") == ["1.2.3.1", "1.2.3.2"], "work goes on meanwhile")
        with archive:
            until(lambda: there(node, "done") == ["1.2.3.1", "1.2.3.2"])
    assert len(archive.series) == 2 and log.text.count("Tried again") < 4


@pytest.mark.parametrize(
    ("status", "stored"),
    [(0xB000, True), (0xB006, True), (0xB007, True), (0x0107, False), (0xA700, False), (0xC000, False)],
)
def test_what_a_peer_stores_with_a_remark_is_stored(status, stored, tmp_path):
    image = thick()[0]
    path = tmp_path / "one.dcm"
    path.write_bytes(_file_of(image))
    with Archive(remark=status) as archive:
        peer = Peer(f"ARCHIVE@127.0.0.1:{archive.port}", "DRIFT")
        if stored:
            return peer.store([path])
        with pytest.raises(ConnectionError, match=f"refuses one.dcm .status 0x{status:04X}"):
            peer.store([path])


def test_a_series_that_the_peer_refuses_holds_up_no_other_and_what_it_took_is_sent_once(make, log):
    """The first series makes two, of its two echoes; the peer takes one of them."""
    with Archive(refuses={1002}) as archive:
        node = make(archive.port)
        with running(node) as port:
            send(thick(1) + thick(2, SeriesInstanceUID="1.2.3.1", SeriesNumber=1, EchoTime=20), port)
            until(lambda: "refuses" in log.text)
            send(thick(3), port)
            until(lambda: there(node, "done") == ["1.2.3.3"])
            assert there(node, "sending") == ["1.2.3.1"]
            archive.refuses.clear()
            until(lambda: there(node, "done") == ["1.2.3.1", "1.2.3.3"])
    assert len(archive.series) == 3
    assert len({image.SOPInstanceUID for image in archive.images}) == len(archive.images)


def test_a_series_in_two_volumes_of_which_one_fails_sends_the_other_and_is_put_aside(make):
    """Two echoes: the second lacks a slice."""
    second = thick(2, SeriesInstanceUID="1.2.3.1", SeriesNumber=1, EchoTime=20)
    with Archive() as archive:
        node = make(archive.port)
        with running(node) as port:
            send(thick(1) + second[:2] + second[3:], port)
            until(lambda: there(node, "aside") == ["1.2.3.1"])
    assert len(archive.series) == 1
    assert "1 of 6 slices missing" in (node.spool.path / "aside" / "1.2.3.1" / "reason.txt").read_text()


def test_two_nodes_on_one_spool_do_each_series_once(make, log):
    with Archive() as archive:
        first, second = make(archive.port), make(archive.port)
        with running(first) as port, running(second) as other:
            for k in range(1, 5):
                send(thick(k), (port, other)[k % 2])
            until(lambda: len(there(first, "done")) == 4)
    assert len(archive.series) == 4 and len(archive.images) == sum(map(len, archive.series.values()))
    assert len({image.SOPInstanceUID for image in archive.images}) == len(archive.images)
    assert log.text.count(" rebuilt, ") == 4 and "failed" not in log.text and "Traceback" not in log.text


def test_what_another_node_is_at_is_left_alone(make):
    with Archive() as archive:
        node = make(archive.port)
        with running(node) as port:
            with alone(node.spool.path / "1.2.3.1"):
                send(thick(1), port)
                send(thick(2), port)
                until(lambda: [there(node, place) for place in ("done", "received")] == [["1.2.3.2"], ["1.2.3.1"]])
            until(lambda: there(node, "done") == ["1.2.3.1", "1.2.3.2"])


def test_several_series_interleaved_in_parallel_associations(make):
    """In each of three associations the images of its two series take turns."""
    parts = [[thick(k) for k in (j, j + 3)] for j in (1, 2, 3)]
    with Archive() as archive:
        node = make(archive.port, settle=1)
        with running(node) as port:
            senders = [
                threading.Thread(target=send, args=([image for images in zip(*part) for image in images], port))
                for part in parts
            ]
            for one in senders:
                one.start()
            for one in senders:
                one.join()
            until(lambda: len(there(node, "done")) == 6)
    assert len(archive.series) == 6
    assert {len(images[0].SourceImageSequence) for images in archive.series.values()} == {6}


def _serve(node, port):
    with node.listening("127.0.0.1", port, ["MODALITY"]):
        node.run()


def test_killed_at_any_time_it_goes_on(make):
    """-9 while it receives, works and sends, again and again: each series arrives whole, and no image is lost."""
    archive = Archive()
    node, port = make(archive.port, settle=0.5), free_port()
    context, killed = multiprocessing.get_context("fork"), 0
    images = {image.SOPInstanceUID: image for k in (1, 2, 3) for image in thick(k)}
    waiting = list(images.values())
    for delay in (0.1, 0.7, 1.0, 1.3, 1.6):
        process = context.Process(target=_serve, args=(node, port))
        process.start()
        with archive:
            until(lambda: _listens(port))
            sender = threading.Thread(target=_send_what_is_left, args=(waiting, port))
            sender.start()
            time.sleep(delay)
            process.kill()
            process.join()
            sender.join()
            killed += process.exitcode == -9
        held = [p.stem for state in STATES for p in (node.spool.path / state).rglob("[!.]*.dcm")]
        told = images.keys() - {image.SOPInstanceUID for image in waiting}
        assert told <= set(held), "what its sender was told is kept; one more may be, that was about to be told"
    assert killed == 5
    with archive, running(node, port) as port:
        _send_what_is_left(waiting, port)
        until(lambda: len(there(node, "done")) == 3)
    whole = [found for found in archive.series.values() if len(found[0].SourceImageSequence) == 6]
    assert len(whole) == 3 and there(node, "aside") == []
    for found in whole:
        once = {image.SOPInstanceUID: image for image in found}.values()
        assert [image.InstanceNumber for image in once] == list(range(1, len(once) + 1)) and len(once) > 20


def _listens(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _send_what_is_left(waiting, port):
    """As a scanner does: what was not confirmed is sent again next time."""
    with association(port) as one:
        while waiting and one.is_established:
            waiting[0].file_meta = FileMetaDataset()
            waiting[0].file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
            if getattr(one.send_c_store(waiting[0]), "Status", None) != 0:
                return
            del waiting[0]
            time.sleep(0.01)


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


def test_what_was_sent_is_removed_after_its_days_and_nothing_else(make):
    node = make(free_port())
    day = 86400
    for state, name, age in (("done", "1", 8), ("done", "2", 6), ("aside", "3", 99), ("sending", "4", 99)):
        for folder in (node.spool.path / state / name, node.spool.path / "results" / name):
            folder.mkdir()
            os.utime(folder, (time.time() - age * day,) * 2)
    node.spool.tidy(7)
    assert [there(node, state) for state in ("done", "aside", "sending")] == [["2"], ["3"], ["4"]]
    assert there(node, "results") == ["2", "3", "4"]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """Two authorities, each with the certificate of a host: 127.0.0.1, signed by it."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(words):
        subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)

    (folder / "san").write_text("subjectAltName=IP:127.0.0.1")
    for who in ("own", "other"):
        openssl(f"req -x509 -newkey rsa:2048 -nodes -keyout {who}-ca.key -out {who}-ca.pem -subj /CN={who} -days 2")
        openssl(f"req -newkey rsa:2048 -nodes -keyout {who}.key -out {who}.csr -subj /CN=host")
        openssl(
            f"x509 -req -in {who}.csr -CA {who}-ca.pem -CAkey {who}-ca.key -CAcreateserial -out {who}.pem -days 2 "
            "-extfile san"
        )

    def contexts(who):
        return tls_contexts(*(str(folder / name) for name in (f"{who}.pem", f"{who}.key", f"{who}-ca.pem")))

    contexts.folder = folder
    return contexts


def test_tls_takes_its_own_authority_alone_and_no_silent_caller_holds_it_up(make, certificates):
    server, client = certificates("own")
    _, wrong = certificates("other")
    node = make(free_port())
    with node.listening("127.0.0.1", 0, ["MODALITY"], server) as port:
        silent = socket.create_connection(("127.0.0.1", port))  # shakes no hands
        for tls in (None, (wrong, "127.0.0.1")):
            with association(port, tls=tls) as one:
                assert not one.is_established
        assert send(thick(), port, tls=(client, "127.0.0.1")) == [0] * 6
        silent.close()
        Peer(f"DRIFT@127.0.0.1:{port}", "MODALITY", client).echo()
        with pytest.raises(ConnectionError):
            Peer(f"DRIFT@127.0.0.1:{port}", "MODALITY", wrong).echo()
        with pytest.raises(ConnectionError):
            Peer(f"DRIFT@127.0.0.1:{port}", "MODALITY", None).echo()


GOOD = "--folder spool --send-to ARCHIVE@127.0.0.1:1 --allow MODALITY".split()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--send-to", "ARCHIVE"], "expected TITLE@HOST:PORT"),
        (["--aet", "A TITLE OF TOO MANY"], "is no title"),
        (["--tls", "a", "b", "c"], "--tls cannot be read"),
        (["--send-to", "ARCHIVE@127.0.0.1:70000"], "expected TITLE@HOST:PORT"),
        (["--port", "70000"], "--port is 70000: expected 0 to 65535"),
        (["--settle", "nan"], "--settle is nan"),
        (["--echo"], "ARCHIVE@127.0.0.1:1 does not answer"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(more, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main([*GOOD, *more])
    assert told in str(stop.value) and "\n" not in str(stop.value) and not list(tmp_path.iterdir())


def test_a_folder_of_other_things_is_no_spool(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "of mine.txt").write_text("x")
    with pytest.raises(InputError, match="holds other things"):
        Spool(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_an_empty_folder_is_closed_to_others_and_a_spool_that_is_open_to_all_is_refused(tmp_path):
    folder = tmp_path / "spool"
    folder.mkdir()
    folder.chmod(0o755)
    Spool(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o750)
    Spool(folder)
    assert folder.stat().st_mode & 0o777 == 0o750, "a group that somebody chose"
    folder.chmod(0o755)
    with pytest.raises(InputError, match="is open to everybody"):
        Spool(folder)


def test_weights_that_know_no_guides_are_refused_before_anything_is_put_aside(make):
    with pytest.raises(InputError, match="trained without guides"):
        make(free_port(), guide="auto")


def test_a_guide_is_of_each_study_and_has_no_name(capsys):
    assert parser().parse_args([*GOOD, "--guide"]).guide == "auto"
    with pytest.raises(SystemExit):
        parser().parse_args([*GOOD, "--guide", "t1.nii.gz"])
    assert "t1.nii.gz is one too many" in capsys.readouterr().err


def test_a_misspelt_option_is_told_the_nearest(capsys):
    with pytest.raises(SystemExit) as stop:
        parser().parse_args([*GOOD, "--setle", "5"])
    assert stop.value.code == 2 and "the nearest is --settle" in capsys.readouterr().err


def test_an_echo_asks_the_peer_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with Archive() as archive:
        main([*GOOD, "--send-to", f"ARCHIVE@127.0.0.1:{archive.port}", "--echo"])
    assert "answers" in capsys.readouterr().out and not list(tmp_path.iterdir())


STORESCU = shutil.which("storescu", path=os.defpath)  # dcmtk's: pynetdicom puts another of that name beside Python
NEEDS_ORTHANC = pytest.mark.skipif(
    not (shutil.which("Orthanc") and STORESCU), reason="needs Debian's orthanc and dcmtk"
)
COMMAND = "from drift_mri.{} import main; main()"


@contextmanager
def orthanc(folder, drift_port):
    """Orthanc by the example of bundle/node on ports of its own: (DICOM port, what asks its REST interface)."""
    config = json.loads((ROOT / "bundle" / "node" / "orthanc.json").read_text())
    dicom, http = free_port(), free_port()
    config |= {"DicomPort": dicom, "HttpPort": http, "StableAge": 2, "AuthenticationEnabled": False}
    config |= {"StorageDirectory": str(folder / "db"), "IndexDirectory": str(folder / "db")}
    config |= {"LuaScripts": [str(ROOT / "bundle" / "node" / "route.lua")], "Plugins": []}
    config["DicomModalities"]["drift"][2] = drift_port
    (folder / "orthanc.json").write_text(json.dumps(config))

    def ask(path):
        with urlopen(f"http://127.0.0.1:{http}{path}") as answer:
            return answer.read()

    with open(folder / "orthanc.log", "w") as log:
        process = subprocess.Popen(["Orthanc", folder / "orthanc.json"], stdout=log, stderr=log)
        try:
            until(lambda: _listens(dicom) and _listens(http), (folder / "orthanc.log").read_text())
            yield dicom, ask
        finally:
            process.terminate()
            process.wait(PATIENCE)


def command(name, *words, **given):
    """`drift-mri` or `drift-mri-node` with the weights that ship, from another folder."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND.format(name), *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **given,
    )


@NEEDS_ORTHANC
def test_storescu_to_orthanc_to_the_node_and_back(tmp_path):
    """The example of docs/node.md, as processes; the node is killed at work, goes on, and ends at SIGTERM."""
    voxels = (100 + 800 * np.random.default_rng(0).random((40, 40, 8))).astype(np.uint16)
    source = save(tmp_path / "scan", mr_slices(voxels, SeriesInstanceUID="1.2.3.9", PixelSpacing=[1, 1], spacing=5))
    port = free_port()
    with orthanc(tmp_path, port) as (dicom, ask), open(tmp_path / "node.log", "w") as log:
        words = ("--folder", "spool", "--send-to", f"ORTHANC@127.0.0.1:{dicom}", "--allow", "ORTHANC", "--settle", 2)
        node = command("node", *words, "--port", port, cwd=tmp_path, stdout=log, stderr=log)
        until(lambda: _listens(port), (tmp_path / "node.log").read_text(), 300)
        subprocess.run(
            [STORESCU, "-aet", "MODALITY", "-aec", "ORTHANC", "127.0.0.1", str(dicom), *source.iterdir()], check=True
        )
        until(lambda: any((tmp_path / "spool" / "working").iterdir()), patience=120)
        node.kill()
        node.wait()
        node = command("node", *words, "--port", port, cwd=tmp_path, stdout=log, stderr=log)
        until(lambda: (tmp_path / "spool" / "done" / "1.2.3.9").is_dir(), patience=300)
        time.sleep(5)  # what came back is stable, and does not go round
        node.terminate()
        assert node.wait(PATIENCE) == 0
        assert len(json.loads(ask("/studies"))) == 1 and len(json.loads(ask("/series"))) == 2
        images = [pydicom.dcmread(BytesIO(ask(f"/instances/{one}/file"))) for one in json.loads(ask("/instances"))]
    assert command("command", source, "-o", "out", "--output_format", "dicom", cwd=tmp_path).wait() == 0
    (folder,) = (tmp_path / "out").glob("*_sr")
    expected = {image.SOPInstanceUID: image for image in images_of(folder)}
    derived = {image.SOPInstanceUID: image for image in images if image.SeriesInstanceUID != "1.2.3.9"}
    assert derived.keys() == expected.keys() and len(images) == 8 + len(expected) and len(expected) > 30
    for name, image in derived.items():
        assert image.PixelData == expected[name].PixelData
        assert (image.StudyInstanceUID, image.FrameOfReferenceUID) == ("1.2.3", "1.2.3.5")
    assert "ended; the same command goes on" in (tmp_path / "node.log").read_text()
    assert [path.name for path in (tmp_path / "spool" / "received").iterdir()] == []


@NEEDS_ORTHANC
def test_dcmtk_sends_over_tls_with_the_right_certificate_alone(make, certificates, tmp_path):
    source = save(tmp_path / "scan", thick())
    node, folder = make(free_port()), certificates.folder
    with node.listening("127.0.0.1", 0, ["MODALITY"], certificates("own")[0]) as port:
        for who, fine in (("other", False), ("own", True)):
            words = [STORESCU, "+tls", folder / f"{who}.key", folder / f"{who}.pem", "+cf", folder / "own-ca.pem"]
            words += ["-aet", "MODALITY", "-aec", "DRIFT", "127.0.0.1", str(port), *source.iterdir()]
            done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
            assert (done.returncode == 0) == fine, done.stderr
    assert len(node.spool.images("received", "1.2.3.1")) == 6


@NEEDS_ORTHANC
def test_dcmtk_takes_results_over_tls_with_the_right_certificate_alone(certificates, tmp_path):
    files, folder, port = sorted(save(tmp_path / "scan", thick()).iterdir()), certificates.folder, free_port()
    words = ["+tls", folder / "own.key", folder / "own.pem", "+cf", folder / "own-ca.pem", "-od", tmp_path, str(port)]
    process = subprocess.Popen([shutil.which("storescp", path=os.defpath), *words])
    try:
        until(lambda: _listens(port))
        for tls in (None, certificates("other")[1]):
            with pytest.raises(ConnectionError):
                Peer(f"ARCHIVE@127.0.0.1:{port}", "DRIFT", tls).store(files)
        Peer(f"ARCHIVE@127.0.0.1:{port}", "DRIFT", certificates("own")[1]).store(files)
    finally:
        process.terminate()
        process.wait(PATIENCE)
    assert len(list(tmp_path.glob("MR.*"))) == 6
