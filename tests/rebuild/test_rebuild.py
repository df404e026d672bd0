"""`Rebuilder`, the one way of every host: on any device, reconciled, and with no result where there is none."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from scripts.errors import InputError
from scripts.method.error_pattern import ErrorPatternNetwork
from scripts.rebuild.consistency import reconcile
from scripts.rebuild.error_map import error_map
from scripts.rebuild.inferer import DriftInferer
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from tests.config_files import ROOT
from tests.rebuild.test_error_map import CALIBRATION, DIGITS
from tests.volumes import head, scan_of

SECOND_DEVICE = ROOT.parent / "shared" / "tools" / "second-device"  # a device that is not the CPU and needs no GPU
PROFILES = [4.0, "gaussian", "rectangular"]


def layered(**others):
    """A head of layers, which are no noise within a slice."""
    return scan_of(torch.where(head((20, 22, 40)) > 0, 500 + 100 * torch.sin(0.8 * torch.arange(40.0)), 0), **others)


def agrees(device, network):
    """What the device gives is what the CPU gives, and lies on the CPU; to 1e-5 of the range. So are error maps."""
    scan = scan_of(head((9, 11, 15)), profile="gaussian")
    inferer = DriftInferer(16, both_planes=True, steps=2)
    first = Rebuilder(network, inferer, "cpu")(Slices.of(scan))
    second = Rebuilder(network.to(device), inferer, device)(Slices.of(scan))
    expected, result = (one.volume[None] for one in (first, second))
    batch = inferer(scan[None].to(device), network)
    assert result.device.type == result.affine.device.type == batch.device.type == "cpu"
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-5 * scan.max().item())
    torch.testing.assert_close(batch[0], result, rtol=0, atol=0)
    torch.testing.assert_close(result.affine, expected.affine)
    assert Acquisition.of(result) == Acquisition.of(scan) and second.steps == 2
    network.cpu().error = ErrorPatternNetwork()
    maps = [
        error_map(first, network.to(place), place, CALIBRATION).half_width(0.9).as_tensor() for place in ("cpu", device)
    ]
    assert maps[1].device.type == "cpu" and maps[0].max() > 0
    torch.testing.assert_close(maps[1], maps[0], rtol=DIGITS, atol=0)


@pytest.mark.gpu
def test_a_gpu_gives_the_cpus_result(drift):
    agrees("cuda", drift)


@pytest.mark.slow  # a minute where the device is built first
@pytest.mark.skipif(
    not SECOND_DEVICE.is_dir() or not (shutil.which("c++") and shutil.which("ninja")),
    reason="the second device is not here, or nothing to build it with",
)
def test_another_device_gives_the_cpus_result():
    """In a process of its own, since torch takes one such device for ever."""
    code = (
        "import second_device; device = second_device.register()\n"
        "from tests.fixtures import random_network; from tests.rebuild.test_rebuild import agrees\n"
        "agrees(device, random_network())\n"
    )
    path = os.pathsep.join([str(SECOND_DEVICE), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("profile", PROFILES)
def test_the_result_is_the_networks_reconciled_by_the_slices_own_profile(profile, identity):
    scan = layered(profile=profile)
    slices, acquisition = scan.as_tensor()[0], Acquisition.of(scan)
    own, result = (
        Rebuilder(identity, DriftInferer(consistency=consistency), "cpu")(Slices.of(scan)).volume.as_tensor()
        for consistency in ("measure", "project")
    )
    torch.testing.assert_close(own, interpolate(slices, acquisition, "nearest"), rtol=0, atol=1e-3)
    for other in PROFILES:
        expected = reconcile(own, Slices(slices, replace(acquisition, profile=other))).clamp(min=0)
        assert torch.allclose(result, expected, rtol=0, atol=0.01) is (other == profile)


@pytest.mark.parametrize(("part", "value"), [("apn", float("nan")), ("velocity", float("inf"))])
def test_weights_that_give_nan_give_no_result(value, part, drift):
    with torch.no_grad():
        next(getattr(drift, part).parameters()).fill_(value)
    with pytest.raises(InputError, match=r"weights give NaN or infinite voxels.*--ckpt_path"):
        Rebuilder(drift, DriftInferer(16, steps=1), "cpu")(Slices.of(layered()))
