"""DICOM over the network: what is taken is whole and on the disk; strangers are sent away and shut nobody out."""

import os
import resource
import shutil
import socket
import ssl
from contextlib import ExitStack

import pydicom
import pytest
from pydicom import uid
from pydicom.pixels import get_decoder
from pynetdicom import AE

from drift_mri.transfer import MOST, SILENCE, TLS, Peer
from tests.dicom_files import enhanced
from tests.node.peers import Archive, association, file_of, free_port, in_syntax, running, send, there, thick, until

pytestmark = pytest.mark.slow

STORESCU, STORESCP = (shutil.which(name, path=os.defpath) for name in ("storescu", "storescp"))  # dcmtk's


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
    whole = in_syntax(enhanced(thick()))
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


def test_objects_of_a_makers_own_kind_are_taken_and_put_aside(make, log):
    """CSA Non-Image objects of Siemens, and a query, which is answered by none."""
    kind, query = "1.3.12.2.1107.5.9.1", "1.2.840.10008.5.1.4.1.2.2.1"
    ae = AE(ae_title="MODALITY")
    for one in (kind, query):
        ae.add_requested_context(one, uid.ExplicitVRLittleEndian)
    thing = thick(2, SOPClassUID=kind, PixelData=None)[0]
    node = make(free_port())
    with running(node) as port:
        one = ae.associate("127.0.0.1", port, ae_title="DRIFT")
        assert [context.abstract_syntax for context in one.accepted_contexts] == [kind]
        assert one.send_c_store(in_syntax(thing)).Status == 0
        one.release()
        until(lambda: there(node, "aside") == ["1.2.3.2"])
    assert "objects of a maker's own kind" in (node.spool.path / "aside" / "1.2.3.2" / "reason.txt").read_text()


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


def test_strangers_are_refused_with_the_reason_and_garbage_harms_nobody(make, log):
    node = make(free_port())
    with node.listening("127.0.0.1", 0, ["MODALITY"]) as port, ExitStack() as opened:
        strangers = {"calling": ("STRANGER", "its title is not allowed"), "called": ("OTHER", "called another")}
        for how, (title, why) in strangers.items():
            with association(port, **{how: title}) as one:
                assert one.is_rejected
                until(lambda why=why: why in log.text, why)  # the node's thread writes it, once the other side may know
        assert "STRANGER" in log.text
        silent = socket.create_connection(("127.0.0.1", port))
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x01\x00\xff\xff\xff\xff", bytes(200)):
            with socket.create_connection(("127.0.0.1", port)) as one:
                one.sendall(garbage)
        with association(port) as one:
            assert one.is_established and one.send_c_echo().Status == 0
        silent.close()
        log.clear()
        for _ in range(MOST):
            assert opened.enter_context(association(port)).is_established
        with association(port) as one:
            assert one.is_rejected
        until(lambda: f"{MOST} associations are open already" in log.text, "too many are not said")
        assert "title" not in log.text
    assert there(node, "received") == []


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


@pytest.mark.parametrize(("status", "stored"), [(0xB007, True), (0x0107, False)])
def test_what_a_peer_stores_with_a_remark_is_stored(status, stored, tmp_path):
    image = thick()[0]
    path = tmp_path / "one.dcm"
    path.write_bytes(file_of(image))
    with Archive(remark=status) as archive:
        peer = Peer(f"ARCHIVE@127.0.0.1:{archive.port}", "DRIFT")
        if stored:
            return peer.store([path])
        with pytest.raises(ConnectionError, match=f"refuses one.dcm .status 0x{status:04X}"):
            peer.store([path])


def test_tls_takes_its_own_authority_alone_and_no_silent_caller_holds_it_up(make, certificates):
    server, client = certificates("own")
    node = make(free_port())
    with node.listening("127.0.0.1", 0, ["MODALITY"], server) as port:
        silent = socket.create_connection(("127.0.0.1", port))  # shakes no hands
        assert send(thick(), port, tls=(client, "127.0.0.1")) == [0] * 6
        silent.close()
        Peer(f"DRIFT@127.0.0.1:{port}", "MODALITY", client).echo()


@pytest.mark.parametrize(
    ("caller", "said", "told"),
    [
        ("without TLS", "it speaks no TLS", "does not answer"),
        ("without a certificate", "it shows no certificate", "does not take the certificate"),
        ("of another authority", "it shows a certificate of another authority", "does not take the certificate"),
        ("for another authority", "it does not take the certificate", "shows a certificate of another authority"),
    ],
)
def test_both_sides_say_why_tls_fails(caller, said, told, make, certificates, log):
    """The node's log has a line on each caller, and a message on a peer names the certificate."""
    bare = TLS(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(certificates.folder / "own-ca.pem")
    tls = {
        "without TLS": None,
        "without a certificate": bare,
        "of another authority": certificates("other", "own")[1],
        "for another authority": certificates("own", "other")[1],
    }[caller]
    node = make(free_port())
    with node.listening("127.0.0.1", 0, ["MODALITY"], certificates("own")[0]) as port:
        with pytest.raises(ConnectionError, match=told):
            Peer(f"DRIFT@127.0.0.1:{port}", "MODALITY", tls).echo()
        until(lambda: f"127.0.0.1 is refused: {said}" in log.text, log.text)
