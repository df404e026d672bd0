"""Laws of the inferer: what the networks make of a stack, plane by plane, with a plain loop as oracle."""

import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from torch import nn

from scripts.method import networks
from scripts.rebuild.inferer import DriftInferer
from scripts.stack import grid
from scripts.stack.acquisition import Acquisition
from scripts.stack.slices import Slices
from tests.loops import in_unit, rebuilt_by_loop
from tests.volumes import noise_stack, scan_of, smooth_head

OWN = {"consistency": "measure"}  # the networks' result alone


class Pointwise(nn.Module):
    """`2 x + 1`, whatever the thickness; remembers what it was called with."""

    apn = None

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, image, thickness, times):
        self.calls.append((2 * image + 1, thickness, times))
        return 2 * image + 1


class StageOne(networks.Drift):
    """The APN of a `Drift` alone; remembers in which precision the flow would begin."""

    def refine(self, x, modulations, times, factor):
        self.began = x.dtype
        return x


def arrays(image):
    """The slices, `(X, Y, Z)`, and their acquisition."""
    return image.as_tensor()[0, 0], Acquisition.of(image)


def doubled(image):
    """`2 x + 1` in [-1, 1] is `2 x - low` in the units of a scan."""
    unit, low, high = in_unit(*arrays(image))
    return (unit + 1) * (high - low) + low


def close(result, expected, tolerance=0.01):
    """To 1e-5 of the range, unless another tolerance is said."""
    torch.testing.assert_close(torch.as_tensor(result), torch.as_tensor(expected), atol=tolerance, rtol=0)


def of_box(result):
    return result.as_tensor()[0, 0]


# --- laws ---


@pytest.mark.parametrize(
    ("roi", "overlap", "batch", "axis", "both_planes"),
    [(8, 0.0, 1, 0, True), (8, 0.5, 3, 1, False), (16, 0.8, 64, 2, True), (32, 0.25, 16, 1, True)],
)
def test_a_pointwise_network_gives_the_direct_result(roi, overlap, batch, axis, both_planes):
    shape = np.array([19, 13, 22])
    shape[axis] = 4
    image = noise_stack(shape, axis=axis)
    inferer = DriftInferer(roi, overlap, batch, both_planes, **OWN)
    close(of_box(inferer(image, Pointwise())), doubled(image))


@pytest.mark.parametrize(
    ("shape", "overlap", "steps"),
    [((3, 21, 5), 0.25, 3), ((3, 16, 4), 0.5, 1), ((3, 11, 2), 0.25, 0), ((9, 3, 5), 0.25, 3)],
)
def test_agreement_with_a_plain_loop(shape, overlap, steps, drift):
    """Larger than a window, one window, smaller than a window, and both at once."""
    image = noise_stack(shape, spacing=4.9)
    other = max((0, 1), key=lambda a: shape[a])
    expected = rebuilt_by_loop(*arrays(image), drift, (other,), 16, overlap, steps)
    result = of_box(DriftInferer(16, overlap, 4, steps=steps, **OWN)(image, drift))
    close(result, expected)
    sharp = DriftInferer(16, overlap, 4, steps=steps or None, n_max=0, sharp=True, sharp_velocity=2.5, **OWN)
    expected = rebuilt_by_loop(*arrays(image), drift, (other,), 16, overlap, steps, 2.5)
    close(of_box(sharp(image, drift)), expected)
    unit, low, high = in_unit(*arrays(image))
    assert (result - ((unit + 1) / 2 * (high - low) + low)).abs().max() > 1  # the network did something


@pytest.mark.slow
def test_the_spread_is_half_the_distance_of_both_families_and_changes_no_result(drift):
    image = noise_stack((12, 20, 6))
    plain, telling = (
        DriftInferer(16, both_planes=True, steps=2, spread=spread).rebuilt(Slices.of(image), drift) for spread in (0, 1)
    )
    assert torch.equal(plain.volume, telling.volume) and plain.spread is None
    longer, shorter = (rebuilt_by_loop(*arrays(image), drift, (other,)) for other in (1, 0))
    kept = (longer > longer.min()) & (shorter > shorter.min())  # and not cut as undershoot
    torch.testing.assert_close(telling.spread[kept], (longer - shorter).abs()[kept] / 2, rtol=1e-3, atol=0.01)
    assert telling.spread[kept].median() > 1


