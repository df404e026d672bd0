"""Who speaks with a node: modalities that send, an archive that keeps what it gets, and a node that runs."""

import socket
import threading
import time
from contextlib import contextmanager
from io import BytesIO

import numpy as np
import pydicom
from pydicom import uid
from pydicom.dataset import FileMetaDataset
from pynetdicom import AE, evt
from pynetdicom.sop_class import Verification

from tests.dicom_files import mr_slices

SYNTAXES = [uid.ExplicitVRLittleEndian, uid.ImplicitVRLittleEndian]
PATIENCE = 180  # seconds; a machine may be busy


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def listens(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


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


def in_syntax(image, syntax=uid.ExplicitVRLittleEndian):
    """The image, as it is sent or written."""
    image.file_meta = FileMetaDataset()
    image.file_meta.TransferSyntaxUID = syntax
    image.file_meta.MediaStorageSOPClassUID = image.SOPClassUID
    image.file_meta.MediaStorageSOPInstanceUID = image.SOPInstanceUID
    return image


def file_of(image):
    """The content of a file in the implicit syntax."""
    content = BytesIO()
    pydicom.dcmwrite(content, in_syntax(image, uid.ImplicitVRLittleEndian), enforce_file_format=True)
    return content.getvalue()


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
        return [one.send_c_store(in_syntax(image)).Status for image in images]


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
