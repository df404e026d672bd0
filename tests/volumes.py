"""Small volumes and affines that several tests share."""

import numpy as np
import torch
from monai.data import MetaTensor
from scipy.ndimage import gaussian_filter
from scipy.spatial.transform import Rotation

from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from scripts.stack.profile import acquire
from scripts.train.simulation import simulate


def texture(shape, seed=0) -> np.ndarray:
    """Uniform noise in [0, 1), float32."""
    return np.random.default_rng(seed).random(shape).astype(np.float32)


def head(shape=(24, 26, 40)) -> torch.Tensor:
    """A textured ellipsoid in air, values 0 to about 1000."""
    axes = torch.meshgrid(*(torch.linspace(-1.2, 1.2, n) for n in shape), indexing="ij")
    inside = sum(a.square() for a in axes) < 1
    noise = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    noise = torch.nn.functional.avg_pool3d(noise[None, None], 3, stride=1, padding=1)[0, 0]
    return torch.where(inside, 400 + 1000 * (noise - 0.2), 0.0)


def smooth_head(shape=(40, 40, 40)) -> torch.Tensor:
    """`head` without its finest texture, and with edges of some voxels."""
    return torch.from_numpy(gaussian_filter(head(shape).numpy(), 1.0))


def scan_of(truth, thickness=5.0, **others) -> MetaTensor:
    """`(1, X, Y, Z)`: slices of a volume of 1 mm voxels along its last axis, as the preprocessing gives them."""
    acquisition = Acquisition.of_truth(2, truth.shape[2], edge=1.0, thickness=thickness, **others)
    return simulate(MetaTensor(truth[None], affine=torch.eye(4, dtype=torch.float64)), acquisition)


def degrade(image, acquisition) -> torch.Tensor:
    """What a network sees of a sharp image: thick slices, back on the image's own grid (Eqs. S1-S3)."""
    return interpolate(acquire(image, acquisition), acquisition, "nearest")


def random_affine(spacing, seed) -> np.ndarray:
    """Rotated, mirrored and far from the scanner's centre."""
    rng = np.random.default_rng(seed)
    affine = np.eye(4)
    affine[:3, :3] = Rotation.random(random_state=seed).as_matrix() @ np.diag(rng.choice([-1, 1], 3) * spacing)
    affine[:3, 3] = rng.uniform(-150, 150, 3)
    return affine


def place(affine, index) -> np.ndarray:
    """World coordinates in mm of indices `(n, 3)`."""
    return np.asarray(index) @ affine[:3, :3].T + affine[:3, 3]


def indices(shape) -> np.ndarray:
    """`(n, 3)`, those of all voxels, in the order of `ravel`."""
    return np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1).reshape(-1, 3)


def noise_stack(shape, seed=0, axis=2, spacing=5.0, thickness=4.0, target=1.0, **meta) -> MetaTensor:
    """`(1, 1, X, Y, Z)`: thick slices of noise from 0 to 1000, without air, on an oblique grid in RAS+ order."""
    values = 1000 * torch.rand((1, 1, *shape), generator=torch.Generator().manual_seed(seed))
    edges = np.ones(3)
    edges[axis] = spacing
    affine = np.eye(4)
    affine[:3, :3] = Rotation.from_euler("xyz", [10, 20, -30], degrees=True).as_matrix() * edges
    affine[:3, 3] = -90, 12, 33
    volume = MetaTensor(values, affine=torch.from_numpy(affine), meta=meta)
    Acquisition.stack(axis, shape[axis], spacing=spacing, thickness=thickness, target=target).attach(volume)
    return volume


def oblique():
    """A tilted stack of 4 mm slices along the last axis, far from the scanner's centre."""
    a, b = np.radians(20), np.radians(-35)
    tilt = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    turn = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
    affine = np.eye(4)
    affine[:3, :3] = tilt @ turn @ np.diag([-1.0, 1.0, 4.0])
    affine[:3, 3] = (-80.5, 61.2, 17.3)
    return affine
