"""Both stages of `configs/train.yaml`, trained once for all tests on tiny networks."""

import numpy as np
import pytest
import torch

from tests import nano
from tests.nano import content, load, planes_seen

EPOCHS = 20
LONG = {
    **{"stage1_epochs": EPOCHS, "stage2_epochs": EPOCHS, "checkpoint_interval": EPOCHS, "val_interval": EPOCHS},
    "stage1_learning_rate": 5.0e-3,
}


class Trained:
    """Both stages, run once for several tests."""

    def __init__(self, output_dir, dataset_dir):
        self.output_dir = output_dir
        self.bundle = nano.workflow(output_dir, dataset_dir, "training", **LONG)
        self.network = content(self.bundle, "network")
        self.initial = {name: value.clone() for name, value in self.network.state_dict().items()}
        self.apn_calls, self.velocity_calls = planes_seen(self.network.apn), planes_seen(self.network.velocity)
        self.bundle.run()
        self.stage1, self.model = load(output_dir / "stage1.pt"), load(output_dir / "model.pt")

    def losses(self, stage, *states):
        """Mean loss of a stage over the same patches, for each state of the network."""
        trainer = content(self.bundle, "train#trainer", stage)
        torch.manual_seed(1)
        batches = [batch for _ in range(4) for batch in trainer.data_loader]
        results = []
        for state in states:
            self.network.load_state_dict(state)
            torch.manual_seed(2)
            with torch.no_grad():
                values = []
                for data in batches:
                    image, target, arguments, _ = trainer.prepare_batch(data, "cpu")
                    values.append(trainer.loss_function(trainer.network(image, *arguments), target).item())
            results.append(np.mean(values))
        return results


@pytest.fixture(scope="session")
def trained(tmp_path_factory, dataset_dir):
    return Trained(tmp_path_factory.mktemp("trained") / "eval", dataset_dir)
