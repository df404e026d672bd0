"""Laws of the windowed reconstruction, a plain-loop oracle, and scans from file to file."""

from itertools import permutations
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from monai.data.utils import compute_importance_map
from scipy.spatial.transform import Rotation
from torch import nn

from scripts import networks
from scripts.errors import InputError
from scripts.evaluation import load_volume
from scripts.inference import DriftInferer, acquisition, in_parts, signal_box, window_size
from scripts.metrics import psnr
from scripts.slice_profile import acquire, regrid_nearest
from tests.bench_common import shipped_network

HELD_OUT = Path(__file__).parents[2] / "shared" / "data" / "isotropic" / "uih-a_T1w.nii.gz"
FACTS = {"slice_axis": 2, "slice_spacing": 5.0, "slice_thickness": 4.0, "target_thickness": 1.0}


class Pointwise(nn.Module):
    """`2 x + 1`, whatever the thickness; remembers what it was called with."""

    def __init__(self):
        super().__init__()
        self.conditions, self.calls = [], []

    def modulations(self, thickness, times):
        self.conditions.append((thickness, times))
        return thickness, times

    def integrate(self, image, apn_modulation, velocity_modulations, times):
        self.calls.append((image, apn_modulation, times))
        return 2 * image + 1


class StageOne(networks.Drift):
    """The APN of a `Drift` alone."""

    def integrate(self, image, apn_modulation, velocity_modulations, times):
        return self.apn.project(image, apn_modulation)


def volume(shape, seed=0, **facts) -> MetaTensor:
    """`(1, 1, X, Y, Z)` of noise in [-1, 1] with the facts of an acquisition and an oblique affine."""
    values = 2 * torch.rand((1, 1, *shape), generator=torch.Generator().manual_seed(seed)) - 1
    affine = torch.eye(4, dtype=torch.float64)
    affine[:3, :3] = torch.from_numpy(Rotation.from_euler("xyz", [10, 20, -30], degrees=True).as_matrix())
    affine[:3, 3] = torch.tensor([-90.0, 12.0, 33.0])
    return MetaTensor(values, affine=affine, meta={**FACTS, **facts})


def close(result, expected, tolerance=1e-5):
    torch.testing.assert_close(torch.as_tensor(result), torch.as_tensor(expected), atol=tolerance, rtol=0)


def window_starts(size, roi, overlap):
    """First pixels of windows at a fixed distance, the last one moved back to end with the image."""
    if size == roi:
        return [0]
    step, starts = int(roi * (1 - overlap)), [0]
    while starts[-1] + roi < size:
        starts.append(min(starts[-1] + step, size - roi))
    return starts


