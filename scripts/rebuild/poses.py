"""Where a head lay for some slices of a stack: a pose, fitted to slices that foretell others, by least squares.

Points are in mm from the middle of the stack, in a frame of axes whose last one crosses the slices.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import ndimage
from scipy.interpolate import CubicSpline
from scipy.spatial.transform import Rotation
from scipy.stats import norm
from scipy.stats import t as student
from torch import Tensor

from ..stack.grid import centre, voxel_spacing
from ..stack.slices import Slices

PIXEL = 2.0  # mm within the slices; finer detail of one slice is not in its neighbours
LEAST = 200  # pixels of a slice that are compared
COLUMNS = 4  # parts of the head along each axis within the slices, see `fitted`
DEGREE = 2  # of the polynomial of the place that a slice's gain is: shading that changed between packages is no motion
SURE = 3.0  # standard deviations; from them on a head moved
ROUNDS, SMALL = 12, 1e-3  # steps of Gauss and Newton at most, true motion takes 8; the step, mm and radians, that ends


class Pose(NamedTuple):
    """Where the head lay for a package: `turn @ p + shift` of a point `p`."""

    turn: np.ndarray
    shift: np.ndarray
    covariance: np.ndarray  # (6, 6): rotation about each axis, in radians, and shift along each

    def displacement(self, points: np.ndarray) -> tuple[float, float]:
        """How far points `(3, n)` moved, root mean square, in mm, and its standard deviation."""
        away, moves = self.turn @ points + self.shift[:, None] - points, small_moves(points)
        variance = np.einsum("akn,bkn,ab->", moves, moves, self.covariance) / points.shape[1]
        return float(np.sqrt((away**2).sum(0).mean())), float(np.sqrt(variance))

    def since(self, first: "Pose") -> "Pose":
        """The pose from where the head lay for another one on; variances of the two add."""
        turn = self.turn @ first.turn.T
        return Pose(turn, self.shift - turn @ first.shift, first.covariance + self.covariance)


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
        """Where slices show the head and its neighbourhood."""
        inside = measured.head.permute(self.order).numpy()
        return ndimage.binary_dilation(inside, np.ones((3, 3, 1)), iterations=2)

    def columns(self, head: np.ndarray) -> np.ndarray:
        """The column of the head, through all slices, that each pixel lies in: `(X, Y)`, from 0 on."""
        rows, lines = (np.flatnonzero(head.any(axes)) for axes in ((1, 2), (0, 2)))
        row, line = (
            np.clip((np.arange(count) - one[0]) * COLUMNS // (np.ptp(one) + 1), 0, COLUMNS - 1)
            for count, one in zip(head.shape, (rows, lines))
        )
        return COLUMNS * row[:, None] + line

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
        steps = self.frame.edges * [1, 1, 0.5]
        beside = points[:, None] + np.hstack([np.diag(steps), -np.diag(steps)])[..., None]  # (3, 6, n)
        ahead, behind = self.at(beside.reshape(3, -1))[0].reshape(2, 3, -1)
        return (ahead - behind) / (2 * steps[:, None])


class Equations(NamedTuple):
    """The normal equations of a small motion: rotation about each axis, in radians, and shift along each, in mm.

    Each slice has its own, or each column of the head (`Frame.columns`) in it, `C = 1` or more. Their sum has the
    solution.
    """

    normal: list[np.ndarray]  # of each slice, (C, 6, 6)
    gradient: list[np.ndarray]  # (C, 6), the right side
    of: list[int]  # the slices
    left: float = 0.0  # of the slices' squares, that the others do not foretell
    total: float = 0.0  # of their squares about their means

    @property
    def explained(self) -> float:
        """The share of the slices' variance that the others foretell."""
        return 1 - self.left / self.total if self.total > 0 else 0.0


def fitted(equations: Callable[[Pose], Equations], pose: Pose) -> Pose | None:
    """A pose by steps of Gauss and Newton; None where the slices say nothing, or the steps come to no end.

    Errors of pixels near each other go together, along the slices and within them. So the covariance is a sum of two:
    of steps that leave out a column of the head each, and of ones that leave out a slice (`jackknife`; Cameron, Gelbach
    and Miller, J. Bus. Econ. Stat. 29:238-249, 2011, subtract the part that both hold). The search begins at `pose`.
    """
    for _ in range(ROUNDS):
        said = equations(pose)
        if not said.of:
            return None
        normal, gradient = np.stack(said.normal), np.stack(said.gradient)
        whole, of = normal.sum((0, 1)), np.array(said.of)
        if np.linalg.cond(whole) > 1e12:
            return None
        step = np.linalg.solve(whole, gradient.sum((0, 1)))
        small = Rotation.from_rotvec(step[:3]).as_matrix()
        columns = jackknife(normal.sum(0), gradient.sum(0)) if normal.shape[1] > 1 else np.zeros((6, 6))
        slices = jackknife(*(np.stack([one[of == n].sum((0, 1)) for n in np.unique(of)]) for one in (normal, gradient)))
        if columns is None or slices is None:
            return None
        pose = Pose(small @ pose.turn, small @ pose.shift + step[3:], columns + slices)
        if np.abs(step).max() < SMALL:
            return pose
    return None  # a valley without an end, which slices of long pixels have


