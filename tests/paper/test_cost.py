"""What a size costs, against the paper's table."""

import subprocess
import sys

import nibabel as nib
import numpy as np
import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from scripts.paper.cost import PROCESS, parameters, plane_calls, training_minutes
from scripts.paper.multiply_adds import multiply_adds
from tests import paper_values as paper
from tests.config_files import ROOT, parser


@pytest.mark.parametrize(("size", "expected"), [("large", paper.GMACS_LARGE), ("small", paper.GMACS_SMALL)])
def test_multiply_adds_of_both_stages_are_the_papers(size, expected):
    with torch.device("meta"):
        network = parser("evaluate.yaml", f"models/{size}.yaml").get_parsed_content("network_def")
    assert sum(map(multiply_adds, plane_calls(network))) / 1e9 == pytest.approx(expected, abs=2 * paper.GMACS_PRECISION)


@pytest.mark.parametrize(
    ("file", "stage", "count"),
    [
        ("paper/baselines/swinir.yaml", "training", 422_785),
        ("models/tiny.yaml", "stage1", 6_827_121),
        ("evaluate.yaml", "training", 1_110_634 + 1_103_689),  # the error network makes no result
    ],
)
def test_parameters_are_what_is_learned_and_nothing_else(file, stage, count):
    assert parameters(parser("evaluate.yaml", file), stage) == pytest.approx(count / 1e6, abs=1e-9)


def test_minutes_of_a_training_are_cpu_time_and_an_epoch_done_again_counts_once(tmp_path):
    for k in range(2):
        volume = np.random.default_rng(k).random((24, 24, 24), np.float32)
        nib.save(nib.Nifti1Image(volume, np.eye(4)), tmp_path / f"sub-{k}_T1w.nii.gz")
    config = parser("paper/reproduce.yaml", dataset_dir=str(tmp_path), output_dir=str(tmp_path))
    trained = config.get_parsed_content("trained")()
    stage = trained.last_stage({}, 0)
    for part, epochs in ((stage, {1: 0.5, 2: 0.5}), (stage, {2: 0.75, 3: 0.25}), (stage.start, {1: 1.0})):
        with SummaryWriter(trained.folder(part) / part.run_id, filename_suffix=str(epochs)) as curves:
            for epoch, minutes in epochs.items():
                curves.add_scalar("loss", 1.0, epoch, walltime=1000 * epoch)
                curves.add_scalar("cpu_minutes", minutes, epoch)
    assert training_minutes(trained, stage) == pytest.approx(2.5)
    assert training_minutes(trained, stage.start) == pytest.approx(1)


@pytest.mark.skipif(not (PROCESS / "clear_refs").exists(), reason="memory is measured on Linux")
@pytest.mark.slow  # a process to itself
def test_memory_holds_the_weights_at_least():
    """Of 12.04 M parameters in float32; what imports took before does not hide it."""
    code = (
        "from tests.config_files import ROOT; from scripts.paper.cost import _measured;"
        "from scripts.paper.trained_variants import TrainedVariants;"
        "ballast = bytearray(2**28); ballast[:] = b'1' * 2**28; del ballast;"
        "print(_measured(TrainedVariants(ROOT, None, '.', '.', 'tiny', 1, 1, 0, None, {}, {}), 'tiny')[2])"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert 45.9 < float(found.stdout) < 256
