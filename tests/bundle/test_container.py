"""The Containerfile: its image is built, and rebuilds a BIDS dataset."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bids_files import add_scan, write
from tests.config_files import ROOT


def run(*words, **given):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **given)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.strip()


def of_pip():
    """Volumes with what pip is configured by here, so that it finds the same packages in the container."""
    told = run(sys.executable, "-m", "pip", "config", "list") + run(sys.executable, "-m", "pip", "config", "debug")
    paths = [Path(path) for path in re.findall(r"(?<=[\s':/])/[\w./-]+", told)]
    paths = {path.parent if path.name == "simple" else path for path in paths}  # the files of an index lie beside it
    return [f"--volume={path}:{path}:ro" for path in sorted(paths) if path.exists()]


@pytest.mark.parametrize("recipe", ["Containerfile", "apptainer.def", "bundle/label/environment.sh"])
def test_what_is_installed_by_a_recipe_reads_what_an_installation_reads_with_its_extras(recipe):
    """Nobody can install into an image. MONAI Label has the packages of `itk` among its own."""
    (installed,) = re.findall(
        r"""pip"? install (?:--no-cache-dir )?["'](?:/src|\$here/../..)\[([\w,]+)\]["']""", (ROOT / recipe).read_text()
    )
    assert installed.split(",") == (["decoders"] if "label" in recipe else ["decoders", "itk", "node"])


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("buildah") and shutil.which("mmdebstrap")), reason="needs Debian's buildah and mmdebstrap"
)
def test_the_image_is_built_and_rebuilds_a_dataset_that_names_it(tmp_path):
    """On Debian's Python: registries of images are not reached from everywhere."""
    base, image = (f"localhost/{tmp_path.name.lower()}-{name}" for name in ("base", "drift"))
    codename = re.search(r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text())[1]
    run("mmdebstrap", "--variant=minbase", "--include=python3-venv,ca-certificates", codename, tmp_path / "base.tar")
    container = run("buildah", "from", "scratch")
    run("buildah", "add", container, tmp_path / "base.tar", "/")
    run("buildah", "commit", "--rm", container, base)
    isolated = ("--isolation=chroot", "--network=host")
    settings = {"BASE": base, "TORCH": "torch==2.13.0", "IMAGE": "drift-mri:trial"}
    words = [f"--build-arg={name}={value}" for name, value in settings.items()]
    run("buildah", "build", *isolated, *words, *of_pip(), "-t", image, ROOT)
    data = tmp_path / "data"
    add_scan(write(data / "ds"), "sub-01/anat/sub-01_T2w.nii.gz")
    data.chmod(0o777)
    container = run("buildah", "from", image)
    try:
        words = ("drift-mri", "/data/ds", "/data/out", "participant", "--participant-label", "01")
        run("buildah", "run", *isolated, f"--volume={data}:/data", container, "--", *words)
        run("buildah", "run", *isolated, container, "--", "drift-mri-node", "--version")
        run("buildah", "run", *isolated, container, "--", "python3", "-c", "import gdcm, itk")
    finally:
        run("buildah", "rm", container)
        run("buildah", "rmi", image, base)
    assert (data / "out" / "sub-01" / "anat" / "sub-01_desc-sr_T2w.nii.gz").is_file()
    (tool,) = json.loads((data / "out" / "dataset_description.json").read_text())["GeneratedBy"]
    assert tool["Container"]["Tag"] == "drift-mri:trial"
