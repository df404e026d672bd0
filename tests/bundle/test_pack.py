"""The package as users get it: packed, downloaded, unpacked elsewhere and run there."""

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
import zipfile

import nibabel as nib
import numpy as np
import pytest
import torch
import yaml
from monai.apps.utils import HashCheckError
from monai.bundle import download_large_files

from bundle.pack import NAME, WEIGHTS, content, pack
from scripts.errors import InputError
from tests.cohort_files import files
from tests.config_files import SCHEMA
from tests.nano import NANO, random_weights
from tests.processes import ROOT, assert_told_in_one_line, monai_bundle, run, stacked

pytestmark = pytest.mark.slow

TOP = "LICENSE README.md pyproject.toml configs docs drift_mri models scripts".split()
STRAY = (
    "scripts/__pycache__/flow.cpython-311.pyc configs/.ipynb_checkpoints/train.yaml docs/.DS_Store models/last.pt "
    "eval/model.pt out/scan_sr.nii.gz tests/method/test_flow.py .git/config docs/notes.md~"
).split()


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """By the command."""
    folder = tmp_path_factory.mktemp("package")
    result = run(ROOT / "bundle" / "pack.py", folder / "out", cwd=folder)
    assert result.stdout.split() == [str(folder / "out" / f"{NAME}.zip")], result.stderr
    return folder / "out" / f"{NAME}.zip"


@pytest.fixture
def copy(tmp_path):
    """A copy of what is packed, with small weights."""
    for name in TOP:
        source, target = ROOT / name, tmp_path / "copy" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_file():
            shutil.copy(source, target)
        else:
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.pt", "__pycache__"))
    random_weights(tmp_path / "copy" / WEIGHTS)
    return tmp_path / "copy"


@pytest.fixture
def serve():
    """Starts an HTTP server on a folder; returns its address."""
    servers = []

    def start(folder):
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def names(package):
    """Paths inside the package, below its one folder."""
    with zipfile.ZipFile(package) as archive:
        found = archive.namelist()
    assert all(name.startswith(f"{NAME}/") for name in found)
    return [name.removeprefix(f"{NAME}/") for name in found]


