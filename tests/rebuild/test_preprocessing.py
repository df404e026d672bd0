"""Laws of what is settled of a scan before it is rebuilt."""

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.errors import InputError
from scripts.inputs.transforms import LoadScand
from scripts.rebuild.preprocessing import SettleAcquisitiond
from scripts.stack.acquisition import Acquisition
from tests.corpus import situations
from tests.fixtures import CARD


def test_slices_that_were_interpolated_are_taken_back_to_their_spacing(tmp_path):
    path = situations.nifti(tmp_path, "T2", situations.CUBE, situations.interpolated())
    volume = LoadScand("image")({"image": path})
    found = SettleAcquisitiond("image", CARD, slice_spacing=5.0)(volume)["image"]
    a = Acquisition.of(found)
    assert (a.slice_axis, a.slice_spacing, a.slice_thickness, a.slice_count) == (2, 5.0, 5.0, 8)
    assert "the slices were interpolated: one is taken every 5 mm along axis 2" in a.warnings
    middle = [np.asarray(one.affine) @ [*(np.array(one.shape[1:]) - 1) / 2, 1] for one in (volume["image"], found)]
    np.testing.assert_allclose(*middle, atol=1e-6)
    with pytest.raises(InputError, match="expected the larger spacing that they were interpolated from"):
        SettleAcquisitiond("image", CARD, slice_spacing=1.0)(volume)


def test_a_sidecar_speaks_of_its_scan_in_memory_too_and_a_broken_one_only_where_no_thickness_is_given(tmp_path):
    path = situations.nifti(tmp_path, "T2", SliceThickness=4)
    image = nib.load(path)
    given = MetaTensor(torch.from_numpy(image.get_fdata(dtype=np.float32))[None], affine=torch.tensor(image.affine))
    given.meta["filename_or_obj"] = str(path)

    def thickness(source, **options):
        loaded = LoadScand("image")({"image": source})
        return Acquisition.of(SettleAcquisitiond("image", CARD, **options)(loaded)["image"]).slice_thickness

    assert thickness(path) == thickness(given.clone()) == 4
    (tmp_path / "T2.json").write_text("{")
    for source in (path, given):
        assert thickness(source, slice_thickness=3.0) == 3
        with pytest.raises(InputError, match=r"T2\.json cannot be read"):
            thickness(source)
