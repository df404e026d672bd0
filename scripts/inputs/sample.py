"""The built-in sample: real anatomy that needs no download."""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
from monai.transforms.utils import generate_spatial_bounding_box

from ..errors import InputError
from ..files import whole_file
from ..stack.acquisition import Acquisition
from ..stack.grid import respaced_affine
from ..stack.profile import acquire
from .scan import Scan

THICKNESS = 5.0  # mm, of its slices, which have no gaps


def built_in_sample(output_dir: str | os.PathLike) -> Scan:
    """The 1 mm ICBM152 T1 template in nilearn's wheel, written as an axial thick scan, with its truth and a sidecar.

    Fonov et al., NeuroImage 54:313-327 (2011).
    """
    missing = [name for name in ("nilearn", "matplotlib") if find_spec(name) is None]  # the latter for its picture
    if missing:
        raise InputError(
            f"the built-in sample needs {' and '.join(missing)}: pip install {' '.join(missing)}, or give --input."
        )
    from nilearn.datasets import load_mni152_template  # here: it takes seconds, and only the sample needs it

    template = load_mni152_template(resolution=1)
    data = np.asarray(template.dataobj, dtype=np.float32)
    low, high = generate_spatial_bounding_box(data[None], margin=2, allow_smaller=True)
    high[2] -= (high[2] - low[2]) % int(THICKNESS)  # whole thick slices, so that truth and result share one grid
    truth = template.slicer[tuple(slice(a, b) for a, b in zip(low, high))]
    sharp = np.asarray(truth.dataobj, dtype=np.float32)
    acquisition = Acquisition.of_truth(2, sharp.shape[2], edge=1.0, thickness=THICKNESS)
    thick = acquire(torch.from_numpy(sharp), acquisition).numpy()
    affine = respaced_affine(truth.affine, 2, sharp.shape[2], thick.shape[2], THICKNESS)
    names = ("icbm152.nii.gz", "icbm152_truth.nii.gz", "icbm152.json", "icbm152_sr")
    path, truth_path, sidecar, result = (Path(output_dir, name) for name in names)
    try:
        for place, image in {truth_path: (sharp, truth.affine), path: (thick, affine)}.items():
            with whole_file(place) as partial:
                nib.save(nib.Nifti1Image(*image), partial)
        with whole_file(sidecar) as partial:
            partial.write_text(json.dumps({"SliceThickness": THICKNESS}) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"output_dir {output_dir} cannot be written ({error}). Choose another one.") from error
    return Scan(str(path), path, (path, sidecar), result, truth=truth_path)
