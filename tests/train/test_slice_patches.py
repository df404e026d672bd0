"""Laws of the training pairs of stage 1 on the measured slices, and of a training with them."""

import numpy as np
import pytest
import torch

from scripts.method.losses import FlowLoss, KnownLoss, LesionLoss, ReconstructionLoss
from scripts.method.networks import Drift, VelocityNetwork
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.method.weights import read_card
from scripts.train.batches import FlowBatch, PrecisionInferer, ProjectionBatch
from scripts.train.random_acquisitions import RandAcquired
from scripts.train.slice_patches import RandSlicePatchd
from tests import nano
from tests.config_files import on_slices, raw

TOLD = ("lengths", "rows", "guide", "guide_slices")
SIZES = (6, 10, 20)  # slices, columns, rows


def plane(height=120, width=40, seed=0):
    """No air, no two pixels alike."""
    return 0.2 + 0.8 * torch.rand(1, height, width, generator=torch.Generator().manual_seed(seed))


def drawn(label, seed=0, spacing=(1.0, 0.8), sizes=SIZES, guide=None, planes=1, **acquired):
    acquired = {"max_thickness": 6.0, "ceta_gap": 0, **acquired}
    transform = RandSlicePatchd("label", RandAcquired("label", **acquired), planes, *sizes)
    transform.set_random_state(seed)
    data = {"label": label, "spacing": spacing, "plane_spacing": spacing[1]}
    return transform(data | ({} if guide is None else {"guide": guide}))


def noiseless(label, seed, **options):
    """The same patch of the same slices before they get noise."""
    return drawn(label, seed, max_noise=0.1, quiet_share=1.0, **options)


def places(label, sharp):
    """Row and column of the plane where a patch of it lies."""
    known = sharp[0, sharp[0, :, 0].isfinite()]
    known = known[:, known[0].isfinite()]
    found = [
        (int(row), int(column))
        for row, column in zip(*np.nonzero(label[0].numpy() == known[0, 0].item()))
        if torch.equal(label[0, row : row + known.shape[0], column : column + known.shape[1]], known)
    ]
    return found[0]


def assert_between_slices(image, label, rows):
    """Slices of a ramp, interpolated at the rows, are the sharp rows."""
    slices, label = image[0, :, 0], label[0, :, 0]
    known = label.isfinite() & (rows >= 0) & (rows <= 5)
    below = rows.floor().clamp(0, 4).long()
    between = slices[below] + (rows - below) * (slices[below + 1] - slices[below])
    inner = known & (label > 0.23) & (label < 0.97)  # the simulation mirrors the plane at its ends
    assert inner.any()
    torch.testing.assert_close(between[inner], label[inner], atol=1e-4, rtol=0)


@pytest.mark.parametrize("seed", range(3))
def test_rows_lie_where_the_sharp_ones_were_taken_in_both_stacks_of_a_pair(seed):
    """On a plane that is a ramp along the slice axis a slice shows its place, and a row its own."""
    ramp = torch.linspace(0.2, 1, 240)[None, :, None].expand(1, 240, 30).contiguous()
    pair = drawn(ramp, seed, ceta_gap=1.0, min_thickness=3.0, max_shift=0.5, spacing_ratio=(0.8, 1.4))
    assert pair["proximal_lengths"][0] == pytest.approx(pair["lengths"][0] - 1)
    assert torch.equal(pair["proximal_lengths"][[1, 3, 4]], pair["lengths"][[1, 3, 4]])
    assert -0.5 <= pair["proximal_rows"][0] <= 5.5, "the first row lies in them"
    for slices, rows in (("image", "rows"), ("proximal", "proximal_rows")):
        assert_between_slices(pair[slices], pair["label"], pair[rows])


