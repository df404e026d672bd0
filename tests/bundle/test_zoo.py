"""The model zoo's own checks, and exports that give the eager result."""

import json
import re
import subprocess
import sys

import pytest
import torch
from monai.bundle import ckpt_export, verify_metadata, verify_net_in_out

from scripts.method.schedule import euler_times
from tests.config_files import CONFIGS, ROOT, SCHEMA, on_planes, parser
from tests.outputs.test_versions import metadata, stated_versions
from tests.processes import run

pytestmark = pytest.mark.slow

FILES = {"meta_file": str(CONFIGS / "metadata.json"), "config_file": str(CONFIGS / "inference.yaml")}
SHIPPED = {"net_id": "network_def", "ckpt_file": str(ROOT / "models" / "model.pt"), **FILES}
CLOSE = {"rtol": 0, "atol": 1e-4}


@pytest.fixture(scope="module")
def shipped():
    """The network that ships, with its weights."""
    return parser("inference.yaml").get_parsed_content("weights").eval()


def calls_of_slices():
    """Image, lengths, times and rows of calls that differ in size and in N."""
    generator = torch.Generator().manual_seed(0)
    for steps, shape, rows in ((0, (1, 5, 6, 16), 24), (1, (3, 5, 9, 40), 32), (3, (2, 5, 5, 24), 16)):
        image = 2 * torch.rand(shape, generator=generator) - 1
        lengths = torch.tensor([[4.0, 1.0, 4.5, 0.9, 0.02]])
        yield image, lengths, euler_times(steps), torch.linspace(-0.4, shape[2] - 0.6, rows)[None]


def calls():
    """Image, thickness and times of calls that differ in size, in rows of thicknesses and in N."""
    generator = torch.Generator().manual_seed(0)
    for steps, shape, rows in ((0, (1, 1, 16, 16), 1), (1, (3, 1, 24, 40), 3), (3, (2, 1, 32, 16), 1)):
        image = 2 * torch.rand(shape, generator=generator) - 1
        yield image, torch.tensor([[5.0, 1.0], [4.0, 0.8], [2.5, 1.2]])[:rows], euler_times(steps)


# Metadata


def test_metadata_is_what_the_zoo_wants():
    assert metadata()["schema"].endswith(SCHEMA.name)
    verify_metadata(meta_file=FILES["meta_file"], filepath=str(SCHEMA))


def test_every_stated_version_is_at_the_package_index():
    """As the zoo installs them, name==version."""
    look_up = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed"]
    if subprocess.run([*look_up, "pip"], capture_output=True).returncode:
        pytest.skip("no package index can be reached")
    versions = [f"{name}=={version}" for name, version in stated_versions().items()]
    result = subprocess.run([*look_up, *versions], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


# Network


def test_the_network_is_what_metadata_says():
    verify_net_in_out(net_id="network_def", device="cpu", n=5, **FILES)


# Exports


def test_torchscript_gives_the_eager_result_for_any_number_of_steps(tmp_path, shipped):
    exported = str(tmp_path / "model.ts")
    ckpt_export(filepath=exported, bundle_root=str(ROOT), **SHIPPED)
    kept = {"metadata.json": "", "inference.json": ""}  # hosts read these
    network = torch.jit.load(exported, _extra_files=kept)
    assert json.loads(kept["metadata.json"])["version"] == metadata()["version"]
    assert json.loads(kept["inference.json"])["network_def"]["_target_"] == "scripts.method.networks.Drift"
    assert {name for name, _ in network.named_parameters()} == set(shipped.state_dict())
    with torch.no_grad():
        for call in calls_of_slices():
            torch.testing.assert_close(network(*call), shipped(*call), **CLOSE)
            torch.testing.assert_close(network(call[0]), shipped(call[0]), **CLOSE)


def test_torchscript_of_the_papers_kind_gives_the_eager_result(tmp_path, drift):
    torch.save(drift.state_dict(), tmp_path / "model.pt")
    exported = str(tmp_path / "model.ts")
    given = {**SHIPPED, "ckpt_file": str(tmp_path / "model.pt"), "network_def": on_planes(4, 8)}
    ckpt_export(filepath=exported, **given)
    network = torch.jit.load(exported)
    with torch.no_grad():
        for call in calls():
            torch.testing.assert_close(network(*call), drift(*call), **CLOSE)


@pytest.fixture
def onnx():
    """What ONNX Runtime makes of a file: a function of tensors."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install '.[export]'")
    import onnxruntime

    def load(path):
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]

        def run(*tensors):
            assert len(names) == len(tensors)
            return torch.from_numpy(session.run(None, {n: t.numpy() for n, t in zip(names, tensors)})[0])

        return run

    return load


def documented(language):
    """The code blocks of docs/hosts.md."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs" / "hosts.md").read_text(), re.M | re.S)


def test_documented_onnx_export_gives_the_eager_result_for_planes_of_any_size(tmp_path, shipped, onnx):
    """The documented code, with the weights that ship."""
    for name in ("configs", "models", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name, target_is_directory=True)
    export, use = (code for code in documented("python") if "onnx" in code)
    for name, code in (("export.py", export), ("use.py", use + "print(pred.shape)\n")):
        (tmp_path / name).write_text(code)
        result = run(name, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    assert result.stdout.split("\n")[0] == "(4, 1, 160, 128)"

    exported = onnx(tmp_path / "model.onnx")
    with torch.no_grad():
        for image, lengths, _, rows in calls_of_slices():
            expected = shipped(image, lengths, euler_times(4), rows)
            torch.testing.assert_close(exported(image, lengths, rows), expected, **CLOSE)
