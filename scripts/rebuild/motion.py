"""A head that moved between the packages of its stack: found, and taken back.

Two-dimensional scans are interleaved: the even slices come first, the odd ones minutes later. A head that moves between
them leaves a comb. Both packages show the same head, in two places:

    y_even = A x,    y_odd = A (x o M^-1)

`x` is the head where it lay for the even slices, `M` the motion until the odd ones, `A` the slice model
(`profile.acquire`). A result of all slices holds the moved ones where they were: a motion that is fitted to it stays
at 0. So each package is compared with the spline through the slices of the other one alone, as slices are.
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
from ..stack.profile import acquire
from ..stack.slices import Slices
from .registration import angle_and_shift, placed

SMOOTHING, PIXEL = 2.0, 2.0  # mm within the slices; finer detail of one slice is not in its neighbours
FEWEST = 8  # slices; fewer leave a package without a spline
LEAST = 200  # pixels of a slice that are compared
ROUNDS, SMALL = 12, 1e-3  # steps of Gauss and Newton at most, true motion takes 8; the step, mm and radians, that ends
EXPLAINED = 0.5  # of the variance of a package that the other one foretells; less is no head
FARTHEST, MOST_TURN = 12.0, 9.0  # mm, and degrees; a fit that ends farther away went astray
MOVED, SURE = 0.4, 3.0  # mm of the head, and standard deviations; from both on a head moved (docs/benchmarks.md)
SPLINES = 2  # rounds of `steadied`


@dataclass(frozen=True)
class Motion:
    """How a head moved from the even slices of a stack to the odd ones; the first slice is even.

    Attributes:
        matrix: `(4, 4)`, from a point's place in the world, in mm, for the even slices to its place for the odd ones.
        degrees, millimetres: how far the head turned, and how far its middle moved.
        displacement: of the head's points, root mean square, in mm.
        uncertainty: standard deviation of that, in mm.
    """

    matrix: np.ndarray
    degrees: float
    millimetres: float
    displacement: float
    uncertainty: float

    @property
    def moved(self) -> bool:
        """Whether the null hypothesis, a still head, is given up."""
        return self.displacement > max(MOVED, SURE * self.uncertainty)

    def __str__(self) -> str:
        return f"the head moved by {self.millimetres:.1f} mm and {self.degrees:.1f} degrees between even and odd slices"


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


def found(measured: Slices) -> Motion | None:
    """The motion between the even and the odd slices of a stack, by least squares.

    Each package is foretold from the other, in both directions, with a gain for each slice. The covariance is of whole
    slices (`H^-1 (sum_s g_s g_s^T) H^-1`, Liang and Zeger, Biometrika 73:13-22, 1986): neighbouring pixels err alike.

    Returns:
        None where nothing can be said: of few, missing or constant slices, of ones that are thin already, where the
        packages do not foretell each other, and where the fit does not come to an end.
    """
    a = measured.acquisition
    if a.at_target or a.slice_count < FEWEST or measured.constant or measured.missing:
        return None
    order = [*(axis for axis in range(3) if axis != a.slice_axis), a.slice_axis]
    edges = voxel_spacing(measured.affine)[order]
    slices = measured.above_floor.permute(order).double().numpy()
    slices = ndimage.gaussian_filter(slices, [*(SMOOTHING / edges[:2]), 0])
    head = ndimage.binary_dilation(measured.head.permute(order).numpy(), np.ones((3, 3, 1)), iterations=2)
    even, odd = (_package(slices, head, edges, np.arange(k, a.slice_count, 2)) for k in (0, 1))
    turn, shift = np.eye(3), np.zeros(3)  # of M about the middle: M p = turn p + shift
    for _ in range(ROUNDS):
        normal, gradients, share = _equations(even, odd, turn, shift)
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
    covariance = inverse @ np.transpose(gradients) @ np.array(gradients) @ inverse
    points = np.concatenate([even.points, odd.points], axis=1)
    away = turn @ points + shift[:, None] - points
    displacement = float(np.sqrt((away**2).sum(0).mean()))
    turned = np.degrees(Rotation.from_matrix(turn).magnitude())
    if share < EXPLAINED or not displacement < FARTHEST or turned > MOST_TURN:
        return None
    moves = _moves(points)  # (6, 3, n)
    spread = float(np.sqrt(np.einsum("akn,bkn,ab->", moves, moves, covariance) / points.shape[1]))
    axes = (np.asarray(measured.affine, dtype=float)[:3, :3] / voxel_spacing(measured.affine))[:, order]
    middle, matrix = centre(measured.affine, measured.shape), np.eye(4)
    matrix[:3, :3] = axes @ turn @ axes.T
    matrix[:3, 3] = middle + axes @ shift - matrix[:3, :3] @ middle
    return Motion(matrix, *angle_and_shift(matrix, middle), displacement, spread)


def _moves(points: np.ndarray) -> np.ndarray:
    """How points `(3, n)` move with a rotation about each axis, in radians, and a shift along each: `(6, 3, n)`."""
    turns = [np.cross(axis, points.T).T for axis in np.eye(3)]
    return np.stack([*turns, *(np.broadcast_to(axis[:, None], points.shape) for axis in np.eye(3))])


def _equations(
    even: _Package, odd: _Package, turn: np.ndarray, shift: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray], float]:
    """Normal matrix `(6, 6)`, its right side `(6,)` by slices, and the share of variance that is explained.

    A small motion after M takes a still point from `M^-1 p` to where it lies an instant earlier on its way, so the even
    slices' spline is read at `M^-1 (p - m)`; the odd slices' at `M p + m`.
    """
    normal, gradients, left, total = np.zeros((6, 6)), list[np.ndarray](), 0.0, 0.0
    for here, other in ((odd, even), (even, odd)):
        if here is odd:
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


def taken_back(measured: Slices, volume: MetaTensor, motion: Motion, order: int = 3) -> Slices:
    """The slices as they would be had the head not moved: the odd ones come back to their nominal places.

    The part of the moved slices that the volume does not explain, `y - A (x o M^-1)`, is interpolated within their
    planes, and added to what the volume shows in the nominal place: `A x`. The even slices stay as they are.

    Args:
        measured: as they are.
        volume: `(X', Y', Z')`, what is known of the still head, on the fine grid.
        order: of the splines that move the volume.
    """
    a, slices = measured.acquisition, measured.array
    affine = np.asarray(measured.affine, dtype=float)
    index = np.linalg.inv(affine) @ motion.matrix @ affine
    plane = [axis for axis in range(3) if axis != a.slice_axis]
    still = acquire(volume.as_tensor(), a)
    left = slices - acquired(volume, motion.matrix, a, order)
    result = slices.clone()
    for n in range(1, a.slice_count, 2):
        offset = index[plane, 3] + index[plane, a.slice_axis] * n
        moved = ndimage.affine_transform(
            left.select(a.slice_axis, n).numpy(), index[np.ix_(plane, plane)], offset, order=3, mode="nearest"
        )
        here = still.select(a.slice_axis, n) + torch.from_numpy(moved)
        result.select(a.slice_axis, n).copy_(here.clamp(min=float(slices.min())))
    return replace(measured, array=result)


def steadied(measured: Slices, motion: Motion) -> Slices:
    """The slices taken back by what their own spline shows, which needs no network."""
    slices = measured
    for _ in range(SPLINES):
        volume = MetaTensor(interpolate(slices.array, slices.acquisition, "cubic"), affine=measured.fine_affine)
        slices = taken_back(measured, volume, motion, order=1)
    return slices