@pytest.mark.parametrize("seed", range(3))
def test_shapes_are_one_whatever_the_acquisition_and_without_a_pair_the_slices_stand_for_their_own(seed):
    pair = drawn(plane(), seed, spacing_ratio=(0.8, 1.4))
    shapes = {name: tuple(value.shape) for name, value in pair.items()}
    seen = {"": (1, 6, 10), "_rows": (20,), "_lengths": (5,), "_guide": (1, 20, 10), "_guide_slices": (1, 6, 10)}
    stacks = {name[1:] or "image": shape for name, shape in seen.items()}
    pairs = {f"proximal{name}": shape for name, shape in seen.items()}
    assert shapes == {"label": (1, 20, 10), "lesions": (1, 20, 10), **stacks, **pairs}
    assert pair["image"].isfinite().all()
    assert all(torch.equal(pair[f"proximal{name}"], pair[name[1:] or "image"]) for name in seen)


@pytest.mark.parametrize("size", [(5, 7), (120, 7), (5, 40)])
def test_small_planes_are_filled_up_and_nothing_is_known_there(size):
    pair = drawn(plane(*size), max_thickness=4.0, min_thickness=2.0)
    assert pair["image"].shape == (1, 6, 10) and pair["label"].shape == (1, 20, 10)
    known = pair["label"][0].isfinite()
    assert known.any() and known[:, : min(size[1], 10)].any(1).sum() == known.any(1).sum() <= size[0]
    assert not known[:, size[1] :].any()


def test_rows_ascend_one_target_from_each_other_where_nothing_is_known_too():
    pair = drawn(plane(12), min_thickness=3.0)
    target, spacing = pair["lengths"][1], pair["lengths"][2]
    torch.testing.assert_close(pair["rows"].diff(), (target / spacing).expand(19), atol=1e-5, rtol=0)


def test_the_sharp_rows_are_the_planes_own_and_every_row_and_column_is_drawn():
    label, seen = plane(40, 12), torch.zeros(40, 12)
    for seed in range(100):
        sharp = drawn(label, seed, sizes=(4, 4, 6))["label"]
        row, column = places(label, sharp)
        seen[row : row + 6, column : column + 4] = 1
    assert seen.any(0).all() and seen.any(1).all()


def test_lengths_are_those_of_the_acquisition():
    pairs = [drawn(plane(), seed, spacing=(0.9, 0.7), spacing_ratio=(1.2, 1.4)) for seed in range(30)]
    thickness, target, spacing, pixel, noise = torch.stack([pair["lengths"] for pair in pairs]).T
    assert (noise == 0).all()
    assert ((thickness > 0.9) & (thickness <= 6)).all()
    assert (target == 0.9).all() and (pixel == 0.7).all()
    ratio = spacing / thickness
    gapped = ratio > 1.01
    assert 5 < gapped.sum() < 25 and (ratio[gapped] >= 1.19).all() and (ratio <= 1.41).all()


def test_rows_in_the_outer_half_of_the_first_and_last_slice_are_drawn_and_none_beyond():
    rows = torch.stack([drawn(plane(60), seed)["rows"] for seed in range(60)])
    known = torch.stack([drawn(plane(60), seed)["label"][0, :, 0].isfinite() for seed in range(60)])
    assert -0.5 <= rows[known].min() < -0.3 and SIZES[0] - 0.7 < rows[known].max() < SIZES[0] - 0.5


def test_a_patch_is_drawn_as_often_as_it_holds_tissue_brighter_than_air():
    """A fifth of rows and columns hold tissue, a third of the patches by chance, and nearly half as they are drawn.

    Noise of air, below 0.1, is none.
    """
    label = 0.09 * torch.ones(1, 100, 100)
    label[:, 40:60, 40:60] = plane(20, 20)
    assert sum((drawn(label, seed)["label"] > 0.1).any().item() for seed in range(60)) > 25
    few = 0.09 * torch.ones(1, 120, 10)
    few[:, 57:63] = plane(6, 10)
    shown = [(drawn(few, seed, sizes=(120, 10, 6))["label"] > 0.1).any().item() for seed in range(60)]
    assert sum(shown) > 20, "of neighbouring rows, 6 of them, one in ten shows some"


