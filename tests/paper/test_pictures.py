"""Pictures of one volume by several methods: what is shown lies as the patient does, and is made once."""

import nibabel as nib
import numpy as np
import pytest
import torch

from scripts.paper import pictures
from scripts.paper.trained_variants import TrainedVariants
from tests.config_files import ROOT
from tests.paper.test_experiments import place  # noqa: F401  # a fixture


@pytest.fixture
def trained(place, tmp_path):  # noqa: F811
    """With the second volume stored the other way round."""
    volume = nib.load(place / "data" / "sub-1_T1w.nii.gz")
    folder = tmp_path / "data"
    folder.mkdir()
    nib.save(volume, folder / "sub-0_T1w.nii.gz")
    turned = nib.Nifti1Image(np.ascontiguousarray(volume.get_fdata()[::-1].transpose(2, 0, 1)), None)
    turned.set_sform(np.array([[0, -1, 0, 31], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1.0]]), 1)
    nib.save(turned, folder / "sub-1_T1w.nii.gz")
    told = {"size": "tiny", "budget": 4, "stage1_length": 1, "seed": 0, "seeds": None, "training": {}}
    files = [place / "nano.yaml"]
    return TrainedVariants(ROOT, folder, tmp_path / "out", place / "weights.pt", evaluation={}, files=files, **told)


def test_results_are_kept_and_turned_as_the_patient_lies(trained):
    volumes, axis, top = pictures.rebuilt(trained, {"methods": ["linear", "DRIFT"]}, 4.0)
    assert list(volumes) == ["linear", "DRIFT", "truth"]
    (item,) = trained.volumes
    image = nib.as_closest_canonical(nib.load(item["label"]))
    assert np.array_equal(volumes["truth"].numpy(), image.get_fdata(dtype=np.float32))
    stored = nib.load(item["label"])
    assert nib.aff2axcodes(stored.affine)[0] in "RLAPSI"[2 * axis : 2 * axis + 2]
    assert 0 < top <= volumes["truth"].max()
    kept = sorted(trained.output.rglob("*.nii.gz"))
    before = [path.stat().st_mtime_ns for path in kept]
    again, _, _ = pictures.rebuilt(trained, {"methods": ["linear", "DRIFT"]}, 4.0)
    assert len(kept) == 2 and before == [path.stat().st_mtime_ns for path in kept]
    assert all(torch.equal(volumes[name], again[name]) for name in volumes)
