"""Laws of the training pairs of stage 1 on the measured slices, and of a training with them."""

import numpy as np
import pytest
import torch

from scripts.method.losses import KnownLoss, ReconstructionLoss
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.train.batches import SliceBatch
from scripts.train.simulation import RandAcquired
from scripts.train.slice_patches import RandSlicePatchd
from tests import nano

SIZES = (6, 10, 20)  # slices, columns, rows


def plane(height=120, width=40, seed=0):
    """No air, no two pixels alike."""
    return 0.2 + 0.8 * torch.rand(1, height, width, generator=torch.Generator().manual_seed(seed))


def drawn(label, seed=0, spacing=(1.0, 0.8), sizes=SIZES, **acquired):
    acquired = {"max_thickness": 6.0, "ceta_gap": 0, **acquired}
    transform = RandSlicePatchd("label", RandAcquired("label", **acquired), *sizes)
    transform.set_random_state(seed)
    return transform({"label": label, "spacing": spacing})


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


@pytest.mark.parametrize("seed", range(8))
def test_rows_lie_where_the_sharp_ones_were_taken(seed):
    """On a plane that is a ramp along the slice axis a slice shows its place, and a row its own."""
    ramp = torch.linspace(0.2, 1, 240)[None, :, None].expand(1, 240, 30).contiguous()
    pair = drawn(ramp, seed, max_shift=0.5, spacing_ratio=(0.8, 1.4))
    slices, label, rows = pair["image"][0, :, 0], pair["label"][0, :, 0], pair["rows"]
    known = label.isfinite() & (rows >= 0) & (rows <= 5)
    below = rows.floor().clamp(0, 4).long()
    between = slices[below] + (rows - below) * (slices[below + 1] - slices[below])
    inner = known & (label > 0.23) & (label < 0.97)  # the simulation mirrors the plane at its ends
    assert inner.any()
    torch.testing.assert_close(between[inner], label[inner], atol=1e-4, rtol=0)


@pytest.mark.parametrize("seed", range(8))
def test_shapes_are_one_whatever_the_acquisition(seed):
    pair = drawn(plane(), seed, spacing_ratio=(0.8, 1.4))
    shapes = {name: tuple(value.shape) for name, value in pair.items()}
    assert shapes == {"image": (1, 6, 10), "label": (1, 20, 10), "rows": (20,), "lengths": (4,)}
    assert pair["image"].isfinite().all()


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
    for seed in range(200):
        sharp = drawn(label, seed, sizes=(4, 4, 6))["label"]
        row, column = places(label, sharp)
        seen[row : row + 6, column : column + 4] = 1
    assert seen.any(0).all() and seen.any(1).all()


def test_lengths_are_those_of_the_acquisition():
    pairs = [drawn(plane(), seed, spacing=(0.9, 0.7), spacing_ratio=(1.2, 1.4)) for seed in range(30)]
    thickness, target, spacing, pixel = torch.stack([pair["lengths"] for pair in pairs]).T
    assert ((thickness > 0.9) & (thickness <= 6)).all()
    assert (target == 0.9).all() and (pixel == 0.7).all()
    ratio = spacing / thickness
    gapped = ratio > 1.01
    assert 5 < gapped.sum() < 25 and (ratio[gapped] >= 1.19).all() and (ratio <= 1.41).all()


def test_patches_lie_where_tissue_is():
    """A fifth of the columns hold tissue: more than half of the patches show some."""
    label = torch.zeros(1, 100, 100)
    label[:, 40:60, 40:60] = plane(20, 20)
    shown = [(drawn(label, seed)["label"] > 0.1).any().item() for seed in range(60)]
    assert sum(shown) > 30


def test_common_thicknesses_are_half_of_the_stacks_and_more():
    def thicknesses(**options):
        return torch.stack([drawn(plane(), seed, **options)["lengths"][0] for seed in range(200)])

    common = thicknesses(common_thickness=(4.0, 5.0))
    assert abs(((common >= 4) & (common <= 5)).float().mean() - 0.6) < 0.1  # a half, and a fifth of the others
    assert common.min() < 2 and common.max() > 5.5
    assert abs(((p := thicknesses()) >= 4).logical_and(p <= 5).float().mean() - 0.2) < 0.1


# The loss


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
    "network_def": {
        "_target_": "scripts.method.networks.Drift",
        "apn": {
            "_target_": "scripts.method.slice_projection.SliceProjectionNetwork",
            "channels": [8, 12],
            "blocks": [1, 1],
            "fine_channels": 8,
        },
        "velocity": {"_target_": "scripts.method.networks.VelocityNetwork", "channels": [8, 16]},
    },
    "patch_size": {"slices": 6, "columns": 16, "rows": 16},
}
MODEL = nano.ROOT / "configs" / "models" / "slices.yaml"


def trained(folder, dataset_dir, **options):
    return nano.run_stage(folder, dataset_dir, "stage1", stacked=[MODEL], **{**SLICES, **options})


def test_a_training_lowers_the_loss():
    """On squares, whose edges a network can learn to put where they are."""
    torch.manual_seed(0)
    network = SliceProjectionNetwork([16, 24], [1, 1], 8)
    squares = 0.2 + 0.6 * ((torch.arange(96)[:, None] // 12 + torch.arange(64) // 10) % 2).float()[None]
    pairs = [drawn(squares, seed, sizes=(8, 24, 24), min_thickness=3.0) for seed in range(8)]
    image, label, arguments, _ = SliceBatch()({name: torch.stack([p[name] for p in pairs]) for name in pairs[0]}, "cpu")
    loss = KnownLoss(ReconstructionLoss(0.02, epsilon=0.1))
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(network(2 * image - 1, *arguments), 2 * label - 1)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < 0.7 * losses[0]


def test_a_resumed_training_ends_as_one_that_never_stopped(tmp_path, dataset_dir):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    trained(whole, dataset_dir)
    trained(parts, dataset_dir, stop_after=1)
    trained(parts, dataset_dir)
    assert nano.same(nano.load(whole / "stage1.pt"), nano.load(parts / "stage1.pt"))


def test_the_batch_is_what_the_network_takes():
    pair = drawn(plane())
    batch = {name: value[None] for name, value in pair.items()}
    image, label, (lengths, rows), keywords = SliceBatch()(batch, "cpu")
    assert image.shape == (1, 1, 6, 10) and label.shape == (1, 1, 20, 10)
    assert lengths.shape == (1, 4) and rows.shape == (1, 20) and keywords == {}
