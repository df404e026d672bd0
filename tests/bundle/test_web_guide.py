"""A guide in the page's modules: placed by the headers, told from a stranger, used as Python uses it."""

import json
import os
import re
import shutil
import subprocess

import nibabel as nib
import numpy as np
import pytest
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from scipy.ndimage import affine_transform, gaussian_filter

from scripts.rebuild.guide import on_grid
from scripts.rebuild.registration import likeness, resolution
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from tests.browser import needs_chromium
from tests.bundle.test_web import NODE, ROOT, WEB, assert_same, exported, pytestmark
from tests.bundle.test_web_page import Page, Server

__all__ = ["exported", "pytestmark"]
SHAPE = (40, 44, 40)
TURNED = np.array([[0.0, 0.8, 0.0, -22.3], [-0.1563, 0.0, 0.8863, -35.9], [0.8863, 0.0, 0.1563, -30.1], [0, 0, 0, 1]])


def copied(folder):
    """The page's modules and networks, in another folder; the command in there."""
    shutil.copytree(WEB, folder, ignore=lambda _, names: {"node_modules", "dist"} & set(names))
    os.symlink(WEB / "node_modules", folder / "node_modules")
    return folder / "rebuild.mjs"


@pytest.fixture(scope="module")
def program(exported, tmp_path_factory):
    return copied(tmp_path_factory.mktemp("program") / "web")


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """A folder of a thick scan and guides: on one grid with its result, turned and of a part, of another head."""
    folder, random = tmp_path_factory.mktemp("scans"), np.random.default_rng(1)
    place = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in SHAPE), indexing="ij"))
    inside = ((place / 0.8) ** 2).sum(0) < 1
    mine, strange = (gaussian_filter(random.random(SHAPE), 2.0) for _ in range(2))

    def save(name, voxels, affine):
        voxels = voxels + np.hypot(*random.normal(0, 6, (2, *voxels.shape)))
        nib.save(nib.Nifti1Image(voxels.astype(np.float32), affine), folder / f"{name}.nii.gz")

    thick = np.where(inside, 9000 * mine - 3900, 0).reshape(*SHAPE[:2], -1, 5).mean(-1)
    save("scan", thick, np.array([[1.0, 0, 0, -30], [0, 1, 0, -32], [0, 0, 5, -25], [0, 0, 0, 1]]))
    fine = np.array([[1.0, 0, 0, -30], [0, 1, 0, -32], [0, 0, 1, -27], [0, 0, 0, 1]])
    other = np.where(inside, 5500 - 9000 * mine, 0)
    save("same", other, fine)
    save("standardised", (other - other.mean()) / 5, fine)
    index, shape = np.linalg.inv(fine) @ TURNED, (66, 56, 70)
    save("turned", affine_transform(other, index[:3, :3], index[:3, 3], shape, order=1), TURNED)
    save("strange", np.where(inside, 5500 - 9000 * strange, 0), fine)
    return folder


@pytest.fixture(scope="module")
def python():
    """Network, inferer and preprocessing, as the bundle's config makes them."""
    config = ConfigParser(ConfigParser.load_config_file(str(ROOT / "configs" / "inference.yaml")))
    config.update({"bundle_root": str(ROOT), "bfloat16": False})
    return [config.get_parsed_content(name) for name in ("weights", "inferer", "preprocessing")]


def likeness_in_place(scan, guide):
    """By Python, without registration."""
    fine = interpolate(scan.above_floor, scan.acquisition, "cubic").clamp(min=0)
    fixed = MetaTensor(fine, affine=scan.fine_affine)
    moving = MetaTensor(guide.above_floor.clamp(min=0), affine=guide.affine)
    return likeness(fixed, moving, np.eye(4), resolution(fixed, [scan]))


@pytest.mark.parametrize("name", ["same", "turned", "standardised"])
def test_a_guide_in_its_place_makes_the_volume_that_python_makes(tmp_path, program, scans, python, name):
    network, inferer, preprocessing = python
    out = tmp_path / "scan_sr.nii.gz"
    command = [NODE, program, scans / "scan.nii.gz", out, "--guide", scans / f"{name}.nii.gz"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    scan, guide = (Slices.of(preprocessing({"image": str(scans / f"{one}.nii.gz")})["image"]) for one in ("scan", name))
    volume = on_grid(guide, scan, np.eye(4))
    expected, alone = (inferer.rebuilt(scan, network.cpu().eval(), *given).volume for given in ((volume,), ()))
    image = nib.Nifti1Image(expected.numpy(), scan.fine_affine.numpy())
    assert_same(nib.load(out), image, scan.array[None].numpy())
    assert np.abs(expected - alone).max() > 50  # the guide matters
    record = json.loads(out.with_name("scan_sr.json").read_text())["Guide"]
    assert record["Likeness"] == pytest.approx(likeness_in_place(scan, guide), abs=1e-3)
    assert record["Name"] == f"{name}.nii.gz"


def test_a_guide_of_another_head_is_refused_in_the_commands_words(tmp_path, program, scans):
    command = [NODE, program, scans / "scan.nii.gz", tmp_path / "out.nii.gz", "--guide", scans / "strange.nii.gz"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "error: strange.nii.gz does not fit scan.nii.gz: their likeness is 0.0" in done.stderr
    assert "from 0.11 on they show one head." in done.stderr
    assert not (tmp_path / "out.nii.gz").exists()


@needs_chromium
def test_the_page_takes_a_guide_and_refuses_one_of_another_head(tmp_path, program, scans):
    subprocess.run([NODE, program.with_name("build.mjs")], check=True)
    with Server(program.with_name("dist")) as server, Page(tmp_path, server.address) as page:
        assert page.drop(scans / "scan.nii.gz") is None
        for name in ("strange", "same"):
            page.drop_on("#guide", scans / f"{name}.nii.gz")
            page.wait(f"document.querySelector('#guide output').innerText === '{name}.nii.gz'")
            page.click("[type=submit]")
            page.wait("document.querySelector('#status').innerText === ''")
            refused = page.mistake()
            assert (refused or "").startswith("strange.nii.gz does not fit scan.nii.gz") == (name == "strange")
        _, record = page.save("scan")
        assert record["Guide"]["Name"] == "same.nii.gz"


def test_weights_that_know_no_guides_refuse_one(tmp_path, exported, scans):
    program = copied(tmp_path / "web")
    constants = program.parent / "model" / "constants.js"
    constants.write_text(re.sub('"guide_share":[0-9.]+', '"guide_share":0', constants.read_text()))
    command = [NODE, program, scans / "scan.nii.gz", tmp_path / "out.nii.gz", "--guide", scans / "same.nii.gz"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("error: these weights were trained without guides:")
