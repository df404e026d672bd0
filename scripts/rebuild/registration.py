"""Where the head lay in one stack and in another: rigid registration of rebuilt volumes, by SimpleITK.

A motion is a `(4, 4)` matrix. It takes a point of the head, in the fixed volume's world coordinates in mm, to where the
same point lies in the moving volume's.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from scipy import ndimage
from scipy.spatial.transform import Rotation
from torch import Tensor

from ..stack.grid import centre, voxel_spacing
from ..stack.slices import Slices
from ..stack.tissue import depth, head_mask

EDGE = 1.0  # mm; voxels of the grid that volumes are registered on, unless their own are much larger
BINS = 32  # of the joint histogram
CUBE = 2.0  # mm; of the grid that `likeness` looks at
WINDOW, ASIDE, FINE, DEEP = 4.0, 4.0, 2.0, 5.0  # mm; see `likeness`
WHOLE = 0.99  # of a voxel that `placed` saw: from here on it lies within the field of view as a whole
ALIKE = 0.11  # see `likeness`; docs/benchmarks.md has the values of pairs of one head and of two
SHARED = 0.1  # of the fixed volume's head; volumes that share less are not compared
# levels of a search: how many times coarser than its grid -> smoothing in mm, share of the voxels
FROM_AFAR, NEARBY = {4: (6.0, 1.0), 2: (2.5, 1.0), 1: (0.0, 0.25)}, {1: (0.0, 0.05)}
FIRST_STEPS = (2.0, 0.2)  # mm; from afar and nearby
STEPS, RELAXATION, LEAST_STEP = 100, 0.6, 1e-3  # at most; a step over the one before a turn back; the last, in mm


def register(fixed: MetaTensor, moving: MetaTensor, head: Tensor, start: np.ndarray | None = None) -> np.ndarray:
    """Finds the motion between two volumes of one head.

    Mattes mutual information: gains of the two may differ (Mattes et al., IEEE Trans. Med. Imaging 22:120-128, 2003).
    It counts where the fixed volume shows the head. A shading of 20 % moves the result by 0.2 mm: without it,
    registration from this result as its start is right to 0.13 mm (docs/benchmarks.md).

    Args:
        fixed, moving: `(X, Y, Z)` with their affines, rebuilt or sharp; not constant.
        head: `(X, Y, Z)`, where the fixed volume shows it; bool.
        start: `(4, 4)`, right to a mm, which is made precise; None to search from the scanner's coordinates, on a
            coarser grid.

    Returns:
        `(4, 4)`. A motion that does not fit comes back as well: `likeness` says so.
    """
    import SimpleITK as sitk  # here: it takes more than a second

    levels, coarser, step = (FROM_AFAR, 2, FIRST_STEPS[0]) if start is None else (NEARBY, 1, FIRST_STEPS[1])
    # cubes that are much smaller than a volume's voxels show no more of it
    edge = coarser * max(EDGE, 0.75 * float(voxel_spacing(fixed.affine).min()))
    images = [_image(_on_cubes(volume, edge)) for volume in (fixed, moving)]
    mask = ndimage.binary_dilation(head.numpy(), iterations=2)
    inside = sitk.Resample(_image(MetaTensor(torch.from_numpy(mask.astype(np.uint8)), affine=fixed.affine)), images[0])
    motion = sitk.Euler3DTransform()
    middle = centre(fixed.affine, fixed.shape)
    motion.SetCenter(middle.tolist())
    if start is not None:
        motion.SetMatrix(start[:3, :3].ravel().tolist())
        motion.SetTranslation((start[:3, :3] @ middle + start[:3, 3] - middle).tolist())
    method = sitk.ImageRegistrationMethod()
    method.SetNumberOfWorkUnits(1)  # sums do not depend on the machine
    method.SetMetricAsMattesMutualInformation(BINS)
    method.SetMetricFixedMask(inside)
    method.SetMetricSamplingStrategy(method.RANDOM)
    smoothing, shares = zip(*levels.values())
    method.SetMetricSamplingPercentagePerLevel(shares, seed=1)  # the same volumes give the same motion
    method.MetricUseMovingImageGradientFilterOff()  # gradients of the samples, not of whole volumes
    method.SetInterpolator(sitk.sitkLinear)
    method.SetShrinkFactorsPerLevel(list(levels))
    method.SetSmoothingSigmasPerLevel(smoothing)
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetOptimizerAsRegularStepGradientDescent(
        learningRate=step, minStep=LEAST_STEP, numberOfIterations=STEPS, relaxationFactor=RELAXATION
    )
    method.SetInitialTransform(motion, inPlace=True)
    try:
        method.Execute(*images)
    except RuntimeError:  # all samples lie outside of the moving volume
        return np.eye(4)
    matrix = np.eye(4)
    matrix[:3, :3] = np.reshape(motion.GetMatrix(), (3, 3))
    matrix[:3, 3] = np.array(motion.GetTranslation()) + middle - matrix[:3, :3] @ middle
    return matrix


def registered(fixed: MetaTensor, moving: MetaTensor, head: Tensor, apart: np.ndarray) -> tuple[np.ndarray, float]:
    """The motion between two volumes of any contrasts, from the scanner's coordinates, and their `likeness`.

    `apart` is of `resolution`.
    """
    motion = register(fixed, moving, head, register(fixed, moving, head))
    return motion, likeness(fixed, moving, motion, apart)


def likeness(fixed: MetaTensor, moving: MetaTensor, motion: np.ndarray, resolution: np.ndarray) -> float:
    """Whether two volumes show one head, whatever their contrasts: how far their detail depends on the place.

    Within a few mm each contrast is nearly a linear function of another, of either sign. The squared correlation in
    Gaussian windows of `WINDOW` is the share of a volume's detail that the other foretells. Large structures are alike
    in all heads, and foretell some of it from further off as well. So the likeness is how much more the volume
    foretells in its place than `ASIDE` of it, on the six sides. Detail that either stack did not measure is smoothed
    away.

    Args:
        fixed, moving, motion: of `register`.
        resolution: `(3,)`, mm along each axis of the fixed volume that both measured: the slice spacing where a stack's
            slices lie, 0 where both are sharp.

    Returns:
        0 to 1; 0 where they share less than a tenth of the fixed volume's head.
    """
    here = _on_cubes(fixed, CUBE)
    there, seen = placed(_on_cubes(moving, CUBE), here, motion, order=1)
    head = head_mask(here.as_tensor().clamp(min=0)).numpy()
    if not (there.min() < there.max()):
        return 0.0
    both = head & head_mask(there.clamp(min=0)).numpy() & (seen.numpy() > WHOLE)
    if both.sum() < SHARED * head.sum():
        return 0.0
    box = ndimage.find_objects(both.astype(int))[0]
    both = both[box]
    widths = np.maximum(resolution, FINE) / 3 / CUBE
    weight = ndimage.gaussian_filter(both.astype(np.float32), widths)
    a, b = (
        ndimage.gaussian_filter(volume.numpy()[box] * both, widths) / np.maximum(weight, 1e-3)
        for volume in (here.as_tensor(), there)
    )
    deep = depth(both, CUBE) > DEEP  # borders of heads are alike
    aside = [(axis, sign * round(ASIDE / CUBE)) for axis in range(3) for sign in (1, -1)]  # none meets the other end
    others = [_foretold(a, np.roll(b, step, axis), deep & np.roll(deep, step, axis)) for axis, step in aside]
    return max(0.0, _foretold(a, b, deep) - float(np.mean(others)))


def _foretold(a: np.ndarray, b: np.ndarray, inside: np.ndarray) -> float:
    """The share of the variance in windows that two arrays have in common, 0 to 1; 0 where neither varies."""
    weight = _windows(inside.astype(np.float32), inside)
    if not len(weight):
        return 0.0
    first, second, square, other, product = (
        _windows(array * inside, inside) / weight for array in (a, b, a * a, b * b, a * b)
    )
    one, two, common = square - first**2, other - second**2, product - first * second
    if min(one.mean(), two.mean()) <= 0:
        return 0.0
    share = common**2 / (np.maximum(one, 1e-4 * one.mean()) * np.maximum(two, 1e-4 * two.mean()))
    return float((share * one).mean() / one.mean() + (share * two).mean() / two.mean()) / 2


def _windows(array: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Sums over Gaussian windows, at every other voxel of a mask along each axis."""
    places = tuple(slice(None, None, 2) for _ in array.shape)
    return ndimage.gaussian_filter(array, WINDOW / CUBE, truncate=3.0)[places][inside[places]]