def test_the_package_is_complete_and_small(package):
    """Whatever git tracks in these places but for the paper's experiments, and each config in JSON, too."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout, so no list of what belongs to it")
    places = ("configs", "drift_mri", "models/model.pt", "models/model.json", "scripts")
    tracked = subprocess.run(["git", "ls-files", *places], cwd=ROOT, capture_output=True, text=True, check=True)
    needed = {name for name in tracked.stdout.splitlines() if not name.startswith(("scripts/paper/", "configs/paper/"))}
    assert needed <= set(names(package))
    assert not [name for name in names(package) if "paper/" in name or name.endswith((".gif", ".svg"))]
    assert package.stat().st_size < 6e6
    card = (ROOT / "docs" / "README.md").read_text()
    linked = {link for link in re.findall(r"\]\(([^)]+)\)", card) if "://" not in link}
    assert {f"docs/{link}" for link in linked} <= set(names(package)), "links that the zoo and the hub follow"
    with zipfile.ZipFile(package) as archive:
        for name in ("inference", "train", "evaluate"):
            source, twin = (archive.read(f"{NAME}/configs/{name}.{kind}") for kind in ("yaml", "json"))
            source, twin = yaml.safe_load(source), json.loads(twin)
            assert {**twin, "bundle_root": ".", "imports": source.get("imports")} == {"imports": None, **source}


def test_the_package_holds_nothing_else_and_is_the_same_from_the_same_files(copy, tmp_path):
    clean, first = content(copy), pack(tmp_path / "first", copy).read_bytes()
    for stray in STRAY:
        (copy / stray).parent.mkdir(parents=True, exist_ok=True)
        (copy / stray).write_text("stray")
    for path in copy.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
        if path.is_file():
            path.chmod(0o600)
    assert content(copy) == clean and pack(tmp_path / "second", copy).read_bytes() == first
    assert {name.split("/")[0] for name in clean} == set(TOP)
    assert [name for name in clean if name.startswith("models/")] == [WEIGHTS, "models/model.json"]


def test_weights_that_are_missing_or_not_their_cards_are_named_and_nothing_is_written(copy, tmp_path):
    with open(copy / WEIGHTS, "ab") as file:
        file.write(b"more")
    with pytest.raises(InputError, match=r"model\.pt differs from its card"):
        pack(tmp_path / "out", copy)
    (copy / WEIGHTS).unlink()
    with pytest.raises(InputError, match=re.escape(WEIGHTS)):
        pack(tmp_path / "out", copy)
    assert not (tmp_path / "out").exists()


def test_weights_left_out_are_fetched_and_others_are_refused_as_they_arrive(copy, tmp_path, serve):
    served = tmp_path / "served" / "model.pt"
    served.parent.mkdir()
    package = pack(tmp_path, copy, weights_url=f"{serve(served.parent)}/model.pt")
    assert WEIGHTS not in names(package)
    with zipfile.ZipFile(package) as archive:
        archive.extractall(tmp_path)
    weights, arrived = (copy / WEIGHTS).read_bytes(), tmp_path / NAME / WEIGHTS
    served.write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    with pytest.raises(HashCheckError):
        download_large_files(str(tmp_path / NAME))
    assert not arrived.exists()
    served.write_bytes(weights)
    download_large_files(str(tmp_path / NAME))
    assert arrived.read_bytes() == weights


# Elsewhere

LOAD = """
import sys, torch
from monai.bundle import load
network = load(sys.argv[1], bundle_dir=sys.argv[2], device="cpu").eval()
image, lengths = torch.rand(1, 5, 6, 16) * 2 - 1, torch.tensor([[4.0, 1.0, 4.0, 0.9, 0.0]])
with torch.no_grad():
    sharp = network(image, lengths, torch.tensor([0.0, 1.0]), torch.linspace(-0.3, 5.3, 24)[None])
