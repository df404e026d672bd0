"""Poses of a stack's packages beside a guide, which shows the head sharply between the slices, by another contrast.

A guide is one still head. Each package has its own place beside it, and the motion between packages is the difference
of these places. Neighbouring slices share little detail; slices and guide share most.

Within a few mm each contrast is nearly a linear function of another, of either sign: `y = a g + b` with `a` and `b`
of Gaussian windows within a slice, `g` the guide's slices. The pose is the one that leaves the least of `y`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from monai.data import MetaTensor
from scipy import ndimage

from ..stack.profile import acquire
from ..stack.slices import Slices
from .poses import LEAST, STILL, Equations, Frame, Pose, Shown, fitted, small_moves

SMOOTHING, WINDOW = 0.5, 4.0  # mm within the slices
FAINT = 1e-3  # of the mean variance of windows; less is no structure
WHOLE = 0.99  # of a slice that the guide saw


def poses_beside(
    measured: Slices, guide: MetaTensor, packages: str, begin: Sequence[Pose], frame: Frame
) -> list[Pose] | None:
    """The pose of each package by a guide, from the place of package 0 on; None where the guide does not say.

    Args:
        guide: `(1, X', Y', Z')`, on the fine grid, near its place for package 0; NaN beyond its field of view.
        packages: of each slice, a digit each.
        begin: for each package, where the search begins.
        frame: of the slices.
    """
    a = measured.acquisition
    halves = replace(a, slice_count=2 * a.slice_count - 1, slice_spacing=a.slice_spacing / 2)
    fine = guide.as_tensor()[0].cpu()
    shown, seen = (
        Shown(frame.smoothed(acquire(one, halves), width), 0, frame)
        for one, width in ((fine.nan_to_num(-1.0), SMOOTHING), (fine.isfinite().float(), 0.0))
    )
    slices = frame.smoothed(measured.signal, SMOOTHING)
    head, of = frame.head(measured), np.array(list(packages), dtype=int)
    poses = []
    for k, pose in enumerate(begin):
        which = np.flatnonzero(of == k)
        found = fitted(partial(_equations, slices, head, which, shown, seen), pose)
        if found is None:
            return None
        poses.append(found)
    return [STILL, *(pose.since(poses[0]) for pose in poses[1:])]


def _equations(
    slices: np.ndarray, head: np.ndarray, which: np.ndarray, shown: Shown, seen: Shown, pose: Pose
) -> Equations:
    """The equations of a package's pose beside the guide: those of `poses.foretold`, with windows in place of gains.

    Args:
        slices, head: `(X, Y, N)`, in the order of the frame.
        shown, seen: the guide's slices, and how far it saw them.
    """
    frame, steps = shown.frame, shown.frame.steps
    pixels = slice(None, None, steps[0]), slice(None, None, steps[1])
    widths, shape = WINDOW / frame.edges[:2] / steps, head[pixels].shape[:2]
    grid = np.meshgrid(*(np.arange(n) * step for n, step in zip(shape, steps)), indexing="ij")
    said = Equations([], [], [])  # of whole slices: at the head's border contrasts err outwards on all sides alike
    for n in which:
        points = frame.places(np.stack([*grid, np.full(shape, n)]).reshape(3, -1))
        places = pose.turn.T @ (points - pose.shift[:, None])
        there, inside = shown.at(places)
        known = head[(*pixels, n)] & inside.reshape(shape) & (seen.at(places)[0] > WHOLE).reshape(shape)
        if known.sum() < LEAST or not np.ptp(there.reshape(shape)[known]) > 0:
            continue
        weight = np.maximum(_windows(known.astype(float), widths), FAINT)
        guide, measured = there.reshape(shape), slices[(*pixels, n)]
        means = [_windows(one * known, widths) / weight for one in (guide, measured, guide**2, guide * measured)]
        variance = means[2] - means[0] ** 2
        a = (means[3] - means[0] * means[1]) / (variance + FAINT * variance[known].mean())
        b = means[1] - a * means[0]
        # each pixel lies in many windows, of which each has its own a and b
        of_y, of_g, of_one = (_windows(one * known, widths) for one in (a, a**2, a * b))
        left = (of_y * measured - of_g * guide - of_one)[known]
        slope = -pose.turn @ shown.gradient(places)
        jacobian = np.einsum("akn,kn->an", small_moves(points), slope).reshape(6, *shape)
        # a and b follow the pose: the part of a change that they take up leaves no trace (variable projection)
        ones, twos = (np.stack([_windows(one * known, widths) for one in jacobian * by]) for by in (1.0, guide))
        mean = a * ones / np.sqrt(weight)
        along = a * (twos - means[0] * ones) / np.sqrt(weight * (variance + FAINT * variance[known].mean()))
        parts = ((np.sqrt(of_g) * jacobian, 1), (mean, -1), (along, -1))
        said.normal.append(sum(sign * one[:, known] @ one[:, known].T for one, sign in parts)[None])
        said.gradient.append((jacobian[:, known] @ left)[None])
        said.of.append(int(n))
    return said


def _windows(image: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Means of an image in Gaussian windows; 0 beyond it."""
    return ndimage.gaussian_filter(image, widths, mode="constant", truncate=3.0)
