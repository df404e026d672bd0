"""configs/inference.yaml as hosts use it: MONAI's properties and its stock evaluator."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from tests.cohort_files import AXIAL, texture
from tests.config_files import ERROR, on_planes

ROOT = Path(__file__).parents[1]


@pytest.fixture
def workflow(hosted, bundle):
    """With the weights of `bundle`."""
    tiny = {"network_def": on_planes(4, 8, error=ERROR), "inferer::progress": False, "bfloat16": False}

    def build(scan, **options):
        given = {"input": str(scan), "ckpt_path": str(bundle.weights), "device": "$torch.device('cpu')"}
        return hosted("inference", **given, **tiny, **options)

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
