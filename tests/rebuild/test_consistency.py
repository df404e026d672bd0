"""Laws of the comparison of a result with the measured slices, map and number; a dense matrix is the oracle."""

import numpy as np
import pytest
import torch

from scripts.rebuild.consistency import difference, relative_rmse
from scripts.stack import grid, tissue
from scripts.stack.acquisition import SLR, Acquisition
from scripts.stack.profile import acquire, profile_kernel
from scripts.stack.slices import Slices
from tests.volumes import head

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
HEAD = Acquisition.of_truth(2, 40, edge=1.0, thickness=4.0)  # of `head`


def of(scan, axis=2, **others):
    thick, fine_spacing, thickness, slice_spacing = scan
    return Acquisition.stack(axis, thick, spacing=slice_spacing, thickness=thickness, target=fine_spacing, **others)


def fine_volume(scan, seed=0, dtype=torch.float64):
    """A random result, `(4, 5, fine slices)`, on the fine grid of a scan."""
    return torch.randn(
        (4, 5, of(scan).fine_count), generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


def thick_volume(scan, seed=1, dtype=torch.float64):
    """A random measurement, `(4, 5, thick slices)`."""
    shape = (4, 5, scan[0])
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def dense_matrix(scan, profile=SLR):
    """The acquisition of exactly the measured slices, element by element: pad, weigh, interpolate at slice centres."""
    thick, fine_spacing, thickness, slice_spacing = scan
    fine = grid.fine_count(thick, slice_spacing, fine_spacing)
    kernel = profile_kernel(thickness, fine_spacing, profile)
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


@pytest.mark.parametrize("profile", [4.0, "rectangular"])
@pytest.mark.parametrize("scan", [*SCANS, ROUNDED_UP])
def test_difference_is_the_acquisition_of_the_measured_slices_less_the_measurement(scan, profile):
    x, y = fine_volume(scan), thick_volume(scan)
    expected = x.numpy() @ dense_matrix(scan, profile).T - y.numpy()
    np.testing.assert_allclose(difference(x, Slices(y, of(scan, profile=profile))).numpy(), expected, atol=1e-6)


def test_every_scan_gets_as_many_slices_as_were_measured():
    """Also where the fine grid, rounded up, would hold one more, as `thick_count` counts."""
    one_more = 0
    for thick in range(1, 40):
        for slice_spacing in (2.0, 3.3, 4.8, 5.0, 6.6):
            for fine_spacing in (0.7, 0.8681, 0.9375, 1.0, 1.3):
                acquisition = of((thick, fine_spacing, fine_spacing, slice_spacing))
                fine = acquisition.fine_count
                one_more += grid.thick_count(fine, fine_spacing, slice_spacing) > thick
                ramp = torch.arange(fine, dtype=torch.float64).expand(1, 1, fine)
                y = torch.zeros(1, 1, thick)
                seen = difference(ramp, Slices(y, acquisition))[0, 0]
                centres = grid.centred_positions(thick, slice_spacing, fine, fine_spacing)
                np.testing.assert_allclose(seen, centres.clip(0, fine - 1), atol=1e-4)
    assert one_more > 100


def test_number_of_a_known_difference():
    truth = head()
    y = acquire(truth, HEAD)
    inside = tissue.head_mask(y)
    error = torch.where(inside, 0.03 * y.sign() * y[inside].square().mean().sqrt(), 1e3)  # air does not count
    assert relative_rmse(error, Slices(y, HEAD)) == pytest.approx(0.03, rel=1e-5)
    assert relative_rmse(0.05 * y, Slices(y, HEAD)) == pytest.approx(0.05, rel=1e-5)
    undershoot = y.clone()
    undershoot[:2, :3, ::4] = -0.15 * y.max()  # nor does its undershoot
    assert relative_rmse(error, Slices(undershoot, HEAD)) == pytest.approx(0.03, rel=1e-5)


def test_constant_scan_has_no_number():
    with pytest.raises(ValueError, match="range of 0"):
        relative_rmse(torch.zeros(4, 5, 6), Slices(torch.zeros(4, 5, 6), of(SCANS[0])))
