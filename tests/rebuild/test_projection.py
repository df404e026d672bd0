"""Laws of the projection onto the measured slices, and those it shares with the comparison; least squares as oracle."""

from functools import partial

import numpy as np
import pytest
import torch

from scripts.rebuild.consistency import difference, project, relative_rmse
from scripts.stack.slices import Slices
from tests.rebuild.test_consistency import ROUNDED_UP, SCANS, dense_matrix, fine_volume, of, thick_volume

projected = partial(project, regularisation=0.1, smoothness=0)


@pytest.mark.parametrize("scan", SCANS)
def test_result_that_degrades_to_the_measurement_agrees(scan):
    x = fine_volume(scan)
    y = difference(x, Slices(torch.zeros(4, 5, scan[0]), of(scan)))
    assert (difference(x, Slices(y, of(scan))) == 0).all()
    assert relative_rmse(torch.zeros_like(y), Slices(y, of(scan))) == 0
    torch.testing.assert_close(project(x, Slices(y, of(scan)), regularisation=0, smoothness=0), x)
    torch.testing.assert_close(projected(x, Slices(y, of(scan))), x)


@pytest.mark.parametrize(("regularisation", "profile"), [(0.0, 4.0), (0.01, "gaussian")])
@pytest.mark.parametrize("scan", [*SCANS, ROUNDED_UP])
def test_projection_is_the_least_squares_solution(scan, regularisation, profile):
    """Lambda 0: the smallest of the changes that fit best. Else the stacked problem, line by line."""
    x, y = fine_volume(scan), thick_volume(scan)
    matrix = dense_matrix(scan, profile)
    expected = np.empty(x.shape)
    for place in np.ndindex(4, 5):
        line, residual = x[place].numpy(), y[place].numpy() - matrix @ x[place].numpy()
        if regularisation == 0:
            change = np.linalg.lstsq(matrix, residual, rcond=1e-4)[0]
        else:
            stacked = np.vstack([np.sqrt(regularisation) * np.eye(matrix.shape[1]), matrix])
            change = np.linalg.lstsq(stacked, np.concatenate([np.zeros(matrix.shape[1]), residual]), rcond=None)[0]
        expected[place] = line + change
    result = project(x, Slices(y, of(scan, profile=profile)), regularisation=regularisation, smoothness=0)
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-5)


def test_slices_nearer_than_the_fine_grids_are_averaged():
    scan = (20, 1.0, 2.0, 0.8)  # more measured slices than unknowns
    x, y = fine_volume(scan), thick_volume(scan)
    result = project(x, Slices(y, of(scan)), regularisation=0, smoothness=0)
    matrix = torch.from_numpy(dense_matrix(scan))
    remainder = difference(result, Slices(y, of(scan)))
    torch.testing.assert_close(remainder @ matrix, torch.zeros_like(x), rtol=0, atol=1e-4)  # normal equations


@pytest.mark.parametrize("function", [difference, projected])
def test_what_cannot_be_compared_is_refused(function):
    x, y = torch.zeros(4, 5, 24), torch.zeros(4, 5, 6)
    with pytest.raises(TypeError, match=r"int16.*float"):
        function(x.short(), Slices(y, of(SCANS[0])))
    with pytest.raises(ValueError, match=r"result is \(4, 5, 24\).*\(4, 4, 6\).*one field of view"):
        function(x, Slices(y[:, :4], of(SCANS[0])))
    for wrong in (of((6, 1.0, 5.0, 5.0)), of(SCANS[0], axis=0), of((6, 2.0, 4.0, 4.0))):
        with pytest.raises(ValueError, match=r"image is \(4, 5, 24\): expected"):
            function(x, Slices(y, wrong))


@pytest.mark.parametrize(("scan", "regularisation"), [(SCANS[0], 0.01), (SCANS[0], 1.0), (SCANS[3], 0.01)])
def test_a_smooth_change_is_the_likeliest(scan, regularisation):
    """Of errors that are correlated: the stacked problem of `x + L d`, with `C = L L^T`, line by line."""
    x, y, matrix = fine_volume(scan), thick_volume(scan), dense_matrix(scan)
    place = np.arange(matrix.shape[1]) * scan[1] / (0.75 * scan[3])
    correlation = np.exp(-((place[:, None] - place) ** 2) / 2)
    correlation *= np.trace(matrix @ matrix.T) / np.trace(matrix @ correlation @ matrix.T)
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(values.clip(0))
    stacked = np.vstack([np.sqrt(regularisation) * np.eye(len(root)), matrix @ root])
    result = project(x, Slices(y, of(scan)), regularisation, 0.75)
    for place in np.ndindex(4, 5):
        line, residual = x[place].numpy(), y[place].numpy() - matrix @ x[place].numpy()
        change = root @ np.linalg.lstsq(stacked, np.concatenate([np.zeros(len(root)), residual]), rcond=None)[0]
        np.testing.assert_allclose(result[place].numpy(), line + change, atol=1e-5)
