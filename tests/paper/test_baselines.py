"""What holds for every baseline: it stacks on the three configs, trains, resumes, rebuilds in place, is evaluated."""

import json

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import torch
from ignite.engine import Events

from scripts.method.weights import read_card
from tests.cohort_files import AXIAL, texture
from tests.config_files import BASELINES
from tests.nano import Stop, content, load
from tests.paper import baselines

NAMES = [file.removeprefix("paper/baselines/").removesuffix(".yaml") for file in BASELINES]


class Trained:
    """A baseline after a tiny training."""

    def __init__(self, name, folder, dataset_dir):
        self.name, self.folder, self.dataset_dir = name, folder, dataset_dir
        self.bundle = baselines.workflow(
            *("train", name, folder / "tiny", "training"), dataset_dir=str(dataset_dir), output_dir=str(folder / "eval")
        )
        network = content(self.bundle, "network")
        self.initial = {key: value.clone() for key, value in network.state_dict().items()}
        self.bundle.run()
        self.weights = folder / "eval" / f"{name}.pt"

    def loss(self, state):
        """Over the same batches."""
        trainer, network = content(self.bundle, "train#trainer"), content(self.bundle, "network")
        network.load_state_dict(state)
        torch.manual_seed(1)
        values = []
        for batch in [batch for _ in range(4) for batch in trainer.data_loader]:
            image, target, *rest = trainer.prepare_batch(batch, "cpu")
            arguments = rest[0] if rest else ()
            with torch.no_grad():
                values.append(trainer.loss_function(trainer.inferer(image, trainer.network, *arguments), target).item())
        return np.mean(values)


@pytest.fixture(scope="module", params=NAMES)
def trained(request, tmp_path_factory, dataset_dir):
    return Trained(request.param, tmp_path_factory.mktemp(request.param), dataset_dir)


def test_it_learns_and_exports_weights_with_a_card(trained):
    state = load(trained.weights)
    assert trained.loss(state) < trained.loss(trained.initial)
    assert read_card(trained.weights).size == trained.name
    assert all(value.isfinite().all() for value in state.values())


@pytest.mark.parametrize("trained", ["resshift"], indirect=True)  # which draws times and noise beside patches
def test_a_killed_training_goes_on_bit_for_bit(trained, tmp_path):
    given = {"dataset_dir": str(trained.dataset_dir), "output_dir": str(tmp_path / "eval")}
    killed = baselines.workflow("train", trained.name, tmp_path, "training", **given)

    @content(killed, "train#trainer").on(Events.EPOCH_STARTED(once=2))
    def stop():
        raise Stop

    with pytest.raises((Stop, RuntimeError)):
        killed.run()
    assert not (tmp_path / "eval" / f"{trained.name}.pt").exists()
    baselines.workflow("train", trained.name, tmp_path, "training", **given).run()
    resumed, whole = load(tmp_path / "eval" / f"{trained.name}.pt"), load(trained.weights)
    assert all(torch.equal(resumed[key], whole[key]) for key in whole)


def test_a_scan_is_rebuilt_in_place(trained, tmp_path, write_nifti):
    """By the deployed config: the record names its weights."""
    path = write_nifti(texture(), AXIAL)
    given = {"input": str(path), "output_dir": str(tmp_path / "out"), "ckpt_path": str(trained.weights)}
    baselines.workflow("inference", trained.name, tmp_path, **given).run()
    result, thick = nib.load(tmp_path / "out" / "scan_sr.nii.gz"), nib.load(path)
    values = result.get_fdata()
    assert np.isfinite(values).all() and values.std() > 0
    middles = [image.affine @ [*(np.array(image.shape) - 1) / 2, 1] for image in (result, thick)]
    np.testing.assert_allclose(*middles, atol=1e-3)
    record = json.loads((tmp_path / "out" / "scan_sr.json").read_text())
    assert record["Settings"]["consistency"] == "measure"
    assert record["Facts"]["steps"][1] == "the method"
    assert record["WeightsSHA256"] == read_card(trained.weights).sha256


def test_it_stands_in_the_table(trained, tmp_path):
    given = {"dataset_dir": str(trained.dataset_dir), "output_dir": str(tmp_path), "ckpt_path": str(trained.weights)}
    baselines.workflow("evaluate", trained.name, tmp_path / "tiny", thicknesses=[2.0], **given).run()
    rows = pd.read_csv(tmp_path / "evaluation.csv")
    rows = rows[rows["statistic"] == "value"]
    assert len(rows) == 1 and np.isfinite(rows["psnr"]).all()
    assert rows["method"].item().lower().replace("-", "") == trained.name