@torch.no_grad()
def rebuild_by_loop(image, drift, other, roi, overlap, steps):
    """Plane by plane, window by window, step by step; `(X, Y, Z)` in and out."""
    axis, thickness = FACTS["slice_axis"], torch.tensor([[FACTS["slice_thickness"], FACTS["target_thickness"]]])
    normal = 3 - axis - other
    result = torch.zeros_like(image)
    for k in range(image.shape[normal]):
        plane = image.select(normal, k)
        if axis > other:
            plane = plane.T  # the slice axis first
        height, width = plane.shape
        tall, wide = (min(roi, -(-n // 8) * 8) for n in (height, width))  # shorter sides: the next multiple of 8
        top, left = max(tall - height, 0) // 2, max(wide - width, 0) // 2
        rows = (torch.arange(max(height, tall)) - top).clamp(0, height - 1)
        columns = (torch.arange(max(width, wide)) - left).clamp(0, width - 1)
        padded = plane[rows][:, columns]
        total, weight = torch.zeros_like(padded), torch.zeros_like(padded)
        weights = compute_importance_map((tall, wide), mode="gaussian", sigma_scale=0.125)
        for i in window_starts(padded.shape[0], tall, overlap):
            for j in window_starts(padded.shape[1], wide, overlap):
                x = drift.apn(padded[i : i + tall, j : j + wide][None, None], thickness)
                for n in range(steps):
                    x = x + drift.velocity(x, thickness, torch.tensor([n / steps])) / steps
                total[i : i + tall, j : j + wide] += weights * x[0, 0]
                weight[i : i + tall, j : j + wide] += weights
        plane = (total / weight)[top : top + height, left : left + width]
        result.select(normal, k).copy_(plane.T if axis > other else plane)
    return result


# --- laws ---


@pytest.mark.parametrize("both_planes", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    ("roi", "overlap", "batch"), [(8, 0.0, 1), (8, 0.25, 4), (8, 0.5, 3), (10, 0.8, 64), (13, 0.3, 5), (32, 0.25, 16)]
)
def test_a_pointwise_network_gives_the_direct_result(roi, overlap, batch, axis, both_planes):
    image = volume((19, 13, 22), slice_axis=axis)
    inferer = DriftInferer(roi, overlap, batch, both_planes)
    close(inferer(image, Pointwise()), 2 * image.as_tensor() + 1)


@pytest.mark.parametrize("both_planes", [False, True])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_permuting_the_axes_commutes(order, both_planes, drift):
    image = volume((4, 18, 5))
    inferer = DriftInferer(16, 0.25, 8, both_planes, steps=1)
    permuted = MetaTensor(
        image.as_tensor().permute(0, 1, *(2 + k for k in order)), meta={**FACTS, "slice_axis": order.index(2)}
    )
    expected = inferer(image, drift).as_tensor().permute(0, 1, *(2 + k for k in order))
    close(inferer(permuted, drift), expected)


def test_the_planes_share_no_information(drift):
    """What changes in one plane stays in it: a volume is rebuilt plane by plane."""
    image, changed = volume((5, 18, 14)), volume((5, 18, 14))
    changed[0, 0, 2] = 0.3 * changed[0, 0, 2]
    inferer = DriftInferer(16, steps=1)
    before, after = inferer(image, drift).as_tensor()[0, 0], inferer(changed, drift).as_tensor()[0, 0]
    others = [0, 1, 3, 4]
    close(after[others], before[others])
    assert (after[2] - before[2]).abs().max() > 1e-3


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_windows_per_call_change_nothing(batch, drift):
    image = volume((3, 22, 20))
    close(DriftInferer(16, 0.25, batch, steps=1)(image, drift), DriftInferer(16, 0.25, 5, steps=1)(image, drift))


@pytest.mark.parametrize("shape", [(3, 21, 26), (3, 16, 16), (3, 11, 9), (9, 3, 24)])
@pytest.mark.parametrize(("overlap", "steps"), [(0.25, 3), (0.5, 1), (0.25, 0)])
def test_agreement_with_a_plain_loop(shape, overlap, steps, drift):
    """Larger than a window, one window, smaller than a window, and both at once."""
    image = volume(shape)
    other = max((0, 1), key=lambda a: shape[a])
    expected = rebuild_by_loop(image.as_tensor()[0, 0], drift, other, 16, overlap, steps)
    result = DriftInferer(16, overlap, 4, steps=steps)(image, drift)
    assert result.shape == image.shape
    close(result.as_tensor()[0, 0], expected)
    assert (result - image).abs().max() > 1e-3  # the network did something


def test_both_planes_are_the_mean_of_either(drift):
    image = volume((5, 7, 21))
    values = image.as_tensor()[0, 0]
    single = [rebuild_by_loop(values, drift, other, 16, 0.25, 2) for other in (0, 1)]
    assert (single[0] - single[1]).abs().max() > 1e-3
    close(DriftInferer(16, both_planes=True, steps=2)(image, drift).as_tensor()[0, 0], (single[0] + single[1]) / 2)


@pytest.mark.parametrize(("shape", "other"), [((5, 7, 21), 1), ((7, 5, 21), 0)])
def test_one_plane_runs_along_the_longer_in_plane_axis(shape, other, drift):
    image = volume(shape)
    expected = rebuild_by_loop(image.as_tensor()[0, 0], drift, other, 16, 0.25, 2)
    close(DriftInferer(16, steps=2)(image, drift).as_tensor()[0, 0], expected)


def head_in_air(shape, box, noise=0.0):
    """Texture in a box, with air around it."""
    image = volume(shape)
    head = image.as_tensor()[0, 0][box].clone() * 0.2 + 0.3
    generator = torch.Generator().manual_seed(3)
    image.as_tensor()[:] = -1 + noise * torch.rand(image.shape, generator=generator)
    image.as_tensor()[0, 0][box] = head
    return image


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_box_holds_the_head_with_air_around_it_and_no_more(noise):
    head = (slice(40, 61), slice(3, 30), slice(20, 44))
    box = signal_box(head_in_air((90, 64, 70), head, noise).as_tensor()[0, 0])
    for found, true, size in zip(box, head, (90, 64, 70)):
        assert found.start <= max(true.start - 8, 0) and found.start >= max(true.start - 16, 0)
        assert found.stop >= min(true.stop + 8, size) and found.stop <= min(true.stop + 16, size)


def test_air_keeps_its_input_and_costs_nothing():
    head = (slice(40, 61), slice(3, 30), slice(20, 44))
    image, network = head_in_air((90, 64, 70), head, 0.1), Pointwise()
    values, box = image.as_tensor()[0, 0], signal_box(image.as_tensor()[0, 0])
    expected = values.clone()
    expected[box] = 2 * values[box] + 1
    close(DriftInferer(16)(image, network).as_tensor()[0, 0], expected)
    assert sum(call[0].numel() for call in network.calls) < values.numel()


def test_inside_the_box_nothing_depends_on_the_air_outside(drift):
    """The head alone, cut out by hand, gives the same."""
    image = head_in_air((30, 64, 50), (slice(9, 20), slice(20, 40), slice(17, 33)))
    values = image.as_tensor()[0, 0]
    box = signal_box(values)
    result = DriftInferer(16, steps=2)(image, drift).as_tensor()[0, 0]
    close(result[box], rebuild_by_loop(values[box], drift, 1, 16, 0.25, 2))
    assert (result[box] - values[box]).abs().max() > 1e-3


def test_air_alone_is_untouched_and_costs_no_call():
    image, network = volume((9, 18, 14)), Pointwise()
    image.as_tensor()[:] = -1
    result = DriftInferer(8)(image, network)
    assert torch.equal(result.as_tensor(), image.as_tensor())
    assert not network.calls and result.meta["steps"] == 11


def test_a_volume_without_air_is_its_own_box():
    assert signal_box(volume((19, 33, 70)).as_tensor()[0, 0]) == (slice(0, 19), slice(0, 33), slice(0, 70))


# --- batches, windows and precision ---


def test_conditioning_is_computed_once_for_a_volume():
    network = Pointwise()
    DriftInferer(8, sw_batch_size=2, both_planes=True)(volume((19, 33, 40)), network)
    assert len(network.conditions) == 1 and len(network.calls) > 50


def test_windows_larger_than_the_planes_are_the_planes(drift):
    """One call on all planes at once, their sides padded to multiples of 8 with copies of their edge."""
    image = volume((5, 13, 21))
    planes = nn.functional.pad(image.as_tensor()[0, 0].movedim(2, 1)[:, None], (1, 2, 1, 2), mode="replicate")
    with torch.no_grad():
        sharp = drift(planes, torch.tensor([[4.0, 1.0]]), torch.tensor([0.0, 0.5, 1.0]))[:, 0]
    expected = sharp[:, 1:22, 1:14].movedim(1, 2)
    close(DriftInferer(512, steps=2)(image, drift).as_tensor()[0, 0], expected)


def test_speeds_are_windows_and_others_are_refused_by_name():
    assert window_size("paper") == 128 and window_size("fast") == 512
    with pytest.raises(InputError, match=r"speed is 'quick': expected paper or fast.*--speed"):
        window_size("quick")


def test_calls_that_exceed_a_gpus_memory_are_repeated_in_halves(caplog):
    sizes = []

    def small_gpu(windows):
        sizes.append(len(windows))
        if len(windows) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 2 * windows

    windows = torch.randn(11, 1, 4, 4)
    assert torch.equal(in_parts(small_gpu, windows), 2 * windows)
    assert sizes == [11, 6, 3, 3, 5, 3, 2]
    assert "does not hold 11 windows" in caplog.text


def test_a_window_that_exceeds_a_gpus_memory_is_an_error_that_says_what_to_do():
    def full_gpu(windows):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(InputError, match=r"does not hold one window.*roi_size.*CUDA_VISIBLE_DEVICES"):
        in_parts(full_gpu, torch.zeros(4, 1, 4, 4))


def test_bfloat16_is_close_to_float32_and_returns_float32(drift):
    image = volume((5, 18, 21))
    exact = DriftInferer(16, steps=2)(image, drift)
    coarse = DriftInferer(16, steps=2, bfloat16=True)(image, drift)
    assert coarse.dtype == torch.float32
    assert 0 < (coarse - exact).abs().max() < 0.1


@pytest.mark.skipif(not HELD_OUT.exists(), reason="the shared data are not here")
def test_the_shipped_network_on_a_real_scan_agrees_with_the_plain_loop():
    """In float32 to 1e-5; bfloat16 moves the PSNR by less than 0.02 dB."""
    truth, _ = load_volume(str(HELD_OUT))  # 1 mm, sharp along all axes
    truth = truth.narrow(0, truth.shape[0] // 2, 4)
    thick = acquire(truth, FACTS["slice_axis"], 1.0, FACTS["slice_thickness"], FACTS["slice_spacing"])
    fine = regrid_nearest(thick, FACTS["slice_axis"], FACTS["slice_spacing"], truth.shape[2], 1.0)
    low, span = fine.min(), fine.max() - fine.min()
    image = MetaTensor((2 * (fine - low) / span - 1)[None, None], meta={**FACTS})
    drift = shipped_network()
    exact = DriftInferer(steps=2)(image, drift)[0, 0]
    expected = image.as_tensor()[0, 0].clone()
    box = signal_box(expected)
    expected[box] = rebuild_by_loop(expected[box], drift, 1, 128, 0.25, 2)
    close(exact, expected)
    coarse = DriftInferer(steps=2, bfloat16=True)(image, drift)[0, 0]
    quality = [psnr((result.as_tensor() + 1) / 2 * span + low, truth) for result in (exact, coarse)]
    assert 0 < abs(quality[0] - quality[1]) < 0.02


# --- schedule and conditioning ---


@pytest.mark.parametrize(
    ("thickness", "target", "n_max", "count"),
    [
        (5.0, 1.0, 15, 12),
        (4.0, 1.0, 15, 11),
        (2.0, 1.0, 15, 8),
        (5.0, 0.7, 15, 13),
        (5.0, 1.0, 4, 3),
        (1.02, 1.0, 15, 0),
    ],
)
def test_steps_are_those_of_ais_by_default(thickness, target, n_max, count):
    inferer, network = DriftInferer(16, n_max=n_max), Pointwise()
    assert inferer.step_count(thickness, target) == count
    result = inferer(volume((4, 18, 14), slice_thickness=thickness, target_thickness=target), network)
    assert result.meta["steps"] == count
    assert len(network.calls) > 0
    for _, conditioning, times in network.calls:
        close(conditioning, torch.tensor([[thickness, target]]), 1e-6)
        close(times, torch.linspace(0, 1, count + 1) if count else torch.zeros(1), 1e-6)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_given_steps_win_over_ais(steps):
    network = Pointwise()
    DriftInferer(16, steps=steps)(volume((4, 18, 14)), network)
    close(network.calls[0][2], torch.linspace(0, 1, steps + 1), 1e-6)


def test_no_steps_are_stage_one_alone(drift):
    image = volume((6, 20, 18))
    stage_one = DriftInferer(16, steps=0)(image, drift)
    close(stage_one, DriftInferer(16, steps=5)(image, StageOne(drift.apn, drift.velocity)))
    assert (stage_one - DriftInferer(16, steps=5)(image, drift)).abs().max() > 1e-3


def test_thickness_not_spacing_conditions_the_network(drift):
    image = volume((4, 18, 14))
    result = DriftInferer(16, steps=2)(image, drift)
    close(DriftInferer(16, steps=2)(volume((4, 18, 14), slice_spacing=7.0), drift), result)
    assert (DriftInferer(16, steps=2)(volume((4, 18, 14), slice_thickness=2.0), drift) - result).abs().max() > 1e-5


# --- meta data ---


@pytest.mark.parametrize("both_planes", [False, True])
def test_affine_and_meta_survive(both_planes):
    image = volume((9, 18, 14), filename_or_obj="scan.nii.gz", intensity_range=(3.0, 900.0))
    before = {key: value.clone() if hasattr(value, "clone") else value for key, value in image.meta.items()}
    result = DriftInferer(8, both_planes=both_planes, steps=3)(image, Pointwise())
    assert isinstance(result, MetaTensor)
    np.testing.assert_array_equal(result.affine, image.affine)
    assert result.meta.keys() == {*before, "steps"} and result.meta["steps"] == 3
    for key, value in before.items():
        np.testing.assert_array_equal(np.asarray(result.meta[key]), np.asarray(value))


def test_the_input_is_left_alone(drift):
    image = volume((3, 18, 14))
    DriftInferer(16, steps=1)(image, drift)
    np.testing.assert_array_equal(image, volume((3, 18, 14)))


def test_no_gradient_is_kept(drift):
    assert not DriftInferer(16, n_max=2)(volume((4, 18, 14)), drift).requires_grad


@pytest.mark.parametrize(("spacing", "thickness", "target"), [(1.0, 1.0, 1.0), (0.5, 0.5, 0.7), (0.8, 1.0, 1.0)])
def test_a_scan_at_its_target_comes_back_as_it_is(spacing, thickness, target):
    network = Pointwise()
    facts = {"slice_spacing": spacing, "slice_thickness": thickness, "target_thickness": target}
    image = volume((9, 18, 14), **facts)
    result = DriftInferer(8)(image, network)
    np.testing.assert_array_equal(result, volume((9, 18, 14)))
    np.testing.assert_array_equal(result.affine, image.affine)
    assert not network.calls and result.meta["steps"] == 0


@pytest.mark.parametrize(("spacing", "thickness"), [(5.0, 1.0), (1.0, 4.0)])
def test_a_gap_or_an_overlap_at_the_target_is_still_rebuilt(spacing, thickness):
    """Thin slices far apart, and thick slices close together."""
    image = volume((9, 18, 14), slice_spacing=spacing, slice_thickness=thickness)
    close(DriftInferer(8)(image, Pointwise()), 2 * image.as_tensor() + 1)


def test_facts_of_a_single_and_of_a_batched_volume_are_the_same():
    expected = (2, 5.0, 4.0, 1.0)
    assert acquisition(volume((4, 4, 4))) == expected
    collated = {key: torch.tensor([value]) for key, value in FACTS.items()}
    result = acquisition(MetaTensor(torch.zeros(1, 1, 4, 4, 4), meta=collated))
    assert result == expected and isinstance(result[0], int)


@pytest.mark.parametrize("key", list(FACTS))
def test_missing_facts_are_named(key):
    image = volume((9, 18, 14))
    del image.meta[key]
    with pytest.raises(ValueError, match=rf"lack \['{key}'\].*preprocessing"):
        DriftInferer(8)(image, Pointwise())


def test_a_plain_tensor_has_no_facts():
    with pytest.raises(ValueError, match=r"slice_axis.*preprocessing"):
        DriftInferer(8)(torch.zeros(1, 1, 9, 18, 14), Pointwise())


@pytest.mark.parametrize("shape", [(2, 1, 9, 18, 14), (1, 2, 9, 18, 14), (1, 9, 18, 14), (1, 1, 18, 14)])
def test_anything_but_one_volume_is_refused_with_its_shape(shape):
    image = MetaTensor(torch.zeros(shape), meta=FACTS)
    with pytest.raises(ValueError, match=r"inputs are \(" + ", ".join(map(str, shape)) + r"\).*one volume"):
        DriftInferer(8)(image, Pointwise())


# --- from file to file ---


def texture(shape, seed=0):
    return (1000 * np.random.default_rng(seed).random(shape)).astype(np.float32)


def oblique(spacing):
    affine = np.eye(4)
    affine[:3, :3] = Rotation.from_euler("xyz", [25, -40, 70], degrees=True).as_matrix() @ np.diag(spacing)
    affine[:3, 3] = -91.3, 120.7, 33.1
    return affine


@pytest.mark.parametrize("name", ["scan.nii.gz", "scan.nii"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_scan_is_rebuilt_in_place(axis, name, bundle, write_nifti, log):
    shape, spacing = np.array([6, 7, 8]), np.array([-1.0, 1.0, 1.0])
    shape[axis], spacing[axis] = 5, 4.0
    affine = oblique(spacing)
    bundle(write_nifti(texture(shape).astype(np.int16), affine, name))
    image = nib.load(bundle.out / "scan_sr.nii.gz")
    expected = shape.copy()
    expected[axis] = 20
    assert image.shape == tuple(expected)
    assert image.get_data_dtype() == np.float32
    assert image.header.get_xyzt_units()[0] == "mm"
    np.testing.assert_allclose(image.header.get_zooms(), 1, atol=1e-5)
    for position in (0, 4):  # first and last slice centre: 1.5 mm beyond the first and last fine centre
        corner, fine_corner = np.zeros(3), np.zeros(3)
        corner[axis], fine_corner[axis] = position, 1.5 + 4 * position
        there = (nib.affines.apply_affine(a, c) for a, c in ((affine, corner), (image.affine, fine_corner)))
        assert np.linalg.norm(np.subtract(*there)) < 0.01
    assert np.isfinite(image.get_fdata()).all()
    assert any("scan_sr.nii.gz" in message for message in log.messages)


@pytest.mark.parametrize(("options", "others"), [({}, (1, 0)), ({"both_planes": False}, (1,))])
def test_the_result_is_the_networks_in_the_scans_units(options, others, bundle, write_nifti, drift):
    """The deployed chain against arithmetic: range to [-1, 1], copies of slices, the plain loop, and back."""
    thick = texture((5, 17, 5)) + 200
    own = {"inferer::steps": 2, "consistency": "measure"}
    bundle(write_nifti(thick, np.diag([1.0, 1.0, 4.0, 1.0])), **options, **own)
    low, high = thick.min(), np.percentile(thick, 99.9)
    fine = torch.from_numpy((2 * (thick - low) / (high - low) - 1).repeat(4, axis=2)).float()
    planes = [rebuild_by_loop(fine, drift, other, 16, 0.25, 2) for other in others]
    expected = torch.stack(planes).mean(0).numpy()
    result = nib.load(bundle.out / "scan_sr.nii.gz").get_fdata()
    np.testing.assert_allclose(result, (expected + 1) / 2 * (high - low) + low, atol=0.05)


def test_a_scan_smaller_than_a_window_is_rebuilt(bundle, write_nifti):
    bundle(write_nifti(texture((4, 5, 3)), np.diag([1.0, 1.0, 3.0, 1.0])))
    assert nib.load(bundle.out / "scan_sr.nii.gz").shape == (4, 5, 9)


@pytest.mark.parametrize("value", [0, 300])
def test_a_constant_scan_passes_through(value, bundle, write_nifti):
    bundle(write_nifti(np.full((6, 7, 5), value, np.int16), np.diag([1.0, 1.0, 4.0, 1.0])))
    result = nib.load(bundle.out / "scan_sr.nii.gz")
    assert result.shape == (6, 7, 20)
    np.testing.assert_allclose(result.get_fdata(), value, atol=1e-3)


@pytest.mark.parametrize("spacing", [0.5, 0.9, 1.0, 1.1])
@pytest.mark.parametrize("known", [False, True])
def test_an_isotropic_scan_is_copied(known, spacing, bundle, write_nifti, log):
    thick, affine = texture((6, 7, 8)), oblique(np.full(3, spacing))
    bundle(write_nifti(thick, affine), **({"slice_thickness": max(spacing, 0.7)} if known else {}))
    result = nib.load(bundle.out / "scan_sr.nii.gz")
    assert "copied" in log.text
    np.testing.assert_allclose(result.affine, affine, atol=1e-4)
    np.testing.assert_allclose(result.get_fdata(), thick, atol=1e-2)


def test_scan_after_scan_keeps_its_own_facts(bundle, write_nifti):
    """Nothing of one scan leaks into the next: together they give what each gives alone."""
    paths = [
        write_nifti(texture((6, 7, 5)), np.diag([1.0, 1.0, 4.0, 1.0]), "scans/a.nii.gz"),
        write_nifti(texture((4, 8, 9), 1) * 7, oblique([3.0, 0.9, 1.0]), "scans/b.nii.gz"),
    ]
    bundle(paths[0].parent)
    together = [nib.load(bundle.out / f"{name}_sr.nii.gz") for name in "ab"]
    assert [v.shape for v in together] == [(6, 7, 20), (13, 8, 9)]
    for path, image in zip(paths, together):
        expected, affine = image.get_fdata(), image.affine.copy()
        bundle(path, output_dir=str(bundle.out.parent / "alone"))
        alone = nib.load(bundle.out.parent / "alone" / f"{path.name.split('.')[0]}_sr.nii.gz")
        np.testing.assert_allclose(alone.get_fdata(), expected, atol=1e-3)
        np.testing.assert_array_equal(alone.affine, affine)
