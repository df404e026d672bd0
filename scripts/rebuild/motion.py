"""A head that moved between the packages of its stack: found, and taken back.

Two-dimensional scans are interleaved: the even slices come first, the odd ones minutes later. A head that moves between
them leaves a comb. All packages show the same head, in several places:

    y_0 = A x,    y_k = A (x o M_k^-1)

`x` is the head where it lay for the first package, `M_k` its motion until package `k`, `A` the slice model
(`profile.acquire`). A result of all slices holds the moved ones where they were: a motion that is fitted to it stays
at 0. So each package is compared with the spline through the slices of the others alone, as slices are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from monai.data import MetaTensor
from scipy import ndimage
from scipy.interpolate import CubicSpline
from scipy.spatial.transform import Rotation
from torch import Tensor

from ..stack.acquisition import Acquisition
from ..stack.grid import centre, voxel_spacing
from ..stack.interpolation import interpolate
from ..stack.packages import even_and_odd
from ..stack.profile import acquire
from ..stack.slices import Slices, fact
from .registration import angle_and_shift, placed

SMOOTHING, PIXEL = 2.0, 2.0  # mm within the slices; finer detail of one slice is not in its neighbours
FEWEST = 8  # slices; fewer leave a package without a spline
LEAST = 200  # pixels of a slice that are compared
ROUNDS, SMALL = 12, 1e-3  # steps of Gauss and Newton at most, true motion takes 8; the step, mm and radians, that ends
EXPLAINED = 0.5  # of the variance of a package that the other one foretells; less is no head
FARTHEST, MOST_TURN = 12.0, 9.0  # mm, and degrees; a fit that ends farther away went astray
MOVED, SURE = 0.4, 3.0  # mm of the head, and standard deviations; from both on a head moved (docs/benchmarks.md)
REACH = 1.5  # slice spacings; taking back slices of a head that moved farther makes results worse (docs/benchmarks.md)
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

    def in_reach(self, slice_spacing: float) -> bool:
        """Whether slices that lie so far apart, in mm, can be taken back to one place."""
        return self.displacement <= REACH * slice_spacing

    @property
    def between(self) -> str:
        """The packages, for people."""
        return "even and odd slices" if len(self.matrices) == 2 else f"the {len(self.matrices)} packages of its slices"

    def __str__(self) -> str:
        return f"the head moved by {self.millimetres:.1f} mm and {self.degrees:.1f} degrees between {self.between}"


class Pose(NamedTuple):
    """Where the head lay for a package: `turn @ p + shift` of a point `p`, from the middle of the stack, in mm."""

    turn: np.ndarray
    shift: np.ndarray
    covariance: np.ndarray  # (6, 6): rotation about each axis, in radians, and shift along each

    @classmethod
    def stepped(cls, turn: np.ndarray, shift: np.ndarray, normal: np.ndarray, gradients: list[np.ndarray]) -> Pose:
        """A pose after a step of Gauss and Newton.

        The covariance is of whole slices (`H^-1 (sum_s g_s g_s^T) H^-1`, Liang and Zeger, Biometrika 73:13-22, 1986):
        neighbouring pixels err alike.
        """
        step, inverse = np.linalg.solve(normal, np.sum(gradients, axis=0)), np.linalg.inv(normal)
        small = Rotation.from_rotvec(step[:3]).as_matrix()
        covariance = inverse @ np.transpose(gradients) @ np.array(gradients) @ inverse
        return cls(small @ turn, small @ shift + step[3:], covariance)

    def near(self, other: Pose) -> bool:
        """Whether a step led here that ends a fit."""
        turned = Rotation.from_matrix(self.turn @ other.turn.T)
        return bool(np.abs([turned.as_rotvec(), self.shift - turned.apply(other.shift)]).max() < SMALL)

    def displacement(self, points: np.ndarray) -> tuple[float, float]:
        """How far points `(3, n)` moved, root mean square, in mm, and its standard deviation."""
        away, moves = self.turn @ points + self.shift[:, None] - points, small_moves(points)
        variance = np.einsum("akn,bkn,ab->", moves, moves, self.covariance) / points.shape[1]
        return float(np.sqrt((away**2).sum(0).mean())), float(np.sqrt(variance))


STILL = Pose(np.eye(3), np.zeros(3), np.zeros((6, 6)))


class Frame(NamedTuple):
    """The axes of a stack with the slices last; places are in mm from the middle of the stack."""

    order: list[int]  # array axes
    edges: np.ndarray  # (3,), mm
    axes: np.ndarray  # (3, 3), directions in the world, in columns
    middle: np.ndarray  # (3,), in the world
    shape: np.ndarray  # (3,)

    @classmethod
    def of(cls, measured: Slices) -> Frame:
        """The frame of slices."""
        axis, spacing = measured.acquisition.slice_axis, voxel_spacing(measured.affine)
        order = [*(one for one in range(3) if one != axis), axis]
        axes = (np.asarray(measured.affine, dtype=float)[:3, :3] / spacing)[:, order]
        return cls(
            order, spacing[order], axes, centre(measured.affine, measured.shape), np.array(measured.shape)[order]
        )

    def smoothed(self, slices: Tensor, width: float) -> np.ndarray:
        """`(X, Y, Z)` slices in this order of axes, smoothed within their planes by `width` mm."""
        array = slices.cpu().permute(self.order).double().numpy()
        return ndimage.gaussian_filter(array, [*(width / self.edges[:2]), 0])

    def head(self, measured: Slices) -> np.ndarray:
        """Where slices show the head and what is next to it."""
        inside = measured.head.permute(self.order).numpy()
        return ndimage.binary_dilation(inside, np.ones((3, 3, 1)), iterations=2)

    def places(self, index: np.ndarray) -> np.ndarray:
        """Indices `(3, n)` -> places `(3, n)`."""
        return (index - (self.shape[:, None] - 1) / 2) * self.edges[:, None]

    def matrix(self, pose: Pose) -> np.ndarray:
        """`(4, 4)` in the world."""
        matrix = np.eye(4)
        matrix[:3, :3] = self.axes @ pose.turn @ self.axes.T
        matrix[:3, 3] = self.middle + self.axes @ pose.shift - matrix[:3, :3] @ self.middle
        return matrix

    def pose(self, matrix: np.ndarray) -> Pose:
        """Undoes `matrix`; the covariance is lost."""
        shift = matrix[:3, :3] @ self.middle + matrix[:3, 3] - self.middle
        return Pose(self.axes.T @ matrix[:3, :3] @ self.axes, self.axes.T @ shift, np.zeros((6, 6)))

    def motion(self, packages: str, poses: list[Pose], points: np.ndarray) -> Motion:
        """The motion of a head of which points `(3, n)` are given."""
        matrices = np.stack([self.matrix(pose) for pose in poses])
        degrees, mm = np.max([angle_and_shift(matrix, self.middle) for matrix in matrices], axis=0)
        return Motion(packages, matrices, float(degrees), float(mm), *max(pose.displacement(points) for pose in poses))


class Shown(NamedTuple):
    """Intensities at every half slice, in the order of a frame."""

    values: np.ndarray  # (X, Y, N')
    first: int  # slice
    frame: Frame

    def at(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The values at places `(3, n)`; and whether these lie between the outermost slices."""
        x, y, z = points / self.frame.edges[:, None] + (self.frame.shape[:, None] - 1) / 2
        z = 2 * (z - self.first)
        inside = (z >= 0) & (z <= self.values.shape[2] - 1)
        return ndimage.map_coordinates(self.values, [x, y, z], order=1, mode="nearest"), inside

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """The gradient, `(3, n)` per mm."""
        steps = np.diag(self.frame.edges * [1, 1, 0.5])
        return np.stack(
            [(self.at(points + s[:, None])[0] - self.at(points - s[:, None])[0]) / (2 * s.sum()) for s in steps]
        )


