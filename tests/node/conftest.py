"""A node with a tiny network, and certificates of two authorities."""

import shutil
import subprocess

import pytest

from drift_mri.node import Node
from drift_mri.spool import Spool
from drift_mri.transfer import Peer, tls_contexts
from tests.config_files import parser as config_parser
from tests.fixtures import TINY, load_once


@pytest.fixture
def make(bundle, tmp_path):
    """A node with a tiny network on `tmp_path / "spool"`, which sends to a port."""

    def node(port, settle=0.3, keep=7, tls=None, **given):
        spool = Spool(tmp_path / "spool")
        own = {"output_dir": str(spool.path), "output_format": "dicom", "ckpt_path": str(bundle.weights), **TINY}
        config = config_parser("inference.yaml", **{**own, **given})
        load_once(config, bundle.weights)
        return Node(config, spool, Peer(f"ARCHIVE@127.0.0.1:{port}", "DRIFT", tls), settle, keep)

    return node


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

    def contexts(who, authority=None):
        return tls_contexts(
            *(str(folder / name) for name in (f"{who}.pem", f"{who}.key", f"{authority or who}-ca.pem"))
        )

    contexts.folder = folder
    return contexts
