"""Laws of reconciling as a real scan bears it: noise stays in the measurement, and gains of slices as well."""

import itertools
from dataclasses import replace

import pytest
import torch

from scripts.rebuild.consistency import (
    SMOOTHNESS,
    difference,
    noise_over_error,
    project,
    reconcile,
    relative_rmse,
)
from scripts.stack import tissue
from scripts.stack.acquisition import Acquisition
from scripts.stack.noise import magnitude
from scripts.stack.profile import acquire, slice_matrix
from scripts.stack.slices import Slices
from tests.rebuild.test_consistency import HEAD, SCANS, fine_volume, of, thick_volume
from tests.rebuild.test_projection import projected
from tests.volumes import head

PROFILES = [4.0, "gaussian", "rectangular"]


def noise_of(array, axis=2):
    slices = Slices(array, Acquisition.stack(axis, array.shape[axis], spacing=4.0, thickness=4.0, target=1.0))
    return slices.noise.deviation


def acquired(truth, acquisition=HEAD, noise=0.0, seed=0):
    """Slices of a head along the last axis and Gaussian noise of a standard deviation in its units."""
    y = acquire(truth, acquisition)
    return y + noise * torch.randn(y.shape, generator=torch.Generator().manual_seed(seed))


def smooth(volume):
    """A result that misses detail along the slice axis."""
    return acquire(volume, Acquisition.of_truth(2, volume.shape[2], edge=1.0, thickness=3.0, spacing=1.0))


LAYERED = Acquisition.of_truth(2, 60, edge=1.0, thickness=5.0)


def layers():
    """A head of layers, which are no noise within a slice."""
    tissue = torch.where(head((40, 44, 60)) > 0, 500.0, 0.0)
    return tissue * (1 + 0.2 * torch.sin(0.8 * torch.arange(60.0)))


@pytest.mark.parametrize(("sd", "axis"), [(5.0, 0), (60.0, 1), (5.0, 2)])
def test_the_noise_of_slices_is_found(sd, axis):
    """Of a cylinder of tissue, whose slices lie along any axis."""
    rows, columns = torch.meshgrid(torch.linspace(-1.2, 1.2, 160), torch.linspace(-1.2, 1.2, 180), indexing="ij")
    tissue = torch.where(rows**2 + columns**2 < 1, 500.0, 0.0)[..., None].expand(160, 180, 24)
    slices = acquired(tissue, Acquisition.of_truth(2, 24, edge=1.0, thickness=4.0), sd)
    found = noise_of(slices.movedim(2, axis), axis)
    assert found == pytest.approx(sd, rel=0.1)


def test_noise_is_counted_in_the_head_where_ramps_and_edges_are_none():
    y = acquired(head(), noise=20.0)
    air = torch.where(tissue.head_mask(y.clamp(min=0)), y, 0.0)
    assert noise_of(air) == pytest.approx(noise_of(y), rel=0.1)
    rows, columns = torch.arange(120.0)[:, None, None], torch.arange(100.0)[:, None]
    for still in (200 + 3 * rows + 5 * columns, torch.where((rows > 40) & (rows < 80), 800.0, 200.0)):
        assert noise_of(still.expand(120, 100, 6)) < 0.05


def cosines(count):
    """The cosine transform of `count` numbers as a matrix."""
    k, place = torch.arange(count, dtype=torch.float64)[:, None], torch.arange(count) + 0.5
    matrix = torch.cos(torch.pi * k * place / count) * (2 / count) ** 0.5
    matrix[0] /= 2**0.5
    return matrix


