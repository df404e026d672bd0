"""Real tiny networks and real small files that several tests share."""

import json
import logging
import shutil
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.bundle import ConfigWorkflow
from scipy.ndimage import gaussian_filter

from scripts.errors import input_error
from scripts.files import sha256
from scripts.method.networks import AnatomicalProjectionNetwork, Drift, VelocityNetwork
from scripts.method.weights import Card, write_card
from tests.cohort_files import AXIAL, texture
from tests.config_files import ERROR, ROOT, on_planes, parser
from tests.dicom_files import VOXELS, mr_slices, save

CARD = Card("0.5.0", "tiny", (0.7, 1.3), (0.5, 1.3), 7.0, (0.8, 1.4), 4)  # what the weights of tests claim


@pytest.fixture(scope="session")
def phantom() -> np.ndarray:
    """A sharp smooth-textured volume, (40, 44, 48), values 0 to 1000."""
    volume = gaussian_filter(np.random.default_rng(0).random((40, 44, 48)), 1.5)
    volume = (volume - volume.min()) / (volume.max() - volume.min())
    return (1000 * volume).astype(np.float32)


@pytest.fixture
def voxels() -> np.ndarray:
    """A volume for DICOM series, each voxel with its own value."""
    return VOXELS.copy()


@pytest.fixture(scope="session")
def dataset_dir(tmp_path_factory, phantom) -> Path:
    """A datalist of two volumes to train on and one to validate with, 1 mm."""
    folder = tmp_path_factory.mktemp("data")
    for k in range(3):
        volume = (phantom, phantom[::-1], phantom[:24, :24, :4])[k]
        nib.save(nib.Nifti1Image(np.ascontiguousarray(volume), np.eye(4)), folder / f"{k}.nii.gz")
    sections = {"training": [{"image": "0.nii.gz"}, {"image": "1.nii.gz"}], "validation": [{"image": "2.nii.gz"}]}
    (folder / "dataset.json").write_text(json.dumps(sections))
    return folder / "dataset.json"


def untrained(width: int = 8) -> Drift:
    """Both networks at four and eight channels, which change nothing yet."""
    return Drift(AnatomicalProjectionNetwork((4, 8), residual=True), VelocityNetwork((4, 8), width)).eval()


def random_network(width: int = 8) -> Drift:
    """The same with random weights everywhere."""
    torch.manual_seed(0)
    network = untrained(width)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    return network


@pytest.fixture
def drift() -> Drift:
    """Both networks at four and eight channels, with random weights everywhere."""
    return random_network()


@pytest.fixture(scope="session")
def identity() -> Drift:
    """Both networks untrained: they change nothing."""
    return untrained()


@pytest.fixture(scope="session")
def door():
    """The preprocessing of configs/inference.yaml, as `monai.bundle run` builds it, on one path or image."""

    def run(image, **given):
        image = image if isinstance(image, torch.Tensor) else str(image)
        preprocessing = parser("inference.yaml", **{"card": CARD, **given}).get_parsed_content("preprocessing")
        return preprocessing({"image": image})["image"]

    return run


@pytest.fixture(scope="session")
def refusal():
    """The one line that a call ends with; any other exception fails the test."""

    def run(function, *args, **kwargs) -> str:
        with pytest.raises(Exception) as caught:
            function(*args, **kwargs)
        mistake = input_error(caught.value)
        if mistake is None:
            raise AssertionError("expected an InputError in the chain of exceptions") from caught.value
        assert "\n" not in str(mistake)
        return str(mistake)

    return run


@pytest.fixture
def write_nifti(tmp_path):
    """Writes an array as NIfTI into the test's folder; returns the path."""

    def write(array: np.ndarray, affine: np.ndarray | None = None, name: str = "scan.nii.gz"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        nib.save(nib.Nifti1Image(array, np.eye(4) if affine is None else affine), path)
        return path

    return write


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory):
    """A file of `random_network`, and its card."""
    torch.save(random_network().state_dict(), path := tmp_path_factory.mktemp("weights") / "model.pt")
    write_card(path, CARD)
    return path


TINY = {  # of `inference.yaml`, for the network of the fixtures
    "device": "$torch.device('cpu')",
    "network_def": on_planes(4, 8, error=ERROR),
    "inferer::roi_size": 16,
    "inferer::n_max": 2,
    "inferer::progress": False,
    "bfloat16": False,  # the same numbers on every processor
}


def load_once(config, weights, loaded={}):  # noqa: B006  # those of other runs
    """Takes the network that a run before loaded from the same files: loading takes two thirds of a tiny run."""
    files = [weights, weights.with_suffix(".json")]
    if all(path.is_file() for path in files):
        of = (sha256(files), *(repr(config[name]) for name in ("device", "network_def", "weights", "network")))
        config["network"] = loaded[of] = loaded.get(of) or config.get_parsed_content("network")


@pytest.fixture
def bundle(tmp_path, tiny_weights, monkeypatch):
    """`run` of configs/inference.yaml with a tiny network, from another working folder; results lie in `out`."""
    monkeypatch.chdir(tmp_path)
    for path in tiny_weights.parent.iterdir():
        shutil.copy(path, tmp_path)
    torch.manual_seed(0)  # a test that draws more weights draws the same ones alone and among others

    def run(source, **given):
        config = parser(
            "inference.yaml",
            **{
                "input": [str(one) for one in source] if isinstance(source, list) else source and str(source),
                "output_dir": str(tmp_path / "out"),
                "ckpt_path": str(tmp_path / "model.pt"),
                **TINY,
                **given,
            },
        )
        load_once(config, Path(config["ckpt_path"]))
        config.get_parsed_content("run")

    run.out = tmp_path / "out"
    run.weights = tmp_path / "model.pt"
    return run


@pytest.fixture
def hosted(tmp_path, monkeypatch):
    """The bundle as hosts build it, by a complete config; `initialize` changes the interpreter, which is put back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)

    def build(name, **given):
        result = ConfigWorkflow(
            config_file=str(ROOT / "configs" / f"{name}.yaml"),
            meta_file=str(ROOT / "configs" / "metadata.json"),
            logging_file=False,
            workflow_type=name,
            bundle_root=str(ROOT),
            output_dir=str(tmp_path / "out"),
            **given,
        )
        result.initialize()
        return result

    return build


@pytest.fixture
def log(caplog):
    """What the bundle says; MONAI's readers have remarks of their own, depending on what is installed."""
    caplog.set_level(logging.INFO, logger="drift")
    with caplog.filtering(logging.Filter("drift")):
        yield caplog


@pytest.fixture
def scan(write_nifti):
    """A NIfTI file of 4 mm slices."""
    return write_nifti(texture(), AXIAL)


@pytest.fixture
def folder(write_nifti):
    """Three good scans."""
    for seed, name in enumerate("abc"):
        path = write_nifti(texture(seed=seed), AXIAL, f"scans/{name}.nii.gz")
    return path.parent


@pytest.fixture
def series(tmp_path):
    """A folder with a DICOM series of thick slices."""
    return save(tmp_path / "dicom", mr_slices(VOXELS))