def resolution(fixed: MetaTensor, stacks: Sequence[Slices]) -> np.ndarray:
    """How far apart samples of stacks lie along each axis of a volume, in mm, `(3,)`; 0 where all are sharp.

    Args:
        fixed: `(X, Y, Z)` with its affine.
        stacks: measured; slices count along the axis that they are nearest to.
    """
    axes, apart = np.asarray(fixed.affine)[:3, :3] / voxel_spacing(fixed.affine), np.zeros(3)
    for stack in stacks:
        acquisition = stack.acquisition
        axis = int(np.abs(axes.T @ np.asarray(stack.affine)[:3, acquisition.slice_axis]).argmax())
        apart[axis] = max(apart[axis], acquisition.slice_spacing)
    return apart


def placed(volume: MetaTensor, grid: MetaTensor, motion: np.ndarray, order: int = 3) -> tuple[Tensor, Tensor]:
    """A volume on another grid, where the head lies in that one; by splines.

    Args:
        volume: `(X, Y, Z)` with its affine.
        grid: `(X', Y', Z')` with its affine; its values do not matter.
        motion: `(4, 4)`, from the grid's world to the volume's.
        order: of the splines.

    Returns:
        The values `(X', Y', Z')`, and how far they were seen, 1 within the field of view and 0 beyond, where the values
        are those of its border.
    """
    index = np.linalg.inv(np.asarray(volume.affine)) @ motion @ np.asarray(grid.affine)
    array = volume.as_tensor().numpy()
    if np.allclose(index, np.eye(4), atol=1e-6) and volume.shape == grid.shape:
        return volume.as_tensor().clone(), torch.ones(volume.shape)
    values = ndimage.affine_transform(
        array, index[:3, :3], index[:3, 3], tuple(grid.shape), order=order, mode="nearest", output=np.float32
    )
    seen = np.ones(grid.shape, dtype=np.float32)
    for axis, count in enumerate(volume.shape):
        places = index[axis, 3] + sum(
            (index[axis, k] * np.arange(n, dtype=np.float32)).reshape([-1 if d == k else 1 for d in range(3)])
            for k, n in enumerate(grid.shape)
        )
        seen *= np.clip(np.minimum(places + 1, count - places), 0, 1)  # a ramp of a voxel at the border
    return torch.from_numpy(values), torch.from_numpy(seen)


