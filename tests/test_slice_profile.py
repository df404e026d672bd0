"""Laws of the slice profile and of thick-slice acquisition, with a Bloch simulation and plain loops as oracles."""

from math import erf

import numpy as np
import pytest
import torch
from sigpy.mri import rf

from scripts import grid, slice_profile

TIME_BANDWIDTHS = [2.0, 3.0, 4.0, 6.0, 10.0]
PROFILES = [*TIME_BANDWIDTHS, "gaussian", "rectangular"]

# (fine slices, fine spacing, slice thickness, slice spacing), mm: plain, non-integer, gap, overlap, a single slice, ...
ACQUISITIONS = [
    (24, 1.0, 4.0, 4.0),
    (41, 0.7, 5.0, 5.0),
    (30, 0.9, 3.3, 3.3),
    (36, 1.0, 3.0, 4.5),
    (36, 1.0, 6.0, 3.0),
    (5, 1.0, 6.0, 6.0),
    (20, 1.0, 1.0, 2.0),
]


def half_width(weights):
    """Full width at half maximum of a piecewise linear curve through the samples, 0 outside; in samples."""
    curve = [0.0, *weights, 0.0]
    half = max(curve) / 2
    rise = next(k for k in range(1, len(curve)) if curve[k - 1] < half <= curve[k])
    fall = next(k for k in range(len(curve) - 1, 0, -1) if curve[k] < half <= curve[k - 1])
    left = rise - 1 + (half - curve[rise - 1]) / (curve[rise] - curve[rise - 1])
    right = fall - (half - curve[fall]) / (curve[fall - 1] - curve[fall])
    return right - left


def bloch(pulse, x):
    """Magnetisation `(len(x), 3)` after the pulse and its rewinder, by rotation matrices, relaxation ignored.

    Each sample is a hard pulse about an axis in the transverse plane, between two halves of its gradient's precession.
    The gradient turns the magnetisation at `x = 1` once during the pulse.
    """

    def precession(angle):
        c, s, zero, one = np.cos(angle), np.sin(angle), np.zeros_like(angle), np.ones_like(angle)
        return np.array([[c, -s, zero], [s, c, zero], [zero, zero, one]]).transpose(2, 0, 1)

    half_step = precession(np.pi * x / len(pulse))
    m = np.tile([0.0, 0.0, 1.0], (len(x), 1))[..., None]
    for sample in pulse:
        flip, phase = np.abs(sample), np.angle(sample)
        nutation = np.array([[1, 0, 0], [0, np.cos(flip), -np.sin(flip)], [0, np.sin(flip), np.cos(flip)]])
        turn = precession(np.array([phase]))[0]
        m = half_step @ ((turn @ nutation @ turn.T) @ (half_step @ m))
    return (precession(-np.pi * x) @ m)[..., 0]


def pulse(time_bandwidth):
    return rf.slr.dzrf(n=256, tb=time_bandwidth, ptype="ex", ftype="ls", d1=0.01, d2=0.01, cancel_alpha_phs=False)


def share(profile, z):
    """Integral up to `z` of a shape that is one wide at half its maximum and one in area."""
    if profile == "rectangular":
        return min(max(z, -0.5), 0.5) + 0.5
    return (1 + erf(2 * np.sqrt(np.log(2)) * z)) / 2


def shape_over_voxels(profile, ratio, reach):
    """The shape's integrals over voxels, stretched until they are `ratio` wide at half their maximum."""

    def weights(width):
        edges = [share(profile, (k - 0.5) / width) for k in range(-reach, reach + 2)]
        return np.diff(edges) / (edges[-1] - edges[0])

    low, high = 0.5, 2 * ratio
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if half_width(weights(middle)) < ratio else (low, middle)
    return weights(low)


def line(count, seed=0):
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def acquire_by_loop(volume, axis, fine_spacing, slice_thickness, slice_spacing):
    """Thick slices, line by line: pad symmetrically, convolve, interpolate linearly at the slice centres."""
    kernel = slice_profile.profile_kernel(slice_thickness, fine_spacing)
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


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("fine_spacing", [0.5, 0.7, 0.9, 1.0, 1.25])
def test_kernel_is_as_wide_as_the_slice_is_thick(fine_spacing, profile):
    for ratio in (1.05, 1.2, 1.43, 1.5, 2.0, 2.5, 3.0, 3.7, 4.2, 5.0, 6.5, 8.0, 20.0):
        kernel = slice_profile.profile_kernel(ratio * fine_spacing, fine_spacing, profile)
        assert half_width(kernel) == pytest.approx(ratio, rel=1e-3)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.01, 1.05, 1.5, 2.0, 3.7, 8.0])
