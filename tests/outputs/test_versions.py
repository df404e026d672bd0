"""Versions and metadata are stated once and true; MONAI finds the properties that it expects."""

import importlib
import importlib.metadata
import json
import re
import tomllib

import pytest

from tests import paper_values as paper
from tests.config_files import CONFIGS, ROOT, raw

# Versions


def pyproject():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def metadata():
    return json.loads((CONFIGS / "metadata.json").read_text())


def requirements():
    from packaging.requirements import Requirement

    extras = pyproject()["optional-dependencies"]
    whole = [*pyproject()["dependencies"], *extras["train"], *extras["sample"]]  # of the bundle, as the zoo tests it
    return {r.name.lower(): r.specifier for r in map(Requirement, whole)}


def test_the_bundle_has_one_version_and_its_change_is_noted():
    assert metadata()["version"] == pyproject()["version"]
    assert metadata()["version"] in metadata()["changelog"]


def stated_versions():
    named = {"monai": "monai_version", "torch": "pytorch_version", "numpy": "numpy_version"}
    return {
        **{package: metadata()[key] for package, key in named.items()},
        **metadata().get("required_packages_version", {}),
    }


@pytest.mark.parametrize("package", stated_versions())
def test_stated_versions_are_exact_and_within_what_is_installed_by_pip(package):
    version = stated_versions()[package]
    assert re.fullmatch(r"\d+(\.\d+)+", version), "the zoo installs name==version"
    assert requirements()[package.lower()].contains(version)


@pytest.mark.slow  # for the environment in which releases are tried: others may be in use
@pytest.mark.parametrize("package", ["monai", "torch", "numpy"])
def test_stated_versions_are_those_in_use(package):
    stated, installed = stated_versions()[package], importlib.metadata.version(package)
    assert stated.split(".")[:2] == installed.split("+")[0].split(".")[:2]


def test_every_dependency_has_a_stated_version():
    assert set(requirements()) == {name.lower() for name in stated_versions()}


def test_metadata_describes_one_image_in_and_one_out():
    """Hosts make a port of each input: more than `image` and `pred` breaks them."""
    form = metadata()["network_data_format"]
    assert list(form["inputs"]) == ["image"]
    assert list(form["outputs"]) == ["pred"]
    stride = 2 ** (paper.LEVELS - 1)
    planes = raw("inference.yaml")["network_def"]["apn"]["planes"]
    for tensor, channels in ((form["inputs"]["image"], planes), (form["outputs"]["pred"], 1)):
        assert tensor["spatial_shape"] == [f"{stride}*n"] * 2
        assert tensor["num_channels"] == len(tensor["channel_def"]) == channels
        assert tuple(tensor["value_range"]) == paper.INTENSITY_RANGE


# MONAI's own checks


def test_training_has_the_properties_that_monai_expects(hosted, tmp_path, write_nifti, phantom):
    for k in range(4):
        write_nifti(phantom[:8, :8, :8], name=f"data/sub-{k:02}.nii.gz")
    assert not hosted("train", dataset_dir=str(tmp_path / "data")).check_properties()
