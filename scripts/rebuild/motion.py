"""A head that moved between the packages of its stack: found, and taken back.

Two-dimensional scans are interleaved: the even slices come first, the odd ones minutes later. A head that moves between
them leaves a comb. All packages show the same head, in several places:

    y_0 = A x,    y_k = A (x o M_k^-1)

`x` is the head where it lay for the first package, `M_k` its motion until package `k`, `A` the slice model
(`profile.acquire`). A result of all slices holds the moved ones where they were: a motion that is fitted to it stays
at 0. So each package is compared with the spline through the slices of the others alone, as slices are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from monai.data import MetaTensor
from scipy import ndimage
from scipy.interpolate import CubicSpline
from scipy.spatial.transform import Rotation
from torch import Tensor

from ..stack.acquisition import Acquisition
from ..stack.grid import centre, meta_without_affine, voxel_spacing
from ..stack.intensity import above_floor
from ..stack.interpolation import interpolate
from ..stack.missing import missing_slices
from ..stack.packages import even_and_odd
from ..stack.profile import acquire
from ..stack.tissue import head_mask
from .guide import fine_affine_of
from .registration import angle_and_shift, placed

SMOOTHING, PIXEL = 2.0, 2.0  # mm within the slices; finer detail of one slice is not in its neighbours
FEWEST = 8  # slices; fewer leave a package without a spline
LEAST = 200  # pixels of a slice that are compared
ROUNDS, SMALL = 12, 1e-3  # steps of Gauss and Newton at most, true motion takes 8; the step, mm and radians, that ends
EXPLAINED = 0.5  # of the variance of a package that the other one foretells; less is no head
FARTHEST, MOST_TURN = 12.0, 9.0  # mm, and degrees; a fit that ends farther away went astray
MOVED, SURE = 0.4, 3.0  # mm of the head, and standard deviations; from both on a head moved (docs/benchmarks.md)
SPLINES = 2  # rounds of `steadied`
SWEEPS = 3  # over more packages than two, each against the others where they are known to lie


@dataclass(frozen=True)
class Motion:
    """How a head moved between the packages of its stack.

    Attributes:
        packages: of each slice, a digit each; for package 0 the head lies still.
        matrices: `(P, 4, 4)`, from a point's place in the world, in mm, for package 0 to its place for each package.
        degrees, millimetres: the most that the head turned, and that its middle moved.
        displacement: of the head's points, root mean square, in mm, of the package that moved farthest.
        uncertainty: standard deviation of that, in mm.
    """

    packages: str
    matrices: np.ndarray
    degrees: float
    millimetres: float
    displacement: float
    uncertainty: float

    @property
    def moved(self) -> bool:
        """Whether the null hypothesis, a still head, is given up."""
        return self.displacement > max(MOVED, SURE * self.uncertainty)

    @property
    def between(self) -> str:
        """The packages, for people."""
        return "even and odd slices" if len(self.matrices) == 2 else f"the {len(self.matrices)} packages of its slices"

    def __str__(self) -> str:
        return f"the head moved by {self.millimetres:.1f} mm and {self.degrees:.1f} degrees between {self.between}"


class _Pose(NamedTuple):
    """Where the head lay for a package: `turn @ p + shift` of a point `p`, from the middle of the stack, in mm."""

    turn: np.ndarray
    shift: np.ndarray
    covariance: np.ndarray  # (6, 6): rotation about each axis, in radians, and shift along each

    def away(self, points: np.ndarray) -> np.ndarray:
        """How far points `(3, n)` moved."""
        return self.turn @ points + self.shift[:, None] - points


STILL = _Pose(np.eye(3), np.zeros(3), np.zeros((6, 6)))


class _Package(NamedTuple):
    """Some slices of a stack; lengths in mm, places from the middle of the stack, the slice axis last."""

    values: np.ndarray  # (X, Y, N') at every half slice, by a cubic spline
    first: int  # slice
    points: np.ndarray  # (3, n), pixels of its own slices
    measured: np.ndarray  # (n,)
    of: np.ndarray  # (n,), their slices
    edges: np.ndarray
    middle: np.ndarray  # index

    def at(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The spline's values at places `(3, n)`; and whether these lie between its outermost slices."""
        x, y, z = points / self.edges[:, None] + self.middle[:, None]
        z = 2 * (z - self.first)
        inside = (z >= 0) & (z <= self.values.shape[2] - 1)
        return ndimage.map_coordinates(self.values, [x, y, z], order=1, mode="nearest"), inside

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """The gradient of the spline, `(3, n)` per mm."""
        steps = np.diag(self.edges * [1, 1, 0.5])
        return np.stack(
            [(self.at(points + s[:, None])[0] - self.at(points - s[:, None])[0]) / (2 * s.sum()) for s in steps]
        )