def test_kernel_is_symmetric_with_odd_length_and_sum_one(ratio, profile):
    kernel = slice_profile.profile_kernel(ratio * 0.7, 0.7, profile)
    assert len(kernel) % 2 == 1
    assert kernel.sum() == pytest.approx(1, abs=1e-12)
    assert (kernel >= 0).all()
    np.testing.assert_array_equal(kernel, kernel[::-1])


@pytest.mark.parametrize("profile", PROFILES)
def test_kernel_depends_on_the_ratio_of_lengths_alone(profile):
    kernels = [slice_profile.profile_kernel(*lengths, profile) for lengths in ((4.2, 0.7), (6.0, 1.0))]
    np.testing.assert_allclose(*kernels, atol=1e-4)


@pytest.mark.parametrize("profile", PROFILES)
def test_kernel_spreads_as_slices_thicken(profile):
    spread = []
    for thickness in np.arange(1.0, 8.0, 0.05):
        kernel = slice_profile.profile_kernel(float(thickness), 1.0, profile)
        spread.append(np.sum(kernel * (np.arange(len(kernel)) - len(kernel) // 2) ** 2))
    assert (np.diff(spread) > 0).all()


@pytest.mark.parametrize("thickness", [0.2, 0.999, 1.0])
def test_a_slice_as_thin_as_the_grid_is_the_identity(thickness):
    np.testing.assert_array_equal(slice_profile.profile_kernel(thickness, 1.0), [1.0])
    torch.testing.assert_close(slice_profile.slice_matrix(12, 1.0, thickness, 1.0), torch.eye(12), rtol=0, atol=0)
    volume = line(24).reshape(2, 12)
    torch.testing.assert_close(slice_profile.degrade(volume, 1, 1.0, thickness, 1.0), volume)


def test_thin_limit_is_continuous():
    matrix = slice_profile.slice_matrix(12, 1.0, 1.001, 1.0)
    torch.testing.assert_close(matrix, torch.eye(12), rtol=0, atol=0.01)


@pytest.mark.parametrize("time_bandwidth", TIME_BANDWIDTHS)
def test_profile_agrees_with_a_bloch_simulation(time_bandwidth):
    x = np.linspace(-time_bandwidth, time_bandwidth, 401)
    transverse = np.hypot(*bloch(pulse(time_bandwidth), x)[:, :2].T)
    width = half_width(transverse) * (x[1] - x[0])
    assert width == pytest.approx(time_bandwidth, rel=0.25)  # what the product means, up to the edges' softness
    z, profile = slice_profile.slr_profile(time_bandwidth)
    np.testing.assert_allclose(np.interp(x / width, z, profile), transverse, atol=0.01)


@pytest.mark.parametrize("time_bandwidth", TIME_BANDWIDTHS)
def test_pulse_tips_the_centre_by_ninety_degrees_in_phase(time_bandwidth):
    x = np.linspace(-time_bandwidth, time_bandwidth, 401)
    m = bloch(pulse(time_bandwidth), x)
    assert abs(m[200, 2]) < 0.2  # little is left along the field: the pass band's ripple
    signal = (m[:, 0] + 1j * m[:, 1])[np.abs(x) < 0.6 * time_bandwidth]
    assert abs(signal.sum()) > 0.97 * np.abs(signal).sum()  # so the magnitude is what the slice integrates


@pytest.mark.parametrize("time_bandwidth", TIME_BANDWIDTHS)
def test_kernel_agrees_with_a_bloch_simulation(time_bandwidth):
    ratio = 12.0
    kernel = slice_profile.profile_kernel(ratio, 1.0, time_bandwidth)
    x = np.linspace(-1.5 * time_bandwidth, 1.5 * time_bandwidth, 1201)
    transverse = np.hypot(*bloch(pulse(time_bandwidth), x)[:, :2].T)
    z = x * ratio / (half_width(transverse) * (x[1] - x[0]))  # in fine voxels
    voxel = np.round(z).astype(int) + len(kernel) // 2
    inside = (voxel >= 0) & (voxel < len(kernel))
    expected = np.bincount(voxel[inside], transverse[inside], len(kernel))
    np.testing.assert_allclose(kernel, expected / expected.sum(), atol=0.06 * kernel.max())
    assert np.abs(kernel - expected / expected.sum()).sum() < 0.04


@pytest.mark.parametrize("time_bandwidth", TIME_BANDWIDTHS)
def test_profile_is_one_slice_wide(time_bandwidth):
    z, profile = slice_profile.slr_profile(time_bandwidth)
    assert half_width(profile) * (z[1] - z[0]) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(profile, profile[::-1], atol=1e-6)


@pytest.mark.parametrize("profile", ["gaussian", "rectangular"])
@pytest.mark.parametrize("ratio", [1.05, 1.5, 2.0, 3.3, 5.0, 8.0])
def test_shapes_are_integrated_over_voxels_in_closed_form(ratio, profile):
    kernel = slice_profile.profile_kernel(ratio, 1.0, profile)
    np.testing.assert_allclose(kernel, shape_over_voxels(profile, ratio, len(kernel) // 2), atol=1e-3)


def test_a_whole_number_of_voxels_is_averaged_by_the_ideal_profile():
    kernel = slice_profile.profile_kernel(5.0, 1.0, "rectangular")
    np.testing.assert_allclose(kernel[kernel > 1e-3], np.full(5, 0.2), atol=1e-3)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_one_slice_wide_wherever_it_comes_from(profile):
    z, magnitude = slice_profile.slice_profile(profile)
    assert half_width(magnitude) * (z[1] - z[0]) == pytest.approx(1, abs=2e-3)
    np.testing.assert_allclose(z, -z[::-1], atol=1e-9)


@pytest.mark.parametrize("time_bandwidth", TIME_BANDWIDTHS)
def test_a_number_is_the_pulses_time_bandwidth_product(time_bandwidth):
    for array, expected in zip(slice_profile.slice_profile(time_bandwidth), slice_profile.slr_profile(time_bandwidth)):
        np.testing.assert_array_equal(array, expected)


def test_larger_time_bandwidth_sharpens_the_edges():
    def edge(time_bandwidth):
        z, profile = slice_profile.slr_profile(time_bandwidth)
        return np.mean((profile > 0.1) & (profile < 0.9)) * (z[-1] - z[0])

    edges = [edge(time_bandwidth) for time_bandwidth in TIME_BANDWIDTHS]
    assert edges == sorted(edges, reverse=True)


def test_width_of_a_triangle():
    z = np.array([0.0, 2.0, 4.0, 6.0, 8.0])
    assert slice_profile.full_width_half_maximum(z, np.array([0.0, 1.0, 2.0, 1.0, 0.0])) == pytest.approx(4)
    assert slice_profile.full_width_half_maximum(z, np.array([0.0, 0.0, 3.0, 0.0, 0.0])) == pytest.approx(2)


@pytest.mark.parametrize("profile", ["gaussian", "rectangular"])
@pytest.mark.parametrize("shift", [0.0, 0.35, -0.8])
@pytest.mark.parametrize("acquisition", ACQUISITIONS)
def test_matrix_rows_sum_to_one(acquisition, shift, profile):
    matrix = slice_profile.slice_matrix(*acquisition, profile, shift)
    fine, fine_spacing, _, slice_spacing = acquisition
    assert matrix.shape == (slice_profile.thick_count(fine, fine_spacing, slice_spacing), fine)
    torch.testing.assert_close(matrix.sum(1), torch.ones(len(matrix)))


@pytest.mark.parametrize("acquisition", ACQUISITIONS)
@pytest.mark.parametrize("function", [slice_profile.acquire, slice_profile.degrade])
def test_acquisition_is_linear(function, acquisition):
    fine, *lengths = acquisition
    a, b = line(fine, 1), line(fine, 2)
    combined = function(2 * a - 3 * b, 0, *lengths)
    torch.testing.assert_close(combined, 2 * function(a, 0, *lengths) - 3 * function(b, 0, *lengths))


@pytest.mark.parametrize(("profile", "shift"), [(4.0, 0.0), ("gaussian", 0.35), ("rectangular", -2.5)])
@pytest.mark.parametrize("acquisition", ACQUISITIONS)
@pytest.mark.parametrize("function", [slice_profile.acquire, slice_profile.degrade])
def test_acquisition_keeps_constants(function, acquisition, profile, shift):
    fine, *lengths = acquisition
    result = function(torch.full((fine, 3), 7.0, dtype=torch.float64), 0, *lengths, profile, shift)
    torch.testing.assert_close(result, torch.full_like(result, 7.0), rtol=1e-6, atol=0)


@pytest.mark.parametrize("acquisition", ACQUISITIONS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_acquisition_agrees_with_a_plain_loop(acquisition, axis):
    fine, *lengths = acquisition
    shape = [2, 3, 4]
    shape[axis] = fine
    volume = line(int(np.prod(shape))).reshape(shape)
    expected = acquire_by_loop(volume.numpy(), axis, *lengths)
    np.testing.assert_allclose(slice_profile.acquire(volume, axis, *lengths).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("fine", "fine_spacing", "slice_thickness", "slice_spacing", "thick_shift"),
    [
        (120, 1.0, 4.0, 4.0, 1),
        (120, 1.0, 4.0, 4.0, 3),
        (118, 1.0, 4.0, 4.0, 1),
        (120, 1.0, 3.0, 5.0, 1),
        (120, 1.0, 6.0, 3.0, 2),
        (120, 0.7, 4.2, 4.2, 1),
        (121, 1.0, 2.5, 2.5, 2),  # 121: no fine slice lies on the border of two thick ones, where the middle decides
    ],
)
def test_whole_slice_shift_commutes(fine, fine_spacing, slice_thickness, slice_spacing, thick_shift):
    fine_shift = round(thick_shift * slice_spacing / fine_spacing)
    volume = line(fine)
    lengths = (fine_spacing, slice_thickness, slice_spacing)
    for function, shift in ((slice_profile.acquire, thick_shift), (slice_profile.degrade, fine_shift)):
        border = shift + (5 if function is slice_profile.acquire else 20)
        moved = function(volume.roll(fine_shift), 0, *lengths)[border:-border]
        torch.testing.assert_close(moved, function(volume, 0, *lengths).roll(shift)[border:-border])


SHIFTED = [(1.0, 4.0, 4.0), (0.7, 4.2, 4.2), (1.0, 3.0, 5.0), (1.0, 6.0, 3.0), (0.9, 3.3, 3.3)]


@pytest.mark.parametrize("profile", [4.0, "gaussian", "rectangular"])
@pytest.mark.parametrize("voxels", [-7, -1, 1, 3])
@pytest.mark.parametrize("lengths", SHIFTED)
def test_shifting_the_stack_by_whole_voxels_is_translating_the_anatomy_back(lengths, voxels, profile):
    volume, shift = line(120), voxels * lengths[0]
    back = volume.roll(-voxels)
    thick = slice_profile.acquire(volume, 0, *lengths, profile, shift)
    torch.testing.assert_close(thick[8:-8], slice_profile.acquire(back, 0, *lengths, profile)[8:-8])
    fine = slice_profile.degrade(volume, 0, *lengths, profile, shift)
    torch.testing.assert_close(fine[30:-30], slice_profile.degrade(back, 0, *lengths, profile).roll(voxels)[30:-30])


@pytest.mark.parametrize("shift", [-1.3, 0.25, 0.5])
@pytest.mark.parametrize("lengths", SHIFTED)
def test_a_shifted_stack_shows_tissue_where_it_is(lengths, shift):
    """Slices of a ramp hold their own place, shift and all; back on the grid they lie within half a slice of it."""
    ramp = torch.arange(120, dtype=torch.float64) * lengths[0]
    _, _, slice_spacing = lengths
    thick = slice_profile.acquire(ramp, 0, *lengths, shift=shift)
    place = (np.arange(len(thick)) - (len(thick) - 1) / 2) * slice_spacing + 119 / 2 * lengths[0] + shift
    np.testing.assert_allclose(thick[8:-8], place[8:-8], atol=1e-4)
    fine = slice_profile.degrade(ramp, 0, *lengths, shift=shift)
    assert (fine - ramp).abs()[30:-30].max() <= slice_spacing / 2 + 1e-4


@pytest.mark.parametrize("acquisition", ACQUISITIONS)
def test_no_shift_is_the_centred_stack(acquisition):
    fine, *lengths = acquisition
    volume = line(fine)
    for function in (slice_profile.acquire, slice_profile.degrade):
        assert torch.equal(function(volume, 0, *lengths, shift=0.0), function(volume, 0, *lengths))


@pytest.mark.parametrize("shift", [0.0, 0.35])
@pytest.mark.parametrize("acquisition", ACQUISITIONS)
def test_acquisition_commutes_with_flips(acquisition, shift):
    """A stack that lies off the centre lies as far off on the other side."""
    fine, *lengths = acquisition
    volume = line(fine)
    torch.testing.assert_close(
        slice_profile.acquire(volume.flip(0), 0, *lengths, shift=shift),
        slice_profile.acquire(volume, 0, *lengths, shift=-shift).flip(0),
    )


@pytest.mark.parametrize("function", [slice_profile.acquire, slice_profile.degrade])
@pytest.mark.parametrize("order", [(0, 2, 1), (1, 2, 0), (2, 1, 0)])
def test_acquisition_commutes_with_axis_permutation(function, order):
    volume = line(3 * 4 * 30).reshape(3, 4, 30)
    expected = function(volume, 2, 0.9, 3.3, 4.0).permute(order)
    torch.testing.assert_close(function(volume.permute(order), order.index(2), 0.9, 3.3, 4.0), expected)
    torch.testing.assert_close(function(volume.permute(order), order.index(2) - 3, 0.9, 3.3, 4.0), expected)


def test_acquisition_commutes_with_adding_dimensions():
    volume = line(30)
    single = slice_profile.acquire(volume, 0, 1.0, 4.0, 4.0)
    batch = slice_profile.acquire(volume.expand(2, 1, 5, 30), 3, 1.0, 4.0, 4.0)
    torch.testing.assert_close(batch, single.expand(2, 1, 5, -1))


def test_gap_tissue_is_not_measured():
    matrix = slice_profile.slice_matrix(36, 1.0, 3.0, 12.0)  # centres at 5.5, 17.5, 29.5
    torch.testing.assert_close(matrix[:, [11, 12, 23, 24]], torch.zeros(3, 4), rtol=0, atol=1e-3)
    assert (matrix[:, [5, 6]].sum(0) > 0.2).all()


def test_overlapping_slices_share_tissue():
    shared = slice_profile.slice_matrix(36, 1.0, 6.0, 3.0)[:, 12:24]
    apart = slice_profile.slice_matrix(36, 1.0, 3.0, 3.0)[:, 12:24]
    assert ((shared > 0.05).sum(0) >= 2).all()
    assert ((apart > 0.05).sum(0) < 3).all()
    torch.testing.assert_close(shared.sum(0), torch.full((12,), 1 / 3), rtol=0.1, atol=0)  # each is seen as much


def test_profile_follows_thickness_and_grid_follows_spacing():
    thin, thick = (slice_profile.slice_matrix(60, 1.0, thickness, 5.0)[6].double() for thickness in (2.0, 5.0))
    assert thin.shape == thick.shape
    centre = (torch.arange(60) * thin).sum().item()
    assert centre == pytest.approx((torch.arange(60) * thick).sum().item(), abs=1e-4)
    assert (thin > 0.01).sum() < (thick > 0.01).sum()


@pytest.mark.parametrize(
    ("fine", "fine_spacing", "slice_spacing", "thick"),
    [(24, 1.0, 4.0, 6), (25, 1.0, 4.0, 7), (320, 0.7, 5.6, 40), (30, 0.7, 2.1, 10), (3, 1.0, 6.0, 1)],
)
def test_thick_slices_cover_the_fine_grid(fine, fine_spacing, slice_spacing, thick):
    assert slice_profile.thick_count(fine, fine_spacing, slice_spacing) == thick


@pytest.mark.parametrize("acquisition", ACQUISITIONS)
def test_degrade_is_acquisition_then_stair_steps(acquisition):
    fine, fine_spacing, thickness, slice_spacing = acquisition
    volume = line(fine * 2).reshape(fine, 2)
    thick = slice_profile.acquire(volume, 0, fine_spacing, thickness, slice_spacing)
    result = slice_profile.degrade(volume, 0, fine_spacing, thickness, slice_spacing)
    assert result.shape == volume.shape
    for j, i in enumerate(grid.nearest_index(fine, fine_spacing, len(thick), slice_spacing)):
        assert torch.equal(result[j], thick[i])


def test_degraded_image_has_stair_steps():
    result = slice_profile.degrade(torch.arange(24.0), 0, 1.0, 4.0, 4.0).reshape(6, 4)
    assert (result == result[:, :1]).all()
    torch.testing.assert_close(result[1:-1, 0], torch.tensor([5.5, 9.5, 13.5, 17.5]), rtol=0, atol=1e-2)


def test_regrid_keeps_every_thick_slice():
    thick = line(7 * 3).reshape(7, 3)
    fine = slice_profile.regrid_nearest(thick, 0, 5.0, 50, 0.7)
    assert fine.shape == (50, 3)
    assert torch.equal(torch.unique_consecutive(fine, dim=0), thick)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_acquisition_keeps_the_dtype(dtype):
    assert slice_profile.degrade(torch.zeros(12, dtype=dtype), 0, 1.0, 4.0, 4.0).dtype == dtype


def test_gradient_flows_through_acquisition():
    volume = line(16).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: slice_profile.degrade(v, 0, 1.0, 3.0, 4.0), volume)


def test_an_integer_image_is_refused_or_measured_never_zeroed():
    volume = torch.full((12,), 100, dtype=torch.int16)
    try:
        result = slice_profile.acquire(volume, 0, 1.0, 4.0, 4.0)
    except (TypeError, ValueError):
        return
    torch.testing.assert_close(result.double(), torch.full((3,), 100.0, dtype=torch.float64), rtol=0.01, atol=0)


def test_kernel_and_matrix_are_computed_once():
    for function, arguments in (
        (slice_profile.profile_kernel, (3.21, 0.77)),
        (slice_profile.slice_matrix, (9, 1, 2, 2)),
    ):
        first = function(*arguments)
        hits = function.cache_info().hits
        assert function(*arguments) is first
        assert function.cache_info().hits == hits + 1


@pytest.mark.parametrize(("thickness", "fine_spacing"), [(0.0, 1.0), (-2.5, 1.0), (3.0, 0.0), (3.0, -0.7)])
def test_impossible_length_is_named(thickness, fine_spacing):
    with pytest.raises(ValueError, match=f"{thickness} mm.*{fine_spacing} mm"):
        slice_profile.profile_kernel(thickness, fine_spacing)


@pytest.mark.parametrize("slice_spacing", [0.0, -4.5])
def test_impossible_slice_spacing_is_named(slice_spacing):
    with pytest.raises(ValueError, match=f"slice spacing is {slice_spacing} mm"):
        slice_profile.acquire(torch.zeros(12), 0, 1.0, 4.0, slice_spacing)


@pytest.mark.parametrize("length", [float("nan")])
def test_nan_is_refused(length):
    with pytest.raises(ValueError, match="nan"):
        slice_profile.profile_kernel(length, 1.0)
    with pytest.raises(ValueError, match="nan"):
        slice_profile.slice_matrix(12, 1.0, 4.0, length)


@pytest.mark.parametrize("time_bandwidth", [1.9, 0.0, -4.0])
def test_impossible_time_bandwidth_is_named(time_bandwidth):
    with pytest.raises(ValueError, match=f"time-bandwidth product is {time_bandwidth}"):
        slice_profile.slr_profile(time_bandwidth)


@pytest.mark.parametrize("name", ["hamming", "Gaussian", ""])
def test_an_unknown_profile_is_refused_with_what_is_allowed(name):
    with pytest.raises(ValueError, match=f"slice profile is '{name}'.*'gaussian' or 'rectangular'.*SLR"):
        slice_profile.profile_kernel(4.0, 1.0, name)
