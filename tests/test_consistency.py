"""Laws of the comparison with the measured slices and of the projection onto them; dense least squares as oracle."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from scripts import grid, metrics, slice_profile
from scripts.consistency import RESULT_ERROR, difference, noise_sd, project, reconcile, relative_rmse

# (thick slices, fine spacing, slice thickness, slice spacing), mm: plain, non-integer with the fine grid rounded down,
# rounded up, gap, gap and non-integer, overlap, a single slice
SCANS = [
    (6, 1.0, 4.0, 4.0),
    (7, 0.7, 5.0, 5.0),
    (8, 0.9, 3.3, 3.3),
    (8, 1.0, 3.0, 4.5),
    (9, 0.9, 4.0, 4.8),
    (12, 1.0, 6.0, 3.0),
    (1, 1.0, 6.0, 6.0),
]
ROUNDED_UP = (9, 0.8, 3.3, 3.3)  # 37 fine slices, 29.6 mm, of 29.7; 8 of them 26.4
AXIS = 2
projected = partial(project, regularisation=0.1)


def fine_volume(scan, seed=0, dtype=torch.float64):
    """A random result, `(4, 5, fine slices)`, on the fine grid of a scan."""
    thick, fine_spacing, _, slice_spacing = scan
    fine = grid.fine_count(thick, slice_spacing, fine_spacing)
    return torch.randn((4, 5, fine), generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def thick_volume(scan, seed=1, dtype=torch.float64):
    """A random measurement, `(4, 5, thick slices)`."""
    shape = (4, 5, scan[0])
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def dense_matrix(scan, profile=slice_profile.SLR):
    """The acquisition of exactly the measured slices, element by element: pad, weigh, interpolate at slice centres."""
    thick, fine_spacing, thickness, slice_spacing = scan
    fine = grid.fine_count(thick, slice_spacing, fine_spacing)
    kernel = slice_profile.profile_kernel(thickness, fine_spacing, profile)
    reach = len(kernel) // 2
    mirror = np.pad(np.arange(fine), reach, mode="symmetric")
    matrix = np.zeros((thick, fine))
    for i in range(thick):
        centre = (i - (thick - 1) / 2) * slice_spacing / fine_spacing + (fine - 1) / 2
        centre = min(max(centre, 0), fine - 1)
        for j in range(fine):
            weight = max(0.0, 1 - abs(centre - j))
            for k, value in enumerate(kernel):
                matrix[i, mirror[j + k]] += weight * value
    return matrix


def head(shape=(24, 26, 40)):
    """A textured ellipsoid in air, values 0 to about 1000."""
    axes = torch.meshgrid(*(torch.linspace(-1.2, 1.2, n) for n in shape), indexing="ij")
    inside = sum(a.square() for a in axes) < 1
    texture = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    texture = torch.nn.functional.avg_pool3d(texture[None, None], 3, stride=1, padding=1)[0, 0]
    return torch.where(inside, 400 + 1000 * (texture - 0.2), 0.0)


@pytest.mark.parametrize("scan", [*SCANS, ROUNDED_UP])
def test_difference_is_the_acquisition_of_the_measured_slices_less_the_measurement(scan):
    x, y = fine_volume(scan), thick_volume(scan)
    expected = x.numpy() @ dense_matrix(scan).T - y.numpy()
    np.testing.assert_allclose(difference(x, y, AXIS, *scan[1:]).numpy(), expected, atol=1e-6)


def test_every_scan_gets_as_many_slices_as_were_measured():
    """Also where the fine grid, rounded up, would hold one more, as `thick_count` counts."""
    one_more = 0
    for thick in range(1, 40):
        for slice_spacing in (2.0, 3.3, 4.8, 5.0, 6.6):
            for fine_spacing in (0.7, 0.8681, 0.9375, 1.0, 1.3):
                fine = grid.fine_count(thick, slice_spacing, fine_spacing)
                one_more += slice_profile.thick_count(fine, fine_spacing, slice_spacing) > thick
                ramp = torch.arange(fine, dtype=torch.float64).expand(1, 1, fine)
                y = torch.zeros(1, 1, thick)
                seen = difference(ramp, y, 2, fine_spacing, fine_spacing, slice_spacing)[0, 0]
                centres = grid.centred_positions(thick, slice_spacing, fine, fine_spacing)
                np.testing.assert_allclose(seen, centres.clip(0, fine - 1), atol=1e-4)
    assert one_more > 100


@pytest.mark.parametrize("scan", SCANS)
def test_result_that_degrades_to_the_measurement_agrees(scan):
    x = fine_volume(scan)
    y = difference(x, torch.zeros(4, 5, scan[0]), AXIS, *scan[1:])
    assert (difference(x, y, AXIS, *scan[1:]) == 0).all()
    assert relative_rmse(torch.zeros_like(y), y) == 0
    torch.testing.assert_close(project(x, y, AXIS, *scan[1:], regularisation=0), x)
    torch.testing.assert_close(projected(x, y, AXIS, *scan[1:]), x)


@pytest.mark.parametrize(("thickness", "slice_spacing"), [(4.0, 4.0), (3.0, 4.0), (6.0, 4.0)])
def test_it_is_the_acquisition_that_makes_thick_scans(thickness, slice_spacing):
    truth = head()
    y = slice_profile.acquire(truth, 2, 1.0, thickness, slice_spacing)
    assert (difference(truth, y, 2, 1.0, thickness, slice_spacing) == 0).all()


@pytest.mark.parametrize("scan", SCANS)
def test_projection_is_idempotent(scan):
    x, y = fine_volume(scan), thick_volume(scan)
    once = project(x, y, AXIS, *scan[1:], regularisation=0)
    torch.testing.assert_close(project(once, y, AXIS, *scan[1:], regularisation=0), once, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scan", [s for s in SCANS if s[2] <= s[3]])
def test_projection_makes_the_number_zero(scan, dtype):
    x, y = fine_volume(scan, dtype=dtype), thick_volume(scan, dtype=dtype)
    result = project(x, y, AXIS, *scan[1:], regularisation=0)
    assert result.dtype == dtype
    assert relative_rmse(difference(x, y, AXIS, *scan[1:]), y) > 0.1
    assert relative_rmse(difference(result, y, AXIS, *scan[1:]), y) < 1e-5


@pytest.mark.parametrize("regularisation", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("scan", [*SCANS, ROUNDED_UP])
def test_projection_is_the_least_squares_solution(scan, regularisation):
    """Lambda 0: the smallest of the changes that fit best. Else the stacked problem, line by line."""
    x, y = fine_volume(scan), thick_volume(scan)
    matrix = dense_matrix(scan)
    expected = np.empty(x.shape)
    for place in np.ndindex(4, 5):
        line, residual = x[place].numpy(), y[place].numpy() - matrix @ x[place].numpy()
        if regularisation == 0:
            change = np.linalg.lstsq(matrix, residual, rcond=1e-4)[0]
        else:
            stacked = np.vstack([np.sqrt(regularisation) * np.eye(matrix.shape[1]), matrix])
            change = np.linalg.lstsq(stacked, np.concatenate([np.zeros(matrix.shape[1]), residual]), rcond=None)[0]
        expected[place] = line + change
    result = project(x, y, AXIS, *scan[1:], regularisation=regularisation)
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("scan", SCANS)
def test_larger_lambda_moves_less(scan):
    x, y = fine_volume(scan), thick_volume(scan)
    moves, misfits = [], []
    for regularisation in (0.0, 0.01, 0.1, 1.0, 1e6):
        result = project(x, y, AXIS, *scan[1:], regularisation=regularisation)
        moves.append((result - x).norm().item())
        misfits.append(difference(result, y, AXIS, *scan[1:]).norm().item())
    assert moves == sorted(moves, reverse=True)
    assert misfits == sorted(misfits)
    assert moves[-1] < 1e-4 * moves[0]


@pytest.mark.parametrize("scan", SCANS)
def test_map_and_projection_are_linear(scan):
    lengths = scan[1:]
    (x1, x2), (y1, y2) = ([make(scan, seed) for seed in (2, 3)] for make in (fine_volume, thick_volume))
    for function in (difference, projected):
        combined = function(2 * x1 - 3 * x2, 2 * y1 - 3 * y2, AXIS, *lengths)
        expected = 2 * function(x1, y1, AXIS, *lengths) - 3 * function(x2, y2, AXIS, *lengths)
        torch.testing.assert_close(combined, expected)


@pytest.mark.parametrize("scan", SCANS)
def test_projection_keeps_constants(scan):
    x, y = fine_volume(scan), thick_volume(scan)
    constant = projected(torch.full_like(x, 7.0), torch.full_like(y, 7.0), AXIS, *scan[1:])
    torch.testing.assert_close(constant, torch.full_like(x, 7.0), rtol=1e-6, atol=0)
    torch.testing.assert_close(
        projected(x + 7, y + 7, AXIS, *scan[1:]), projected(x, y, AXIS, *scan[1:]) + 7, rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("function", [difference, projected])
@pytest.mark.parametrize("scan", [*SCANS, ROUNDED_UP])
def test_flips_commute(function, scan):
    x, y = fine_volume(scan), thick_volume(scan)
    expected = function(x, y, AXIS, *scan[1:])
    for axis in range(3):
        torch.testing.assert_close(function(x.flip(axis), y.flip(axis), AXIS, *scan[1:]), expected.flip(axis))


@pytest.mark.parametrize("function", [difference, projected])
@pytest.mark.parametrize("order", [(0, 2, 1), (1, 2, 0), (2, 1, 0)])
def test_axis_permutation_commutes(function, order):
    scan = SCANS[4]
    x, y = fine_volume(scan), thick_volume(scan)
    expected = function(x, y, AXIS, *scan[1:]).permute(order)
    for axis in (order.index(AXIS), order.index(AXIS) - 3):
        torch.testing.assert_close(function(x.permute(order), y.permute(order), axis, *scan[1:]), expected)


def test_number_of_a_known_difference():
    truth = head()
    y = slice_profile.acquire(truth, 2, 1.0, 4.0, 4.0)
    inside = metrics.head_mask(y)
    error = torch.where(inside, 0.03 * y.sign() * y[inside].square().mean().sqrt(), 1e3)  # air does not count
    assert relative_rmse(error, y) == pytest.approx(0.03, rel=1e-5)
    assert relative_rmse(0.05 * y, y) == pytest.approx(0.05, rel=1e-5)


def test_number_does_not_depend_on_the_unit():
    truth = head()
    y = slice_profile.acquire(truth, 2, 1.0, 4.0, 4.0)
    noise = torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    assert relative_rmse(1e-3 * noise, 1e-3 * y) == pytest.approx(relative_rmse(noise, y), rel=1e-4)


@pytest.mark.parametrize("slice_spacing", [3.0, 5.0, 6.25])
def test_head_of_the_thick_grid_is_the_head_seen_through_the_slices(slice_spacing):
    truth = head((48, 52, 100))
    y = slice_profile.acquire(truth, 2, 1.0, slice_spacing, slice_spacing)
    seen = slice_profile.acquire(metrics.head_mask(truth).float(), 2, 1.0, slice_spacing, slice_spacing)
    found = metrics.head_mask(y)
    overlap = 2 * (found & (seen > 0.1)).sum() / (found.sum() + (seen > 0.1).sum())
    assert overlap > 0.98


def test_negative_air_does_not_count():
    y = slice_profile.acquire(head(), 2, 1.0, 4.0, 4.0)
    undershoot = torch.where((y == 0) & (torch.arange(y.shape[2]) % 2 == 0), -0.15 * y.max(), y)
    error = torch.ones_like(y)
    assert relative_rmse(error, undershoot) == pytest.approx(relative_rmse(error, y))


@pytest.mark.parametrize(
    ("thickness", "profile"), [(4.0, "rectangular"), (4.0, "gaussian"), (4.0, 2.0), (3.0, 4.0), (5.0, 4.0)]
)
def test_wrong_model_is_seen(thickness, profile):
    truth = head()
    y = slice_profile.acquire(truth, 2, 1.0, 4.0, 4.0)
    assert relative_rmse(difference(truth, y, 2, 1.0, thickness, 4.0, profile), y) > 1e-3
    fitted = project(truth, y, 2, 1.0, thickness, 4.0, profile, regularisation=0)
    assert relative_rmse(difference(fitted, y, 2, 1.0, 4.0, 4.0), y) > 1e-3


@pytest.mark.parametrize("scan", SCANS)
def test_projection_of_a_noiseless_scan_never_leads_away_from_the_truth(scan):
    truth, x = fine_volume(scan), fine_volume(scan, seed=5)
    y = difference(truth, torch.zeros(4, 5, scan[0]), AXIS, *scan[1:])
    exact = project(x, y, AXIS, *scan[1:], regularisation=0)
    torch.testing.assert_close(  # Pythagoras: the change is orthogonal to what the slices do not see
        (exact - truth).square().sum(), (x - truth).square().sum() - (exact - x).square().sum()
    )
    nearest = projected(x, y, AXIS, *scan[1:])
    assert (exact - truth).norm() < (nearest - truth).norm() < (x - truth).norm()


@pytest.mark.parametrize("profile", [4.0, "rectangular"])
def test_lambda_bounds_what_overlapping_slices_amplify(profile):
    """The gain `s / (s^2 + lambda)` of a singular value is at most `1 / (2 sqrt(lambda))`."""
    scan = (40, 1.0, 6.0, 3.0)
    x, y = fine_volume(scan), thick_volume(scan)
    residual = difference(x, y, AXIS, *scan[1:], profile).norm(dim=-1)
    for regularisation in (0.01, 0.1):
        change = (project(x, y, AXIS, *scan[1:], profile, regularisation=regularisation) - x).norm(dim=-1)
        assert (change <= residual / (2 * regularisation**0.5)).all()
    unbounded = (project(x, y, AXIS, *scan[1:], profile, regularisation=0) - x).norm(dim=-1)
    assert (unbounded > 10 * residual).any()


def test_slices_nearer_than_the_fine_grids_are_averaged():
    scan = (20, 1.0, 2.0, 0.8)  # more measured slices than unknowns
    x, y = fine_volume(scan), thick_volume(scan)
    result = project(x, y, AXIS, *scan[1:], regularisation=0)
    matrix = torch.from_numpy(dense_matrix(scan))
    remainder = difference(result, y, AXIS, *scan[1:])
    torch.testing.assert_close(remainder @ matrix, torch.zeros_like(x), rtol=0, atol=1e-4)  # normal equations


def test_measured_integers_are_welcome():
    scan = SCANS[0]
    y = (100 * thick_volume(scan)).to(torch.int16)
    x = fine_volume(scan, dtype=torch.float32)
    for function in (difference, projected):
        torch.testing.assert_close(function(x, y, AXIS, *scan[1:]), function(x, y.float(), AXIS, *scan[1:]))


def test_arguments_are_left_as_they_are():
    scan = SCANS[1]
    x, y = fine_volume(scan), thick_volume(scan)
    kept = x.clone(), y.clone()
    projected(x, y, AXIS, *scan[1:])
    relative_rmse(difference(x, y, AXIS, *scan[1:]), y)
    assert torch.equal(x, kept[0]) and torch.equal(y, kept[1])


@pytest.mark.parametrize("function", [difference, projected])
def test_what_cannot_be_compared_is_refused(function):
    x, y = torch.zeros(4, 5, 24), torch.zeros(4, 5, 6)
    with pytest.raises(TypeError, match=r"int16.*float"):
        function(x.short(), y, 2, 1.0, 4.0, 4.0)
    for wrong in (
        (x, y, 2, 1.0, 5.0, 5.0),
        (x, y[:, :4], 2, 1.0, 4.0, 4.0),
        (x, y, 0, 1.0, 4.0, 4.0),
        (x, y, 2, 2.0, 4.0, 4.0),
    ):
        with pytest.raises(ValueError, match="one field of view"):
            function(*wrong)
    with pytest.raises(ValueError, match="slice thickness"):
        function(x, y, 2, 1.0, 0.0, 4.0)


@pytest.mark.parametrize("regularisation", [-0.1, math.nan])
def test_negative_regularisation_is_refused(regularisation):
    with pytest.raises(ValueError, match=f"regularisation is {regularisation}"):
        project(torch.zeros(4, 5, 24), torch.zeros(4, 5, 6), 2, 1.0, 4.0, 4.0, regularisation=regularisation)


def test_constant_scan_has_no_number():
    with pytest.raises(ValueError, match="range of 0"):
        relative_rmse(torch.zeros(4, 5, 6), torch.zeros(4, 5, 6))


# --- as a real scan bears it ---


def acquired(truth, slice_spacing=4.0, noise=0.0, seed=0):
    """Slices of a head along the last axis and Gaussian noise of a standard deviation in its units."""
    y = slice_profile.acquire(truth, 2, 1.0, slice_spacing, slice_spacing)
    return y + noise * torch.randn(y.shape, generator=torch.Generator().manual_seed(seed))


def smooth(volume):
    """A result that misses detail along the slice axis."""
    return slice_profile.acquire(volume, 2, 1.0, 3.0, 1.0)


LENGTHS = (2, 1.0, 4.0, 4.0)


@pytest.mark.parametrize("sd", [5.0, 20.0, 60.0])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_the_noise_of_slices_is_found(sd, axis):
    """Of a cylinder of tissue, whose slices lie along any axis; its edge counts as a little noise."""
    rows, columns = torch.meshgrid(torch.linspace(-1.2, 1.2, 160), torch.linspace(-1.2, 1.2, 180), indexing="ij")
    tissue = torch.where(rows**2 + columns**2 < 1, 500.0, 0.0)[..., None].expand(160, 180, 24)
    found = noise_sd(acquired(tissue, noise=sd).movedim(2, axis), axis)
    assert 0.98 * sd < found < 1.15 * sd


def test_ramps_and_edges_of_tissue_are_no_noise():
    rows, columns = torch.arange(40.0)[:, None, None], torch.arange(36.0)[:, None]
    ramp = (200 + 3 * rows + 5 * columns).expand(40, 36, 6)
    assert noise_sd(ramp, 2) == pytest.approx(0, abs=1e-3)
    edges = torch.where((rows > 10) & (rows < 30), 800.0, 200.0).expand(40, 36, 6)
    assert noise_sd(edges, 2) == pytest.approx(0, abs=1e-3)


def test_noise_is_counted_in_the_scans_units_and_in_the_head():
    y = acquired(head(), noise=20.0)
    assert noise_sd(0.01 * y, 2) == pytest.approx(0.01 * noise_sd(y, 2), rel=1e-4)
    air = torch.where(metrics.head_mask(y.clamp(min=0)), y, 0.0)
    assert noise_sd(air, 2) == pytest.approx(noise_sd(y, 2), rel=0.1)


def test_reconciling_is_the_projection_for_the_noise_that_there_is():
    truth = head()
    x, y = smooth(truth), acquired(truth, noise=10.0)
    level = torch.quantile(y.double(), 0.999).item()
    energy = y.square().sum((0, 1))
    fitted = y * (slice_profile.acquire(x, 2, 1.0, 4.0, 4.0) * y).sum((0, 1)) / energy
    regularisation = (noise_sd(y, 2) / (RESULT_ERROR * level)) ** 2
    expected = project(x, fitted, *LENGTHS, regularisation=regularisation)
    torch.testing.assert_close(reconcile(x, y, *LENGTHS), expected, rtol=1e-4, atol=0.1)


@pytest.mark.parametrize(("slice_spacing", "share"), [(3.0, 0.97), (5.0, 0.99)])
def test_a_noiseless_scan_brings_the_result_nearer_to_the_truth(slice_spacing, share):
    tissue = torch.where(head((40, 44, 60)) > 0, 500.0, 0.0)
    truth = tissue * (1 + 0.2 * torch.sin(0.8 * torch.arange(60.0)))  # layers, which are no noise within a slice
    x, y = smooth(truth), acquired(truth, slice_spacing)
    result = reconcile(x, y, 2, 1.0, slice_spacing, slice_spacing)
    assert (result - truth).norm() < share * (x - truth).norm()


@pytest.mark.parametrize("gains", [[0.97, 1.03], [0.9, 1.0], [1.0, 1.05, 1.0, 0.98, 1.0]])
def test_gains_of_slices_do_not_become_bands(gains):
    """Where the slices differ from the result in gain alone nothing is moved; the projection would move it."""
    truth = head()
    y = acquired(truth) * torch.tensor(gains).repeat(10)[: truth.shape[2] // 4]
    moved, projected_onto = reconcile(truth, y, *LENGTHS) - truth, projected(truth, y, *LENGTHS) - truth
    assert moved.abs().max() < 0.02 * projected_onto.abs().max()


def test_little_noise_enters_the_result():
    """White noise of 5 % of the head's range: reconciling moves a perfect result by a small part of it."""
    truth = head()
    y = acquired(truth, noise=50.0)
    moved, blind = reconcile(truth, y, *LENGTHS) - truth, project(truth, y, *LENGTHS, regularisation=0) - truth
    assert moved.square().mean().sqrt() < 0.1 * 50
    assert moved.norm() < 0.1 * blind.norm()


