"""The MONAI Label app: a real server, started as bundle/label/README.md says, with the shipped weights."""

import json
import os
import shutil
import socket
import subprocess
import time

import nibabel as nib
import numpy as np
import pytest
import requests

from scripts.inputs.sample import built_in_sample
from tests.dicom_files import VOXELS, mr_slices, save
from tests.inputs.dicom.test_read import compressed
from tests.processes import ROOT, environment, monai_bundle
from tests.volumes import random_affine

PYTHON = os.environ.get("DRIFT_LABEL_PYTHON")
TIMEOUT = 600  # s
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PYTHON is None,
        reason="needs MONAI Label: sh bundle/label/environment.sh DIR, then set DRIFT_LABEL_PYTHON to DIR/bin/python",
    ),
]


def command(folder, *arguments):
    """The documented command, in a copy of the app: the host makes folders beside it."""
    shutil.copytree(ROOT / "bundle" / "label", folder / "bundle" / "label", dirs_exist_ok=True)
    app = ("--app", "bundle/label", "--studies", "studies", *arguments)
    return [os.path.abspath(PYTHON), "-m", "monailabel.main", "start_server", *map(str, app)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A bundle, by links, and studies: a part of the built-in sample, tilted, in its own units; one with a sidecar."""
    folder = tmp_path_factory.mktemp("bundle")
    for name in ("configs", "models", "scripts"):
        (folder / name).symlink_to(ROOT / name)
    thick = nib.load(built_in_sample(folder / "sample").source).get_fdata()[50:98, 60:100, 8:18]
    scan = (thick / thick.max() * 3000 - 1000).astype(np.int16)
    (folder / "studies").mkdir()
    nib.save(nib.Nifti1Image(scan, random_affine([1, 1, 4], 0)), folder / "studies" / "scan.nii.gz")
    nib.save(nib.Nifti1Image(scan[:16, :16, :6], random_affine([1, 1, 4], 0)), folder / "studies" / "small.nii.gz")
    (folder / "studies" / "small.json").write_text(json.dumps({"SliceThickness": 3.5}))
    return folder


@pytest.fixture(scope="module")
def server(folder):
    """Address of the running server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with open(folder / "log.txt", "w") as log:
        process = subprocess.Popen(
            command(folder, "--host", "127.0.0.1", "--port", port),
            cwd=folder,
            env=environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            while True:
                assert process.poll() is None, (folder / "log.txt").read_text()
                try:
                    requests.get(f"{address}/info/", timeout=TIMEOUT).raise_for_status()
                    break
                except requests.ConnectionError:
                    time.sleep(0.5)
            yield address
        finally:
            process.terminate()
            process.wait()


def ask(server, name="", output="image", file=None, model="drift", **params):
    url = f"{server}/infer/{model}"
    files = {"file": open(file, "rb")} if file else None
    query, data = {"image": name, "output": output}, {"params": json.dumps(params)}
    return requests.post(url, params=query, data=data, files=files, timeout=TIMEOUT)


def saved(answer, path):
    assert answer.status_code == 200, answer.text
    path.write_bytes(answer.content)
    return nib.load(path)


def own(source, folder, **options):
    """What the bundle's command makes of a scan."""
    options = [text for name, value in options.items() for text in (f"--{name}", value)]
    config = ROOT / "configs" / "inference.yaml"
    result = monai_bundle("run", "--config_file", config, "--input", source, "--output_dir", folder, *options)
    assert result.returncode == 0, result.stderr
    return nib.load(next(folder.glob("*_sr.nii.gz")))


def assert_same(result, expected):
    assert result.get_data_dtype() == expected.get_data_dtype() == np.float32
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.affine, expected.affine, atol=1e-4)
    np.testing.assert_allclose(result.get_fdata(), expected.get_fdata(), atol=0.01)  # of 3000


def test_a_scan_of_the_studies_comes_back_as_from_the_command_line_with_its_options(server, folder, tmp_path):
    """By its name and as a file that is sent; options that stay empty are the bundle's own."""
    source = folder / "studies" / "scan.nii.gz"
    empty = requests.get(f"{server}/info/", timeout=TIMEOUT).json()["models"]["drift"]["config"]
    plain = saved(ask(server, "scan", **empty), tmp_path / "sr.nii.gz")
    assert_same(plain, own(source, tmp_path / "plain"))
    options = {"slice_thickness": 6, "target_thickness": 1.25}
    result = saved(ask(server, file=source, **options), tmp_path / "sr2.nii.gz")
    assert_same(result, own(source, tmp_path / "own", **options))
    assert result.shape != plain.shape
    facts = ask(server, "small", output="json", target_thickness=0.9).json()  # 3.5 mm: its sidecar
    assert (facts["slice_thickness"], facts["sources"]["target_spacing"]) == (3.5, "given")


def test_the_documented_environment_reads_compressed_dicom(server, folder, tmp_path):
    source = save(folder / "studies" / "jpeg", mr_slices(np.kron(VOXELS, np.ones((2, 2, 1), np.uint16))))
    for path in source.iterdir():
        compressed(path, "JPEGLosslessProcess14_1")
    assert_same(saved(ask(server, "jpeg"), tmp_path / "sr.nii.gz"), own(source, tmp_path / "own"))


NHDR = "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 16 16 6\nspacings: 1 1 4\nencoding: raw\ndata file: {}\n"


def test_a_request_runs_no_code_and_opens_nothing_outside_of_the_studies(server, folder, tmp_path):
    """Voxels of another file would come back as an image."""
    shutil.copy(folder / "studies" / "small.nii.gz", folder / "other.nii.gz")
    secret, header = tmp_path / "secret", tmp_path / "scan.nhdr"
    secret.write_bytes(bytes(range(256)) * 6)
    header.write_text(NHDR.format(secret))
    code = f"$__import__('pathlib').Path({str(tmp_path / 'ran')!r}).touch()"
    refused = {
        "no image of that name": ask(server, "studies/../other.nii.gz"),
        "no image of that name ": ask(server, "small", image=f"{folder}/other.nii.gz"),
        "no guide of that name": ask(server, "small", guide=f"{folder}/other.nii.gz"),
        "one file in its own folder": ask(server, file=header),
        "slice_thickness is": ask(server, "small", slice_thickness=code),
        "expected true or false": ask(server, "small", motion=code),
        "thickness is no option: expected ": ask(server, "small", thickness=3),
        "result_extension is '.png'": ask(server, "small", result_extension=".png"),
    }
    for said, answer in refused.items():
        assert (answer.status_code, said.strip() in answer.text) == (400, True), said
    assert not (tmp_path / "ran").exists()