def _package(slices: np.ndarray, head: np.ndarray, edges: np.ndarray, which: np.ndarray) -> _Package:
    """The slices `which` of a stack `(X, Y, N)`, smoothed."""
    values = CubicSpline(which, slices[..., which], axis=-1)(np.arange(which[0], which[-1] + 0.25, 0.5))
    steps = np.maximum(np.round(PIXEL / edges[:2]).astype(int), 1)
    rows, columns = (np.arange(0, count, step) for count, step in zip(slices.shape, steps))
    index = np.stack(np.meshgrid(rows, columns, which, indexing="ij")).reshape(3, -1)
    index = index[:, head[tuple(index)]]
    middle = (np.array(slices.shape) - 1) / 2
    points = (index - middle[:, None]) * edges[:, None]
    return _Package(values, int(which[0]), points, slices[tuple(index)], index[2], edges, middle)


def found(measured: MetaTensor) -> Motion | None:
    """The motion between the packages of a stack, by least squares.

    Packages are those of the slices' times, else the even and the odd slices. Two foretell each other, in both
    directions. Of more, each is foretold by the others, which are taken back to where they are known to lie.

    Args:
        measured: `(X, Y, Z)` slices with affine and acquisition.

    Returns:
        None where nothing can be said: of few, missing or constant slices, of ones that are thin already, where the
        packages do not foretell each other, and where the fit does not come to an end.
    """
    a, array = Acquisition.of(measured), measured.as_tensor().cpu().float()
    if a.at_target or a.slice_count < FEWEST or array.min() == array.max() or missing_slices(array, a.slice_axis):
        return None
    packages = a.packages or even_and_odd(a.slice_count, a.slice_axis, measured.affine)
    order = [*(axis for axis in range(3) if axis != a.slice_axis), a.slice_axis]
    edges = voxel_spacing(measured.affine)[order]
    head = ndimage.binary_dilation(head_mask(array).permute(order).numpy(), np.ones((3, 3, 1)), iterations=2)
    axes = (np.asarray(measured.affine, dtype=float)[:3, :3] / voxel_spacing(measured.affine))[:, order]
    middle, of = centre(measured.affine, measured.shape), np.array(list(packages), dtype=int)

    def smoothed(slices: Tensor) -> np.ndarray:
        stack = above_floor(slices).permute(order).double().numpy()
        return ndimage.gaussian_filter(stack, [*(SMOOTHING / edges[:2]), 0])

    smooth = smoothed(array)
    points = _package(smooth, head, edges, np.arange(a.slice_count)).points

    def known(poses: list[_Pose]) -> Motion:
        matrices = np.stack([np.eye(4)] * len(poses))
        for matrix, pose in zip(matrices, poses):
            matrix[:3, :3] = axes @ pose.turn @ axes.T
            matrix[:3, 3] = middle + axes @ pose.shift - matrix[:3, :3] @ middle
        degrees, mm = np.max([angle_and_shift(matrix, middle) for matrix in matrices], axis=0)
        far = [float(np.sqrt((pose.away(points) ** 2).sum(0).mean())) for pose in poses]
        k, moves = int(np.argmax(far)), _moves(points)
        variance = np.einsum("akn,bkn,ab->", moves, moves, poses[k].covariance) / points.shape[1]
        return Motion(packages, matrices, float(degrees), float(mm), far[k], float(np.sqrt(variance)))

    poses = [STILL] * (1 + of.max())
    for sweep in range(1 if len(poses) == 2 else SWEEPS):
        for k in range(1, len(poses)):
            steady = smoothed(steadied(measured, known(poses)).as_tensor()) if sweep or k > 1 else smooth
            still = _package(steady, head, edges, np.flatnonzero(of != k))
            moved = _package(smooth, head, edges, np.flatnonzero(of == k))
            pose = _fitted(still, moved, poses[k], both=len(poses) == 2)
            if pose is None:
                return None
            poses[k] = pose
    return known(poses)


def _fitted(still: _Package, moved: _Package, start: _Pose, both: bool) -> _Pose | None:
    """The pose of a package beside others, by steps of Gauss and Newton, with a gain for each slice.

    The covariance is of whole slices (`H^-1 (sum_s g_s g_s^T) H^-1`, Liang and Zeger, Biometrika 73:13-22, 1986):
    neighbouring pixels err alike.

    Args:
        still: the slices of the others.
        moved: of the package.
        start: of the search.
        both: whether the package foretells the others, too; one of wide gaps cannot.
    """
    turn, shift = start.turn, start.shift
    for _ in range(ROUNDS):
        normal, gradients, share = _equations(still, moved, turn, shift, both)
        if not gradients or np.linalg.cond(normal) > 1e12:
            return None
        step = np.linalg.solve(normal, np.sum(gradients, axis=0))
        small = Rotation.from_rotvec(step[:3]).as_matrix()
        turn, shift = small @ turn, small @ shift + step[3:]
        if np.abs(step).max() < SMALL:
            break
    else:  # a valley without an end, which slices of long pixels have
        return None
    inverse = np.linalg.inv(normal)
    pose = _Pose(turn, shift, inverse @ np.transpose(gradients) @ np.array(gradients) @ inverse)
    far = np.sqrt((pose.away(np.concatenate([still.points, moved.points], axis=1)) ** 2).sum(0).mean())
    turned = np.degrees(Rotation.from_matrix(turn).magnitude())
    return pose if share >= EXPLAINED and far < FARTHEST and turned <= MOST_TURN else None


