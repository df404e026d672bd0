"""configs/inference.yaml as hosts use it: MONAI's properties and its stock evaluator."""

import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.bundle import ConfigWorkflow

from scripts.method.weights import write_card
from tests.cohort_files import AXIAL, texture
from tests.config_files import on_planes
from tests.conftest import CARD

ROOT = Path(__file__).parents[1]


@pytest.fixture
def workflow(tmp_path, monkeypatch, drift):
    """The bundle as hosts build it, with a tiny network. `initialize` changes the interpreter, which is put back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    torch.save(drift.state_dict(), tmp_path / "model.pt")
    write_card(tmp_path / "model.pt", CARD)

    def build(scan, **options):
        tiny = {"network_def": on_planes(4, 8)}
        result = ConfigWorkflow(
            config_file=str(ROOT / "configs" / "inference.yaml"),
            meta_file=str(ROOT / "configs" / "metadata.json"),
            logging_file=False,
            workflow_type="inference",
            bundle_root=str(ROOT),
            input=str(scan),
            output_dir=str(tmp_path / "out"),
            ckpt_path=str(tmp_path / "model.pt"),
            device="$torch.device('cpu')",
            bfloat16=False,
            **{**tiny, "inferer::progress": False, **options},
        )
        result.initialize()
        return result

    return build


def test_it_has_the_properties_that_monai_expects(workflow, scan):
    assert not workflow(scan).check_properties()


def test_the_stock_evaluator_gives_the_result_in_place_and_in_the_scans_units(workflow, write_nifti, bundle):
    """What hosts get from `evaluator` is what the command writes."""
    scan = write_nifti(3 * texture(), AXIAL)
    bundle(scan)
    written = nib.load(bundle.out / "scan_sr.nii.gz")
    evaluator = workflow(scan, **{"inferer::roi_size": 16, "inferer::n_max": 2}).evaluator
    evaluator.run()
    (output,) = evaluator.state.output
    pred = output["pred"]
    assert pred.shape == (1, 6, 7, 20) and pred.device.type == "cpu"
    np.testing.assert_allclose(pred.affine, written.affine, atol=1e-6)
    np.testing.assert_allclose(pred[0], written.get_fdata(), atol=0.01)