def by_hand(x, y, acquisition):
    """Gains slice by slice in the head, then each in-plane frequency by a system of equations of its own."""
    slices = Slices(y, acquisition)
    again, gap = magnitude(acquire(x, acquisition).double().clamp(min=0), slices.noise.deviation), y.clone().double()
    for k in range(y.shape[2]):
        inside = slices.head[..., k]
        there, measured = again[..., k][inside], y[..., k][inside].double()
        gap[..., k] = 0
        gap[..., k][inside] = there - measured * ((there * measured).sum() / measured.square().sum())
    matrix = slice_matrix(acquisition).double()
    place = torch.arange(matrix.shape[1]) * acquisition.target_spacing / (SMOOTHNESS * acquisition.slice_spacing)
    spread = torch.exp(-((place[:, None] - place).double() ** 2) / 2) @ matrix.T
    spread *= (matrix @ matrix.T).trace() / (matrix @ spread).trace()
    rows, columns = (cosines(count) for count in y.shape[:2])
    frequencies = torch.einsum("kx,xyz,ly->klz", rows, gap, columns)
    ratio = noise_over_error(slices)
    for k, m in itertools.product(*map(range, y.shape[:2])):
        normal = matrix @ spread + ratio[k, m] * torch.eye(len(matrix))
        frequencies[k, m] = torch.linalg.solve(normal, frequencies[k, m])
    return x - torch.einsum("kx,klz,ly->xyz", rows, frequencies, columns).float() @ spread.T.float()


@pytest.mark.parametrize(("noise", "profile"), [(30.0, 4.0), (3.0, "gaussian"), (30.0, "rectangular")])
def test_reconciling_is_the_projection_for_the_noise_that_there_is(profile, noise):
    truth, acquisition = head((24, 20, 40)), replace(HEAD, profile=profile)
    x, y = smooth(truth), acquired(truth, acquisition, noise).clamp(min=0)
    result = reconcile(x, Slices(y, acquisition))
    torch.testing.assert_close(result, by_hand(x, y, acquisition), rtol=1e-5, atol=1e-2)
    others = [replace(HEAD, profile=other) for other in PROFILES if other != profile]
    assert all((result - by_hand(x, y, other)).abs().max() > 0.1 for other in others)


@pytest.mark.parametrize("thickness", [2.5, 4.0, 7.0])
def test_agreement_counts_the_thickness_and_not_the_spacing(thickness):
    """Slices 5 mm apart with a gap, or overlapping: the truth agrees at their own thickness and at no other."""
    truth, acquisition = layers(), replace(LAYERED, slice_thickness=thickness)
    y = acquired(truth, acquisition)
    assert relative_rmse(difference(truth, Slices(y, acquisition)), Slices(y, acquisition)) < 1e-6
    contiguous = replace(acquisition, slice_thickness=acquisition.slice_spacing)
    assert relative_rmse(difference(truth, Slices(y, contiguous)), Slices(y, acquisition)) > 0.01
    error, blind = (reconcile(smooth(truth), Slices(y, a)) - truth for a in (acquisition, contiguous))
    assert error.norm() < 0.99 * blind.norm()


@pytest.mark.parametrize(("slice_spacing", "share"), [(3.0, 0.995), (5.0, 1.0)])
def test_a_noiseless_scan_brings_the_result_nearer_to_the_truth(slice_spacing, share):
    truth, acquisition = layers(), Acquisition.of_truth(2, 60, edge=1.0, thickness=slice_spacing)
    x, y = smooth(truth), acquired(truth, acquisition)
    result = reconcile(x, Slices(y, acquisition))
    assert (result - truth).norm() < share * (x - truth).norm()


