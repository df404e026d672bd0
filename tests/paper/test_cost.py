"""What a size costs, against the paper's table."""

import os
import time

import nibabel as nib
import numpy as np
import pytest
import torch
from ignite.engine import Engine, Events
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from scripts.paper.cost import CpuTime, parameters, plane_calls, training_minutes
from scripts.paper.multiply_adds import multiply_adds, multiply_adds_per_voxel
from tests import paper_values as paper
from tests.config_files import parser


@pytest.mark.parametrize(("size", "expected"), [("large", paper.GMACS_LARGE), ("small", paper.GMACS_SMALL)])
def test_multiply_adds_of_both_stages_are_the_papers(size, expected):
    with torch.device("meta"):
        network = parser("evaluate.yaml", f"models/{size}.yaml").get_parsed_content("network_def")
    assert sum(map(multiply_adds, plane_calls(network))) / 1e9 == pytest.approx(expected, abs=2 * paper.GMACS_PRECISION)


def test_multiply_adds_of_a_method_are_those_of_its_convolutions_for_each_voxel_there_and_back(tmp_path):
    """27 a voxel by a convolution of 3 x 3 x 3, in 1e6; twice as many with the gradient."""
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
    assert multiply_adds_per_voxel(torch.inference_mode()(method), item) == pytest.approx(27e-6)
    assert multiply_adds_per_voxel(guided, item) == pytest.approx(54e-6)


@pytest.mark.parametrize(
    ("file", "stage", "count"),
    [
        ("paper/baselines/swinir.yaml", "training", 422_785),
        ("models/tiny.yaml", "stage1", 6_827_121),
        ("evaluate.yaml", "training", 629_210 + 1_078_612),  # the error network makes no result
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


def test_cpu_time_counts_work_and_not_waiting(tmp_path):
    """The first epoch waits, the second one works; what follows an epoch, such as validation, is left out."""
    spent = []

    def work(seconds=0.3):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    def step(engine, item):
        spent.append(sum(os.times()[:4]))
        time.sleep(0.2) if engine.state.epoch == 1 else work()
        spent.append(sum(os.times()[:4]))

    engine = Engine(step)
    engine.add_event_handler(Events.EPOCH_COMPLETED, lambda: work())
    CpuTime(run_name=str(tmp_path), tag_name="loss").attach(engine)
    CpuTime(run_name=str(tmp_path / "evaluator"), iteration_log=False).attach(engine)
    engine.run(range(1), max_epochs=2)
    curves = EventAccumulator(str(tmp_path), {"scalars": 0}).Reload().Scalars("cpu_minutes")
    idle, busy = (60 * event.value for event in curves)
    assert [event.step for event in curves] == [1, 2] and not (tmp_path / "evaluator").exists()
    assert 0 <= idle < 0.15 < 0.3 <= busy + 0.021
    assert busy == pytest.approx(spent[3] - spent[2], abs=0.041), "clocks of processes tick every 10 ms"
