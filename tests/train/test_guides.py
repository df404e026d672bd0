"""Laws of the guides of training pairs."""

import numpy as np
import pytest
import torch

from scripts.train.contrast import RandTissueContrastd
from scripts.train.datasets import contrast_weights, with_guides
from scripts.train.guides import RandGuideAcquiredd, RandGuided


def plane(height=60, width=48, seed=0):
    coarse = torch.rand(1, 1, height // 6, width // 6, generator=torch.Generator().manual_seed(seed))
    return 0.1 + 0.8 * torch.nn.functional.interpolate(coarse, size=(height, width), mode="bicubic")[0].clamp(0, 1)


def guided(seed, prob=1.0, **data):
    transform = RandGuided("label", prob)
    transform.set_random_state(seed)
    return transform({"label": plane(), **data})


def acquired(seed=0, spacing=(1.0, 0.8), guide=None, **shares):
    options = {"across": 0.0, "along": 0.0, "moved": 0.0, "useless": 0.0, "cut": 0.0, **shares}
    transform = RandGuideAcquiredd("guide", **options)
    transform.set_random_state(seed)
    return transform({"guide": plane() if guide is None else guide, "spacing": spacing})["guide"]


# Which guide


def test_a_share_of_the_planes_has_a_guide_and_one_of_the_data_is_taken_as_it_is():
    real = plane(seed=5)
    assert 0.55 < np.mean(["guide" in guided(seed, 0.7) for seed in range(200)]) < 0.85
    pairs = [guided(seed, 0.7, guide=real) for seed in range(200)]
    assert 0.55 < np.mean(["guide" in pair for pair in pairs]) < 0.85
    assert all(torch.equal(pair["label"], plane()) and torch.equal(pair.get("guide", real), real) for pair in pairs)


def test_the_guide_is_that_of_the_middle_plane():
    planes, guides = (torch.arange(first, first + 5.0)[:, None, None].expand(5, 6, 7) for first in (0, 10))
    data = RandGuided("label", 1.0)({"label": planes, "guide": guides})
    assert torch.equal(data["guide"], guides[2:3]) and torch.equal(data["label"], planes)


def test_a_plane_without_one_is_shown_in_two_contrasts_of_which_one_is_its_own():
    """The two show one anatomy: equal pixels are equal in both."""
    own = 0
    for seed in range(60):
        pair = guided(seed)
        kept = torch.equal(pair["label"], plane())
        own += kept
        assert kept != torch.equal(pair["guide"], plane())
        other = pair["guide" if kept else "label"]
        order = plane().flatten().argsort()
        jumps = other.flatten()[order].diff().abs()
        assert jumps.max() < 0.2, "a curve of the plane's intensities"
    assert 25 < own < 55


def test_label_maps_have_two_contrasts_of_one_anatomy_both_masked_or_none():
    labels = torch.zeros(1, 40, 40, dtype=torch.int16)
    labels[:, 5:35, 5:35] = 600
    labels[:, 10:30, 10:30] = 3
    labels[:, 15:20, 15:20] = 4
    transform = RandTissueContrastd(["label", "guide"], 499, 0.5, 0.0, (0.4, 0.5), (0.4, 0.5))
    masked = set()
    for seed in range(30):
        transform.set_random_state(seed)
        pair = transform({"label": labels, "guide": labels})
        shown = [bool(pair[key][0, 7, 7] > 1e-3) for key in ("label", "guide")]
        assert shown[0] == shown[1]
        masked.add(shown[0])
        assert (pair["label"] - pair["guide"]).abs().max() > 0.01
    assert masked == {True, False}


# How it was acquired


def test_without_faults_a_guide_stays_and_a_missing_one_stays_missing():
    assert torch.equal(acquired(), plane())
    assert RandGuideAcquiredd("guide")({"spacing": (1.0, 1.0)}) == {"spacing": (1.0, 1.0)}


@pytest.mark.parametrize(("share", "axis"), [("along", 1), ("across", 2)])
def test_slices_of_its_own_take_detail_along_their_axis_alone(share, axis):
    noise = torch.rand(1, 90, 90, generator=torch.Generator().manual_seed(1))
    thick = acquired(3, (1.0, 1.0), noise, **{share: 1.0})
    kept = [thick.diff(dim=d).square().mean() / noise.diff(dim=d).square().mean() for d in (axis, 3 - axis)]
    assert kept[0] < 0.5 * kept[1]
    assert thick.mean().item() == pytest.approx(noise.mean().item(), abs=0.01)


def test_a_small_motion_is_the_one_that_was_drawn():
    """A blob's centre moves by millimetres, which pixels make."""
    blob = torch.zeros(1, 61, 61)
    blob[:, 29:32, 29:32] = 1.0
    places = []
    for seed in range(200):
        moved = acquired(seed, (2.0, 0.5), blob, moved=1.0, turn=0.0)[0]
        y, x = np.mgrid[:61, :61]
        weight = moved.numpy() / moved.sum().item()
        places.append(((weight * y).sum() - 30, (weight * x).sum() - 30))
    spread = np.std(places, axis=0) * [2.0, 0.5]
    np.testing.assert_allclose(spread, 0.4, rtol=0.2)


def test_a_turn_keeps_distances_on_planes_that_are_not_square():
    blobs = torch.zeros(1, 40, 80)
    blobs[:, 19:21, 39:41] = blobs[:, 9:11, 39:41] = 1.0
    transform = RandGuideAcquiredd("guide", across=0, along=0, moved=1.0, useless=0, cut=0, shift=0.0, turn=20.0)
    transform.set_random_state(1)
    moved = transform({"guide": blobs, "spacing": (1.0, 1.0)})["guide"][0].numpy()
    y, x = np.mgrid[:40, :80]
    near = np.hypot(y - 19.5, x - 39.5) < 4
    centres = [
        ((moved * part * y).sum() / (moved * part).sum(), (moved * part * x).sum() / (moved * part).sum())
        for part in (near, ~near)
    ]
    assert np.hypot(*np.subtract(*centres)) == pytest.approx(10, abs=0.3)
    assert np.subtract(*centres)[1] != pytest.approx(0, abs=1)


def test_a_field_of_view_that_ends_leaves_the_rest():
    shares = []
    for seed in range(40):
        cut = acquired(seed, cut=1.0)
        seen = cut > 0
        assert torch.equal(cut[seen], plane()[seen])
        shares.append(seen.float().mean().item())
        rows, columns = seen[0].any(1), seen[0].any(0)
        assert torch.equal(seen[0], rows[:, None] & columns[None])
    assert min(shares) < 0.3 and max(shares) > 0.7


def test_a_useless_guide_shows_another_place():
    for seed in range(10):
        other = acquired(seed, useless=1.0)
        assert (other - plane()).abs().mean() > 0.05


# Which volumes


def test_each_guide_of_a_volume_makes_an_item():
    volumes = [{"label": "a", "contrast": "T1w"}, {"label": "b", "contrast": "T2w", "guides": ["c", "d"]}]
    assert with_guides(volumes) == [
        {"label": "a", "contrast": "T1w"},
        {"label": "b", "contrast": "T2w", "guide": "c"},
        {"label": "b", "contrast": "T2w", "guide": "d"},
    ]


def test_guided_items_have_their_share_of_a_contrast():
    items = [{"contrast": "T1w"}] * 6 + [{"contrast": "T1w", "guide": "a"}] * 2 + [{"contrast": "T2w", "guide": "a"}]
    weights = np.array(contrast_weights(items, [], {"T1w": 3}, guided=0.4))
    np.testing.assert_allclose([weights[:6].sum(), weights[6:8].sum(), weights[8]], [1.8, 1.2, 1])