def test_more_noise_moves_less_of_the_same_misfit():
    truth = head()
    x, changes = smooth(truth), []
    for noise in (0.0, 10.0, 40.0):
        y = acquired(truth, noise=noise)
        changes.append(((reconcile(x, y, *LENGTHS) - x) * (truth - x)).sum().item())  # along the error
    assert changes[0] > 1.1 * changes[1] > 1.1**2 * changes[2] > 0


@pytest.mark.parametrize("unit", [1e-30, 1e-3, 1e19, 1e30])
def test_reconciling_does_not_depend_on_the_unit(unit):
    truth = head()
    x, y = smooth(truth), acquired(truth, noise=10.0)
    torch.testing.assert_close(
        reconcile(unit * x, unit * y, *LENGTHS) / unit, reconcile(x, y, *LENGTHS), rtol=1e-3, atol=0.1
    )


@pytest.mark.parametrize("shape", [(1, 20), (20, 1), (1, 1)])
def test_a_scan_of_one_row_is_reconciled(shape):
    y = torch.rand(*shape, 6, generator=torch.Generator().manual_seed(0))
    assert torch.isfinite(reconcile(y.repeat_interleave(4, 2), y, *LENGTHS)).all()


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 0, 1), (2, 1, 0)])
def test_any_axis_can_be_the_slice_axis(order):
    truth = head()
    x, y = smooth(truth), acquired(truth, noise=10.0)
    expected = reconcile(x, y, *LENGTHS).permute(order)
    for axis in (order.index(2), order.index(2) - 3):
        torch.testing.assert_close(
            reconcile(x.permute(order), y.permute(order), axis, *LENGTHS[1:]), expected, rtol=1e-4, atol=0.05
        )


