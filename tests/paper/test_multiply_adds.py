"""What a method computes for each voxel, counted."""

import nibabel as nib
import numpy as np
import pytest
import torch

from scripts.paper.multiply_adds import multiply_adds_per_voxel


def test_the_multiply_adds_of_a_method_are_those_of_its_convolutions_for_each_voxel(tmp_path):
    """27 multiply-adds a voxel by a convolution of 3 x 3 x 3, in 1e6."""
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
    assert multiply_adds_per_voxel(guided, item) == pytest.approx(54e-6), "there and back"
