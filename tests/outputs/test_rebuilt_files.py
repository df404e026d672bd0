"""Scans from file to file by configs/inference.yaml: their place, their units and their own facts."""

import nibabel as nib
import numpy as np
import pytest
import torch

from scripts.stack.acquisition import Acquisition
from tests.cohort_files import record
from tests.loops import rebuilt_by_loop
from tests.volumes import random_affine, texture

STACK = np.diag([1.0, 1.0, 4.0, 1.0])


@pytest.mark.slow
@pytest.mark.parametrize(("options", "others"), [({"both_planes": False}, (1,)), ({}, (1, 0))])
def test_the_result_is_the_networks_in_the_scans_units(options, others, bundle, write_nifti, drift):
    """The deployed chain against arithmetic: range to [-1, 1], copies of slices, the plain loop, and back."""
    thick = 1000 * texture((3, 9, 5)) + 200
    own = {"inferer::steps": 2, "inferer::deblocked": False, "consistency": "measure"}
    bundle(write_nifti(thick, STACK), **options, **own)
    acquisition = Acquisition.stack(2, 5, spacing=4.0, thickness=4.0, target=1.0)
    expected = rebuilt_by_loop(torch.from_numpy(thick), acquisition, drift, others)
    result = nib.load(bundle.out / "scan_sr.nii.gz").get_fdata()
    np.testing.assert_allclose(result, expected, atol=0.05)


def test_an_isotropic_scan_is_copied(bundle, write_nifti, log):
    thick, affine = 1000 * texture((6, 7, 8)), random_affine(np.full(3, 0.5), 3)
    bundle(write_nifti(thick, affine), slice_thickness=0.7)
    result = nib.load(bundle.out / "scan_sr.nii.gz")
    told = record(bundle.out)
    assert "it is taken as it is" in log.text and told["Summary"]["agreement"] < 1e-3
    assert told["Summary"]["steps"] == 0
    assert told["Facts"]["steps"] == ["0", "none: the slices are at the target"]
    np.testing.assert_allclose(result.affine, affine, atol=1e-4)
    np.testing.assert_allclose(result.get_fdata(), thick, atol=1e-2)


def test_scan_after_scan_keeps_its_own_facts(bundle, write_nifti):
    """Nothing of one scan leaks into the next: together they give what each gives alone."""
    paths = [
        write_nifti(1000 * texture((6, 7, 5)), STACK, "scans/a.nii.gz"),
        write_nifti(7000 * texture((4, 8, 9), 1), random_affine(np.array([3.0, 0.9, 1.0]), 2), "scans/b.nii.gz"),
    ]
    bundle(paths[0].parent)
    together = [nib.load(bundle.out / f"{name}_sr.nii.gz") for name in "ab"]
    assert [v.shape for v in together] == [(6, 7, 20), (13, 8, 9)]
    for path, image in zip(paths, together):
        expected, affine = image.get_fdata(), image.affine.copy()
        bundle(path, output_dir=str(bundle.out.parent / "alone"))
        alone = nib.load(bundle.out.parent / "alone" / f"{path.name.split('.')[0]}_sr.nii.gz")
        np.testing.assert_allclose(alone.get_fdata(), expected, atol=1e-3)
        np.testing.assert_array_equal(alone.affine, affine)