def test_a_draft_is_stage_1_alone_by_the_same_settings(drift):
    image = noise_stack((5, 7, 4))
    inferer = DriftInferer(16, both_planes=True, steps=2, **OWN)
    alone = DriftInferer(16, both_planes=True, steps=0, **OWN)
    assert torch.equal(inferer.draft(image, drift), alone(image, drift))
    assert inferer.draft.settings == alone.settings and not torch.equal(inferer(image, drift), alone(image, drift))


def test_both_planes_are_weighed(drift):
    image = noise_stack((5, 7, 4))
    single = [rebuilt_by_loop(*arrays(image), drift, (other,)) for other in (0, 1)]
    assert (single[0] - single[1]).abs().max() > 1
    result = of_box(DriftInferer(16, both_planes=True, steps=2, **OWN)(image, drift))
    close(result, rebuilt_by_loop(*arrays(image), drift, (0, 1)))


def test_bfloat16_is_close_to_float32_and_returns_float32(drift):
    image = noise_stack((5, 18, 4))
    exact = DriftInferer(16, steps=2, **OWN)(image, drift)
    coarse = DriftInferer(16, steps=2, bfloat16=True, **OWN)(image, drift)
    assert coarse.dtype == torch.float32
    assert 0 < (coarse - exact).abs().max() < 50


def test_a_window_has_16_pixels_at_least_along_each_side(drift):
    """Where 2 pixels become one, torch's bfloat16 convolutions give NaN at times."""
    seen = []
    hook = drift.apn.register_forward_hook(lambda _, given, __: seen.append(tuple(given[0].shape[2:])))
    result = DriftInferer(512, steps=1, bfloat16=True, **OWN)(noise_stack((3, 7, 2)), drift)
    hook.remove()
    assert result.isfinite().all()
    assert set(seen) == {(16, 16)}