weights = torch.load(sys.argv[3], weights_only=True)
same = all(torch.equal(value, weights[name].float()) for name, value in network.state_dict().items())
print(type(network).__name__, tuple(network(image).shape), tuple(sharp.shape), same)
"""


@pytest.fixture
def installed(package, tmp_path, serve):
    """The bundle as `monai.bundle download` leaves it in an empty folder."""
    url = f"{serve(package.parent)}/{package.name}"
    command = ("download", "--name", NAME, "--url", url, "--bundle_dir", tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    result = monai_bundle(*command, cwd=tmp_path / "elsewhere")
    assert result.returncode == 0, result.stderr
    return tmp_path / "elsewhere" / NAME


def test_monai_loads_the_network_with_its_weights_from_any_folder(installed, tmp_path):
    (tmp_path / "load.py").write_text(LOAD)
    result = run(tmp_path / "load.py", NAME, installed.parent, installed / WEIGHTS, cwd=tmp_path)
    assert result.stdout.split("\n")[-2] == "Drift (1, 1, 6, 16) (1, 1, 24, 16) True", result.stderr[-2000:]


def test_a_downloaded_package_rebuilds_a_scan_and_refuses_weights_that_changed(
    installed, tmp_path, write_nifti, phantom
):
    scan = write_nifti(np.ascontiguousarray(phantom[:24, :16, :16:4]), np.diag([1.0, 1.0, 4.0, 1.0]))
    command = ("run", "--config_file", "configs/inference.yaml", "--input", scan, "--output_dir")
    result = monai_bundle(*command, tmp_path / "out", cwd=installed)
    assert result.returncode == 0, result.stderr
    assert nib.load(tmp_path / "out" / "scan_sr.nii.gz").shape == (24, 16, 16)

    weights = bytearray((installed / WEIGHTS).read_bytes())
    weights[len(weights) // 2] ^= 1
    (installed / WEIGHTS).write_bytes(weights)
    result = monai_bundle(*command, tmp_path / "again", cwd=installed)
    assert_told_in_one_line(result, "model.pt", "sha256")
    assert not (tmp_path / "again").exists()


def test_monais_checks_and_export_pass_in_the_package(installed, tmp_path):
    """By the commands that docs/hosts.md names, in the folder of the package."""
    files = ("--meta_file", "configs/metadata.json", "--config_file", "configs/inference.json")
    for words in (
        ("verify_metadata", *files[:2], "--filepath", shutil.copy(SCHEMA, tmp_path)),
        ("verify_net_in_out", "network_def", *files, "--device", "cpu", "--n", 5),
        ("ckpt_export", "network_def", *files, "--ckpt_file", WEIGHTS, "--filepath", tmp_path / "model.ts"),
    ):
        result = monai_bundle(*words, cwd=installed)
        assert result.returncode == 0, f"{words[0]}: {result.stderr[-2000:]}"
    network = torch.jit.load(tmp_path / "model.ts")
    assert network(torch.zeros(1, 5, 6, 16)).shape == (1, 1, 6, 16)


@pytest.fixture
def sharp(tmp_path, phantom):
    """A folder of 16 sharp volumes."""
    for k in range(16):
        (tmp_path / "data" / f"sub-{k:02}").mkdir(parents=True)
        volume = np.ascontiguousarray(phantom[k : k + 24, k : k + 20, k : k + 16])
        nib.save(nib.Nifti1Image(volume, np.eye(4)), tmp_path / "data" / f"sub-{k:02}" / "T1w.nii.gz")
    return tmp_path / "data"


LENGTHS = "num_workers stage1_batch_size stage2_batch_size patches_per_epoch stage1_epochs stage2_epochs val_interval"
SHORT = {name: NANO[name] for name in LENGTHS.split()}  # one epoch of each part
WORKFLOW = """
import json, sys
from monai.bundle import create_workflow
workflow = create_workflow(config_file=sys.argv[1], workflow_type="train", **json.loads(sys.argv[2]))
if sys.argv[3] == "trainer":
    workflow.trainer.run()
else:
    workflow.run()
    workflow.finalize()
assert workflow.check_properties() == []
"""


def test_a_downloaded_package_trains_and_evaluates(installed, tmp_path, sharp):
    """With the network that ships, by the plain call; then the evaluation of what came of it."""
    options = [text for name, value in SHORT.items() for text in (f"--{name}", value)]
    plain = ("run", "--config_file", "configs/train.yaml", "--dataset_dir", sharp)
    result = monai_bundle(*plain, *options, cwd=installed)
    assert result.returncode == 0, result.stderr[-3000:]
    result = monai_bundle(
        *("run", "--config_file", stacked("configs/inference.yaml", "configs/evaluate.yaml"), "--dataset_dir", sharp),
        *("--output_dir", tmp_path / "measured"),
        *("--ckpt_path", "eval/model.pt", "--thicknesses", "[4.0]"),
        cwd=installed,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert files(tmp_path / "measured") == {"evaluation.csv", "evaluation.json", "evaluation.md"}


def test_workflows_and_their_trainers_train_from_any_folder(installed, tmp_path, sharp):
    """`run` both stages, `trainer.run` stage 1, validated and exported by the handlers that the config lists."""
    (tmp_path / "workflow.py").write_text(WORKFLOW)
    for what, made in (("trainer", {"stage1.pt"}), ("workflow", {"stage1.pt", "model.pt"})):
        given = {**SHORT, "dataset_dir": str(sharp), "output_dir": str(tmp_path / what)}
        words = (tmp_path / "workflow.py", installed / "configs" / "train.json", json.dumps(given), what)
        result = run(*words, cwd=tmp_path)
        assert result.returncode == 0, result.stderr[-3000:]
        assert {path.name for path in (tmp_path / what).glob("*.pt") if "checkpoint" not in path.name} == made
        assert "psnr" in result.stdout + result.stderr, "validated"
