"""Laws of the projection onto the measured slices, and those it shares with the comparison; least squares as oracle."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from scripts.rebuild.consistency import difference, project, relative_rmse
from tests.rebuild.test_consistency import ROUNDED_UP, SCANS, dense_matrix, fine_volume, of, thick_volume

projected = partial(project, regularisation=0.1)


@pytest.mark.parametrize("scan", SCANS)
def test_result_that_degrades_to_the_measurement_agrees(scan):
    x = fine_volume(scan)
    y = difference(x, torch.zeros(4, 5, scan[0]), of(scan))
    assert (difference(x, y, of(scan)) == 0).all()
    assert relative_rmse(torch.zeros_like(y), y) == 0
    torch.testing.assert_close(project(x, y, of(scan), regularisation=0), x)
    torch.testing.assert_close(projected(x, y, of(scan)), x)


@pytest.mark.parametrize("scan", SCANS)
def test_projection_is_idempotent(scan):
    x, y = fine_volume(scan), thick_volume(scan)
    once = project(x, y, of(scan), regularisation=0)
    torch.testing.assert_close(project(once, y, of(scan), regularisation=0), once, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scan", [s for s in SCANS if s[2] <= s[3]])
def test_projection_makes_the_number_zero(scan, dtype):
    x, y = fine_volume(scan, dtype=dtype), thick_volume(scan, dtype=dtype)
    result = project(x, y, of(scan), regularisation=0)
    assert result.dtype == dtype
    assert relative_rmse(difference(x, y, of(scan)), y) > 0.1
    assert relative_rmse(difference(result, y, of(scan)), y) < 1e-5


@pytest.mark.parametrize(("regularisation", "profile"), [(0.0, 4.0), (0.01, 4.0), (1.0, 4.0), (0.01, "gaussian")])
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
    result = project(x, y, of(scan, profile=profile), regularisation=regularisation)
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("scan", SCANS)
def test_larger_lambda_moves_less(scan):
    x, y = fine_volume(scan), thick_volume(scan)
    moves, misfits = [], []
    for regularisation in (0.0, 0.01, 0.1, 1.0, 1e6):
        result = project(x, y, of(scan), regularisation=regularisation)
        moves.append((result - x).norm().item())
        misfits.append(difference(result, y, of(scan)).norm().item())
    assert moves == sorted(moves, reverse=True)
    assert misfits == sorted(misfits)
    assert moves[-1] < 1e-4 * moves[0]


@pytest.mark.parametrize("scan", SCANS)
def test_map_and_projection_are_linear(scan):
    acquisition = of(scan)
    (x1, x2), (y1, y2) = ([make(scan, seed) for seed in (2, 3)] for make in (fine_volume, thick_volume))
    for function in (difference, projected):
        combined = function(2 * x1 - 3 * x2, 2 * y1 - 3 * y2, acquisition)
        expected = 2 * function(x1, y1, acquisition) - 3 * function(x2, y2, acquisition)
        torch.testing.assert_close(combined, expected)


@pytest.mark.parametrize("scan", SCANS)
def test_projection_keeps_constants(scan):
    x, y = fine_volume(scan), thick_volume(scan)
    constant = projected(torch.full_like(x, 7.0), torch.full_like(y, 7.0), of(scan))
    torch.testing.assert_close(constant, torch.full_like(x, 7.0), rtol=1e-6, atol=0)
    torch.testing.assert_close(projected(x + 7, y + 7, of(scan)), projected(x, y, of(scan)) + 7, rtol=0, atol=1e-6)


@pytest.mark.parametrize("function", [difference, projected])
@pytest.mark.parametrize("scan", [*SCANS, ROUNDED_UP])
def test_flips_commute(function, scan):
    x, y = fine_volume(scan), thick_volume(scan)
    expected = function(x, y, of(scan))
    for axis in range(3):
        torch.testing.assert_close(function(x.flip(axis), y.flip(axis), of(scan)), expected.flip(axis))


@pytest.mark.parametrize("function", [difference, projected])
@pytest.mark.parametrize("order", [(0, 2, 1), (1, 2, 0), (2, 1, 0)])
def test_axis_permutation_commutes(function, order):
    scan = SCANS[4]
    x, y = fine_volume(scan), thick_volume(scan)
    expected = function(x, y, of(scan)).permute(order)
    torch.testing.assert_close(function(x.permute(order), y.permute(order), of(scan, order.index(2))), expected)


@pytest.mark.parametrize("scan", SCANS)
def test_projection_of_a_noiseless_scan_never_leads_away_from_the_truth(scan):
    truth, x = fine_volume(scan), fine_volume(scan, seed=5)
    y = difference(truth, torch.zeros(4, 5, scan[0]), of(scan))
    exact = project(x, y, of(scan), regularisation=0)
    torch.testing.assert_close(  # Pythagoras: the change is orthogonal to what the slices do not see
        (exact - truth).square().sum(), (x - truth).square().sum() - (exact - x).square().sum()
    )
    nearest = projected(x, y, of(scan))
    assert (exact - truth).norm() < (nearest - truth).norm() < (x - truth).norm()


@pytest.mark.parametrize("profile", [4.0, "rectangular"])
def test_lambda_bounds_what_overlapping_slices_amplify(profile):
    """The gain `s / (s^2 + lambda)` of a singular value is at most `1 / (2 sqrt(lambda))`."""
    scan = (40, 1.0, 6.0, 3.0)
    x, y, acquisition = fine_volume(scan), thick_volume(scan), of(scan, profile=profile)
    residual = difference(x, y, acquisition).norm(dim=-1)
    for regularisation in (0.01, 0.1):
        change = (project(x, y, acquisition, regularisation=regularisation) - x).norm(dim=-1)
        assert (change <= residual / (2 * regularisation**0.5)).all()
    unbounded = (project(x, y, acquisition, regularisation=0) - x).norm(dim=-1)
    assert (unbounded > 10 * residual).any()


def test_slices_nearer_than_the_fine_grids_are_averaged():
    scan = (20, 1.0, 2.0, 0.8)  # more measured slices than unknowns
    x, y = fine_volume(scan), thick_volume(scan)
    result = project(x, y, of(scan), regularisation=0)
    matrix = torch.from_numpy(dense_matrix(scan))
    remainder = difference(result, y, of(scan))
    torch.testing.assert_close(remainder @ matrix, torch.zeros_like(x), rtol=0, atol=1e-4)  # normal equations


def test_measured_integers_are_welcome():
    scan = SCANS[0]
    y = (100 * thick_volume(scan)).to(torch.int16)
    x = fine_volume(scan, dtype=torch.float32)
    for function in (difference, projected):
        torch.testing.assert_close(function(x, y, of(scan)), function(x, y.float(), of(scan)))


def test_arguments_are_left_as_they_are():
    scan = SCANS[1]
    x, y = fine_volume(scan), thick_volume(scan)
    kept = x.clone(), y.clone()
    projected(x, y, of(scan))
    relative_rmse(difference(x, y, of(scan)), y)
    assert torch.equal(x, kept[0]) and torch.equal(y, kept[1])


@pytest.mark.parametrize("function", [difference, projected])
def test_what_cannot_be_compared_is_refused(function):
    x, y = torch.zeros(4, 5, 24), torch.zeros(4, 5, 6)
    with pytest.raises(TypeError, match=r"int16.*float"):
        function(x.short(), y, of(SCANS[0]))
    with pytest.raises(ValueError, match=r"result is \(4, 5, 24\).*\(4, 4, 6\).*one field of view"):
        function(x, y[:, :4], of(SCANS[0]))
    for wrong in (of((6, 1.0, 5.0, 5.0)), of(SCANS[0], axis=0), of((6, 2.0, 4.0, 4.0))):
        with pytest.raises(ValueError, match=r"image is \(4, 5, 24\): expected"):
            function(x, y, wrong)


@pytest.mark.parametrize("regularisation", [-0.1, math.nan])
def test_negative_regularisation_is_refused(regularisation):
    with pytest.raises(ValueError, match=f"regularisation is {regularisation}"):
        project(torch.zeros(4, 5, 24), torch.zeros(4, 5, 6), of(SCANS[0]), regularisation=regularisation)


@pytest.mark.parametrize("scan", SCANS[:5])
def test_a_smooth_change_meets_the_slices_without_their_steps(scan):
    """As the white one it makes the number zero; its second differences are smaller."""
    x, y = fine_volume(scan), thick_volume(scan)
    white, smooth = (project(x, y, of(scan), 0, smoothness) - x for smoothness in (0, 0.75))
    assert difference(x + smooth, y, of(scan)).abs().max() < 1e-5
    assert smooth.diff(n=2, dim=-1).norm() < 0.8 * white.diff(n=2, dim=-1).norm()


@pytest.mark.parametrize("regularisation", [0.01, 1.0])
def test_a_smooth_change_is_the_likeliest(regularisation):
    """Of errors that are correlated: the stacked problem of `x + L d`, with `C = L L^T`, line by line."""
    scan = SCANS[0]
    x, y, matrix = fine_volume(scan), thick_volume(scan), dense_matrix(scan)
    place = np.arange(matrix.shape[1]) * scan[1] / (0.75 * scan[3])
    correlation = np.exp(-((place[:, None] - place) ** 2) / 2)
    correlation *= np.trace(matrix @ matrix.T) / np.trace(matrix @ correlation @ matrix.T)
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(values.clip(0))
    stacked = np.vstack([np.sqrt(regularisation) * np.eye(len(root)), matrix @ root])
    result = project(x, y, of(scan), regularisation, 0.75)
    for place in np.ndindex(4, 5):
        line, residual = x[place].numpy(), y[place].numpy() - matrix @ x[place].numpy()
        change = root @ np.linalg.lstsq(stacked, np.concatenate([np.zeros(len(root)), residual]), rcond=None)[0]
        np.testing.assert_allclose(result[place].numpy(), line + change, atol=1e-5)