@pytest.mark.parametrize("residual", [False, True])
def test_the_flow_is_in_float32_whatever_the_convolutions_are_in(residual):
    """In bfloat16 a state of 0.5 does not move by a step of 0.001."""
    network = StageOne(
        networks.AnatomicalProjectionNetwork((4, 8), residual=residual), networks.VelocityNetwork((4, 8), width=8)
    )
    DriftInferer(16, steps=2, bfloat16=True, **OWN)(noise_stack((5, 18, 4)), network.eval())
    assert network.began == torch.float32


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_planes_without_air_are_given_air_beside_them_and_others_are_not(axis):
    """Air stands at the ends of the in-plane axis, and the result keeps its shape."""
    for air in (False, True):
        shape = [20, 24, 28]
        shape[axis] = 6
        image, network = noise_stack(shape, axis=axis), Pointwise()
        image[:] = 400 + image / 2
        image[0, 0].movedim(axis, 0)[:, :2] = 0 if air else 500
        result = DriftInferer(512, **OWN)(image, network)
        fine = list(shape)
        fine[axis] = 30
        assert result.shape[2:] == tuple(fine)
        others = [n for a, n in enumerate(shape) if a != axis]
        for windows, *_ in network.calls:
            height, width = windows.shape[2:]
            assert height == 32 and width == -(-(max(others) + (0 if air else 32)) // 8) * 8
        close(of_box(result), doubled(image))


@pytest.mark.parametrize("consistency", ["measure", "project"])
def test_deblocking_does_not_depend_on_reconciling(consistency, drift):
    """What is asked for is done, whatever the other option says, and the settings that a record keeps say it."""
    image = scan_of(smooth_head())[None]
    plain, ramps = (
        DriftInferer(64, steps=0, deblocked=deblocked, consistency=consistency) for deblocked in (False, True)
    )
    assert (ramps(image, drift) - plain(image, drift)).abs().max() > 1
    assert (plain.settings["deblocked"], ramps.settings["deblocked"]) == (False, True)


@pytest.mark.parametrize("floor", [-40.0, 0.0, 500.0])
def test_no_result_is_darker_than_its_scan(floor, drift):
    """Networks undershoot beside edges; air that is raised, as in scans with an offset, cuts it as zero does."""
    head = scan_of(smooth_head())[None]
    raised = MetaTensor(head.as_tensor() + floor, affine=head.affine, meta=dict(head.meta))
    for consistency in ("measure", "project"):
        result = DriftInferer(64, steps=2, consistency=consistency)(raised, drift)
        assert result.min() >= min(raised.min().item(), floor) - 1e-3
        assert (result == result.min()).sum() > 1


# --- schedule and conditioning ---


@pytest.mark.parametrize(
    ("thickness", "target", "n_max", "count"),
    [(5.0, 1.0, 15, 12), (2.0, 1.0, 15, 8), (5.0, 0.7, 15, 13), (5.0, 1.0, 4, 3), (1.02, 1.0, 15, 0)],
)
def test_steps_are_those_of_ais_by_default(thickness, target, n_max, count):
    inferer, network = DriftInferer(16, n_max=n_max), Pointwise()
    image = noise_stack((4, 18, 3), thickness=thickness, target=target)
    assert inferer.steps_for(Acquisition.of(image))[0] == count
    assert inferer.rebuilt(Slices.of(image), network).steps == count
    assert len(network.calls) > 0
    for _, conditioning, times in network.calls:
        close(conditioning, torch.tensor([[thickness, target]]), 1e-6)
        close(times, torch.linspace(0, 1, count + 1) if count else torch.zeros(1), 1e-6)


@pytest.mark.parametrize("thickness", [1.02, 2.0, 7.0])
def test_a_card_with_one_step_takes_one_at_any_thickness(thickness):
    """AIS would round it to none below twice the target."""
    inferer = DriftInferer(16, n_max=1)
    slices = Slices.of(noise_stack((4, 18, 3), thickness=thickness, target=1.0))
    rebuilt = inferer.rebuilt(slices, Pointwise())
    assert (rebuilt.steps, rebuilt.steps_source) == (1, "N_max = 1")


# --- meta data ---


@pytest.mark.parametrize("batched", [False, True])
def test_the_result_lies_on_the_fine_grid_and_meta_survive(batched):
    image = noise_stack((9, 18, 4), filename_or_obj="scan.nii.gz", header={"dim_info": 48})
    expected = grid.respaced_affine(image.affine.numpy(), 2, 4, 20, 1.0)
    if batched:  # as a DataLoader leaves it
        image = MetaTensor(image.as_tensor(), affine=image.affine[None], meta=dict(image.meta))
    before = dict(image.meta)
    result = DriftInferer(8, both_planes=True, steps=3)(image, Pointwise())
    assert isinstance(result, MetaTensor) and result.shape == (1, 1, 9, 18, 20)
    assert result.dtype == torch.float32 and result.device.type == "cpu" and not result.requires_grad
    np.testing.assert_allclose(result.affine.reshape(4, 4), expected, atol=1e-6)
    assert result.affine.shape == image.affine.shape
    assert Acquisition.of(result) == Acquisition.of(image) and result.meta.keys() == image.meta.keys()
    assert all(result.meta[name] == before[name] for name in ("filename_or_obj", "header"))


@pytest.mark.parametrize(("spacing", "thickness", "target"), [(1.0, 1.0, 1.0), (0.5, 0.5, 0.7), (0.8, 1.0, 1.0)])
def test_a_scan_at_its_target_comes_back_as_it_is(spacing, thickness, target):
    network = Pointwise()
    image = noise_stack((9, 18, 14), spacing=spacing, thickness=thickness, target=target)
    rebuilt = DriftInferer(8).rebuilt(Slices.of(image), network)
    np.testing.assert_array_equal(rebuilt.volume[None, None], image)
    np.testing.assert_array_equal(rebuilt.volume.affine, image.affine)
    assert not network.calls and rebuilt.steps == 0


@pytest.mark.parametrize(("spacing", "thickness"), [(5.0, 1.0), (1.0, 4.0)])
def test_a_gap_or_an_overlap_at_the_target_is_still_rebuilt(spacing, thickness):
    """Thin slices far apart, and thick slices close together."""
    image = noise_stack((9, 18, 6), spacing=spacing, thickness=thickness)
    close(of_box(DriftInferer(8, **OWN)(image, Pointwise())), doubled(image))


@pytest.mark.parametrize("shape", [(2, 1, 9, 18, 14), (1, 9, 18, 14)])
def test_anything_but_one_volume_is_refused_with_its_shape(shape):
    with pytest.raises(ValueError, match=r"inputs are \(" + ", ".join(map(str, shape)) + r"\).*one volume"):
        DriftInferer(8)(MetaTensor(torch.zeros(shape)), Pointwise())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("steps", value) for value in (-1, 2.5, "two", True)),
        *(("n_max", value) for value in (-3, "x", 2.0)),
        *(("overlap", value) for value in (1.5, -0.5, "x")),
        *(("roi_size", value) for value in (12, "512", 0)),
        *(("sw_batch_size", value) for value in (0, 2.5)),
    ],
)
def test_a_setting_that_counts_nothing_is_refused_before_a_scan_is_read(name, value, refusal):
    said = refusal(DriftInferer, **{name: value})
    assert said.startswith(f"{name} is {value!r}: expected ") and said.endswith(f"Set inferer::{name}.")
