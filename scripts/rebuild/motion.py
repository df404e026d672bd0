"""A head that moved between the packages of its stack: found, and taken back.

Two-dimensional scans are interleaved: the even slices come first, the odd ones minutes later. A head that moves between
them leaves a comb. All packages show the same head, in several places:

    y_0 = A x,    y_k = A (x o M_k^-1)

`x` is the head where it lay for the first package, `M_k` its motion until package `k`, `A` the slice model
(`profile.acquire`). A result of all slices holds the moved ones where they were: a motion that is fitted to it stays
at 0. So each package is compared with the spline through the slices of the others alone, as slices are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from monai.data import MetaTensor
from scipy import ndimage
from scipy.spatial.transform import Rotation
from torch import Tensor

from ..stack.acquisition import Acquisition
from ..stack.interpolation import interpolate
from ..stack.packages import even_and_odd
from ..stack.profile import acquire
from ..stack.slices import Slices
from .guide import on_grid
from .guided_poses import poses_beside
from .poses import STILL, SURE, Equations, Frame, Package, Pose, fitted, foretold
from .registration import angle_and_shift, placed

SMOOTHING = 2.0  # mm within the slices; finer detail of one slice is not in its neighbours
FEWEST = 8  # slices; fewer leave a package without a spline
FARTHEST, MOST_TURN = 12.0, 9.0  # mm, and degrees; a fit that ends farther away went astray
MOVED = 0.4  # mm of the head; from it and `SURE` on a head moved (docs/benchmarks.md)
REACH = 1.5  # slice spacings; taking back slices of a head that moved farther makes results worse (docs/benchmarks.md)
FAR = "that is too far to take them back"
WITHIN = "halves of them want different poses: the head moved within a package, too, and the slices stay"
VAIN = "slices that were not used for the pose do not fit better by it, and the slices stay"
SPLINES = 2  # rounds of `taken_back` by the slices' own spline
UNSURE = 1.5  # mm, standard deviation of the head's displacement; a sharp volume that knows no better is left
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
        doubt: why slices of a head that moved stay where they are, for people; empty where there is no reason.
    """

    packages: str
    matrices: np.ndarray
    degrees: float
    millimetres: float
    displacement: float
    uncertainty: float
    doubt: str = ""

    @classmethod
    def of(cls, packages: str, poses: Sequence[Pose], frame: Frame, points: np.ndarray) -> "Motion":
        """The motion of a head of which points `(3, n)` of a frame are given; a pose for each package."""
        matrices = np.stack([frame.matrix(pose) for pose in poses])
        degrees, mm = np.max([angle_and_shift(matrix, frame.middle) for matrix in matrices], axis=0)
        return cls(packages, matrices, float(degrees), float(mm), *max(pose.displacement(points) for pose in poses))

    @property
    def moved(self) -> bool:
        """Whether the null hypothesis, a still head, is given up."""
        return self.displacement > max(MOVED, SURE * self.uncertainty) or self.doubt == WITHIN

    def stays(self, slice_spacing: float) -> str:
        """Why slices that lie so far apart, in mm, are not taken back; empty where they can be."""
        return self.doubt or (FAR if self.displacement > REACH * slice_spacing else "")

    @property
    def between(self) -> str:
        """The packages, for people."""
        return "even and odd slices" if len(self.matrices) == 2 else f"the {len(self.matrices)} packages of its slices"

    def __str__(self) -> str:
        return f"the head moved by {self.millimetres:.1f} mm and {self.degrees:.1f} degrees between {self.between}"


def steady(
    measured: Slices,
    guide: MetaTensor | None = None,
    draft: Callable[[Slices, MetaTensor | None], MetaTensor] | None = None,
) -> tuple[Slices, Motion | None]:
    """The slices of one place, and the motion of the head; the slices themselves where it lay still or moved too far.

    A sharp volume shows the poses best: a guide, or a draft of the first package alone, which is of one place and of
    wide gaps. By that draft the moved slices are taken back, more precisely than by their spline. The draft of all of
    them takes them back for good.

    Args:
        guide: `(1, X', Y', Z')`, on the fine grid (`guide.on_grid`).
        draft: slices and the guide, if any -> their volume on the fine grid. None leaves it at their spline.
    """
    motion = motion_of(measured)
    if motion is None or not motion.moved or motion.stays(measured.acquisition.slice_spacing):
        return measured, motion
    if draft is None:
        return taken_back(measured, motion), motion
    first = first_package(measured, motion) if guide is None else None
    if first is None:
        motion = motion if guide is None else by_volume(measured, guide, motion)
        slices = taken_back(measured, motion)
    else:
        alone = draft(first, None)
        motion = by_volume(measured, on_grid(Slices.sharp(alone), measured, np.eye(4)), motion)
        whole = MetaTensor(torch.empty(measured.fine_shape), affine=measured.fine_affine)
        there, _ = placed(alone, whole, np.eye(4), order=1)
        slices = taken_back(measured, motion, MetaTensor(there, affine=measured.fine_affine))
    return taken_back(measured, motion, draft(slices, guide)), motion


