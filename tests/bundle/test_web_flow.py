"""The flow from noise in the page's modules: Python's noise and volume, with a velocity that sees the estimate."""

import re
import subprocess
from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser

import drift_mri
from benchmarks import shipped_network
from scripts.method.flow import grid_noise
from scripts.method.networks import Drift, VelocityNetwork
from scripts.method.weights import read_card, save_weights
from tests.bundle.test_web import HEAD, NODE, ROOT, assert_same, exported, javascript, pytestmark
from tests.bundle.test_web_guide import copied
from tests.method.test_networks import perturb

__all__ = ["exported", "pytestmark"]
START, MOST = 0.05, 4  # steps at most; 3 at 4 mm
VELOCITY = {"channels": [8, 16], "width": 8, "norm": False, "noise": True, "estimate": True, "block": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Weights whose flow starts at noise, their config, and the page's modules with them."""
    pytest.importorskip("onnx", reason="onnx is not installed: pip install '.[export]'")
    from bundle.web.export import parts, write

    folder = tmp_path_factory.mktemp("flow")
    network = Drift(shipped_network().apn, perturb(VelocityNetwork(**VELOCITY), scale=0.03)).eval()
    card = replace(read_card(ROOT / "models" / "model.pt"), start_noise=START, n_max=MOST, error_map=None)
    save_weights(network, folder / "model.pt", card)
    definition = ConfigParser.load_config_file(str(ROOT / "configs" / "inference.yaml"))["network_def"]
    definition["velocity"] |= VELOCITY
    config = {"bfloat16": False, "network_def": definition}  # float32, as onnxruntime computes
    ConfigParser.export_config_file(config, str(folder / "flow.yaml"), fmt="yaml")
    program = copied(folder / "web")
    with torch.no_grad():
        for name in ("velocity", "modulation"):
            write(name, parts(network, guided=False)[name], folder / "web" / "model")
    constants = folder / "web" / "model" / "constants.js"
    text = constants.read_text()
    for name, value in {"start_noise": START, "n_max": MOST, "estimate": "true"}.items():
        text, count = re.subn(rf'"{name}":[^,}}]*', f'"{name}":{value}', text)
        assert count, name
    constants.unlink()
    constants.write_text(text)
    return program, {"ckpt_path": folder / "model.pt", "config": folder / "flow.yaml"}


@pytest.mark.usefixtures("exported")
def test_the_noise_of_a_voxel_is_pythons():
    box = [[3, 7], [0, 5], [290, 301]]
    (found,) = javascript(
        """
        const [{ gridNoise }] = await get("rebuild/flow.js");
        say(Array.from(gridNoise(JSON.parse(given[0])).data));""",
        str(box),
    )
    expected = grid_noise((7, 5, 301))[tuple(slice(*range) for range in box)]
    np.testing.assert_allclose(np.reshape(found, expected.shape), expected, atol=1e-6)


@pytest.mark.parametrize(("axis", "spacing"), [(2, 4.0), (0, 4.0)])
def test_node_makes_the_volume_of_python(tmp_path, trained, axis, spacing):
    program, options = trained
    path, out = tmp_path / "scan.nii.gz", tmp_path / "scan_sr.nii.gz"
    affine = np.diag([*np.roll([spacing, 1.0, 1.0], axis), 1.0])
    nib.save(nib.Nifti1Image(np.moveaxis(HEAD, 2, axis), affine), path)
    expected = drift_mri.rebuild(path, **options)
    done = subprocess.run([NODE, program, path, out], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "3 Euler steps" in expected.record["Description"], expected.record["Description"]
    assert_same(nib.load(out), expected, HEAD)