@pytest.mark.parametrize(
    ("gains", "floor"), [([0.97, 1.03], 500.0), ([0.9, 1.0], 0.0), ([1.0, 1.05, 1.0, 0.98, 1.0], -300.0)]
)
def test_gains_of_slices_do_not_become_bands(gains, floor):
    """Where the slices differ from the result in gain alone nothing is moved; the projection would move it."""
    truth = head() + floor
    y = floor + acquired(truth - floor) * torch.tensor(gains).repeat(10)[: truth.shape[2] // 4]
    moved, projected_onto = reconcile(truth, Slices(y, HEAD)) - truth, projected(truth, Slices(y, HEAD)) - truth
    assert moved.abs().max() < 0.02 * projected_onto.abs().max()


@pytest.mark.parametrize("target", [0.5, 0.7, 1.3])
def test_lengths_count_by_their_ratios_alone(target):
    truth, gapped = head((40, 44, 60)), Acquisition.of_truth(2, 60, edge=1.0, thickness=4.0, spacing=5.0)
    scaled = Acquisition.of_truth(2, 60, edge=target, thickness=4 * target, spacing=5 * target)
    x, y = smooth(truth), acquired(truth, gapped, noise=20.0).clamp(min=0)
    there = torch.diag(torch.tensor([target, target, 5 * target, 1.0], dtype=torch.float64))
    here = torch.diag(torch.tensor([1.0, 1.0, 5.0, 1.0], dtype=torch.float64))
    one, other = (reconcile(x, Slices(y, a, affine)) for a, affine in ((scaled, there), (gapped, here)))
    torch.testing.assert_close(one, other, atol=0.02, rtol=0)


def test_a_blob_goes_back_and_a_pixels_noise_does_not():
    """A result that lacks a lesion: at 4 % noise it comes back, of the noise less than half does."""
    truth, flat = torch.zeros(64, 64, 60), torch.zeros(64, 64, 60)
    flat[8:56, 8:56] = truth[8:56, 8:56] = 500.0
    truth[26:38, 26:38, 25:35] += 150.0
    clean, y = acquired(truth, LAYERED), acquired(truth, LAYERED, noise=20.0)
    change = reconcile(flat, Slices(y, LAYERED)) - flat
    assert change[28:36, 28:36, 27:33].mean() == pytest.approx(150, rel=0.1)
    noise = reconcile(truth, Slices(y, LAYERED)) - reconcile(truth, Slices(clean, LAYERED))
    assert noise[10:54, 10:54].std() < 0.46 * 20.0


def test_slices_that_are_left_out_move_nothing():
    x, slices = smooth(head()), Slices(acquired(head(), noise=2.0), HEAD)
    whole, without = (reconcile(x, slices, left_out) - x for left_out in ((), (4,)))
    assert torch.equal(reconcile(x, slices, range(slices.shape[2])), x)
    assert without[..., 17:19].norm() < 0.5 * whole[..., 17:19].norm(), "slice 4 spans voxels 16 to 19"
    torch.testing.assert_close(without[..., 32:], whole[..., 32:], rtol=0, atol=0.02 * float(whole.abs().max()))


def test_a_part_of_the_noise_enters_the_result():
    """White noise of 5 % of the head's range: reconciling moves a perfect result by less than two fifths of it."""
    truth = head()
    y = acquired(truth, noise=50.0)
    moved, blind = reconcile(truth, Slices(y, HEAD)) - truth, project(truth, Slices(y, HEAD), 0, 0) - truth
    assert moved.square().mean().sqrt() < 0.4 * 50, "coarse noise is as good as an error of the result"
    assert moved.norm() < 0.4 * blind.norm()


@pytest.mark.parametrize("value", [0.0, 7.0, -3.0])
def test_a_constant_scan_leaves_the_result_as_it_is(value):
    x, y = torch.rand(4, 5, 40), torch.full((4, 5, 10), value)
    assert torch.equal(reconcile(x, Slices(y, HEAD)), x)


def test_slices_without_signal_and_a_lone_bright_voxel_are_welcome():
    y = torch.zeros(32, 32, 10)
    y[16, 16, 3] = 1.0
    assert torch.isfinite(reconcile(torch.rand(32, 32, 40), Slices(y, HEAD))).all()


@pytest.mark.gpu
def test_gpu_agrees():
    scan = SCANS[1]
    x, y = fine_volume(scan), thick_volume(scan)
    for function in (difference, projected):
        result = function(x.cuda(), Slices(y, of(scan)))
        assert result.is_cuda
        torch.testing.assert_close(result.cpu(), function(x, Slices(y, of(scan))))
    slices = Slices(y, of(scan))
    on_gpu = relative_rmse(difference(x.cuda(), slices), slices)
    assert on_gpu == pytest.approx(relative_rmse(difference(x, slices), slices))
