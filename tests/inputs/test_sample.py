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


def test_the_sample_is_a_whole_head_of_1_mm_acquired_in_axial_slices_of_5_mm(tmp_path):
    folder = tmp_path / "new" / "out"
    (item,) = scans(None, folder, Selection(1.3))
    image, truth = folder / "icbm152.nii.gz", folder / "icbm152_truth.nii.gz"
    assert item == Scan(str(image), image, (image, folder / "icbm152.json"), folder / "icbm152_sr", truth=truth)
    assert json.loads((folder / "icbm152.json").read_text()) == {"SliceThickness": 5.0}
    thick, fine = nib.load(image), nib.load(truth)
    np.testing.assert_allclose(fine.header.get_zooms(), (1, 1, 1), atol=1e-6)
    np.testing.assert_allclose(thick.header.get_zooms(), (1, 1, 5), atol=1e-6)
    assert nib.aff2axcodes(thick.affine) == ("R", "A", "S")
    assert fine.shape == (*thick.shape[:2], 5 * thick.shape[2]), "one grid with the result"
    centres = [nib.affines.apply_affine(v.affine, (np.array(v.shape) - 1) / 2) for v in (fine, thick)]
    np.testing.assert_allclose(*centres, atol=1e-4)
    sharp = torch.from_numpy(fine.get_fdata(dtype=np.float32))
    expected = acquire(sharp, Acquisition.of_truth(2, sharp.shape[2], edge=1.0, thickness=5.0)).numpy()
    np.testing.assert_allclose(thick.get_fdata(dtype=np.float32), expected, atol=1e-5 * float(sharp.max()))
    occupied = (sharp > 0).nonzero()
    assert (occupied.amin(0)[:2] == 2).all(), "a margin of two voxels, so that nothing is cut"
    assert 1.2e6 < (sharp > 0.2 * sharp.max()).sum() < 2.5e6, "mm^3 of brain: an adult's"


def test_a_folder_that_is_a_file_is_told(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(InputError, match=r"output_dir .*taken.* cannot be written"):
        built_in_sample(tmp_path / "taken")
