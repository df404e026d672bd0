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
from pydicom.pixels import apply_modality_lut
from scipy.ndimage import gaussian_filter

from scripts.inputs.dicom import find_series, read_series
from tests.dicom_files import DCM2NIIX, ORIENTATIONS, THIN, images_of, mr_slices, save, through_dcm2niix
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


def voxels(seed, shape=(14, 12, 6)):
    """A smooth volume, values 0 to 1000."""
    volume = gaussian_filter(np.random.default_rng(seed).random(shape), 2)
    return (1000 * (volume - volume.min()) / np.ptp(volume)).astype(np.uint16)


def deploy(*arguments, cwd, **variables):
    command = [os.path.abspath(PYTHON), DEPLOY / "app.py", *map(str, arguments)]
    variables = environment() | {name: str(value) for name, value in variables.items()}
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=TIMEOUT)


def names(folder):
    """What the application wrote, with the marks that stand for UIDs left out."""
    return sorted(re.sub("-[0-9a-f]{6}_sr$", "", path.name) for path in folder.iterdir())


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two thick series, one tilted and one sagittal with intensities in steps of 0.5; a localizer; a letter."""
    folder = tmp_path_factory.mktemp("study")
    save(folder / "a", mr_slices(voxels(0), ORIENTATIONS["oblique"]))
    halves = {"RescaleSlope": 0.5, "RescaleIntercept": 20}
    save(folder / "b" / "deep", mr_slices(voxels(1), ORIENTATIONS["sagittal"], **SERIES, **halves))
    scout = {"SeriesInstanceUID": "1.2.3.7", "ImageType": ["ORIGINAL", "PRIMARY", "LOCALIZER"]}
    save(folder / "scout", mr_slices(voxels(2)[:, :, :3], **scout))
    (folder / "letter.txt").write_text("Dear colleague")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A bundle with a small network, in a folder as a MONAI Application Package has it."""
    models = tmp_path_factory.mktemp("models")
    for name in ("configs", "scripts"):
        shutil.copytree(ROOT / name, models / "drift" / name, ignore=shutil.ignore_patterns("__pycache__"))
    path = models / "drift" / "configs" / "inference.yaml"
    config = yaml.safe_load(path.read_text()) | NETWORK
    config["inferer"] |= {"roi_size": 16, "n_max": 2}
    write_yaml(path, config)
    (models / "drift" / "models").mkdir()
    random_weights(models / "drift" / "models" / "model.pt")
    return models