def test_common_thicknesses_are_half_of_the_stacks_and_more():
    def thicknesses(**options):
        small = {"sizes": (4, 4, 6), **options}
        return torch.stack([drawn(plane(40, 12), seed, **small)["lengths"][0] for seed in range(150)])

    common = thicknesses(common_thickness=(4.0, 5.0))
    assert abs(((common >= 4) & (common <= 5)).float().mean() - 0.6) < 0.1  # a half, and a fifth of the others
    assert common.min() < 2 and common.max() > 5.5
    assert abs(((p := thicknesses()) >= 4).logical_and(p <= 5).float().mean() - 0.2) < 0.1


@pytest.mark.parametrize("only", [2.0, 7.0])
def test_common_thicknesses_outside_of_the_range_are_none(only):
    drawn_ones = [
        drawn(plane(), k, common_thickness=(3.0, 6.0), min_thickness=only, max_thickness=only) for k in range(9)
    ]
    assert [one["lengths"][0].item() for one in drawn_ones] == pytest.approx([only] * 9)


# A guide


@pytest.mark.parametrize("seed", range(4))
def test_a_guide_lies_where_the_sharp_rows_lie_and_its_slices_are_the_models(seed):
    """The scan itself as guide: rows and slices are the scan's, but for noise and profile, which nobody knows."""
    label = plane()
    pair = drawn(label, seed, guide=label, max_shift=0.5, spacing_ratio=(0.8, 1.4), profiles=(4.0,))
    known = pair["label"].isfinite()
    assert torch.equal(pair["guide"][known], pair["label"][known]) and not pair["guide"][~known].any()
    torch.testing.assert_close(pair["guide_slices"], pair["image"], atol=1e-5, rtol=0)
    other = drawn(label, seed, guide=label, max_shift=0.5, spacing_ratio=(0.8, 1.4), profiles=("rectangular",))
    torch.testing.assert_close(other["guide_slices"], pair["image"], atol=1e-5, rtol=0)
    assert (other["image"] - pair["image"]).abs().max() > 1e-3


# Stage 2


def batch_of(count=4, **options):
    given = {"guide": plane(seed=9), "min_thickness": 2.5, "ceta_gap": 1.0, **options}
    pairs = [drawn(plane(), seed, **given) for seed in range(count)]
    batch = {name: torch.stack([pair[name] for pair in pairs]) for name in pairs[0]}
    images = ("image", "label", "proximal", *(name for name in batch if "guide" in name))
    return {**batch, **{name: 2 * batch[name] - 1 for name in images}}


def told_by(batch):
    return [batch[name] for name in TOLD]


def drift(seed=0):
    """Both stages, whose weights are no zeros."""
    torch.manual_seed(seed)
    network = Drift(SliceProjectionNetwork([8, 12], [1, 1], 8, 4), VelocityNetwork([8, 16], width=8, norm=False))
    for parameter in network.parameters():
        parameter.data += 0.02 * torch.randn_like(parameter)
    return network


def test_a_flows_batch_holds_what_is_known_of_either_stack():
    network, batch = drift(), batch_of()
    xt, path, (thickness, t), _ = FlowBatch(network.apn, PrecisionInferer(False), 2.0, told=TOLD)(batch, "cpu")
    assert path.partner.tolist() == [0, 1, 2, 3] and thickness.shape == (8, 3)
    torch.testing.assert_close(path.x0[:4], network.apn(batch["image"], *told_by(batch)))
    known = path.x1.isfinite()
    assert torch.equal(known[:4], batch["label"].isfinite())
    assert (known[4:] <= known[:4]).all() and known[4:].any((1, 2, 3)).all()
    for k in range(4, 8):
        rows = batch["proximal_rows"][k - 4]
        assert not known[k, 0, (rows < -0.5) | (rows >= 5.5)].any(), "beyond the thinner slices"
    torch.testing.assert_close(
        xt[known], ((1 - t[:, None, None, None]) * path.x0 + t[:, None, None, None] * path.x1)[known]
    )
    assert xt.isfinite().all()