def _moves(points: np.ndarray) -> np.ndarray:
    """How points `(3, n)` move with a rotation about each axis, in radians, and a shift along each: `(6, 3, n)`."""
    turns = [np.cross(axis, points.T).T for axis in np.eye(3)]
    return np.stack([*turns, *(np.broadcast_to(axis[:, None], points.shape) for axis in np.eye(3))])


def _equations(
    still: _Package, moved: _Package, turn: np.ndarray, shift: np.ndarray, both: bool
) -> tuple[np.ndarray, list[np.ndarray], float]:
    """Normal matrix `(6, 6)`, its right side `(6,)` by slices, and the share of variance that is explained.

    A small motion after M takes a still point from `M^-1 p` to where it lies an instant earlier on its way, so the
    still slices' spline is read at `M^-1 (p - m)`; the moved slices' at `M p + m`.
    """
    normal, gradients, left, total = np.zeros((6, 6)), list[np.ndarray](), 0.0, 0.0
    for here, other in ((moved, still), (still, moved))[: 1 + both]:
        if here is moved:
            places, moving = turn.T @ (here.points - shift[:, None]), here.points
            slope = -turn @ other.gradient(places)
        else:
            places = moving = turn @ here.points + shift[:, None]
            slope = other.gradient(places)
        shown, inside = other.at(places)
        jacobian = np.einsum("akn,kn->an", _moves(moving), slope)
        for index in np.unique(here.of):
            k = (here.of == index) & inside
            energy = shown[k] @ shown[k]
            if k.sum() < LEAST or not energy > 0:
                continue
            gain = shown[k] @ here.measured[k] / energy
            residual = here.measured[k] - gain * shown[k]
            j = gain * (jacobian[:, k] - np.outer(jacobian[:, k] @ shown[k] / energy, shown[k]))
            normal += j @ j.T
            gradients.append(j @ residual)
            left, total = left + residual @ residual, total + k.sum() * here.measured[k].var()
    return normal, gradients, 1 - left / total if total > 0 else 0.0


def acquired(volume: MetaTensor, motion: np.ndarray, acquisition: Acquisition, order: int = 3) -> Tensor:
    """The slices of a head that has moved, `A (x o M^-1)`; without motion they are `profile.acquire`'s.

    Args:
        volume: `(X', Y', Z')`, the still head on the fine grid, with its affine.
        motion: `(4, 4)`, of `Motion.matrix`.
        acquisition: of the slices, `(X, Y, Z)`, that come back.
        order: of the splines that move the volume.
    """
    return acquire(placed(volume, volume, np.linalg.inv(motion), order)[0], acquisition)


def taken_back(measured: MetaTensor, volume: MetaTensor, motion: Motion, order: int = 3) -> MetaTensor:
    """The slices as they would be had the head not moved: those of moved packages come back to their nominal places.

    The part of the moved slices that the volume does not explain, `y - A (x o M^-1)`, is interpolated within their
    planes, and added to what the volume shows in the nominal place: `A x`. Slices of package 0 stay as they are.

    Args:
        measured: `(X, Y, Z)` slices with affine and acquisition.
        volume: `(X', Y', Z')`, what is known of the still head, on the fine grid.
        order: of the splines that move the volume.
    """
    a, slices = Acquisition.of(measured), measured.as_tensor()
    affine = np.asarray(measured.affine, dtype=float)
    plane = [axis for axis in range(3) if axis != a.slice_axis]
    still, result = acquire(volume.as_tensor(), a), slices.clone()
    for package, matrix in enumerate(motion.matrices[1:], start=1):
        index = np.linalg.inv(affine) @ matrix @ affine
        left = slices - acquired(volume, matrix, a, order)
        for n in (n for n, one in enumerate(motion.packages) if int(one) == package):
            offset = index[plane, 3] + index[plane, a.slice_axis] * n
            moved = ndimage.affine_transform(
                left.select(a.slice_axis, n).numpy(), index[np.ix_(plane, plane)], offset, order=3, mode="nearest"
            )
            here = still.select(a.slice_axis, n) + torch.from_numpy(moved)
            result.select(a.slice_axis, n).copy_(here.clamp(min=float(slices.min())))
    return MetaTensor(result, affine=measured.affine, meta=meta_without_affine(measured))


def steadied(measured: MetaTensor, motion: Motion) -> MetaTensor:
    """The slices taken back by what their own spline shows, which needs no network; `(X, Y, Z)`."""
    a, slices = Acquisition.of(measured), measured
    for _ in range(SPLINES):
        volume = interpolate(slices.as_tensor(), a, "cubic")
        affine = torch.from_numpy(fine_affine_of(measured[None]))  # type: ignore[arg-type]  # torch: Tensor
        slices = taken_back(measured, MetaTensor(volume, affine=affine), motion, order=1)
    return slices