@pytest.fixture(scope="module")
def results(study, models, tmp_path_factory):
    """Folders of the application's results and of those of the command line, for the same study and bundle."""
    folder = tmp_path_factory.mktemp("results")
    result = deploy("-i", study, "-o", folder / "deploy", "-m", models, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "localizer" in result.stderr
    options = ("--input", study, "--output_dir", folder / "cli", "--output_format", "dicom")
    done = monai_bundle("run", "--config_file", "configs/inference.yaml", *options, cwd=models / "drift")
    assert done.returncode == 0
    return folder / "deploy", folder / "cli"


# --- the graph ---


@needs_sdk
def test_each_thick_series_becomes_the_series_that_the_command_line_writes(results):
    ours, theirs = results
    assert names(ours) == ["007-t2_tse", "008-flair"]
    for folder in ours.iterdir():
        images, others = images_of(folder), images_of(theirs / folder.name)
        assert len(images) == len(others) > 20
        for image, other in zip(images, others):
            for keyword in (
                "ImagePositionPatient ImageOrientationPatient PixelSpacing SliceThickness SpacingBetweenSlices Rows "
                "Columns ImageType SeriesNumber SeriesDescription PatientName EchoTime DerivationDescription"
            ).split():
                assert image[keyword] == other[keyword]
            for keyword in ("RescaleSlope", "RescaleIntercept"):
                assert image.get(keyword) == other.get(keyword)
            np.testing.assert_allclose(image.pixel_array.astype(int), other.pixel_array.astype(int), atol=1)


@needs_sdk
def test_results_are_new_derived_series_of_the_study(results, study):
    images = [image for folder in results[0].iterdir() for image in images_of(folder)]
    sources = [image for folder in (study / "a", study / "b" / "deep") for image in images_of(folder)]
    assert len({image.SOPInstanceUID for image in images + sources}) == len(images) + len(sources)
    assert len({image.SeriesInstanceUID for image in images + sources}) == 4
    for keyword in ("StudyInstanceUID", "FrameOfReferenceUID", "PatientID"):
        assert {image[keyword].value for image in images + sources} == {sources[0][keyword].value}
    assert {(*image.ImageType[:2], image.Modality) for image in images} == {("DERIVED", "SECONDARY", "MR")}


@needs_sdk
def test_the_same_series_comes_again_and_another_one_with_other_settings(results, study, models, tmp_path):
    def uids(folder):
        return {image.SOPInstanceUID for image in images_of(folder)}

    (earlier,) = results[0].glob("007-t2_tse*")
    shutil.copytree(models, tmp_path / "other")
    path = tmp_path / "other" / "drift" / "configs" / "inference.yaml"
    path.write_text(path.read_text() + "flips: true\n")  # the last one counts
    for bundle, same in ((models, True), (tmp_path / "other", False)):
        result = deploy("-i", study / "a", "-o", tmp_path / f"out{same}", "-m", bundle, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert (uids(tmp_path / f"out{same}" / earlier.name) == uids(earlier)) is same


@needs_sdk
@pytest.mark.skipif(DCM2NIIX is None, reason="dcm2niix is not installed")
def test_results_lie_where_the_slices_were_measured(results, study, tmp_path):
    """dcm2niix puts them where it puts those of the command line, about the centre of the source."""
    sources = {series.name: read_series(series) for series in find_series(study, THIN) if not series.skipped}
    for number, folder in enumerate(results[0].iterdir()):
        data, affine, sidecar = through_dcm2niix(folder, tmp_path / str(number))
        other, other_affine, _ = through_dcm2niix(results[1] / folder.name, tmp_path / f"{number}-cli")
        np.testing.assert_allclose(affine, other_affine, atol=1e-4)
        np.testing.assert_allclose(data, other, atol=1)
        source, thickness = sources[folder.name.removesuffix("_sr")], sidecar["SliceThickness"]
        assert thickness == sidecar["SpacingBetweenSlices"] == pytest.approx(0.8)
        ours, theirs = (
            matrix @ [*(np.array(shape) - 1) / 2, 1]
            for matrix, shape in ((affine, data.shape), (source.affine, source.array.shape))
        )
        np.testing.assert_allclose(ours, theirs, atol=thickness / 2 + 0.01)


@needs_sdk
def test_the_variables_of_a_package_stand_for_the_arguments_and_intensities_stay(study, tmp_path):
    """With the shipped weights, of the bundle that the application lies in."""
    save(tmp_path / "in", images_of(study / "b" / "deep"))
    paths = {"HOLOSCAN_INPUT_PATH": tmp_path / "in", "HOLOSCAN_OUTPUT_PATH": tmp_path / "out"}
    result = deploy(cwd=tmp_path, **paths)
    assert result.returncode == 0, result.stderr
    (folder,) = (tmp_path / "out").iterdir()
    images = images_of(folder)
    rebuilt = np.stack([apply_modality_lut(image.pixel_array, image) for image in images])
    (series,) = find_series(tmp_path / "in", THIN)
    measured = read_series(series).array
    assert measured.max() == 520
    assert abs(rebuilt.mean() - measured.mean()) < 0.05 * np.ptp(measured)
    assert abs(rebuilt.std() - measured.std()) < 0.1 * np.ptp(measured)


# --- what goes wrong ---


@needs_sdk
def test_a_study_without_a_thick_series_ends_with_the_reasons(study, tmp_path):
    result = deploy("-i", study / "scout", "-o", tmp_path / "out", cwd=tmp_path)
    assert_told_in_one_line(result, "scout: no thick-slice scan was found", "a localizer")
    assert not list((tmp_path / "out").iterdir())


@needs_sdk
def test_a_series_that_lacks_a_slice_is_told_and_the_others_are_rebuilt(models, tmp_path):
    images = mr_slices(voxels(0))
    del images[2]
    save(tmp_path / "in" / "a", images)
    save(tmp_path / "in" / "b", mr_slices(voxels(1), **SERIES))
    result = deploy("-i", tmp_path / "in", "-o", tmp_path / "out", "-m", models / "drift", cwd=tmp_path)
    assert_told_in_one_line(result, "007-t2_tse", "1 of 6 slices missing")
    assert names(tmp_path / "out") == ["008-flair"]


@needs_sdk
def test_a_model_path_without_a_bundle_is_told(study, tmp_path):
    result = deploy("-i", study, "-o", tmp_path / "out", "-m", ROOT / "models" / "model.pt", cwd=tmp_path)
    assert_told_in_one_line(result, "model.pt", "0 bundles", "-m")


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