class _Package(NamedTuple):
    """Some slices of a stack."""

    shown: Shown  # by a cubic spline between them
    points: np.ndarray  # (3, n), pixels of the head in them
    measured: np.ndarray  # (n,)
    of: np.ndarray  # (n,), their slices


def _package(slices: np.ndarray, head: np.ndarray, frame: Frame, which: np.ndarray) -> _Package:
    """The slices `which` of a stack `(X, Y, N)`, smoothed."""
    values = CubicSpline(which, slices[..., which], axis=-1)(np.arange(which[0], which[-1] + 0.25, 0.5))
    steps = np.maximum(np.round(PIXEL / frame.edges[:2]).astype(int), 1)
    rows, columns = (np.arange(0, count, step) for count, step in zip(slices.shape, steps))
    index = np.stack(np.meshgrid(rows, columns, which, indexing="ij")).reshape(3, -1)
    index = index[:, head[tuple(index)]]
    return _Package(Shown(values, int(which[0]), frame), frame.places(index), slices[tuple(index)], index[2])


@fact
def found(measured: Slices) -> Motion | None:
    """The motion between the packages of a stack, by least squares.

    Packages are those of the slices' times, else the even and the odd slices. Two foretell each other, in both
    directions. Each of three or four is foretold by the others, which are taken back to where they are known to lie;
    the variances of their poses add.

    Returns:
        None where nothing can be said: of few, missing or constant slices, of ones that are thin already, where the
        packages do not foretell each other, and where the fit does not come to an end.
    """
    a = measured.acquisition
    if a.at_target or a.slice_count < FEWEST or measured.constant or measured.missing:
        return None
    packages, frame = a.packages or even_and_odd(a.slice_count, a.slice_axis, measured.affine), Frame.of(measured)
    smooth, head = frame.smoothed(measured.above_floor, SMOOTHING), frame.head(measured)
    of, points = np.array(list(packages), dtype=int), _package(smooth, head, frame, np.arange(a.slice_count)).points
    poses = [STILL] * (1 + of.max())
    for sweep in range(1 if len(poses) == 2 else SWEEPS):
        for k in range(1, len(poses)):
            steady = smooth
            if sweep or k > 1:
                back = steadied(measured, frame.motion(packages, poses, points))
                steady = frame.smoothed(back.above_floor, SMOOTHING)
            still = _package(steady, head, frame, np.flatnonzero(of != k))
            moved = _package(smooth, head, frame, np.flatnonzero(of == k))
            pose = _fitted(still, moved, poses[k], both=len(poses) == 2)
            if pose is None or not pose.displacement(points)[0] < FARTHEST:
                return None
            poses[k] = pose._replace(covariance=pose.covariance * (len(poses) - 1))
    return frame.motion(packages, poses, points)


