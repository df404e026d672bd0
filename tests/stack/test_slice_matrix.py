"""Laws of the acquisition of a stack of thick slices, with plain loops as oracle."""

import numpy as np
import pytest
import torch

from scripts.stack.acquisition import Acquisition
from scripts.stack.profile import acquire, profile_kernel, slice_matrix
from tests.volumes import degrade

# (fine slices, fine spacing, slice thickness, slice spacing), mm: non-integer, gap, overlap, a single slice, thin
STACKS = [(41, 0.7, 5.0, 5.0), (36, 1.0, 3.0, 4.5), (36, 1.0, 6.0, 3.0), (5, 1.0, 6.0, 6.0), (20, 1.0, 1.0, 2.0)]
SHIFTED = [(0.7, 4.2, 4.2), (1.0, 3.0, 5.0), (1.0, 6.0, 3.0)]


def of(stack, axis=2, **others):
    fine_count, edge, thickness, spacing = stack
    return Acquisition.of_truth(axis, fine_count, edge=edge, thickness=thickness, spacing=spacing, **others)


def line(count, seed=0):
    """`(1, 1, count)` of noise."""
    return torch.randn(1, 1, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def acquire_by_loop(volume, axis, fine_spacing, slice_thickness, slice_spacing):
    """Thick slices, line by line: pad symmetrically, convolve, interpolate linearly at the slice centres."""
    kernel = profile_kernel(slice_thickness, fine_spacing)
    reach = len(kernel) // 2
    volume = np.moveaxis(volume, axis, -1)
    fine = volume.shape[-1]
    thick = max(1, int(np.ceil(round(fine * fine_spacing / slice_spacing, 6))))
    centres = [((i - (thick - 1) / 2) * slice_spacing) / fine_spacing + (fine - 1) / 2 for i in range(thick)]
    result = np.zeros((*volume.shape[:-1], thick))
    for place in np.ndindex(volume.shape[:-1]):
        blurred = np.convolve(np.pad(volume[place], reach, mode="symmetric"), kernel, mode="valid")
        result[place] = np.interp(centres, np.arange(fine), blurred)
    return np.moveaxis(result, -1, axis)


@pytest.mark.parametrize("thickness", [0.2, 0.999, 1.0])
def test_a_slice_as_thin_as_the_grid_is_the_identity(thickness):
    thin = of((12, 1.0, thickness, 1.0))
    torch.testing.assert_close(slice_matrix(thin), torch.eye(12), rtol=0, atol=0)
    volume = line(24).reshape(1, 2, 12)
    for function in (acquire, degrade):
        torch.testing.assert_close(function(volume, thin), volume)


@pytest.mark.parametrize(("profile", "shift"), [(4.0, 0.0), ("gaussian", 0.35), ("rectangular", -2.5)])
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("function", [acquire, degrade])
def test_acquisition_keeps_constants(function, stack, profile, shift):
    constant = torch.full((1, 3, stack[0]), 7.0, dtype=torch.float64)
    result = function(constant, of(stack, profile=profile, shift=shift))
    torch.testing.assert_close(result, torch.full_like(result, 7.0), rtol=1e-6, atol=0)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_acquisition_agrees_with_a_plain_loop(stack, axis):
    shape = [2, 3, 4]
    shape[axis] = stack[0]
    volume = line(int(np.prod(shape))).reshape(shape)
    expected = acquire_by_loop(volume.numpy(), axis, *stack[1:])
    np.testing.assert_allclose(acquire(volume, of(stack, axis)).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("fine", "fine_spacing", "slice_thickness", "slice_spacing", "thick_shift"),
    [
        (118, 1.0, 4.0, 4.0, 3),
        (120, 1.0, 3.0, 5.0, 1),
        (120, 1.0, 6.0, 3.0, 2),
        (120, 0.7, 4.2, 4.2, 1),
        (121, 1.0, 2.5, 2.5, 2),  # 121: no fine slice lies on the border of two thick ones, where the middle decides
    ],
)
def test_whole_slice_shift_commutes(fine, fine_spacing, slice_thickness, slice_spacing, thick_shift):
    fine_shift = round(thick_shift * slice_spacing / fine_spacing)
    volume, acquisition = line(fine), of((fine, fine_spacing, slice_thickness, slice_spacing))
    for function, shift in ((acquire, thick_shift), (degrade, fine_shift)):
        border = shift + (5 if function is acquire else 20)
        moved = function(volume.roll(fine_shift, 2), acquisition)[..., border:-border]
        torch.testing.assert_close(moved, function(volume, acquisition).roll(shift, 2)[..., border:-border])


@pytest.mark.parametrize("shift", [-1.3])
@pytest.mark.parametrize("lengths", SHIFTED)
def test_a_shifted_stack_shows_tissue_where_it_is(lengths, shift):
    """Slices of a ramp hold their own place, shift and all; back on the grid they lie within half a slice of it."""
    ramp = torch.arange(120, dtype=torch.float64).reshape(1, 1, 120) * lengths[0]
    acquisition = of((120, *lengths), shift=shift)
    thick = acquire(ramp, acquisition)[0, 0]
    place = (np.arange(len(thick)) - (len(thick) - 1) / 2) * lengths[2] + 119 / 2 * lengths[0] + shift
    np.testing.assert_allclose(thick[8:-8], place[8:-8], atol=1e-4)
    assert (degrade(ramp, acquisition) - ramp).abs()[..., 30:-30].max() <= lengths[2] / 2 + 1e-4


@pytest.mark.parametrize("shift", [0.0, 0.35])
@pytest.mark.parametrize("stack", STACKS)
def test_acquisition_commutes_with_flips(stack, shift):
    """A stack that lies off the centre lies as far off on the other side."""
    volume, acquisition = line(stack[0]), of(stack, shift=shift)
    mirrored = acquisition.moved((0, 1, 2), (2,))
    torch.testing.assert_close(acquire(volume.flip(2), acquisition), acquire(volume, mirrored).flip(2))


def test_degraded_image_has_stair_steps():
    result = degrade(torch.arange(24.0).reshape(1, 1, 24), of((24, 1.0, 4.0, 4.0))).reshape(6, 4)
    assert (result == result[:, :1]).all()
    torch.testing.assert_close(result[1:-1, 0], torch.tensor([5.5, 9.5, 13.5, 17.5]), rtol=0, atol=1e-2)


def test_gradient_flows_through_acquisition():
    volume = line(16).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: degrade(v, of((16, 1.0, 3.0, 4.0))), volume)


@pytest.mark.parametrize("function", [acquire, degrade])
def test_what_cannot_be_acquired_is_refused(function):
    acquisition = of((12, 1.0, 4.0, 4.0))
    with pytest.raises(TypeError, match=r"image is torch.int16: expected floating point.*\.float\(\)"):
        function(torch.full((1, 1, 12), 100, dtype=torch.int16), acquisition)
    with pytest.raises(ValueError, match=r"image is \(1, 1, 11\): expected 12 slices along its axis 2"):
        function(torch.zeros(1, 1, 11), acquisition)
