"""MONAI's own calls on `configs/train.yaml`: what they train is a training, whole."""

import sys

import pytest
import torch
from ignite.engine import Events
from monai.bundle import create_workflow
from monai.engines import SupervisedTrainer
from monai.handlers import LrScheduleHandler, ValidationHandler

from scripts.errors import InputError, input_error
from scripts.method.weights import read_card
from tests import nano
from tests.config_files import CONFIGS, ROOT
from tests.nano import load, same, write_yaml


@pytest.fixture
def workflow(tmp_path, dataset_dir, monkeypatch):
    """MONAI's workflow of a tiny training, made as its tutorials make it; options may differ."""
    monkeypatch.setattr("sys.path", list(sys.path))

    def make(**options):
        settings = write_yaml(tmp_path / "nano.yaml", {**nano.SETTINGS, "val_interval": 1})
        places = {"bundle_root": str(ROOT), "dataset_dir": str(dataset_dir), "output_dir": str(tmp_path / "eval")}
        return create_workflow(
            config_file=[str(CONFIGS / "train.yaml"), str(settings)], workflow_type="train", **places, **options
        )

    return make


def test_the_trainer_of_a_workflow_is_the_one_that_trains(workflow, tmp_path):
    """`workflow.trainer.run()`: rate, validation, checkpoint, weights; again, it goes on, under other values not."""
    made = workflow()
    assert made.check_properties() == []
    trainer, handlers = made.trainer, made.train_handlers
    assert type(trainer) is SupervisedTrainer and trainer.optimizer is made.parser.get_parsed_content("optimizer")
    assert {LrScheduleHandler, ValidationHandler} <= {type(handler) for handler in handlers}
    rates, before = [], {name: value.clone() for name, value in trainer.network.state_dict().items()}
    trainer.add_event_handler(
        Events.ITERATION_COMPLETED, lambda engine: rates.append(engine.optimizer.param_groups[0]["lr"])
    )
    trainer.run()
    assert len(set(rates)) > 1 and not same(before, trainer.network.state_dict())
    folder = tmp_path / "eval"
    assert {path.name for path in folder.iterdir()} == {"stage1", "stage1.pt", "stage1.json", "stage1_checkpoint.pt"}
    assert read_card(folder / "stage1.pt").sha256 and made.evaluator.state.epoch == nano.SETTINGS["stage1_epochs"]
    assert 10 < made.evaluator.state.metrics["psnr"] < 80 and trainer.state.metrics["mean_loss"] > 0

    weights = load(folder / "stage1.pt")
    checkpoint = load(folder / "stage1_checkpoint.pt")
    assert all(torch.equal(weights[f"apn.{name}"], value) for name, value in checkpoint["average"].items())
    longer = workflow()
    longer.trainer.run()
    assert same(load(folder / "stage1.pt"), weights), "complete"
    with pytest.raises(Exception, match=r"ssim_weight was 0\.02, is 0\.5") as caught:
        workflow(ssim_weight=0.5).trainer.run()
    assert isinstance(input_error(caught.value), InputError)


def test_the_plain_run_trains_all_parts(workflow, tmp_path):
    """`create_workflow(...).run()`, and `max_epochs` as MONAI sets it."""
    made = workflow(stage2_epochs=1)
    made.max_epochs = 1
    made.initialize()
    made.run()
    made.finalize()
    folder = tmp_path / "eval"
    assert load(folder / "stage1_checkpoint.pt")["trainer"]["iteration"] == 2
    assert load(folder / "model.pt").keys() == load(folder / "stage1.pt").keys()
    assert same(load(folder / "stage1.pt"), load(folder / "model.pt"), "apn")
