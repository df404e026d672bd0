"""What is installed: the bundle without the paper's experiments; it asks neither for them nor for their libraries."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distributions

import pytest

from tests.processes import ROOT, run

HOSTS = ROOT / "docs" / "hosts.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WITHOUT = """
import importlib, sys
from pathlib import Path

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "scripts.paper" or name.split(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
for path in sorted(Path("scripts").rglob("*.py")):
    if "paper" not in path.parts:
        importlib.import_module(".".join(path.with_suffix("").parts))
from tests.config_files import COMPLETE, leaves, located, raw
for file in COMPLETE:
    for name, value in leaves(raw(file)):
        if name.endswith("_target_") and not value.startswith(("@", "$")):
            assert located(value) is not None, f"{file}: {value}"
print("all there")
"""


def modules_of(requirements):
    """Top-level modules that packages install."""
    names = {re.match(r"[\w-]+", text)[0].lower().replace("_", "-") for text in requirements} - {PROJECT["name"]}
    found = set()
    for package in distributions():
        if package.metadata["Name"].lower().replace("_", "-") in names:
            found |= {str(file).split("/")[0] for file in package.files or () if str(file).endswith("__init__.py")}
    return found


@pytest.mark.slow
def test_all_but_the_paper_works_without_it_and_without_its_libraries():
    """Every module is imported, and every component of the three commands found."""
    absent = sorted(modules_of(PROJECT["optional-dependencies"]["paper"]))
    command = [sys.executable, "-c", WITHOUT, *absent]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.stdout.endswith("all there\n"), result.stderr[-2000:]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that pip builds of a copy."""
    folder = tmp_path_factory.mktemp("wheel")
    stray = shutil.ignore_patterns("__pycache__", ".*", "eval", "build", "*.egg-info", "tests", "docs")
    shutil.copytree(ROOT, folder / "copy", ignore=stray)
    code = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", code, str(folder)]
    result = subprocess.run(command, cwd=folder / "copy", capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_bundle_without_the_paper(wheel):
    carried = {"scripts": "py html js", "configs": "yaml json conf", "models": "pt json"}
    expected = {
        f"drift_mri/bundle/{path.relative_to(ROOT)}"
        for folder, endings in carried.items()
        for ending in endings.split()
        for path in (ROOT / folder).rglob(f"*.{ending}")
        if "paper" not in path.relative_to(ROOT).parts and path.stem != "next"  # weights in the middle of a training
    }
    expected |= {f"drift_mri/{path.name}" for path in (ROOT / "drift_mri").glob("*.py")}
    expected |= {"drift_mri/py.typed"}
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == expected | {"drift_mri/bundle/LICENSE", "drift_mri/bundle/README.md"}
    assert wheel.stat().st_size < 6e6


SAME = """
import torch
weights = torch.load(BUNDLE / "models" / "model.pt", weights_only=True)
print(BUNDLE, all(torch.equal(value, weights[name].float()) for name, value in network.state_dict().items()))
"""


@pytest.mark.slow
def test_monais_workflow_gives_the_network_of_the_wheel_from_any_folder(wheel, tmp_path):
    """The lines that docs/hosts.md has."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    (lines,) = re.findall(r"^```python\n(from drift_mri import BUNDLE\n.*?)^```", HOSTS.read_text(), re.M | re.S)
    (tmp_path / "network.py").write_text(lines + SAME)
    result = run(tmp_path / "network.py", cwd=tmp_path, PYTHONPATH=tmp_path / "installed")
    assert result.stdout.split("\n")[-2] == f"{tmp_path / 'installed' / 'drift_mri' / 'bundle'} True", result.stderr
