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
from tests.dicom_files import ORIENTATIONS, mr_slices, save
from tests.processes import ROOT, environment, monai_bundle
from tests.volumes import oblique

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
    nib.save(nib.Nifti1Image(scan, oblique()), folder / "studies" / "scan.nii.gz")
    nib.save(nib.Nifti1Image(scan[:16, :16, :6], oblique()), folder / "studies" / "small.nii.gz")
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


@pytest.fixture(scope="module")
def by_name(server, tmp_path_factory):
    """The scan of the studies, rebuilt by the bundle's defaults."""
    return saved(ask(server, "scan"), tmp_path_factory.mktemp("by_name") / "sr.nii.gz")


def test_a_scan_of_the_studies_comes_back_as_from_the_command_line(by_name, folder, tmp_path):
    scan = nib.load(folder / "studies" / "scan.nii.gz")
    assert_same(by_name, own(folder / "studies" / "scan.nii.gz", tmp_path))
    np.testing.assert_allclose(by_name.header.get_zooms(), 1, atol=1e-5)
    assert by_name.shape == (*scan.shape[:2], 4 * scan.shape[2])
    centres = [image.affine @ [*(np.array(image.shape) - 1) / 2, 1] for image in (by_name, scan)]
    np.testing.assert_allclose(*centres, atol=1e-3)  # the volume's, in mm


def test_options_of_a_request_are_those_of_the_command_line(server, by_name, folder, tmp_path):
    source = folder / "studies" / "scan.nii.gz"
    options = {"slice_thickness": 6, "target_thickness": 1.25}
    result = saved(ask(server, file=source, **options), tmp_path / "sr.nii.gz")
    assert_same(result, own(source, tmp_path / "own", **options))
    assert result.header.get_zooms()[2] == pytest.approx(1.25, abs=1e-5)
    assert result.shape != by_name.shape


def test_empty_options_are_the_bundles_own_and_no_request_outlives_itself(server, by_name, tmp_path):
    options = requests.get(f"{server}/info/", timeout=TIMEOUT).json()["models"]["drift"]["config"]
    numbers = ["slice_thickness", "slice_spacing", "target_thickness", "slice_axis"]
    assert list(options) == [*numbers, "both_planes", "isotropic", "flips"]
    assert_same(saved(ask(server, "scan", **options), tmp_path / "sr.nii.gz"), by_name)


def test_the_answer_says_what_was_taken_for_the_acquisition(server):
    facts = ask(server, "small", output="json", target_thickness=0.9).json()  # 3.5 mm: its sidecar
    assert [facts[name] for name in ("slice_axis", "slice_thickness", "target_spacing")] == [2, 3.5, 0.9]
    assert facts["slice_spacing"] == pytest.approx(4)
    assert "small.json" in facts["sources"]["slice_thickness"]
    assert facts["sources"]["target_spacing"] == "given"
    assert facts["steps"] > 0


def test_a_folder_with_one_dicom_series_is_rebuilt(server, folder, tmp_path):
    voxels, series = (np.random.default_rng(0).random((14, 12, 6)) * 1000).astype(np.uint16), folder / "studies/series"
    save(series, mr_slices(voxels, ORIENTATIONS["oblique"]))
    result = saved(ask(server, "series"), tmp_path / "sr.nii.gz")
    assert_same(result, own(series, tmp_path / "own"))
    assert_same(saved(ask(server, str(series)), tmp_path / "sr2.nii.gz"), result)
    save(series / "b", mr_slices(voxels, ORIENTATIONS["oblique"], SeriesInstanceUID="1.2.3.9"))
    answer = ask(server, "series")
    assert (answer.status_code, "2 scans" in answer.text) == (400, True)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"slice_thickness": "thick"}, "slice_thickness is 'thick': expected a number"),
        ({"slice_thickness": -1}, "slice_thickness is -1.0: expected 0.2 to 20 mm"),
        ({"slice_axis": "1.5"}, "slice_axis is '1.5': expected a number"),
        ({"both_planes": "maybe"}, "both_planes is 'maybe': expected true or false"),
        ({"result_extension": ".png"}, "result_extension is '.png': expected .nii.gz, .nii, .nrrd"),
    ],
)
def test_a_bad_option_is_told(params, words, server):
    answer = ask(server, "small", **params)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(words) or words in answer.json()["detail"]


@pytest.mark.parametrize("option", "image slice_thickness slice_axis flips result_extension bundle_root".split())
def test_a_request_runs_no_code(option, server, tmp_path):
    expression = f"$__import__('pathlib').Path({str(tmp_path / 'ran')!r}).touch()"
    ask(server, "small", **{option: expression})
    assert not (tmp_path / "ran").exists()


HEADERS = {  # of 16 x 16 x 6 bytes that lie elsewhere
    "scan.nhdr": "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 16 16 6\nspacings: 1 1 4\nencoding: raw\ndata file: {}\n",
    "scan.nrrd": "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 16 16 6\nspacings: 1 1 4\nencoding: raw\nDATAFILE: {}\n",
    "scan.mhd": "ObjectType = Image\nNDims = 3\nDimSize = 16 16 6\nElementSpacing = 1 1 4\nElementType = MET_UCHAR\n"
    "ElementDataFile = {}\n",
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_is_sent_reads_no_file_of_the_server(name, server, tmp_path):
    """Its bytes would come back as an image."""
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(range(256)) * 6)
    for data in (secret, os.path.relpath(secret, "/tmp"), os.path.relpath(secret, "/tmp/folder")):
        (tmp_path / name).write_text(HEADERS[name].format(data))
        answer = ask(server, file=tmp_path / name)
        assert (answer.status_code, "one file in its own folder" in answer.json()["detail"]) == (400, True)


@pytest.mark.parametrize(
    ("outside", "place"),
    [("studies/../other.nii.gz", "query"), ("../other.nii.gz", "params"), ("{folder}/other.nii.gz", "params")]
    + [("nobody", "params"), (".", "params")],
)
def test_a_scan_outside_of_the_studies_is_not_opened(place, outside, server, folder):
    shutil.copy(folder / "studies" / "small.nii.gz", folder / "other.nii.gz")
    path = outside.format(folder=folder)
    answer = ask(server, path) if place == "query" else ask(server, "small", **{"image": path})
    assert (answer.status_code, "no image of that name" in answer.text) == (400, True)


@pytest.mark.parametrize("guide", [".", "{folder}/other.nii.gz"])
def test_a_guide_that_is_not_in_the_studies_is_told(guide, server, folder):
    shutil.copy(folder / "studies" / "small.nii.gz", folder / "other.nii.gz")
    answer = ask(server, "small", guide=guide.format(folder=folder))
    assert (answer.status_code, "no guide of that name" in answer.text) == (400, True)


def test_a_folder_that_is_no_bundle_stops_the_start(tmp_path):
    arguments = command(tmp_path, "--conf", "bundle", tmp_path, "--host", "127.0.0.1", "--port", 0)
    result = subprocess.run(arguments, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=TIMEOUT)
    assert result.returncode != 0
    assert (
        f"{tmp_path} has no configs/inference.yaml. Set --conf bundle to the bundle." in result.stdout + result.stderr
    )
