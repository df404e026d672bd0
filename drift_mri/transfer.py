"""DICOM over the network: results go to a peer, and allowed titles may send."""

import logging
import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydicom import dcmread, uid
from pydicom.pixels import get_decoder

from scripts.errors import InputError, logger  # `command` has put the bundle on the path

try:
    from pynetdicom import AE, ALL_TRANSFER_SYNTAXES, AllStoragePresentationContexts, build_context, evt, register_uid
    from pynetdicom.service_class import StorageServiceClass
    from pynetdicom.sop_class import Verification  # type: ignore[attr-defined]  # made when it is imported
except ImportError:
    raise SystemExit("error: drift-mri-node needs pynetdicom: pip install 'drift-mri-superresolution[node]'.") from None

logging.getLogger("pynetdicom").setLevel(logging.CRITICAL)  # it logs each message, and garbage with a trace

TITLE = r"(?! *$)[ -\[\]-~]{1,16}"  # PS3.5, 6.2: AE
SUCCESS = 0x0000  # PS3.7, C and PS3.4, B.2.3
STORED = (SUCCESS, 0xB000, 0xB006, 0xB007)  # the last three: with a remark
MOST, SILENCE = 32, 5.0  # associations at once; seconds in which a caller has to ask for one
REFUSED = {  # PS3.8, 9.3.4: source and reason
    (1, 3): "its title is not allowed",
    (1, 7): "it called another title",
    (3, 2): f"{MOST} associations are open already",
}


TLS_FAULTS = {  # a part of OpenSSL's reason -> in words
    "DID_NOT_RETURN_A_CERTIFICATE": "shows no certificate",
    "CERTIFICATE_VERIFY_FAILED": "shows a certificate of another authority, host or time than is expected",
    "CERTIFICATE": "does not take the certificate that it is shown",
    "UNKNOWN_CA": "does not take the certificate that it is shown",
    "": "speaks no TLS",
}


class Peer:
    """The application `TITLE@HOST:PORT` that gets the results of a node whose title is `own`."""

    def __init__(self, name: str, own: str, tls: "TLS | None" = None):
        found = re.fullmatch(rf"({TITLE})@([^@]+):(\d{{1,5}})", name)
        if not found or int(found[3]) > 65535:
            raise InputError(f"--send-to is {name}: expected TITLE@HOST:PORT, such as ORTHANC@127.0.0.1:4242.")
        self.name, self.own, self.tls = name, own, tls
        self.title, self.host, self.port = found[1], found[2].strip("[]"), int(found[3])

    @contextmanager
    def _association(self, what: Any, syntaxes: list[str]) -> Iterator[Any]:
        ae = AE(ae_title=self.own)
        ae.add_requested_context(what, syntaxes)
        secured = None
        if self.tls is not None:
            self.tls.fault, secured = "", (self.tls, self.host)
        association = ae.associate(self.host, self.port, ae_title=self.title, tls_args=secured)
        if not association.is_established:
            why = f"refuses {self.own}" if association.is_rejected else "does not answer"
            raise ConnectionError(f"{self.name} {(self.tls and self.tls.fault) or why}")
        try:
            yield association
        finally:
            association.release()

    def echo(self) -> None:
        """Asks whether it is there, by C-ECHO; else a `ConnectionError`."""
        with self._association(Verification, [uid.ImplicitVRLittleEndian]) as association:
            if getattr(association.send_c_echo(), "Status", None) != SUCCESS:
                raise ConnectionError(f"{self.name} does not answer C-ECHO")

    def store(self, files: Sequence[Path]) -> None:
        """Sends the images of a series, in one association; a `ConnectionError` if it has not taken them all."""
        with self._association(uid.MRImageStorage, [uid.ExplicitVRLittleEndian, uid.ImplicitVRLittleEndian]) as peer:
            for file in files:
                status = getattr(peer.send_c_store(dcmread(file)), "Status", None)
                if status not in STORED:
                    why = "has broken off" if status is None else f"refuses {file.name} (status 0x{status:04X})"
                    raise ConnectionError(f"{self.name} {why}")


class _Application(AE):
    """The listener. A connection that has not asked for an association is none, and takes no other's place."""

    @property
    def active_associations(self) -> list[Any]:
        return [one for one in super().active_associations if one.requestor.primitive is not None]


def _is_stored(kind: uid.UID) -> bool:
    """Whether a SOP class that pynetdicom does not list may be of objects that archives keep: a maker's, or retired."""
    return kind.is_private or bool(re.search("Storage(Retired)?$", kind.keyword))