@pytest.mark.parametrize("value", [0.0, 7.0, -3.0])
def test_a_scan_without_a_head_leaves_the_result_as_it_is(value):
    x, y = torch.rand(4, 5, 24), torch.full((4, 5, 6), value)
    assert torch.equal(reconcile(x, y, *LENGTHS), x)
    assert torch.equal(reconcile(x, -torch.rand(4, 5, 6), *LENGTHS), x)


def test_slices_without_signal_and_a_lone_bright_voxel_are_welcome():
    y = torch.zeros(32, 32, 6)
    y[16, 16, 3] = 1.0
    assert torch.isfinite(reconcile(torch.rand(32, 32, 24), y, *LENGTHS)).all()


@pytest.mark.gpu
def test_gpu_agrees():
    scan = SCANS[1]
    x, y = fine_volume(scan), thick_volume(scan)
    for function in (difference, projected):
        result = function(x.cuda(), y.cuda(), AXIS, *scan[1:])
        assert result.is_cuda
        torch.testing.assert_close(result.cpu(), function(x, y, AXIS, *scan[1:]))
    on_gpu = relative_rmse(difference(x.cuda(), y.cuda(), AXIS, *scan[1:]), y)
    assert on_gpu == pytest.approx(relative_rmse(difference(x, y, AXIS, *scan[1:]), y))
