"""How the intensities of one stack relate to those of another of the same head: gain, shading, one contrast or two.

Both volumes are smoothed first, to the detail that both stacks measured.
"""

import math
from itertools import combinations_with_replacement

import numpy as np
import torch
from monai.data import MetaTensor
from scipy import ndimage
from scipy.optimize import isotonic_regression
from torch import Tensor

from ..stack.grid import voxel_spacing
from ..stack.tissue import depth
from .registration import WHOLE

DEGREE = 3  # of the polynomial that a gain is: a coil's shading varies over the head, not within it
SMOOTH, COARSE = 0.6, 5.0  # of the slice spacing, and least slice spacing in mm: both stacks have what is left
FEWEST = 100  # places that two volumes share; fewer say nothing
ONE_CONTRAST = 0.88  # see `relation`; docs/benchmarks.md has the values of pairs of one contrast and of two


def relation(first: MetaTensor, head: Tensor, other: Tensor, seen: Tensor, slice_spacing: float) -> float:
    """Whether two registered volumes have one contrast: the share of one's variance that a rising curve explains.

    The curve of the other's intensities is the best of all that nowhere fall (isotonic regression, Barlow et al.,
    Statistical Inference under Order Restrictions, 1972). Contrast agent, another weighting and inverted tissue scatter
    about every such curve.

    Args:
        first, head, seen, slice_spacing: see `gain_field`.
        other: `(X, Y, Z)` on the grid of `first`, times its gain.

    Returns:
        0 to 1; 0 where the volumes share too little.
    """
    edges = voxel_spacing(first.affine)
    both = (head & (seen > WHOLE)).numpy()
    every = tuple(slice(None, None, max(1, int(width))) for width in smoothing(slice_spacing, edges))
    inside = depth(both, edges)[every] > slice_spacing
    a, b = (coarse(volume, both, slice_spacing, edges)[every][inside] for volume in (first.as_tensor(), other))
    if len(a) < FEWEST or not a.var():
        return 0.0
    a = a[np.argsort(b)]
    return float(1 - (a - isotonic_regression(a).x).var() / a.var())


def smoothing(slice_spacing: float, edges: np.ndarray) -> np.ndarray:
    """Width of the Gaussian along each axis, in voxels, that leaves the detail of slices `slice_spacing` mm apart."""
    return SMOOTH * max(slice_spacing, COARSE) / edges


def coarse(volume: Tensor, inside: np.ndarray, slice_spacing: float, edges: np.ndarray) -> np.ndarray:
    """A volume under `smoothing`, within a mask."""
    widths = smoothing(slice_spacing, edges)
    weight = ndimage.gaussian_filter(inside.astype(np.float32), widths)
    smooth = ndimage.gaussian_filter(volume.numpy() * inside, widths, output=np.float32)
    return smooth / np.maximum(weight, 1e-3)


def gain_field(first: MetaTensor, head: Tensor, other: Tensor, seen: Tensor, slice_spacing: float) -> Tensor:
    """The factor from a stack's intensities to the reference's: a polynomial of the place.

    Least squares in the head, on volumes that are smoothed so far that both measured what is left. Beyond the head the
    field keeps to the values that it has there.

    Args:
        first: `(X, Y, Z)` with its affine.
        head: `(X, Y, Z)`, where it shows the head; bool.
        other: `(X, Y, Z)`, the stack on the grid of `first`.
        seen: `(X, Y, Z)`, 1 where the stack was measured.
        slice_spacing: in mm; of the smoothing.

    Returns:
        `(X, Y, Z)`, positive.
    """
    edges = voxel_spacing(first.affine)
    both = (head & (seen > WHOLE)).numpy()
    places = np.ix_(*(np.linspace(-1, 1, count) for count in first.shape))
    terms = [term for degree in range(DEGREE + 1) for term in combinations_with_replacement(places, degree)]
    every = tuple(slice(None, None, max(1, round(slice_spacing / edge))) for edge in edges)
    a, b = (ndimage.gaussian_filter(v.numpy() * both, slice_spacing / edges)[every] for v in (first.as_tensor(), other))
    inside = both[every] & (b > 0)
    columns = [np.broadcast_to(math.prod(term), first.shape)[every][inside] for term in terms]
    a, b, weights = a[inside], b[inside], np.ones(inside.sum())
    for _ in range(3):  # places that differ otherwise than by a gain count less
        solution, *_ = np.linalg.lstsq(np.stack(columns, 1) * (weights * b)[:, None], weights * a, rcond=1e-3)
        found = solution @ columns
        error = np.abs(found * b - a)
        weights = 1 / np.hypot(1, error / max(3 * np.median(error), np.finfo(float).tiny))
    field = sum(factor * math.prod(term) for factor, term in zip(solution, terms))
    return torch.from_numpy(np.clip(np.broadcast_to(field, first.shape), *np.percentile(found, (0, 100)))).float()
