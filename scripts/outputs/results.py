"""A result on disk: its voxels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch
from monai.data import MetaTensor, NibabelReader, PydicomReader

DTYPES = ("float32", "int16")  # of NIfTI voxels


def nifti_image(result: MetaTensor, header: Mapping[str, Any], dtype: str = "float32") -> nib.Nifti1Image:
    """A rebuilt volume `(X, Y, Z)` with its affine, as nibabel holds it.

    Args:
        header: fields of the scan's own header that hold for the result as well; empty if it has none.
        dtype: of the voxels, one of `DTYPES`; integers are scaled, and right to half a step.
    """
    image = nib.Nifti1Image(np.asarray(result.as_tensor(), dtype=np.float32), np.asarray(result.affine))
    image.set_data_dtype(dtype)
    sform, qform = (int(header.get(name, 0)) for name in ("sform_code", "qform_code"))
    sform = sform or qform or int(image.header["sform_code"])
    image.set_sform(image.affine, sform)
    image.set_qform(image.affine, qform or sform)
    for name in ("dim_info", "xyzt_units"):
        image.header[name] = header.get(name, 0)
    length, duration = image.header.get_xyzt_units()
    image.header.set_xyzt_units("mm", duration if length == "mm" else "sec")
    return image


def read(path: Path) -> MetaTensor:
    """The `(X, Y, Z)` volume of a result: a NIfTI file, or a folder with a DICOM series."""
    reader = PydicomReader() if path.is_dir() else NibabelReader()
    array, meta = reader.get_data(reader.read(path))
    return MetaTensor(torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)), affine=meta["affine"])