def motion_of(measured: Slices) -> Motion | None:
    """The motion between the packages of a stack, by least squares.

    Packages are those of the slices' times, else the even and the odd slices. Two foretell each other, in both
    directions. Each of three or four is foretold by the others, which are taken back to where they are known to lie;
    the variances of their poses add.

    Returns:
        None where nothing can be said: of few, missing or constant slices, of ones that are thin already, and where the
        fit does not come to an end.
    """
    a = measured.acquisition
    if a.at_target or a.slice_count < FEWEST or measured.constant or measured.missing:
        return None
    packages, frame = a.packages or even_and_odd(a.slice_count, a.slice_axis, measured.affine), Frame.of(measured)
    tissue, head = measured.tissue, frame.head(measured)
    smooth = frame.smoothed(measured.signal, SMOOTHING)
    of, points = np.array(list(packages), dtype=int), Package.cut(smooth, head, frame, np.arange(a.slice_count)).points
    poses = [STILL] * (1 + of.max())
    both, pairs = len(poses) == 2, dict[int, tuple[Package, Package]]()
    for sweep in range(1 if both else SWEEPS):
        for k in range(1, len(poses)):
            steady = smooth
            if sweep or k > 1:
                back = taken_back(tissue, Motion.of(packages, poses, frame, points))
                steady = frame.smoothed(back.signal, SMOOTHING)
            still = Package.cut(steady, head, frame, np.flatnonzero(of != k))
            moved = Package.cut(smooth, head, frame, np.flatnonzero(of == k))
            pairs[k] = still, moved
            pose = fitted(partial(foretold, still, moved, both), poses[k])
            if pose is None or not pose.displacement(points)[0] < FARTHEST:
                return None
            if np.degrees(Rotation.from_matrix(pose.turn).magnitude()) > MOST_TURN:
                return None
            poses[k] = pose._replace(covariance=pose.covariance * (len(poses) - 1))
    motion = Motion.of(packages, poses, frame, points)
    if motion.displacement > MOVED:
        motion = replace(motion, doubt=_doubt([(*pairs[k], poses[k]) for k in pairs], both, points, len(of)))
    return motion


def _doubt(fits: Sequence[tuple[Package, Package, Pose]], both: bool, points: np.ndarray, count: int) -> str:
    """Why slices of a head that moved stay where they are.

    Halves of the stack each have a pose of their own. Where these contradict each other, a package has no single one.
    Pairs of slices are fitted by turns: what is taken back must pay in the others.

    Args:
        fits: the slices of the others, those of the package, and its pose.
        both: see `poses.foretold`.
        points: `(3, n)`, of the head.
        count: of slices.
    """
    slices, gain = np.arange(count), 0.0
    odd = slices // 2 % 2 == 1
    for still, moved, begin in fits:

        def beside(which: np.ndarray, still: Package = still, moved: Package = moved) -> Callable[[Pose], Equations]:
            return partial(foretold, still.only(slices[which]), moved.only(slices[which]), both)

        halves = [fitted(beside(which), begin) for which in (slices < count / 2, slices >= count / 2)]
        if halves[0] is not None and halves[1] is not None:
            apart, uncertainty = halves[1].since(halves[0]).displacement(points)
            if apart > max(MOVED, SURE * uncertainty):
                return WITHIN
        for which in (odd, ~odd):
            pose, others = fitted(beside(which), begin), beside(~which)
            gain += -1.0 if pose is None else others(pose).explained - others(STILL).explained
    return "" if gain > 0 else VAIN


def acquired(volume: MetaTensor, motion: np.ndarray, acquisition: Acquisition, order: int = 3) -> Tensor:
    """The slices of a head that has moved, `A (x o M^-1)`; without motion they are `profile.acquire`'s.

    Args:
        volume: `(X', Y', Z')`, the still head on the fine grid, with its affine.
        motion: `(4, 4)`, of `Motion.matrix`.
        acquisition: of the slices, `(X, Y, Z)`, that come back.
        order: of the splines that move the volume.
    """
    return acquire(placed(volume, volume, np.linalg.inv(motion), order)[0], acquisition)


def by_volume(measured: Slices, sharp: MetaTensor, motion: Motion) -> Motion:
    """The motion by a sharp volume; the given one, where the search begins, if that volume is not sure.

    Args:
        sharp: `(1, X', Y', Z')`, on the fine grid, near its place for package 0; NaN beyond its field of view.
    """
    frame = Frame.of(measured)
    begin = [frame.pose(matrix) for matrix in motion.matrices]
    poses = poses_beside(measured, sharp, motion.packages, begin, frame)
    if poses is None:
        return motion
    points = frame.places(np.array(np.nonzero(frame.head(measured))))
    better = replace(Motion.of(motion.packages, poses, frame, points), doubt=motion.doubt)
    return better if better.uncertainty < UNSURE else motion


def taken_back(measured: Slices, motion: Motion, volume: MetaTensor | None = None, order: int = 3) -> Slices:
    """The slices as they would be had the head not moved: those of moved packages come back to their nominal places.

    The part of the moved slices that the volume does not explain, `y - A (x o M^-1)`, is interpolated within their
    planes, and added to the volume's slices in the nominal place: `A x`. Slices of package 0 stay as they are.

    Args:
        volume: `(X', Y', Z')`, the still head as far as it is known, on the fine grid. None takes the spline through
            the slices, which needs no network, in two rounds.
        order: of the splines that move the volume.
    """
    if volume is None:
        back = measured
        for _ in range(SPLINES):
            spline = MetaTensor(interpolate(back.array, back.acquisition, "cubic"), affine=back.fine_affine)
            back = taken_back(measured, motion, spline, order=1)
        return back
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
    return measured.like(result)


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
