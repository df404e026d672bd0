"""Where a head lay for some slices of a stack: a pose, fitted to slices that foretell others, by least squares.

Points are in mm from the middle of the stack, in a frame of axes whose last one crosses the slices.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import ndimage
from scipy.interpolate import CubicSpline
from scipy.spatial.transform import Rotation
from torch import Tensor

from ..stack.grid import centre, voxel_spacing
from ..stack.slices import Slices

PIXEL = 2.0  # mm within the slices; finer detail of one slice is not in its neighbours
LEAST = 200  # pixels of a slice that are compared
ROUNDS, SMALL = 12, 1e-3  # steps of Gauss and Newton at most, true motion takes 8; the step, mm and radians, that ends


class Pose(NamedTuple):
    """Where the head lay for a package: `turn @ p + shift` of a point `p`."""

    turn: np.ndarray
    shift: np.ndarray
    covariance: np.ndarray  # (6, 6): rotation about each axis, in radians, and shift along each
    explained: float = 1.0  # share of the slices' variance that the others foretell

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
    def of(cls, measured: Slices) -> "Frame":
        """The frame of slices."""
        axis, spacing = measured.acquisition.slice_axis, voxel_spacing(measured.affine)
        order = [*(one for one in range(3) if one != axis), axis]
        axes = (np.asarray(measured.affine, dtype=float)[:3, :3] / spacing)[:, order]
        return cls(
            order, spacing[order], axes, centre(measured.affine, measured.shape), np.array(measured.shape)[order]
        )

    @property
    def steps(self) -> np.ndarray:
        """Every which pixel within the slices is compared, `(2,)`."""
        return np.maximum(np.round(PIXEL / self.edges[:2]).astype(int), 1)

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
        return STILL._replace(turn=self.axes.T @ matrix[:3, :3] @ self.axes, shift=self.axes.T @ shift)


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


class Equations(NamedTuple):
    """The normal equations of a small motion: rotation about each axis, in radians, and shift along each, in mm."""

    normal: np.ndarray  # (6, 6)
    gradients: list[np.ndarray]  # the right side (6,), slice by slice
    explained: float = 1.0  # see `Pose`


def fitted(equations: Callable[[Pose], Equations], pose: Pose) -> Pose | None:
    """A pose by steps of Gauss and Newton; None where the slices say nothing, or the steps come to no end.

    The covariance is of whole slices (`H^-1 (sum_s g_s g_s^T) H^-1`, Liang and Zeger, Biometrika 73:13-22, 1986):
    neighbouring pixels err alike. The search begins at `pose`.
    """
    for _ in range(ROUNDS):
        normal, gradients, explained = equations(pose)
        if not gradients or np.linalg.cond(normal) > 1e12:
            return None
        step, inverse = np.linalg.solve(normal, np.sum(gradients, axis=0)), np.linalg.inv(normal)
        small = Rotation.from_rotvec(step[:3]).as_matrix()
        covariance = inverse @ np.transpose(gradients) @ np.array(gradients) @ inverse
        pose = Pose(small @ pose.turn, small @ pose.shift + step[3:], covariance, explained)
        if np.abs(step).max() < SMALL:
            return pose
    return None  # a valley without an end, which slices of long pixels have


def small_moves(points: np.ndarray) -> np.ndarray:
    """How points `(3, n)` move with a rotation about each axis, in radians, and a shift along each: `(6, 3, n)`."""
    turns = [np.cross(axis, points.T).T for axis in np.eye(3)]
    return np.stack([*turns, *(np.broadcast_to(axis[:, None], points.shape) for axis in np.eye(3))])


class Package(NamedTuple):
    """Some slices of a stack."""

    shown: Shown  # by a cubic spline between them
    points: np.ndarray  # (3, n), pixels of the head in them
    measured: np.ndarray  # (n,)
    of: np.ndarray  # (n,), their slices

    @classmethod
    def cut(cls, slices: np.ndarray, head: np.ndarray, frame: Frame, which: np.ndarray) -> "Package":
        """The slices `which` of a stack `(X, Y, N)`, smoothed."""
        values = CubicSpline(which, slices[..., which], axis=-1)(np.arange(which[0], which[-1] + 0.25, 0.5))
        rows, columns = (np.arange(0, count, step) for count, step in zip(slices.shape, frame.steps))
        index = np.stack(np.meshgrid(rows, columns, which, indexing="ij")).reshape(3, -1)
        index = index[:, head[tuple(index)]]
        return cls(Shown(values, int(which[0]), frame), frame.places(index), slices[tuple(index)], index[2])


def foretold(still: Package, moved: Package, both: bool, pose: Pose) -> Equations:
    """The equations of a package's pose beside the others, with a gain for each slice.

    A small motion after M takes a still point from `M^-1 p` to where it lies an instant earlier on its way, so the
    still slices' spline is read at `M^-1 (p - m)`; the moved slices' at `M p + m`.

    Args:
        still: the slices of the others.
        both: whether the package foretells the others, too; one of wide gaps cannot.
    """
    turn, shift = pose.turn, pose.shift
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
    return Equations(normal, gradients, 1 - left / total if total > 0 else 0.0)
