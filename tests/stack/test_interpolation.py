"""Laws of the ways back to the fine grid, and of resampling one axis, with loops and closed forms as oracles."""

import numpy as np
import pytest
import torch

from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate, resample
from tests.stack.test_slice_matrix import line

METHODS = ["nearest", "linear", "cubic"]
# (slices, slice spacing, target), mm: whole ratio, others, and slices nearer than the fine grid
GRIDS = [(7, 5.0, 1.0), (9, 3.3, 0.9), (20, 0.9, 1.0)]


def stack(count, spacing, target, shift=0.0, axis=2):
    return Acquisition.stack(axis, count, spacing=spacing, thickness=spacing, target=target, shift=shift)


def places(acquisition):
    """Where thick and fine slices lie, in mm from the middle of the fine grid."""
    a = acquisition
    thick = (np.arange(a.slice_count) - (a.slice_count - 1) / 2) * a.slice_spacing + a.shift
    return thick, (np.arange(a.fine_count) - (a.fine_count - 1) / 2) * a.target_spacing


@pytest.mark.parametrize("shift", [-1.7])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", GRIDS)
def test_constants_stay_and_ramps_lie_where_they_lay(shape, method, shift):
    """Beyond the outermost centres their values are repeated; the nearest slice is at most half a spacing away."""
    acquisition = stack(*shape, shift)
    thick, fine = places(acquisition)
    constant = interpolate(torch.full((1, 2, shape[0]), 7.0), acquisition, method)
    torch.testing.assert_close(constant, torch.full((1, 2, acquisition.fine_count), 7.0))
    ramp = interpolate(torch.from_numpy(thick)[None, None], acquisition, method)[0, 0].numpy()
    expected = np.clip(fine, thick[0], thick[-1])
    np.testing.assert_allclose(ramp, expected, atol=shape[1] / 2 + 1e-6 if method == "nearest" else 1e-9)


@pytest.mark.parametrize("shape", GRIDS)
def test_linear_is_numpys_and_cubic_meets_every_cubic(shape):
    acquisition = stack(*shape, shift=0.3)
    thick, fine = places(acquisition)
    values = line(shape[0])
    expected = np.interp(fine, thick, values[0, 0].numpy())
    np.testing.assert_allclose(interpolate(values, acquisition, "linear")[0, 0], expected, atol=1e-9)
    cubic = np.polynomial.Polynomial([2.0, -0.3, 0.04, 0.005])
    result = interpolate(torch.from_numpy(cubic(thick))[None, None], acquisition, "cubic")[0, 0]
    np.testing.assert_allclose(result, cubic(np.clip(fine, thick[0], thick[-1])), atol=1e-9)


# --- resampling one axis ---

EDGES = [(0.43, 0.7), (4.0, 1.3), (1.0, 1.0)]  # spacing and target, mm


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("spacing", "target"), EDGES)
def test_a_blob_stays_where_it_was(spacing, target, axis):
    """Its centre of mass, in mm from the middle, to 0.02 voxel; and its mass."""
    count = round(90 / spacing)
    place = (np.arange(count) - (count - 1) / 2) * spacing
    blob = np.exp(-0.5 * ((place - 7.3) / 6) ** 2)
    image = torch.from_numpy(np.moveaxis(np.broadcast_to(blob, (2, 3, count)), 2, axis).copy())
    fine = resample(image, axis, spacing, target).movedim(axis, 2)[0, 0].numpy()
    there = (np.arange(len(fine)) - (len(fine) - 1) / 2) * target
    assert (there * fine).sum() / fine.sum() == pytest.approx(7.3, abs=0.02 * target)
    assert fine.sum() * target == pytest.approx(blob.sum() * spacing, rel=2e-3)
    assert abs(len(fine) * target - count * spacing) <= target


@pytest.mark.parametrize(("spacing", "target"), [(0.43, 0.7), (0.5, 1.3), (0.25, 0.7)])
def test_patterns_too_fine_for_the_new_voxels_do_not_alias(spacing, target):
    """Sampled alone, a pattern beyond the new Nyquist frequency would come out as strong, as a coarser one."""
    place = torch.arange(800, dtype=torch.float64)[None, None] * spacing

    def strength(cycles):
        """Amplitude of a sine of so many cycles per new voxel, whatever its phase."""
        waves = [torch.sin(2 * torch.pi * cycles * place / target + phase) for phase in (0, torch.pi / 2)]
        return sum(resample(w, 2, spacing, target)[..., 20:-20].square().mean() for w in waves).sqrt().item()

    assert strength(0.1) > 0.95
    assert strength(0.75) < 0.25
    if target / spacing > 2:
        assert strength(1.0) < 0.02
