"""`drift-mri-node` as people type it, alone and between a modality and Orthanc."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from io import BytesIO
from urllib.request import urlopen

import numpy as np
import pydicom
import pytest

from drift_mri.node import main, pause
from scripts.errors import InputError
from tests.config_files import ROOT
from tests.dicom_files import images_of, mr_slices, save
from tests.node.peers import PATIENCE, Archive, free_port, listens, until

pytestmark = pytest.mark.slow

GOOD = "--folder spool --send-to ARCHIVE@127.0.0.1:1 --allow MODALITY".split()
STORESCU = shutil.which("storescu", path=os.defpath)  # dcmtk's: pynetdicom puts another of that name beside Python
COMMAND = "from drift_mri.{} import main; main()"


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
    with pytest.raises(InputError) as stop:
        main([*GOOD, *more])
    assert told in str(stop.value) and "\n" not in str(stop.value) and not list(tmp_path.iterdir())


def test_an_echo_asks_the_peer_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with Archive() as archive:
        main([*GOOD, "--send-to", f"ARCHIVE@127.0.0.1:{archive.port}", "--echo"])
    assert "answers" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_pauses_grow_to_ten_minutes():
    assert [pause(k) for k in (1, 2, 3, 8, 1000)] == [5, 10, 20, 600, 600]


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
            until(lambda: listens(dicom) and listens(http), (folder / "orthanc.log").read_text())
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


@pytest.mark.skipif(not (shutil.which("Orthanc") and STORESCU), reason="needs Debian's orthanc and dcmtk")
def test_storescu_to_orthanc_to_the_node_and_back(tmp_path):
    """The example of docs/node.md, as processes; the node is killed at work, goes on, and ends at SIGTERM."""
    voxels = (100 + 800 * np.random.default_rng(0).random((40, 40, 8))).astype(np.uint16)
    source = save(tmp_path / "scan", mr_slices(voxels, SeriesInstanceUID="1.2.3.9", PixelSpacing=[1, 1], spacing=5))
    port = free_port()
    with orthanc(tmp_path, port) as (dicom, ask), open(tmp_path / "node.log", "w") as log:
        words = ("--folder", "spool", "--send-to", f"ORTHANC@127.0.0.1:{dicom}", "--allow", "ORTHANC", "--settle", 2)
        node = command("node", *words, "--port", port, cwd=tmp_path, stdout=log, stderr=log)
        until(lambda: listens(port), (tmp_path / "node.log").read_text(), 300)
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