def _fitted(still: _Package, moved: _Package, start: Pose, both: bool) -> Pose | None:
    """The pose of a package beside others, by steps of Gauss and Newton, with a gain for each slice; None for no pose.

    Args:
        still: the slices of the others.
        moved: of the package.
        start: of the search.
        both: whether the package foretells the others, too; one of wide gaps cannot.
    """
    pose = start
    for _ in range(ROUNDS):
        normal, gradients, share = _equations(still, moved, pose, both)
        if not gradients or np.linalg.cond(normal) > 1e12:
            return None
        before, pose = pose, Pose.stepped(pose.turn, pose.shift, normal, gradients)
        if pose.near(before):
            turned = np.degrees(Rotation.from_matrix(pose.turn).magnitude())
            return pose if share >= EXPLAINED and turned <= MOST_TURN else None
    return None  # a valley without an end, which slices of long pixels have


def small_moves(points: np.ndarray) -> np.ndarray:
    """How points `(3, n)` move with a rotation about each axis, in radians, and a shift along each: `(6, 3, n)`."""
    turns = [np.cross(axis, points.T).T for axis in np.eye(3)]
    return np.stack([*turns, *(np.broadcast_to(axis[:, None], points.shape) for axis in np.eye(3))])


def _equations(still: _Package, moved: _Package, pose: Pose, both: bool) -> tuple[np.ndarray, list[np.ndarray], float]:
    """Normal matrix `(6, 6)`, its right side `(6,)` by slices, and the share of variance that is explained.

    A small motion after M takes a still point from `M^-1 p` to where it lies an instant earlier on its way, so the
    still slices' spline is read at `M^-1 (p - m)`; the moved slices' at `M p + m`.
    """
    turn, shift, _ = pose
    normal, gradients, left, total = np.zeros((6, 6)), list[np.ndarray](), 0.0, 0.0
    for here, other in ((moved, still), (still, moved))[: 1 + both]:
        if here is moved:
            places, moving = turn.T @ (here.points - shift[:, None]), here.points
            slope = -turn @ other.shown.gradient(places)
        else:
            places = moving = turn @ here.points + shift[:, None]
            slope = other.shown.gradient(places)
        shown, inside = other.shown.at(places)
        jacobian = np.einsum("akn,kn->an", small_moves(moving), slope)
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


def taken_back(measured: Slices, volume: MetaTensor, motion: Motion, order: int = 3) -> Slices:
    """The slices as they would be had the head not moved: those of moved packages come back to their nominal places.

    The part of the moved slices that the volume does not explain, `y - A (x o M^-1)`, is interpolated within their
    planes, and added to what the volume shows in the nominal place: `A x`. Slices of package 0 stay as they are.

    Args:
        measured: as they are.
        volume: `(X', Y', Z')`, what is known of the still head, on the fine grid.
        order: of the splines that move the volume.
    """
    a, slices = measured.acquisition, measured.array
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
    return replace(measured, array=result)


def first_package(measured: Slices, motion: Motion) -> Slices | None:
    """Every second slice, those of package 0, as a stack with gaps; None for packages of another order."""
    a = measured.acquisition
    which = [n for n, one in enumerate(motion.packages) if one == "0"]
    if len(motion.matrices) != 2 or which != list(range(which[0], a.slice_count, 2)):
        return None
    affine = measured.affine.clone()
    affine[:3, 3] += which[0] * affine[:3, a.slice_axis]
    affine[:3, a.slice_axis] *= 2
    apart = replace(a, slice_count=len(which), slice_spacing=2 * a.slice_spacing, packages="")
    return Slices(measured.array.index_select(a.slice_axis, torch.tensor(which)), apart, affine, measured.meta)


def steadied(measured: Slices, motion: Motion) -> Slices:
    """The slices taken back by what their own spline shows, which needs no network."""
    slices = measured
    for _ in range(SPLINES):
        volume = MetaTensor(interpolate(slices.array, slices.acquisition, "cubic"), affine=measured.fine_affine)
        slices = taken_back(measured, volume, motion, order=1)
    return slices
