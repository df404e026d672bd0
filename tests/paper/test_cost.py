"""What a size costs, against the paper's table."""

import subprocess
import sys

import nibabel as nib
import numpy as np
import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from scripts.paper.cost import PROCESS, multiply_adds, parameters, training_minutes
from scripts.paper.multiply_adds import work
from tests import paper_values as paper
from tests.config_files import ROOT, parser


@pytest.mark.parametrize(("size", "expected"), [("large", paper.GMACS_LARGE), ("small", paper.GMACS_SMALL)])
def test_multiply_adds_of_both_stages_are_the_papers(size, expected):
    with torch.device("meta"):
        network = parser("evaluate.yaml", f"models/{size}.yaml").get_parsed_content("network_def")
    assert sum(multiply_adds(network)) == pytest.approx(expected, abs=2 * paper.GMACS_PRECISION)


def test_work_grows_with_the_plane_and_the_velocity_is_told_apart(drift):
    first, second = multiply_adds(drift, 32), multiply_adds(drift, 64)
    assert second[0] / first[0] == pytest.approx(4, rel=0.2) and first[0] != first[1]


def test_the_work_of_a_method_is_that_of_its_convolutions_for_each_voxel(tmp_path):
    """27 multiply-adds a voxel by a convolution of 3 x 3 x 3, in 1e6."""
    nib.save(nib.Nifti1Image(np.random.default_rng(0).random((24, 30, 40), np.float32), np.eye(4)), tmp_path / "a.nii")

    def method(thick, acquisition):
        fine = torch.nn.functional.interpolate(torch.as_tensor(thick)[None], size=(24, 30, 16))
        return torch.nn.functional.conv3d(fine, torch.ones(1, 1, 3, 3, 3), padding=1)[0]

    def guided(thick, acquisition):
        with torch.enable_grad():
            thick = thick.as_tensor().clone().requires_grad_()
            made = method(thick, acquisition)
            torch.autograd.grad(made.sum(), thick)
        return made

    item = {"label": tmp_path / "a.nii", "sharp_axes": [0]}
    assert work(torch.inference_mode()(method), item) == pytest.approx(27e-6)
    assert work(guided, item) == pytest.approx(54e-6), "there and back"


@pytest.mark.parametrize(
    ("file", "stage", "count"),
    [("paper/baselines/swinir.yaml", "training", 422_785), ("models/tiny.yaml", "stage1", 6_827_121)],
)
def test_parameters_are_what_is_learned_and_nothing_else(file, stage, count):
    assert parameters(parser("evaluate.yaml", file), stage) == pytest.approx(count / 1e6, abs=1e-9)


def test_minutes_of_a_training_leave_out_what_lies_between_its_starts(tmp_path):
    for k in range(2):
        volume = np.random.default_rng(k).random((24, 24, 24), np.float32)
        nib.save(nib.Nifti1Image(volume, np.eye(4)), tmp_path / f"sub-{k}_T1w.nii.gz")
    bench = parser("paper/reproduce.yaml", dataset_dir=str(tmp_path), output_dir=str(tmp_path)).get_parsed_content(
        "bench"
    )()
    run = bench.run({}, 0)
    for stage, begin in ((run, 0), (run, 1000), (run.start, 5000)):
        with SummaryWriter(bench.folder(stage) / stage.stage, filename_suffix=str(begin)) as curves:
            for k in range(3):
                curves.add_scalar("loss", 1.0, k, walltime=begin + 30 * k)
    assert training_minutes(bench, run) == pytest.approx(3) and training_minutes(bench, run.start) == pytest.approx(1)


@pytest.mark.skipif(not (PROCESS / "clear_refs").exists(), reason="memory is measured on Linux")
def test_memory_holds_the_weights_at_least():
    """Of 12.04 M parameters in float32; what imports took before does not hide it."""
    code = (
        "from tests.config_files import ROOT; from scripts.paper.cost import _measured;"
        "from scripts.paper.trained_variants import Bench;"
        "ballast = bytearray(2**28); ballast[:] = b'1' * 2**28; del ballast;"
        "print(_measured(Bench(ROOT, None, '.', '.', 'tiny', 1, 1, 0, None, {}, {}), 'tiny')[2])"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert 45.9 < float(found.stdout) < 256
