"""BIDS datasets that tests of them share."""

import json

import nibabel as nib
import numpy as np

THICK = np.diag([1.0, 1.0, 5.0, 1.0])


def write(root, **files):
    """A dataset: name -> content of a JSON file, or a text."""
    for name, content in {"dataset_description.json": {"Name": "x", "BIDSVersion": "1.9.0"}, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return root


def add_scan(root, name, affine=THICK, shape=(8, 9, 6)):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nib.Nifti1Image((1000 * np.random.default_rng(0).random(shape)).astype(np.float32), affine)
    image.header.set_xyzt_units("mm", "sec")
    nib.save(image, path)
    return path