def test_what_is_not_known_trains_no_velocity():
    batch = FlowBatch(drift().apn, PrecisionInferer(False), 2.0, told=TOLD)(batch_of(), "cpu")
    v = torch.zeros_like(batch[0], requires_grad=True)
    loss = FlowLoss(0.1, 0.5)(v, batch[1])
    loss.backward()
    known, pairs = batch[1].x1.isfinite(), batch[1].x1[4:].isfinite()
    assert loss.isfinite() and v.grad[~known].abs().sum() == v.grad[:4][~known[:4] & ~pairs].abs().sum() == 0


@pytest.mark.parametrize(("share", "quiet"), [(0.0, False), (1.0, True)])
def test_the_quiet_share_of_the_stacks_has_no_noise(share, quiet):
    pairs = [drawn(plane(), seed, max_noise=0.1, quiet_share=share) for seed in range(8)]
    assert all((pair["lengths"][4] == 0) == quiet for pair in pairs)


def test_networks_get_the_noise_as_an_estimate_finds_it():
    pairs = [drawn(plane(), seed, max_noise=0.1, noise_error=0.3, false_noise=0.03) for seed in range(60)]
    stated = torch.stack([pair["lengths"][4] for pair in pairs])
    true = torch.stack([drawn(plane(), seed, max_noise=0.1)["lengths"][4] for seed in range(60)])
    quiet = true == 0
    assert 0.01 < stated[quiet].max() < 0.03 and (stated[quiet] == 0).any()
    assert 0.2 < (stated[~quiet] / true[~quiet]).log().std() < 0.4


def test_a_group_norm_sees_the_air_and_a_velocity_without_norms_does_not():
    torch.manual_seed(0)
    thickness, t, x = torch.tensor([[5.0, 1.0]]), torch.zeros(1), torch.rand(1, 1, 64, 64)
    aired = torch.nn.functional.pad(x, [0, 192], value=-1.0)
    for norm in (True, False):
        network = VelocityNetwork([8, 16], width=8, norm=norm)
        torch.nn.init.normal_(network.unet.conv_out.weight)
        with torch.no_grad():
            near, far = network(x, thickness, t), network(aired, thickness, t)[..., :64]
        inner = (near - far)[..., :32].abs().max() / near.abs().max()
        assert (inner > 1e-3) == norm


def test_the_target_of_stage_one_has_the_lesions_weights_behind_the_truth():
    batch = batch_of()
    image, target, conditions, _ = ProjectionBatch(TOLD, ("label", "lesions"))(batch, "cpu")
    assert torch.equal(image, batch["image"]) and all(map(torch.equal, conditions, told_by(batch)))
    torch.testing.assert_close(target, torch.cat([batch["label"], batch["lesions"]], dim=1), equal_nan=True)


# The loss


def test_an_error_of_a_lesion_counts_again_as_far_as_it_covers_a_pixel_and_is_known():
    plain, epsilon = KnownLoss(ReconstructionLoss(0.0, 100.0)), 100.0  # squared errors
    truth, lesions = torch.zeros(1, 1, 16, 16), torch.zeros(1, 1, 16, 16)
    lesions[..., 0], truth[..., 4] = 0.5, torch.nan
    target = torch.cat([truth, lesions], dim=1)
    losses = []
    for column in (0, 1, 4):
        prediction = torch.zeros(1, 1, 16, 16)
        prediction[..., column] = 1
        losses.append(LesionLoss(plain, 6.0, epsilon)(prediction, target).item())
    lesion, other, unknown = losses
    assert lesion / other == pytest.approx(1 + 6 * 0.5, rel=1e-3) and unknown == 0


