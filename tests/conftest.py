"""Real tiny networks and real small files that several tests share."""

import nibabel as nib
import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from scripts.networks import AnatomicalProjectionNetwork, Drift, VelocityNetwork

torch.set_num_threads(1)  # small tensors: threads only wait for each other


@pytest.fixture(scope="session")
def phantom() -> np.ndarray:
    """A sharp smooth-textured volume, (40, 44, 48), values 0 to 1000."""
    volume = gaussian_filter(np.random.default_rng(0).random((40, 44, 48)), 1.5)
    volume = (volume - volume.min()) / (volume.max() - volume.min())
    return (1000 * volume).astype(np.float32)


@pytest.fixture
def drift() -> Drift:
    """Both networks at four and eight channels, with random weights everywhere."""
    torch.manual_seed(0)
    network = Drift(AnatomicalProjectionNetwork((4, 8), residual=True), VelocityNetwork((4, 8)))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    return network.eval()


@pytest.fixture
def write_nifti(tmp_path):
    """Writes an array as NIfTI into the test's folder; returns the path."""

    def write(array: np.ndarray, affine: np.ndarray | None = None, name: str = "scan.nii.gz"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        nib.save(nib.Nifti1Image(array, np.eye(4) if affine is None else affine), path)
        return path

    return write
