"""The built-in sample is what it says."""

import json

import nibabel as nib
import numpy as np
import pytest
import torch

from scripts.errors import InputError
from scripts.inputs.sample import built_in_sample
from scripts.inputs.scan import Scan
from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from scripts.stack.acquisition import Acquisition
from scripts.stack.profile import acquire


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample") / "new" / "out"
    (item,) = scans(None, folder, Selection(1.3))
    return folder, item, nib.load(item.truth), nib.load(item.source)


def test_the_sample_is_one_scan_with_its_truth(sample):
    folder, item, _, _ = sample
    image, truth = folder / "icbm152.nii.gz", folder / "icbm152_truth.nii.gz"
    assert item == Scan(str(image), image, (image, folder / "icbm152.json"), folder / "icbm152_sr", truth=truth)
    assert sorted(p.name for p in folder.iterdir()) == ["icbm152.json", "icbm152.nii.gz", "icbm152_truth.nii.gz"]
    assert json.loads((folder / "icbm152.json").read_text()) == {"SliceThickness": 5.0}


def test_the_sample_is_five_millimetres_thick_and_axial(sample):
    _, _, truth, thick = sample
    np.testing.assert_allclose(truth.header.get_zooms(), (1, 1, 1), atol=1e-6)
    np.testing.assert_allclose(thick.header.get_zooms(), (1, 1, 5), atol=1e-6)
    assert nib.aff2axcodes(thick.affine) == ("R", "A", "S")
    assert truth.shape == (*thick.shape[:2], 5 * thick.shape[2])  # one grid with the result


def test_sample_and_truth_share_their_centre(sample):
    _, _, truth, thick = sample
    centres = [nib.affines.apply_affine(v.affine, (np.array(v.shape) - 1) / 2) for v in (truth, thick)]
    np.testing.assert_allclose(*centres, atol=1e-4)


def test_the_sample_is_the_truth_acquired_in_thick_slices(sample):
    _, _, truth, thick = sample
    sharp = torch.from_numpy(truth.get_fdata(dtype=np.float32))
    expected = acquire(sharp, Acquisition.of_truth(2, sharp.shape[2], edge=1.0, thickness=5.0)).numpy()
    np.testing.assert_allclose(thick.get_fdata(dtype=np.float32), expected, atol=1e-5 * float(sharp.max()))


def test_the_sample_holds_the_whole_head(sample):
    _, _, truth, thick = sample
    data = truth.get_fdata(dtype=np.float32)
    assert data.dtype == thick.get_fdata(dtype=np.float32).dtype and np.isfinite(data).all()
    occupied = np.argwhere(data > 0)
    assert (occupied.min(0)[:2] == 2).all()  # a margin of two voxels, so that nothing is cut
    assert (np.array(data.shape)[:2] - occupied.max(0)[:2] == 3).all()
    assert 1.2e6 < (data > 0.2 * data.max()).sum() < 2.5e6  # mm^3 of brain: an adult's


def test_a_folder_that_is_a_file_is_told(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(InputError, match=r"output_dir .*taken.* cannot be written"):
        built_in_sample(tmp_path / "taken")