def test_only_what_is_known_counts():
    loss = KnownLoss(ReconstructionLoss(0.0))
    target = torch.rand(2, 1, 20, 16)
    target[:, :, 15:] = torch.nan
    prediction = torch.rand(2, 1, 20, 16, requires_grad=True)
    value = loss(prediction, target)
    expected = ReconstructionLoss(0.0)(prediction[:, :, :15], target[:, :, :15]) * 15 / 20
    torch.testing.assert_close(value, expected)
    value.backward()
    assert prediction.grad[:, :, :15].all() and not prediction.grad[:, :, 15:].any()


# A training


SLICES = {
    "network_def": on_slices([8, 12], 8, [8, 16], norm=False),
    "slice_patch": {"slices": 6, "columns": 16, "rows": 16},
    **{name: raw("train.yaml")[name] for name in ("pairs", "told", "target", "loss", "schedule", "common_thickness")},
}


@pytest.mark.slow
def test_one_command_trains_both_stages(tmp_path, dataset_dir):
    """Killed after stage 1, it goes on with stage 2."""
    options = {"patches_per_epoch": 8, "stage1_epochs": 2, "stage2_epochs": 2}
    for run_id in ("stage1", "training"):
        nano.workflow(tmp_path, dataset_dir, run_id, **{**SLICES, **options}).run()
    estimate, flow = (nano.load(tmp_path / f"{name}.pt") for name in ("stage1", "model"))
    assert all(torch.equal(estimate[name], flow[name]) for name in flow if name.startswith("apn."))
    assert any(not torch.equal(estimate[name], flow[name]) for name in flow if name.startswith("velocity."))
    assert read_card(tmp_path / "model.pt").n_max == raw("train.yaml")["n_max"]


# Neighbouring planes


def test_a_patch_has_its_plane_in_the_middle_of_its_neighbours_each_with_noise_of_its_own():
    planes = torch.stack([plane(seed=k)[0] for k in range(5)])
    for seed in range(3):
        pair = drawn(planes, seed, planes=3, max_noise=0.1, quiet_share=0.0, min_thickness=4.0)
        assert {name: len(pair[name]) for name in ("image", "proximal", "label", "guide_slices")} == {
            "image": 3, "proximal": 3, "label": 1, "guide_slices": 1
        }  # fmt: skip
        places(planes[2:3], pair["label"])
        alone, quiet = (noiseless(some, seed, planes=3, min_thickness=4.0)["image"] for some in (planes[2:3], planes))
        assert all(torch.equal(alone[k], quiet[1]) for k in range(3)), "alone it is its neighbour"
        noise = (pair["image"] - quiet).flatten(1)
        assert (torch.corrcoef(noise).triu(1).abs() < 0.5).all() and (noise.std(1) > 0).all()


@pytest.mark.parametrize(("apart", "count"), [(0.4, 5), (0.8, 7), (1.6, 7)])
def test_planes_become_planes_one_pixel_from_each_other_around_the_same_middle(apart, count):
    """A plane's value says where it lies: 0.5, and 0.01 for each mm. Beyond the outermost plane there is none."""
    values = 0.5 + 0.01 * apart * torch.arange(-4.0, 5.0)
    volume = values[:, None, None].expand(9, 30, 40).contiguous()
    transform = RandSlicePatchd("label", RandAcquired("label", max_thickness=6.0, ceta_gap=0), 7, *SIZES)
    pair = transform.set_random_state(0)({"label": volume, "spacing": (0.8, 0.8), "plane_spacing": apart})
    expected = 0.5 + 0.01 * 0.8 * torch.arange(-3.0, 4.0).clamp(-(count // 2), count // 2)
    torch.testing.assert_close(pair["image"][:, 2, 2], expected, atol=1e-5, rtol=0)
    assert torch.equal(pair["label"][pair["label"].isfinite()].unique(), torch.tensor([0.5]))