def jackknife(normal: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
    """The covariance of a step, by the jackknife: parts are left out by turns (Quenouille, Biometrika 43:353, 1956).

    Few parts know their own spread little. It is wider by Student's distribution: `SURE` standard deviations hold as
    much as those of a normal one.

    Args:
        normal, gradient: `(P, 6, 6)` and `(P, 6)`, of each part.

    Returns:
        `(6, 6)`; None where a part alone decides the step.
    """
    some = normal.any((1, 2))
    rest = normal.sum(0) - normal[some]
    if some.sum() < 2 or np.linalg.cond(rest).max() > 1e12:
        return None
    without = np.linalg.solve(rest, (gradient.sum(0) - gradient[some])[..., None])[..., 0]
    away = without - np.linalg.solve(normal.sum(0), gradient.sum(0))
    free = some.sum() - 1
    wider = student(free).isf(norm.sf(SURE)) / SURE
    return wider**2 * free / some.sum() * away.T @ away


def small_moves(points: np.ndarray) -> np.ndarray:
    """How points `(3, n)` move with a rotation about each axis, in radians, and a shift along each: `(6, 3, n)`."""
    axes = np.eye(3)
    turns = np.cross(axes[:, None], points.T).swapaxes(1, 2)
    return np.concatenate([turns, np.broadcast_to(axes[..., None], turns.shape)])


class Package(NamedTuple):
    """Some slices of a stack."""

    shown: Shown  # by a cubic spline between them
    points: np.ndarray  # (3, n), pixels of the head in them
    measured: np.ndarray  # (n,)
    of: np.ndarray  # (n,), their slices
    columns: np.ndarray  # (n,), of the head
    gains: np.ndarray  # (6, n), polynomials of the place within the slices

    @classmethod
    def cut(cls, slices: np.ndarray, head: np.ndarray, frame: Frame, which: np.ndarray) -> "Package":
        """The slices `which` of a stack `(X, Y, N)`, smoothed."""
        values = CubicSpline(which, slices[..., which], axis=-1)(np.arange(which[0], which[-1] + 0.25, 0.5))
        rows, columns = (np.arange(0, count, step) for count, step in zip(slices.shape, frame.steps))
        index = np.stack(np.meshgrid(rows, columns, which, indexing="ij")).reshape(3, -1)
        index = index[:, head[tuple(index)]]
        x, y = 2 * index[:2] / (np.array(slices.shape[:2])[:, None] - 1) - 1
        gains = np.stack([x**i * y**j for i in range(DEGREE + 1) for j in range(DEGREE + 1 - i)])
        columns, shown = frame.columns(head)[tuple(index[:2])], Shown(values, int(which[0]), frame)
        return cls(shown, frame.places(index), slices[tuple(index)], index[2], columns, gains)

    def only(self, which: np.ndarray) -> "Package":
        """Some of these slices are foretold; the others are shown beside them."""
        kept = np.isin(self.of, which)
        return Package(
            self.shown,
            self.points[:, kept],
            self.measured[kept],
            self.of[kept],
            self.columns[kept],
            self.gains[:, kept],
        )


def foretold(still: Package, moved: Package, both: bool, pose: Pose) -> Equations:
    """The equations of a package's pose beside the others. Each slice has its own gain, a polynomial of the place.

    A small motion after M takes a still point from `M^-1 p` to where it lies an instant earlier on its way, so the
    still slices' spline is read at `M^-1 (p - m)`; the moved slices' at `M p + m`.

    Args:
        still: the slices of the others.
        both: whether the package foretells the others, too; one of wide gaps cannot.
    """
    turn, shift = pose.turn, pose.shift
    said, left, total = Equations([], [], []), 0.0, 0.0
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
            if k.sum() < LEAST or not shown[k].any():
                continue
            basis, triangle = np.linalg.qr((here.gains[:, k] * shown[k]).T)
            factors = basis.T @ here.measured[k]
            gain = np.linalg.lstsq(triangle, factors)[0] @ here.gains[:, k]
            j = gain * jacobian[:, k]
            j, residual = j - (j @ basis) @ basis.T, here.measured[k] - basis @ factors
            columns = map(np.flatnonzero, np.arange(COLUMNS**2)[:, None] == here.columns[k])
            products = [(j[:, n] @ j[:, n].T, j[:, n] @ residual[n]) for n in columns]
            for every, own in zip((said.normal, said.gradient), zip(*products)):
                every.append(np.stack(own))
            said.of.append(int(index))
            left, total = left + residual @ residual, total + k.sum() * here.measured[k].var()
    return said._replace(left=left, total=total)