@contextmanager
def answering(
    title: str,
    store: Callable[[evt.Event], int],
    address: tuple[str, int],
    allow: Sequence[str],
    tls: "TLS | None" = None,
) -> Iterator[int]:
    """Answers C-STORE and C-ECHO of allowed titles while the block runs. Yields the port; 0 takes a free one.

    Objects of every kind are taken, those of a maker's own kinds as well: studies hold them beside images.
    """
    ae = _Application(ae_title=title)
    ae.require_called_aet, ae.require_calling_aet = True, list(allow)
    ae.maximum_associations, ae.acse_timeout = MOST, SILENCE
    ae.add_supported_context(Verification)
    syntaxes = []
    for one in map(uid.UID, ALL_TRANSFER_SYNTAXES):
        with suppress(NotImplementedError):  # films
            syntaxes += [one] if not one.is_encapsulated or get_decoder(one).is_available else []
    for context in AllStoragePresentationContexts:
        ae.add_supported_context(context.abstract_syntax, syntaxes)  # type: ignore[arg-type]  # it has one

    def requested(event: evt.Event) -> None:
        caller, known = event.assoc.requestor, {one.abstract_syntax for one in event.assoc.acceptor.supported_contexts}
        if caller.primitive.calling_ae_title in allow:
            kinds = {one.abstract_syntax for one in caller.primitive.presentation_context_definition_list} - known
            for kind in filter(_is_stored, kinds):
                register_uid(kind, f"Kind_{kind.replace('.', '_')}", StorageServiceClass)
                event.assoc.acceptor.supported_contexts.append(build_context(kind, syntaxes))

    def refused(event: evt.Event) -> None:
        who, answer = event.assoc.requestor, event.assoc.acceptor.primitive
        why = REFUSED.get((answer.result_source, answer.diagnostic), "its request is none that is understood")
        logger.warning(f"{who.ae_title} at {who.address} is refused: {why}.")

    handlers: Any = [(evt.EVT_C_STORE, store), (evt.EVT_REQUESTED, requested), (evt.EVT_REJECTED, refused)]
    try:
        server: Any = ae.start_server(address, block=False, evt_handlers=handlers, ssl_context=tls)
    except OSError as error:
        raise InputError(f"{address[0]}:{address[1]} is not free ({error.strerror}). Choose another --port.") from error
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()


class _Socket(ssl.SSLSocket):
    """A connection whose faults of TLS are told: pynetdicom takes them for one that is closed.

    They come with the handshake. A client knows only when it first reads whether its own certificate is taken.

    Attributes:
        caller: address of a server's other side, which may be gone by then.
    """

    caller = ""

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise  # nothing has come, or nothing more comes
        except ssl.SSLError as error:
            fault = next(words for part, words in TLS_FAULTS.items() if part in (error.reason or ""))
            self.context.fault = fault  # type: ignore[attr-defined]  # of `TLS`
            if self.server_side:
                logger.warning(f"{self.caller} is refused: it {fault}.")
            raise

    def do_handshake(self, block: bool = False) -> None:
        with self._telling():
            super().do_handshake(block)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        with self._telling():
            return super().recv(buflen, flags)


class TLS(ssl.SSLContext):
    """TLS of a server or a client. A server shakes hands with each caller apart: a silent one holds up no other.

    Attributes:
        fault: the last one, in words.
    """

    sslsocket_class = _Socket
    fault = ""

    def wrap_socket(self, sock, server_side=False, do_handshake_on_connect=True, **given):  # type: ignore[no-untyped-def, override]
        """As of `ssl.SSLContext`."""
        at_once, caller = do_handshake_on_connect and not server_side, sock.getpeername()[0] if server_side else ""
        made = super().wrap_socket(sock, server_side=server_side, do_handshake_on_connect=at_once, **given)
        made.caller = caller
        return made


def tls_contexts(certificate: str, key: str, authority: str) -> tuple[TLS, TLS]:
    """TLS of the server and of the client. Both sides show a certificate that the authority has signed."""
    server, client = TLS(ssl.PROTOCOL_TLS_SERVER), TLS(ssl.PROTOCOL_TLS_CLIENT)
    server.verify_mode = ssl.CERT_REQUIRED
    try:
        for one in (server, client):
            one.load_cert_chain(certificate, key)
            one.load_verify_locations(authority)
    except OSError as error:
        raise InputError(f"--tls cannot be read ({error}). Give a certificate, its key and the authority's.") from error
    return server, client
