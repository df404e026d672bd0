"""The MONAI Deploy application, run as a user runs it, from the environment that bundle/deploy/README.md makes."""

import json
import os
import re
import shutil
import subprocess
import tomllib

import numpy as np
import pytest
import yaml

from tests.dicom_files import ORIENTATIONS, VOXELS, images_of, mr_slices, save
from tests.nano import NETWORK, random_weights, write_yaml
from tests.processes import ROOT, assert_told_in_one_line, environment, monai_bundle

DEPLOY = ROOT / "bundle" / "deploy"
PYTHON = os.environ.get("DRIFT_DEPLOY_PYTHON")
needs_sdk = pytest.mark.skipif(
    PYTHON is None,
    reason="needs the App SDK: python -m venv DIR && DIR/bin/pip install -r bundle/deploy/requirements.txt, then set "
    "DRIFT_DEPLOY_PYTHON to DIR/bin/python",
)
TIMEOUT = 600  # s
SERIES = {"SeriesInstanceUID": "1.2.3.6", "SeriesNumber": 8, "SeriesDescription": "flair"}


def deploy(*arguments, cwd, **variables):
    command = [os.path.abspath(PYTHON), DEPLOY / "app.py", *map(str, arguments)]
    variables = environment() | {name: str(value) for name, value in variables.items()}
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=TIMEOUT)


@pytest.fixture
def models(tmp_path):
    """A bundle with a small network, in a folder as a MONAI Application Package has it."""
    models = tmp_path / "models"
    for name in ("configs", "scripts"):
        shutil.copytree(ROOT / name, models / "drift" / name, ignore=shutil.ignore_patterns("__pycache__"))
    path = models / "drift" / "configs" / "inference.yaml"
    config = yaml.safe_load(path.read_text()) | NETWORK
    config["inferer"] |= {"roi_size": 16, "n_max": 2}
    write_yaml(path, config)
    (models / "drift" / "models").mkdir()
    random_weights(models / "drift" / "models" / "model.pt")
    return models


@needs_sdk
def test_each_thick_series_of_a_study_becomes_the_series_that_the_command_line_writes(models, tmp_path):
    """One tilted, one sagittal in steps of 0.5, and a localizer; by the variables of a package, in place of arguments.

    A series that lacks a slice is named, and the others are rebuilt. Warnings go into the archive.
    """
    study, gap = tmp_path / "study", mr_slices(VOXELS, SeriesInstanceUID="1.2.3.9", SeriesNumber=9)
    doubtful = {"SpacingBetweenSlices": 5.5, "ProtocolName": "t2 spine"}  # of slices 4.8 mm apart
    save(study / "a", mr_slices(VOXELS, ORIENTATIONS["oblique"], **doubtful))
    halves = {"RescaleSlope": 0.5, "RescaleIntercept": 20}
    save(study / "b" / "deep", mr_slices(VOXELS, ORIENTATIONS["sagittal"], **SERIES, **halves))
    scout = {"SeriesInstanceUID": "1.2.3.7", "ImageType": ["ORIGINAL", "PRIMARY", "LOCALIZER"]}
    save(study / "scout", mr_slices(VOXELS, **scout))
    save(study / "gap", gap[:2] + gap[3:])
    ours, theirs = tmp_path / "deploy", tmp_path / "cli"
    paths = {"HOLOSCAN_INPUT_PATH": study, "HOLOSCAN_OUTPUT_PATH": ours, "HOLOSCAN_MODEL_PATH": models}
    result = deploy(cwd=tmp_path, **paths)
    assert_told_in_one_line(result, "009-t2_tse", "1 of 6 slices missing")
    assert "localizer" in result.stderr
    options = ("--input", study, "--output_dir", theirs, "--output_format", "dicom")
    monai_bundle("run", "--config_file", "configs/inference.yaml", *options, cwd=models / "drift")
    names = sorted(folder.name for folder in ours.iterdir())
    assert [re.sub("-[0-9a-f]{6}_sr$", "", name) for name in names] == ["007-t2_tse", "008-flair"]
    for name in names:
        images, others = images_of(ours / name), images_of(theirs / name)
        assert len(images) == len(others) > 20
        warned = [text in others[0].get("ImageComments", "") for text in ("header is 5.5 mm", "says SPINE")]
        assert warned == ["t2_tse" in name] * 2
        for image, other in zip(images, others):
            for keyword in (
                "ImagePositionPatient ImageOrientationPatient PixelSpacing SliceThickness ImageType SeriesDescription "
                "PatientName StudyInstanceUID FrameOfReferenceUID"
            ).split():
                assert image[keyword] == other[keyword]
            assert image.get("ImageComments", "") == other.get("ImageComments", "")
            assert image.get("RescaleSlope") == other.get("RescaleSlope")
            np.testing.assert_allclose(image.pixel_array.astype(int), other.pixel_array.astype(int), atol=1)


# --- what stands in two places ---


def test_requirements_are_those_of_the_bundle():
    """The packager reads one file, so what the application needs stands there again."""
    lines = (line.partition("#")[0].strip() for line in (DEPLOY / "requirements.txt").read_text().splitlines())
    own = {line for line in lines if line}
    bundle = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    package = re.compile("[a-z-]+")
    shared = {package.match(line)[0] for line in own} & {package.match(line)[0] for line in bundle}
    assert len(shared) > 5
    assert {line for line in own if package.match(line)[0] in shared} <= bundle


def test_the_package_has_the_version_of_the_bundle():
    version = json.loads((ROOT / "configs" / "metadata.json").read_text())["version"]
    assert yaml.safe_load((DEPLOY / "app.yaml").read_text())["application"]["version"] == version
