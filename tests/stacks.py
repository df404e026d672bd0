"""Several stacks of one head, as patients give them: it moves in between, and coils see it otherwise."""

from dataclasses import replace

import numpy as np
import torch
from monai.data import MetaTensor
from scipy import ndimage
from scipy.spatial.transform import Rotation

from scripts.rebuild.stacks import Stack
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from scripts.train.simulation import simulate

EDGE = 2.0  # mm
SHAPE = (44, 52, 40)
AFFINE = np.diag([EDGE, EDGE, EDGE, 1.0])
AFFINE[:3, 3] = -40, -55, -30
CENTRE = AFFINE[:3, :3] @ ((np.array(SHAPE) - 1) / 2) + AFFINE[:3, 3]


def person(seed=0, shape=SHAPE):
    """A head with gyri of its own, on a grid of 2 mm; air around it is 0."""
    rng = np.random.default_rng(seed)
    inside = sum(a**2 for a in np.meshgrid(*(np.linspace(-1.2, 1.2, n) for n in shape), indexing="ij")) < 1
    detail = sum(
        width * (noise := ndimage.gaussian_filter(rng.normal(size=shape), width)) / noise.std() for width in (1.0, 2.0)
    )
    return torch.from_numpy(ndimage.gaussian_filter(inside * (600 + 80 * detail), 0.6).clip(0)).float()


def motion(degrees, mm):
    """A motion about the middle of the head: `(4, 4)`, world to world."""
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_rotvec(np.radians(degrees)).as_matrix()
    matrix[:3, 3] = CENTRE - matrix[:3, :3] @ CENTRE + mm
    return matrix


def moved(volume, matrix, affine=AFFINE):
    """Where the head lies after a motion, on the grid that it was on."""
    index = np.linalg.inv(affine) @ np.linalg.inv(matrix) @ affine
    there = ndimage.affine_transform(volume.numpy(), index[:3, :3], index[:3, 3], order=5, mode="constant")
    return torch.from_numpy(there.clip(0)).float()


def stack_of(volume, axis, thickness=6.0, shift=0.0, noise=0.0, affine=AFFINE):
    """Slices of a volume, and the cubic spline between them in place of what networks make of them."""
    acquisition = Acquisition.of_truth(axis, volume.shape[axis], edge=EDGE, thickness=thickness, shift=shift)
    sharp = MetaTensor(volume[None], affine=torch.from_numpy(affine))
    slices = simulate(sharp, acquisition)[0]
    slices += noise * torch.randn(slices.shape, generator=torch.Generator().manual_seed(axis))
    spline = interpolate(slices.as_tensor(), acquisition, "cubic").clamp(min=0)
    return Stack(Slices.of(slices), MetaTensor(spline, affine=torch.from_numpy(affine)))


def restless(stack, mm, seed=0):
    """The same stack where the head moved by about `mm` from slice to slice, within them."""
    rng, acquisition = np.random.default_rng(seed), stack.measured.acquisition
    axis = acquisition.slice_axis
    slices = np.moveaxis(stack.measured.array.numpy(), axis, 0)
    there = [ndimage.shift(one, mm * rng.normal(size=2) / EDGE) for one in slices]
    measured = replace(stack.measured, array=torch.from_numpy(np.moveaxis(np.stack(there), 0, axis).copy()))
    spline = interpolate(measured.array, acquisition, "cubic").clamp(min=0)
    return Stack(measured, MetaTensor(spline, affine=stack.rebuilt.affine))