def angle_and_shift(motion: np.ndarray, point: np.ndarray) -> tuple[float, float]:
    """How far a motion turns, in degrees, and how far it moves a point, in mm."""
    turn = np.degrees(Rotation.from_matrix(motion[:3, :3]).magnitude())
    return float(turn), float(np.linalg.norm(motion[:3, :3] @ point + motion[:3, 3] - point))


def _on_cubes(volume: MetaTensor, edge: float) -> MetaTensor:
    """A volume, smoothed, on a grid of `edge` mm with the same axes and centre."""
    affine, edges = np.asarray(volume.affine, dtype=float), voxel_spacing(volume.affine)
    shape = np.maximum(np.round(np.array(volume.shape) * edges / edge), 1).astype(int)
    coarse = affine.copy()
    coarse[:3, :3] *= edge / edges
    coarse[:3, 3] += affine[:3, :3] @ ((np.array(volume.shape) - 1) / 2) - coarse[:3, :3] @ ((shape - 1) / 2)
    smooth = ndimage.gaussian_filter(volume.as_tensor().numpy(), 0.5 * edge / edges, mode="nearest")
    place = MetaTensor(torch.empty(tuple(shape)), affine=torch.from_numpy(coarse))
    values, _ = placed(MetaTensor(torch.from_numpy(smooth), affine=volume.affine), place, np.eye(4), order=1)
    return MetaTensor(values, affine=place.affine)


def _image(volume: MetaTensor) -> Any:
    """A volume as SimpleITK holds it. Its coordinates are RAS here, not LPS: a rigid motion is one in either."""
    affine, edges = np.asarray(volume.affine, dtype=float), voxel_spacing(volume.affine)
    import SimpleITK as sitk  # as above

    image = sitk.GetImageFromArray(np.ascontiguousarray(volume.as_tensor().numpy().T))
    image.SetSpacing(edges.tolist())
    image.SetOrigin(affine[:3, 3].tolist())
    image.SetDirection((affine[:3, :3] / edges).ravel().tolist())
    return image
